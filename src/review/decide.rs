//! Making decisions: what a person says now, together with what was said before.

use std::collections::BTreeMap;

use super::spans::{Spans, line_count};
use super::{FileDecision, Verdict};
use crate::change::{Change, Class, Risk};
use crate::diff::{Item, ItemId, ItemKind, ItemRef};
use crate::layer;
use crate::protocol::{Failure, Say};

/// At most so many items are listed when one is not found.
const LISTED_ITEMS: usize = 20;

/// The decisions on `change` after `by` has said `say` of `items` (or of the whole change);
/// `None` when nothing is decided any more.
///
/// What was said of the same lines before is replaced, the rest stays. `current` counts only while
/// it is bound to the change as it is now. Errors: [`Failure::UnknownItem`] for an item or lines
/// that the change does not have.
pub fn decide(
    current: Option<&FileDecision>,
    change: &Change,
    items: Option<&[ItemRef]>,
    say: &Say,
    by: &str,
) -> Result<Option<FileDecision>, Failure> {
    let verdict = match say {
        Say::Approve => Some(Verdict::Approved),
        Say::Reject(reason) => Some(Verdict::Rejected {
            reason: reason.clone(),
        }),
        Say::Reset => None,
    };
    let mut spans = spans_of(change, current);
    match items {
        None => {
            for (_, item) in spans.values_mut() {
                item.set(None, verdict.as_ref());
            }
        }
        Some(items) => {
            for named in items {
                let Some((item, said)) = spans.get_mut(&named.id) else {
                    return Err(unknown_item(change, named));
                };
                check_lines(change, item, named)?;
                said.set(named.lines, verdict.as_ref());
            }
        }
    }
    Ok(collect(change, spans, by))
}

/// Whether `commit --all` and `approve --all` take this change: not in the layer `home`, not
/// ignored (unless `ignored`), and something that can be committed at all.
pub fn is_taken_by_all(change: &Change, ignored: bool) -> bool {
    !layer::is_of_home(&change.key.layer)
        && (ignored || change.class != Class::Ignored)
        && !change.risks.contains(&Risk::Uncommittable)
}

/// Whether `revert --all` takes this change back: as above, and what cannot be committed as well.
pub fn is_reverted_by_all(change: &Change) -> bool {
    change.key.layer != layer::HOME && change.class != Class::Ignored
}

/// The decision that `--all` makes of a change that it takes (see [`is_taken_by_all`]): everything is
/// approved but what was rejected.
pub(super) fn approve_rest(
    change: &Change,
    current: Option<&FileDecision>,
    by: &str,
) -> Option<FileDecision> {
    let mut spans = spans_of(change, current);
    for (_, item) in spans.values_mut() {
        item.approve_rest();
    }
    collect(change, spans, by)
}

type ItemSpans<'a> = BTreeMap<&'a ItemId, (&'a Item, Spans)>;

fn spans_of<'a>(change: &'a Change, current: Option<&FileDecision>) -> ItemSpans<'a> {
    let current = super::resolve::in_force(change, current);
    // One pass over the verdicts: a change may have thousands of items.
    let mut spans: ItemSpans = change
        .items
        .iter()
        .map(|item| (&item.id, (item, Spans::of(item, None))))
        .collect();
    for (named, verdict) in current.iter().flat_map(|c| &c.verdicts) {
        if let Some((_, said)) = spans.get_mut(&named.id) {
            said.set(named.lines, Some(verdict));
        }
    }
    spans
}

fn collect(change: &Change, spans: ItemSpans<'_>, by: &str) -> Option<FileDecision> {
    // Ids and line ranges come in order, so the verdicts are sorted.
    let verdicts: Vec<_> = spans
        .into_iter()
        .filter(|(_, (_, said))| !said.is_empty())
        .flat_map(|(id, (_, said))| said.into_verdicts(id))
        .collect();
    (!verdicts.is_empty()).then(|| FileDecision {
        digest: change.digest,
        verdicts,
        by: by.to_owned(),
    })
}

fn check_lines(change: &Change, item: &Item, named: &ItemRef) -> Result<(), Failure> {
    let Some((first, last)) = named.lines else {
        return Ok(());
    };
    let count = line_count(item);
    if item.kind != ItemKind::Hunk {
        return Err(Failure::UnknownItem(
            change.key.clone(),
            format!("{named}: {} is decided on as a whole", item.id),
        ));
    }
    if first == 0 || first > last || last > count {
        return Err(Failure::UnknownItem(
            change.key.clone(),
            format!("{named}: {} has lines 1 to {count}", item.id),
        ));
    }
    Ok(())
}

fn unknown_item(change: &Change, named: &ItemRef) -> Failure {
    let known: Vec<String> = change
        .items
        .iter()
        .take(LISTED_ITEMS)
        .map(|item| item.id.to_string())
        .collect();
    let more = change.items.len().saturating_sub(LISTED_ITEMS);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let typed = crate::text::visible(named.id.0.as_bytes()).into_owned();
    Failure::UnknownItem(
        change.key.clone(),
        format!("{typed}; it has {}{more}", known.join(", ")),
    )
}
