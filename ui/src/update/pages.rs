//! Pages that ask for consent and lines of text: what they say, and what an answer does.

use std::collections::BTreeMap;

use pvisor::LayerPath;
use pvisor::change::Change;
use pvisor::commit::Outcome;
use pvisor::diff::{ItemKind, ItemRef};
use pvisor::layer::{Digest, Node};
use pvisor::protocol::{Request, Role};
use pvisor::review::{Summary, Verdict, summary};
use pvisor::session::state::{CommitRecord, SessionState};

use super::{decide, search};
use crate::action::{Context, Name};
use crate::effect::{Effect, Purpose};
use crate::model::dialog::{
    Check, Choice, Confirm, Dialog, PageLine, Subject, TextFor, TextLine, Tone,
};
use crate::model::{Model, Severity, marks};

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
    if subject == Subject::Commit {
        return vec![dry_run(number)];
    }
    Vec::new()
}

fn dry_run(number: u64) -> Effect {
    Effect::Ask(
        Purpose::Plan(number),
        Request::Commit {
            all: false,
            ignored: false,
            dry_run: true,
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
        model.say(
            Severity::Info,
            "Nothing is approved: there is nothing to commit.",
        );
        return Vec::new();
    }
    open_page(model, state, Subject::Commit, &[])
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

/// The open page follows the state; what says something else has to be shown again.
pub fn refresh(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    let Some(Dialog::Confirm(page)) = &model.dialog else {
        return Vec::new();
    };
    if page.subject != Subject::Commit || page.hash == plan_hash(state) {
        return Vec::new();
    }
    let (hash, lines) = describe(model, state, &Subject::Commit, &[]);
    model.pages += 1;
    let number = model.pages;
    if let Some(Dialog::Confirm(page)) = &mut model.dialog {
        page.number = number;
        page.check = Check::Waiting;
        page.replace(hash, lines);
    }
    vec![dry_run(number)]
}

/// A change of which something is approved.
struct Approved<'a> {
    change: &'a Change,
    /// What is approved of it.
    items: Vec<ItemRef>,
    /// All of it is.
    whole: bool,
}

/// Changes of which something is approved, as they stand.
fn approved(state: &SessionState) -> Vec<Approved<'_>> {
    let mut out = Vec::new();
    for (key, decision) in &state.decisions {
        let Some(change) = state.changes.get(key) else {
            continue;
        };
        let Some(decision) = marks::holding(change, Some(decision)) else {
            continue;
        };
        let items: Vec<ItemRef> = decision
            .verdicts
            .iter()
            .filter(|(_, v)| *v == Verdict::Approved)
            .map(|(item, _)| item.clone())
            .collect();
        if items.is_empty() {
            continue;
        }
        let whole = summary(change, Some(decision)) == Summary::Approved;
        out.push(Approved {
            change,
            items,
            whole,
        });
    }
    out
}

/// What is approved of a change, in words.
fn parts(change: &Change, items: &[ItemRef]) -> String {
    let words: Vec<String> = items
        .iter()
        .map(|named| {
            let kind = change.items.iter().find(|i| i.id == named.id);
            match (kind.map(|i| i.kind), named.lines) {
                (Some(ItemKind::Hunk), None) => format!("hunk {}", named.id),
                (Some(ItemKind::Hunk) | None, _) => format!("lines {named}"),
                (Some(ItemKind::Whole), _) if change.from().is_some() => "the rename".to_owned(),
                (Some(kind), _) => kind.name().to_owned(),
            }
        })
        .collect();
    words.join(", ")
}

/// Names what a commit would take.
fn plan_hash(state: &SessionState) -> Digest {
    let mut text = Vec::new();
    for Approved { change, items, .. } in approved(state) {
        text.extend_from_slice(&change.digest.0);
        text.extend_from_slice(change.key.layer.as_bytes());
        text.push(0);
        text.extend_from_slice(change.key.path.as_bytes());
        text.push(0);
        for item in items {
            text.extend_from_slice(item.to_string().as_bytes());
            text.push(b' ');
        }
        text.push(0);
    }
    Digest::of(&text)
}

fn describe(
    model: &Model,
    state: &SessionState,
    subject: &Subject,
    keys: &[LayerPath],
) -> (Digest, Vec<PageLine>) {
    match subject {
        Subject::Commit => (plan_hash(state), plan_lines(model, state)),
        Subject::UndoCommit(number) => {
            let record = state.commits.iter().find(|c| c.number == *number);
            (Digest::of(&number.to_le_bytes()), undo_lines(record))
        }
        Subject::Revert(_) => {
            let mut lines = vec![PageLine::new(
                Tone::Head,
                format!(
                    "Take {} back: the agent will see the host's side again.",
                    count(keys.len(), "change")
                ),
            )];
            lines.push(PageLine::new(
                Tone::Warn,
                "What the agent made of them is lost.",
            ));
            lines.extend(list(state, keys));
            (Digest::of(b"revert"), lines)
        }
        Subject::Approve(_) => {
            let mut lines = vec![PageLine::new(
                Tone::Head,
                format!("Approve {} at once:", count(keys.len(), "change")),
            )];
            lines.extend(classes(state, keys));
            lines.push(PageLine::new(Tone::Plain, ""));
            lines.extend(list(state, keys));
            (Digest::of(b"approve"), lines)
        }
        Subject::Discard => {
            let mut lines = vec![
                PageLine::new(
                    Tone::Head,
                    format!(
                        "Throw the staged side away: {} will be lost.",
                        count(state.changes.len(), "change")
                    ),
                ),
                PageLine::new(Tone::Warn, "This cannot be undone."),
            ];
            let keys: Vec<LayerPath> = state.changes.keys().cloned().collect();
            lines.extend(classes(state, &keys));
            (Digest::of(b"discard"), lines)
        }
    }
}

fn count(n: usize, noun: &str) -> String {
    if n == 1 {
        format!("1 {noun}")
    } else {
        format!("{n} {noun}s")
    }
}

/// Every class of change with its count: none is hidden behind a total.
fn classes(state: &SessionState, keys: &[LayerPath]) -> Vec<PageLine> {
    let mut kinds: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut risks = BTreeMap::new();
    for change in keys.iter().filter_map(|k| state.changes.get(k)) {
        *kinds.entry(change.kind.name()).or_default() += 1;
        for risk in &change.risks {
            *risks.entry(*risk).or_insert(0usize) += 1;
        }
    }
    let mut lines: Vec<PageLine> = kinds
        .into_iter()
        .map(|(kind, n)| PageLine::new(Tone::Plain, format!("  {n:>6} {kind}")))
        .collect();
    lines.extend(
        risks
            .into_iter()
            .map(|(risk, n)| PageLine::new(Tone::Warn, format!("  {n:>6} {}", risk.name()))),
    );
    lines
}

fn path_of(key: &LayerPath) -> Vec<u8> {
    let mut text = Vec::new();
    if key.layer != pvisor::layer::WORKSPACE {
        text.extend_from_slice(key.layer.as_bytes());
        text.push(b':');
    }
    if key.path.is_root() {
        text.push(b'.');
    }
    text.extend_from_slice(key.path.as_bytes());
    text
}

fn head_of(change: &Change) -> Vec<u8> {
    let mut text = format!("  {} ", marks::letter(&change.kind)).into_bytes();
    if let Some(from) = change.from() {
        text.extend_from_slice(from.as_bytes());
        text.extend_from_slice(b" -> ");
    }
    text.extend(path_of(&change.key));
    text.extend_from_slice(marks::type_suffix(change.file_type()).as_bytes());
    text
}

fn list(state: &SessionState, keys: &[LayerPath]) -> Vec<PageLine> {
    keys.iter()
        .map(|key| match state.changes.get(key) {
            Some(change) => {
                let mut text = head_of(change);
                for risk in &change.risks {
                    text.extend_from_slice(format!("  !{}", marks::badge(*risk)).as_bytes());
                }
                let tone = if change.risks.is_empty() {
                    Tone::Plain
                } else {
                    Tone::Warn
                };
                PageLine::new(tone, text)
            }
            None => PageLine::new(Tone::Plain, [b"    ".to_vec(), path_of(key)].concat()),
        })
        .collect()
}

fn undo_lines(record: Option<&CommitRecord>) -> Vec<PageLine> {
    let Some(record) = record else {
        return Vec::new();
    };
    let what = match record.undoes {
        Some(n) => format!("the undo of commit {n}"),
        None => format!("commit {}", record.number),
    };
    let mut lines = vec![
        PageLine::new(
            Tone::Head,
            format!(
                "Put back what {what} wrote to {} of the host:",
                count(record.paths.len(), "path")
            ),
        ),
        PageLine::new(
            Tone::Plain,
            "Paths that somebody edited since are refused, and then nothing is written.",
        ),
        PageLine::new(Tone::Plain, ""),
    ];
    lines.extend(
        record
            .paths
            .iter()
            .map(|k| PageLine::new(Tone::Plain, [b"    ".to_vec(), path_of(k)].concat())),
    );
    lines
}

fn plan_lines(model: &Model, state: &SessionState) -> Vec<PageLine> {
    let approved = approved(state);
    let mut lines = Vec::new();
    let total = approved.len();
    lines.push(PageLine::new(
        Tone::Head,
        format!(
            "Commit {} to the host. Set {}.",
            count(total, "change"),
            plan_hash(state).to_string().get(..12).unwrap_or_default()
        ),
    ));
    let keys: Vec<LayerPath> = approved.iter().map(|a| a.change.key.clone()).collect();
    lines.extend(classes(state, &keys));
    let unseen: Vec<(usize, bool)> = approved
        .iter()
        .map(|a| a.change)
        .filter(|c| c.added > 0 || c.removed > 0)
        .map(|c| match model.diff.not_shown(&c.key, c.digest) {
            Some(rows) => (rows, false),
            None => (0, true),
        })
        .collect();
    let files = unseen.iter().filter(|(_, whole)| *whole).count();
    let rows: usize = unseen.iter().map(|(rows, _)| rows).sum();
    if files > 0 || rows > 0 {
        lines.push(PageLine::new(
            Tone::Warn,
            format!(
                "Not shown on this screen: {} whole, {} of others.",
                count(files, "diff"),
                count(rows, "row")
            ),
        ));
    }
    lines.push(PageLine::new(Tone::Plain, ""));
    for one in &approved {
        lines.extend(plan_entry(model, one));
    }
    lines
}

fn plan_entry(model: &Model, one: &Approved) -> Vec<PageLine> {
    let change = one.change;
    let mut head = head_of(change);
    if !one.whole {
        let text = format!("  part of it: {}", parts(change, &one.items));
        head.extend_from_slice(text.as_bytes());
    }
    // A file's bits come with the whole of it or as an item of their own.
    let takes_mode = one.whole
        || change
            .items
            .iter()
            .any(|i| i.kind == ItemKind::Mode && one.items.iter().any(|n| n.id == i.id));
    if let Some(text) = mode_change(change.before.as_ref(), change.after.as_ref())
        && takes_mode
    {
        head.extend_from_slice(text.as_bytes());
    }
    for risk in &change.risks {
        head.extend_from_slice(format!("  !{}", marks::badge(*risk)).as_bytes());
    }
    let tone = if change.risks.is_empty() {
        Tone::Plain
    } else {
        Tone::Warn
    };
    let mut lines = vec![PageLine::new(tone, head)];
    if let Some(conflict) = &change.conflict {
        lines.push(PageLine::new(
            Tone::Bad,
            format!("      conflict: {}", conflict.describe()),
        ));
    }
    match model.diff.not_shown(&change.key, change.digest) {
        Some(0) => {}
        Some(rows) => lines.push(PageLine::new(
            Tone::Warn,
            format!("      {} of it not shown", count(rows, "row")),
        )),
        None if change.added > 0 || change.removed > 0 => lines.push(PageLine::new(
            Tone::Warn,
            format!("      not shown: +{} -{}", change.added, change.removed),
        )),
        None => {}
    }
    lines
}

fn mode_change(before: Option<&Node>, after: Option<&Node>) -> Option<String> {
    match (before, after) {
        (Some(a), Some(b)) if a.full_mode() != b.full_mode() => Some(format!(
            "  mode {:06o} -> {:06o}",
            a.full_mode(),
            b.full_mode()
        )),
        (None, Some(b)) if b.mode & 0o111 != 0 && b.file_type == pvisor::layer::FileType::File => {
            Some(format!("  mode {:06o}", b.full_mode()))
        }
        _ => None,
    }
}

/// y: only if the page was shown to its end and the keys rested.
pub fn accept(
    model: &mut Model,
    state: &SessionState,
    last_key: std::time::Duration,
) -> Vec<Effect> {
    let Some(Dialog::Confirm(page)) = &model.dialog else {
        return Vec::new();
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
        return Vec::new();
    }
    if page.subject == Subject::Commit && page.hash != plan_hash(state) {
        model.say(
            Severity::Warning,
            "What is approved has changed since it was shown: look again.",
        );
        return Vec::new();
    }
    let subject = page.subject.clone();
    model.dialog = None;
    match subject {
        Subject::Commit => {
            model.busy = Some("commit");
            vec![Effect::Ask(
                Purpose::Commit,
                Request::Commit {
                    all: false,
                    ignored: false,
                    dry_run: false,
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

/// What stands in the way, for the page.
fn obstacles(outcome: &Outcome) -> Vec<PageLine> {
    match outcome {
        Outcome::Refused { refusals } => refusals
            .iter()
            .map(|r| {
                let mut text = path_of(&r.key);
                text.extend_from_slice(b": ");
                text.extend_from_slice(r.reason.as_bytes());
                PageLine::new(Tone::Bad, text)
            })
            .collect(),
        Outcome::Unsettled { reason, .. } => {
            vec![PageLine::new(Tone::Bad, reason.clone())]
        }
        Outcome::Committed { .. } | Outcome::Planned { .. } | Outcome::Nothing => Vec::new(),
    }
}
