//! Several people at one session: who wins, who is told, and what a guest may not do.

use super::*;
use crate::diff::ItemRef;
use crate::policy::{Answer, Origin, Subject};
use crate::protocol::{Resolution, Said};
use crate::sandbox::spec::TerminalSize;

/// A change with two hunks of three lines.
fn two_hunks(path: &str) -> Change {
    let hunk = |id: &str, start| Item {
        id: ItemId(id.into()),
        kind: ItemKind::Hunk,
        old: Span { start, len: 0 },
        new: Span { start, len: 3 },
    };
    Change {
        kind: ChangeKind::Modified,
        items: vec![hunk("h1", 0), hunk("h2", 10)],
        ..change(path, 1)
    }
}

fn decide(items: &[(&str, Option<(u32, u32)>)], say: Say, seen: u64) -> Request {
    let items = items.iter().map(|(id, lines)| ItemRef {
        id: ItemId((*id).into()),
        lines: *lines,
    });
    Request::Decide {
        targets: vec![Target::Items(key("a"), items.collect())],
        say,
        expect: Some(Digest::of(&[1])),
        seen: Some(seen),
    }
}

fn overtaken(by: &str, said: Said) -> Result<Reply, Failure> {
    Err(Failure::Overtaken {
        path: key("a"),
        by: by.into(),
        said,
    })
}

#[test]
fn of_two_who_decide_at_once_the_first_wins_and_the_other_is_told() {
    let reject = || Say::Reject(None);
    let done = || Ok(Reply::Concerned(vec![key("a")]));
    // Whoever comes first.
    for (first, second, winner) in [(1, 2, Say::Approve), (2, 1, reject())] {
        let loser = if first == 1 { reject() } else { Say::Approve };
        let mut scene = Scene::new();
        scene.shows(vec![two_hunks("a")]);
        scene.join(1, Role::Reviewer);
        scene.join(2, Role::Reviewer);
        let both = scene.session.state.said;
        assert_eq!(
            scene.ask(first, decide(&[("h1", None)], winner.clone(), both)),
            done()
        );
        let stands = scene.session.state.decisions.clone();
        assert_eq!(
            scene.ask(second, decide(&[("h1", None)], loser.clone(), both)),
            overtaken(&format!("user{first}"), winner.said())
        );
        // A line of it is no way around, nor is taking it back, nor the file as a whole.
        let line = decide(&[("h1", Some((2, 2)))], loser.clone(), both);
        assert!(matches!(
            scene.ask(second, line),
            Err(Failure::Overtaken { .. })
        ));
        let reset = decide(&[("h1", None)], Say::Reset, both);
        assert!(matches!(
            scene.ask(second, reset),
            Err(Failure::Overtaken { .. })
        ));
        let whole = Request::Decide {
            targets: vec![Target::Path(key("a"))],
            say: loser.clone(),
            expect: Some(Digest::of(&[1])),
            seen: Some(both),
        };
        assert!(matches!(
            scene.ask(second, whole),
            Err(Failure::Overtaken { .. })
        ));
        assert_eq!(
            scene.session.state.decisions, stands,
            "nothing of it was done"
        );
        // The same word twice is no quarrel, another hunk is nobody's business.
        assert_eq!(
            scene.ask(second, decide(&[("h1", None)], winner, both)),
            done()
        );
        assert_eq!(
            scene.ask(second, decide(&[("h2", None)], loser.clone(), both)),
            done()
        );
        // Having seen it, one may say otherwise.
        let seen = scene.session.state.said;
        assert_eq!(
            scene.ask(second, decide(&[("h1", None)], loser, seen)),
            done()
        );
    }
}

#[test]
fn one_person_is_never_overtaken_by_themselves() {
    let mut scene = Scene::new();
    scene.shows(vec![two_hunks("a")]);
    scene.join(1, Role::Reviewer);
    for say in [Say::Approve, Say::Reject(None), Say::Reset] {
        // Faster than the answer comes.
        assert!(scene.ask(1, decide(&[("h1", None)], say, 0)).is_ok());
    }
    // What says nothing of what it has seen is taken at its word, as on the command line.
    scene.join(2, Role::Reviewer);
    assert!(
        scene
            .ask(1, decide(&[("h1", None)], Say::Approve, 0))
            .is_ok()
    );
    let blind = Request::Decide {
        targets: vec![Target::Path(key("a"))],
        say: Say::Reject(None),
        expect: Some(Digest::of(&[1])),
        seen: None,
    };
    assert!(scene.ask(2, blind).is_ok());
    assert_eq!(
        scene.ask(1, decide(&[("h1", None)], Say::Approve, 0)),
        overtaken("user2", Said::Rejected)
    );
}

#[test]
fn what_a_guest_sends_is_refused_by_the_server() {
    let mut scene = Scene::new();
    scene.shows(vec![two_hunks("a")]);
    scene.join(1, Role::Observer);
    let before = scene.session.state.clone();
    let size = TerminalSize { rows: 20, cols: 60 };
    let answer = Answer {
        allow: true,
        origin: Origin::Session,
        subject: Subject::Suffix(b".key".to_vec()),
    };
    let resolve = Request::Resolve {
        key: key("a"),
        expect: Digest::of(&[1]),
        how: Resolution::Theirs,
    };
    let allow = Request::Answer {
        ask: 1,
        allow: true,
        scope: crate::policy::Scope::Once,
        pattern: crate::policy::Pattern::File,
    };
    for request in [
        Request::Input(b"rm -rf /\r".to_vec()),
        Request::InputEnded,
        Request::Resize(size),
        Request::Revert(vec![Target::All]),
        resolve,
        COMMIT,
        Request::Undo,
        Request::Stop,
        Request::Discard,
        Request::Retire,
        allow,
        Request::Forget(answer),
        Request::Recover,
        Request::PassOn(15),
    ] {
        assert_eq!(
            scene.ask(1, request.clone()),
            Err(Failure::Role(Role::Driver)),
            "{request:?}"
        );
    }
    assert_eq!(
        scene.ask(1, decide(&[("h1", None)], Say::Approve, 0)),
        Err(Failure::Role(Role::Reviewer))
    );
    assert!(scene.jobs.is_empty(), "nothing was begun");
    assert_eq!(scene.session.state, before, "nothing was agreed");
}
