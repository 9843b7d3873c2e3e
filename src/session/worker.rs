//! The worker: scans, commits and everything else that may take long, one job after another, off
//! the session thread. Owns the tracker; reports each job's end as an event.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use super::event::{ClientId, Event};
use super::recover;
use super::state::SessionInfo;
use super::store::Store;
use crate::LayerPath;
use crate::change::{Change, ChangeError, ChangeSet, Moves, Tracker};
use crate::commit::{self, Approved, Batch, CommitError, LateSave, Outcome, Recovered, Selection};
use crate::layer::{AccessError, Digest, Layer, NearAccess, StageAccess};
use crate::protocol::{Failure, Reply, Request};
use crate::sandbox::ExitStatus;
use crate::watch::Moved;

/// So many paths are looked at again before a commit is answered.
const SMALL: usize = 1_000;

/// Whom a job's end is told.
pub type ReplyTo = Option<(ClientId, u64)>;

/// What follows a scan, on the session thread, once its changes are agreed.
pub enum Then {
    /// Nothing.
    Rest,
    /// The client's rescan is done.
    Answer(ReplyTo),
    /// A request that wanted fresh changes is carried out.
    Resume(ClientId, u64, Request),
    /// The command has ended; this was the authoritative scan.
    Conclude(ExitStatus),
}

/// Work for the worker.
pub enum Job {
    /// Make the change set anew.
    Scan(Then),
    /// Look at what has moved in the uppers.
    Look,
    /// Take these paths back in the agent's view, then scan.
    Revert(Vec<LayerPath>, ReplyTo),
    /// Commit (or only plan) these, then scan.
    Commit {
        /// The whole change set.
        changes: ChangeSet,
        /// What of it was approved.
        approved: Vec<Approved>,
        /// Number of the commit.
        number: u32,
        /// Plan only.
        dry_run: bool,
        /// Once committed, undo is given up for the commits numbered below this.
        prune_before: u32,
        /// Whom to tell.
        reply_to: ReplyTo,
    },
    /// Undo a commit, then scan.
    Undo {
        /// The commit to undo.
        undoes: u32,
        /// Number of the undo.
        number: u32,
        /// Whom to tell.
        reply_to: ReplyTo,
    },
    /// Settle what an error left unfinished, then scan.
    Recover(ReplyTo),
    /// Look once more at what the last commit displaced.
    LookBack,
    /// Both sides of a change.
    Contents(Arc<Change>, ReplyTo),
    /// `syncfs` of the uppers: the command has ended.
    Sync,
    /// Remove the staged side.
    Discard(ReplyTo),
}

impl Job {
    /// Who waits for an answer.
    pub fn reply_to(&self) -> ReplyTo {
        match self {
            Job::Scan(Then::Resume(client, id, _)) => Some((*client, *id)),
            Job::Scan(Then::Answer(to))
            | Job::Revert(_, to)
            | Job::Recover(to)
            | Job::Contents(_, to)
            | Job::Discard(to) => *to,
            Job::Commit { reply_to, .. } | Job::Undo { reply_to, .. } => *reply_to,
            Job::Scan(Then::Rest | Then::Conclude(_)) | Job::Look | Job::LookBack | Job::Sync => {
                None
            }
        }
    }
}

/// What became of the change set, or why it could not be made.
pub type Scanned = Result<Moves, ChangeError>;

/// A finished job.
pub enum JobDone {
    /// See [`Job::Scan`] and [`Job::Look`]; how long it took.
    Scanned(Scanned, Then, Duration),
    /// See [`Job::Revert`].
    Reverted {
        /// What was taken back.
        paths: Vec<LayerPath>,
        /// The first that could not be.
        error: Option<AccessError>,
        /// The changes afterwards.
        scanned: Scanned,
        /// Whom to tell.
        reply_to: ReplyTo,
    },
    /// See [`Job::Commit`] and [`Job::Undo`].
    Committed {
        /// How it ended.
        outcome: Outcome,
        /// Set for an undo.
        undoes: Option<u32>,
        /// The changes afterwards.
        scanned: Scanned,
        /// Whom to tell.
        reply_to: ReplyTo,
    },
    /// A commit or an undo that could not be tried at all.
    NotTried(ReplyTo, Failure),
    /// See [`Job::Contents`] and [`Job::Discard`].
    Replied(ReplyTo, Result<Reply, Failure>),
    /// See [`Job::Recover`].
    Recovered {
        /// What was settled, or why it could not be.
        settled: Result<Vec<Recovered>, Failure>,
        /// The changes afterwards.
        scanned: Scanned,
        /// Whom to tell.
        reply_to: ReplyTo,
    },
    /// See [`Job::Sync`] and [`Job::LookBack`].
    Synced,
    /// See [`Job::Discard`].
    Discarded(ReplyTo),
}

/// See the module.
pub struct Worker {
    layers: Vec<Layer>,
    tracker: Tracker,
    access: Option<Arc<dyn StageAccess>>,
    moved: Moved,
    commits: PathBuf,
    /// The session itself, and where others lie that may commit to the same place.
    place: (Store, SessionInfo),
    /// The last commit: what it displaced is looked at again.
    last: Option<u32>,
    /// Late saves that were told.
    told: BTreeSet<LateSave>,
    out: Sender<Event>,
}

impl Worker {
    /// A worker for these layers of a session; `moved` is what their watch collects.
    pub fn new(
        place: (Store, SessionInfo),
        layers: Vec<Layer>,
        tracker: Tracker,
        access: Arc<dyn StageAccess>,
        moved: Moved,
        out: Sender<Event>,
    ) -> Self {
        let access: Arc<dyn StageAccess> = Arc::new(NearAccess::new(&layers, access));
        Self {
            layers,
            tracker,
            access: Some(access),
            moved,
            commits: place.1.dir.join("commits"),
            place,
            last: None,
            told: BTreeSet::new(),
            out,
        }
    }

    /// Works until the queue is closed.
    pub fn run(mut self, jobs: &Receiver<Job>) {
        let lost = TellsOfLoss(self.out.clone());
        while let Ok(job) = jobs.recv() {
            let done = self.work(job);
            if self.out.send(Event::Done(Box::new(done))).is_err() {
                break;
            }
        }
        drop(lost);
    }

    fn scan(&mut self) -> Scanned {
        let Some(access) = self.access.clone() else {
            return Ok(Moves::everything(Vec::new()));
        };
        // Whatever has moved until now is seen by the walk.
        drop(self.moved.take());
        self.tracker.scan(&*access).map(Moves::everything)
    }

    fn look(&mut self) -> Scanned {
        let Some(access) = self.access.clone() else {
            return Ok(Moves::default());
        };
        let dirt = self.moved.take();
        self.tracker.look(&dirt, &*access)
    }

    fn scan_closely(&mut self) -> Scanned {
        let Some(access) = self.access.clone() else {
            return Ok(Moves::everything(Vec::new()));
        };
        drop(self.moved.take());
        self.tracker.scan_closely(&*access).map(Moves::everything)
    }

    fn work(&mut self, job: Job) -> JobDone {
        match job {
            Job::Scan(then) => {
                let begun = Instant::now();
                let scanned = match then {
                    Then::Rest => self.scan(),
                    _ => self.scan_closely(),
                };
                JobDone::Scanned(scanned, then, begun.elapsed())
            }
            Job::Look => {
                let begun = Instant::now();
                JobDone::Scanned(self.look(), Then::Rest, begun.elapsed())
            }
            Job::Revert(paths, reply_to) => self.revert(paths, reply_to),
            Job::Commit {
                changes,
                approved,
                number,
                dry_run,
                prune_before,
                reply_to,
            } => {
                let number = match self.begin(number, dry_run) {
                    Ok((number, _)) => number,
                    Err(failure) => return JobDone::NotTried(reply_to, failure),
                };
                let written = written_whole(&approved);
                let ended = self.commit(&changes, approved, number, dry_run);
                if matches!(ended, Ok(Outcome::Committed { .. }))
                    && let Err(error) = commit::prune(&self.commits, prune_before)
                {
                    tracing::warn!(%error, "giving up old pre-images");
                }
                // A million changes more than once are memory that the scan needs.
                drop(changes);
                self.committed(ended, number, None, &written, reply_to)
            }
            Job::Undo {
                undoes,
                number,
                reply_to,
            } => {
                let number = match self.begin(number, false) {
                    Ok((number, false)) => number,
                    // It may have been the last one now.
                    Ok((_, true)) => {
                        let text = "an interrupted commit was settled first; look again at what \
                                    the last commit is, then undo it";
                        return JobDone::NotTried(reply_to, Failure::Other(text.into()));
                    }
                    Err(failure) => return JobDone::NotTried(reply_to, failure),
                };
                let ended = commit::undo(&self.layers, &self.commits, undoes, number);
                self.committed(ended, number, Some(undoes), &HashMap::new(), reply_to)
            }
            Job::Contents(change, reply_to) => {
                let Some(access) = self.access.clone() else {
                    return JobDone::Replied(reply_to, Err(Failure::Discarded));
                };
                let result = self
                    .tracker
                    .contents(&change, &*access)
                    .map(Reply::Contents)
                    .map_err(|e| Failure::Other(e.to_string()));
                JobDone::Replied(reply_to, result)
            }
            Job::Recover(reply_to) => {
                let settled = self.settle_own();
                JobDone::Recovered {
                    settled,
                    scanned: self.scan(),
                    reply_to,
                }
            }
            Job::LookBack => {
                self.look_back();
                JobDone::Synced
            }
            Job::Sync => {
                self.sync();
                JobDone::Synced
            }
            Job::Discard(reply_to) => self.discard(reply_to),
        }
    }

    /// Before the host is written: what was left unfinished in the same place, by this session or
    /// another, is settled. The number to take, and whether something of this session was settled.
    fn begin(&mut self, number: u32, dry_run: bool) -> Result<(u32, bool), Failure> {
        if dry_run {
            return Ok((number, false));
        }
        let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
        let (store, info) = &self.place;
        for text in recover::settle_others(store, info).map_err(|e| other(&e))? {
            let _ = self.out.send(Event::Told(text));
        }
        let settled = self.settle_own()?;
        for one in &settled {
            let _ = self.out.send(Event::Settled(Box::new(one.clone())));
        }
        let number = commit::free_from(&self.commits, number).map_err(|e| other(&e))?;
        self.look_back();
        Ok((number, !settled.is_empty()))
    }

    fn settle_own(&mut self) -> Result<Vec<Recovered>, Failure> {
        let settled = commit::recover(&self.layers, &self.commits)
            .map_err(|error| Failure::Other(error.to_string()))?;
        for one in &settled {
            if one.outcome == commit::Settled::RolledForward
                && let Err(error) = self.tracker.rebase(&one.touched)
            {
                tracing::warn!(%error, "the baselines of a settled commit");
            }
        }
        Ok(settled)
    }

    /// Tells of saves that have landed in what a commit displaced.
    fn look_back(&mut self) {
        let Some(last) = self.last else { return };
        match commit::late_saves_of(&self.commits, last) {
            Ok(saves) => {
                for save in saves {
                    if self.told.insert(save.clone()) {
                        let _ = self.out.send(Event::Told(save.describe()));
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "looking for late saves"),
        }
    }

    fn sync(&self) {
        let Some(access) = &self.access else { return };
        for layer in &self.layers {
            if let Err(error) = access.sync(&layer.name) {
                tracing::warn!(layer = layer.name, %error, "syncing an upper");
            }
        }
    }

    fn revert(&mut self, paths: Vec<LayerPath>, reply_to: ReplyTo) -> JobDone {
        let (mut reverted, mut error) = (Vec::new(), None);
        if let Some(access) = self.access.clone() {
            for key in paths {
                match access.restore(&key.layer, &key.path) {
                    Ok(()) => reverted.push(key),
                    Err(e) => {
                        error = Some(e);
                        break;
                    }
                }
            }
        }
        JobDone::Reverted {
            paths: reverted,
            error,
            scanned: self.scan(),
            reply_to,
        }
    }

    fn commit(
        &mut self,
        changes: &ChangeSet,
        approved: Vec<Approved>,
        number: u32,
        dry_run: bool,
    ) -> Result<Outcome, CommitError> {
        let Some(access) = self.access.clone() else {
            return Ok(Outcome::Nothing);
        };
        let batch = Batch {
            layers: &self.layers,
            changes,
            approved,
            access: &*access,
            store: &self.commits,
            number,
        };
        if dry_run {
            return commit::plan(&batch);
        }
        // What the review saw must be on the disk before the host begins to depend on it.
        self.sync();
        commit::commit(&batch)
    }

    fn committed(
        &mut self,
        ended: Result<Outcome, CommitError>,
        number: u32,
        undoes: Option<u32>,
        written: &HashMap<LayerPath, Digest>,
        reply_to: ReplyTo,
    ) -> JobDone {
        let outcome = match ended {
            Ok(outcome) => outcome,
            Err(error @ CommitError::Unsettled { .. }) => Outcome::Unsettled {
                number,
                reason: error.to_string(),
                ledger: self.commits.join(number.to_string()),
            },
            Err(error) => {
                return JobDone::NotTried(reply_to, Failure::Other(error.to_string()));
            }
        };
        let rebased = match &outcome {
            Outcome::Committed { paths, .. } => self.tracker.rebase_on(paths, written),
            Outcome::Refused { refusals } => {
                // A store through a mapping may leave a file's times alone: what was refused is
                // read anew, whatever its stat says.
                let keys: Vec<_> = refusals.iter().map(|r| r.key.clone()).collect();
                self.tracker.distrust(&keys);
                Ok(())
            }
            _ => Ok(()),
        };
        if let Outcome::Committed { number, paths } = &outcome {
            self.last = Some(*number);
            // What takes a while to look at is looked at when the answer was given.
            if paths.len() <= SMALL {
                self.look_back();
            }
        }
        let scanned = rebased.and_then(|()| self.scan());
        JobDone::Committed {
            outcome,
            undoes,
            scanned,
            reply_to,
        }
    }

    fn discard(&mut self, reply_to: ReplyTo) -> JobDone {
        // The helper holds the overlays: they are unmounted by its end, and only then is anything
        // removed.
        self.access = None;
        for layer in &self.layers {
            if let Err(error) = crate::layer::remove::remove_tree(&layer.dir) {
                let failure = Failure::Other(format!(
                    "removing the staged side at {}: {error}",
                    crate::text::visible_path(&layer.dir)
                ));
                return JobDone::Replied(reply_to, Err(failure));
            }
        }
        JobDone::Discarded(reply_to)
    }
}

/// What these files will hold when they are committed.
fn written_whole(approved: &[Approved]) -> HashMap<LayerPath, Digest> {
    let whole = approved.iter().filter(|a| a.selection == Selection::Whole);
    let digests = whole.filter_map(|approved| {
        let change = &approved.change;
        Some((change.key.clone(), change.after.as_ref()?.digest?))
    });
    digests.collect()
}

/// Tells the session when the worker's thread panics: whoever waits for a job would wait for ever.
struct TellsOfLoss(Sender<Event>);

impl Drop for TellsOfLoss {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.send(Event::WorkerLost);
        }
    }
}
