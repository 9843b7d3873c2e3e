//! The sandbox: where the agent's command runs. Owns namespaces, mounts, identity, environment
//! and the process tree; knows nothing of review or commit. Without a sandbox nothing runs.

mod agent;
pub mod boundary;
pub(crate) mod cgroup;
pub mod choice;
pub mod detach;
mod devices;
mod failure;
mod fence;
mod file_server;
mod fuse_mount;
mod helper;
pub mod hidden;
mod host;
mod init;
mod landlock;
mod late;
mod limits;
mod listening;
mod mount_api;
mod namespace;
mod network;
mod overlay;
mod ownership;
mod place;
mod probe;
mod rights;
pub mod seccomp;
mod shim;
pub mod spec;
mod stage;
mod staging;
pub mod start;
pub mod submounts;
mod supervisor;
pub(crate) mod trial;
mod view;
mod wire;

pub use boundary::Boundary;
pub use choice::{Clash, clash};
pub use overlay::make_upper;
pub use spec::{MountAccess, MountSpec, SandboxSpec, Stdio};
pub use start::{
    AgentIo, Control, ExitWaiter, Running, SandboxError, Starting, begin, open_unmounted, start,
};
pub use submounts::Submounts;

use serde::{Deserialize, Serialize};

/// How the agent is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Namespaces and staged layers.
    Staged,
    /// A plain host process under supervision; changes go to the host directly.
    Host,
}

impl Mode {
    /// The name used on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Staged => "staged",
            Mode::Host => "host",
        }
    }
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// It returned this status.
    Code(u8),
    /// A signal ended it.
    Signal(i32),
    /// The time limit ended it.
    TimedOut,
    /// The session ended it: it had staged more than it may.
    StageFull,
    /// It could not be executed: found but not executable (126), or not found (127).
    NotExecuted(u8),
    /// The sandbox or the server was lost while it ran.
    Lost,
    /// The file server of its layers has ended, and with it everything that needed its files.
    FilesLost,
    /// The server of its renames has ended, and it was ended with that.
    RenamerLost,
}

impl ExitStatus {
    /// Which process of ours was lost while the command ran, as far as that is known; `None` when
    /// none was.
    pub fn lost(self) -> Option<&'static str> {
        match self {
            ExitStatus::Lost => {
                Some("the session server, the helper or the sandbox's first process")
            }
            ExitStatus::FilesLost => Some("the file server"),
            ExitStatus::RenamerLost => Some("the server of renames"),
            _ => None,
        }
    }

    /// [`Self::code`], if the command's end was seen at all.
    pub fn known(self) -> Option<u8> {
        (self != ExitStatus::Lost).then(|| self.code())
    }

    /// The status as a shell would report it (128 plus the number for a signal, 124 when a
    /// limit of time or of the stage ended it, 137 when a process of ours was lost: the command was
    /// killed with it).
    pub fn code(self) -> u8 {
        match self {
            ExitStatus::Code(code) | ExitStatus::NotExecuted(code) => code,
            ExitStatus::Signal(signal) => 128u8.wrapping_add(signal as u8),
            ExitStatus::TimedOut | ExitStatus::StageFull => 124,
            ExitStatus::Lost | ExitStatus::FilesLost | ExitStatus::RenamerLost => 137,
        }
    }
}
