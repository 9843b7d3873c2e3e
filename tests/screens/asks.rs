//! Questions of rules on the screen: shown whole, never answered by keys typed ahead, and the page
//! of rules.

use pvisor::layer::Timestamp;
use pvisor::overlay::Access;
use pvisor::policy::message::{Attempted, Withdrawn};
use pvisor::policy::{
    Answer, Level, Observations, Origin, PathCounts, Pattern, Rule, Scope, Subject,
};
use pvisor::protocol::{Reply, Request, Role};
use pvisor::session::state::{AnsweredBy, Ask, Remark, Update};
use pvisor_tui::effect::Purpose;
use pvisor_tui::model::dialog::Dialog;
use pvisor_tui::update;

use crate::fixture::{Screen, Session, workspace};

fn attempted(path: &[u8], access: Access) -> Attempted {
    Attempted {
        key: workspace(path),
        access,
        pid: 4711,
        program: "python3".into(),
        glob: "*.env".into(),
    }
}

fn asked(id: u64, path: &[u8]) -> Update {
    Update::Asked(Box::new(Ask {
        id,
        what: attempted(path, Access::Read),
        at: Timestamp::default(),
        until: Timestamp { sec: 300, nsec: 0 },
    }))
}

fn guarded() -> Session {
    let mut session = Session::new();
    let rule = |level, glob: &str, origin| Rule {
        level,
        glob: glob.into(),
        origin,
    };
    session.state.apply(&Update::Guarded {
        rules: vec![
            rule(Level::Deny, "id_rsa", Origin::BuiltIn),
            rule(Level::Ask, "*.env", Origin::User),
            rule(Level::Deny, "deploy/**", Origin::Workspace),
        ],
        answers: vec![Answer {
            allow: true,
            origin: Origin::User,
            subject: Subject::Suffix(b".env".to_vec()),
        }],
        files: pvisor::policy::AnswerFiles::default(),
    });
    session
}

/// A screen on which a question waits, drawn and rested.
fn asking(size: (u16, u16)) -> Screen {
    let mut screen = Screen::new(guarded(), size);
    screen.learn(asked(1, b"config/prod.env"));
    screen.draw();
    screen.wait(500);
    screen
}

fn answers(screen: &mut Screen) -> Vec<(u64, bool, Scope, Pattern)> {
    screen
        .asked()
        .into_iter()
        .filter_map(|request| match request {
            Request::Answer {
                ask,
                allow,
                scope,
                pattern,
            } => Some((ask, allow, scope, pattern)),
            _ => None,
        })
        .collect()
}

fn open(screen: &Screen) -> Option<u64> {
    match &screen.model.dialog {
        Some(Dialog::Ask(page)) => Some(page.id),
        _ => None,
    }
}

#[test]
fn the_question_shows_who_wants_what_and_for_how_long() {
    for size in [(80, 24), (120, 40)] {
        let mut screen = asking(size);
        screen.learn(asked(2, b"b.env"));
        screen.keys(&["s", "2"]);
        screen.wait(4_000);
        insta::assert_snapshot!(format!("ask_{}x{}", size.0, size.1), screen.text());
    }
}

#[test]
fn deny_has_the_focus_and_every_key_says_what_it_should() {
    let mut screen = asking((80, 24));
    screen.press("enter");
    assert_eq!(
        answers(&mut screen),
        [(1, false, Scope::Once, Pattern::File)]
    );
    for (keys, expected) in [
        (&["y"][..], (1, true, Scope::Once, Pattern::File)),
        (&["d"], (1, false, Scope::Once, Pattern::File)),
        (&["tab", "enter"], (1, true, Scope::Once, Pattern::File)),
        (&["s", "y"], (1, true, Scope::Session, Pattern::File)),
        (&["2", "y"], (1, true, Scope::Session, Pattern::Directory)),
        (&["u", "3", "d"], (1, false, Scope::User, Pattern::Suffix)),
        (
            &["w", "2", "1", "y"],
            (1, true, Scope::Workspace, Pattern::File),
        ),
        (&["3", "o", "y"], (1, true, Scope::Once, Pattern::File)),
    ] {
        let mut screen = asking((80, 24));
        for key in keys {
            screen.wait(500);
            screen.press(key);
        }
        assert_eq!(answers(&mut screen), [expected], "{keys:?}");
        assert!(open(&screen).is_none(), "answered");
    }
}

#[test]
fn keys_typed_ahead_and_pasted_text_answer_nothing() {
    // Somebody types on while the question comes: it waits until they rest.
    let mut screen = Screen::new(guarded(), (80, 24));
    screen.wait(1_000);
    screen.press("j");
    screen.learn(asked(1, b"x.env"));
    for _ in 0..20 {
        screen.wait(80);
        screen.press("j");
        assert_eq!(open(&screen), None, "no page under typing fingers");
    }
    assert!(screen.text().contains("1 question"), "the status bar tells");
    screen.wait(500);
    assert_eq!(open(&screen), Some(1));
    // The page has come, the fingers had not stopped after all.
    for key in ["y", "enter", "d", "y", "n"] {
        screen.wait(100);
        screen.press(key);
    }
    screen.paste("yyyy\ny");
    assert_eq!(answers(&mut screen), []);
    assert_eq!(open(&screen), Some(1));
    screen.wait(500);
    screen.press("y");
    assert_eq!(answers(&mut screen).len(), 1);
}

/// Case C32 (a): what is typed goes on going where it went, however long the fingers rest.
#[test]
fn a_question_never_takes_the_keys_from_where_somebody_types() {
    const SENTENCE: &str = "the cat ate 1 apple, yes and no";
    let type_on = |screen: &mut Screen| {
        for (at, c) in SENTENCE.chars().enumerate() {
            // Twelve keys a second, and a pause to think after every word.
            screen.wait(if c == ' ' { 2_000 } else { 83 });
            let key = if c == ' ' {
                "space".into()
            } else {
                c.to_string()
            };
            screen.press(&key);
            if at == 4 {
                screen.learn(asked(1, b"x.env"));
            }
            assert_eq!(open(screen), None, "after {at} keys");
        }
        screen.wait(5_000);
        assert_eq!(open(screen), None);
    };
    // A line of text: a reason, a search, a command.
    for first in ["x", "/", ":"] {
        let mut session = guarded();
        session.added(b"a.txt", b"x\n", &[]);
        let mut screen = Screen::new(session, (100, 24));
        screen.go_to(b"a.txt");
        screen.wait(1_000);
        screen.press(first);
        type_on(&mut screen);
        match &screen.model.dialog {
            Some(Dialog::Text(line)) => assert_eq!(line.text, SENTENCE, "{first}"),
            other => panic!("{first}: the line is gone: {other:?}"),
        }
        assert!(screen.text().contains("1 question"), "the status bar tells");
        assert_eq!(answers(&mut screen), []);
        // Once the line is done the question comes, and not to the key that ended the line.
        screen.press("esc");
        screen.wait(100);
        screen.press("y");
        screen.wait(500);
        assert_eq!(open(&screen), Some(1));
        assert_eq!(answers(&mut screen), []);
    }
    // The agent's own prompt.
    let mut screen = Screen::new(guarded(), (100, 24));
    screen.press("3");
    screen.wait(1_000);
    type_on(&mut screen);
    let sent: Vec<u8> = screen
        .asked()
        .into_iter()
        .flat_map(|request| match request {
            Request::Input(bytes) => bytes,
            other => panic!("no key of a sentence asks for {other:?}"),
        })
        .collect();
    assert_eq!(sent, SENTENCE.as_bytes());
    let text = screen.text();
    assert!(
        text.contains("to answer: python3 (pid 4711) wants to read /home/ann/project/x.env"),
        "{text}"
    );
    // Whoever leaves the prompt has the question before them.
    screen.press("ctrl-]");
    screen.ahead("y");
    screen.wait(500);
    assert_eq!(open(&screen), Some(1));
    assert_eq!(answers(&mut screen), []);
    screen.wait(500);
    screen.press("d");
    assert_eq!(
        answers(&mut screen),
        [(1, false, Scope::Once, Pattern::File)]
    );
}

#[test]
fn several_questions_come_one_after_another_and_can_wait() {
    let mut screen = asking((80, 24));
    screen.learn(asked(2, b"b.env"));
    screen.learn(asked(3, b"c.env"));
    screen.press("esc");
    assert_eq!(answers(&mut screen), []);
    screen.wait(500);
    assert_eq!(open(&screen), Some(2), "the next one");
    screen.wait(500);
    screen.press("d");
    screen.wait(500);
    assert_eq!(open(&screen), Some(3));
    // Answered elsewhere, or not in time.
    screen.learn(Update::Answered {
        ask: 3,
        allow: false,
        by: AnsweredBy::Nobody(Withdrawn::TimedOut),
        at: Timestamp::default(),
    });
    screen.draw();
    assert_eq!(open(&screen), None);
    assert!(
        screen.text().contains("2 questions 4:5"),
        "{}",
        screen.text()
    );
    // The one that was put off is on the page of rules.
    screen.keys(&["o", "j"]);
    screen.press("enter");
    assert_eq!(open(&screen), Some(1));
    // Answers that did not arrive leave the question open.
    screen.wait(500);
    screen.press("y");
    let failure = Err(pvisor::protocol::Failure::Other("no".into()));
    update::replied(&mut screen.model, &Purpose::Answer(1), failure);
    screen.wait(500);
    assert_eq!(open(&screen), Some(1));
}

#[test]
fn what_was_not_shown_is_not_allowed() {
    let mut screen = Screen::new(guarded(), (40, 10));
    let long = [b"d/".as_slice(), &b"x".repeat(250), b".env"].concat();
    screen.learn(asked(1, &long));
    screen.draw();
    screen.wait(500);
    screen.press("y");
    assert_eq!(answers(&mut screen), []);
    for _ in 0..20 {
        screen.press("j");
    }
    screen.wait(500);
    screen.press("y");
    assert_eq!(answers(&mut screen).len(), 1);
    // A denial needs no reading.
    screen.learn(asked(2, &long));
    screen.wait(500);
    screen.wait(500);
    screen.press("d");
    assert_eq!(
        answers(&mut screen),
        [(2, false, Scope::Once, Pattern::File)]
    );
}

#[test]
fn a_screen_too_small_can_only_deny() {
    let mut screen = asking((80, 24));
    screen.size = (30, 5);
    screen.wait(500);
    for key in ["y", "tab", "enter", "s"] {
        screen.wait(500);
        screen.press(key);
    }
    assert_eq!(answers(&mut screen), []);
    screen.wait(500);
    screen.press("d");
    assert_eq!(
        answers(&mut screen),
        [(1, false, Scope::Once, Pattern::File)]
    );
}

#[test]
fn only_a_driver_is_asked() {
    let mut screen = Screen::new(guarded(), (80, 24));
    screen.model.role = Role::Reviewer;
    screen.learn(asked(1, b"a.env"));
    screen.wait(1_000);
    assert_eq!(open(&screen), None);
    assert!(screen.text().contains("1 question"));
    screen.keys(&["o", "j", "enter"]);
    assert_eq!(open(&screen), None);
    assert_eq!(answers(&mut screen), []);
}

#[test]
fn the_page_of_rules_tells_everything_and_forgets_on_the_second_key() {
    for size in [(80, 24), (120, 40)] {
        let mut screen = asking(size);
        screen.press("esc");
        for (level, access) in [(Level::Deny, Access::Create), (Level::Warn, Access::Read)] {
            screen.learn(Update::Warned(Box::new(Remark {
                level,
                what: attempted(b"deploy/key", access),
                at: Timestamp::default(),
            })));
        }
        screen.press("o");
        let mut counts = PathCounts::default();
        counts.note(Access::Read, 4096, Timestamp::default());
        let observed = Observations {
            paths: [(workspace(b"src/main.rs"), counts)].into(),
            more: 7,
        };
        let reply = Ok(Reply::Observed(Some(Box::new(observed))));
        update::replied(&mut screen.model, &Purpose::Observed, reply);
        screen.keys(&["j", "j", "j", "j"]);
        insta::assert_snapshot!(format!("rules_{}x{}", size.0, size.1), screen.text());
        screen.asked();
        screen.press("x");
        assert_eq!(screen.asked(), []);
        screen.press("x");
        assert!(
            matches!(screen.asked().as_slice(), [Request::Forget(answer)] if answer.origin == Origin::User)
        );
        screen.press("q");
        assert!(screen.model.dialog.is_none());
    }
}

#[test]
fn hostile_names_and_programs_stay_on_the_page() {
    let mut screen = Screen::new(guarded(), (80, 24));
    let mut what = attempted(
        "\x1b[2J\x1b]0;x\x07/photo\u{202e}gpj.env".as_bytes(),
        Access::Write,
    );
    what.program = "ev\x1b[31mil\u{200b}".into();
    what.glob = "*.env\u{1b}[0m".into();
    screen.learn(Update::Asked(Box::new(Ask {
        id: 1,
        what,
        at: Timestamp::default(),
        until: Timestamp { sec: 300, nsec: 0 },
    })));
    for keys in [&[][..], &["s", "2"], &["3"], &["esc", "o"]] {
        screen.keys(keys);
        screen.wait(500);
        let buffer = screen.draw();
        for cell in buffer.content() {
            for c in cell.symbol().chars() {
                assert!(
                    !c.is_control() && c != '\u{202e}' && c != '\u{200b}',
                    "{c:?}"
                );
            }
        }
    }
    assert!(screen.text().contains("\\x1b"), "{}", screen.text());
}
