//! Reading decisions: in one word for a list, line by line for a screen, and as what a commit may
//! take.

use std::sync::Arc;

use super::decide::{approve_rest, is_taken_by_all};
use super::spans::Spans;
use super::{Decisions, FileDecision, Summary, Verdict};
use crate::change::{Change, ChangeKind, ChangeSet};
use crate::commit::{Approved, Refusal, Selection};
use crate::diff::{Item, ItemId};
use crate::layer::FileType;

/// The decision, if it is bound to the change as it is now.
pub(super) fn in_force<'a>(
    change: &Change,
    decision: Option<&'a FileDecision>,
) -> Option<&'a FileDecision> {
    decision.filter(|d| d.digest == change.digest)
}

/// The decisions on `change` in one word.
pub fn summary(change: &Change, decision: Option<&FileDecision>) -> Summary {
    let Some(decision) = in_force(change, decision) else {
        return Summary::Undecided;
    };
    if decision.verdicts.is_empty() {
        return Summary::Undecided;
    }
    let approved = decision
        .verdicts
        .iter()
        .all(|(_, v)| *v == Verdict::Approved);
    let rejected = decision
        .verdicts
        .iter()
        .all(|(_, v)| matches!(v, Verdict::Rejected { .. }));
    if !(approved || rejected) || !covers(change, decision) {
        return Summary::Mixed;
    }
    if approved {
        Summary::Approved
    } else {
        Summary::Rejected
    }
}

/// The decisions on one item in one word; `decision` must be the change's, bound to it as it is
/// now (as the session's state keeps them).
pub fn item_summary(item: &Item, decision: Option<&FileDecision>) -> Summary {
    let spans = Spans::of(item, decision);
    if spans.is_empty() {
        Summary::Undecided
    } else if spans.all(|v| *v == Verdict::Approved) {
        Summary::Approved
    } else if spans.all(|v| matches!(v, Verdict::Rejected { .. })) {
        Summary::Rejected
    } else {
        Summary::Mixed
    }
}

/// What was said of one line of an item, 1-based as in [`crate::diff::ItemRef`]; items without
/// lines have line 1.
pub fn line_verdict(item: &Item, line: u32, decision: Option<&FileDecision>) -> Option<Verdict> {
    Spans::of(item, decision).at(line).cloned()
}

/// The reasons given for what was rejected, each once, in order.
pub fn reason(decision: &FileDecision) -> Option<String> {
    let mut reasons: Vec<&str> = Vec::new();
    for (_, verdict) in &decision.verdicts {
        if let Verdict::Rejected {
            reason: Some(reason),
        } = verdict
            && !reasons.contains(&reason.as_str())
        {
            reasons.push(reason);
        }
    }
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// What a commit may take, sorted by key: whole changes where every item is approved, else the
/// approved items and lines. Decisions on other bytes than the change's count for nothing.
pub fn resolve(changes: &ChangeSet, decisions: &Decisions) -> Vec<Approved> {
    let decided = decisions.iter();
    decided
        .filter_map(|(key, decision)| taken(changes.get(key)?, decision))
        .collect()
}

/// As [`resolve`], once everything that `--all` takes (see [`super::is_taken_by_all`]) was approved
/// by `by`, but for what was rejected.
pub fn resolve_all(
    changes: &ChangeSet,
    decisions: &Decisions,
    ignored: bool,
    by: &str,
) -> Vec<Approved> {
    // One decision after another: all of them at once are as large as the change set.
    let taken = |change: &Arc<Change>| {
        let said = decisions.get(&change.key);
        if is_taken_by_all(change, ignored) {
            taken(change, &approve_rest(change, said, by)?)
        } else {
            taken(change, said?)
        }
    };
    changes.values().filter_map(taken).collect()
}

/// What a commit may take of one change.
fn taken(change: &Arc<Change>, decision: &FileDecision) -> Option<Approved> {
    let selection = match summary(change, Some(decision)) {
        Summary::Approved => Selection::Whole,
        Summary::Undecided | Summary::Rejected => return None,
        Summary::Mixed => {
            let items: Vec<_> = decision
                .verdicts
                .iter()
                .filter(|(named, v)| {
                    *v == Verdict::Approved && change.items.iter().any(|i| i.id == named.id)
                })
                .map(|(named, _)| named.clone())
                .collect();
            if items.is_empty() {
                return None;
            }
            Selection::Items(items)
        }
    };
    Some(Approved {
        change: Arc::clone(change),
        selection,
    })
}

/// Rejections that a commit of `approved` would run over: a directory that gives way to something
/// else takes everything below it along, a rejected deletion included.
pub fn overruled(
    changes: &ChangeSet,
    decisions: &Decisions,
    approved: &[Approved],
) -> Vec<Refusal> {
    let replaced = approved.iter().filter(|a| {
        a.change.kind == ChangeKind::Type
            && a.change
                .before
                .as_ref()
                .is_some_and(|node| node.file_type == FileType::Dir)
    });
    let mut refusals = Vec::new();
    for Approved { change, .. } in replaced {
        let below = decisions.iter().filter(|(key, _)| {
            key.layer == change.key.layer
                && key.path != change.key.path
                && key.path.is_within(&change.key.path)
        });
        for (key, decision) in below {
            let Some(lost) = changes
                .get(key)
                .filter(|lost| lost.kind == ChangeKind::Deleted)
            else {
                continue;
            };
            if matches!(
                summary(lost, Some(decision)),
                Summary::Rejected | Summary::Mixed
            ) {
                refusals.push(Refusal {
                    key: key.clone(),
                    reason: format!(
                        "its deletion was rejected, but approving {} removes it; reject that too, or \
                         approve both",
                        change.key
                    ),
                });
            }
        }
    }
    refusals
}

/// Whether something is said of every line of every item. Verdicts are canonical: one that covers
/// an item has no lines.
fn covers(change: &Change, decision: &FileDecision) -> bool {
    let whole: std::collections::HashSet<&ItemId> = decision
        .verdicts
        .iter()
        .filter(|(named, _)| named.lines.is_none())
        .map(|(named, _)| &named.id)
        .collect();
    change
        .items
        .iter()
        .all(|item| whole.contains(&item.id) || Spans::of(item, Some(decision)).all(|_| true))
}
