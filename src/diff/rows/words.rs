//! Which bytes of two paired lines differ, by whole words of ordinary length. Owns how a line falls into words.

use std::ops::Range;

use similar::{Algorithm, DiffOp};

/// Differing middles with more words than this, both sides together, are marked as a whole.
const MAX_WORDS: usize = 400;

/// Bytes by which a difference is widened to whole words; in longer words only what differs is
/// marked, so that one byte in a line of megabytes can be found.
const MAX_REACH: usize = 64;

/// The differing byte ranges of each side; both cut at character and word bounds.
pub(super) fn changed(a: &[u8], b: &[u8]) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
    let same = |(x, y): &(&u8, &u8)| x == y;
    let front = a.iter().zip(b).take_while(same).count();
    let front = bound_before(a, front).min(bound_before(b, front));
    let back = a[front..].iter().rev().zip(b[front..].iter().rev());
    let back = back.take_while(same).count();
    let back =
        (a.len() - bound_after(a, a.len() - back)).min(b.len() - bound_after(b, b.len() - back));
    let (a_end, b_end) = (a.len() - back, b.len() - back);
    let (a_words, b_words) = (words(&a[front..a_end]), words(&b[front..b_end]));
    let (Some(a_words), Some(b_words)) = (a_words, b_words) else {
        return (whole(front..a_end), whole(front..b_end));
    };
    let mut in_a = Vec::new();
    let mut in_b = Vec::new();
    for op in similar::capture_diff_slices(Algorithm::Myers, &a_words, &b_words) {
        if !matches!(op, DiffOp::Equal { .. }) {
            push(&mut in_a, &a_words, op.old_range(), front);
            push(&mut in_b, &b_words, op.new_range(), front);
        }
    }
    (in_a, in_b)
}

fn whole(range: Range<usize>) -> Vec<Range<usize>> {
    if range.is_empty() {
        Vec::new()
    } else {
        vec![range]
    }
}

/// Appends the bytes of these words, joined to the last range when they touch.
fn push(out: &mut Vec<Range<usize>>, words: &[&[u8]], range: Range<usize>, front: usize) {
    if range.is_empty() {
        return;
    }
    let start = front + words[..range.start].iter().map(|w| w.len()).sum::<usize>();
    let end = start + words[range].iter().map(|w| w.len()).sum::<usize>();
    match out.last_mut() {
        Some(last) if last.end == start => last.end = end,
        _ => out.push(start..end),
    }
}

/// Runs of word characters, runs of blanks, and everything else byte by byte; `None` when there
/// are too many to compare.
fn words(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut out = Vec::new();
    let mut start = 0;
    for at in 1..=bytes.len() {
        if at == bytes.len() || !is_joined(bytes[at - 1], bytes[at]) {
            out.push(&bytes[start..at]);
            start = at;
            if out.len() > MAX_WORDS / 2 {
                return None;
            }
        }
    }
    Some(out)
}

/// Whether two neighbouring bytes belong to one word. Bytes above ASCII always stay together, so
/// that no character is cut.
fn is_joined(a: u8, b: u8) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80;
    let is_blank = |b: u8| b == b' ' || b == b'\t';
    is_word(a) && is_word(b) || is_blank(a) && is_blank(b)
}

/// The nearest word bound at or before `at`; in a very long word the nearest character bound.
fn bound_before(bytes: &[u8], at: usize) -> usize {
    let is_bound =
        |at: &usize| *at == 0 || *at >= bytes.len() || !is_joined(bytes[*at - 1], bytes[*at]);
    (at.saturating_sub(MAX_REACH)..=at)
        .rev()
        .find(is_bound)
        .or_else(|| (0..=at).rev().find(|at| is_character_bound(bytes, *at)))
        .unwrap_or(0)
}

/// The nearest word bound at or after `at`; in a very long word the nearest character bound.
fn bound_after(bytes: &[u8], at: usize) -> usize {
    let is_bound =
        |at: &usize| *at == 0 || *at >= bytes.len() || !is_joined(bytes[*at - 1], bytes[*at]);
    (at..=at.saturating_add(MAX_REACH).min(bytes.len()))
        .find(is_bound)
        .or_else(|| (at..=bytes.len()).find(|at| is_character_bound(bytes, *at)))
        .unwrap_or(bytes.len())
}

fn is_character_bound(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_none_or(|b| b & 0xc0 != 0x80)
}
