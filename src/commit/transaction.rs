//! One commit or undo from pre-flight to settlement. Owns the order in which ledger, device and
//! host are written, and what is done when something fails on the way.
//!
//! ```text
//! pre-flight --> ledger: steps, Planned (fsync) --> entries made beside their destinations
//!   --> syncfs --> ledger: Prepared (fsync) --> exchanged, under leases --> syncfs
//!   --> ledger: Committed (fsync) --> what was displaced goes to the store --> ledger closed
//! ```
//! Before `Committed` every way out leads back, after it forward.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use crate::LayerPath;
use crate::layer::{Layer, Node};

use super::astray::{self, Directories};
use super::ledger::{self, Action, Ledger, Piece, Record, Step};
use super::place::{Root, shown, words};
use super::preflight::{self, AgentSide};
use super::{CommitError, Outcome, Refusal, back, host, publish, seam, settle, verify};

/// What is to be carried out.
pub(super) struct Transaction<'a> {
    pub roots: BTreeMap<String, Root>,
    pub steps: Vec<Step>,
    pub paths: Vec<LayerPath>,
    /// Those of them that are merged.
    pub merged: Vec<LayerPath>,
    pub store: &'a Path,
    pub number: u32,
    pub undoes: Option<u32>,
}

/// Opens the roots of the named layers.
pub(super) fn open_roots(
    layers: &[Layer],
    wanted: &[String],
) -> Result<BTreeMap<String, Root>, CommitError> {
    let mut roots = BTreeMap::new();
    for name in wanted {
        let layer = layers
            .iter()
            .find(|layer| layer.name == *name)
            .ok_or_else(|| CommitError::NoLayer(name.clone()))?;
        let root = Root::open(layer)
            .map_err(|e| CommitError::store("opening the root of a layer,", &layer.root, e))?;
        roots.insert(name.clone(), root);
    }
    Ok(roots)
}

impl Transaction<'_> {
    /// Checks only.
    pub fn check(&mut self, agent: &AgentSide<'_>) -> Result<Vec<Refusal>, CommitError> {
        preflight::check(&mut self.steps, &self.roots, self.store, agent)
    }

    /// Carries the batch out. `make` prepares the new entries.
    pub fn run(mut self, make: &mut dyn Make) -> Result<Outcome, CommitError> {
        let mut directories = Directories::of(&self.steps, &self.roots);
        let mut ledger = self.write_plan(&directories)?;
        if let Err(failure) = self.prepare(&mut ledger, make) {
            return match failure {
                Failure::Refused(refusal) => Ok(self.go_back(refusal, directories)),
                Failure::Broken(error) => self.go_back_from(error, directories),
            };
        }
        for root in self.roots.values() {
            root.forget();
        }
        let published = publish::all(&self.steps, &self.roots, |refusal| {
            self.go_back(refusal, std::mem::take(&mut directories))
        });
        if let Err(outcome) = published {
            return Ok(outcome);
        }
        let recorded = self.record_changes(&mut ledger);
        if let Err(error) = recorded.and_then(|()| self.sync()) {
            return self.go_back_from(error, directories);
        }
        let committed = ledger
            .write(&Record::Committed)
            .and_then(|()| ledger.sync());
        if let Err(error) = committed {
            // Whether the word reached the device is not known: the ledger will tell.
            return Ok(self.unsettled(&error.to_string()));
        }
        let settled = settle(
            &self.steps,
            &self.roots,
            (self.store, self.number, self.undoes),
            directories,
            Lost::Waits,
        );
        Ok(match settled {
            Ok(_) => Outcome::Committed {
                number: self.number,
                paths: self.paths,
                merged: self.merged,
            },
            Err(error) => self.unsettled(&format!("everything was written, but {error}")),
        })
    }

    fn write_plan(&self, directories: &Directories) -> Result<Ledger, CommitError> {
        let mut ledger = Ledger::create(self.store, self.number, self.undoes, &self.paths)?;
        let mut write = || {
            for step in &self.steps {
                ledger.write(&Record::Step(Box::new(step.clone())))?;
            }
            ledger.write(&Record::Directories(directories.to_record()))?;
            ledger.write(&Record::Planned)?;
            ledger.sync()?;
            ledger.sync_names()
        };
        match write() {
            Ok(()) => Ok(ledger),
            Err(error) => {
                if !seam::killed() {
                    ledger::forget(self.store, self.number)?;
                }
                Err(error)
            }
        }
    }

    fn prepare(&mut self, ledger: &mut Ledger, make: &mut dyn Make) -> Result<(), Failure> {
        let mut all = Vec::with_capacity(self.steps.len());
        make.make(&self.steps, &self.roots, &mut |step, made| {
            ledger.write(&Record::Staged {
                step,
                after: made.clone(),
            })?;
            all.push((step, made));
            Ok(())
        })?;
        for (step, made) in all {
            if let Action::Swap { after, .. } = &mut self.steps[step].action {
                *after = made;
            }
        }
        self.sync()?;
        ledger.write(&Record::Prepared)?;
        ledger.sync()?;
        Ok(())
    }

    /// One `syncfs` per file system.
    fn sync(&self) -> Result<(), CommitError> {
        sync(&self.roots)
    }

    /// What undo compares with, where it is not known from making it.
    fn record_changes(&self, ledger: &mut Ledger) -> Result<(), CommitError> {
        for (index, step) in self.steps.iter().enumerate() {
            let (before, after) = match &step.action {
                Action::Meta { before, after } | Action::Move { before, after, .. } => {
                    (before, after)
                }
                Action::Swap { after, .. } => {
                    if let Some(after) = self.unreadable(step, after) {
                        ledger.write(&Record::Staged { step: index, after })?;
                    }
                    continue;
                }
            };
            if let Some(root) = self.roots.get(&step.layer)
                && let Ok(Some(look)) = root.look(&step.path)
            {
                let left = Node {
                    digest: before.digest,
                    target: before.target.clone(),
                    ..verify::with_stat(after, &look.node)
                };
                ledger.write(&Record::Changed {
                    step: index,
                    after: Arc::new(left),
                })?;
            }
        }
        Ok(())
    }

    /// Of an entry that its owner may not read the stat is all that an undo can compare, and the
    /// rename has moved its ctime: the entry as it is now.
    fn unreadable(&self, step: &Step, after: &[Piece]) -> Option<Vec<Piece>> {
        let top = after.first()?;
        if nix::unistd::geteuid().is_root() || !verify::is_shut(&top.node) {
            return None;
        }
        let look = self.roots.get(&step.layer)?.look(&step.path).ok()??;
        let mut after = after.to_vec();
        after[0].node = Arc::new(verify::with_stat(&after[0].node, &look.node));
        Some(after)
    }

    fn go_back(&self, refusal: Refusal, directories: Directories) -> Outcome {
        if seam::killed() {
            return self.unsettled("the commit was interrupted");
        }
        match self.roll_back(directories) {
            Ok(kept) => self.refused([refusal].into_iter().chain(kept).collect()),
            Err(error) => self.unsettled(&format!("{}: {}; {error}", refusal.key, refusal.reason)),
        }
    }

    fn go_back_from(
        &self,
        error: CommitError,
        directories: Directories,
    ) -> Result<Outcome, CommitError> {
        if seam::killed() {
            return Ok(self.unsettled("the commit was interrupted"));
        }
        match self.roll_back(directories) {
            Ok(kept) if kept.is_empty() => Err(error),
            Ok(refusals) => Ok(self.refused(refusals)),
            Err(second) => Ok(self.unsettled(&format!("{error}; {second}"))),
        }
    }

    fn roll_back(&self, directories: Directories) -> Result<Vec<Refusal>, CommitError> {
        let ledger = (self.store, self.number);
        roll_back(&self.steps, &self.roots, ledger, directories, Lost::Waits)
    }

    /// Everything was taken back, unless something of it could not be.
    fn refused(&self, refusals: Vec<Refusal>) -> Outcome {
        if !refusals.iter().any(|r| r.reason.starts_with(back::LOST)) {
            return Outcome::Refused { refusals };
        }
        let told = |r: &Refusal| format!("{}: {}", r.key, r.reason);
        let told: Vec<String> = refusals.iter().take(TOLD).map(told).collect();
        let more = refusals.len().saturating_sub(TOLD);
        let more = (more > 0).then(|| format!("; and {more} more"));
        self.unsettled(&format!("{}{}", told.join("; "), more.unwrap_or_default()))
    }

    fn unsettled(&self, reason: &str) -> Outcome {
        Outcome::Unsettled {
            number: self.number,
            reason: reason.to_owned(),
            ledger: ledger::path(self.store, self.number),
        }
    }
}

/// Prepares the new entries of a batch.
pub(super) trait Make {
    /// Makes what every swap of `steps` puts on the host under its temporary name. `done` is told of
    /// each step, in any order, what was made for it.
    fn make(
        &mut self,
        steps: &[Step],
        roots: &BTreeMap<String, Root>,
        done: &mut dyn FnMut(usize, Vec<Piece>) -> Result<(), CommitError>,
    ) -> Result<(), Failure>;
}

/// Why a batch could not be prepared.
pub(super) enum Failure {
    /// Something stands in the way of a path.
    Refused(Refusal),
    /// The stage or the store cannot be used.
    Broken(CommitError),
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        Self::Broken(error)
    }
}

/// Reasons named where a commit could not be taken back whole.
const TOLD: usize = 20;

/// What becomes of steps whose directory is found nowhere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// It may have been moved out of the workspace, and come back.
    Waits,
    /// They are given up, and named.
    IsGivenUp,
}

/// Takes the steps back and removes the ledger (of that number in that store); returns what had to
/// stay.
pub(super) fn roll_back(
    steps: &[Step],
    roots: &BTreeMap<String, Root>,
    (store, number): (&Path, u32),
    mut directories: Directories,
    lost: Lost,
) -> Result<Vec<Refusal>, CommitError> {
    let mut kept = Vec::new();
    let given_up = wherever(roots, &mut directories, lost, |directories| {
        back::all(steps, roots, store, number, directories, &mut kept)
            .map_err(|(path, source)| CommitError::Unsettled { path, source })
    })?;
    kept.extend(given_up);
    sync(roots)?;
    ledger::forget(store, number)?;
    Ok(kept)
}

/// Ends what a committed batch has left to do and closes its ledger; returns what had to be left.
pub(super) fn settle(
    steps: &[Step],
    roots: &BTreeMap<String, Root>,
    (store, number, undoes): (&Path, u32, Option<u32>),
    mut directories: Directories,
    lost: Lost,
) -> Result<Vec<Refusal>, CommitError> {
    wherever(roots, &mut directories, lost, |directories| {
        settle::all(steps, roots, store, number, undoes, directories)
    })
}

/// Repeats `attempt` until no directory of its steps is missing that could be found or given up.
fn wherever(
    roots: &BTreeMap<String, Root>,
    directories: &mut Directories,
    lost: Lost,
    mut attempt: impl FnMut(&Directories) -> Result<(), CommitError>,
) -> Result<Vec<Refusal>, CommitError> {
    let mut given_up = Vec::new();
    loop {
        let (path, source) = match patiently(|| attempt(directories)) {
            Err(CommitError::Unsettled { path, source }) => (path, source),
            other => return other.map(|()| given_up),
        };
        let Some(dir) = astray::of(&source).cloned() else {
            return Err(CommitError::Unsettled { path, source });
        };
        let root = roots.get(&dir.layer);
        let why = match root.and_then(|root| directories.find(root, &dir)) {
            Some(now) => format!(
                "its directory {dir} was moved to {}; move it back, then `pvisor-tui recover`",
                shown(now.as_path())
            ),
            None if lost == Lost::Waits => format!(
                "its directory {dir} is gone; if it was moved, move it back; then `pvisor-tui recover`"
            ),
            None => {
                given_up.push(Refusal {
                    key: dir.clone(),
                    reason:
                        "this directory was removed, or moved out of the workspace: what had been \
                             written in it, and what was there before, went with it"
                            .into(),
                });
                directories.give_up(dir);
                continue;
            }
        };
        let source = io::Error::other(why);
        return Err(CommitError::Unsettled { path, source });
    }
}

/// How often what a directory on its way stopped is tried again, and how long is waited before: a
/// tenth of a second in all.
const ATTEMPTS: u32 = 50;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(2);

/// Somebody may be renaming a directory to and fro, or a link in its place: what can be repeated is
/// tried until the path leads to where it did.
fn patiently<T>(mut attempt: impl FnMut() -> Result<T, CommitError>) -> Result<T, CommitError> {
    let on_the_way = [libc::ELOOP, libc::ENOTDIR, libc::ENOENT, libc::EAGAIN];
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(CommitError::Unsettled { source, .. })
                if (astray::of(&source).is_some()
                    || source
                        .raw_os_error()
                        .is_some_and(|code| on_the_way.contains(&code)))
                    && !seam::killed() =>
            {
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
    attempt()
}

/// One `syncfs` per file system of the layers.
pub(super) fn sync(roots: &BTreeMap<String, Root>) -> Result<(), CommitError> {
    let mut done = Vec::new();
    for root in roots.values() {
        let device = root
            .look(&crate::RelPath::root())
            .ok()
            .flatten()
            .map(|look| look.node.dev);
        if device.is_some() && done.contains(&device) {
            continue;
        }
        host::sync_file_system(root.fd().as_fd())
            .map_err(|e| CommitError::store("syncing the file system of", &root.path, e))?;
        done.push(device);
    }
    Ok(())
}

/// The system's words for what stopped a step, for messages.
pub(super) fn stopped(path: &LayerPath, error: &std::io::Error) -> String {
    format!("{path} could not be settled: {}", words(error))
}
