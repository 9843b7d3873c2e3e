//! From what a person says to the bytes a commit writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use pvisor::change::{Change, ChangeKind, Class};
use pvisor::commit::Selection;
use pvisor::diff::{self, ItemKind};
use pvisor::layer::{Digest, FileType, Node, Timestamp};
use pvisor::protocol::{Failure, Say, Target};
use pvisor::review::{self, Decisions, Summary};
use pvisor::session::state::{SessionState, Update};
use pvisor::{LayerPath, RelPath};

fn key(path: &str) -> LayerPath {
    LayerPath::new("workspace", RelPath::try_from(path).expect("a path"))
}

fn node(content: &[u8], mode: u32) -> Node {
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
        xattrs: BTreeMap::new(),
        digest: Some(Digest::of(content)),
    }
}

fn change(path: &str, kind: ChangeKind, old: Option<&[u8]>, new: Option<&[u8]>) -> Change {
    let before = old.map(|bytes| node(bytes, 0o644));
    let after = new.map(|bytes| node(bytes, 0o644));
    let diff = old.zip(new).map(|(old, new)| diff::diff(old, new));
    Change {
        key: key(path),
        items: diff::items(&kind, before.as_ref(), after.as_ref(), diff.as_ref()),
        kind,
        class: Class::Plain,
        before: before.map(Arc::new),
        after: after.map(Arc::new),
        binary: false,
        added: 0,
        removed: 0,
        digest: Digest::of(
            &[
                path.as_bytes(),
                old.unwrap_or_default(),
                b"|",
                new.unwrap_or_default(),
            ]
            .concat(),
        ),
        risks: Vec::new(),
        conflict: None,
        merges: None,
    }
}

fn say(state: &mut SessionState, target: &Target, say: &Say) -> Result<(), Failure> {
    for (key, items) in review::expand(&state.changes, target)? {
        let change = &state.changes[&key];
        let current = state.decisions.get(&key);
        let decision = review::decide(current, change, items.as_deref(), say, "ann")?;
        state.apply(&Update::Decided { key, decision });
    }
    Ok(())
}

/// Acceptance 2: a file and one hunk approved, a deletion rejected.
#[test]
fn approve_a_file_and_a_hunk_and_reject_a_deletion() {
    let (old, new) = (&b"1\n2\n3\n4\n"[..], &b"one\n2\n3\nfour\n"[..]);
    let mut state = SessionState::default();
    state.apply(&Update::ChangesMoved {
        changed: vec![
            change("a.txt", ChangeKind::Modified, Some(old), Some(new)).into(),
            change("b.txt", ChangeKind::Added, None, Some(b"hi\n")).into(),
            change("gone.txt", ChangeKind::Deleted, Some(b"x"), None).into(),
        ],
        gone: Vec::new(),
    });
    let first = state.changes[&key("a.txt")].items[0].id.clone();
    say(&mut state, &Target::Path(key("b.txt")), &Say::Approve).expect("known");
    say(
        &mut state,
        &Target::Items(key("a.txt"), vec![first.into()]),
        &Say::Approve,
    )
    .expect("known");
    let keep = Say::Reject(Some("keep".into()));
    say(&mut state, &Target::Path(key("gone.txt")), &keep).expect("known");

    let decision = &state.decisions[&key("gone.txt")];
    assert_eq!(review::reason(decision).as_deref(), Some("keep"));
    let summaries: Vec<Summary> = state
        .changes
        .values()
        .map(|c| review::summary(c, state.decisions.get(&c.key)))
        .collect();
    assert_eq!(
        summaries,
        [Summary::Mixed, Summary::Approved, Summary::Rejected]
    );

    let approved = review::resolve(&state.changes, &state.decisions);
    let paths: Vec<_> = approved.iter().map(|a| a.change.key.to_string()).collect();
    assert_eq!(paths, ["a.txt", "b.txt"]);
    assert_eq!(approved[1].selection, Selection::Whole);
    let Selection::Items(items) = &approved[0].selection else {
        panic!("one hunk of two is not the whole file");
    };
    let d = diff::diff(old, new);
    assert_eq!(
        diff::select(old, new, &d, items).expect("selects"),
        b"one\n2\n3\n4\n"
    );

    // `--all` takes the rest, but not what was rejected.
    let approved = review::resolve_all(&state.changes, &state.decisions, false, "ann");
    assert!(approved.iter().all(|a| a.selection == Selection::Whole));
    assert_eq!(approved.len(), 2);
}

/// Case C15: the rename and its content are apart, and either name addresses them.
#[test]
fn a_rename_is_decided_apart_from_its_content() {
    let old: Vec<u8> = (1..=50)
        .flat_map(|n| format!("{n}\n").into_bytes())
        .collect();
    let new = String::from_utf8(old.clone())
        .expect("digits")
        .replace("\n5\n", "\nfive\n");
    let renamed = ChangeKind::Renamed {
        from: RelPath::try_from("old.txt").expect("a path"),
    };
    let change = change("new.txt", renamed, Some(&old), Some(new.as_bytes()));
    let kinds: Vec<_> = change.items.iter().map(|i| i.kind).collect();
    assert_eq!(kinds, [ItemKind::Whole, ItemKind::Hunk]);
    let hunk = change.items[1].id.clone();
    let mut state = SessionState::default();
    state.apply(&Update::ChangesMoved {
        changed: vec![Arc::new(change)],
        gone: Vec::new(),
    });
    say(
        &mut state,
        &Target::Items(key("old.txt"), vec![hunk.clone().into()]),
        &Say::Approve,
    )
    .expect("known by its old name");
    let approved = review::resolve(&state.changes, &state.decisions);
    assert_eq!(approved[0].selection, Selection::Items(vec![hunk.into()]));
    say(&mut state, &Target::Path(key("old.txt")), &Say::Approve).expect("known");
    let approved = review::resolve(&state.changes, &state.decisions);
    assert_eq!(approved[0].selection, Selection::Whole);
}

/// Case C17: approving a link does not approve what it points to.
#[test]
fn a_link_is_one_item_of_its_own() {
    let link = |target: &[u8]| Node {
        file_type: FileType::Symlink,
        target: Some(target.to_vec()),
        ..node(target, 0o777)
    };
    let (before, after) = (link(b"real"), link(b"/etc/hostname"));
    let mut l1 = change("l1", ChangeKind::Modified, None, None);
    l1.items = diff::items(&l1.kind, Some(&before), Some(&after), None);
    assert_eq!(l1.items.len(), 1);
    assert_eq!(l1.items[0].kind, ItemKind::Link);
    let changes: BTreeMap<_, _> = [
        l1,
        change("real", ChangeKind::Modified, Some(b"a\n"), Some(b"b\n")),
    ]
    .into_iter()
    .map(|c| (c.key.clone(), Arc::new(c)))
    .collect();
    let decision = review::decide(None, &changes[&key("l1")], None, &Say::Approve, "ann")
        .expect("its own items")
        .expect("a decision");
    let decisions = Decisions::from([(key("l1"), decision)]);
    let approved = review::resolve(&changes, &decisions);
    assert_eq!(approved.len(), 1);
    assert_eq!(approved[0].change.key, key("l1"));
}

/// Case C32 (c): version 2 is never taken under version 1's approval.
#[test]
fn a_file_that_moves_on_is_undecided_again() {
    let v1 = change("t", ChangeKind::Added, None, Some(b"v1\n"));
    let v2 = change("t", ChangeKind::Added, None, Some(b"v2\n"));
    let mut state = SessionState::default();
    let moved = |change: &Change| Update::ChangesMoved {
        changed: vec![Arc::new(change.clone())],
        gone: Vec::new(),
    };
    state.apply(&moved(&v1));
    say(&mut state, &Target::All, &Say::Approve).expect("something to approve");
    assert_eq!(review::resolve(&state.changes, &state.decisions).len(), 1);
    state.apply(&moved(&v2));
    assert!(review::resolve(&state.changes, &state.decisions).is_empty());
    assert_eq!(state.voided.get(&key("t")), Some(&v1.digest));
    let unknown = say(&mut state, &Target::Path(key("nope")), &Say::Approve);
    assert_eq!(unknown, Err(Failure::UnknownPath(key("nope"))));
}
