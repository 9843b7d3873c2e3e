//! What a person sees, as snapshots.

mod cli_reference;
//! The screens of the workstation: state in, picture out.
mod agent_pane;
