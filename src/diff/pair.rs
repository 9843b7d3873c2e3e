//! Which removed line became which added line. Owns the order in which the lines of a hunk stand
//! when only some of them are taken, and the pairs that are compared word by word. Always gives
//! the same answer for the same lines.

/// Hunks with more than this many possible pairs are paired by position.
const MAX_CELLS: usize = 10_000;
/// Bytes looked at from each end of a line.
const PROBE: usize = 512;
/// Words looked at per line.
const MAX_WORDS: usize = 64;
/// Score of two lines that are equal but for case; a pair of strangers scores 1, so that lines
/// without any likeness are still paired in order.
const ALIKE: u32 = 1000;

/// Pairs `(removed, added)` of 0-based indices, both strictly rising.
pub(crate) fn pairs(removed: &[&[u8]], added: &[&[u8]]) -> Vec<(usize, usize)> {
    let (rows, columns) = (removed.len(), added.len());
    if rows == 0 || columns == 0 {
        return Vec::new();
    }
    if rows.saturating_mul(columns) > MAX_CELLS {
        return (0..rows.min(columns)).map(|i| (i, i)).collect();
    }
    if rows == 1 && columns == 1 {
        return vec![(0, 0)];
    }
    let removed: Vec<Profile> = removed.iter().map(|l| Profile::of(l)).collect();
    let added: Vec<Profile> = added.iter().map(|l| Profile::of(l)).collect();
    // best[i][j]: the best total for the lines from i and j on.
    let width = columns + 1;
    let mut best = vec![0u32; (rows + 1) * width];
    let mut score = vec![0u32; rows * columns];
    for i in (0..rows).rev() {
        for j in (0..columns).rev() {
            let s = 1 + removed[i].likeness(&added[j]);
            score[i * columns + j] = s;
            best[i * width + j] = (best[(i + 1) * width + j + 1] + s)
                .max(best[(i + 1) * width + j])
                .max(best[i * width + j + 1]);
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::new();
    while i < rows && j < columns {
        let here = best[i * width + j];
        if here == best[(i + 1) * width + j + 1] + score[i * columns + j] {
            out.push((i, j));
            i += 1;
            j += 1;
        } else if here == best[(i + 1) * width + j] {
            i += 1;
        } else {
            j += 1;
        }
    }
    out
}

/// One line of a hunk by its 0-based index on its side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A line of the old side.
    Removed(usize),
    /// A line of the new side.
    Added(usize),
}

/// The lines of a hunk in the order in which they stand when both sides are kept: each added line
/// follows the removed line that it replaces.
pub(crate) fn order(removed: &[&[u8]], added: &[&[u8]]) -> Vec<Step> {
    let mut out = Vec::with_capacity(removed.len() + added.len());
    let (mut i, mut j) = (0, 0);
    let ends = (removed.len(), added.len());
    for (pair_i, pair_j) in pairs(removed, added).into_iter().chain([ends]) {
        out.extend((i..pair_i).map(Step::Removed));
        out.extend((j..pair_j).map(Step::Added));
        if (pair_i, pair_j) != ends {
            out.push(Step::Removed(pair_i));
            out.push(Step::Added(pair_j));
        }
        i = pair_i + 1;
        j = pair_j + 1;
    }
    out
}

/// Likeness of two lines, 0 to 1000.
pub(crate) fn likeness(a: &[u8], b: &[u8]) -> u32 {
    Profile::of(a).likeness(&Profile::of(b))
}

/// A line as far as it is compared.
struct Profile<'a> {
    /// Without surrounding blanks, a carriage return included.
    text: &'a [u8],
    /// Hash and length of the first words, sorted.
    words: Vec<(u64, u32)>,
    word_bytes: u32,
}

impl<'a> Profile<'a> {
    fn of(line: &'a [u8]) -> Self {
        let text = line.trim_ascii();
        let mut words: Vec<(u64, u32)> = text[..text.len().min(8 * PROBE)]
            .split(|b| !(b.is_ascii_alphanumeric() || *b == b'_' || *b >= 0x80))
            .filter(|w| !w.is_empty())
            .take(MAX_WORDS)
            .map(|w| (fold(w), w.len() as u32))
            .collect();
        words.sort_unstable();
        let word_bytes = words.iter().map(|w| w.1).sum();
        Self {
            text,
            words,
            word_bytes,
        }
    }

    fn likeness(&self, other: &Self) -> u32 {
        self.ends_alike(other).max(self.words_alike(other))
    }

    /// Share of the common beginning and end.
    fn ends_alike(&self, other: &Self) -> u32 {
        let (a, b) = (self.text, other.text);
        let shorter = a.len().min(b.len());
        let longer = a.len().max(b.len());
        if longer == 0 {
            return ALIKE;
        }
        let same = |(x, y): &(&u8, &u8)| x.eq_ignore_ascii_case(y);
        let front = a.iter().zip(b).take(PROBE).take_while(same).count();
        let rest = (shorter - front).min(PROBE);
        let back = a.iter().rev().zip(b.iter().rev());
        let back = back.take(rest).take_while(same).count();
        let whole = longer.min(2 * PROBE);
        ((front + back).min(whole) as u64 * u64::from(ALIKE) / whole as u64) as u32
    }

    /// Share of the common words, in whatever order.
    fn words_alike(&self, other: &Self) -> u32 {
        let total = u64::from(self.word_bytes) + u64::from(other.word_bytes);
        if total == 0 {
            return 0;
        }
        let (mut i, mut j, mut common) = (0, 0, 0u64);
        while let (Some(a), Some(b)) = (self.words.get(i), other.words.get(j)) {
            match a.cmp(b) {
                std::cmp::Ordering::Less => i += 1,
                std::cmp::Ordering::Greater => j += 1,
                std::cmp::Ordering::Equal => {
                    common += u64::from(a.1);
                    i += 1;
                    j += 1;
                }
            }
        }
        (2 * common * u64::from(ALIKE) / total) as u32
    }
}

/// FNV-1a of the word in lower case: the same on every machine and run.
fn fold(word: &[u8]) -> u64 {
    word.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_paired_by_likeness_and_else_by_position() {
        assert_eq!(pairs(&[b"k2"], &[b"mid", b"K2"]), [(0, 1)]);
        assert_eq!(
            pairs(&[b"two\r", b"three\r"], &[b"TWO\r", b"three", b"four\r"]),
            [(0, 0), (1, 1)]
        );
        assert_eq!(pairs(&[b"abc", b"def"], &[b"1", b"2"]), [(0, 0), (1, 1)]);
        assert_eq!(
            pairs(
                &[b"let x = foo(a);", b"let y = bar(b);"],
                &[b"// new", b"const x = foo(a, 1);", b"const y = bar(b, 1);"]
            ),
            [(0, 1), (1, 2)]
        );
    }

    #[test]
    fn both_sides_keep_their_order() {
        use Step::{Added, Removed};
        assert_eq!(
            order(&[b"k2"], &[b"mid", b"K2"]),
            [Added(0), Removed(0), Added(1)]
        );
        assert_eq!(order(&[], &[b"a", b"b"]), [Added(0), Added(1)]);
        let long: Vec<Vec<u8>> = (0..300).map(|n| format!("line {n}").into_bytes()).collect();
        let lines: Vec<&[u8]> = long.iter().map(Vec::as_slice).collect();
        assert_eq!(order(&lines, &lines[..200]).len(), 500);
    }
}
