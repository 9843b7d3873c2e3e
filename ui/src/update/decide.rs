//! Decisions: from the row under the cursor to a request that carries the digest of what was on
//! the screen. What was not drawn cannot be decided on.

use std::collections::BTreeMap;
use std::sync::Arc;

use pvisor::LayerPath;
use pvisor::change::{Change, Risk};
use pvisor::diff::rows::RowKind;
use pvisor::diff::{ItemId, ItemRef};
use pvisor::layer::{Digest, FileType};
use pvisor::protocol::{Request, Role, Say, Target};
use pvisor::review::{Summary, Verdict, line_verdict};
use pvisor::session::state::SessionState;

use super::{navigate, pages, plan, search};
use crate::action::Name;
use crate::effect::{Effect, Purpose};
use crate::model::dialog::{Choice, Dialog, Step, Subject, TextFor, TextLine};
use crate::model::document::DocRow;
use crate::model::verdicts::Verdicts;
use crate::model::{Model, Pane, Severity, marks};

/// A group larger than this asks before it is approved as one.
const ASK_ABOVE: usize = 50;

/// What is decided on now, and whether all of it is approved already.
struct Chosen {
    choice: Choice,
    approved: bool,
    label: String,
}

fn may_decide(model: &mut Model) -> bool {
    let may = model.role >= Role::Reviewer;
    if !may {
        model.say(
            Severity::Warning,
            "You are looking only: decisions need the role reviewer.",
        );
    }
    may
}

/// The decision's subject: by the row of the focused pane.
fn chosen(model: &mut Model, state: &SessionState) -> Option<Chosen> {
    if !may_decide(model) {
        return None;
    }
    match model.focus {
        Pane::Files => from_list(model, state),
        Pane::Diff => from_diff(model, state),
        Pane::Agent | Pane::Log => None,
    }
}

fn say_not_drawn(model: &mut Model) {
    model.say(
        Severity::Warning,
        "This was not on the screen yet: nothing was decided.",
    );
}

fn from_list(model: &mut Model, state: &SessionState) -> Option<Chosen> {
    let at = model.list.cursor;
    if !model.layout.list_rows.contains(&at) {
        say_not_drawn(model);
        return None;
    }
    let row = model.list.rows.get(at)?.clone();
    let targets: Vec<_> = model
        .list
        .members_of(&row)
        .into_iter()
        .filter_map(|m| {
            let change = state.changes.get(&m.key)?;
            Some((m.key.clone(), whole(change), m.digest))
        })
        .collect();
    if targets.is_empty() {
        return None;
    }
    let choice = Choice {
        targets,
        seen: model.said,
    };
    let label = describe(state, &choice);
    Some(Chosen {
        choice,
        approved: model.list.tally_of(&row).summary() == Summary::Approved,
        label,
    })
}

/// Exactly this change, even when others lie below its path.
fn whole(change: &Change) -> Target {
    let is_dir = |n: &Option<Arc<pvisor::layer::Node>>| {
        n.as_ref().is_some_and(|n| n.file_type == FileType::Dir)
    };
    if (is_dir(&change.before) || is_dir(&change.after)) && !change.items.is_empty() {
        let items = change.items.iter().map(|i| i.id.clone().into()).collect();
        Target::Items(change.key.clone(), items)
    } else {
        Target::Path(change.key.clone())
    }
}

fn from_diff(model: &mut Model, state: &SessionState) -> Option<Chosen> {
    if model.diff.since.is_some() {
        model.say(
            Severity::Warning,
            "Only the difference since you looked is shown: go back to the full diff to decide.",
        );
        return None;
    }
    let document = model.diff.document.clone()?;
    let rows = model.diff.chosen();
    let drawn = model.layout.diff_key.as_ref() == Some(&document.key)
        && model.layout.diff_lines.contains(&model.diff.cursor);
    if !drawn {
        say_not_drawn(model);
        return None;
    }
    let by_line = model.diff.by_line || model.diff.anchor.is_some();
    let mut picked: BTreeMap<ItemId, Option<(u32, u32)>> = BTreeMap::new();
    // On the head of a block all of it is meant.
    let block = document.block(model.diff.cursor);
    let whole_block = model.diff.anchor.is_none() && !block.is_empty();
    let by_line = by_line && !whole_block;
    let rows = if whole_block { block } else { rows };
    for row in rows {
        let Some(id) = document.item(row) else {
            continue;
        };
        let line = match &document.rows[row] {
            DocRow::Line(l)
                if by_line
                    && matches!(l.kind, RowKind::Added | RowKind::Removed)
                    && l.line_in_item > 0 =>
            {
                l.line_in_item
            }
            _ => {
                picked.insert(id.clone(), None);
                continue;
            }
        };
        picked
            .entry(id.clone())
            .and_modify(|span| {
                if let Some((first, last)) = span {
                    *first = line.min(*first);
                    *last = line.max(*last);
                }
            })
            .or_insert(Some((line, line)));
    }
    if picked.is_empty() {
        let key = |name| model.keymap.key(name).unwrap_or_default();
        let text = format!(
            "There is nothing to decide on this line: `{}` goes to the next hunk, `{}` takes the \
             whole file.",
            key(Name::NextHunk),
            key(Name::WholeFile)
        );
        model.hint(text);
        return None;
    }
    let decision = state
        .decisions
        .get(&document.key)
        .filter(|d| d.digest == document.digest);
    let change = state.changes.get(&document.key);
    let verdicts = change.map(|c| Verdicts::of(c, decision));
    let approved = verdicts.is_some_and(|verdicts| {
        picked
            .iter()
            .all(|(id, span)| match (*span, verdicts.item(id)) {
                (None, _) => verdicts.summary(id) == Some(Summary::Approved),
                (Some((first, last)), Some(item)) => (first..=last)
                    .all(|line| line_verdict(item, line, decision) == Some(Verdict::Approved)),
                (Some(_), None) => false,
            })
    });
    let items: Vec<ItemRef> = picked
        .into_iter()
        .map(|(id, lines)| ItemRef { id, lines })
        .collect();
    let target = Target::Items(document.key.clone(), items);
    let choice = Choice {
        targets: vec![(document.key.clone(), target, document.digest)],
        seen: model.said,
    };
    let label = describe(state, &choice);
    Some(Chosen {
        choice,
        approved,
        label,
    })
}

/// Space: approve, or take the approval back.
pub fn approve(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    let Some(chosen) = chosen(model, state) else {
        return Vec::new();
    };
    if chosen.approved {
        return say(
            model,
            state,
            &chosen.choice,
            &Say::Reset,
            &format!("undecided: {}", chosen.label),
        );
    }
    if asks(state, &chosen.choice) {
        return pages::open_approve(model, state, chosen.choice);
    }
    let label = approval(model, state, &chosen);
    let effects = say(model, state, &chosen.choice, &Say::Approve, &label);
    after_range(model);
    effects
}

/// What is said of an approval: also how much of it nobody has seen on this screen.
fn approval(model: &Model, state: &SessionState, chosen: &Chosen) -> String {
    let keys = chosen.choice.targets.iter().map(|(key, ..)| key);
    let changes = keys.filter_map(|key| state.changes.get(key));
    let never = plan::never_shown(model, changes.map(|change| &**change));
    let never = never.map_or(String::new(), |never| format!("; never shown: {never}"));
    format!("approved: {}{never}", chosen.label)
}

/// Whether approving this as one needs a second look.
fn asks(state: &SessionState, choice: &Choice) -> bool {
    let many = choice.targets.len();
    let hidden = |key: &LayerPath| {
        state
            .changes
            .get(key)
            .is_some_and(|c| c.risks.contains(&Risk::HiddenText))
    };
    many > ASK_ABOVE || (many > 1 && choice.targets.iter().any(|(k, ..)| hidden(k)))
}

/// Enter: approve and go on; on a group open or fold it.
pub fn approve_next(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    if model.focus == Pane::Files && navigate::on_group(model) {
        let at = model.list.cursor;
        model.list.fold(at, None);
        model.stale = true;
        return Vec::new();
    }
    let Some(chosen) = chosen(model, state) else {
        return Vec::new();
    };
    let mut effects = Vec::new();
    if !chosen.approved {
        let label = approval(model, state, &chosen);
        effects = say(model, state, &chosen.choice, &Say::Approve, &label);
    }
    after_range(model);
    effects.extend(search::advance(model, state, &chosen.choice));
    effects
}

fn after_range(model: &mut Model) {
    model.diff.anchor = None;
}

/// x: reject, after a reason was asked for.
pub fn reject(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    if let Some(chosen) = chosen(model, state) {
        model.dialog = Some(Dialog::Text(TextLine {
            purpose: TextFor::Reason(chosen.choice),
            text: String::new(),
        }));
    }
    Vec::new()
}

/// The reason was given (or skipped).
pub fn rejected(
    model: &mut Model,
    state: &SessionState,
    choice: &Choice,
    reason: &str,
) -> Vec<Effect> {
    let reason = Some(reason.trim().to_owned()).filter(|r| !r.is_empty());
    let label = format!("rejected: {}", describe(state, choice));
    let effects = say(model, state, choice, &Say::Reject(reason), &label);
    after_range(model);
    effects
}

/// Consent to approve many was given.
pub fn approved(model: &mut Model, state: &SessionState, choice: &Choice) -> Vec<Effect> {
    let label = format!("approved: {}", describe(state, choice));
    say(model, state, choice, &Say::Approve, &label)
}

/// What was chosen, in words.
fn describe(state: &SessionState, choice: &Choice) -> String {
    match choice.targets.as_slice() {
        [(key, Target::Items(_, items), _)] => match (items.as_slice(), state.changes.get(key)) {
            (all, Some(change)) if all.len() == change.items.len() => {
                let whole = all.iter().all(|i| i.lines.is_none());
                match all {
                    [one] if !whole => format!("{key}, {}", marks::item_words(change, one)),
                    _ if whole => key.to_string(),
                    many => format!("{key}, {}", marks::count(many.len(), "item")),
                }
            }
            ([one], Some(change)) => format!("{key}, {}", marks::item_words(change, one)),
            (many, _) => format!("{key}, {}", marks::count(many.len(), "item")),
        },
        [(key, ..)] => key.to_string(),
        many => format!("{} changes", many.len()),
    }
}

/// -: back to undecided.
pub fn reset(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    let Some(chosen) = chosen(model, state) else {
        return Vec::new();
    };
    let label = format!("undecided: {}", chosen.label);
    let effects = say(model, state, &chosen.choice, &Say::Reset, &label);
    after_range(model);
    effects
}

/// A: the whole file, also from within its diff.
pub fn whole_file(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    if model.focus == Pane::Files {
        return approve(model, state);
    }
    if !may_decide(model) {
        return Vec::new();
    }
    let Some(document) = model.diff.document.clone() else {
        return Vec::new();
    };
    if model.layout.diff_key.as_ref() != Some(&document.key) {
        say_not_drawn(model);
        return Vec::new();
    }
    let Some(change) = state.changes.get(&document.key) else {
        return Vec::new();
    };
    let choice = Choice {
        targets: vec![(document.key.clone(), whole(change), document.digest)],
        seen: model.said,
    };
    let decision = marks::holding(change, state.decisions.get(&document.key));
    if pvisor::review::summary(change, decision) == Summary::Approved {
        let label = format!("undecided: {}", document.key);
        return say(model, state, &choice, &Say::Reset, &label);
    }
    let chosen = Chosen {
        choice,
        approved: false,
        label: document.key.to_string(),
    };
    let label = approval(model, state, &chosen);
    say(model, state, &chosen.choice, &Say::Approve, &label)
}

/// Sends a decision, one request a change so that each carries its own digest, and notes how to
/// take it back.
fn say(
    model: &mut Model,
    state: &SessionState,
    choice: &Choice,
    what: &Say,
    label: &str,
) -> Vec<Effect> {
    let mut step = Step {
        label: label.to_owned(),
        forward: Vec::new(),
        inverse: Vec::new(),
    };
    for (key, target, digest) in &choice.targets {
        step.forward.push(Request::Decide {
            targets: vec![target.clone()],
            say: what.clone(),
            expect: Some(*digest),
            seen: Some(choice.seen),
        });
        step.inverse.extend(restore(state, key, *digest));
    }
    let effects = step
        .forward
        .iter()
        .map(|r| Effect::Ask(Purpose::Decide, r.clone()))
        .collect();
    model.history.push(step);
    model.say(Severity::Info, label);
    effects
}

/// Requests that bring a change's decisions back to what they are now.
fn restore(state: &SessionState, key: &LayerPath, digest: Digest) -> Vec<Request> {
    let Some(change) = state.changes.get(key) else {
        return Vec::new();
    };
    let decide = |targets: Vec<Target>, say: Say| Request::Decide {
        targets,
        say,
        expect: Some(digest),
        seen: None,
    };
    let mut requests = vec![decide(vec![whole(change)], Say::Reset)];
    let verdicts = state
        .decisions
        .get(key)
        .filter(|d| d.digest == digest)
        .map(|d| d.verdicts.as_slice())
        .unwrap_or_default();
    for (item, verdict) in verdicts {
        let say = match verdict {
            Verdict::Approved => Say::Approve,
            Verdict::Rejected { reason } => Say::Reject(reason.clone()),
        };
        match requests.last_mut() {
            Some(Request::Decide {
                targets, say: last, ..
            }) if *last == say => {
                if let Some(Target::Items(_, items)) = targets.first_mut() {
                    items.push(item.clone());
                }
            }
            _ => requests.push(decide(
                vec![Target::Items(key.clone(), vec![item.clone()])],
                say,
            )),
        }
    }
    requests
}

/// u: the last decision; when a commit came after it, that commit, which is asked about first.
pub fn undo(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    if model.history.is_at_start() && !state.commits.is_empty() {
        return pages::open_undo_commit(model, state);
    }
    replay(model, true)
}

/// Ctrl-r: again.
pub fn redo(model: &mut Model) -> Vec<Effect> {
    replay(model, false)
}

fn replay(model: &mut Model, back: bool) -> Vec<Effect> {
    let step = if back {
        model.history.undo()
    } else {
        model.history.redo()
    };
    let Some(step) = step.cloned() else {
        let text = if back {
            "There is no decision to take back."
        } else {
            "There is no decision to make again."
        };
        model.hint(text);
        return Vec::new();
    };
    let (word, requests) = if back {
        ("taken back", step.inverse)
    } else {
        ("again", step.forward)
    };
    model.say(Severity::Info, format!("{word}: {}", step.label));
    let shown = model.said;
    let now = |mut request| {
        if let Request::Decide { seen, .. } = &mut request {
            *seen = Some(shown);
        }
        request
    };
    requests
        .into_iter()
        .map(now)
        .map(|r| Effect::Ask(Purpose::Decide, r))
        .collect()
}

/// X: asks whether to take the change back in the agent's view.
pub fn revert(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    if model.role < Role::Driver {
        model.say(
            Severity::Warning,
            "Taking changes back in the agent's view needs the role driver.",
        );
        return Vec::new();
    }
    let row = model.list.current().cloned();
    let keys: Vec<LayerPath> = match (model.focus, row) {
        (Pane::Diff, _) => model.diff.key.iter().cloned().collect(),
        (_, Some(row)) => model
            .list
            .members_of(&row)
            .into_iter()
            .map(|m| m.key.clone())
            .collect(),
        _ => Vec::new(),
    };
    if keys.is_empty() {
        return Vec::new();
    }
    let targets = keys.iter().cloned().map(Target::Path).collect();
    pages::open_page(model, state, Subject::Revert(targets), &keys)
}
