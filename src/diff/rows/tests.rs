//! Rows as a screen gets them.

use proptest::prelude::*;

use super::super::{diff, select};
use super::*;

fn shown(old: &str, new: &str, context: usize) -> Vec<String> {
    let d = diff(old.as_bytes(), new.as_bytes());
    rows(old.as_bytes(), new.as_bytes(), &d, context)
        .iter()
        .map(|r| {
            let sign = match r.kind {
                RowKind::HunkHeader => "",
                RowKind::Context => " ",
                RowKind::Removed => "-",
                RowKind::Added => "+",
                RowKind::Eof => "~",
            };
            let text = String::from_utf8_lossy(&r.bytes).replace('\r', "\\r");
            let no = |n: Option<u32>| n.map_or(String::new(), |n| n.to_string());
            let mut out = format!("{}|{}|{sign}{text}", no(r.old_no), no(r.new_no));
            if r.no_newline {
                out.push('$');
            }
            out
        })
        .collect()
}

#[test]
fn rows_have_numbers_context_and_headers() {
    assert_eq!(
        shown(
            "1\n2\n3\n4\n5\n6\n7\n8\n9\n",
            "1\n2\nX\n4\n5\n6\n7\n8\n9\nten",
            1
        ),
        [
            "||@@ -2,3 +2,3 @@",
            "2|2| 2",
            "3||-3",
            "|3|+X",
            "4|4| 4",
            "||@@ -9 +9,2 @@",
            "9|9| 9",
            "|10|+ten$",
            "||~newline removed at end of file",
        ]
    );
    assert_eq!(shown("1\n2\n3\n", "1\nX\n3\n", usize::MAX).len(), 5);
    assert_eq!(
        shown("a", "a\n", 3),
        ["||@@ -1 +1 @@", "1|1| a", "||~newline added at end of file"]
    );
    assert_eq!(shown("same", "same", 3), Vec::<String>::new());
}

#[test]
fn lines_of_an_item_count_removed_then_added() {
    let (old, new) = (b"k1\nk2", b"k1\nmid\nK2\n");
    let d = diff(old, new);
    let rows = rows(old, new, &d, 3);
    let lines: Vec<(RowKind, u32)> = rows.iter().map(|r| (r.kind, r.line_in_item)).collect();
    assert_eq!(
        lines,
        [
            (RowKind::HunkHeader, 0),
            (RowKind::Context, 0),
            (RowKind::Removed, 1),
            (RowKind::Added, 2),
            (RowKind::Added, 3),
            (RowKind::Eof, 1),
        ]
    );
    assert_eq!(
        (rows[2].pair, rows[4].pair, rows[3].pair),
        (Some(4), Some(2), None)
    );
}

/// Case C01: a line that only lost its carriage return is marked as such.
#[test]
fn a_changed_line_end_is_told_from_a_changed_line() {
    let (old, new) = (b"one\r\ntwo\r\nthree\r\n", b"one\r\nTWO\r\nthree\nfour\r\n");
    let rows = rows(old, new, &diff(old, new), 3);
    let eol: Vec<&[u8]> = rows
        .iter()
        .filter(|r| r.eol_only)
        .map(|r| r.bytes.as_slice())
        .collect();
    assert_eq!(eol, [&b"three\r"[..], b"three"]);
    assert_eq!(
        rows.iter()
            .find(|r| r.bytes == b"three\r")
            .map(|r| r.changed[0].clone()),
        Some(5..6)
    );
}

fn marked(a: &str, b: &str) -> (Vec<String>, Vec<String>) {
    let (x, y) = words::changed(a.as_bytes(), b.as_bytes());
    let cut =
        |s: &str, ranges: Vec<Range<usize>>| ranges.into_iter().map(|r| s[r].to_owned()).collect();
    (cut(a, x), cut(b, y))
}

#[test]
fn words_that_differ_are_marked_whole() {
    assert_eq!(
        marked("let total = sum(a, b);", "let count = sum(a, c);"),
        (
            vec!["total".into(), "b".into()],
            vec!["count".into(), "c".into()]
        )
    );
    assert_eq!(
        marked("foo", "foobar"),
        (vec!["foo".into()], vec!["foobar".into()])
    );
    assert_eq!(marked("foo bar", "foo"), (vec![" bar".into()], vec![]));
    assert_eq!(marked("x é", "x è"), (vec!["é".into()], vec!["è".into()]));
}

/// Case C11: one byte of a very long line.
#[test]
fn a_change_deep_in_a_long_line_is_found() {
    let old = vec![b'a'; 3_000_000];
    let mut new = old.clone();
    new[2_900_000] = b'Z';
    let (in_old, in_new) = words::changed(&old, &new);
    assert_eq!((in_old.len(), in_old[0].clone()), (1, 2_900_000..2_900_001));
    assert_eq!(in_new, in_old);
    let spaced: Vec<u8> = b"abc ".repeat(700_000);
    let mut edited = spaced.clone();
    edited[2_000_001] = b'Z';
    assert_eq!(words::changed(&spaced, &edited).1[0], 2_000_000..2_000_003);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_of_the_whole_file_are_both_files(
        old in prop::collection::vec(prop::sample::select(vec!["a\n", "ab c\n", "c\r\n", "c\n", "\n", "d"]), 0..20),
        new in prop::collection::vec(prop::sample::select(vec!["a\n", "ab d\n", "c\r\n", "c\n", "\n", "d"]), 0..20),
        context in 0..4usize,
    ) {
        let (old, new) = (old.concat().into_bytes(), new.concat().into_bytes());
        let d = diff(&old, &new);
        let all = rows(&old, &new, &d, usize::MAX);
        if !d.is_empty() {
            let side = |skip: RowKind| {
                all.iter()
                    .filter(|r| ![skip, RowKind::HunkHeader, RowKind::Eof].contains(&r.kind))
                    .map(|r| r.bytes.as_slice())
                    .collect::<Vec<_>>()
            };
            prop_assert_eq!(side(RowKind::Added), Lines::of(&old).lines);
            prop_assert_eq!(side(RowKind::Removed), Lines::of(&new).lines);
        }
        for row in rows(&old, &new, &d, context) {
            for range in &row.changed {
                prop_assert!(range.start < range.end && range.end <= row.bytes.len());
            }
            if let Some(id) = row.item {
                let lines = (row.kind != RowKind::Eof).then_some((row.line_in_item, row.line_in_item));
                let chosen = [crate::diff::ItemRef { id, lines }];
                prop_assert!(select(&old, &new, &d, &chosen).is_ok());
            }
        }
    }

    #[test]
    fn unmarked_bytes_are_equal(a in "[ab é_.-]{0,20}", b in "[ab é_.-]{0,20}") {
        let (in_a, in_b) = words::changed(a.as_bytes(), b.as_bytes());
        let rest = |s: &str, marked: &[Range<usize>]| {
            s.bytes()
                .enumerate()
                .filter(|(i, _)| !marked.iter().any(|r| r.contains(i)))
                .map(|(_, b)| b)
                .collect::<Vec<u8>>()
        };
        prop_assert_eq!(rest(&a, &in_a), rest(&b, &in_b));
        for (text, ranges) in [(&a, &in_a), (&b, &in_b)] {
            prop_assert!(ranges.iter().all(|r| text.is_char_boundary(r.start) && text.is_char_boundary(r.end)));
        }
    }
}
