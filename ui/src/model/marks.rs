//! Marks: letters, signs and words that stand for kinds, risks and decisions on every view.
//! Owns them so that one thing looks the same everywhere; colours are the theme's.

use pvisor::change::{Change, ChangeKind, Risk};
use pvisor::diff::{ItemKind, ItemRef};
use pvisor::layer::FileType;
use pvisor::review::{FileDecision, Summary};

/// The sign of a decision.
pub fn sign(summary: Summary) -> &'static str {
    match summary {
        Summary::Undecided => "·",
        Summary::Approved => "✓",
        Summary::Rejected => "✗",
        Summary::Mixed => "~",
    }
}

/// Scope of a decision's colour.
pub fn sign_scope(summary: Summary) -> &'static str {
    match summary {
        Summary::Undecided => "mark.undecided",
        Summary::Approved => "mark.approved",
        Summary::Rejected => "mark.rejected",
        Summary::Mixed => "mark.mixed",
    }
}

/// Letter of a kind.
pub fn letter(kind: &ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "A",
        ChangeKind::Modified => "M",
        ChangeKind::Deleted => "D",
        ChangeKind::Renamed { .. } => "R",
        ChangeKind::Mode => "P",
        ChangeKind::Type => "T",
        ChangeKind::Meta => "x",
    }
}

/// Scope of a kind's colour.
pub fn letter_scope(kind: &ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "kind.added",
        ChangeKind::Modified => "kind.modified",
        ChangeKind::Deleted => "kind.deleted",
        ChangeKind::Renamed { .. } => "kind.renamed",
        ChangeKind::Mode => "kind.mode",
        ChangeKind::Type => "kind.type",
        ChangeKind::Meta => "kind.meta",
    }
}

/// What follows a name to tell its type, as `ls -F` does.
pub fn type_suffix(file_type: FileType) -> &'static str {
    match file_type {
        FileType::File => "",
        FileType::Dir => "/",
        FileType::Symlink => "@",
        FileType::Fifo => "|",
        FileType::Socket => "=",
        FileType::Device => "#",
    }
}

/// Short word of a risk.
pub fn badge(risk: Risk) -> &'static str {
    match risk {
        Risk::GitHook => "hook",
        Risk::GitConfig => "gitconf",
        Risk::GitInternal => ".git",
        Risk::OutsideLink => "outside",
        Risk::SpecialMode => "setid",
        Risk::Delete => "del",
        Risk::TypeChange => "type",
        Risk::Executable => "exec",
        Risk::ModeChange => "mode",
        Risk::Ci => "ci",
        Risk::Lockfile => "lock",
        Risk::Dotfile => "dot",
        Risk::Binary => "bin",
        Risk::HiddenText => "hidden",
        Risk::Uncommittable => "never",
    }
}

/// Scope of a risk's colour: what runs code or loses data weighs more.
pub fn badge_scope(risk: Risk) -> &'static str {
    if risk <= Risk::TypeChange || matches!(risk, Risk::HiddenText | Risk::Uncommittable) {
        "risk.high"
    } else {
        "risk.low"
    }
}

/// The decision that holds for this state of the change.
pub fn holding<'a>(
    change: &Change,
    decision: Option<&'a FileDecision>,
) -> Option<&'a FileDecision> {
    decision.filter(|d| d.digest == change.digest)
}

/// So many of these.
pub fn count(n: usize, noun: &str) -> String {
    if n == 1 {
        format!("1 {noun}")
    } else {
        format!("{n} {noun}s")
    }
}

/// An item of a change, or lines of it, as a person would say it.
pub fn item_words(change: &Change, named: &ItemRef) -> String {
    let Some(item) = change.items.iter().find(|i| i.id == named.id) else {
        return pvisor::text::visible(named.to_string().as_bytes()).into_owned();
    };
    match (item.kind, named.lines) {
        (ItemKind::Hunk, lines) => {
            let at = if item.new.len > 0 { item.new } else { item.old };
            let hunk = format!("hunk at line {}", at.start.max(1));
            match lines {
                None => hunk,
                Some((a, b)) if a == b => format!("line {a} of the {hunk}"),
                Some((a, b)) => format!("lines {a}-{b} of the {hunk}"),
            }
        }
        (ItemKind::Whole, _) if change.from().is_some() => "the rename".to_owned(),
        (ItemKind::Whole, _) => "all of it".to_owned(),
        (kind, _) => kind.name().to_owned(),
    }
}
