//! Starting a sandbox. Owns the order of steps from a specification to a running command, and
//! what the session holds of it afterwards.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::spec::TerminalSize;
use super::{Boundary, ExitStatus, SandboxSpec};
use crate::layer::{Layer, StageAccess};

/// Why nothing runs.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The machine or the specification does not allow it.
    #[error("{doing}: {cause}")]
    Setup {
        /// The step, e.g. `making a user namespace`.
        doing: String,
        /// The system's words.
        cause: String,
        /// What mends it.
        hint: Option<String>,
    },
}

/// The command's side of its standard streams.
#[derive(Debug)]
pub enum AgentIo {
    /// The master of its terminal.
    Pty(OwnedFd),
    /// Its three pipes.
    Pipes {
        /// We write.
        stdin: OwnedFd,
        /// We read.
        stdout: OwnedFd,
        /// We read.
        stderr: OwnedFd,
    },
}

/// A started command.
pub struct Running {
    /// What was really put in force.
    pub boundary: Boundary,
    /// Its streams.
    pub io: AgentIo,
    /// The door to its uppers; `None` in mode `host`.
    pub access: Option<Arc<dyn StageAccess>>,
    /// Ends and resizes it.
    pub control: Control,
    /// Tells how it ended.
    pub exit: ExitWaiter,
}

/// Ends and resizes a running command. Cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct Control {}

impl Control {
    /// Asks the command to end (SIGHUP and SIGTERM to its processes), and ends its whole process
    /// tree after `grace`.
    pub fn stop(&self, _grace: Duration) {}

    /// Sets the terminal's size; the kernel tells the command. Nothing for pipes.
    pub fn resize(&self, _size: TerminalSize) {}
}

/// Waits for the end of the command.
pub struct ExitWaiter {}

impl ExitWaiter {
    /// Blocks until the command has ended and its whole process tree is gone.
    pub fn wait(self) -> ExitStatus {
        ExitStatus::Lost
    }
}

/// Starts the command. **Must be called while the process has one thread**: it forks children that
/// go on without exec.
pub fn start(_spec: &SandboxSpec) -> Result<Running, SandboxError> {
    Err(SandboxError::Setup {
        doing: "starting".into(),
        cause: String::new(),
        hint: None,
    })
}

/// The door to the uppers of layers that are not mounted: a helper process in a user namespace of
/// its own, so that the agent's mode-000 entries can be read; plain access where that is refused.
/// **Must be called while the process has one thread.**
pub fn open_unmounted(_layers: &[Layer]) -> Result<Arc<dyn StageAccess>, SandboxError> {
    Err(SandboxError::Setup {
        doing: "starting".into(),
        cause: String::new(),
        hint: None,
    })
}
