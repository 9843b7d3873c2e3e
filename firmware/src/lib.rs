//! The guest protocol: what the host and the first process of the guest say to each other. Owns
//! the messages, their version and their framing; no port and no process.
//!
//! Two ports join host and guest. The bytes of the agent's terminal have one of their own and are
//! never framed; these messages use the other:
//!
//! ```text
//! host                                   guest (pvisor-init)
//!   <------------------ Hello{version} ----   after boot
//!   ---- Start(command) ------------------>   mounts are made, the command runs on a terminal
//!   <------------------ Started{pid} ------   or Failed{step, reason}
//!   ---- Resize, Signal ------------------>
//!   <------------------ Exited(exit) ------   all its children are gone, file systems are synced
//!   ---- Shutdown ------------------------>
//! ```
//!
//! The guest is not trusted: the host bounds every frame, takes each message only where it is due,
//! and treats every text in one as made by the agent.
#![forbid(unsafe_code)]

mod frame;
mod message;

pub use frame::{Decoder, FrameError, MAX_FRAME, encode, read, write};
pub use message::{Command, Exit, GuestMessage, HostMessage, Size, TEXT_LIMIT};

/// Version of the messages. Host and firmware are built together; a mismatch means that an old
/// initramfs was kept.
pub const PROTOCOL_VERSION: u32 = 1;
