//! The messages of the guest protocol. Data only. Every string is bytes: programs, arguments and
//! reasons need not be UTF-8.

use serde::{Deserialize, Serialize};

/// Longest text a guest may send, in bytes; more is refused.
pub const TEXT_LIMIT: usize = 4 * 1024;

/// Rows and columns of the agent's terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// The command to run, as the sandbox would start it on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Program and arguments; the program is looked up in the environment's `PATH`.
    pub argv: Vec<Vec<u8>>,
    /// The whole environment, names and values.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Absolute path where it starts.
    pub cwd: Vec<u8>,
    /// User and group it runs as.
    pub uid: u32,
    /// See `uid`.
    pub gid: u32,
    /// Size of its terminal.
    pub size: Size,
}

/// From the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostMessage {
    /// Run this. Once.
    Start(Command),
    /// The terminal has another size.
    Resize(Size),
    /// Send this signal (Linux number) to the command's process group.
    Signal(u8),
    /// End what runs, sync, power off.
    Shutdown,
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// By itself, with this status.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

/// From the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestMessage {
    /// The guest has booted and speaks this version.
    Hello {
        /// Must equal [`PROTOCOL_VERSION`](crate::PROTOCOL_VERSION).
        version: u32,
    },
    /// The command runs.
    Started {
        /// Its process in the guest.
        pid: u32,
    },
    /// The command could not be started.
    Failed {
        /// What was tried: a mount, the terminal, the program.
        step: Vec<u8>,
        /// What the guest's kernel said.
        reason: Vec<u8>,
    },
    /// The command has ended, nothing of it runs any more, and its layers are synced.
    Exited(Exit),
    /// Something for the session's log.
    Log(Vec<u8>),
}

impl GuestMessage {
    /// Whether its texts keep within [`TEXT_LIMIT`].
    pub(crate) fn is_bounded(&self) -> bool {
        match self {
            Self::Failed { step, reason } => step.len().max(reason.len()) <= TEXT_LIMIT,
            Self::Log(text) => text.len() <= TEXT_LIMIT,
            Self::Hello { .. } | Self::Started { .. } | Self::Exited(_) => true,
        }
    }
}
