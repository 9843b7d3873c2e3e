//! What a server opens in its session's directory before anything runs: the journal, the baselines,
//! the output record; and the commits a crash left unfinished, which it settles. Starts no thread.

use std::io;

use super::core::DEFAULT_SIZE;
use super::journal::Journal;
use super::state::{SessionInfo, SessionState};
use crate::change::Tracker;
use crate::commit::{self, Recovered};
use crate::record::OutputRecord;
use crate::reserve::Ballast;
use crate::sandbox::Stdio;
use crate::sandbox::spec::TerminalSize;

/// See the module.
pub struct Records {
    /// What the journal told.
    pub state: SessionState,
    /// Goes on where it ended.
    pub journal: Journal,
    /// Commits that were unfinished, and what became of them.
    pub recovered: Vec<Recovered>,
    /// The baselines; `None` when nothing is staged.
    pub tracker: Option<Tracker>,
    /// Takes a command's output; `None` without a command, or when it could not be opened.
    pub output: Option<OutputRecord>,
    /// Room for what is to be recorded when a command has ended; `None` without a command.
    pub ballast: Option<Ballast>,
}

impl Records {
    /// The journal's name in a session's directory.
    pub const JOURNAL: &str = "journal.jsonl";

    /// Opens them all. `stdio` is the command's that is being started.
    pub fn open(info: &SessionInfo, is_staged: bool, stdio: Option<Stdio>) -> io::Result<Self> {
        Ballast::clear(&info.dir);
        let ballast = match stdio {
            Some(_) => Some(Ballast::take(&info.dir)?),
            None => None,
        };
        let mut state = SessionState::default();
        let journal = Journal::open(&info.dir.join(Self::JOURNAL), |update| {
            state.apply(&update);
        })?;
        let (mut recovered, mut tracker) = (Vec::new(), None);
        if is_staged {
            let store = info.dir.join("commits");
            recovered = commit::recover(&info.layers, &store).map_err(io::Error::other)?;
            let mut opened = Tracker::open(&info.layers).map_err(io::Error::other)?;
            for back in recovered
                .iter()
                .filter(|one| one.outcome == commit::Settled::RolledBack)
            {
                opened.settled(back).map_err(io::Error::other)?;
            }
            // What never began, or was rolled back by somebody before.
            let is_known = |number| commit::is_known(&store, number);
            opened
                .rejoin_unwritten(&is_known)
                .map_err(io::Error::other)?;
            // What was finished, by this or by somebody before, and is not on record yet.
            let last = state.commits.iter().map(|c| c.number).max().unwrap_or(0);
            let unheard = commit::finished_from(&store, last + 1).map_err(io::Error::other)?;
            for finished in unheard {
                opened.settled(&finished).map_err(io::Error::other)?;
                if recovered.iter().all(|one| one.number != finished.number) {
                    recovered.push(finished);
                }
            }
            recovered.sort_by_key(|one| one.number);
            tracker = Some(opened);
        }
        let output = stdio.and_then(|stdio| {
            let path = info.dir.join("output.cast");
            OutputRecord::open(&path, terminal_size(stdio), info.settings.record_cap)
                .inspect_err(|error| tracing::error!(%error, "opening the output record"))
                .ok()
        });
        Ok(Self {
            state,
            journal,
            recovered,
            tracker,
            output,
            ballast,
        })
    }
}

/// The size of a command's terminal, or the one its record claims for pipes.
pub fn terminal_size(stdio: Stdio) -> TerminalSize {
    match stdio {
        Stdio::Pty(size) => size,
        Stdio::Pipes => DEFAULT_SIZE,
    }
}
