//! Rows of a unified view of a diff. Stand-in until the diff engine is merged.

use std::ops::Range;

use super::{FileDiff, ItemId};

/// What a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKind {
    /// On both sides.
    Context,
    /// Only before.
    Removed,
    /// Only after.
    Added,
    /// Head of a hunk.
    Header,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffRow {
    /// What it is.
    pub kind: RowKind,
    /// Line number before, 1-based.
    pub old_no: Option<u32>,
    /// Line number after, 1-based.
    pub new_no: Option<u32>,
    /// The line without its end.
    pub bytes: Vec<u8>,
    /// Its hunk.
    pub item: Option<ItemId>,
    /// Line of the hunk, 1-based, removed lines first.
    pub line_in_item: u32,
    /// No newline ends it.
    pub no_newline: bool,
    /// Only the line end differs.
    pub eol_only: bool,
    /// Changed words.
    pub changed: Vec<Range<usize>>,
}

/// Rows of the diff with that many lines of context.
pub fn rows(old: &[u8], new: &[u8], diff: &FileDiff, context: usize) -> Vec<DiffRow> {
    let split = |bytes: &[u8]| -> Vec<(Vec<u8>, bool)> {
        bytes
            .split_inclusive(|b| *b == b'\n')
            .map(|l| match l.strip_suffix(b"\n") {
                Some(text) => (text.to_vec(), false),
                None => (l.to_vec(), true),
            })
            .collect()
    };
    let (old, new) = (split(old), split(new));
    let mut out = Vec::new();
    for item in &diff.items {
        let before = |s: super::Span| if s.len == 0 { s.start } else { s.start - 1 } as usize;
        let (o, n) = (before(item.old), before(item.new));
        let row = |kind, old_no, new_no, line: &(Vec<u8>, bool), item: Option<ItemId>, l| DiffRow {
            kind,
            old_no,
            new_no,
            bytes: line.0.clone(),
            item,
            line_in_item: l,
            no_newline: line.1,
            eol_only: false,
            changed: Vec::new(),
        };
        let head = format!(
            "@@ -{},{} +{},{} @@",
            item.old.start, item.old.len, item.new.start, item.new.len
        );
        out.push(row(
            RowKind::Header,
            None,
            None,
            &(head.into_bytes(), false),
            Some(item.id.clone()),
            0,
        ));
        for i in o.saturating_sub(context)..o {
            let no = i as u32 + 1;
            out.push(row(
                RowKind::Context,
                Some(no),
                Some(no + n as u32 - o as u32),
                &old[i],
                None,
                0,
            ));
        }
        for i in 0..item.old.len as usize {
            out.push(row(
                RowKind::Removed,
                Some((o + i) as u32 + 1),
                None,
                &old[o + i],
                Some(item.id.clone()),
                i as u32 + 1,
            ));
        }
        for i in 0..item.new.len as usize {
            out.push(row(
                RowKind::Added,
                None,
                Some((n + i) as u32 + 1),
                &new[n + i],
                Some(item.id.clone()),
                item.old.len + i as u32 + 1,
            ));
        }
        let end = n + item.new.len as usize;
        for i in end..(end + context).min(new.len()) {
            out.push(row(
                RowKind::Context,
                Some((o + item.old.len as usize + i - end) as u32 + 1),
                Some(i as u32 + 1),
                &new[i],
                None,
                0,
            ));
        }
    }
    out
}
