//! Work that the session hands to its worker, and what follows from each end. Owns when a scan is
//! due, what waits for it, and the difference that becomes an update.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Instant;

use super::agent::Agent;
use super::core::Session;
use super::state::Update;
use super::worker::{Job, JobDone, Scanned, Then};
use crate::LayerPath;
use crate::change::{Change, ChangeError, ChangeSet, Moves};
use crate::commit::Outcome;
use crate::layer::{AccessError, Timestamp};
use crate::protocol::{Failure, Reply};
use crate::sandbox::ExitStatus;

/// Changes or decisions agreed on in one update at most.
pub(super) const TOGETHER: usize = 4096;

/// Rows of the change set that are no more.
fn no_more(known: &ChangeSet, scanned: &Moves) -> Vec<LayerPath> {
    let mut gone: BTreeSet<&LayerPath> = scanned.gone.iter().collect();
    if scanned.all || !scanned.whole.is_empty() {
        let found: HashSet<&LayerPath> = scanned.changes.iter().map(|c| &c.key).collect();
        let covers = |key: &LayerPath| scanned.all || scanned.whole.contains(&key.layer);
        let lost = known
            .keys()
            .filter(|key| covers(key) && !found.contains(key));
        gone.extend(lost);
    }
    for change in &scanned.changes {
        gone.remove(&change.key);
    }
    let known = |key: &&LayerPath| known.contains_key(*key);
    gone.into_iter().filter(known).cloned().collect()
}

impl Session {
    /// Hands a job to the worker. Without one, whoever waits for the job is told so.
    pub(super) fn push_job(&mut self, job: Job) {
        let job = match &self.jobs {
            Some(jobs) => match jobs.send(job) {
                Ok(()) => {
                    self.pending += 1;
                    return;
                }
                Err(unsent) => unsent.0,
            },
            None => job,
        };
        let gone = "what this session staged cannot be reached any more; `pvisor-tui status` tells \
                    where it should lie";
        self.reply(job.reply_to(), Err(Failure::Other(gone.into())));
        if matches!(job, Job::Commit { .. } | Job::Undo { .. }) {
            self.written();
        }
    }

    pub(super) fn scan(&mut self, then: Then) {
        self.pace.covered();
        if self.jobs.is_some() {
            self.scanning += 1;
            self.push_job(Job::Scan(then));
        } else {
            // Nothing is staged: there is nothing to look at, and nothing to wait for.
            self.proceed(then, None);
        }
    }

    /// The command's end is told once its process is gone, its streams have run dry and what was
    /// counted of it is on record.
    pub(super) fn conclude_when_quiet(&mut self) {
        let quiet = self.agent.as_ref().is_some_and(Agent::is_quiet);
        if quiet && let Some(status) = self.exit.take() {
            let counts = match (&self.guard, &self.asks.events) {
                (Some(guard), Some(events)) => guard.settle(status, events.clone()),
                _ => false,
            };
            if !counts {
                self.conclude_with(status);
            }
        }
    }

    pub(super) fn conclude_with(&mut self, status: ExitStatus) {
        self.drop_ballast();
        self.scan(Then::Conclude(status));
    }

    fn conclude(&mut self, status: ExitStatus) {
        if let Some(agent) = self.agent.take() {
            agent.finish();
        }
        self.agree(Update::Exited {
            status,
            at: Timestamp::now(),
        });
        self.record();
        // Where nothing is staged there is nothing to lose.
        if !self.state.changes.is_empty() {
            self.push_job(Job::Sync);
        }
    }

    pub(super) fn done(&mut self, done: JobDone) {
        self.pending = self.pending.saturating_sub(1);
        match done {
            JobDone::Scanned(scanned, then, took) => {
                self.scanning = self.scanning.saturating_sub(1);
                let begun = Instant::now();
                let failed = self.take_changes(scanned);
                self.proceed(then, failed);
                if self.agent.is_some() {
                    self.pace.rest(took + begun.elapsed());
                }
            }
            JobDone::Reverted {
                paths,
                error,
                scanned,
                reply_to,
            } => {
                self.take_changes(scanned);
                if !paths.is_empty() {
                    let by = self.user_of(reply_to);
                    self.agree(Update::Reverted {
                        paths: paths.clone(),
                        by,
                    });
                }
                let result = error.map_or(Ok(Reply::Concerned(paths)), |e| Err(Failure::Access(e)));
                self.reply(reply_to, result);
            }
            JobDone::Resolved {
                key,
                result,
                scanned,
                reply_to,
            } => {
                self.take_changes(scanned);
                let result = result.map(|()| Reply::Concerned(vec![key.clone()]));
                let result = result.map_err(|why| Failure::Other(format!("{key}: {why}")));
                self.reply(reply_to, result);
            }
            JobDone::Committed {
                outcome,
                undoes,
                scanned,
                reply_to,
            } => {
                // First the commit, then what it left: rejections are carried over by the reducer.
                self.committed(&outcome, undoes, reply_to);
                if matches!(outcome, Outcome::Committed { .. }) {
                    self.pace.look_back();
                }
                self.take_changes(scanned);
                self.record();
                self.reply(reply_to, Ok(Reply::Outcome(outcome)));
                self.written();
            }
            JobDone::Recovered {
                settled,
                scanned,
                reply_to,
            } => {
                for one in settled.iter().flatten() {
                    self.settled(one);
                    self.notice(one.describe());
                }
                self.take_changes(scanned);
                self.record();
                let settled = settled.map(|later| {
                    let mut all = std::mem::take(&mut self.settled_first);
                    all.extend(later);
                    all
                });
                self.reply(reply_to, settled.map(Reply::Recovered));
            }
            JobDone::NotTried(reply_to, failure) => {
                self.reply(reply_to, Err(failure));
                self.written();
            }
            JobDone::Synced => {}
            JobDone::Replied(reply_to, result) => self.reply(reply_to, result),
            JobDone::Discarded(reply_to) => {
                self.watch = None;
                self.jobs = None;
                self.agree(Update::Discarded);
                self.record();
                self.reply(reply_to, Ok(Reply::Done));
                self.ending = true;
            }
        }
    }

    fn proceed(&mut self, then: Then, failed: Option<Failure>) {
        match (then, failed) {
            (Then::Rest, _) => {}
            (Then::Conclude(status), _) => self.conclude(status),
            (Then::Answer(to), failed) => self.reply(to, failed.map_or(Ok(Reply::Done), Err)),
            (Then::Resume(client, id, _), Some(failure)) => {
                self.reply(Some((client, id)), Err(failure));
            }
            (Then::Resume(client, id, request), None) => self.carry_out(client, id, request),
        }
    }

    /// Agrees on the difference between the scan and the known change set.
    fn take_changes(&mut self, scanned: Scanned) -> Option<Failure> {
        let scanned = match scanned {
            Ok(changes) => changes,
            Err(error) => {
                self.notice(format!("The changes could not be read: {error}."));
                // Without its helper this server is of no use any more, and it has too many
                // threads to fork another: the next client starts a new server.
                self.ending |= matches!(error, ChangeError::Access(AccessError::HelperGone));
                return Some(Failure::Other(error.to_string()));
            }
        };
        let known = &self.state.changes;
        let gone = no_more(known, &scanned);
        let mut changed = scanned.changes;
        changed.retain(|change| known.get(&change.key) != Some(change));
        if !changed.is_empty() || !gone.is_empty() {
            self.agree_on_moves(changed, gone);
            self.pace.changed();
        }
        None
    }

    /// In parts: an update is a line of the journal and a message to every client.
    fn agree_on_moves(&mut self, changed: Vec<Arc<Change>>, gone: Vec<LayerPath>) {
        for gone in gone.chunks(TOGETHER) {
            self.agree(Update::ChangesMoved {
                changed: Vec::new(),
                gone: gone.to_vec(),
            });
        }
        for changed in changed.chunks(TOGETHER) {
            self.agree(Update::ChangesMoved {
                changed: changed.to_vec(),
                gone: Vec::new(),
            });
        }
    }

    /// Nothing can be read or written any more: the session ends here. What was being committed is
    /// settled by the next server.
    pub(super) fn worker_lost(&mut self) {
        self.notice(
            "The session server has failed while it worked on the files; open the session again."
                .into(),
        );
        self.jobs = None;
        self.pending = 0;
        self.scanning = 0;
        self.terminated();
    }

    /// The host is no longer being written: what waited for that goes on, in order.
    fn written(&mut self) {
        self.writing = false;
        self.resume_watch();
        while !self.writing
            && let Some((client, id, request)) = self.deferred.pop_front()
        {
            self.requested(client, id, request);
        }
    }
}
