//! Decisions as a person makes them, and what a commit may take of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::RelPath;
use crate::change::{Change, ChangeKind, ChangeSet, Class, Risk};
use crate::commit::Selection;
use crate::diff::{Item, ItemId, ItemKind, ItemRef, Span};
use crate::layer::{FileType, Node, Timestamp};
use crate::protocol::{Failure, Say, Target};

fn key(path: &str) -> LayerPath {
    LayerPath::new("workspace", RelPath::try_from(path).unwrap())
}

fn item(id: &str, kind: ItemKind, old: u32, new: u32) -> Item {
    Item {
        id: ItemId(id.into()),
        kind,
        old: Span { start: 1, len: old },
        new: Span { start: 1, len: new },
    }
}

fn change(path: &str, items: Vec<Item>) -> Change {
    Change {
        key: key(path),
        kind: ChangeKind::Modified,
        class: Class::Plain,
        before: None,
        after: None,
        binary: false,
        added: 0,
        removed: 0,
        digest: Digest::of(path.as_bytes()),
        risks: Vec::new(),
        conflict: None,
        merges: None,
        items,
    }
}

fn two_hunks() -> Change {
    change(
        "a.txt",
        vec![
            item("h1111", ItemKind::Hunk, 2, 3),
            item("h2222", ItemKind::Hunk, 0, 1),
            item("m3333", ItemKind::Mode, 0, 0),
        ],
    )
}

fn one(change: Change) -> ChangeSet {
    BTreeMap::from([(change.key.clone(), Arc::new(change))])
}

fn parsed(text: &str) -> ItemRef {
    parse_item(text).unwrap()
}

fn say(
    current: Option<FileDecision>,
    change: &Change,
    items: &[&str],
    say: &Say,
) -> Option<FileDecision> {
    let items: Vec<ItemRef> = items.iter().map(|i| parsed(i)).collect();
    let items = (!items.is_empty()).then_some(items.as_slice());
    decide(current.as_ref(), change, items, say, "ann").unwrap()
}

fn shown(decision: Option<&FileDecision>) -> Vec<String> {
    decision
        .iter()
        .flat_map(|d| &d.verdicts)
        .map(|(named, verdict)| {
            let sign = if *verdict == Verdict::Approved {
                '+'
            } else {
                '-'
            };
            format!("{sign}{named}")
        })
        .collect()
}

#[test]
fn whole_changes_are_approved_and_reset() {
    let c = two_hunks();
    let d = say(None, &c, &[], &Say::Approve);
    assert_eq!(shown(d.as_ref()), ["+h1111", "+h2222", "+m3333"]);
    assert_eq!(summary(&c, d.as_ref()), Summary::Approved);
    assert_eq!(say(d, &c, &[], &Say::Reset), None);
}

#[test]
fn later_lines_replace_earlier_ones() {
    let c = two_hunks();
    let d = say(None, &c, &["h1111"], &Say::Approve);
    let d = say(d, &c, &["h1111:2-3"], &Say::Reject(Some("why".into())));
    assert_eq!(shown(d.as_ref()), ["+h1111:1", "-h1111:2-3", "+h1111:4-5"]);
    assert_eq!(item_summary(&c.items[0], d.as_ref()), Summary::Mixed);
    assert_eq!(item_summary(&c.items[1], d.as_ref()), Summary::Undecided);
    assert_eq!(
        line_verdict(&c.items[0], 1, d.as_ref()),
        Some(Verdict::Approved)
    );
    assert_eq!(line_verdict(&c.items[1], 1, d.as_ref()), None);
    assert_eq!(reason(d.as_ref().unwrap()).as_deref(), Some("why"));
    // Lines that add up to the item are the item again.
    let d = say(d, &c, &["h1111:2", "h1111:3"], &Say::Approve);
    assert_eq!(shown(d.as_ref()), ["+h1111"]);
    let d = say(d, &c, &["h1111:1-4"], &Say::Reset);
    assert_eq!(shown(d.as_ref()), ["+h1111:5"]);
}

#[test]
fn unknown_items_and_lines_name_the_known_ones() {
    let c = two_hunks();
    let failure = |text: &str| {
        decide(None, &c, Some(&[parsed(text)]), &Say::Approve, "ann")
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        failure("h9999"),
        "a.txt has no item h9999; it has h1111, h2222, m3333"
    );
    assert_eq!(
        failure("h1111:5-6"),
        "a.txt has no item h1111:5-6: h1111 has lines 1 to 5"
    );
    assert_eq!(
        failure("m3333:1"),
        "a.txt has no item m3333:1: m3333 is decided on as a whole"
    );
}

/// Case C32 (c): what was said of v1 does not hold for v2.
#[test]
fn a_decision_holds_for_the_bytes_it_was_made_on() {
    let c = two_hunks();
    let d = say(None, &c, &[], &Say::Approve).unwrap();
    let mut moved = c.clone();
    moved.digest = Digest::of(b"other");
    assert_eq!(summary(&moved, Some(&d)), Summary::Undecided);
    let decisions = Decisions::from([(c.key.clone(), d.clone())]);
    assert!(resolve(&one(moved.clone()), &decisions).is_empty());
    // Deciding on one item of the new version does not bring the old approvals along.
    let d = say(Some(d), &moved, &["h2222"], &Say::Reject(None));
    assert_eq!(shown(d.as_ref()), ["-h2222"]);
}

#[test]
fn a_commit_takes_what_is_approved_and_no_more() {
    let c = two_hunks();
    let all = |d: FileDecision| resolve(&one(c.clone()), &Decisions::from([(c.key.clone(), d)]));
    let d = say(None, &c, &[], &Say::Approve);
    assert_eq!(all(d.clone().unwrap())[0].selection, Selection::Whole);
    let d = say(d, &c, &["h1111:1"], &Say::Reject(None));
    assert_eq!(
        all(d.unwrap())[0].selection,
        Selection::Items(vec![parsed("h1111:2-5"), parsed("h2222"), parsed("m3333")])
    );
    let d = say(None, &c, &["h2222"], &Say::Reject(None));
    assert!(all(d.unwrap()).is_empty());
}

#[test]
fn all_leaves_out_what_is_rejected_ignored_at_home_or_a_socket() {
    let plain = two_hunks();
    let mut ignored = change("target/x", vec![item("w1", ItemKind::Whole, 0, 0)]);
    ignored.class = Class::Ignored;
    let mut home = change(".bashrc", vec![item("w2", ItemKind::Whole, 0, 0)]);
    home.key.layer = crate::layer::HOME.into();
    let mut socket = change("s", vec![item("w3", ItemKind::Whole, 0, 0)]);
    socket.risks = vec![Risk::Uncommittable];
    let changes: BTreeMap<_, _> = [plain.clone(), ignored.clone(), home, socket]
        .into_iter()
        .map(|c| (c.key.clone(), Arc::new(c)))
        .collect();
    let rejected = say(None, &plain, &["h1111:1-2"], &Say::Reject(None)).unwrap();
    let decisions = Decisions::from([(plain.key.clone(), rejected)]);

    let taken = resolve_all(&changes, &decisions, false, "ann");
    assert_eq!(taken.len(), 1);
    let rest = ["h1111:3-5", "h2222", "m3333"].map(parsed);
    assert_eq!(taken[0].selection, Selection::Items(rest.to_vec()));
    let with_ignored = resolve_all(&changes, &decisions, true, "ann");
    let keys: Vec<_> = with_ignored.iter().map(|a| a.change.key.clone()).collect();
    assert_eq!(keys, [plain.key.clone(), ignored.key]);
    assert_eq!(with_ignored[1].selection, Selection::Whole);
    assert_eq!(expand(&changes, &Target::All).unwrap(), [(plain.key, None)]);
}

fn dir() -> Node {
    Node {
        file_type: FileType::Dir,
        mode: 0o755,
        uid: 0,
        gid: 0,
        size: 0,
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        dev: 0,
        ino: 0,
        nlink: 2,
        rdev: 0,
        target: None,
        xattrs: BTreeMap::default(),
        digest: None,
    }
}

#[test]
fn paths_cover_subtrees_and_renames_have_two_names() {
    let mut renamed = change("new/b", vec![]);
    renamed.kind = ChangeKind::Renamed {
        from: RelPath::try_from("old/b").unwrap(),
    };
    let mut made = change("new", vec![]);
    made.after = Some(Arc::new(dir()));
    let mut junk = change("target/x", vec![]);
    junk.class = Class::Ignored;
    let changes: BTreeMap<_, _> = [made, renamed, change("new-er", vec![]), junk]
        .into_iter()
        .map(|c| (c.key.clone(), Arc::new(c)))
        .collect();
    let meant = |path: &str| {
        let path = LayerPath::new("workspace", RelPath::parse(path.as_bytes()).unwrap());
        expand(&changes, &Target::Path(path)).map(|found| {
            found
                .into_iter()
                .map(|(key, _)| key.to_string())
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(meant("new").unwrap(), ["new", "new/b"]);
    assert_eq!(meant("old/b").unwrap(), ["new/b"]);
    assert_eq!(meant("old").unwrap(), ["new/b"]);
    assert_eq!(meant(".").unwrap(), ["new", "new-er", "new/b"]);
    assert_eq!(meant("target").unwrap(), ["target/x"]);
    assert_eq!(meant("nope"), Err(Failure::UnknownPath(key("nope"))));
    let items = vec![parsed("h12")];
    assert_eq!(
        expand(&changes, &Target::Items(key("old/b"), items.clone())).unwrap(),
        [(key("new/b"), Some(items))]
    );
}

#[test]
fn items_are_read_as_they_are_written() {
    for text in ["h1f3a", "w0", "h1f3a:2", "h1f3a:2-3"] {
        assert_eq!(parse_item(text).unwrap().to_string(), text);
    }
    for text in [
        "",
        "h",
        "q12",
        "hxyz",
        "h1:",
        "h1:0",
        "h1:3-2",
        "h1:1-",
        "h1:-1",
        "H1",
        "h1F",
        "h1:+1",
        "h1:99999999999",
    ] {
        assert_eq!(parse_item(text), None, "{text}");
    }
}

fn any_say() -> impl Strategy<Value = Say> {
    prop_oneof![
        Just(Say::Approve),
        Just(Say::Reject(None)),
        Just(Say::Reject(Some("r".into()))),
        Just(Say::Reset)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A plain model: the last thing said of each line holds.
    #[test]
    fn the_last_word_holds(said in prop::collection::vec((1..7u32, 1..7u32, any_say()), 0..12)) {
        let c = change("f", vec![item("h1", ItemKind::Hunk, 2, 4)]);
        let mut model: [Option<Verdict>; 6] = Default::default();
        let mut decision = None;
        for (a, b, word) in said {
            let (first, last) = (a.min(b), a.max(b));
            let named = ItemRef { id: ItemId("h1".into()), lines: Some((first, last)) };
            decision = decide(decision.as_ref(), &c, Some(&[named]), &word, "ann").unwrap();
            let verdict = match word {
                Say::Approve => Some(Verdict::Approved),
                Say::Reject(reason) => Some(Verdict::Rejected { reason }),
                Say::Reset => None,
            };
            model[first as usize - 1..last as usize].fill(verdict);
        }
        for (index, verdict) in model.iter().enumerate() {
            prop_assert_eq!(&line_verdict(&c.items[0], index as u32 + 1, decision.as_ref()), verdict);
        }
        let is_sorted = decision.iter().all(|d| d.verdicts.is_sorted_by(|a, b| a.0 < b.0));
        prop_assert!(is_sorted);
        prop_assert_eq!(decision.is_none(), model.iter().all(Option::is_none));
    }
}
