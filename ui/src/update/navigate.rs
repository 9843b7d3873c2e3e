//! Moving about: rows, pages, hunks, files.

use pvisor::session::state::SessionState;

use crate::action::Name;
use crate::effect::Effect;
use crate::model::dialog::Dialog;
use crate::model::list::Row;
use crate::model::{Model, Pane, Severity};

/// Columns a sideways step moves.
const SIDE_STEP: usize = 8;

/// Moves within what has the focus.
pub fn scroll(model: &mut Model, name: Name) {
    if let Some(dialog) = &mut model.dialog {
        let height = model
            .layout
            .page
            .as_ref()
            .map_or(10, ExactSizeIterator::len);
        let last = model.layout.page_len.saturating_sub(height);
        let top = match dialog {
            Dialog::Help { top } => top,
            Dialog::Confirm(page) => &mut page.top,
            Dialog::Ask(page) => &mut page.top,
            Dialog::Rules(page) => {
                let last = model.layout.page_len.saturating_sub(1);
                page.cursor = stepped(page.cursor, name, height, last);
                page.forgetting = None;
                return;
            }
            Dialog::Quit | Dialog::Text(_) => return,
        };
        *top = stepped(*top, name, height, last);
        return;
    }
    match model.focus {
        Pane::Files => files(model, name),
        Pane::Diff => diff(model, name),
        Pane::Log => {
            let (height, all) = model.layout.log;
            let last = all.saturating_sub(height);
            let top = last - model.log_up.min(last);
            model.log_up = last - stepped(top, name, height, last).min(last);
        }
        Pane::Agent => {}
    }
}

/// Where a step from `at` leads in a list that ends at `last`.
fn stepped(at: usize, name: Name, height: usize, last: usize) -> usize {
    let half = (height / 2).max(1);
    let page = height.saturating_sub(1).max(1);
    match name {
        Name::Down => at + 1,
        Name::Up => at.saturating_sub(1),
        Name::HalfDown => at + half,
        Name::HalfUp => at.saturating_sub(half),
        Name::PageDown => at + page,
        Name::PageUp => at.saturating_sub(page),
        Name::Top => 0,
        Name::Bottom => last,
        _ => at,
    }
    .min(last)
}

fn top_for(name: Name, cursor: usize, top: usize, height: usize) -> usize {
    match name {
        Name::RowToMiddle => cursor.saturating_sub(height / 2),
        Name::RowToTop => cursor,
        Name::RowToBottom => (cursor + 1).saturating_sub(height),
        _ => top,
    }
}

fn files(model: &mut Model, name: Name) {
    let height = model.layout.height(Pane::Files);
    let list = &mut model.list;
    let last = list.rows.len().saturating_sub(1);
    let moved = match name {
        Name::Left => {
            if list.fold(list.cursor, Some(false)) {
                model.stale = true;
            } else if let Some(parent) = list.parent(list.cursor) {
                list.cursor = parent;
            }
            return;
        }
        Name::Right => {
            model.stale |= list.fold(list.cursor, Some(true));
            return;
        }
        name => stepped(list.cursor, name, height, last),
    };
    list.cursor = moved;
    list.top = top_for(name, list.cursor, list.top, height);
}

fn diff(model: &mut Model, name: Name) {
    let height = model.layout.height(Pane::Diff);
    let whole = model.layout.diff_rows.clone();
    let pane = &mut model.diff;
    let last = pane.len().saturating_sub(1);
    match name {
        Name::Left => pane.left = pane.left.saturating_sub(SIDE_STEP),
        Name::Right if !pane.wrap => pane.left += SIDE_STEP,
        Name::Right => {
            let key = model.keymap.key(Name::Wrap).unwrap_or_default();
            model.hint(format!(
                "Long lines are wrapped here: `{key}` changes that."
            ));
        }
        // A wrapped row that is taller than the pane is read line by line.
        Name::Down if pane.wrap && pane.cursor == pane.top && !whole.contains(&pane.cursor) => {
            if pane.skip + 1 < MAX_SKIP && model.layout.diff_more {
                pane.skip += 1;
            } else {
                pane.skip = 0;
                pane.cursor = (pane.cursor + 1).min(last);
            }
        }
        Name::Up if pane.skip > 0 && pane.cursor == pane.top => pane.skip -= 1,
        name => {
            pane.skip = 0;
            pane.cursor = stepped(pane.cursor, name, height, last);
            pane.top = top_for(name, pane.cursor, pane.top, height);
        }
    }
}

/// Wrapped lines of one row that can be scrolled through.
const MAX_SKIP: usize = 1 << 20;

/// To the next or previous hunk or item; from the last one on to the next file.
pub fn hunk(model: &mut Model, forward: bool) -> Vec<Effect> {
    if model.focus == Pane::Files {
        model.focus = Pane::Diff;
    }
    let Some(document) = model.diff.drawn().cloned() else {
        return file(model, forward);
    };
    let at = model.diff.cursor;
    let found = if forward {
        (at + 1..document.rows.len()).find(|r| document.is_head(*r))
    } else {
        (0..at.min(document.rows.len()))
            .rev()
            .find(|r| document.is_head(*r))
    };
    if let Some(row) = found {
        model.diff.skip = 0;
        model.diff.cursor = row;
        return Vec::new();
    }
    file(model, forward)
}

/// To the next or previous change of the list.
pub fn file(model: &mut Model, forward: bool) -> Vec<Effect> {
    let at = model.list.cursor;
    let is_change = |i: &usize| model.list.change(&model.list.rows[*i]).is_some();
    let found = if forward {
        (at + 1..model.list.rows.len()).find(is_change)
    } else {
        (0..at.min(model.list.rows.len())).rev().find(is_change)
    };
    match found {
        Some(row) => model.list.cursor = row,
        None => model.say(
            Severity::Info,
            if forward {
                "This is the last change."
            } else {
                "This is the first change."
            },
        ),
    }
    Vec::new()
}

/// Puts the cursor on a change, opening whatever hides it.
pub fn go_to(model: &mut Model, state: &SessionState, key: &pvisor::LayerPath) {
    let find = |model: &Model| {
        let rows = &model.list.rows;
        let own = |r: &Row| model.list.change(r).is_some_and(|m| m.key == *key);
        // One row may stand for a chain of new directories.
        let chain = |r: &Row| {
            matches!(r, Row::Dir { dir, own: Some(_), .. }
                if dir.layer == key.layer
                    && (dir.path == key.path || dir.path.ancestors().any(|a| a == key.path)))
        };
        rows.iter()
            .position(own)
            .or_else(|| rows.iter().position(chain))
    };
    if find(model).is_none() {
        model.list.reveal(key);
        model.list.rebuild(state);
    }
    if let Some(at) = find(model) {
        model.list.cursor = at;
    }
}

/// Shows only what the agent changed since the person looked, or everything again.
pub fn since_seen(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    if model.diff.leave_since() {
        return Vec::new();
    }
    let found = model.diff.key.as_ref().and_then(|key| {
        let change = state.changes.get(key)?;
        let seen = model.diff.seen(key).filter(|s| s.digest == change.digest)?;
        Some(Effect::Since {
            key: key.clone(),
            digest: change.digest,
            old: seen.previous.clone()?,
            new: seen.after.clone()?,
        })
    });
    if let Some(effect) = found {
        return vec![effect];
    }
    model.say(Severity::Info, "This has not changed since you looked.");
    Vec::new()
}

/// Whether the row under the list's cursor is a group.
pub fn on_group(model: &Model) -> bool {
    matches!(
        model.list.current(),
        Some(Row::Layer { .. } | Row::Dir { .. } | Row::Fold { .. })
    )
}
