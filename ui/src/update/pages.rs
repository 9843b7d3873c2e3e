//! Pages that ask for consent and lines of text: what they say, and what an answer does.

use pvisor::LayerPath;
use pvisor::protocol::{Request, Role};
use pvisor::session::state::SessionState;

use super::plan::{approved, describe, mergeable, obstacles, plan_hash};
use super::{decide, search};
use crate::action::{Context, Name};
use crate::effect::{Effect, Purpose};
use crate::model::dialog::{
    Check, Choice, Confirm, Dialog, PageLine, Subject, TextFor, TextLine, Tone,
};
use crate::model::{Model, Severity};

/// Opens a line of text.
pub fn open_text(model: &mut Model, purpose: TextFor) -> Vec<Effect> {
    model.dialog = Some(Dialog::Text(TextLine {
        purpose,
        text: String::new(),
    }));
    Vec::new()
}

/// Takes characters of the line away.
pub fn erase(model: &mut Model, name: Name) {
    let Some(Dialog::Text(line)) = &mut model.dialog else {
        return;
    };
    match name {
        Name::EraseLine => line.text.clear(),
        Name::EraseWord => {
            let kept = line.text.trim_end();
            let cut = kept.rfind(char::is_whitespace).map_or(0, |i| i + 1);
            line.text.truncate(cut);
        }
        _ => {
            line.text.pop();
        }
    }
}

/// The line is done.
pub fn accept_text(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    let Some(Dialog::Text(line)) = model.dialog.take() else {
        return Vec::new();
    };
    match line.purpose {
        TextFor::Reason(choice) => decide::rejected(model, state, &choice, &line.text),
        TextFor::Search => {
            search::start(model, state, &line.text);
            Vec::new()
        }
        TextFor::Command => command(model, state, line.text.trim()),
    }
}

fn command(model: &mut Model, state: &SessionState, typed: &str) -> Vec<Effect> {
    if typed.is_empty() {
        return Vec::new();
    }
    if let Ok(number) = typed.parse::<u32>() {
        search::go_to_line(model, number);
        return Vec::new();
    }
    let context = model.context();
    match Name::parse(typed) {
        Some(name) if runs_by_name(name, context) => {
            super::update(model, state, crate::action::Action::Do(name))
        }
        Some(name) => {
            model.say(
                Severity::Warning,
                format!("`{}` has no meaning in this pane.", name.entry().id),
            );
            Vec::new()
        }
        None => {
            model.say(
                Severity::Warning,
                format!(
                    "No action is named `{}`: the help page lists them.",
                    pvisor::text::visible(typed.as_bytes())
                ),
            );
            Vec::new()
        }
    }
}

/// What the command line runs: what the pane's keys do, and the ways to leave.
fn runs_by_name(name: Name, context: Context) -> bool {
    let contexts = name.entry().contexts;
    name != Name::CommandLine && (contexts.contains(&context) || contexts == [Context::Quit])
}

/// Opens a page about these changes.
pub fn open_page(
    model: &mut Model,
    state: &SessionState,
    subject: Subject,
    keys: &[LayerPath],
) -> Vec<Effect> {
    let (hash, lines) = describe(model, state, &subject, keys);
    model.pages += 1;
    let number = model.pages;
    model.dialog = Some(Dialog::Confirm(Box::new(Confirm::new(
        subject.clone(),
        number,
        hash,
        lines,
    ))));
    if let Subject::Commit { merge } = subject {
        offer_merge(model, state);
        return vec![dry_run(number, merge)];
    }
    Vec::new()
}

/// Notes on the page whether a merge would help.
fn offer_merge(model: &mut Model, state: &SessionState) {
    let can = mergeable(state).next().is_some();
    if let Some(Dialog::Confirm(page)) = &mut model.dialog {
        page.can_merge = can && page.subject == Subject::Commit { merge: false };
    }
}

/// m: the plan with merges, which has to be shown and accepted like any other.
pub fn merge(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    match &model.dialog {
        Some(Dialog::Confirm(page)) if page.can_merge => {
            open_page(model, state, Subject::Commit { merge: true }, &[])
        }
        _ => {
            model.say(Severity::Warning, "There is nothing to merge.");
            Vec::new()
        }
    }
}

fn dry_run(number: u64, merge: bool) -> Effect {
    Effect::Ask(
        Purpose::Plan(number),
        Request::Commit {
            all: false,
            ignored: false,
            merge,
            dry_run: true,
            keep_undo: None,
        },
    )
}

fn drives(model: &mut Model, what: &str) -> bool {
    if let Some(busy) = model.busy {
        model.say(Severity::Warning, format!("The {busy} is not done yet."));
        return false;
    }
    if model.role < Role::Driver {
        model.say(Severity::Warning, format!("{what} needs the role driver."));
        return false;
    }
    true
}

/// P: the plan.
pub fn open_commit(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    if !drives(model, "A commit") {
        return Vec::new();
    }
    if approved(state).is_empty() {
        let key = model.keymap.key(Name::Approve).unwrap_or_default();
        model.hint(format!(
            "Nothing is approved: there is nothing to commit. `{key}` approves what is under the \
             cursor."
        ));
        return Vec::new();
    }
    open_page(model, state, Subject::Commit { merge: false }, &[])
}

/// U: the last commit, to be put back.
pub fn open_undo_commit(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    if !drives(model, "Undoing a commit") {
        return Vec::new();
    }
    let Some(last) = state.commits.last() else {
        model.say(Severity::Info, "Nothing was committed in this session.");
        return Vec::new();
    };
    let keys = last.paths.clone();
    open_page(model, state, Subject::UndoCommit(last.number), &keys)
}

/// Space on a large group: approve all of it?
pub fn open_approve(model: &mut Model, state: &SessionState, choice: Choice) -> Vec<Effect> {
    let keys: Vec<LayerPath> = choice.targets.iter().map(|(k, ..)| k.clone()).collect();
    open_page(model, state, Subject::Approve(choice), &keys)
}

/// Whether the open page is about a conflict.
pub fn is_about_conflict(model: &Model) -> bool {
    match &model.dialog {
        Some(Dialog::Confirm(page)) => matches!(page.subject, Subject::Resolve(_)),
        _ => false,
    }
}

/// The open page follows the state; what says something else has to be shown again.
pub fn refresh(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    let Some(Dialog::Confirm(page)) = &model.dialog else {
        return Vec::new();
    };
    if matches!(page.subject, Subject::Resolve(_)) {
        let (hash, lines) = describe(model, state, &page.subject, &[]);
        if hash != page.hash
            && let Some(Dialog::Confirm(page)) = &mut model.dialog
        {
            page.replace(hash, lines);
        }
        return Vec::new();
    }
    let Subject::Commit { merge } = page.subject else {
        return Vec::new();
    };
    if page.hash == plan_hash(state) {
        return Vec::new();
    }
    let (hash, lines) = describe(model, state, &Subject::Commit { merge }, &[]);
    model.pages += 1;
    let number = model.pages;
    if let Some(Dialog::Confirm(page)) = &mut model.dialog {
        page.number = number;
        page.check = Check::Waiting;
        page.replace(hash, lines);
    }
    offer_merge(model, state);
    vec![dry_run(number, merge)]
}

/// Whether the page was shown to its end and the keys rested; else it says why nothing is heard.
pub fn is_armed(model: &mut Model, last_key: std::time::Duration) -> bool {
    let Some(Dialog::Confirm(page)) = &model.dialog else {
        return false;
    };
    if page.armed_at(last_key).is_none_or(|t| t > model.now) {
        let why = if !page.possible() {
            "There is nothing to say yes to."
        } else if page.shown_to_end() {
            "Too soon: nothing was accepted. Look, then press the key once."
        } else {
            "Read to the end first: nothing was accepted."
        };
        model.say(Severity::Warning, why);
        return false;
    }
    true
}

/// y: only if the page was shown to its end and the keys rested.
pub fn accept(
    model: &mut Model,
    state: &SessionState,
    last_key: std::time::Duration,
) -> Vec<Effect> {
    if is_about_conflict(model) {
        model.say(Severity::Warning, "Choose one of those above.");
        return Vec::new();
    }
    if !is_armed(model, last_key) {
        return Vec::new();
    }
    let Some(Dialog::Confirm(page)) = &model.dialog else {
        return Vec::new();
    };
    if matches!(page.subject, Subject::Commit { .. }) && page.hash != plan_hash(state) {
        model.say(
            Severity::Warning,
            "What is approved has changed since it was shown: look again.",
        );
        return Vec::new();
    }
    let subject = page.subject.clone();
    model.dialog = None;
    match subject {
        Subject::Commit { merge } => {
            model.busy = Some("commit");
            vec![Effect::Ask(
                Purpose::Commit,
                Request::Commit {
                    all: false,
                    ignored: false,
                    merge,
                    dry_run: false,
                    keep_undo: None,
                },
            )]
        }
        Subject::UndoCommit(_) => {
            model.busy = Some("undo");
            vec![Effect::Ask(Purpose::UndoCommit, Request::Undo)]
        }
        Subject::Revert(targets) => {
            model.busy = Some("revert");
            vec![Effect::Ask(Purpose::Revert, Request::Revert(targets))]
        }
        Subject::Discard => vec![Effect::Ask(Purpose::Discard, Request::Discard)],
        Subject::Approve(choice) => decide::approved(model, state, &choice),
        Subject::Resolve(_) => Vec::new(),
    }
}

/// n, d, esc: no, at any time.
pub fn deny(model: &mut Model) -> Vec<Effect> {
    let consent = model.context() == Context::Confirm;
    model.dialog = None;
    if consent {
        model.say(Severity::Info, "Nothing was done.");
    }
    Vec::new()
}

/// The check's answer, which itself has to be seen.
pub fn checked(model: &mut Model, number: u64, check: Check) {
    if let Some(Dialog::Confirm(page)) = &mut model.dialog
        && page.number == number
    {
        let found = match &check {
            Check::Done(outcome) => obstacles(outcome),
            Check::Failed(text) => vec![PageLine::new(Tone::Bad, text.clone())],
            Check::Waiting | Check::Unneeded => Vec::new(),
        };
        page.lines.splice(1..1, found);
        page.check = check;
        page.drawn = None;
    }
}
