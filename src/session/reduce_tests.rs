//! The reducer, as server, client and replay use it.

use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::RelPath;
use crate::change::{ChangeKind, Class};
use crate::commit::{Outcome, Refusal};
use crate::diff::{Item, ItemId, ItemKind, ItemRef, Span};
use crate::layer::{Digest, Driver, FileType, Layer, Node, Timestamp};
use crate::overlay::Access;
use crate::policy::message::{Attempted, Withdrawn};
use crate::policy::{Answer, AnswerFiles, Level, Origin, Rule, Subject};
use crate::protocol::Role;
use crate::sandbox::{Boundary, Mode};
use crate::session::state::{AnsweredBy, Ask, CommitRecord, Person, Remark, SessionInfo};

fn key(path: &str) -> LayerPath {
    LayerPath::new("workspace", RelPath::new(path.as_bytes()).unwrap())
}

fn hunk(id: &str) -> Item {
    Item {
        id: ItemId(id.into()),
        kind: ItemKind::Hunk,
        old: Span { start: 1, len: 1 },
        new: Span { start: 1, len: 1 },
    }
}

fn node() -> Node {
    Node {
        file_type: FileType::Symlink,
        mode: 0o777,
        uid: 1000,
        gid: 1000,
        size: 3,
        mtime: Timestamp { sec: -1, nsec: 9 },
        ctime: Timestamp::default(),
        dev: 7,
        ino: 8,
        nlink: 1,
        rdev: 0,
        target: Some(b"\xff\x1b".to_vec()),
        xattrs: [("user.a".to_owned(), vec![0, 255])].into(),
        digest: Some(Digest::of(b"x")),
    }
}

/// Version `version` of a change, with the hunks `h1` and `h2`.
fn change(path: &str, version: u8) -> Change {
    Change {
        key: key(path),
        kind: ChangeKind::Renamed {
            from: RelPath::new(*b"\xfe/old").unwrap(),
        },
        class: Class::Plain,
        before: Some(Arc::new(node())),
        after: None,
        binary: false,
        added: 1,
        removed: 2,
        digest: Digest::of(&[version]),
        risks: vec![crate::change::Risk::Delete],
        conflict: Some(crate::change::Conflict::HostAddedInside {
            path: RelPath::new(*b"\xff").unwrap(),
        }),
        merges: None,
        items: vec![hunk("h1"), hunk("h2")],
    }
}

fn decision(version: u8, verdicts: &[(&str, bool)]) -> FileDecision {
    FileDecision {
        digest: Digest::of(&[version]),
        verdicts: verdicts
            .iter()
            .map(|(id, approved)| {
                let verdict = if *approved {
                    Verdict::Approved
                } else {
                    Verdict::Rejected {
                        reason: Some("no".into()),
                    }
                };
                (ItemRef::from(ItemId((*id).into())), verdict)
            })
            .collect(),
        by: "ann".into(),
    }
}

fn moved(changed: Vec<Change>, gone: &[&str]) -> Update {
    Update::ChangesMoved {
        changed: changed.into_iter().map(Arc::new).collect(),
        gone: gone.iter().map(|p| key(p)).collect(),
    }
}

fn decided(path: &str, decision: Option<FileDecision>) -> Update {
    Update::Decided {
        key: key(path),
        decision,
    }
}

fn started() -> Update {
    Update::Started {
        boundary: Box::new(Boundary {
            mode: "staged".into(),
            ..Boundary::default()
        }),
        command: vec!["sh".into()],
        at: Timestamp::default(),
    }
}

fn exited() -> Update {
    Update::Exited {
        status: ExitStatus::Code(0),
        at: Timestamp { sec: 5, nsec: 0 },
    }
}

fn committed(number: u32, undoes: Option<u32>, paths: &[&str]) -> Update {
    Update::Committed(CommitRecord {
        number,
        undoes,
        paths: paths.iter().map(|p| key(p)).collect(),
        at: Timestamp::default(),
        by: "ann".into(),
    })
}

fn after(updates: impl IntoIterator<Item = Update>) -> SessionState {
    let mut state = SessionState::default();
    for update in updates {
        state.apply(&update);
    }
    state
}

const ALL: &[(&str, bool)] = &[("h1", true), ("h2", true)];
const NONE: &[(&str, bool)] = &[("h1", false), ("h2", false)];

/// Case C32 (c).
#[test]
fn a_rewritten_file_falls_back_to_undecided_and_says_so() {
    let mut state = after([
        started(),
        moved(vec![change("t", 1)], &[]),
        decided("t", Some(decision(1, ALL))),
    ]);
    // A conflict that turns up is no new content.
    let mut conflicting = change("t", 1);
    conflicting.conflict = None;
    state.apply(&moved(vec![conflicting], &[]));
    assert_eq!(state.decisions.len(), 1);

    state.apply(&moved(vec![change("t", 2)], &[]));
    assert!(state.decisions.is_empty());
    assert_eq!(state.voided.get(&key("t")), Some(&Digest::of(&[1])));
    // A decision on version 1 that arrives late is none on version 2.
    state.apply(&decided("t", Some(decision(1, ALL))));
    assert!(state.decisions.is_empty());
    // Version 1 again: it is not approved by itself.
    state.apply(&moved(vec![change("t", 1)], &[]));
    assert!(state.decisions.is_empty() && state.voided.is_empty());
}

#[test]
fn the_run_state_follows_what_happened() {
    let mut state = after([started()]);
    assert_eq!(state.run, Some(RunState::Running));
    state.apply(&moved(vec![change("a", 1), change("b", 1)], &[]));
    state.apply(&exited());
    assert_eq!(state.run, Some(RunState::Exited));
    assert_eq!(state.ended, Some(Timestamp { sec: 5, nsec: 0 }));
    state.apply(&decided("b", Some(decision(1, NONE))));
    state.apply(&decided("a", Some(decision(1, ALL))));
    state.apply(&committed(1, None, &["a"]));
    state.apply(&moved(vec![], &["a"]));
    // Only what was rejected is left.
    assert_eq!(state.run, Some(RunState::Committed));
    state.apply(&decided("b", None));
    assert_eq!(state.run, Some(RunState::Exited));
    state.apply(&moved(vec![], &["b"]));
    assert_eq!(state.run, Some(RunState::Committed));
    // Undone: the change is back.
    state.apply(&committed(2, Some(1), &["a"]));
    state.apply(&moved(vec![change("a", 1)], &[]));
    assert_eq!(state.run, Some(RunState::Exited));
    assert!(!state.has_commit());
    state.apply(&committed(3, Some(2), &["a"]));
    assert!(state.has_commit());
    state.apply(&started());
    state.apply(&Update::Lost);
    assert_eq!(state.run, Some(RunState::Lost));
    assert_eq!(state.exit, Some(ExitStatus::Lost));
    state.apply(&Update::Discarded);
    assert_eq!(state.run, Some(RunState::Discarded));
    assert!(state.changes.is_empty());
}

#[test]
fn ignored_and_home_changes_do_not_keep_a_session_open() {
    let mut ignored = change("target", 1);
    ignored.class = Class::Ignored;
    let mut home = change(".cache", 1);
    home.key.layer = crate::layer::HOME.into();
    let state = after([
        started(),
        moved(vec![ignored, home], &[]),
        committed(1, None, &["a"]),
        exited(),
    ]);
    assert_eq!(state.run, Some(RunState::Committed));
}

#[test]
fn what_was_rejected_stays_so_when_the_rest_is_committed() {
    let mut rest = change("a", 2);
    rest.items.remove(0);
    let state = after([
        started(),
        exited(),
        moved(vec![change("a", 1)], &[]),
        decided("a", Some(decision(1, &[("h1", true), ("h2", false)]))),
        committed(1, None, &["a"]),
        moved(vec![rest], &[]),
    ]);
    assert_eq!(
        state.decisions.get(&key("a")),
        Some(&decision(2, &[("h2", false)]))
    );
    assert_eq!(state.run, Some(RunState::Committed));
    assert!(state.carried.is_empty());
}

#[test]
fn notices_and_people_are_bounded_by_what_is_there() {
    let mut state = SessionState::default();
    for n in 0..150 {
        state.apply(&Update::Noticed(n.to_string()));
    }
    assert_eq!(state.notices.len(), 100);
    assert_eq!(state.notices[0], "50");
    let person = Person {
        client: 3,
        user: "ann".into(),
        role: Role::Driver,
    };
    state.apply(&Update::Joined(person.clone()));
    state.apply(&Update::Joined(person));
    assert_eq!(state.people.len(), 1);
    state.apply(&Update::Left(3));
    assert!(state.people.is_empty());
}

fn one_of_each() -> Vec<Update> {
    use std::os::unix::ffi::OsStringExt;
    let odd = PathBuf::from(std::ffi::OsString::from_vec(b"/w/\xff".to_vec()));
    vec![
        Update::Opened(Box::new(SessionInfo {
            settings: crate::config::SessionSettings::default(),
            id: "20261130-131602-x7k2".into(),
            name: "sh 1".into(),
            user: "ann".into(),
            mode: Mode::Staged,
            command: vec!["sh".into()],
            dir: odd.clone(),
            workspace: odd.clone(),
            layers: vec![Layer {
                name: "workspace".into(),
                root: odd.clone(),
                dir: odd.clone(),
                driver: Driver::Overlayfs,
            }],
            started: Timestamp { sec: -7, nsec: 1 },
        })),
        started(),
        exited(),
        Update::Exited {
            status: ExitStatus::Signal(9),
            at: Timestamp::default(),
        },
        Update::Lost,
        moved(vec![change("a", 1), change("b", 2)], &["c"]),
        decided("a", Some(decision(1, &[("h1", true), ("h2", false)]))),
        decided("a", None),
        Update::Reverted {
            paths: vec![key("a")],
            by: "ann".into(),
        },
        committed(2, Some(1), &["a"]),
        Update::NotCommitted(Outcome::Refused {
            refusals: vec![Refusal {
                key: key("a"),
                reason: "busy".into(),
            }],
        }),
        Update::NotCommitted(Outcome::Unsettled {
            number: 1,
            reason: "disk".into(),
            ledger: odd,
        }),
        Update::Discarded,
        Update::Joined(Person {
            client: 1,
            user: "ann".into(),
            role: Role::Observer,
        }),
        Update::Left(1),
        Update::Noticed("a notice".into()),
        guarded(),
        asked(1),
        asked(2),
        answered(1),
        Update::Remembered(answer()),
        Update::Forgotten(answer()),
        Update::Warned(Box::new(Remark {
            level: Level::Deny,
            what: attempted(),
            at: Timestamp::default(),
        })),
        Update::WarnedMore(3),
    ]
}

fn attempted() -> Attempted {
    Attempted {
        key: LayerPath::new("workspace", RelPath::new(*b"\xff/k").unwrap()),
        access: Access::Read,
        pid: 7,
        program: "cat".into(),
        glob: "*.k".into(),
    }
}

fn answer() -> Answer {
    Answer {
        allow: true,
        origin: Origin::Session,
        subject: Subject::Below(b"/w/\xff".to_vec()),
    }
}

fn guarded() -> Update {
    Update::Guarded {
        rules: vec![Rule::new(Level::Ask, "*.k", Origin::User).unwrap()],
        answers: vec![answer()],
        files: AnswerFiles {
            user: "/c/answers.json".into(),
            workspace: PathBuf::new(),
        },
    }
}

fn asked(id: u64) -> Update {
    Update::Asked(Box::new(Ask {
        id,
        what: attempted(),
        at: Timestamp::default(),
        until: Timestamp { sec: 300, nsec: 0 },
    }))
}

fn answered(ask: u64) -> Update {
    Update::Answered {
        ask,
        allow: false,
        by: AnsweredBy::Nobody(Withdrawn::TimedOut),
        at: Timestamp::default(),
    }
}

#[test]
fn questions_end_with_their_answer_or_with_the_command() {
    let mut state = after([started(), guarded(), asked(1), asked(2)]);
    assert_eq!((state.asks.len(), state.rules.len()), (2, 1));
    state.apply(&answered(1));
    state.apply(&answered(1));
    assert_eq!(state.asks.keys().copied().collect::<Vec<_>>(), [2]);
    state.apply(&exited());
    assert!(state.asks.is_empty());
    assert_eq!(state.rules.len(), 1, "what was in force is still told");
    state.apply(&started());
    assert!(state.rules.is_empty(), "until another command runs without");
    assert_eq!((state.answers.len(), state.last_ask), (1, 2));
    for id in 0..1_000 {
        state.apply(&asked(id));
        state.apply(&one_of_each()[one_of_each().len() - 2]);
    }
    assert!(state.asks.len() <= 256 && state.remarks.len() <= 200);
    assert_eq!(state.remarks.len() as u64 + state.more_remarks, 1_000);
}

#[test]
fn every_update_survives_journal_and_wire() {
    for update in one_of_each() {
        let line = serde_json::to_string(&update).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Update>(&line).unwrap(), update);
        let wire = postcard::to_stdvec(&update).unwrap();
        assert_eq!(postcard::from_bytes::<Update>(&wire).unwrap(), update);
    }
}

fn any_update() -> impl Strategy<Value = Update> {
    let path = prop::sample::select(vec!["a", "b", "c"]);
    let some_change = (path.clone(), 0..3u8).prop_map(|(p, v)| change(p, v));
    let paths = prop::collection::vec(path.clone(), 0..3);
    let some_decision = prop::option::of((0..3u8, any::<bool>(), any::<bool>()))
        .prop_map(|d| d.map(|(v, a, b)| decision(v, &[("h1", a), ("h2", b)])));
    prop_oneof![
        3 => (prop::collection::vec(some_change, 0..3), paths.clone())
            .prop_map(|(changed, gone)| moved(changed, &gone)),
        3 => (path, some_decision).prop_map(|(p, d)| decided(p, d)),
        2 => (1..4u32, prop::option::of(1..4u32), paths.clone())
            .prop_map(|(n, u, p)| committed(n, u, &p)),
        1 => paths.prop_map(|p| Update::Reverted {
            paths: p.into_iter().map(key).collect(),
            by: "ann".into(),
        }),
        3 => prop::sample::select(one_of_each()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn replicas_agree_and_decisions_fit(
        updates in prop::collection::vec(any_update(), 0..40),
        joins_at in 0..40usize,
    ) {
        let mut server = SessionState::default();
        let mut from_start = SessionState::default();
        let mut replayed = SessionState::default();
        let mut late: Option<SessionState> = None;
        for (n, update) in updates.iter().enumerate() {
            if n == joins_at {
                let snapshot = postcard::to_stdvec(&server).unwrap();
                late = Some(postcard::from_bytes(&snapshot).unwrap());
            }
            let wire = postcard::to_stdvec(update).unwrap();
            let received: Update = postcard::from_bytes(&wire).unwrap();
            let line = serde_json::to_string(update).unwrap();
            server.apply(update);
            from_start.apply(&received);
            replayed.apply(&serde_json::from_str(&line).unwrap());
            if let Some(late) = &mut late {
                late.apply(&received);
            }
            for (key, decision) in &server.decisions {
                prop_assert_eq!(server.changes.get(key).map(|c| c.digest), Some(decision.digest));
            }
        }
        prop_assert_eq!(&server, &from_start);
        prop_assert_eq!(&server, &replayed);
        if let Some(late) = late {
            prop_assert_eq!(&server, &late);
        }
    }
}
