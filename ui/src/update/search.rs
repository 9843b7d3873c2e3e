//! Searching names and diffs in their visible form, and the way from one undecided change to the
//! next.

use pvisor::review::Summary;
use pvisor::session::state::SessionState;

use super::navigate;
use crate::effect::Effect;
use crate::model::dialog::{Choice, Dialog, TextFor};
use crate::model::document::{DocRow, Document};
use crate::model::verdicts::Verdicts;
use crate::model::{Model, Pane, Search, Severity, marks};

/// Whether visible text holds what is looked for; capitals count only if some were typed.
fn holds(bytes: &[u8], wanted: &str) -> bool {
    let text = pvisor::text::visible(bytes);
    if wanted.chars().any(char::is_uppercase) {
        text.contains(wanted)
    } else {
        text.to_lowercase().contains(wanted)
    }
}

fn row_holds(document: &Document, row: usize, wanted: &str) -> bool {
    match &document.rows[row] {
        DocRow::Item { text, .. } => holds(text, wanted),
        DocRow::Line(line) => holds(&line.bytes, wanted),
        DocRow::Note(_) => false,
    }
}

/// While it is typed the search shows where it would lead.
pub fn follow(model: &mut Model, _state: &SessionState) {
    if let Some(Dialog::Text(line)) = &model.dialog
        && line.purpose == TextFor::Search
    {
        model.search = Some(Search {
            text: line.text.clone(),
        })
        .filter(|s| !s.text.is_empty());
    }
}

/// The search was typed.
pub fn start(model: &mut Model, state: &SessionState, text: &str) {
    if text.is_empty() {
        model.search = None;
        return;
    }
    model.search = Some(Search {
        text: text.to_owned(),
    });
    next(model, state, true);
}

/// n: next match while a search is on, else the next undecided one.
pub fn next(model: &mut Model, state: &SessionState, forward: bool) -> Vec<Effect> {
    match model.search.clone() {
        Some(search) if model.focus == Pane::Files => match_in_list(model, &search.text, forward),
        Some(search) => match_in_diff(model, &search.text, forward),
        None => {
            undecided(model, state, forward);
        }
    }
    Vec::new()
}

/// Indices after `at` and around, or before it and around.
fn around(len: usize, at: usize, forward: bool) -> Box<dyn Iterator<Item = usize>> {
    if forward {
        Box::new((at + 1..len).chain(0..len.min(at + 1)))
    } else {
        Box::new((0..at.min(len)).rev().chain((at.min(len)..len).rev()))
    }
}

fn match_in_list(model: &mut Model, wanted: &str, forward: bool) {
    let list = &model.list;
    let found = around(list.rows.len(), list.cursor, forward).find(|i| {
        list.change(&list.rows[*i])
            .is_some_and(|m| holds(m.key.path.as_bytes(), wanted))
    });
    match found {
        Some(row) => model.list.cursor = row,
        None => nothing(model, wanted),
    }
}

fn match_in_diff(model: &mut Model, wanted: &str, forward: bool) {
    let Some(document) = model.diff.drawn().cloned() else {
        return;
    };
    let found = around(document.rows.len(), model.diff.cursor, forward)
        .find(|row| row_holds(&document, *row, wanted));
    match found {
        Some(row) => {
            model.diff.skip = 0;
            model.diff.cursor = row;
        }
        None => nothing(model, wanted),
    }
}

fn nothing(model: &mut Model, wanted: &str) {
    model.say(
        Severity::Info,
        format!(
            "No match for `{}`.",
            pvisor::text::visible(wanted.as_bytes())
        ),
    );
}

/// To the next item without a decision: within the diff first, then in the list.
fn undecided(model: &mut Model, state: &SessionState, forward: bool) -> bool {
    if model.focus == Pane::Diff
        && let Some(row) = undecided_in_diff(model, state, forward)
    {
        model.diff.skip = 0;
        model.diff.cursor = row;
        return true;
    }
    let list = &model.list;
    let open = |i: &usize| {
        list.change(&list.rows[*i])
            .is_some_and(|m| matches!(m.summary, Summary::Undecided | Summary::Mixed))
    };
    let at = list.cursor;
    let found = around(list.rows.len(), at, forward).find(|i| *i != at && open(i));
    if let Some(row) = found {
        model.list.cursor = row;
        return true;
    }
    if let Some(key) = list
        .members
        .iter()
        .find(|m| {
            m.summary == Summary::Undecided
                && !pvisor::layer::is_of_home(&m.key.layer)
                && state
                    .changes
                    .get(&m.key)
                    .is_some_and(|c| c.class == pvisor::change::Class::Plain)
                && model.diff.key.as_ref() != Some(&m.key)
        })
        .map(|m| m.key.clone())
    {
        navigate::go_to(model, state, &key);
        return true;
    }
    model.hint("Nothing else is undecided.");
    false
}

fn undecided_in_diff(model: &Model, state: &SessionState, forward: bool) -> Option<usize> {
    let document = model.diff.document.as_ref()?;
    let change = state.changes.get(&document.key)?;
    let decision = marks::holding(change, state.decisions.get(&document.key));
    let verdicts = Verdicts::of(change, decision);
    let open = |row: &usize| {
        document.is_head(*row)
            && document
                .item(*row)
                .is_some_and(|id| verdicts.summary(id) == Some(Summary::Undecided))
    };
    let at = model.diff.cursor;
    if forward {
        (at + 1..document.rows.len()).find(open)
    } else {
        (0..at.min(document.rows.len())).rev().find(open)
    }
}

/// After an approval by Enter: on to what is undecided, never back to what was just decided.
pub fn advance(model: &mut Model, state: &SessionState, decided: &Choice) -> Vec<Effect> {
    match model.focus {
        Pane::Files => {
            let list = &model.list;
            let found = (list.cursor + 1..list.rows.len()).find(|i| {
                list.change(&list.rows[*i]).is_some_and(|m| {
                    m.summary != Summary::Approved
                        && decided.targets.iter().all(|(k, ..)| *k != m.key)
                })
            });
            match found {
                Some(row) => model.list.cursor = row,
                None => return Vec::new(),
            }
        }
        _ => match undecided_in_diff(model, state, true) {
            Some(row) => model.diff.cursor = row,
            None => return navigate::file(model, true),
        },
    }
    Vec::new()
}

/// To this line of the agent's side.
pub fn go_to_line(model: &mut Model, number: u32) {
    let Some(document) = model.diff.drawn() else {
        return;
    };
    let found = document.rows.iter().position(
        |r| matches!(r, DocRow::Line(l) if l.new_no.or(l.old_no).is_some_and(|n| n >= number)),
    );
    if let Some(row) = found {
        model.focus = Pane::Diff;
        model.diff.cursor = row;
    }
}
