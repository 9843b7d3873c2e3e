//! Differences between two byte strings, and the items a person decides on. Owns hunks, item ids
//! and the recombination of picked items; works on exact bytes, knows no file system and no
//! screen.
//!
//! [`diff()`] compares, [`items()`] lists what can be decided on, [`select()`] puts together what was
//! chosen.

mod compute;
mod group;
mod item;
mod lines;
mod pair;
pub mod patch;
pub mod rows;
mod select;
mod sequence;

#[cfg(test)]
mod tests;

pub(crate) use compute::counted;
pub use compute::{Eof, FileDiff, Hunk, as_text, diff, is_binary};
pub use item::{items, mode_is_acl};
pub(crate) use lines::{Lines, join};
pub use patch::{PatchEntry, patch};
pub use rows::{DiffRow, RowKind, rows};
pub use select::{SelectError, select};

use serde::{Deserialize, Serialize};
use std::fmt;

/// Names an item within its change: a letter for the kind and hex digits made from content plus
/// the ordinal among equal ones (`h1f3a`), so it survives edits elsewhere in the file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ItemId(pub String);

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an item is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ItemKind {
    /// The entry as such: an addition, deletion, type change, binary content or the rename itself.
    Whole,
    /// A maximal changed run of lines.
    Hunk,
    /// The permission bits.
    Mode,
    /// The newline at the end of the file.
    Eof,
    /// A link's target.
    Link,
    /// xattrs, ACL (and with it the permission bits), owner, times.
    Meta,
}

impl ItemKind {
    /// The word used in listings.
    pub fn name(self) -> &'static str {
        match self {
            ItemKind::Whole => "whole",
            ItemKind::Hunk => "hunk",
            ItemKind::Mode => "mode",
            ItemKind::Eof => "eof",
            ItemKind::Link => "link",
            ItemKind::Meta => "meta",
        }
    }
}

/// A run of lines: `start` is 1-based as in a unified diff with no context (for an empty run it is
/// the line before it), `len` counts lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Span {
    /// First line, 1-based; the line before when `len` is 0.
    pub start: u32,
    /// Number of lines.
    pub len: u32,
}

/// Something a person can decide on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Stable name.
    pub id: ItemId,
    /// What it is about.
    pub kind: ItemKind,
    /// Lines it takes away (empty for other kinds than hunks).
    pub old: Span,
    /// Lines it brings.
    pub new: Span,
}

/// An item, or some lines of a hunk: `lines` are first and last, 1-based, counted over the hunk's
/// removed lines and then its added lines.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ItemRef {
    /// The item.
    pub id: ItemId,
    /// First and last line, or the whole item.
    pub lines: Option<(u32, u32)>,
}

impl From<ItemId> for ItemRef {
    fn from(id: ItemId) -> Self {
        Self { id, lines: None }
    }
}

impl fmt::Display for ItemRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lines {
            None => write!(f, "{}", self.id),
            Some((a, b)) if a == b => write!(f, "{}:{a}", self.id),
            Some((a, b)) => write!(f, "{}:{a}-{b}", self.id),
        }
    }
}
