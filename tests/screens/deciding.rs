//! Keys to requests: what is decided on by which key, and how it is taken back.

use pvisor::diff::ItemKind;
use pvisor::protocol::{Request, Say, Target};
use pvisor::review::{FileDecision, Verdict};

use crate::fixture::{Screen, Session, workspace};

fn decided(screen: &mut Screen) -> Vec<(Target, Say)> {
    screen
        .asked()
        .into_iter()
        .map(|r| match r {
            Request::Decide {
                mut targets,
                say,
                expect,
                seen,
            } => {
                assert!(expect.is_some(), "every decision carries a digest");
                assert!(seen.is_some(), "and what was known of other decisions");
                assert_eq!(targets.len(), 1);
                (targets.remove(0), say)
            }
            other => panic!("not a decision: {other:?}"),
        })
        .collect()
}

fn on_main() -> Screen {
    let mut screen = Screen::new(Session::full(), (120, 40));
    screen.go_to(b"src/main.rs");
    screen.press("2");
    screen
}

#[test]
fn space_on_a_file_approves_it_and_again_takes_it_back() {
    let mut screen = Screen::new(Session::full(), (120, 40));
    screen.go_to(b"README.md");
    screen.press("space");
    let key = workspace(b"README.md");
    assert_eq!(
        decided(&mut screen),
        [(Target::Path(key.clone()), Say::Approve)]
    );
    let change = screen.state.changes[&key].clone();
    screen.decide(
        &key,
        FileDecision {
            digest: change.digest,
            verdicts: vec![(change.items[0].id.clone().into(), Verdict::Approved)],
            by: "ann".into(),
        },
    );
    assert!(screen.text().contains("✓ A README.md") || screen.text().contains("✓ A  README.md"));
    screen.press("space");
    assert_eq!(decided(&mut screen), [(Target::Path(key), Say::Reset)]);
}

#[test]
fn space_in_the_diff_approves_the_hunk_the_line_or_the_range() {
    let key = workspace(b"src/main.rs");
    let mut screen = on_main();
    let change = screen.state.changes[&key].clone();
    let hunks: Vec<_> = change
        .items
        .iter()
        .filter(|i| i.kind == ItemKind::Hunk)
        .collect();
    let of = |lines| {
        Target::Items(
            key.clone(),
            vec![pvisor::diff::ItemRef {
                id: hunks[0].id.clone(),
                lines,
            }],
        )
    };
    // The mode stands first and is an item of its own.
    let mode = change
        .items
        .iter()
        .find(|i| i.kind == ItemKind::Mode)
        .expect("a mode item");
    screen.press("space");
    assert_eq!(
        decided(&mut screen),
        [(
            Target::Items(key.clone(), vec![mode.id.clone().into()]),
            Say::Approve
        )]
    );
    screen.keys(&["]", "space"]);
    assert_eq!(decided(&mut screen), [(of(None), Say::Approve)]);
    screen.keys(&["a", "space"]);
    assert_eq!(decided(&mut screen), [(of(Some((1, 1))), Say::Approve)]);
    screen.keys(&["a", "v", "j", "space"]);
    assert_eq!(decided(&mut screen), [(of(Some((1, 2))), Say::Approve)]);
    assert_eq!(screen.model.diff.anchor, None, "the range is used up");
    screen.keys(&["]", "-"]);
    assert_eq!(
        decided(&mut screen),
        [(
            Target::Items(key.clone(), vec![hunks[1].id.clone().into()]),
            Say::Reset
        )]
    );
    screen.press("A");
    assert_eq!(
        decided(&mut screen),
        [(Target::Path(key.clone()), Say::Approve)]
    );
}

#[test]
fn enter_approves_and_goes_on() {
    let mut screen = on_main();
    screen.press("]");
    let before = screen.model.diff.cursor;
    screen.press("enter");
    assert_eq!(decided(&mut screen).len(), 1);
    assert!(screen.model.diff.cursor > before, "on the next hunk");
    screen.press("enter");
    assert_eq!(decided(&mut screen).len(), 1);
    assert_ne!(
        screen.model.diff.key,
        Some(workspace(b"src/main.rs")),
        "on the next file"
    );
}

#[test]
fn a_reason_is_asked_for_and_may_be_skipped_or_given_up() {
    let mut screen = Screen::new(Session::full(), (80, 24));
    screen.go_to(b"gone.txt");
    let target = || Target::Path(workspace(b"gone.txt"));
    screen.keys(&["x", "k", "e", "e", "p", "enter"]);
    assert_eq!(
        decided(&mut screen),
        [(target(), Say::Reject(Some("keep".into())))]
    );
    screen.keys(&["x", "enter"]);
    assert_eq!(decided(&mut screen), [(target(), Say::Reject(None))]);
    screen.keys(&["x", "esc"]);
    assert!(screen.asked().is_empty());
}

#[test]
fn undo_restores_what_was_decided_before() {
    let key = workspace(b"src/main.rs");
    let mut screen = on_main();
    let change = screen.state.changes[&key].clone();
    let id = |i: usize| change.items[i].id.clone();
    screen.decide(
        &key,
        FileDecision {
            digest: change.digest,
            verdicts: vec![
                (id(0).into(), Verdict::Approved),
                (
                    id(1).into(),
                    Verdict::Rejected {
                        reason: Some("no".into()),
                    },
                ),
            ],
            by: "ann".into(),
        },
    );
    screen.press("A");
    screen.asked();
    screen.press("u");
    assert_eq!(
        decided(&mut screen),
        [
            (Target::Path(key.clone()), Say::Reset),
            (Target::Items(key.clone(), vec![id(0).into()]), Say::Approve),
            (
                Target::Items(key.clone(), vec![id(1).into()]),
                Say::Reject(Some("no".into()))
            ),
        ]
    );
    screen.press("ctrl-r");
    assert_eq!(decided(&mut screen), [(Target::Path(key), Say::Approve)]);
    screen.keys(&["u", "u"]);
    screen.asked();
    screen.press("u");
    assert!(screen.asked().is_empty(), "nothing more to take back");
}

#[test]
fn an_added_directory_is_decided_on_without_what_lies_in_it() {
    use pvisor::change::ChangeKind;
    let mut session = Session::new();
    let dir = pvisor::layer::Node {
        file_type: pvisor::layer::FileType::Dir,
        digest: None,
        ..crate::fixture::file(b"", 0o755)
    };
    session.change(
        workspace(b"d"),
        ChangeKind::Added,
        (None, Some(dir)),
        (None, None),
        &[],
    );
    session.added(b"d/a", b"x\n", &[]);
    let mut screen = Screen::new(session, (80, 24));
    screen.go_to(b"d");
    screen.press("space");
    let said = decided(&mut screen);
    assert!(matches!(&said[0].0, Target::Items(key, _) if *key == workspace(b"d")));
    assert_eq!(said[1].0, Target::Path(workspace(b"d/a")));
    assert_eq!(
        said.len(),
        2,
        "the row stands for the directory and its entries"
    );
}

#[test]
fn n_finds_what_is_undecided_and_then_what_is_searched() {
    let mut screen = Screen::new(Session::full(), (80, 24));
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20 {
        screen.press("n");
        seen.insert(screen.model.diff.key.clone().expect("a change"));
    }
    assert!(seen.len() >= 9, "{seen:?}");
    screen.keys(&["/", "n", "e", "w", "enter"]);
    let mut found = std::collections::BTreeSet::new();
    for _ in 0..6 {
        found.insert(screen.model.diff.key.clone().expect("a change").to_string());
        screen.press("n");
    }
    let found: Vec<_> = found.into_iter().collect();
    assert_eq!(found, ["new-name.txt", "src/deep/er/new.rs"]);
}

#[test]
fn an_observer_decides_nothing() {
    let mut screen = Screen::new(Session::full(), (80, 24));
    screen.model.role = pvisor::protocol::Role::Observer;
    for key in ["space", "enter", "x", "esc", "-", "A", "P", "U", "X"] {
        screen.press(key);
    }
    screen.press("3");
    screen.press("a");
    assert!(screen.asked().is_empty());
}

#[test]
fn the_command_line_runs_actions_and_goes_to_lines() {
    let mut screen = on_main();
    screen.press(":");
    for c in "30".chars() {
        screen.press(&c.to_string());
    }
    screen.press("enter");
    let document = screen.model.diff.document.clone().expect("loaded");
    let pvisor_tui::model::document::DocRow::Line(line) = &document.rows[screen.model.diff.cursor]
    else {
        panic!("not on a line");
    };
    assert_eq!(line.new_no, Some(30));
    screen.press(":");
    for c in "wrap".chars() {
        screen.press(&c.to_string());
    }
    screen.press("enter");
    assert!(!screen.model.diff.wrap);
    screen.press(":");
    screen.keys(&["e", "v", "i", "l", "enter"]);
    assert!(screen.text().contains("No action is named"));
}
