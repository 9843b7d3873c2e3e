//! The sessions of one user on disk. Owns directory names, `session.json` and the choice of a
//! session by what a person typed; does not look into layers or journals.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::state::{RunState, SessionInfo};
use crate::layer::Timestamp;
use crate::policy::Observations;
use crate::sandbox::{Boundary, ExitStatus};
use crate::text::{visible, visible_path};

/// File of a session's directory that holds the path of its server's socket.
const SOCKET_FILE: &str = "socket";

/// The word for the newest session.
pub const LAST: &str = "last";

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
    /// None but discarded ones.
    #[error("every session was discarded")]
    Discarded,
    /// Nothing matches.
    #[error("no session is named {}", visible(.0.as_bytes()))]
    NotFound(String),
    /// A prefix matches several.
    #[error("{} fits several sessions: {}", visible(.0.as_bytes()), .1.join(", "))]
    Ambiguous(String, Vec<String>),
    /// A file or directory of the store cannot be used.
    #[error("{doing} {}: {source}", visible_path(path))]
    File {
        /// What was attempted.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A session's record cannot be understood.
    #[error("{} is no session record: {cause}", visible_path(path))]
    Record {
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

    /// Where a server of the session with this id listens, or would: what the last one announced,
    /// since it may have had another runtime directory than the caller.
    pub fn socket(&self, id: &str) -> PathBuf {
        match fs::read(self.session_dir(id).join(SOCKET_FILE)) {
            Ok(path) if !path.is_empty() => PathBuf::from(OsString::from_vec(path)),
            _ => self.new_socket(id),
        }
    }

    /// Where a new server of the session with this id listens.
    pub fn new_socket(&self, id: &str) -> PathBuf {
        self.runtime_dir
            .join(format!("v{}", crate::protocol::PROTOCOL_VERSION))
            .join(format!("{id}.sock"))
    }

    /// Tells later callers of [`Store::socket`] where the server listens.
    pub fn announce_socket(&self, id: &str, socket: &Path) -> Result<(), StoreError> {
        let path = self.session_dir(id).join(SOCKET_FILE);
        // Usually the same again, and then a full disk does not matter.
        if fs::read(&path).is_ok_and(|told| told == socket.as_os_str().as_bytes()) {
            return Ok(());
        }
        fs::write(&path, socket.as_os_str().as_bytes())
            .map_err(|error| StoreError::file("writing", &path, error))
    }

    /// Every session, newest start first. A session whose record cannot be read is left out here
    /// (and logged); asked for by its id it gives the error.
    pub fn list(&self) -> Result<Vec<SessionRecord>, StoreError> {
        let mut records = Vec::new();
        for id in self.ids()? {
            match self.load(&id) {
                Ok(record) => records.push(record),
                Err(error) => tracing::warn!(%error, "a session is left out of the list"),
            }
        }
        records.sort_by(|a, b| (b.info.started, &b.info.id).cmp(&(a.info.started, &a.info.id)));
        Ok(records)
    }

    /// The session a person means. `last`, a full id or an exact name; with `prefixes` unique
    /// prefixes of either too. Discarded sessions are found by id only.
    pub fn find(&self, typed: &str, prefixes: bool) -> Result<SessionRecord, StoreError> {
        if typed == LAST {
            return self.last();
        }
        if is_id(typed) && self.record_file(typed).exists() {
            return self.load(typed);
        }
        let records: Vec<_> = self
            .list()?
            .into_iter()
            .filter(|record| record.state != RunState::Discarded)
            .collect();
        let exact: Vec<_> = records.iter().filter(|r| r.info.name == typed).collect();
        if !exact.is_empty() {
            return only(typed, &exact);
        }
        if prefixes && !typed.is_empty() {
            let fitting: Vec<_> = records
                .iter()
                .filter(|r| r.info.id.starts_with(typed) || r.info.name.starts_with(typed))
                .collect();
            if !fitting.is_empty() {
                return only(typed, &fitting);
            }
        }
        Err(if records.is_empty() {
            self.none()
        } else {
            StoreError::NotFound(typed.to_owned())
        })
    }

    /// The newest session among the caller's, discarded ones apart.
    pub fn last(&self) -> Result<SessionRecord, StoreError> {
        let uid = nix::unistd::Uid::effective().as_raw();
        self.list()?
            .into_iter()
            .filter(|record| record.state != RunState::Discarded)
            .find(|record| {
                std::fs::metadata(self.session_dir(&record.info.id))
                    .is_ok_and(|meta| meta.uid() == uid)
            })
            .ok_or_else(|| self.none())
    }

    /// Why there is no session to name.
    fn none(&self) -> StoreError {
        match self.list() {
            Ok(records) => {
                let discarded = |record: &SessionRecord| record.state == RunState::Discarded;
                if !records.is_empty() && records.iter().all(discarded) {
                    StoreError::Discarded
                } else {
                    StoreError::Empty
                }
            }
            Err(error) => error,
        }
    }

    /// The session with exactly this id. `Running` of a dead server is reported as `Lost`.
    pub fn load(&self, id: &str) -> Result<SessionRecord, StoreError> {
        let path = self.record_file(id);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::NotFound(id.to_owned()));
            }
            Err(error) => return Err(StoreError::file("reading", &path, error)),
        };
        let mut record: SessionRecord =
            serde_json::from_slice(&bytes).map_err(|error| StoreError::Record {
                path,
                cause: error.to_string(),
            })?;
        if record.state == RunState::Running && !self.is_served(id) {
            record.state = RunState::Lost;
        }
        Ok(record)
    }

    /// What was counted of a session's accesses, up to about two seconds ago while it works; `None`
    /// when nothing was to be counted.
    pub fn observations(&self, id: &str) -> Result<Option<Observations>, StoreError> {
        super::guard::load(&self.session_dir(id))
    }

    /// The file that the session's server keeps locked (`flock`, exclusive) while it lives.
    pub fn lock_file(&self, id: &str) -> PathBuf {
        self.session_dir(id).join("lock")
    }

    /// Whether a server holds the session: its lock cannot be taken.
    pub fn is_served(&self, id: &str) -> bool {
        // Shared and let go at once, so that two who look do not see each other as a server.
        match File::open(self.lock_file(id)) {
            Ok(file) => matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)),
            Err(_) => false,
        }
    }

    fn record_file(&self, id: &str) -> PathBuf {
        self.session_dir(id).join("session.json")
    }

    /// Names of the session directories that hold a record.
    fn ids(&self) -> Result<Vec<String>, StoreError> {
        let dir = self.state_dir.join("sessions");
        let entries = match std::fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StoreError::file("reading", &dir, error)),
        };
        let mut ids = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| StoreError::file("reading", &dir, error))?;
            if let Ok(name) = entry.file_name().into_string()
                && is_id(&name)
                && self.record_file(&name).exists()
            {
                ids.push(name);
            }
        }
        Ok(ids)
    }
}

impl StoreError {
    pub(super) fn file(doing: &'static str, path: &Path, source: io::Error) -> Self {
        StoreError::File {
            doing,
            path: path.into(),
            source,
        }
    }
}

/// Whether this may be a session's id: one plain path component, so that what a person types never
/// leads out of the store.
fn is_id(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('.')
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn only(typed: &str, fitting: &[&SessionRecord]) -> Result<SessionRecord, StoreError> {
    match fitting {
        [record] => Ok((*record).clone()),
        several => Err(StoreError::Ambiguous(
            typed.to_owned(),
            several.iter().map(|r| r.info.id.clone()).collect(),
        )),
    }
}
