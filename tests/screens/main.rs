//! What a person sees, as snapshots: state in, picture out.

mod agent_pane;
mod cli_reference;
