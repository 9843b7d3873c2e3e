//! The screens of the workstation: state in, picture out.

mod agent_pane;
