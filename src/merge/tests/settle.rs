//! One side's edits, or both between markers.

use proptest::prelude::*;

use super::super::*;
use super::file;

const BASE: &[u8] = b"1\n2\n3\n4\n5\n";
const HOST: &[u8] = b"one\n2\nhost\n4\n5\n";
const AGENT: &[u8] = b"1\n2\nagent\nmore\n4\nfive\n";

#[test]
fn one_sides_edits_stand_where_edits_meet_and_the_rest_of_both_stays() {
    let of = |favour| favoured(BASE, HOST, AGENT, favour);
    assert_eq!(of(Favour::Ours), Some(b"one\n2\nhost\n4\nfive\n".to_vec()));
    assert_eq!(
        of(Favour::Theirs),
        Some(b"one\n2\nagent\nmore\n4\nfive\n".to_vec())
    );
    // The newline at the end goes with the side that has the last line.
    let end = |favour| favoured(b"a\n", b"b", b"c\n", favour).expect("text");
    assert_eq!(
        (end(Favour::Ours), end(Favour::Theirs)),
        (b"b".to_vec(), b"c\n".to_vec())
    );
    assert_eq!(favoured(b"a\0", b"b\0", b"c\0", Favour::Ours), None);
}

#[test]
fn both_stand_between_markers() {
    let marked = marked(BASE, HOST, AGENT).expect("text");
    let text = b"one\n2\n<<<<<<< host\nhost\n=======\nagent\nmore\n>>>>>>> agent\n4\nfive\n";
    assert_eq!(marked.bytes.as_slice(), text);
    assert_eq!((marked.length, marked.regions.len()), (7, 1));
    assert!(holds_markers(text, 7) && !holds_markers(text, 8) && !holds_markers(HOST, 7));
    // Whoever takes a side but forgets a marker has not settled it.
    assert!(holds_markers(b"one\n2\nhost\n>>>>>>> agent\n4\n", 7));
    assert_eq!(
        picked(b"one\n2\nhost\n>>>>>>> agent\n4\n", 7, Favour::Ours),
        None
    );
    assert_eq!(picked(b"<<<<<<< host\na\n", 7, Favour::Ours), None);
}

#[test]
fn line_ends_are_the_files_own() {
    let marked = marked(b"1\r\n2\r\n", b"1\r\nhost\r\n", b"1\r\nagent\r\n").expect("text");
    let text = b"1\r\n<<<<<<< host\r\nhost\r\n=======\r\nagent\r\n>>>>>>> agent\r\n";
    assert_eq!(marked.bytes.as_slice(), text);
    assert!(holds_markers(text, 7));
}

#[test]
fn a_line_that_looks_like_a_marker_makes_them_longer() {
    let host = b"title\n=======\nhost\n<<<<<<<< host\n";
    let marked = marked(b"title\n=======\n2\n", host, b"title\n=======\n3\n").expect("text");
    assert_eq!(marked.length, 9);
    assert_eq!(picked(&marked.bytes, 9, Favour::Ours), Some(host.to_vec()));
}

proptest! {
    #[test]
    fn markers_can_be_picked_apart_to_each_side(base in file(), ours in file(), theirs in file()) {
        let marked = marked(&base, &ours, &theirs).expect("text");
        prop_assert_eq!(holds_markers(&marked.bytes, marked.length), !marked.regions.is_empty());
        for favour in [Favour::Ours, Favour::Theirs] {
            let picked = picked(&marked.bytes, marked.length, favour).expect("in order");
            let favoured = favoured(&base, &ours, &theirs, favour).expect("text");
            // The newline at the end apart, which the markers may have moved away from.
            let body = |bytes: &[u8]| bytes.strip_suffix(b"\n").unwrap_or(bytes).to_vec();
            prop_assert_eq!(body(&picked), body(&favoured));
        }
    }

    /// What was put into the agent's file merges with the host's to itself: cut between the writing
    /// of the one and of the other, nothing of the host's counts as taken away.
    #[test]
    fn a_settled_merge_is_stable(base in file(), ours in file(), theirs in file()) {
        if let Merge::Clean(merged) = merge(&base, &ours, &theirs) {
            prop_assert_eq!(merge(&ours, &ours, &merged), Merge::Clean(merged));
        }
    }
}
