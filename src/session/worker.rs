//! The worker: scans, commits and everything else that may take long, one job after another, off
//! the session thread. Owns the tracker; reports each job's end as an event.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use super::event::{ClientId, Event};
use super::recover;
use super::state::SessionInfo;
use super::store::Store;
use crate::LayerPath;
use crate::change::{Change, ChangeError, ChangeSet, Moves, Sides, Tracker, Written};
use crate::commit::{
    self, Approved, Batch, CommitError, LateSave, Merged, Outcome, Recovered, Selection,
};
use crate::layer::{AccessError, Layer, NearAccess, StageAccess};
use crate::protocol::{Failure, MergedFile, Reply, Request, Resolution};
use crate::sandbox::ExitStatus;
use crate::watch::Moved;

/// So many paths are looked at again before a commit is answered.
const SMALL: usize = 1_000;

/// Bytes that a commit merges at most.
const MERGED_AT_MOST: usize = 128 << 20;

type Merges = std::collections::BTreeMap<LayerPath, Result<Merged, String>>;

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
        /// Merge where the host has changed a file as well.
        merge: bool,
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
    /// What a merge of a change with the host's file would be.
    Merge(Arc<Change>, ReplyTo),
    /// The merge with markers, to be edited.
    Marked(Arc<Change>, ReplyTo),
    /// Settle a conflict in the agent's view, then scan.
    Resolve(Arc<Change>, Resolution, ReplyTo),
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
            | Job::Merge(_, to)
            | Job::Marked(_, to)
            | Job::Resolve(_, _, to)
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
    /// See [`Job::Resolve`].
    Resolved {
        /// The change.
        key: LayerPath,
        /// Why not, in words without the path.
        result: Result<(), String>,
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
    pub(super) tracker: Tracker,
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
                merge,
                dry_run,
                prune_before,
                reply_to,
            } => {
                let number = match self.begin(number, dry_run) {
                    Ok((number, _)) => number,
                    Err(failure) => return JobDone::NotTried(reply_to, failure),
                };
                let merged = if merge {
                    self.merge_all(&approved)
                } else {
                    Merges::new()
                };
                let written = written(&approved);
                let ended = self.commit(&changes, approved, &merged, number, dry_run);
                if matches!(ended, Ok(Outcome::Committed { .. }))
                    && let Err(error) = commit::prune(&self.commits, prune_before)
                {
                    tracing::warn!(%error, "giving up old pre-images");
                }
                // A million changes more than once are memory that the scan needs.
                drop(changes);
                self.committed(ended, number, None, (&written, &merged), reply_to)
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
                self.committed(
                    ended,
                    number,
                    Some(undoes),
                    (&Written::default(), &Merges::new()),
                    reply_to,
                )
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
            Job::Merge(change, reply_to) => {
                let approved = Approved {
                    change,
                    selection: Selection::Whole,
                };
                let result = self.merge_one(&approved).map(|(sides, merged)| MergedFile {
                    digest: approved.change.digest,
                    host: merged.host,
                    host_bytes: sides.host.1,
                    node: merged.node,
                    bytes: merged.bytes,
                });
                JobDone::Replied(reply_to, Ok(Reply::Merged(Box::new(result))))
            }
            Job::Marked(change, reply_to) => {
                let marked = Reply::Marked(Box::new(self.marked_file(&change)));
                JobDone::Replied(reply_to, Ok(marked))
            }
            Job::Resolve(change, how, reply_to) => JobDone::Resolved {
                result: self.resolve(&change, &how),
                key: change.key.clone(),
                scanned: self.scan(),
                reply_to,
            },
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
            if let Err(error) = self.tracker.settled(one) {
                tracing::warn!(%error, "the baselines of a settled commit");
            }
        }
        // Another session may have rolled one back that was this one's.
        let is_known = |number| commit::is_known(&self.commits, number);
        self.tracker
            .rejoin_unwritten(&is_known)
            .map_err(|error| Failure::Other(error.to_string()))?;
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
        merged: &Merges,
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
            merged,
            access: &*access,
            store: &self.commits,
            number,
        };
        if dry_run {
            return commit::plan(&batch);
        }
        // Whatever happens meanwhile, the host's edits never count as taken away by the agent.
        for (key, merged) in merged {
            if let Ok(merged) = merged
                && let Err(error) =
                    self.tracker
                        .part(key, number, &merged.agreed, &merged.agreed_bytes)
            {
                tracing::warn!(%error, "the baseline of a merge");
                let refusals = vec![commit::Refusal {
                    key: key.clone(),
                    reason: "what its merge is based on could not be recorded".into(),
                }];
                return Ok(Outcome::Refused { refusals });
            }
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
        (written, merged): (&Written, &Merges),
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
                // What was begun and is not taken back yet is settled with its baselines.
                let is_known = |number| commit::is_known(&self.commits, number);
                if let Err(error) = self.tracker.rejoin_unwritten(&is_known) {
                    tracing::warn!(%error, "the baselines of a commit that was not tried");
                }
                return JobDone::NotTried(reply_to, Failure::Other(error.to_string()));
            }
        };
        let rebased = match &outcome {
            Outcome::Committed { paths, .. } => self.rebase(paths, undoes, written, merged),
            Outcome::Refused { .. } | Outcome::Nothing if !merged.is_empty() => {
                self.unpart(merged, number, &outcome)
            }
            Outcome::Refused { refusals } => {
                // A store through a mapping may leave a file's times alone: what was refused is
                // read anew, whatever its stat says.
                let keys: Vec<_> = refusals.iter().map(|r| r.key.clone()).collect();
                self.tracker.distrust(&keys);
                Ok(())
            }
            _ => Ok(()),
        };
        if let Outcome::Committed { number, paths, .. } = &outcome {
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

    /// Merges every approved change that is in conflict with the host's file.
    fn merge_all(&mut self, approved: &[Approved]) -> Merges {
        let mut room = MERGED_AT_MOST;
        let mut merges = Merges::new();
        for one in approved.iter().filter(|a| a.change.conflict.is_some()) {
            let merged = self.merge_one(one).and_then(|(_, merged)| {
                let size = merged.bytes.len() + merged.agreed_bytes.len();
                room = room.checked_sub(size).ok_or_else(|| {
                    "too much is to be merged at once; commit fewer files together".to_owned()
                })?;
                Ok(merged)
            });
            merges.insert(one.change.key.clone(), merged);
        }
        merges
    }

    /// The door to the uppers, while there are any.
    pub(super) fn stage(&self) -> Result<Arc<dyn StageAccess>, String> {
        self.access.clone().ok_or(Failure::Discarded.to_string())
    }

    fn merge_one(&mut self, approved: &Approved) -> Result<(Sides, Merged), String> {
        let access = self.stage()?;
        let sides = self.tracker.sides(&approved.change, &*access)?;
        let merged = commit::merged(approved, &sides)?;
        Ok((sides, merged))
    }

    /// Nothing was written: the baselines are as before.
    fn unpart(
        &mut self,
        merges: &Merges,
        number: u32,
        outcome: &Outcome,
    ) -> Result<(), ChangeError> {
        if let Outcome::Refused { refusals } = outcome {
            let keys: Vec<_> = refusals.iter().map(|r| r.key.clone()).collect();
            self.tracker.distrust(&keys);
        }
        let keys: Vec<LayerPath> = merges.keys().cloned().collect();
        self.tracker.rejoin(&keys, number)
    }

    /// The baseline after a commit or an undo; that of what was merged was written before.
    fn rebase(
        &mut self,
        paths: &[LayerPath],
        undoes: Option<u32>,
        written: &Written,
        merges: &Merges,
    ) -> Result<(), ChangeError> {
        let merged = |key: &&LayerPath| matches!(merges.get(key), Some(Ok(_)));
        let plain: Vec<LayerPath> = paths.iter().filter(|k| !merged(k)).cloned().collect();
        self.tracker.rebase_on(&plain, written)?;
        match undoes {
            Some(undone) => self.tracker.rejoin(paths, undone),
            None => Ok(()),
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

/// What a commit of these will have written.
fn written(approved: &[Approved]) -> Written {
    let mut written = Written::default();
    for Approved { change, selection } in approved {
        let digest = change.after.as_ref().and_then(|node| node.digest);
        match (selection, digest) {
            (Selection::Whole, Some(digest)) => {
                written.whole.insert(change.key.clone(), digest);
            }
            (Selection::Whole, None) => {}
            (Selection::Items(_), _) => {
                written.parts.insert(change.key.clone());
            }
        }
    }
    written
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
