//! The one reducer. Owns how an agreed fact changes the state; the same for server, client, replay
//! and tests. Total: any update in any order is applied without a panic, and afterwards every
//! decision belongs to a present change and to the bytes that change has.

use std::collections::HashSet;
use std::sync::Arc;

use super::state::{RunState, SessionState, Update};
use crate::LayerPath;
use crate::change::Change;
use crate::layer::{Driver, Layer};
use crate::review::{self, FileDecision, Summary, Verdict};
use crate::sandbox::{Boundary, ExitStatus};

/// Most notices kept.
const MAX_NOTICES: usize = 100;
/// Most remarks kept.
const MAX_REMARKS: usize = 200;
/// Most questions that wait; the gate asks fewer.
const MAX_ASKS: usize = 256;
/// Most answers kept in the state.
const MAX_ANSWERS: usize = 4_096;

impl SessionState {
    /// Makes the state what it is after `update`.
    pub fn apply(&mut self, update: &Update) {
        match update {
            Update::Opened(info) => self.info = Some(info.clone()),
            Update::Started { boundary, .. } => {
                self.run = Some(RunState::Running);
                self.boundary = (**boundary).clone();
                if let Some(info) = &mut self.info {
                    take_drivers(&mut info.layers, &self.boundary);
                }
                self.exit = None;
                self.ended = None;
                self.asks.clear();
                self.rules.clear();
            }
            Update::Exited { status, at } => {
                self.run = Some(RunState::Exited);
                self.exit = Some(*status);
                self.ended = Some(*at);
                self.asks.clear();
            }
            Update::Lost => {
                self.run = Some(RunState::Lost);
                self.exit = Some(ExitStatus::Lost);
                self.people.clear();
                self.asks.clear();
            }
            Update::ChangesMoved { changed, gone } => {
                for key in gone {
                    self.forget(key);
                    self.changes.remove(key);
                }
                for change in changed {
                    self.put_change(change);
                }
            }
            Update::Decided { key, decision } => {
                self.said = self.said.saturating_add(1);
                self.decide(key, decision.as_ref());
            }
            Update::DecidedTogether(decided) => {
                self.said = self.said.saturating_add(1);
                for (key, decision) in decided {
                    self.decide(key, decision.as_ref());
                }
            }
            Update::Reverted { paths, .. } => {
                // The changes go when the next change set says so; nobody's word on them holds.
                for key in paths {
                    self.forget(key);
                }
            }
            Update::Committed(record) => {
                for key in &record.paths {
                    self.use_up(key);
                }
                self.commits.push(record.clone());
                self.last_outcome = None;
            }
            Update::NotCommitted(outcome) => self.last_outcome = Some(outcome.clone()),
            Update::Discarded => {
                self.run = Some(RunState::Discarded);
                self.changes.clear();
                self.decisions.clear();
                self.voided.clear();
                self.carried.clear();
                self.asks.clear();
            }
            Update::Guarded {
                rules,
                answers,
                files,
            } => {
                self.rules.clone_from(rules);
                self.answers.clone_from(answers);
                self.answer_files = files.clone();
            }
            Update::Asked(ask) => {
                self.last_ask = self.last_ask.max(ask.id);
                if self.asks.len() < MAX_ASKS {
                    self.asks.insert(ask.id, (**ask).clone());
                }
            }
            Update::Answered { ask, .. } => drop(self.asks.remove(ask)),
            Update::Remembered(answer) => {
                crate::policy::answer::remember(&mut self.answers, answer.clone());
                let surplus = self.answers.len().saturating_sub(MAX_ANSWERS);
                self.answers.drain(..surplus);
            }
            Update::Forgotten(answer) => self.answers.retain(|known| known != answer),
            Update::Warned(remark) => {
                self.remarks.push((**remark).clone());
                let surplus = self.remarks.len().saturating_sub(MAX_REMARKS);
                self.remarks.drain(..surplus);
                self.more_remarks = self.more_remarks.saturating_add(surplus as u64);
            }
            Update::WarnedMore(more) => {
                self.more_remarks = self.more_remarks.saturating_add(*more);
            }
            Update::Joined(person) => {
                self.people.retain(|p| p.client != person.client);
                self.people.push(person.clone());
            }
            Update::Left(client) => self.people.retain(|p| p.client != *client),
            Update::Noticed(notice) => {
                self.notices.push(notice.clone());
                let surplus = self.notices.len().saturating_sub(MAX_NOTICES);
                self.notices.drain(..surplus);
            }
        }
        self.settle();
    }

    /// Whether a commit holds: carried out, and not undone by an undo that itself still holds.
    pub fn has_commit(&self) -> bool {
        let mut undone = HashSet::new();
        for record in self.commits.iter().rev() {
            if undone.contains(&record.number) {
                continue;
            }
            match record.undoes {
                None => return true,
                Some(number) => {
                    undone.insert(number);
                }
            }
        }
        false
    }

    fn put_change(&mut self, change: &Arc<Change>) {
        let key = &change.key;
        if let Some(decision) = self.decisions.get(key)
            && decision.digest != change.digest
        {
            let digest = decision.digest;
            self.decisions.remove(key);
            self.voided.insert(key.clone(), digest);
        }
        if self.voided.get(key) == Some(&change.digest) {
            // Back to the bytes that were looked at: nothing has changed since.
            self.voided.remove(key);
        }
        if let Some(carried) = self.carried.remove(key)
            && let Some(decision) = carry_over(&carried, change)
        {
            self.decisions.insert(key.clone(), decision);
        }
        self.changes.insert(key.clone(), Arc::clone(change));
    }

    fn decide(&mut self, key: &LayerPath, decision: Option<&FileDecision>) {
        self.voided.remove(key);
        let fits = self.changes.get(key).map(|change| change.digest);
        match decision {
            Some(decision) if fits == Some(decision.digest) => {
                self.decisions.insert(key.clone(), decision.clone());
            }
            // A word on other bytes than these is no word on these.
            Some(_) | None => {
                self.decisions.remove(key);
            }
        }
    }

    /// A commit took what was approved of this change; what was rejected stays rejected.
    fn use_up(&mut self, key: &LayerPath) {
        self.voided.remove(key);
        if let Some(mut decision) = self.decisions.remove(key) {
            decision
                .verdicts
                .retain(|(_, verdict)| matches!(verdict, Verdict::Rejected { .. }));
            if !decision.verdicts.is_empty() {
                self.carried.insert(key.clone(), decision);
            }
        }
    }

    fn forget(&mut self, key: &LayerPath) {
        self.decisions.remove(key);
        self.voided.remove(key);
        self.carried.remove(key);
    }

    /// Whether an ended session is done, by [`RunState::Committed`]'s definition.
    fn settle(&mut self) {
        let ended = [RunState::Exited, RunState::Lost, RunState::Committed];
        if !self.run.is_some_and(|run| ended.contains(&run)) {
            return;
        }
        let done = self.has_commit() && !self.has_work_left();
        self.run = Some(if done {
            RunState::Committed
        } else if self.exit == Some(ExitStatus::Lost) {
            RunState::Lost
        } else {
            RunState::Exited
        });
    }

    fn has_work_left(&self) -> bool {
        self.changes
            .values()
            .filter(|change| review::is_taken_by_all(change, false))
            .any(|change| {
                review::summary(change, self.decisions.get(&change.key)) != Summary::Rejected
            })
    }
}

/// Rejections of whole items that are still there. Ids are made of content, so an item of the same
/// id is the same edit; line numbers may mean other lines by now.
fn carry_over(carried: &FileDecision, change: &Change) -> Option<FileDecision> {
    let verdicts: Vec<_> = carried
        .verdicts
        .iter()
        .filter(|(named, _)| {
            named.lines.is_none() && change.items.iter().any(|item| item.id == named.id)
        })
        .cloned()
        .collect();
    (!verdicts.is_empty()).then(|| FileDecision {
        digest: change.digest,
        verdicts,
        by: carried.by.clone(),
    })
}

/// Who merges a layer is known once it is mounted.
pub(super) fn take_drivers(layers: &mut [Layer], boundary: &Boundary) {
    for layer in layers {
        let told = boundary.layers.iter().find(|l| l.name == layer.name);
        match told.map(|told| told.driver.as_str()) {
            Some("fuse") => layer.driver = Driver::Fuse,
            Some("overlayfs") => layer.driver = Driver::Overlayfs,
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "reduce_tests.rs"]
mod tests;
