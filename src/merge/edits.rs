//! Which edits of two sides touch. Owns how far an edit reaches: lines added or removed among equal
//! ones may stand in several places, and the comparison picks one; an edit reaches over all of them,
//! so that the same edit of both sides is never taken for two.

use std::ops::Range;

use crate::diff::{FileDiff, Lines};

/// Who edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edited {
    Ours,
    Theirs,
    Both,
}

/// Edits that touch each other, as one.
#[derive(Debug)]
pub(super) struct Cluster {
    pub base: Range<usize>,
    pub ours: Range<usize>,
    pub theirs: Range<usize>,
    pub edited: Edited,
}

/// One edit: lines of the base, and those that stand there on its side.
#[derive(Debug)]
pub(super) struct Edit {
    old: Range<usize>,
    new: Range<usize>,
}

/// A side's edits, as far as each reaches.
pub(super) fn of(base: &Lines<'_>, side: &Lines<'_>, diff: &FileDiff) -> Vec<Edit> {
    let mut edits = Vec::with_capacity(diff.hunks.len());
    for (at, hunk) in diff.hunks.iter().enumerate() {
        let (old, new) = (hunk.old_range(), hunk.new_range());
        let before = at
            .checked_sub(1)
            .and_then(|at| diff.hunks.get(at))
            .map_or(0, |hunk| hunk.old_range().end);
        let after = diff.hunks.get(at + 1);
        let after = after.map_or(base.len(), |hunk| hunk.old_range().start);
        // The unchanged lines between this edit and its neighbours: as many on either side.
        let free = (
            old.start.saturating_sub(before),
            after.saturating_sub(old.end),
        );
        let (up, down) = match (old.is_empty(), new.is_empty()) {
            (true, false) => slack(&side.lines, &new, free),
            (false, true) => slack(&base.lines, &old, free),
            _ => (0, 0),
        };
        edits.push(Edit {
            old: old.start - up..old.end + down,
            new: new.start - up..new.end + down,
        });
    }
    edits
}

/// By how many of the free lines above and below it this run can be moved with the same result.
fn slack(lines: &[&[u8]], run: &Range<usize>, free: (usize, usize)) -> (usize, usize) {
    let up = (1..=run.start.min(free.0))
        .take_while(|n| lines[run.start - n] == lines[run.end - n])
        .count();
    let down = (0..free.1.min(lines.len() - run.end))
        .take_while(|n| lines[run.start + n] == lines[run.end + n])
        .count();
    (up, down)
}

/// One side's edits, walked in order.
struct Side<'a> {
    edits: &'a [Edit],
    next: usize,
    /// Lines that the edits so far have added (or taken away).
    shift: isize,
}

impl<'a> Side<'a> {
    fn of(edits: &'a [Edit]) -> Self {
        Self {
            edits,
            next: 0,
            shift: 0,
        }
    }

    fn start(&self) -> Option<usize> {
        self.edits.get(self.next).map(|edit| edit.old.start)
    }

    /// Takes the next edit if it begins at or before `end`; the new end.
    fn take(&mut self, end: usize) -> Option<usize> {
        let edit = self.edits.get(self.next)?;
        if edit.old.start > end {
            return None;
        }
        self.next += 1;
        self.shift = edit.new.end as isize - edit.old.end as isize;
        Some(end.max(edit.old.end))
    }
}

/// The edits of both sides, those that touch together.
pub(super) fn clusters(ours: &[Edit], theirs: &[Edit]) -> Vec<Cluster> {
    let (mut o, mut t) = (Side::of(ours), Side::of(theirs));
    let mut out = Vec::new();
    while let Some(start) = [o.start(), t.start()].into_iter().flatten().min() {
        let before = (o.next, t.next);
        let from = (o.shift, t.shift);
        let mut end = start;
        while let Some(further) = o.take(end).or_else(|| t.take(end)) {
            end = further;
        }
        let range = |from: isize, to: isize| {
            start.saturating_add_signed(from)..end.saturating_add_signed(to)
        };
        out.push(Cluster {
            base: start..end,
            ours: range(from.0, o.shift),
            theirs: range(from.1, t.shift),
            edited: match (o.next > before.0, t.next > before.1) {
                (true, true) => Edited::Both,
                (true, false) => Edited::Ours,
                _ => Edited::Theirs,
            },
        });
    }
    out
}
