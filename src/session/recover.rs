//! Commits that a crash left unfinished, in sessions that nobody serves. Owns finding them, settling
//! them under the session's own lock, and the word in its journal; a running server settles its own.

use std::path::{Path, PathBuf};

use super::journal::Journal;
use super::serve::SessionLock;
use super::state::{CommitRecord, SessionInfo, SessionState, Update};
use super::store::{SessionRecord, Store};
use crate::commit::{self, CommitError, Recovered, Settled};
use crate::layer::Timestamp;
use crate::text::visible_path;

/// Why a session's unfinished commits could not be settled.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The commit itself.
    #[error("session {session}: {source}")]
    Commit {
        /// Which session.
        session: String,
        /// Why not.
        source: CommitError,
    },
    /// Its records.
    #[error("{doing} {}: {source}", visible_path(path))]
    Records {
        /// What was attempted.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// What became of a session's unfinished commits.
#[derive(Debug)]
pub enum Settlement {
    /// There are none.
    Nothing,
    /// They are settled now.
    Settled(Vec<Recovered>),
    /// A server holds the session: one may be under way there, else it settles them when asked.
    Served,
}

/// Whether a commit of the session is unfinished: one that is under way, or one that a crash or an
/// error left so. What cannot be read counts as none.
pub fn is_unsettled(record: &SessionRecord) -> bool {
    commit::unfinished(&record.info.dir.join("commits")).is_ok_and(|numbers| !numbers.is_empty())
}

/// Settles what a crash left unfinished in a session, unless a server holds it.
pub fn settle(record: &SessionRecord) -> Result<Settlement, RecoverError> {
    if !is_unsettled(record) {
        return Ok(Settlement::Nothing);
    }
    let info = &record.info;
    let failed = |doing, path: &Path, source| RecoverError::Records {
        doing,
        path: path.to_owned(),
        source,
    };
    let lock = SessionLock::take(&info.dir).map_err(|e| failed("locking", &info.dir, e))?;
    let Some(_lock) = lock else {
        return Ok(Settlement::Served);
    };
    let settled = host_side(info)?;
    let path = info.dir.join("journal.jsonl");
    let mut state = SessionState::default();
    let told = Journal::open(&path, |update| state.apply(&update)).and_then(|mut journal| {
        for one in &settled {
            // What it finished is learnt by the next server, together with the baselines.
            journal.append(&Update::Noticed(one.describe()))?;
        }
        journal.flush()
    });
    told.map_err(|e| failed("writing", &path, e))?;
    Ok(Settlement::Settled(settled))
}

/// Settles what sessions other than `own` left unfinished in a place that `info` commits to. Waits
/// for a commit that is under way there.
pub(super) fn settle_others(
    store: &Store,
    info: &SessionInfo,
) -> Result<Vec<String>, RecoverError> {
    let roots: Vec<_> = info.layers.iter().map(|layer| layer.root.clone()).collect();
    settle_at(store, &roots, Some(&info.id))
}

/// Settles what any session but `except` left unfinished in or around these directories; a sentence
/// for each. Waits for a commit that is under way there.
pub fn settle_at(
    store: &Store,
    dirs: &[PathBuf],
    except: Option<&str>,
) -> Result<Vec<String>, RecoverError> {
    let mut told = Vec::new();
    for other in store.list().unwrap_or_default() {
        let own = except == Some(other.info.id.as_str());
        if own || !meets(&other.info, dirs) || !is_unsettled(&other) {
            continue;
        }
        let settled = match settle(&other)? {
            Settlement::Nothing => continue,
            Settlement::Settled(settled) => settled,
            Settlement::Served => host_side(&other.info)?,
        };
        let of = |one: &Recovered| format!("In session {}: {}", other.info.id, one.describe());
        told.extend(settled.iter().map(of));
    }
    Ok(told)
}

fn host_side(info: &SessionInfo) -> Result<Vec<Recovered>, RecoverError> {
    commit::recover(&info.layers, &info.dir.join("commits")).map_err(|source| {
        RecoverError::Commit {
            session: info.id.clone(),
            source,
        }
    })
}

/// Whether a layer of the session lies in, or around, one of these directories.
fn meets(info: &SessionInfo, dirs: &[PathBuf]) -> bool {
    info.layers.iter().any(|layer| {
        dirs.iter()
            .any(|dir| layer.root.starts_with(dir) || dir.starts_with(&layer.root))
    })
}

/// The record of a commit that was finished by settling it.
pub(super) fn record_of(settled: &Recovered) -> Option<CommitRecord> {
    (settled.outcome == Settled::RolledForward).then(|| CommitRecord {
        number: settled.number,
        undoes: settled.undoes,
        paths: settled.paths.clone(),
        at: Timestamp::now(),
        by: String::new(),
    })
}
