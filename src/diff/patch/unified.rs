//! The text of a unified diff with three lines of context. Lines count with their newline here, as
//! git and `patch` have it: a last line that gains or loses its newline is taken out and put back.

use crate::diff::compute::FileDiff;
use crate::diff::group::{Run, groups, header};
use crate::diff::lines::Lines;

/// Unchanged lines around a change, as git writes them.
const CONTEXT: usize = 3;

/// Appends the `@@` blocks of `diff`.
pub(super) fn write(out: &mut Vec<u8>, old: &[u8], new: &[u8], diff: &FileDiff) {
    let old = Lines::of(old);
    let new = Lines::of(new);
    let runs = with_newlines(&old, &new, diff);
    for group in groups(&runs, CONTEXT, old.len()) {
        out.extend_from_slice(header(&group).as_bytes());
        out.push(b'\n');
        let mut at = group.old.start;
        for (removed, added) in &runs[group.runs.clone()] {
            (at..removed.start).for_each(|i| line(out, b' ', &old, i));
            removed.clone().for_each(|i| line(out, b'-', &old, i));
            added.clone().for_each(|i| line(out, b'+', &new, i));
            at = removed.end;
        }
        (at..group.old.end).for_each(|i| line(out, b' ', &old, i));
    }
}

fn line(out: &mut Vec<u8>, sign: u8, side: &Lines<'_>, index: usize) {
    out.push(sign);
    out.extend_from_slice(side.lines[index]);
    out.push(b'\n');
    if side.lacks_newline(index) {
        out.extend_from_slice(b"\\ No newline at end of file\n");
    }
}

/// The hunks, and the last line that is equal but for its newline.
fn with_newlines(old: &Lines<'_>, new: &Lines<'_>, diff: &FileDiff) -> Vec<Run> {
    let mut runs: Vec<Run> = diff
        .hunks
        .iter()
        .map(|h| (h.old_range(), h.new_range()))
        .collect();
    let (old_end, new_end) = (old.len(), new.len());
    let last = runs
        .last()
        .cloned()
        .filter(|(o, n)| o.end == old_end && n.end == new_end);
    // The pair of equal lines of which one is a last line without a newline, if there is one.
    let pair = match last {
        None if old_end > 0 && new_end > 0 && old.final_newline != new.final_newline => {
            Some((old_end - 1, new_end - 1))
        }
        Some((o, n)) if o.is_empty() && !old.final_newline && o.start > 0 && n.start > 0 => {
            Some((o.start - 1, n.start - 1))
        }
        Some((o, n)) if n.is_empty() && !new.final_newline && o.start > 0 && n.start > 0 => {
            Some((o.start - 1, n.start - 1))
        }
        _ => None,
    };
    if let Some((i, j)) = pair {
        runs.push((i..i + 1, j..j + 1));
        runs.sort_by_key(|(o, n)| (o.start, n.start));
        // It touches the run behind it, and may touch the one before.
        runs = runs.into_iter().fold(Vec::new(), |mut out: Vec<Run>, run| {
            match out.last_mut() {
                Some(last) if last.0.end == run.0.start && last.1.end == run.1.start => {
                    last.0.end = run.0.end;
                    last.1.end = run.1.end;
                }
                _ => out.push(run),
            }
            out
        });
    }
    runs
}
