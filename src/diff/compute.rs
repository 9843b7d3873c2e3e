//! Finds the hunks between two byte strings. Owns what counts as text, as a hunk and as the
//! newline at the end of the file. The result depends on the bytes alone, never on the clock, so
//! that an item found today is found again when it is committed.

use std::ops::Range;

use super::item::{self, Fingerprint};
use super::lines::Lines;
use super::sequence;
use super::{ItemId, Span};

/// How far into a file a NUL byte makes it binary, as git has it.
const BINARY_PROBE: usize = 8000;

/// How two byte strings differ.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileDiff {
    /// Either side is not text; there are no hunks then.
    pub binary: bool,
    /// Maximal changed runs, in file order, without context.
    pub hunks: Vec<Hunk>,
    /// The newline at the end of the file, when exactly one side has it.
    pub eof: Option<Eof>,
    /// Lines added, all hunks together.
    pub added: u32,
    /// Lines removed, all hunks together.
    pub removed: u32,
    /// Parts were too large to compare line by line and stand as one hunk each.
    pub approximate: bool,
}

/// A maximal changed run of lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// Its name.
    pub id: ItemId,
    /// Lines it takes away.
    pub old: Span,
    /// Lines it brings.
    pub new: Span,
}

/// The newline at the end of the file as an item of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eof {
    /// Its name.
    pub id: ItemId,
    /// Whether the new side has the newline (else it was taken away).
    pub adds: bool,
}

impl FileDiff {
    /// Whether the two sides are equal as far as bytes go.
    pub fn is_empty(&self) -> bool {
        !self.binary && self.hunks.is_empty() && self.eof.is_none()
    }
}

impl Hunk {
    /// Number of lines that can be chosen: removed and then added ones.
    pub fn lines(&self) -> u32 {
        self.old.len + self.new.len
    }

    /// Indices of the lines it takes away.
    pub(crate) fn old_range(&self) -> Range<usize> {
        self.old.range()
    }

    /// Indices of the lines it brings.
    pub(crate) fn new_range(&self) -> Range<usize> {
        self.new.range()
    }
}

impl Span {
    /// The span of these 0-based indices.
    pub(crate) fn of(range: &Range<usize>) -> Self {
        let start = if range.is_empty() {
            range.start
        } else {
            range.start + 1
        };
        Self {
            start: start as u32,
            len: range.len() as u32,
        }
    }

    /// The 0-based indices it covers.
    pub fn range(self) -> Range<usize> {
        let start = if self.len == 0 {
            self.start as usize
        } else {
            (self.start as usize).saturating_sub(1)
        };
        start..start + self.len as usize
    }
}

/// Whether git would call these bytes binary: a NUL among the first 8000.
pub fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(BINARY_PROBE)].contains(&0)
}

/// Compares two files. Binary ones are only said to be binary.
pub fn diff(old: &[u8], new: &[u8]) -> FileDiff {
    if is_binary(old) || is_binary(new) {
        return FileDiff {
            binary: true,
            ..FileDiff::default()
        };
    }
    as_text(old, new)
}

/// What an addition (`old` is empty) or a removal (`new` is) comes to: its lines are counted, but
/// not taken apart into hunks, since it is decided on as a whole.
pub(crate) fn counted(old: &[u8], new: &[u8]) -> FileDiff {
    if is_binary(old) || is_binary(new) {
        return FileDiff {
            binary: true,
            ..FileDiff::default()
        };
    }
    FileDiff {
        added: Lines::count(new),
        removed: Lines::count(old),
        ..FileDiff::default()
    }
}

/// Compares two files as lines whatever they hold, for whoever wants to look into a binary one.
pub fn as_text(old: &[u8], new: &[u8]) -> FileDiff {
    let old_side = Lines::of(old);
    let new_side = Lines::of(new);
    let (changed, approximate) = sequence::runs(&old_side.lines, &new_side.lines);
    let prints: Vec<Fingerprint> = changed
        .iter()
        .map(|(o, n)| {
            item::hunk_fingerprint(&old_side.lines[o.clone()], &new_side.lines[n.clone()])
        })
        .collect();
    let ids = item::name('h', &item::number_equal_ones(prints));
    let hunks: Vec<Hunk> = changed
        .iter()
        .zip(ids)
        .map(|((o, n), id)| Hunk {
            id,
            old: Span::of(o),
            new: Span::of(n),
        })
        .collect();
    // A side without a line has no last line whose newline could be there or not.
    let both = old_side.len() > 0 && new_side.len() > 0;
    let eof = (both && old_side.final_newline != new_side.final_newline).then(|| Eof {
        id: item::eof_id(new_side.final_newline),
        adds: new_side.final_newline,
    });
    FileDiff {
        binary: false,
        added: hunks.iter().map(|h| h.new.len).sum(),
        removed: hunks.iter().map(|h| h.old.len).sum(),
        hunks,
        eof,
        approximate,
    }
}
