//! What pages that ask for consent say: the plan of a commit, what an undo, a revert or a discard
//! would do. Owns the words and the hash that names a plan; no class of change is left out.

use std::collections::BTreeMap;

use pvisor::LayerPath;
use pvisor::change::{Change, ChangeKind, Merges, Risk, companions};
use pvisor::commit::Outcome;
use pvisor::diff::{ItemKind, ItemRef, mode_is_acl};
use pvisor::layer::{Digest, Node};
use pvisor::review::{Summary, Verdict, summary};
use pvisor::session::state::{CommitRecord, SessionState};

use crate::action::Name;
use crate::model::dialog::{PageLine, Subject, Tone};
use crate::model::marks::count;
use crate::model::{Model, marks};

/// A change of which something is approved.
pub struct Approved<'a> {
    /// The change.
    pub change: &'a Change,
    /// What is approved of it.
    pub items: Vec<ItemRef>,
    /// All of it is.
    pub whole: bool,
}

/// Changes of which something is approved, as they stand.
pub fn approved(state: &SessionState) -> Vec<Approved<'_>> {
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
    let words: Vec<String> = items.iter().map(|i| marks::item_words(change, i)).collect();
    words.join(", ")
}

/// Names what a commit would take.
pub fn plan_hash(state: &SessionState) -> Digest {
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
        if let Some(conflict) = &change.conflict {
            let said = (
                conflict.describe(),
                change.merges.as_ref().map(Merges::describe),
            );
            text.extend_from_slice(format!("{said:?}").as_bytes());
        }
        text.push(0);
    }
    Digest::of(&text)
}

/// What a page about `subject` says, and the hash that names exactly that.
pub fn describe(
    model: &Model,
    state: &SessionState,
    subject: &Subject,
    keys: &[LayerPath],
) -> (Digest, Vec<PageLine>) {
    match subject {
        Subject::Commit { merge } => (plan_hash(state), plan_lines(model, state, *merge)),
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
                "What the agent made of it is lost.",
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
            let changes = keys.iter().filter_map(|key| state.changes.get(key));
            if let Some(never) = never_shown(model, changes.map(|change| &**change)) {
                let text = format!("Never on this screen: {never}.");
                lines.push(PageLine::new(Tone::Warn, text));
            }
            lines.push(PageLine::new(Tone::Plain, ""));
            lines.extend(list(state, keys));
            (Digest::of(b"approve"), lines)
        }
        Subject::Resolve(key) => super::resolve::describe(model, state, key),
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
            if let Some(lost) = state.lost_undo() {
                lines.push(PageLine::new(Tone::Warn, lost));
            }
            let keys: Vec<LayerPath> = state.changes.keys().cloned().collect();
            lines.extend(classes(state, &keys));
            (Digest::of(b"discard"), lines)
        }
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
        .iter()
        .map(|(kind, n)| PageLine::new(Tone::Plain, format!("  {n:>6} {kind}")))
        .collect();
    // Marks that say no more than the kind does are left out.
    let said = |risk: &Risk, n: &usize| {
        let kind = match risk {
            Risk::Delete => ChangeKind::Deleted,
            Risk::TypeChange => ChangeKind::Type,
            Risk::ModeChange => ChangeKind::Mode,
            _ => return false,
        };
        kinds.get(kind.name()) == Some(n)
    };
    lines.extend(risks.iter().filter(|(r, n)| !said(r, n)).map(|(risk, n)| {
        let text = format!("  {n:>6} marked !{}: {}", marks::badge(*risk), risk.name());
        PageLine::new(Tone::Warn, text)
    }));
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

/// Approved changes in conflict that merge cleanly, or of which a part is approved that may.
pub fn mergeable(state: &SessionState) -> impl Iterator<Item = &Change> {
    approved(state)
        .into_iter()
        .filter(|one| {
            // Of a part the server alone can tell.
            let merges = one.change.merges.as_ref();
            merges.is_some_and(|merges| merges.is_clean() || !one.whole)
        })
        .map(|one| one.change)
}

/// What is said of files that the host has changed as well.
fn merge_lines(model: &Model, state: &SessionState, merge: bool) -> Vec<PageLine> {
    let files: Vec<&Change> = mergeable(state).collect();
    if files.is_empty() {
        return Vec::new();
    }
    let files_in_words = count(files.len(), "file");
    let text = if merge {
        format!("{files_in_words} written with the host's own edits merged in:")
    } else {
        let key = model.keymap.key(Name::Merge).unwrap_or_default();
        format!("{files_in_words} changed on the host as well; `{key}` plans a merge:")
    };
    let mut lines = vec![PageLine::new(Tone::Warn, text)];
    lines.extend(files.into_iter().map(|change| {
        PageLine::new(
            Tone::Warn,
            [b"    ".to_vec(), path_of(&change.key)].concat(),
        )
    }));
    lines
}

fn plan_lines(model: &Model, state: &SessionState, merge: bool) -> Vec<PageLine> {
    let approved = approved(state);
    let mut lines = Vec::new();
    let total = approved.len();
    lines.push(PageLine::new(
        Tone::Head,
        format!(
            "Commit {} to the host (set {}).",
            count(total, "change"),
            plan_hash(state).to_string().get(..12).unwrap_or_default()
        ),
    ));
    lines.extend(merge_lines(model, state, merge));
    let keys: Vec<LayerPath> = approved.iter().map(|a| a.change.key.clone()).collect();
    lines.extend(classes(state, &keys));
    let changes = approved.iter().map(|a| a.change);
    if let Some(never) = never_shown(model, changes) {
        let text = format!("Never on this screen: {never}.");
        lines.push(PageLine::new(Tone::Warn, text));
    }
    let taken = |key: &LayerPath| keys.binary_search(key).is_ok();
    for key in companions::left_out(&state.changes, taken) {
        let mut text = b"Left out: ".to_vec();
        text.extend(path_of(key));
        text.extend_from_slice(format!("; {}.", companions::WHY).as_bytes());
        lines.push(PageLine::new(Tone::Warn, text));
    }
    lines.push(PageLine::new(Tone::Plain, ""));
    for one in &approved {
        lines.extend(plan_entry(model, one));
    }
    lines
}

/// How much of these changes was never on this screen, in words; `None` when all of it was.
pub fn never_shown<'a>(model: &Model, changes: impl Iterator<Item = &'a Change>) -> Option<String> {
    let (mut files, mut rows) = (0, 0);
    for change in changes.filter(|c| c.added > 0 || c.removed > 0) {
        match model.diff.not_shown(&change.key, change.digest) {
            Some(missing) => rows += missing,
            None => files += 1,
        }
    }
    let never: Vec<String> = [
        (files > 0).then(|| count(files, "whole diff")),
        (rows > 0).then(|| format!("{} of a diff", count(rows, "row"))),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!never.is_empty()).then(|| never.join(", "))
}

fn plan_entry(model: &Model, one: &Approved) -> Vec<PageLine> {
    let change = one.change;
    let mut head = head_of(change);
    if !one.whole {
        let text = format!("  part of it: {}", parts(change, &one.items));
        head.extend_from_slice(text.as_bytes());
    }
    // A file's bits come with the whole of it, as an item of their own or with an access list.
    let sides = change.before.as_ref().zip(change.after.as_ref());
    let kind = if sides.is_some_and(|(a, b)| mode_is_acl(a, b)) {
        ItemKind::Meta
    } else {
        ItemKind::Mode
    };
    let takes_mode = one.whole
        || change
            .items
            .iter()
            .any(|i| i.kind == kind && one.items.iter().any(|n| n.id == i.id));
    if let Some(text) = mode_change(change.before.as_deref(), change.after.as_deref())
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
        let merges = change.merges.as_ref().map(Merges::describe);
        let merges = merges.map_or(String::new(), |merges| format!("; {merges}"));
        lines.push(PageLine::new(
            Tone::Bad,
            format!("      conflict: {}{merges}", conflict.describe()),
        ));
    }
    match model.diff.not_shown(&change.key, change.digest) {
        Some(0) => {}
        Some(rows) => lines.push(PageLine::new(
            Tone::Warn,
            format!("      {} of it never shown", count(rows, "row")),
        )),
        None if change.added > 0 || change.removed > 0 => lines.push(PageLine::new(
            Tone::Warn,
            format!("      never shown: +{} -{}", change.added, change.removed),
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

/// What stands in the way, for the page.
pub fn obstacles(outcome: &Outcome) -> Vec<PageLine> {
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
