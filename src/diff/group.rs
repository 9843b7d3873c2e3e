//! Changed runs with the unchanged lines around them. Owns when two runs share a block.

use std::ops::Range;

/// A changed run: 0-based lines of the old and of the new side.
pub(super) type Run = (Range<usize>, Range<usize>);

/// A block of neighbouring runs with context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// Lines of the old side, context included.
    pub old: Range<usize>,
    /// Lines of the new side, context included.
    pub new: Range<usize>,
    /// Which runs it holds.
    pub runs: Range<usize>,
}

/// Blocks of runs that are at most twice `context` lines apart.
pub(super) fn groups(runs: &[Run], context: usize, old_len: usize) -> Vec<Group> {
    let mut out: Vec<Group> = Vec::new();
    let near = context.saturating_mul(2);
    let mut first = 0;
    for index in 0..runs.len() {
        let (old, new) = &runs[index];
        let ends = runs
            .get(index + 1)
            .is_none_or(|(next, _)| next.start.saturating_sub(old.end) > near);
        if ends {
            let (first_old, first_new) = &runs[first];
            let lead = context.min(first_old.start);
            let tail = context.min(old_len.saturating_sub(old.end));
            out.push(Group {
                old: first_old.start - lead..old.end + tail,
                new: first_new.start.saturating_sub(lead)..new.end + tail,
                runs: first..index + 1,
            });
            first = index + 1;
        }
    }
    out
}

/// The `@@` line of a block, without its newline.
pub(super) fn header(group: &Group) -> String {
    let side = |range: &Range<usize>| {
        let span = super::Span::of(range);
        if span.len == 1 {
            span.start.to_string()
        } else {
            format!("{},{}", span.start, span.len)
        }
    };
    format!("@@ -{} +{} @@", side(&group.old), side(&group.new))
}
