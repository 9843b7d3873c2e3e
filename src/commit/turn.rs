//! Whose turn it is to write: one commit at a time in a place, whichever session or process it
//! belongs to. Owns the locks on directories; writes nothing.
//!
//! A commit locks the roots of its layers for itself and every directory above them together with
//! others (`flock`, exclusive and shared). So a commit to a directory and one to a directory below
//! it exclude each other although their roots differ, and two commits beside each other do not. A
//! directory above that cannot be opened for reading is passed over. The kernel drops the locks of
//! a process that was killed.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

use super::CommitError;
use super::place::Root;

/// How long another commit to the same place is waited for.
const TURN: Duration = Duration::from_secs(10);

/// The turn; ends when dropped.
pub(super) struct Turn {
    _locks: Vec<Flock<File>>,
}

/// Waits for the turn to write below these roots, at most ten seconds.
pub(super) fn take(roots: &BTreeMap<String, Root>) -> Result<Turn, CommitError> {
    let until = Instant::now() + TURN;
    // In one order everywhere, those above first.
    let mut locks = Vec::new();
    for (path, alone) in wanted(roots.values().map(|root| root.path.as_path())) {
        locks.extend(lock(&path, alone, until)?);
    }
    Ok(Turn { _locks: locks })
}

/// The directories to lock; `true`: alone.
fn wanted<'a>(roots: impl Iterator<Item = &'a Path>) -> BTreeMap<PathBuf, bool> {
    let mut wanted = BTreeMap::new();
    for root in roots {
        wanted.insert(root.to_owned(), true);
        // The file system's own root is no layer's.
        for above in root.ancestors().skip(1).filter(|p| p.parent().is_some()) {
            wanted.entry(above.to_owned()).or_insert(false);
        }
    }
    wanted
}

fn lock(path: &Path, alone: bool, until: Instant) -> Result<Option<Flock<File>>, CommitError> {
    let failed = |e| CommitError::store("locking the root of a layer,", path, e);
    let kind = if alone {
        FlockArg::LockExclusiveNonblock
    } else {
        FlockArg::LockSharedNonblock
    };
    // A descriptor of its own: two commits of one process exclude each other as well.
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(_) if !alone => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    loop {
        match Flock::lock(file, kind) {
            Ok(lock) => return Ok(Some(lock)),
            Err((back, nix::Error::EWOULDBLOCK | nix::Error::EINTR)) => {
                if Instant::now() >= until {
                    return Err(CommitError::Busy(path.to_owned()));
                }
                file = back;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(_) if !alone => return Ok(None),
            Err((_, e)) => return Err(failed(e.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_above_is_shared_and_a_root_is_taken_alone() {
        let roots = ["/w/sub", "/w", "/x/y"].map(Path::new);
        let wanted: Vec<_> = wanted(roots.into_iter())
            .into_iter()
            .map(|(path, alone)| (path.display().to_string(), alone))
            .collect();
        let expected = [
            ("/w", true),
            ("/w/sub", true),
            ("/x", false),
            ("/x/y", true),
        ];
        assert_eq!(
            wanted,
            expected.map(|(path, alone)| (path.to_owned(), alone))
        );
    }
}
