//! What a merge must hold for any bytes.

use proptest::prelude::*;

mod beside_git;
mod settle;

use super::*;
use crate::diff;

fn clean(base: &str, ours: &str, theirs: &str) -> String {
    match merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes()) {
        Merge::Clean(bytes) => String::from_utf8(bytes).expect("text"),
        other => panic!("{other:?}"),
    }
}

fn conflicts(base: &str, ours: &str, theirs: &str) -> Vec<String> {
    match merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes()) {
        Merge::Conflicted(regions) => regions.iter().map(Region::describe).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn edits_apart_stand_side_by_side() {
    assert_eq!(
        clean("1\n2\n3\n", "one\n2\n3\n", "1\n2\nthree\n"),
        "one\n2\nthree\n"
    );
    assert_eq!(clean("1\n2\n3\n", "0\n1\n2\n3\n", "1\n2\n"), "0\n1\n2\n");
    // Carriage returns are part of their lines.
    assert_eq!(
        clean(
            "1\r\n2\r\n3\r\n",
            "one\r\n2\r\n3\r\n",
            "1\r\n2\r\nthree\r\n"
        ),
        "one\r\n2\r\nthree\r\n"
    );
    // The newline at the end belongs to whoever changed it.
    assert_eq!(clean("1\n2\n3", "one\n2\n3", "1\n2\n3\n"), "one\n2\n3\n");
    assert_eq!(clean("1\n2\n3\n", "1\n2\n3", "one\n2\n3\n"), "one\n2\n3");
    assert_eq!(
        clean("1\n2\n3", "one\n2\n3", "1\n2\nthree"),
        "one\n2\nthree"
    );
    // The same edit by both is one.
    assert_eq!(
        clean("1\n2\n3\n", "one\n2\n3\n", "one\n2\nthree\n"),
        "one\n2\nthree\n"
    );
}

#[test]
fn edits_that_meet_conflict_and_are_named_by_line() {
    assert_eq!(
        conflicts("1\n2\n3\n4\n", "1\nhost\n3\n4\n", "1\nagent\nmore\n3\n4\n"),
        ["line 2 (the agent's 2-3)"]
    );
    // Neighbours without an unchanged line between them.
    assert_eq!(
        conflicts("1\n2\n3\n", "one\n2\n3\n", "1\ntwo\n3\n"),
        ["lines 1-2 (the agent's 1-2)"]
    );
    assert_eq!(
        conflicts("1\n2\n", "1\n2\nhost\n", "1\n2\nagent\n"),
        ["line 3 (the agent's 3)"]
    );
    assert_eq!(merge(b"a\0", b"b\0", b"c\0"), Merge::Binary);
}

#[test]
fn each_hunk_says_how_it_stands() {
    let lines: Vec<String> = (0..30).map(|n| format!("{n}\n")).collect();
    let with = |edits: &[(usize, &str)]| {
        let mut lines = lines.clone();
        for (at, text) in edits {
            lines[*at] = format!("{text}\n");
        }
        lines.concat().into_bytes()
    };
    let base = with(&[]);
    let host = with(&[(5, "host"), (20, "host")]);
    let agent = with(&[(7, "near"), (12, "far"), (20, "same line")]);
    let diff = diff::diff(&base, &agent);
    let said: Vec<_> = hunks(&base, &host, &agent, &diff)
        .into_iter()
        .map(|(_, standing)| standing)
        .collect();
    assert_eq!(
        said,
        [Standing::Merges, Standing::Applies, Standing::Conflicts]
    );
}

#[test]
fn hostile_files_take_bounded_work() {
    // Lines without anything in common, which a plain comparison needs their product for.
    let side = |seed: u64| {
        let mut text = Vec::new();
        let mut state = seed;
        for _ in 0..60_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(seed);
            text.extend_from_slice(format!("{}\n", state >> 59).as_bytes());
        }
        text
    };
    let begun = std::time::Instant::now();
    let _ = merge(&side(1), &side(3), &side(5));
    assert!(begun.elapsed() < std::time::Duration::from_secs(60));
}

/// Few different lines, so that they repeat; any ending.
fn file() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![Just("a"), Just("b\r"), Just(""), Just("c"), Just("\u{fc}")];
    (prop::collection::vec(line, 0..12), any::<bool>()).prop_map(|(lines, newline)| {
        let lines: Vec<&[u8]> = lines.iter().map(|l| l.as_bytes()).collect();
        join(&lines, newline)
    })
}

proptest! {
    #[test]
    fn an_unchanged_side_gives_the_other(base in file(), other in file()) {
        prop_assert_eq!(merge(&base, &base, &other), Merge::Clean(other.clone()));
        prop_assert_eq!(merge(&base, &other, &base), Merge::Clean(other.clone()));
        prop_assert_eq!(merge(&base, &other, &other), Merge::Clean(other));
    }

    #[test]
    fn sides_are_alike_and_any_bytes_are_taken(
        base in prop::collection::vec(any::<u8>(), 0..60),
        ours in prop::collection::vec(any::<u8>(), 0..60),
        theirs in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let turned = merge(&base, &theirs, &ours);
        match merge(&base, &ours, &theirs) {
            Merge::Clean(bytes) => prop_assert_eq!(turned, Merge::Clean(bytes)),
            Merge::Conflicted(regions) => prop_assert!(
                matches!(turned, Merge::Conflicted(others) if others.len() == regions.len())
            ),
            Merge::Binary => prop_assert_eq!(turned, Merge::Binary),
        }
    }

    #[test]
    fn hunks_conflict_exactly_where_the_merge_does(base in file(), ours in file(), theirs in file()) {
        let diff = diff::diff(&base, &theirs);
        let any = hunks(&base, &ours, &theirs, &diff)
            .iter()
            .any(|(_, s)| *s == Standing::Conflicts);
        prop_assert_eq!(any, matches!(merge(&base, &ours, &theirs), Merge::Conflicted(_)));
    }

    /// Disjoint edits of numbered lines: each side replaces, removes or doubles lines of its own.
    #[test]
    fn disjoint_edits_merge_to_the_expected_text(
        edits in prop::collection::vec((0..3u8, 0..3u8), 1..25),
        crlf in any::<bool>(),
        newline in any::<bool>(),
    ) {
        let end = if crlf { "\r\n" } else { "\n" };
        let text = |who: Option<u8>| {
            let mut lines = Vec::new();
            for (n, (side, what)) in edits.iter().enumerate() {
                lines.push(format!("fixed {n}"));
                // Side 2 is nobody's edit.
                let edited = *side < 2 && who.is_none_or(|who| who == *side);
                match (edited, what) {
                    (false, _) => lines.push(format!("line {n}")),
                    (true, 0) => lines.push(format!("edited {n}")),
                    (true, 1) => lines.extend([format!("line {n}"), format!("more {n}")]),
                    (true, _) => {}
                }
            }
            lines.push("last".into());
            let mut text = lines.join(end);
            if newline {
                text.push_str(end);
            }
            text
        };
        let merged = clean(&text(Some(9)), &text(Some(0)), &text(Some(1)));
        prop_assert_eq!(&merged, &text(None));
        // The merge of another hand says the same.
        let theirs = diffy::merge(&text(Some(9)), &text(Some(0)), &text(Some(1)));
        prop_assert_eq!(theirs, Ok(merged));
    }
}
