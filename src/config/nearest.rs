//! The known name nearest to a mistyped one. Owns the measure only.

/// The candidate that takes the fewest insertions, deletions, replacements and swaps of
/// neighbours to get from `typed`, when that is at most a third of its length (and at least two
/// are allowed). The first of equals wins.
pub fn nearest<'a>(typed: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (typed.chars().count() / 3).max(2);
    let mut best = None;
    for candidate in candidates {
        let distance = distance(typed, candidate);
        // A name replaced as a whole is no likeness.
        if distance <= most
            && distance < candidate.chars().count()
            && best.is_none_or(|(least, _)| distance < least)
        {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_finger_are_recognised() {
        let known = ["theme", "mounts", "hide", "unhide", "scrollback"];
        assert_eq!(nearest("themes", known), Some("theme"));
        assert_eq!(nearest("thmee", known), Some("theme"));
        assert_eq!(nearest("scroll_back", known), Some("scrollback"));
        assert_eq!(nearest("mount", known), Some("mounts"));
        assert_eq!(nearest("network", known), None);
        assert_eq!(nearest("", ["a"]), None);
    }
}
