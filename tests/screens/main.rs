//! What a person sees, as snapshots.

mod cli_reference;
