//! Diffs, ids and recombination, on the bytes a person would have.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::RelPath;
use crate::change::ChangeKind;
use crate::layer::{Digest, FileType, Node, Timestamp};

fn refs(diff: &FileDiff) -> Vec<ItemRef> {
    let hunks = diff.hunks.iter().map(|h| h.id.clone().into());
    let eof = diff.eof.iter().map(|e| e.id.clone().into());
    hunks.chain(eof).collect()
}

fn line(id: &ItemId, n: u32) -> ItemRef {
    ItemRef {
        id: id.clone(),
        lines: Some((n, n)),
    }
}

fn selected(old: &[u8], new: &[u8], chosen: &[ItemRef]) -> String {
    String::from_utf8(select(old, new, &diff(old, new), chosen).unwrap()).unwrap()
}

#[test]
fn hunks_are_maximal_changed_runs_without_context() {
    let d = diff(b"1\n2\n3\n4\n5\n", b"1\nTWO\n3\n4\n5\n6\n");
    assert_eq!(d.hunks.len(), 2);
    assert_eq!(d.hunks[0].old, Span { start: 2, len: 1 });
    assert_eq!(d.hunks[0].new, Span { start: 2, len: 1 });
    assert_eq!(d.hunks[1].old, Span { start: 5, len: 0 });
    assert_eq!(d.hunks[1].new, Span { start: 6, len: 1 });
    assert_eq!((d.added, d.removed), (2, 1));
    assert!(d.eof.is_none() && !d.binary && !d.approximate);
}

#[test]
fn a_nul_near_the_front_makes_binary() {
    assert!(diff(b"a\0", b"b").binary);
    assert!(diff(b"a", b"b\0").binary);
    let mut late = vec![b'a'; 8000];
    late.push(0);
    assert!(!diff(&late, b"b").binary);
    assert!(!as_text(b"a\0\n", b"b\n").hunks.is_empty());
}

/// Case C02: every subset of the three lines and the newline at the end.
#[test]
fn every_subset_of_a_file_without_final_newline_is_sane() {
    let (old, new) = (&b"k1\nk2"[..], &b"k1\nmid\nK2\n"[..]);
    let d = diff(old, new);
    assert_eq!(d.hunks.len(), 1);
    let hunk = &d.hunks[0];
    assert_eq!((hunk.old.len, hunk.new.len), (1, 2));
    let eof = d.eof.clone().unwrap();
    assert!(eof.adds);
    for bits in 0..16u32 {
        let mut chosen: Vec<ItemRef> = (0..3)
            .filter(|n| bits & (1 << n) != 0)
            .map(|n| line(&hunk.id, n + 1))
            .collect();
        let mut want: Vec<&str> = vec!["k1"];
        if bits & 2 != 0 {
            want.push("mid");
        }
        if bits & 1 == 0 {
            want.push("k2");
        }
        if bits & 4 != 0 {
            want.push("K2");
        }
        let mut want = want.join("\n");
        if bits & 8 != 0 {
            chosen.push(eof.id.clone().into());
            want.push('\n');
        }
        let got = selected(old, new, &chosen);
        assert_eq!(got, want, "subset {bits:04b}");
        // What is left brings the agent's file.
        let rest = diff(got.as_bytes(), new);
        assert_eq!(
            select(got.as_bytes(), new, &rest, &refs(&rest)).unwrap(),
            new
        );
    }
}

/// Case C01: only the pair of the second line.
#[test]
fn carriage_returns_stay_and_a_pair_stands_in_its_place() {
    let (old, new) = (
        &b"one\r\ntwo\r\nthree\r\n"[..],
        &b"one\r\nTWO\r\nthree\nfour\r\n"[..],
    );
    let d = diff(old, new);
    let id = &d.hunks[0].id;
    assert_eq!(
        selected(old, new, &[line(id, 1), line(id, 3)]),
        "one\r\nTWO\r\nthree\r\n"
    );
}

#[test]
fn empty_files_have_no_newline_item() {
    for (old, new) in [
        (&b""[..], &b"a"[..]),
        (b"", b"a\n"),
        (b"a", b""),
        (b"", b"\n"),
    ] {
        let d = diff(old, new);
        assert!(d.eof.is_none());
        assert_eq!(select(old, new, &d, &refs(&d)).unwrap(), new);
        assert_eq!(select(old, new, &d, &[]).unwrap(), old);
    }
    let only_newline = diff(b"a", b"a\n");
    assert!(only_newline.hunks.is_empty());
    assert_eq!(refs(&only_newline).len(), 1);
}

#[test]
fn what_is_not_in_the_difference_is_refused() {
    let (old, new) = (&b"a\n"[..], &b"b\n"[..]);
    let d = diff(old, new);
    let unknown = ItemRef::from(ItemId("h0000".into()));
    assert!(matches!(
        select(old, new, &d, &[unknown]),
        Err(SelectError::UnknownItem(_))
    ));
    assert!(matches!(
        select(old, new, &d, &[line(&d.hunks[0].id, 3)]),
        Err(SelectError::NoSuchLines { count: 2, .. })
    ));
    assert!(matches!(
        select(b"", b"", &d, &refs(&d)),
        Err(SelectError::Mismatch)
    ));
    // A mode item is no business of the bytes.
    let mode = ItemRef::from(ItemId("m1234".into()));
    assert_eq!(select(old, new, &d, &[mode]).unwrap(), old);
}

#[test]
fn ids_survive_edits_elsewhere() {
    let before = diff(b"1\n2\n3\n4\n5\n6\n", b"1\n2\n3\n4\n5\nSIX\n");
    let after = diff(b"1\n2\n3\n4\n5\n6\n", b"0\n1\n2\nnew\n3\n4\n5\nSIX\n");
    assert_eq!(before.hunks[0].id, after.hunks[2].id);
    // Equal hunks are told apart, and their names too.
    let twins = diff(b"a\nx\nb\nx\nc\nx\n", b"a\ny\nb\ny\nc\ny\n");
    let ids: HashSet<_> = twins.hunks.iter().map(|h| &h.id).collect();
    assert_eq!(ids.len(), 3);
    assert!(
        ids.iter()
            .all(|id| id.0.len() >= 5 && id.0.starts_with('h'))
    );
}

#[test]
fn thousands_of_hunks_have_distinct_names() {
    let old: Vec<String> = (0..40_000).map(|n| format!("{n}\n")).collect();
    let new: Vec<String> = (0..40_000)
        .map(|n| {
            if n % 10 == 0 {
                format!("{n}!\n")
            } else {
                format!("{n}\n")
            }
        })
        .collect();
    let d = diff(old.concat().as_bytes(), new.concat().as_bytes());
    assert_eq!(d.hunks.len(), 4000);
    let ids: HashSet<_> = d.hunks.iter().map(|h| &h.id).collect();
    assert_eq!(ids.len(), 4000);
}

pub(crate) fn node(content: &[u8], mode: u32) -> Node {
    Node {
        file_type: FileType::File,
        mode,
        uid: 1000,
        gid: 1000,
        size: content.len() as u64,
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        dev: 1,
        ino: 1,
        nlink: 1,
        rdev: 0,
        target: None,
        xattrs: std::collections::BTreeMap::default(),
        digest: Some(Digest::of(content)),
    }
}

fn link(target: &[u8]) -> Node {
    Node {
        file_type: FileType::Symlink,
        target: Some(target.to_vec()),
        ..node(target, 0o777)
    }
}

fn kinds(items: &[Item]) -> Vec<&'static str> {
    items.iter().map(|i| i.kind.name()).collect()
}

#[test]
fn items_follow_what_differs() {
    let (a, b) = (&b"1\n2\n3\n"[..], &b"1\nx\n3\ny"[..]);
    let d = diff(a, b);
    let mut after = node(b, 0o755);
    let before = node(a, 0o644);
    let of = |kind: &ChangeKind, x: Option<&Node>, y: Option<&Node>, d: Option<&FileDiff>| {
        kinds(&items(kind, x, y, d))
    };
    assert_eq!(of(&ChangeKind::Added, None, Some(&after), None), ["whole"]);
    assert_eq!(
        of(&ChangeKind::Deleted, Some(&before), None, None),
        ["whole"]
    );
    assert_eq!(
        of(&ChangeKind::Modified, Some(&before), Some(&after), Some(&d)),
        ["hunk", "hunk", "eof", "mode"]
    );
    after.xattrs.insert("user.x".into(), b"1".to_vec());
    let renamed = ChangeKind::Renamed {
        from: RelPath::try_from("old").unwrap(),
    };
    assert_eq!(
        of(&renamed, Some(&before), Some(&after), Some(&d)),
        ["whole", "hunk", "hunk", "eof", "mode", "meta"]
    );
    assert_eq!(of(&renamed, Some(&before), Some(&before), None), ["whole"]);
    let binary = diff(b"\0", b"\0\0");
    assert_eq!(
        of(
            &ChangeKind::Modified,
            Some(&before),
            Some(&after),
            Some(&binary)
        ),
        ["whole"]
    );
    assert_eq!(
        of(
            &ChangeKind::Modified,
            Some(&link(b"a")),
            Some(&link(b"b")),
            None
        ),
        ["link"]
    );
    assert_eq!(
        of(&ChangeKind::Type, Some(&before), Some(&link(b"b")), None),
        ["whole"]
    );
    assert_eq!(
        of(
            &ChangeKind::Mode,
            Some(&before),
            Some(&node(a, 0o755)),
            None
        ),
        ["mode"]
    );
    assert_eq!(
        of(&ChangeKind::Meta, Some(&before), Some(&before), None),
        ["meta"]
    );
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(vec![
        "a",
        "b",
        "c",
        "",
        "d\r",
        "a\r",
        "long line here",
        "\u{202e}",
    ]);
    (prop::collection::vec(line, 0..14), any::<bool>()).prop_map(|(lines, newline)| {
        let mut text = lines.join("\n");
        if newline && !lines.is_empty() {
            text.push('\n');
        }
        text.into_bytes()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn all_is_new_and_none_is_old(old in content(), new in content()) {
        let d = diff(&old, &new);
        prop_assert_eq!(d.is_empty(), old == new);
        prop_assert_eq!(select(&old, &new, &d, &refs(&d)).unwrap(), new.clone());
        prop_assert_eq!(select(&old, &new, &d, &[]).unwrap(), old.clone());
        // Line by line is the same as by hunk.
        let mut single: Vec<ItemRef> = d
            .hunks
            .iter()
            .flat_map(|h| (1..=h.lines()).map(|n| line(&h.id, n)))
            .collect();
        single.extend(d.eof.iter().map(|e| e.id.clone().into()));
        prop_assert_eq!(select(&old, &new, &d, &single).unwrap(), new);
    }

    #[test]
    fn a_subset_and_then_the_rest_is_new(
        old in content(),
        new in content(),
        picks in prop::collection::vec(any::<bool>(), 64),
    ) {
        let d = diff(&old, &new);
        let mut picks = picks.into_iter().cycle();
        let mut chosen = Vec::new();
        for hunk in &d.hunks {
            for n in 1..=hunk.lines() {
                if picks.next() == Some(true) {
                    chosen.push(line(&hunk.id, n));
                }
            }
        }
        if let Some(eof) = d.eof.as_ref().filter(|_| picks.next() == Some(true)) {
            chosen.push(eof.id.clone().into());
        }
        let between = select(&old, &new, &d, &chosen).unwrap();
        // Every line of the result is one of the two files', never two glued together.
        let known: HashSet<&[u8]> = [&old, &new]
            .iter()
            .flat_map(|f| f.split(|b| *b == b'\n'))
            .chain([&b""[..]])
            .collect();
        prop_assert!(between.split(|b| *b == b'\n').all(|l| known.contains(l)));
        let rest = diff(&between, &new);
        prop_assert_eq!(select(&between, &new, &rest, &refs(&rest)).unwrap(), new);
    }

    #[test]
    fn any_bytes_recombine(old in prop::collection::vec(any::<u8>(), 0..60), new in prop::collection::vec(any::<u8>(), 0..60)) {
        let d = as_text(&old, &new);
        prop_assert_eq!(select(&old, &new, &d, &refs(&d)).unwrap(), new);
    }
}
