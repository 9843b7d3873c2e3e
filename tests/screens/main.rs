//! What a person sees, as snapshots: state in, picture out; and the help of the command line.

mod agent_pane;
mod asks;
mod cli_reference;
mod conflicts;
mod consent;
mod deciding;
mod feedback;
mod fixture;
mod hostile;
mod sizes;
mod views;
