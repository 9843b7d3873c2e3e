//! What clients ask for: roles, decisions, revert, commit, undo. Owns who may do what and in which
//! state; the work itself is the worker's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::core::Session;
use super::event::ClientId;
use super::jobs::TOGETHER;
use super::state::{CommitRecord, RunState, Update};
use super::worker::{Job, ReplyTo, Then};
use crate::LayerPath;
use crate::change::ChangeKind;
use crate::commit::Outcome;
use crate::layer::{Digest, FileType, Timestamp};
use crate::protocol::{Failure, Reply, Request, Role, Say, Target};
use crate::review::{self, FileDecision};
use crate::sandbox::Mode;

/// Directories watched on the host at most.
const HOST_DIRECTORIES: usize = 4096;

/// What writes the host or takes from under who does: one after the other.
fn writes(request: &Request) -> bool {
    matches!(
        request,
        Request::Commit { .. }
            | Request::Undo
            | Request::Recover
            | Request::Revert(_)
            | Request::Resolve { .. }
            | Request::Discard
    )
}

impl Session {
    /// Checks role and state, then carries the request out or queues it behind a fresh scan.
    pub(super) fn requested(&mut self, client: ClientId, id: u64, request: Request) {
        if let Err(failure) = self.permitted(client, &request) {
            self.reply(Some((client, id)), Err(failure));
            return;
        }
        let writes = writes(&request);
        if writes && self.writing {
            self.deferred.push_back((client, id, request));
            return;
        }
        match request {
            Request::Rescan => self.scan(Then::Answer(Some((client, id)))),
            // Without the digest of what was shown, what is there at this moment is meant.
            Request::Decide { expect: None, .. }
            | Request::Revert(_)
            | Request::Resolve { .. }
            | Request::Commit { .. } => {
                self.scan(Then::Resume(client, id, request));
            }
            request => self.carry_out(client, id, request),
        }
    }

    fn permitted(&self, client: ClientId, request: &Request) -> Result<(), Failure> {
        let Some(client) = self.clients.get(&client) else {
            return Err(Failure::NotRunning);
        };
        let needed = match request {
            Request::Rescan
            | Request::Contents(_)
            | Request::Merged(_)
            | Request::Marked(_)
            | Request::Observed
            | Request::Detach => Role::Observer,
            Request::Decide { .. } => Role::Reviewer,
            _ => Role::Driver,
        };
        if client.role < needed {
            return Err(Failure::Role(needed));
        }
        let on_stage = matches!(
            request,
            Request::Decide { .. }
                | Request::Revert(_)
                | Request::Resolve { .. }
                | Request::Commit { .. }
                | Request::Undo
                | Request::Recover
                | Request::Contents(_)
                | Request::Merged(_)
                | Request::Marked(_)
                | Request::Discard
        );
        if on_stage && self.state.run == Some(RunState::Discarded) {
            return Err(Failure::Discarded);
        }
        if on_stage
            && self
                .state
                .info
                .as_ref()
                .is_some_and(|i| i.mode == Mode::Host)
        {
            return Err(Failure::NothingStaged);
        }
        Ok(())
    }

    /// Carries out a request whose preconditions hold.
    pub(super) fn carry_out(&mut self, client: ClientId, id: u64, request: Request) {
        let writes = writes(&request);
        if writes && self.writing {
            // Somebody else's commit has begun while the changes were looked at for this one.
            self.deferred.push_back((client, id, request));
            return;
        }
        let to = Some((client, id));
        let agrees = writes || matches!(request, Request::Decide { .. });
        if agrees && let Err(failure) = self.can_record() {
            self.reply(to, Err(failure));
            return;
        }
        let result = match request {
            Request::Input(bytes) => {
                if let Some(agent) = &self.agent {
                    agent.write(bytes);
                }
                return;
            }
            Request::InputEnded => {
                if let Some(agent) = &mut self.agent {
                    agent.end_input();
                }
                return;
            }
            Request::Resize(size) => {
                self.resize(size);
                return;
            }
            Request::Detach => {
                if let Some(client) = self.clients.get_mut(&client) {
                    client.owns_command = false;
                }
                return;
            }
            Request::Rescan => Ok(Reply::Done),
            Request::Decide {
                targets,
                say,
                expect,
                seen,
            } => self.decide(&targets, &say, (expect, seen), to),
            Request::Revert(targets) => match self.paths(&targets) {
                Ok(paths) => {
                    self.push_job(Job::Revert(self.with_old_names(paths), to));
                    return;
                }
                Err(failure) => Err(failure),
            },
            Request::Commit {
                all,
                ignored,
                merge,
                dry_run,
                keep_undo,
            } => match self.commit(all, ignored, (merge, dry_run), keep_undo, to) {
                Some(result) => result,
                None => return,
            },
            Request::Undo => match self.next_undo() {
                Some(undoes) => {
                    let number = self.next_commit();
                    self.writing = true;
                    let undone = self.state.commits.iter().find(|c| c.number == undoes);
                    self.pause_watch(undone.map_or(0, |c| c.paths.len()));
                    self.push_job(Job::Undo {
                        undoes,
                        number,
                        reply_to: to,
                    });
                    return;
                }
                None => Ok(Reply::Outcome(Outcome::Nothing)),
            },
            Request::Recover => {
                self.push_job(Job::Recover(to));
                return;
            }
            Request::Contents(key) => match self.state.changes.get(&key) {
                Some(change) => {
                    let change = Arc::clone(change);
                    self.push_job(Job::Contents(change, to));
                    return;
                }
                None => Err(Failure::UnknownPath(key)),
            },
            Request::Merged(key) => match self.state.changes.get(&key) {
                Some(change) => {
                    let change = Arc::clone(change);
                    self.push_job(Job::Merge(change, to));
                    return;
                }
                None => Err(Failure::UnknownPath(key)),
            },
            Request::Marked(key) => match self.state.changes.get(&key) {
                Some(change) => {
                    let change = Arc::clone(change);
                    self.push_job(Job::Marked(change, to));
                    return;
                }
                None => Err(Failure::UnknownPath(key)),
            },
            Request::Resolve { key, expect, how } => match self.state.changes.get(&key) {
                None => Err(Failure::UnknownPath(key)),
                Some(change) if change.digest != expect => Err(Failure::Changed {
                    path: key,
                    now: change.digest,
                }),
                Some(change) => {
                    self.push_job(Job::Resolve(Arc::clone(change), how, to));
                    return;
                }
            },
            Request::Answer {
                ask,
                allow,
                scope,
                pattern,
            } => match self.answer(ask, allow, scope, pattern, to) {
                Some(result) => result,
                None => return,
            },
            Request::Forget(answer) => match self.forget_answer(answer, to) {
                Some(result) => result,
                None => return,
            },
            Request::Observed => Ok(Reply::Observed(self.observations())),
            Request::Stop => self.stop_command(),
            Request::PassOn(signal) => self.pass_on(signal),
            Request::Discard => {
                if self.agent.is_some() {
                    Err(Failure::Running)
                } else {
                    self.push_job(Job::Discard(to));
                    return;
                }
            }
            Request::Retire => {
                if self.agent.is_some() {
                    Err(Failure::Running)
                } else {
                    self.retire();
                    Ok(Reply::Done)
                }
            }
        };
        self.reply(to, result);
    }

    /// All or nothing: every target is looked up and checked before the first is decided.
    fn decide(
        &mut self,
        targets: &[Target],
        say: &Say,
        (expect, seen): (Option<Digest>, Option<u64>),
        to: ReplyTo,
    ) -> Result<Reply, Failure> {
        let by = self.user_of(to);
        let mut meant = Vec::new();
        let mut decided: Vec<(LayerPath, Option<FileDecision>)> = Vec::new();
        // A path may be meant more than once: where it was decided on last.
        let mut last: BTreeMap<LayerPath, usize> = BTreeMap::new();
        for target in targets {
            for (key, items) in review::expand(&self.state.changes, target)? {
                meant.push((key.clone(), items.clone()));
                let Some(change) = self.state.changes.get(&key) else {
                    return Err(Failure::UnknownPath(key));
                };
                if let Some(expected) = expect
                    && expected != change.digest
                {
                    return Err(Failure::Changed {
                        path: key,
                        now: change.digest,
                    });
                }
                let known = match last.get(&key).and_then(|at| decided.get(*at)) {
                    Some((_, decision)) => decision.as_ref(),
                    None => self.state.decisions.get(&key),
                };
                let decision = review::decide(known, change, items.as_deref(), say, &by)?;
                last.insert(key.clone(), decided.len());
                decided.push((key, decision));
            }
        }
        if let (Some((client, _)), Some(seen)) = (to, seen) {
            self.last_words.allow(client, seen, say.said(), &meant)?;
        }
        let keys = decided.iter().map(|(key, _)| key.clone()).collect();
        self.agree_on(decided);
        if let Some((client, _)) = to {
            let at = self.state.said;
            self.last_words.note(at, (client, by), say.said(), meant);
        }
        Ok(Reply::Concerned(keys))
    }

    /// Agrees on decisions: on many of them in few updates, each of which is written, sent and
    /// drawn once.
    fn agree_on(&mut self, decided: Vec<(LayerPath, Option<FileDecision>)>) {
        let mut decided = decided.into_iter();
        loop {
            let mut some: Vec<_> = decided.by_ref().take(TOGETHER).collect();
            match some.len() {
                0 => return,
                1 => {
                    if let Some((key, decision)) = some.pop() {
                        self.agree(Update::Decided { key, decision });
                    }
                }
                _ => self.agree(Update::DecidedTogether(some)),
            }
        }
    }

    fn commit(
        &mut self,
        all: bool,
        ignored: bool,
        (merge, dry_run): (bool, bool),
        keep_undo: Option<u32>,
        to: ReplyTo,
    ) -> Option<Result<Reply, Failure>> {
        let (changes, decisions) = (&self.state.changes, &self.state.decisions);
        let approved = if all {
            // Of this commit alone: carried out it uses them up, and a refused one leaves no
            // approval behind that a later commit would act on.
            review::resolve_all(changes, decisions, ignored, &self.user_of(to))
        } else {
            review::resolve(changes, decisions)
        };
        if approved.is_empty() {
            return Some(Ok(Reply::Outcome(Outcome::Nothing)));
        }
        let refusals = review::overruled(changes, decisions, &approved);
        if !refusals.is_empty() {
            return Some(Ok(Reply::Outcome(Outcome::Refused { refusals })));
        }
        let number = self.next_commit();
        let files = approved.len();
        let job = Job::Commit {
            changes: self.state.changes.clone(),
            approved,
            number,
            merge,
            dry_run,
            prune_before: self.prune_before(number, keep_undo),
            reply_to: to,
        };
        self.writing = true;
        if !dry_run {
            self.pause_watch(files);
        }
        self.push_job(job);
        None
    }

    /// Agrees on how a commit or an undo ended.
    pub(super) fn committed(&mut self, outcome: &Outcome, undoes: Option<u32>, to: ReplyTo) {
        match outcome {
            Outcome::Committed { number, paths, .. } => {
                let record = CommitRecord {
                    number: *number,
                    undoes,
                    paths: paths.clone(),
                    at: Timestamp::now(),
                    by: self.user_of(to),
                };
                self.agree(Update::Committed(record));
            }
            Outcome::Refused { .. } | Outcome::Unsettled { .. } => {
                self.agree(Update::NotCommitted(outcome.clone()));
            }
            Outcome::Planned { .. } | Outcome::Nothing => {}
        }
    }

    /// What a revert of these targets is about.
    fn paths(&self, targets: &[Target]) -> Result<BTreeSet<LayerPath>, Failure> {
        let mut paths = BTreeSet::new();
        for target in targets {
            if *target == Target::All {
                let all = self.state.changes.values();
                let meant = all.filter(|change| review::is_reverted_by_all(change));
                paths.extend(meant.map(|change| change.key.clone()));
                continue;
            }
            paths.extend(
                review::expand(&self.state.changes, target)?
                    .into_iter()
                    .map(|(k, _)| k),
            );
        }
        Ok(paths)
    }

    /// A rename is taken back at both of its names.
    fn with_old_names(&self, paths: BTreeSet<LayerPath>) -> Vec<LayerPath> {
        let mut all = paths.clone();
        for key in &paths {
            if let Some(from) = self.state.changes.get(key).and_then(|c| c.from()) {
                all.insert(LayerPath::new(key.layer.clone(), from.clone()));
            }
        }
        all.into_iter().collect()
    }

    /// The last commit that no later undo has taken back.
    fn next_undo(&self) -> Option<u32> {
        self.state.undoable().next()
    }

    /// The number of the oldest commit that is still kept for undo once `number` is committed.
    fn prune_before(&self, number: u32, keep_undo: Option<u32>) -> u32 {
        let setting = self.state.info.as_ref().map(|i| i.settings.keep_undo);
        let keep = keep_undo.or(setting).unwrap_or(u32::MAX);
        let mut numbers = std::iter::once(number).chain(self.state.undoable());
        match usize::try_from(keep).unwrap_or(usize::MAX).checked_sub(1) {
            None => number.saturating_add(1),
            Some(last) => numbers.nth(last).unwrap_or(0),
        }
    }

    fn next_commit(&self) -> u32 {
        self.state
            .commits
            .iter()
            .map(|c| c.number)
            .max()
            .unwrap_or(0)
            + 1
    }

    /// Host directories whose entries decide about conflicts.
    pub(super) fn host_directories(&self) -> Vec<PathBuf> {
        let Some(info) = &self.state.info else {
            return Vec::new();
        };
        let mut directories = BTreeSet::new();
        for (key, change) in &self.state.changes {
            let Some(layer) = info.layers.iter().find(|l| l.name == key.layer) else {
                continue;
            };
            let parent = key.path.parent().unwrap_or_default();
            directories.insert(layer.root.join(parent.as_path()));
            // What the host adds to a directory that is to go stands in the way of that.
            let was_dir = change
                .before
                .as_ref()
                .is_some_and(|node| node.file_type == FileType::Dir);
            if was_dir && matches!(change.kind, ChangeKind::Deleted | ChangeKind::Type) {
                directories.insert(layer.root.join(key.path.as_path()));
            }
            if directories.len() >= HOST_DIRECTORIES {
                break;
            }
        }
        directories.into_iter().collect()
    }
}
