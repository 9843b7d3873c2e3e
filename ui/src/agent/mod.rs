//! The agent's terminal on the person's screen, and the person's input on its way to the agent.
//! Owns drawing and encoding; the terminal itself is the engine's
//! [`Emulator`](pvisor::emulator::Emulator). Nothing here reads or writes a descriptor.

mod keys;
mod mouse;
mod pane;
mod paste;

pub use keys::encode_key;
pub use mouse::encode_mouse;
pub use pane::{AgentPane, ColorDepth};
pub use paste::{encode_focus, encode_paste};
