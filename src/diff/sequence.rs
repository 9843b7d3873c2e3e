//! Finds the changed runs of two sequences of lines. Owns the bound on the work that this may take:
//! it is counted, not timed, so that the same lines give the same runs on every machine.

use std::collections::HashMap;
use std::ops::Range;

use similar::{Algorithm, DiffOp};

use super::group::Run;

/// Bound on the work, in the measure of [`cost`]; about two seconds for lines that have hardly
/// anything in common, on a processor of 2020.
const BUDGET: u64 = 500_000_000;

/// The changed runs in order, and whether some of them are coarse because the budget was spent.
pub(super) fn runs(old: &[&[u8]], new: &[&[u8]]) -> (Vec<Run>, bool) {
    runs_within(old, new, BUDGET)
}

fn runs_within(old: &[&[u8]], new: &[&[u8]], budget: u64) -> (Vec<Run>, bool) {
    let whole = trimmed(old, new, (0..old.len(), 0..new.len()));
    // Numbers compare faster than lines.
    let mut numbers = HashMap::new();
    let (old_from, new_from) = (whole.0.start, whole.1.start);
    let old_numbers = number(&old[whole.0.clone()], &mut numbers);
    let new_numbers = number(&new[whole.1.clone()], &mut numbers);
    let (old, new) = (old_numbers.as_slice(), new_numbers.as_slice());
    let all = (0..old.len(), 0..new.len());
    let sections = if cost(&all) <= budget {
        vec![all]
    } else {
        between_anchors(old, new, numbers.len())
    };
    let mut search = Search {
        budget,
        approximate: false,
        runs: Vec::new(),
    };
    for section in sections {
        search.section(old, new, section);
    }
    let shift = |r: Range<usize>, by: usize| r.start + by..r.end + by;
    let runs = search
        .runs
        .into_iter()
        .map(|(o, n)| (shift(o, old_from), shift(n, new_from)))
        .collect();
    (runs, search.approximate)
}

/// What comparing a section costs at worst: its length to the power of 1.5.
fn cost((old, new): &Run) -> u64 {
    let lines = (old.len() + new.len()) as u64;
    lines.saturating_mul(lines.isqrt())
}

struct Search {
    budget: u64,
    approximate: bool,
    runs: Vec<Run>,
}

impl Search {
    fn section(&mut self, old: &[u32], new: &[u32], section: Run) {
        let section = trimmed(old, new, section);
        let (o, n) = &section;
        if o.is_empty() || n.is_empty() {
            self.push(section);
            return;
        }
        let cost = cost(&section);
        if cost > self.budget {
            self.approximate = true;
            self.push(section);
            return;
        }
        self.budget -= cost;
        // No deadline: the search has bounds of its own.
        let ops = similar::capture_diff_slices(Algorithm::Myers, &old[o.clone()], &new[n.clone()]);
        for op in ops {
            if matches!(op, DiffOp::Equal { .. }) {
                continue;
            }
            let (a, b) = (op.old_range(), op.new_range());
            self.push((
                o.start + a.start..o.start + a.end,
                n.start + b.start..n.start + b.end,
            ));
        }
    }

    /// Appends a run, joined to the last one when they touch.
    fn push(&mut self, (old, new): Run) {
        if old.is_empty() && new.is_empty() {
            return;
        }
        match self.runs.last_mut() {
            Some(last) if last.0.end == old.start && last.1.end == new.start => {
                last.0.end = old.end;
                last.1.end = new.end;
            }
            _ => self.runs.push((old, new)),
        }
    }
}

/// The section without what both sides have in common at its two ends.
fn trimmed<T: PartialEq>(old: &[T], new: &[T], (o, n): Run) -> Run {
    let same = |(a, b): &(&T, &T)| a == b;
    let (a, b) = (&old[o.clone()], &new[n.clone()]);
    let front = a.iter().zip(b).take_while(same).count();
    let back = a[front..].iter().rev().zip(b[front..].iter().rev());
    let back = back.take_while(same).count();
    (o.start + front..o.end - back, n.start + front..n.end - back)
}

/// Numbers the lines: equal lines, equal numbers.
fn number<'a>(lines: &[&'a [u8]], numbers: &mut HashMap<&'a [u8], u32>) -> Vec<u32> {
    lines
        .iter()
        .map(|line| {
            let next = numbers.len() as u32;
            *numbers.entry(line).or_insert(next)
        })
        .collect()
}

/// The sections between lines that occur exactly once on each side, as far as those stand in the
/// same order.
fn between_anchors(old: &[u32], new: &[u32], distinct: usize) -> Vec<Run> {
    let mut out = Vec::new();
    let (mut i, mut j) = (0, 0);
    for (a, b) in rising(&unique_pairs(old, new, distinct)) {
        out.push((i..a, j..b));
        (i, j) = (a + 1, b + 1);
    }
    out.push((i..old.len(), j..new.len()));
    out
}

/// Positions of the lines that occur exactly once on each side, in the old side's order.
fn unique_pairs(old: &[u32], new: &[u32], distinct: usize) -> Vec<(usize, usize)> {
    let once = |side: &[u32]| {
        let mut at: Vec<Option<usize>> = vec![None; distinct];
        let mut many = vec![false; distinct];
        for (position, number) in side.iter().enumerate() {
            let number = *number as usize;
            many[number] |= at[number].is_some();
            at[number] = Some(position);
        }
        for (position, many) in at.iter_mut().zip(many) {
            if many {
                *position = None;
            }
        }
        at
    };
    let in_old = once(old);
    let in_new = once(new);
    old.iter()
        .enumerate()
        .filter_map(|(i, number)| {
            let number = *number as usize;
            in_old[number].and(in_new[number]).map(|j| (i, j))
        })
        .collect()
}

/// A longest part of the pairs that rises on both sides.
fn rising(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // tails[k]: the pair that ends a rising part of length k + 1 lowest.
    let mut tails: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (index, pair) in pairs.iter().enumerate() {
        let length = tails.partition_point(|t| pairs[*t].1 < pair.1);
        before.push(length.checked_sub(1).map(|l| tails[l]));
        if length == tails.len() {
            tails.push(index);
        } else {
            tails[length] = index;
        }
    }
    let mut out: Vec<_> = std::iter::successors(tails.last().copied(), |index| before[*index])
        .map(|index| pairs[index])
        .collect();
    out.reverse();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(text: &str) -> Vec<&[u8]> {
        text.split(' ').map(str::as_bytes).collect()
    }

    #[test]
    fn without_budget_lines_that_are_unique_still_hold() {
        let (old, new) = (lines("a x x b y y c z z"), lines("a x q x b y y c w w"));
        let (runs, approximate) = runs_within(&old, &new, 0);
        assert_eq!(runs, [(2..2, 2..3), (7..9, 8..10)]);
        assert!(approximate);
        assert!(!super::runs(&old, &new).1);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever the budget: between the runs both sides are equal, and no two runs touch.
        #[test]
        fn runs_are_apart_and_complete(
            old in prop::collection::vec(0..12u8, 0..40),
            new in prop::collection::vec(0..12u8, 0..40),
            budget in prop::sample::select(vec![0, 10, 100, u64::MAX]),
        ) {
            let old: Vec<&[u8]> = old.iter().map(std::slice::from_ref).collect();
            let new: Vec<&[u8]> = new.iter().map(std::slice::from_ref).collect();
            let (runs, _) = runs_within(&old, &new, budget);
            let (mut i, mut j) = (0, 0);
            for (n, (o, m)) in runs.iter().enumerate() {
                prop_assert!(!o.is_empty() || !m.is_empty());
                prop_assert!(n == 0 || o.start > i);
                prop_assert_eq!(&old[i..o.start], &new[j..m.start]);
                (i, j) = (o.end, m.end);
            }
            prop_assert_eq!(&old[i..], &new[j..]);
        }
    }
}
