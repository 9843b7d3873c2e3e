//! A change as the diff pane shows it: rows of items, hunks and lines. Owns the making of those
//! rows from a change and its two sides; pure, so that it can be made on another thread.

use std::sync::Arc;

use pvisor::LayerPath;
use pvisor::change::{Change, ChangeKind, Risk};
use pvisor::diff::rows::{DiffRow, RowKind, rows};
use pvisor::diff::{FileDiff, ItemId, ItemKind, as_text, diff, mode_is_acl};
use pvisor::layer::{Digest, FileType, Node};
use pvisor::protocol::Contents;

/// Lines shown around a hunk.
const CONTEXT: usize = 3;

/// A binary larger than this is not shown as text.
const BINARY_SHOWN: usize = 256 * 1024;

/// Rows up and down in which a line is looked for when its file was rewritten.
const FOLLOWED: usize = 2_000;

/// One row of the diff pane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocRow {
    /// An item that is not a run of lines: mode, link, rename, the whole entry.
    Item {
        /// Its name among the change's items.
        id: ItemId,
        /// What it is about.
        kind: ItemKind,
        /// What it says, exact bytes: shown through [`pvisor::text`] only.
        text: Vec<u8>,
    },
    /// A block's head, a line, or the newline at the end of the file.
    Line(DiffRow),
    /// A word of ours.
    Note(String),
}

/// A change, ready to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Which change.
    pub key: LayerPath,
    /// Its digest: what a decision made on these rows carries.
    pub digest: Digest,
    /// The rows.
    pub rows: Vec<DocRow>,
    /// Hidden characters in what the agent wrote.
    pub hidden: usize,
    /// The agent's side holds both kinds of line ends.
    pub mixed_line_ends: bool,
    /// The agent's side, to compare with what comes later.
    pub after: Option<Arc<Vec<u8>>>,
    /// What names the agent's side.
    pub side: Side,
}

/// Names the agent's side of a change: a commit moves the other one only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Side {
    content: Option<Digest>,
    mode: Option<u32>,
}

impl Side {
    /// The agent's side of this change.
    pub fn of(change: &Change) -> Self {
        Self {
            content: change.after.as_ref().and_then(|n| n.digest),
            mode: change.after.as_ref().map(|n| n.mode),
        }
    }

    /// Both are the same bytes with the same permissions.
    pub fn is(&self, other: &Self) -> bool {
        self.content.is_some() && self == other
    }
}

impl Document {
    /// Works the rows out. May take long for large sides.
    pub fn build(change: &Change, contents: &Contents) -> Self {
        let mut document = Self {
            key: change.key.clone(),
            digest: contents.digest,
            rows: Vec::new(),
            hidden: 0,
            mixed_line_ends: false,
            after: None,
            side: Side::of(change),
        };
        document.push_items(change, contents);
        if change.risks.contains(&Risk::OutsideLink) {
            document.note(&format!("the link leads out of the {}", change.key.layer));
        }
        if contents.too_large {
            document.note("too large to be shown here; it can be decided on as a whole");
        } else if shows_lines(change) {
            let (old, new) = sides(contents);
            if change.binary {
                document.note("binary: decided on as a whole");
                // It can be looked at all the same.
                if old.len().max(new.len()) <= BINARY_SHOWN {
                    document.push_lines(change, contents, &as_text(old, new));
                }
            } else {
                document.push_lines(change, contents, &diff(old, new));
            }
        }
        document.after = contents.after.clone().map(Arc::new);
        document
    }

    /// What the agent changed between two sides that were shown one after the other. Nothing in it
    /// can be decided on.
    pub fn since(key: &LayerPath, digest: Digest, old: &[u8], new: &[u8]) -> Self {
        let mut document = Self {
            key: key.clone(),
            digest,
            rows: Vec::new(),
            hidden: 0,
            mixed_line_ends: false,
            after: None,
            side: Side::default(),
        };
        document.note("what changed since you looked; decisions are made in the full diff");
        for mut row in rows(old, new, &diff(old, new), CONTEXT) {
            row.item = None;
            document.rows.push(DocRow::Line(row));
        }
        document
    }

    fn note(&mut self, text: &str) {
        self.rows.push(DocRow::Note(text.to_owned()));
    }

    fn push_items(&mut self, change: &Change, contents: &Contents) {
        for item in &change.items {
            let text = match item.kind {
                ItemKind::Hunk | ItemKind::Eof => continue,
                ItemKind::Whole => whole_text(change),
                ItemKind::Mode => format!(
                    "mode {} -> {}",
                    mode(change.before.as_deref()),
                    mode(change.after.as_deref())
                )
                .into_bytes(),
                ItemKind::Link => {
                    let mut text = b"link target ".to_vec();
                    text.extend_from_slice(target(
                        change.before.as_deref(),
                        contents.before.as_deref(),
                    ));
                    text.extend_from_slice(b" -> ");
                    text.extend_from_slice(target(
                        change.after.as_deref(),
                        contents.after.as_deref(),
                    ));
                    text
                }
                ItemKind::Meta => meta_text(change),
            };
            self.rows.push(DocRow::Item {
                id: item.id.clone(),
                kind: item.kind,
                text,
            });
        }
    }

    fn push_lines(&mut self, change: &Change, contents: &Contents, difference: &FileDiff) {
        let (old, new) = sides(contents);
        let ids: std::collections::HashSet<&ItemId> = change.items.iter().map(|i| &i.id).collect();
        let whole = change
            .items
            .iter()
            .find(|i| i.kind == ItemKind::Whole)
            .map(|i| &i.id);
        for mut row in rows(old, new, difference, CONTEXT) {
            // Lines of a file that is decided on as a whole belong to that whole.
            if let Some(id) = &row.item
                && !ids.contains(id)
            {
                row.item = whole.cloned();
                row.line_in_item = 0;
            }
            if row.kind == RowKind::Added && !change.binary {
                self.hidden += hidden_in(&row.bytes);
            }
            self.rows.push(DocRow::Line(row));
        }
        let ends = || {
            new.split_inclusive(|b| *b == b'\n')
                .filter(|l| l.ends_with(b"\n"))
        };
        self.mixed_line_ends =
            ends().any(|l| l.ends_with(b"\r\n")) && ends().any(|l| !l.ends_with(b"\r\n"));
        if old.is_empty() && new.is_empty() && shows_lines(change) {
            self.note("empty file");
        }
    }

    /// The item a row belongs to.
    pub fn item(&self, row: usize) -> Option<&ItemId> {
        match self.rows.get(row)? {
            DocRow::Item { id, .. } => Some(id),
            DocRow::Line(line) => line.item.as_ref(),
            DocRow::Note(_) => None,
        }
    }

    /// Whether a hunk or another item begins at this row.
    pub fn is_head(&self, row: usize) -> bool {
        let Some(id) = self.item(row) else {
            return false;
        };
        // Only context lies between an item and the one before it.
        (0..row)
            .rev()
            .find_map(|above| self.item(above))
            .is_none_or(|above| above != id)
    }

    /// The rows of the block whose header this row is, itself included.
    pub fn block(&self, row: usize) -> std::ops::Range<usize> {
        let header =
            |r: &usize| matches!(&self.rows[*r], DocRow::Line(l) if l.kind == RowKind::HunkHeader);
        if row >= self.rows.len() || !header(&row) {
            return row..row;
        }
        let end = (row + 1..self.rows.len()).find(header);
        row..end.unwrap_or(self.rows.len())
    }

    /// Where the row `row` of `old`, an earlier state of the same change, is found in this one: the
    /// same line nearest to where the baseline's line numbers lead.
    pub fn follow(&self, old: &Document, row: usize) -> usize {
        let last = self.rows.len().saturating_sub(1);
        let number = |r: &DocRow| match r {
            DocRow::Line(l) => l.old_no,
            _ => None,
        };
        let Some(wanted) = old.rows.get(row) else {
            return row.min(last);
        };
        // The nearest row above that the baseline has too, else the nearest below.
        let up = (0..=row).rev().find(|r| number(&old.rows[*r]).is_some());
        let known = up.or_else(|| (row..old.rows.len()).find(|r| number(&old.rows[*r]).is_some()));
        let near = known.and_then(|r| {
            let n = number(&old.rows[r])?;
            let there = self.rows.iter().position(|o| number(o) == Some(n))?;
            Some((there + row).saturating_sub(r))
        });
        let near = near.unwrap_or(row).min(last);
        let alike = |r: &usize| match (&self.rows[*r], wanted) {
            (DocRow::Line(a), DocRow::Line(b)) => a.kind == b.kind && a.bytes == b.bytes,
            (a, b) => a == b,
        };
        if alike(&near) {
            return near;
        }
        (1..=FOLLOWED)
            .flat_map(|d| [near.checked_sub(d), Some(near + d)])
            .flatten()
            .filter(|r| *r <= last)
            .find(alike)
            .unwrap_or(near)
    }

    /// Bytes it holds, roughly.
    pub fn weight(&self) -> usize {
        let rows: usize = self
            .rows
            .iter()
            .map(|r| match r {
                DocRow::Item { text, .. } => text.len(),
                DocRow::Line(line) => line.bytes.len() + 64,
                DocRow::Note(text) => text.len(),
            })
            .sum();
        rows + self.rows.len() * 96 + self.after.as_ref().map_or(0, |a| a.len())
    }
}

fn sides(contents: &Contents) -> (&[u8], &[u8]) {
    (
        contents.before.as_deref().unwrap_or_default(),
        contents.after.as_deref().unwrap_or_default(),
    )
}

fn hidden_in(bytes: &[u8]) -> usize {
    // A line end of CR LF is no hidden character.
    pvisor::text::count_hidden(bytes.strip_suffix(b"\r").unwrap_or(bytes))
}

fn shows_lines(change: &Change) -> bool {
    let file = |n: &Option<Arc<Node>>| n.as_ref().is_none_or(|n| n.file_type == FileType::File);
    file(&change.before)
        && file(&change.after)
        && !matches!(change.kind, ChangeKind::Mode | ChangeKind::Meta)
}

fn mode(node: Option<&Node>) -> String {
    node.map_or_else(|| "none".into(), |n| format!("{:06o}", n.full_mode()))
}

fn target<'a>(node: Option<&'a Node>, side: Option<&'a [u8]>) -> &'a [u8] {
    node.and_then(|n| n.target.as_deref())
        .or(side)
        .unwrap_or(b"(none)")
}

fn whole_text(change: &Change) -> Vec<u8> {
    let what = |n: &Option<Arc<Node>>| n.as_ref().map_or("nothing", |n| n.file_type.name());
    let size = |n: &Option<Arc<Node>>| n.as_ref().map_or(0, |n| n.size);
    // Of anything but a file the size says nothing.
    let described = |word: &str, n: &Option<Arc<Node>>| {
        let text = format!("{word} {}", what(n));
        match n {
            Some(link) if link.file_type == FileType::Symlink => text,
            Some(file) if file.file_type == FileType::File => {
                format!("{text}, mode {}, {}", mode(n.as_deref()), bytes(file.size))
            }
            _ => format!("{text}, mode {}", mode(n.as_deref())),
        }
    };
    let mut text = match &change.kind {
        ChangeKind::Renamed { from } => [b"renamed from ", from.as_bytes()].concat(),
        ChangeKind::Added => described("new", &change.after).into_bytes(),
        ChangeKind::Deleted => described("deleted", &change.before).into_bytes(),
        ChangeKind::Type => format!(
            "{} replaced by {}",
            what(&change.before),
            what(&change.after)
        )
        .into_bytes(),
        _ => format!(
            "content, {} -> {}",
            size(&change.before),
            bytes(size(&change.after))
        )
        .into_bytes(),
    };
    let link = change.after.as_ref().or(change.before.as_ref());
    if let Some(target) = link.and_then(|n| n.target.as_deref()) {
        text.extend_from_slice(b" -> ");
        text.extend_from_slice(target);
    }
    text
}

fn bytes(n: u64) -> String {
    if n == 1 {
        "1 byte".to_owned()
    } else {
        format!("{n} bytes")
    }
}

fn meta_text(change: &Change) -> Vec<u8> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    if let (Some(a), Some(b)) = (&change.before, &change.after) {
        if (a.uid, a.gid) != (b.uid, b.gid) {
            parts.push(format!("owner {}:{} -> {}:{}", a.uid, a.gid, b.uid, b.gid).into_bytes());
        }
        if mode_is_acl(a, b) {
            parts.push(format!("mode {:o} -> {:o}", a.mode, b.mode).into_bytes());
        }
        for name in a.xattrs.keys().chain(b.xattrs.keys()) {
            if a.xattrs.get(name) != b.xattrs.get(name) {
                let part = [b"attribute ", name.as_bytes()].concat();
                if !parts.contains(&part) {
                    parts.push(part);
                }
            }
        }
        if a.mtime != b.mtime {
            parts.push(b"times".to_vec());
        }
    }
    parts.join(&b", "[..])
}
