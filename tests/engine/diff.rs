//! Comparing and recombining, through the doors that the rest of the program uses.

use pvisor::diff::{self, ItemId, ItemRef, RowKind};

fn lines(id: &ItemId, first: u32, last: u32) -> ItemRef {
    ItemRef {
        id: id.clone(),
        lines: Some((first, last)),
    }
}

/// Case C01: accept only the changed pair of a CRLF file whose other lines lost their line ends.
#[test]
fn crlf_accept_one_pair() {
    let old = b"one\r\ntwo\r\nthree\r\n";
    let new = b"one\r\nTWO\r\nthree\nfour\r\n";
    let d = diff::diff(old, new);
    let rows = diff::rows(old, new, &d, 3);
    let pick = |bytes: &[u8]| {
        let row = rows.iter().find(|r| r.bytes == bytes).expect("shown");
        lines(
            row.item.as_ref().expect("an item"),
            row.line_in_item,
            row.line_in_item,
        )
    };
    let got = diff::select(old, new, &d, &[pick(b"two\r"), pick(b"TWO\r")]).expect("selects");
    assert_eq!(got, b"one\r\nTWO\r\nthree\r\n");
    let marks: Vec<_> = rows.iter().filter(|r| r.eol_only).map(|r| r.kind).collect();
    assert_eq!(marks, [RowKind::Removed, RowKind::Added]);
}

/// Case C02: the newline at the end of the file is an item of its own.
#[test]
fn only_the_newline_at_the_end() {
    let (old, new) = (b"k1\nk2", b"k1\nmid\nK2\n");
    let d = diff::diff(old, new);
    let hunk = &d.hunks[0].id;
    let eof = ItemRef::from(d.eof.as_ref().expect("an item").id.clone());
    let select = |chosen: &[ItemRef]| diff::select(old, new, &d, chosen).expect("selects");
    assert_eq!(select(&[lines(hunk, 3, 3)]), b"k1\nk2\nK2");
    assert_eq!(select(&[lines(hunk, 3, 3), eof.clone()]), b"k1\nk2\nK2\n");
    assert_eq!(select(&[eof]), b"k1\nk2\n");
    assert_eq!(select(&[hunk.clone().into()]), b"k1\nmid\nK2");
}

/// Case C12: edits all over a large file, exact, each with its own name, and the same every time.
#[test]
fn a_large_file_with_edits_everywhere() {
    let lines: usize = if crate::thorough() { 200_000 } else { 40_000 };
    let edits = lines / 10;
    let old: Vec<u8> = (1..=lines)
        .flat_map(|n| format!("{n}\n").into_bytes())
        .collect();
    let new: Vec<u8> = (1..=lines)
        .flat_map(|n| format!("{n}{}\n", if n % 10 == 0 { "!" } else { "" }).into_bytes())
        .collect();
    let d = diff::diff(&old, &new);
    assert_eq!(
        (d.hunks.len(), d.added as usize, d.removed as usize),
        (edits, edits, edits)
    );
    assert!(!d.approximate);
    assert_eq!(diff::diff(&old, &new), d);
    let all: Vec<ItemRef> = d.hunks.iter().map(|h| h.id.clone().into()).collect();
    assert_eq!(diff::select(&old, &new, &d, &all).expect("selects"), new);
    assert_eq!(diff::rows(&old, &new, &d, 3).len(), edits * 9 - 3);
}

/// Case C11: one byte deep in a line of three megabytes is found and marked.
#[test]
fn one_byte_in_a_very_long_line() {
    let old = vec![b'a'; 3_000_000];
    let mut new = old.clone();
    new[2_900_000] = b'Z';
    let d = diff::diff(&old, &new);
    let rows = diff::rows(&old, &new, &d, 3);
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[1].changed[0], 2_900_000..2_900_001);
    assert_eq!(rows[2].changed[0], 2_900_000..2_900_001);
}

/// Case C07: bytes that make a file binary do not make it unreadable.
#[test]
fn a_binary_file_can_be_looked_into() {
    let script = b"#!/bin/sh\n: \x1b]x; echo hidden-cmd; \x07\n: \x08\x08\0 \x7f\n";
    assert!(diff::diff(b"", script).binary);
    let d = diff::as_text(b"", script);
    let rows = diff::rows(b"", script, &d, 3);
    let shown: Vec<_> = rows
        .iter()
        .map(|r| pvisor::text::visible(&r.bytes))
        .collect();
    assert_eq!(
        shown,
        [
            "@@ -0,0 +1,3 @@",
            "#!/bin/sh",
            r": \x1b]x; echo hidden-cmd; \x07",
            r": \x08\x08\x00 \x7f"
        ]
    );
    assert_eq!(pvisor::text::count_hidden(script), 6);
}
