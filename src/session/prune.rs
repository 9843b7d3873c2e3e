//! Removing sessions that are done with. Owns which of them may go unasked, and the removal: under
//! the session's lock, out of everybody's sight first, so that what is cut short is no session.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::journal::Journal;
use super::records::Records;
use super::serve::SessionLock;
use super::server::{self, StartError};
use super::state::{RunState, SessionState};
use super::store::{SessionRecord, Store, StoreError};
use crate::commit;
use crate::layer::remove::remove_tree;
use crate::review::{Summary, summary};

/// Begins the name of a directory that was a session.
const GONE: &str = ".gone-";

/// Why a session stays unless it is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stays {
    /// Its command runs, or what it made was neither committed nor discarded.
    #[error("{}", .0.name())]
    State(RunState),
    /// Something happened in it not so long ago.
    #[error("not old enough")]
    Young,
    /// So many changes are staged and not rejected.
    #[error("{0} staged and undecided")]
    Undecided(usize),
    /// Somebody looks at it.
    #[error("in use")]
    Served,
}

/// Whether a session may go unasked: committed or discarded, untouched for `age`, and with nothing
/// staged that nobody has decided on.
pub fn stays(
    store: &Store,
    record: &SessionRecord,
    age: Duration,
) -> Result<Option<Stays>, StoreError> {
    if !matches!(record.state, RunState::Committed | RunState::Discarded) {
        return Ok(Some(Stays::State(record.state)));
    }
    let dir = store.session_dir(&record.info.id);
    let failed = |error| StoreError::file("looking at", &dir, error);
    // Saved whenever something happens: commands, commits, a discard.
    let touched = fs::metadata(dir.join("session.json")).and_then(|meta| meta.modified());
    let rest = SystemTime::now().duration_since(touched.map_err(failed)?);
    if rest.unwrap_or_default() < age {
        return Ok(Some(Stays::Young));
    }
    // The lock is let go at once: an idle server is told to go only when the session shall.
    let Some(_lock) = SessionLock::take(&dir).map_err(failed)? else {
        return Ok(match record.state {
            RunState::Discarded => None,
            _ => Some(Stays::Served),
        });
    };
    // What cannot be read whole may have told of more.
    let journal = dir.join(Records::JOURNAL);
    let is_whole = journal.exists() && !journal.with_extension("cut").exists();
    if !is_settled(&dir) || !is_whole && record.state != RunState::Discarded {
        return Ok(Some(Stays::State(record.state)));
    }
    let undecided = undecided(&dir).map_err(failed)?;
    Ok((undecided > 0).then_some(Stays::Undecided(undecided)))
}

/// Whether no commit of the session is unfinished. What cannot be read may be one.
fn is_settled(dir: &Path) -> bool {
    let commits = dir.join("commits");
    !commits.exists() || commit::unfinished(&commits).is_ok_and(|open| open.is_empty())
}

/// Changes that are staged and not rejected, as the journal tells. The caller holds the lock.
fn undecided(dir: &Path) -> io::Result<usize> {
    let mut state = SessionState::default();
    Journal::open(&dir.join(Records::JOURNAL), |update| state.apply(&update))?;
    let open = state
        .changes
        .iter()
        .filter(|(key, change)| summary(change, state.decisions.get(*key)) != Summary::Rejected);
    Ok(open.count())
}

/// Removes a session with everything that is staged and kept for an undo. Refused while its command
/// runs; an idle server is asked to let go first.
pub fn remove(store: &Store, record: &SessionRecord) -> Result<(), StartError> {
    if record.state == RunState::Running {
        return Err(StartError::Running(record.info.id.clone()));
    }
    server::release(store, record)?;
    let dir = store.session_dir(&record.info.id);
    let failed = |error| StartError::Store(StoreError::file("removing", &dir, error));
    let Some(lock) = SessionLock::take(&dir).map_err(failed)? else {
        return Err(StartError::Running(record.info.id.clone()));
    };
    if !is_settled(&dir) {
        return Err(StartError::Other(format!(
            "session {0} has a commit that a crash left unfinished, and its ledger is needed for \
             that; `pvisor-tui recover {0}` settles it",
            record.info.id
        )));
    }
    let gone = dir.with_file_name(format!("{GONE}{}", record.info.id));
    fs::rename(&dir, &gone).map_err(failed)?;
    drop(lock);
    remove_tree(&gone).map_err(failed)
}

/// Removes what removals left that were cut short.
pub fn finish(store: &Store) -> Result<(), StoreError> {
    let sessions = store.state_dir().join("sessions");
    let entries = match fs::read_dir(&sessions) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(StoreError::file("reading", &sessions, error)),
    };
    for entry in entries.flatten() {
        if entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(GONE.as_bytes())
        {
            let path = entry.path();
            remove_tree(&path).map_err(|error| StoreError::file("removing", &path, error))?;
        }
    }
    Ok(())
}
