//! Three-way merge of bytes: what the host made of a file and what was approved of the agent's,
//! both against the base they started from. Owns when two edits may stand side by side; no I/O.
//!
//! The comparison is the one that makes the hunks of a review, bounded in its work, so that what is
//! said of a hunk holds for the merge and hostile input cannot stall it. Lines are bytes between
//! newlines, a carriage return included; the newline at the end of the file is merged by itself.
//! Edits that touch without an unchanged line between them conflict, unless both sides made the
//! same.

mod edits;
mod node;
mod settle;
#[cfg(test)]
mod tests;

pub use node::{Disagreement, nodes, nodes_for, time};
pub use settle::{Favour, Marked, favoured, holds_markers, marked, picked};

use std::ops::Range;

use serde::{Deserialize, Serialize};

use self::edits::{Cluster, Edited};
use crate::diff::{FileDiff, ItemId, Lines, Span, as_text, is_binary, join};

/// Unchanged lines around a hunk that make its place certain.
const CONTEXT: usize = 3;

/// How a merge ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merge {
    /// Both sides' edits together.
    Clean(Vec<u8>),
    /// Edits of both sides meet here, in file order.
    Conflicted(Vec<Region>),
    /// A side is not text.
    Binary,
}

/// Where edits of both sides meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Lines of the base.
    pub base: Span,
    /// The host's lines.
    pub ours: Span,
    /// The agent's lines.
    pub theirs: Span,
}

impl Region {
    /// Where, in words: `lines 3-5 (the agent's 3-4)`.
    pub fn describe(&self) -> String {
        format!("{} (the agent's {})", lines(self.ours), number(self.theirs))
    }
}

fn number(span: Span) -> String {
    match span.len {
        0 => format!("after {}", span.start),
        1 => span.start.to_string(),
        len => format!("{}-{}", span.start, span.start + len - 1),
    }
}

fn lines(span: Span) -> String {
    match span.len {
        0 => format!("after line {}", span.start),
        1 => format!("line {}", span.start),
        _ => format!("lines {}", number(span)),
    }
}

/// How a hunk of the review stands to what the host made meanwhile, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Standing {
    /// The host left its lines and those around them alone.
    Applies,
    /// The host edited near by, or made the same edit.
    Merges,
    /// The host edited the same lines.
    Conflicts,
}

impl Standing {
    /// The words used in listings.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Applies => "still applies",
            Standing::Merges => "merges cleanly",
            Standing::Conflicts => "conflicts",
        }
    }
}

/// Merges the host's side (`ours`) and the agent's (`theirs`).
pub fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Merge {
    if ours == base || ours == theirs {
        return Merge::Clean(theirs.to_vec());
    }
    if theirs == base {
        return Merge::Clean(ours.to_vec());
    }
    if [base, ours, theirs].into_iter().any(is_binary) {
        return Merge::Binary;
    }
    let mut conflicts = Vec::new();
    let merged = put_together([base, ours, theirs], |_, meet| conflicts.push(meet.region));
    if conflicts.is_empty() {
        Merge::Clean(merged)
    } else {
        Merge::Conflicted(conflicts)
    }
}

/// Where edits of both sides meet, while a merge is put together.
struct Meet<'a, 'b> {
    region: Region,
    ours: &'b [&'a [u8]],
    theirs: &'b [&'a [u8]],
    /// Nothing follows on either side.
    last: bool,
}

/// Puts text together; what stands where edits meet is `settle`'s to say.
fn put_together<'a>(
    sides: [&'a [u8]; 3],
    mut settle: impl FnMut(&mut Vec<&'a [u8]>, Meet<'a, '_>),
) -> Vec<u8> {
    let [base, ours, theirs] = sides;
    let [b, o, t] = sides.map(Lines::of);
    let runs = [as_text(base, ours), as_text(base, theirs)];
    let mut out: Vec<&[u8]> = Vec::with_capacity(o.len().max(t.len()));
    let mut at = 0;
    let edits = [edits::of(&b, &o, &runs[0]), edits::of(&b, &t, &runs[1])];
    for cluster in edits::clusters(&edits[0], &edits[1]) {
        out.extend(&b.lines[at..cluster.base.start]);
        at = cluster.base.end;
        let our_lines = &o.lines[cluster.ours.clone()];
        let their_lines = &t.lines[cluster.theirs.clone()];
        match cluster.edited {
            Edited::Ours => out.extend(our_lines),
            Edited::Theirs => out.extend(their_lines),
            Edited::Both if our_lines == their_lines => out.extend(our_lines),
            Edited::Both => settle(
                &mut out,
                Meet {
                    region: Region {
                        base: Span::of(&cluster.base),
                        ours: Span::of(&cluster.ours),
                        theirs: Span::of(&cluster.theirs),
                    },
                    ours: our_lines,
                    theirs: their_lines,
                    last: cluster.base.end == b.len(),
                },
            ),
        }
    }
    out.extend(&b.lines[at..]);
    join(&out, final_newline(&b, &o, &t))
}

/// How each hunk of `diff`, the difference between `base` and the agent's side, stands to the
/// host's.
pub fn hunks(base: &[u8], ours: &[u8], theirs: &[u8], diff: &FileDiff) -> Vec<(ItemId, Standing)> {
    let of_host = as_text(base, ours);
    let [b, o, t] = [base, ours, theirs].map(Lines::of);
    let clusters = edits::clusters(&edits::of(&b, &o, &of_host), &edits::of(&b, &t, diff));
    let standing = |range: Range<usize>| {
        let holds = |c: &&Cluster| c.base.start <= range.start && range.end <= c.base.end;
        let mut mine = clusters.iter().filter(holds);
        let cluster = mine.find(|c| c.edited != Edited::Ours);
        match cluster {
            Some(c) if c.edited == Edited::Both => {
                if o.lines.get(c.ours.clone()) == t.lines.get(c.theirs.clone()) {
                    Standing::Merges
                } else {
                    Standing::Conflicts
                }
            }
            _ => {
                let near = of_host.hunks.iter().any(|host| {
                    let host = host.old_range();
                    host.start < range.end + CONTEXT && range.start < host.end + CONTEXT
                });
                if near {
                    Standing::Merges
                } else {
                    Standing::Applies
                }
            }
        }
    };
    diff.hunks
        .iter()
        .map(|hunk| (hunk.id.clone(), standing(hunk.old_range())))
        .collect()
}

/// The newline at the end: whoever changed it has it. A side without a line says nothing.
fn final_newline(base: &Lines<'_>, ours: &Lines<'_>, theirs: &Lines<'_>) -> bool {
    if ours.len() == 0 || theirs.len() > 0 && ours.final_newline == base.final_newline {
        theirs.final_newline
    } else {
        ours.final_newline
    }
}
