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
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use crate::LayerPath;
use crate::layer::{Layer, Node};

use super::ledger::{self, Action, Ledger, Piece, Record, Step};
use super::place::{Root, words};
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
        let mut ledger = self.write_plan()?;
        if let Err(failure) = self.prepare(&mut ledger, make) {
            return match failure {
                Failure::Refused(refusal) => Ok(self.go_back(refusal)),
                Failure::Broken(error) => self.go_back_from(error),
            };
        }
        for root in self.roots.values() {
            root.forget();
        }
        let published = publish::all(&self.steps, &self.roots, |refusal| self.go_back(refusal));
        if let Err(outcome) = published {
            return Ok(outcome);
        }
        let recorded = self.record_changes(&mut ledger);
        if let Err(error) = recorded.and_then(|()| self.sync()) {
            return self.go_back_from(error);
        }
        let committed = ledger
            .write(&Record::Committed)
            .and_then(|()| ledger.sync());
        if let Err(error) = committed {
            // Whether the word reached the device is not known: the ledger will tell.
            return Ok(self.unsettled(&error.to_string()));
        }
        let settled = patiently(|| {
            settle::all(
                &self.steps,
                &self.roots,
                self.store,
                self.number,
                self.undoes,
            )
        });
        Ok(match settled {
            Ok(()) => Outcome::Committed {
                number: self.number,
                paths: self.paths,
                merged: self.merged,
            },
            Err(error) => self.unsettled(&format!("everything was written, but {error}")),
        })
    }

    fn write_plan(&self) -> Result<Ledger, CommitError> {
        let mut ledger = Ledger::create(self.store, self.number, self.undoes, &self.paths)?;
        let mut write = || {
            for step in &self.steps {
                ledger.write(&Record::Step(Box::new(step.clone())))?;
            }
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

    fn go_back(&self, refusal: Refusal) -> Outcome {
        if seam::killed() {
            return self.unsettled("the commit was interrupted");
        }
        match roll_back(&self.steps, &self.roots, self.store, self.number) {
            Ok(kept) => Outcome::Refused {
                refusals: std::iter::once(refusal).chain(kept).collect(),
            },
            Err(error) => self.unsettled(&format!("{}: {}; {error}", refusal.key, refusal.reason)),
        }
    }

    fn go_back_from(&self, error: CommitError) -> Result<Outcome, CommitError> {
        if seam::killed() {
            return Ok(self.unsettled("the commit was interrupted"));
        }
        match roll_back(&self.steps, &self.roots, self.store, self.number) {
            Ok(kept) if kept.is_empty() => Err(error),
            Ok(refusals) => Ok(Outcome::Refused { refusals }),
            Err(second) => Ok(self.unsettled(&format!("{error}; {second}"))),
        }
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

/// Takes the steps back and removes the ledger; returns what had to stay.
pub(super) fn roll_back(
    steps: &[Step],
    roots: &BTreeMap<String, Root>,
    store: &Path,
    number: u32,
) -> Result<Vec<Refusal>, CommitError> {
    let mut kept = Vec::new();
    patiently(|| {
        back::all(steps, roots, store, number, &mut kept)
            .map_err(|(path, source)| CommitError::Unsettled { path, source })
    })?;
    sync(roots)?;
    ledger::forget(store, number)?;
    Ok(kept)
}

/// How often what a directory on its way stopped is tried again, and how long is waited before: a
/// tenth of a second in all.
const ATTEMPTS: u32 = 50;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(2);

/// Somebody may be renaming a directory to and fro, or a link in its place: what can be repeated is
/// tried until the path leads to where it did.
fn patiently<T>(mut attempt: impl FnMut() -> Result<T, CommitError>) -> Result<T, CommitError> {
    let astray = [libc::ELOOP, libc::ENOTDIR, libc::ENOENT, libc::EAGAIN];
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(CommitError::Unsettled { source, .. })
                if source
                    .raw_os_error()
                    .is_some_and(|code| astray.contains(&code))
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
