//! The session server: a detached process that owns one session. Owns its start, its socket and
//! its end.

use std::path::PathBuf;

use super::client::{Client, ClientError};
use super::store::{SessionRecord, Store, StoreError};
use crate::protocol::{Hello, Welcome};
use crate::sandbox::spec::MountSpec;
use crate::sandbox::{Mode, MountAccess, SandboxError, SandboxSpec};

/// A command to run in a new session or in one that has ended.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// Session to go on with; `None` makes a new one.
    pub resume: Option<SessionRecord>,
    /// A person's name for a new session.
    pub name: Option<String>,
    /// Mode of a new session.
    pub mode: Mode,
    /// Workspace root, canonical.
    pub workspace: PathBuf,
    /// Caller's home, canonical.
    pub home: PathBuf,
    /// Mounts asked for; [`MountAccess::Stage`] ones become layers.
    pub mounts: Vec<MountSpec>,
    /// What the sandbox needs besides what the session decides itself (`layers`, `private` and the
    /// session's own hides are filled in).
    pub spec: SandboxSpec,
    /// What the configuration says to the server.
    pub settings: crate::config::SessionSettings,
}

/// Why a session could not be started or reached.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The sandbox could not be made; nothing ran.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The store could not be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server could not be reached.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The session's command is still running.
    #[error("the command of session {0} is still running; attach to it, or stop it first")]
    Running(String),
    /// Anything else, in one sentence.
    #[error("{0}")]
    Other(String),
}

/// Starts the detached server of a new (or resumed) session, runs the command there and connects.
/// **Must be called while the process has one thread**: the server is a fork that goes on.
pub fn run(
    _store: &Store,
    _request: RunRequest,
    _hello: Hello,
) -> Result<(Client, Welcome), StartError> {
    let _ = MountAccess::Stage;
    Err(StartError::Other(String::new()))
}

/// Connects to a session's server, starting one (without a command) when none runs.
/// **Must be called while the process has one thread.**
pub fn attach(
    _store: &Store,
    _session: &SessionRecord,
    _hello: Hello,
) -> Result<(Client, Welcome), StartError> {
    Err(StartError::Other(String::new()))
}
