//! Consent: never by keys typed ahead, never by paste, never for what was not shown or has moved.

use pvisor::protocol::{Failure, Request};
use pvisor::review::{FileDecision, Verdict};
use pvisor::session::state::Update;
use pvisor_tui::effect::Purpose;
use pvisor_tui::model::Pane;
use pvisor_tui::update;

use crate::fixture::{Screen, Session, workspace};

/// A screen with `gone.txt` approved.
fn approved() -> Screen {
    let mut screen = Screen::new(Session::full(), (80, 24));
    approve(&mut screen, b"gone.txt");
    screen
}

fn approve(screen: &mut Screen, path: &[u8]) {
    let key = workspace(path);
    let change = screen.state.changes[&key].clone();
    screen.decide(
        &key,
        FileDecision {
            digest: change.digest,
            verdicts: change
                .items
                .iter()
                .map(|i| (i.id.clone().into(), Verdict::Approved))
                .collect(),
            by: "ann".into(),
        },
    );
}

fn commits(screen: &mut Screen) -> usize {
    screen
        .asked()
        .iter()
        .filter(|r| matches!(r, Request::Commit { dry_run: false, .. }))
        .count()
}

#[test]
fn a_plan_is_accepted_by_y_after_rest_and_by_nothing_else() {
    let mut screen = approved();
    screen.press("P");
    for key in ["P", "enter", "space", "Y"] {
        screen.wait(500);
        screen.press(key);
        assert_eq!(commits(&mut screen), 0, "{key} committed");
    }
    screen.wait(500);
    screen.press("y");
    assert_eq!(commits(&mut screen), 1);
}

#[test]
fn typing_ahead_accepts_nothing() {
    let mut screen = approved();
    // Before the page was ever drawn.
    screen.ahead("P");
    screen.ahead("y");
    screen.draw();
    assert_eq!(commits(&mut screen), 0);
    // Twelve keys a second, for as long as it takes.
    for key in "the cat says yyyy yes yyyyyyyyyyyyyyy".chars() {
        if key == 'd' || key == 'n' {
            continue;
        }
        screen.wait(83);
        let name = if key == ' ' {
            "space".into()
        } else {
            key.to_string()
        };
        screen.press(&name);
    }
    assert_eq!(commits(&mut screen), 0);
    assert!(screen.model.dialog.is_some(), "the page is still open");
}

#[test]
fn pasting_accepts_nothing_and_decides_nothing() {
    let mut screen = approved();
    screen.paste("yyyy\n  \nP");
    screen.press("P");
    screen.wait(1000);
    screen.paste("y");
    assert_eq!(commits(&mut screen), 0);
    // A paste counts as typing: the wait begins anew.
    screen.press("y");
    assert_eq!(commits(&mut screen), 0);
    screen.press("esc");
    screen.press("x");
    screen.paste("be\ncause");
    assert!(
        screen.model.dialog.is_some(),
        "a newline in a paste ends nothing"
    );
    screen.press("enter");
    let said: Vec<_> = screen
        .asked()
        .into_iter()
        .filter(|r| matches!(r, Request::Decide { .. }))
        .collect();
    assert_eq!(said.len(), 1);
    assert!(format!("{said:?}").contains("be cause"));
}

#[test]
fn no_is_heard_at_once() {
    for key in ["n", "d", "esc"] {
        let mut screen = approved();
        screen.ahead("P");
        screen.ahead(key);
        screen.draw();
        assert!(screen.model.dialog.is_none(), "{key}");
        screen.wait(1000);
        screen.press("y");
        assert_eq!(commits(&mut screen), 0);
    }
}

#[test]
fn a_plan_that_moves_has_to_be_shown_again() {
    let mut screen = approved();
    screen.press("P");
    screen.wait(1000);
    // Somebody approves another file; the key comes before the frame.
    let key = workspace(b"README.md");
    let change = screen.state.changes[&key].clone();
    screen.learn(Update::Decided {
        key,
        decision: Some(FileDecision {
            digest: change.digest,
            verdicts: vec![(change.items[0].id.clone().into(), Verdict::Approved)],
            by: "bob".into(),
        }),
    });
    screen.ahead("y");
    assert_eq!(commits(&mut screen), 0);
    screen.draw();
    assert!(screen.text().contains("README.md"));
    screen.press("y");
    assert_eq!(commits(&mut screen), 0);
    screen.wait(500);
    screen.press("y");
    assert_eq!(commits(&mut screen), 1);
}

#[test]
fn a_long_plan_is_accepted_only_after_its_end_was_shown() {
    let mut session = Session::new();
    for i in 0..100 {
        session.added(format!("f{i:03}").as_bytes(), b"x\n", &[]);
    }
    let mut screen = Screen::new(session, (80, 24));
    for i in 0..100 {
        approve(&mut screen, format!("f{i:03}").as_bytes());
    }
    screen.press("P");
    screen.wait(1000);
    assert!(
        screen.text().contains("Never on this screen"),
        "says what was not read"
    );
    screen.press("y");
    assert_eq!(commits(&mut screen), 0);
    screen.press("G");
    assert!(screen.text().contains("f099"));
    screen.press("y");
    assert_eq!(commits(&mut screen), 0, "too soon after the last key");
    screen.wait(500);
    screen.press("y");
    assert_eq!(commits(&mut screen), 1);
}

#[test]
fn a_refused_plan_cannot_be_accepted() {
    let mut screen = approved();
    screen.plan = Some(pvisor::commit::Outcome::Refused {
        refusals: vec![pvisor::commit::Refusal {
            key: workspace(b"gone.txt"),
            reason: "the host's file was changed meanwhile".into(),
        }],
    });
    screen.press("P");
    screen.wait(1000);
    assert!(screen.text().contains("changed meanwhile"));
    screen.press("y");
    assert_eq!(commits(&mut screen), 0);
    // And an unanswered one neither.
    screen.press("esc");
    screen.plan = None;
    screen.press("P");
    screen.wait(1000);
    screen.press("y");
    assert_eq!(commits(&mut screen), 0);
}

#[test]
fn nothing_is_decided_before_it_was_drawn() {
    let session = Session::full();
    let mut screen = Screen::new(session, (80, 24));
    screen.model.layout = pvisor_tui::model::layout::Layout::default();
    for key in ["space", "enter", "x", "-", "A"] {
        screen.ahead(key);
        screen.ahead("esc");
    }
    assert!(screen.asked().is_empty());
    // A row that scrolls into view by the key before.
    let mut session = Session::new();
    for i in 0..100 {
        session.added(format!("f{i:03}").as_bytes(), b"x\n", &[]);
    }
    let mut screen = Screen::new(session, (80, 24));
    screen.ahead("G");
    screen.ahead("space");
    assert!(screen.asked().is_empty());
    screen.draw();
    screen.press("space");
    assert_eq!(screen.asked().len(), 1);
}

#[test]
fn a_decision_carries_what_was_drawn_not_what_came_since() {
    let mut session = Session::new();
    session.modified(b"t", b"v0\n", b"v1\n", &[]);
    let mut screen = Screen::new(session, (120, 40));
    screen.go_to(b"t");
    let shown = screen.state.changes[&workspace(b"t")].digest;
    // The agent writes again; the key comes before the next frame.
    let mut later = Session::new();
    later.modified(b"t", b"v0\n", b"v2\n", &[]);
    let moved = later.state.changes[&workspace(b"t")].clone();
    assert_ne!(moved.digest, shown);
    screen.contents = later.contents;
    screen.learn(Update::ChangesMoved {
        changed: vec![moved.clone()],
        gone: Vec::new(),
    });
    screen.ahead("space");
    let asked = screen.asked();
    assert!(
        matches!(asked.as_slice(), [Request::Decide { expect: Some(d), .. }] if *d == shown),
        "{asked:?}"
    );
    let refusal = Failure::Changed {
        path: workspace(b"t"),
        now: moved.digest,
    };
    update::replied(&mut screen.model, &Purpose::Decide, Err(refusal));
    let text = screen.text();
    assert!(text.contains("changed since it was shown"), "{text}");
    // The new difference is shown against what was seen.
    screen.keys(&["2", "L"]);
    let text = screen.text();
    assert!(text.contains("- v1") && text.contains("+ v2"), "{text}");
    assert!(!text.contains("v0"), "{text}");
    // Nothing is decided in that view.
    screen.press("space");
    assert!(screen.asked().is_empty());
}

#[test]
fn a_running_command_has_the_focus_first_and_an_ended_one_has_not() {
    use pvisor::protocol::{Role, Welcome};
    use pvisor::sandbox::spec::TerminalSize;
    let focus = |session: Session| {
        let welcome = Welcome {
            state: session.state,
            screen: Vec::new(),
            size: TerminalSize { rows: 24, cols: 80 },
            role: Role::Driver,
        };
        let keymap = pvisor_tui::keymap::Keymap::default();
        pvisor_tui::model::Model::new(&welcome, keymap, 10, false).focus
    };
    assert_eq!(focus(Session::full()), Pane::Agent);
    assert_eq!(focus(Session::full().ended(0)), Pane::Files);
}

#[test]
fn keys_in_the_agents_pane_never_decide() {
    let mut screen = approved();
    screen.press("3");
    for key in ["y", "space", "P", "q", "ctrl-c", "ctrl-z", "x", "enter"] {
        screen.wait(500);
        screen.press(key);
    }
    assert_eq!(screen.suspended, 0);
    assert!(screen.model.dialog.is_none() && screen.left.is_none());
    let asked = screen.asked();
    assert_eq!(asked.len(), 8);
    assert!(asked.iter().all(|r| matches!(r, Request::Input(_))));
    // Twice sends the key itself.
    screen.press("ctrl-]");
    assert_eq!(screen.model.focus, Pane::Files);
    assert!(screen.asked().is_empty());
    screen.press("ctrl-]");
    assert_eq!(screen.asked(), [Request::Input(vec![0x1d])]);
    assert_eq!(screen.model.focus, Pane::Agent);
    // The end of the command takes nobody's focus: what is typed on goes nowhere.
    screen.learn(Update::Exited {
        status: pvisor::sandbox::ExitStatus::Code(0),
        at: pvisor::layer::Timestamp::default(),
    });
    for key in ["space", "y", "P", "enter"] {
        screen.press(key);
    }
    assert!(screen.asked().is_empty());
    assert_eq!(screen.model.focus, Pane::Agent);
}

#[test]
fn control_keys_are_harmless_in_the_review() {
    let mut screen = approved();
    screen.press("ctrl-c");
    assert!(screen.left.is_none() && screen.asked().is_empty());
    screen.press("ctrl-z");
    assert_eq!(screen.suspended, 1);
    // Leaving asks, and the agent goes on unless it is ended on purpose.
    screen.press("q");
    assert!(screen.left.is_none());
    screen.press("q");
    assert!(screen.model.dialog.is_none(), "the same key leaves nothing");
    screen.keys(&["q", "T"]);
    assert!(
        screen.asked().is_empty(),
        "a running command's changes are not thrown away"
    );
}

#[test]
fn many_or_hidden_changes_ask_before_they_are_approved_as_one() {
    let mut session = Session::new();
    for i in 0..60 {
        session.added(format!("d/f{i:02}").as_bytes(), b"x\n", &[]);
    }
    let mut screen = Screen::new(session, (80, 24));
    screen.keys(&["g", "space"]);
    assert!(screen.asked().is_empty());
    let text = screen.text();
    assert!(
        text.contains("60 changes") && text.contains("60 added"),
        "{text}"
    );
    screen.press("G");
    screen.wait(500);
    screen.press("y");
    let asked = screen.asked();
    assert_eq!(asked.len(), 60, "each with its own digest");
    assert!(asked.iter().all(|r| matches!(
        r,
        Request::Decide {
            expect: Some(_),
            ..
        }
    )));
}

#[test]
fn a_plan_says_what_of_a_database_it_leaves_out() {
    let mut session = Session::full();
    for name in ["a.db", "a.db-wal", "b.db-wal"] {
        session.added(name.as_bytes(), b"x", &[]);
    }
    let mut screen = Screen::new(session, (100, 30));
    approve(&mut screen, b"a.db");
    screen.press("P");
    let text = screen.text();
    assert!(
        text.contains("Left out: a.db-wal; the database beside it"),
        "{text}"
    );
    assert!(!text.contains("b.db-wal;"), "{text}");
    screen.press("n");
    approve(&mut screen, b"a.db-wal");
    screen.press("P");
    let text = screen.text();
    assert!(!text.contains("Left out"), "{text}");
}

/// Case C32 (b): who accepts from the first screen is told what they did not see.
#[test]
fn what_was_not_shown_is_told_with_the_approval_and_in_the_plan() {
    let lines: Vec<String> = (1..=400).map(|n| n.to_string()).collect();
    let text = lines.join("\n") + "\n";
    let mut session = Session::new();
    for path in [b"p1".as_slice(), b"p2", b"p3"] {
        session.added(path, text.as_bytes(), &[]);
    }
    let mut screen = Screen::new(session, (120, 40));
    screen.go_to(b"p1");
    let rows = |text: &str| -> usize {
        let at = text.find(" rows of").expect("a number of rows");
        let digits = text[..at].rsplit(' ').next().expect("digits");
        digits.trim_start_matches('(').parse().expect("a number")
    };
    screen.press("space");
    let said = screen.model.notice.clone().expect("a notice").text;
    assert!(said.contains("approved: p1; never shown: "), "{said}");
    // The head of the document counts as a row or two.
    assert!((360..=400).contains(&rows(&said)), "{said}");
    // From within its diff it is no different.
    screen.keys(&["2", "space"]);
    let said = screen.model.notice.clone().expect("a notice").text;
    assert!(
        said.contains("; never shown: ") && rows(&said) > 300,
        "{said}"
    );
    // Several at once.
    screen.keys(&["1", "g", "space"]);
    for path in [b"p1".as_slice(), b"p2", b"p3"] {
        approve(&mut screen, path);
    }
    screen.press("P");
    screen.wait(500);
    let plan = screen.text();
    assert!(
        plan.contains("Never on this screen: 2 whole diffs, "),
        "{plan}"
    );
    for path in ["p1", "p2", "p3"] {
        assert!(
            plan.lines().any(|line| line.contains(&format!("A {path}"))),
            "{path}: {plan}"
        );
    }
    assert!(plan.contains("rows of it never shown"), "{plan}");
    assert_eq!(plan.matches("never shown: +400 -0").count(), 2, "{plan}");
    screen.press("n");
    // What was read to its end has nothing to be told.
    screen.go_to(b"p1");
    screen.press("2");
    for _ in 0..40 {
        screen.press("pagedown");
    }
    screen.keys(&["1", "space", "space"]);
    let said = screen.model.notice.clone().expect("a notice").text;
    assert!(!said.contains("never shown"), "{said}");
}

/// Case C32 (e), the loser's screen.
#[test]
fn who_was_overtaken_is_told_by_whom_and_takes_nothing_back() {
    use pvisor::protocol::Said;
    let mut screen = Screen::new(Session::full(), (120, 40));
    screen.go_to(b"README.md");
    let key = workspace(b"README.md");
    // Bob's word comes while the reason is typed: what was drawn when the key was pressed counts.
    let shown = screen.state.said;
    screen.press("x");
    approve(&mut screen, b"README.md");
    assert!(screen.state.said > shown);
    screen.press("enter");
    let asked = screen.asked();
    assert!(
        matches!(asked.as_slice(), [Request::Decide { seen: Some(seen), .. }] if *seen == shown),
        "{asked:?}"
    );
    let refusal = Failure::Overtaken {
        path: key,
        by: "bob".into(),
        said: Said::Approved,
    };
    update::replied(&mut screen.model, &Purpose::Decide, Err(refusal));
    let text = screen.text();
    assert!(
        text.contains("README.md was approved by bob meanwhile"),
        "{text}"
    );
    screen.press("u");
    assert!(
        screen.asked().is_empty(),
        "there is nothing of one's own to take back"
    );
    // Having seen it, one may say otherwise.
    screen.keys(&["x", "enter"]);
    let now = screen.state.said;
    let asked = screen.asked();
    assert!(
        matches!(asked.as_slice(), [Request::Decide { seen: Some(seen), .. }] if *seen == now),
        "{asked:?}"
    );
}
