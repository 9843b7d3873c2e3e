//! A diff as rows for a screen. Owns which lines are shown, their numbers, the item that each
//! belongs to, and which words of a pair differ. Bytes stay exact: drawing them goes through
//! [`crate::text`].

mod words;

#[cfg(test)]
mod tests;

use std::ops::Range;

use super::ItemId;
use super::compute::FileDiff;
use super::group::{Run, groups, header};
use super::lines::Lines;
use super::pair;

/// Pairs less alike than this, in thousandths, are not compared word by word: nearly everything
/// would be marked.
const MIN_LIKENESS: u32 = 300;

/// What a row shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKind {
    /// Where a block begins: `@@ -1,3 +1,4 @@`.
    HunkHeader,
    /// A line that both sides have.
    Context,
    /// A line of the old side only.
    Removed,
    /// A line of the new side only.
    Added,
    /// The newline at the end of the file was added or taken away; the text says which.
    Eof,
}

/// One row of a diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffRow {
    /// What it shows.
    pub kind: RowKind,
    /// Line number on the old side, 1-based.
    pub old_no: Option<u32>,
    /// Line number on the new side, 1-based.
    pub new_no: Option<u32>,
    /// The line without its newline, exact; for headers and [`RowKind::Eof`] our own text.
    pub bytes: Vec<u8>,
    /// The item that this row belongs to: a hunk's for removed and added lines, else the newline's.
    pub item: Option<ItemId>,
    /// Which line of the item, 1-based as in [`super::ItemRef`]; 0 where there is no item.
    pub line_in_item: u32,
    /// This is the last line of its side (for context: of both) and has no newline.
    pub no_newline: bool,
    /// Removed and added line differ in the carriage return at the end only.
    pub eol_only: bool,
    /// The row of the other side that this one is paired with, as its index among the rows.
    pub pair: Option<usize>,
    /// Byte ranges that differ from the paired row; empty when the whole line is new or the pair is
    /// too unlike to be compared.
    pub changed: Vec<Range<usize>>,
}

/// The rows of `diff`, the difference between `old` and `new`, with `context` unchanged lines
/// around each change (`usize::MAX` shows the whole file). None for binary files.
pub fn rows(old: &[u8], new: &[u8], diff: &FileDiff, context: usize) -> Vec<DiffRow> {
    if diff.binary {
        return Vec::new();
    }
    let old = Lines::of(old);
    let new = Lines::of(new);
    let mut runs: Vec<Run> = diff
        .hunks
        .iter()
        .map(|h| (h.old_range(), h.new_range()))
        .collect();
    if diff.eof.is_some() {
        runs.push((old.len()..old.len(), new.len()..new.len()));
    }
    let mut out = Vec::new();
    for group in groups(&runs, context, old.len()) {
        out.push(row(RowKind::HunkHeader, header(&group).into_bytes()));
        let mut at = (group.old.start, group.new.start);
        for index in group.runs.clone() {
            let (removed, added) = &runs[index];
            push_context(&mut out, &old, &new, at, removed.start);
            match diff.hunks.get(index) {
                Some(hunk) => push_hunk(&mut out, &old, &new, (removed, added), &hunk.id),
                None => push_eof(&mut out, diff),
            }
            at = (removed.end, added.end);
        }
        push_context(&mut out, &old, &new, at, group.old.end);
    }
    out
}

fn row(kind: RowKind, bytes: Vec<u8>) -> DiffRow {
    DiffRow {
        kind,
        old_no: None,
        new_no: None,
        bytes,
        item: None,
        line_in_item: 0,
        no_newline: false,
        eol_only: false,
        pair: None,
        changed: Vec::new(),
    }
}

fn push_context(
    out: &mut Vec<DiffRow>,
    old: &Lines<'_>,
    new: &Lines<'_>,
    at: (usize, usize),
    end: usize,
) {
    for (offset, bytes) in old.lines.get(at.0..end).into_iter().flatten().enumerate() {
        let (i, j) = (at.0 + offset, at.1 + offset);
        out.push(DiffRow {
            old_no: Some(i as u32 + 1),
            new_no: Some(j as u32 + 1),
            no_newline: old.lacks_newline(i) && new.lacks_newline(j),
            ..row(RowKind::Context, bytes.to_vec())
        });
    }
}

fn push_hunk(
    out: &mut Vec<DiffRow>,
    old: &Lines<'_>,
    new: &Lines<'_>,
    (removed, added): (&Range<usize>, &Range<usize>),
    id: &ItemId,
) {
    let removed_lines = old.lines.get(removed.clone()).unwrap_or_default();
    let added_lines = new.lines.get(added.clone()).unwrap_or_default();
    let first_removed = out.len();
    let first_added = first_removed + removed_lines.len();
    let mut line_in_item = 0;
    let mut next = || {
        line_in_item += 1;
        line_in_item
    };
    for (offset, bytes) in removed_lines.iter().enumerate() {
        out.push(DiffRow {
            old_no: Some((removed.start + offset) as u32 + 1),
            item: Some(id.clone()),
            line_in_item: next(),
            no_newline: old.lacks_newline(removed.start + offset),
            ..row(RowKind::Removed, bytes.to_vec())
        });
    }
    for (offset, bytes) in added_lines.iter().enumerate() {
        out.push(DiffRow {
            new_no: Some((added.start + offset) as u32 + 1),
            item: Some(id.clone()),
            line_in_item: next(),
            no_newline: new.lacks_newline(added.start + offset),
            ..row(RowKind::Added, bytes.to_vec())
        });
    }
    for (i, j) in pair::pairs(removed_lines, added_lines) {
        let (a, b) = (removed_lines[i], added_lines[j]);
        let eol_only = a.strip_suffix(b"\r").unwrap_or(a) == b.strip_suffix(b"\r").unwrap_or(b);
        let (in_a, in_b) = if eol_only || pair::likeness(a, b) >= MIN_LIKENESS {
            words::changed(a, b)
        } else {
            (Vec::new(), Vec::new())
        };
        for (index, other, changed) in [
            (first_removed + i, first_added + j, in_a),
            (first_added + j, first_removed + i, in_b),
        ] {
            out[index].eol_only = eol_only;
            out[index].pair = Some(other);
            out[index].changed = changed;
        }
    }
}

fn push_eof(out: &mut Vec<DiffRow>, diff: &FileDiff) {
    let Some(eof) = &diff.eof else { return };
    let text: &[u8] = if eof.adds {
        b"newline added at end of file"
    } else {
        b"newline removed at end of file"
    };
    out.push(DiffRow {
        item: Some(eof.id.clone()),
        line_in_item: 1,
        ..row(RowKind::Eof, text.to_vec())
    });
}
