//! Verdicts over the lines of one item. Owns the arithmetic of overlapping line ranges; items that
//! have no lines count as one.

use super::{FileDecision, Verdict};
use crate::diff::{Item, ItemId, ItemKind, ItemRef};

/// Lines first to last, 1-based, and what was said of them.
type Span = (u32, u32, Verdict);

/// The verdicts of one item: sorted, apart, equal neighbours merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spans {
    count: u32,
    spans: Vec<Span>,
}

/// Number of lines that can be decided on one by one; 1 for an item that is decided on as one.
pub(super) fn line_count(item: &Item) -> u32 {
    match item.kind {
        ItemKind::Hunk => (item.old.len + item.new.len).max(1),
        _ => 1,
    }
}

impl Spans {
    /// What `decision` says of `item`.
    pub fn of(item: &Item, decision: Option<&FileDecision>) -> Self {
        let mut out = Self {
            count: line_count(item),
            spans: Vec::new(),
        };
        for (named, verdict) in decision.iter().flat_map(|d| &d.verdicts) {
            if named.id == item.id {
                out.set(named.lines, Some(verdict));
            }
        }
        out
    }

    /// Says `verdict` (or nothing any more) of these lines, or of all; replaces what was said.
    pub fn set(&mut self, lines: Option<(u32, u32)>, verdict: Option<&Verdict>) {
        let (first, last) = lines.unwrap_or((1, self.count));
        let last = last.min(self.count);
        if first == 0 || first > last {
            return;
        }
        let mut out = Vec::with_capacity(self.spans.len() + 2);
        for (a, b, said) in self.spans.drain(..) {
            if b < first || a > last {
                out.push((a, b, said));
                continue;
            }
            if a < first {
                out.push((a, first - 1, said.clone()));
            }
            if b > last {
                out.push((last + 1, b, said));
            }
        }
        out.extend(verdict.map(|v| (first, last, v.clone())));
        self.spans = merged(out);
    }

    /// Approves every line of which nothing was said.
    pub fn approve_rest(&mut self) {
        let mut out = Vec::with_capacity(2 * self.spans.len() + 1);
        let mut next = 1;
        for (a, b, said) in self.spans.drain(..) {
            if a > next {
                out.push((next, a - 1, Verdict::Approved));
            }
            out.push((a, b, said));
            next = b + 1;
        }
        if next <= self.count {
            out.push((next, self.count, Verdict::Approved));
        }
        self.spans = merged(out);
    }

    /// What was said of one line.
    pub fn at(&self, line: u32) -> Option<&Verdict> {
        self.spans
            .iter()
            .find(|(a, b, _)| (*a..=*b).contains(&line))
            .map(|(_, _, said)| said)
    }

    /// Whether every line has a verdict for which `is` holds.
    pub fn all(&self, is: impl Fn(&Verdict) -> bool) -> bool {
        let said: u32 = self
            .spans
            .iter()
            .filter(|(_, _, v)| is(v))
            .map(|(a, b, _)| b - a + 1)
            .sum();
        said == self.count
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// As a decision holds them: one entry without lines when one verdict covers everything.
    pub fn into_verdicts(self, id: &ItemId) -> impl Iterator<Item = (ItemRef, Verdict)> {
        let count = self.count;
        self.spans.into_iter().map(move |(first, last, verdict)| {
            let lines = ((first, last) != (1, count)).then_some((first, last));
            let id = id.clone();
            (ItemRef { id, lines }, verdict)
        })
    }
}

fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|s| s.0);
    let mut out: Vec<Span> = Vec::with_capacity(spans.len());
    for (a, b, said) in spans {
        match out.last_mut() {
            Some(last) if last.1 + 1 == a && last.2 == said => last.1 = b,
            _ => out.push((a, b, said)),
        }
    }
    out
}
