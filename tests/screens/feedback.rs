//! What the screen answers: keys that do nothing here, groups, empty lists, what moves while it is
//! read.

use std::sync::Arc;

use pvisor::LayerPath;
use pvisor::RelPath;
use pvisor::change::{Change, ChangeKind};
use pvisor::session::state::Update;
use pvisor_tui::model::document::DocRow;

use crate::fixture::{Screen, Session, file, workspace};

fn home(path: &[u8]) -> LayerPath {
    LayerPath::new("home", RelPath::new(path).expect("valid"))
}

/// A session whose agent has so far written to its own home only.
fn only_home() -> Session {
    let mut session = Session::new();
    for i in 0..20 {
        session.change(
            home(format!(".agent/{i}").as_bytes()),
            ChangeKind::Added,
            (None, Some(file(b"x\n", 0o644))),
            (None, Some(b"x\n")),
            &[],
        );
    }
    session
}

/// The server tells of these changes of `later`, contents included.
fn appear(screen: &mut Screen, later: &Session) {
    let mut changes: Vec<Arc<Change>> = Vec::new();
    for (key, change) in &later.state.changes {
        if screen.state.changes.get(key) != Some(change) {
            changes.push(Arc::clone(change));
            let contents = later.contents[key].clone();
            screen.contents.insert(key.clone(), contents);
        }
    }
    screen.learn(Update::ChangesMoved {
        changed: changes,
        gone: Vec::new(),
    });
    screen.draw();
}

#[test]
fn a_key_without_a_meaning_says_so_and_where_the_keys_are() {
    let mut screen = Screen::new(Session::full(), (80, 24));
    screen.press("Z");
    assert!(
        screen
            .text()
            .contains("`Z` does nothing here: `?` lists the keys.")
    );
    screen.press("j");
    assert!(!screen.text().contains("does nothing here"));
    screen.keys(&["z", "x"]);
    assert!(screen.text().contains("`x` does nothing here"));
    assert!(
        screen.model.dialog.is_none(),
        "half a chord rejects nothing"
    );
    screen.keys(&["q", "w"]);
    assert!(screen.text().contains("`w` answers nothing here."));
    assert!(screen.asked().is_empty());
    assert!(
        !screen
            .model
            .notices
            .iter()
            .any(|n| n.text.contains("does nothing")),
        "the log keeps what happened only"
    );
}

#[test]
fn the_agents_own_files_are_counted_apart() {
    let mut session = only_home();
    session.added(b"a.txt", b"a\n", &[]);
    let mut screen = Screen::new(session, (140, 30));
    let text = screen.text();
    assert!(
        text.contains("| 1 undecided 0 approved 0 rejected | home 20 |"),
        "{text}"
    );
    screen.keys(&["q"]);
    assert!(
        screen
            .text()
            .contains("1 undecided, 0 approved and not committed.")
    );
    screen.keys(&["esc", "n"]);
    let current = screen.model.diff.key.clone().expect("a change");
    assert_eq!(
        current,
        workspace(b"a.txt"),
        "the next undecided is not in the home directory"
    );
}

#[test]
fn the_first_change_gets_the_cursor_unless_it_was_moved() {
    let mut later = only_home();
    later.added(b"a.txt", b"a\n", &[]);
    let mut screen = Screen::new(only_home(), (120, 40));
    assert_eq!(screen.model.diff.key, None);
    appear(&mut screen, &later);
    assert_eq!(screen.model.diff.key, Some(workspace(b"a.txt")));
    // A person who opened the group stays there.
    let mut screen = Screen::new(only_home(), (120, 40));
    screen.keys(&["enter", "j"]);
    appear(&mut screen, &later);
    assert_ne!(screen.model.diff.key, Some(workspace(b"a.txt")));
}

#[test]
fn a_group_tells_what_it_holds_and_an_empty_list_what_comes() {
    let mut screen = Screen::new(Session::full(), (120, 40));
    screen.press("g");
    let text = screen.text();
    assert!(
        text.contains("12 changes: 12 undecided, 0 approved, 0 rejected."),
        "{text}"
    );
    assert!(text.contains("`space` approves all"), "{text}");
    let mut screen = Screen::new(Session::new(), (80, 24));
    assert!(
        screen
            .text()
            .contains("What the agent writes appears here.")
    );
    let mut screen = Screen::new(Session::new().ended(0), (80, 24));
    assert!(screen.text().contains("Your files are as they were."));
}

/// Line that the diff's cursor is on, and its row on the screen.
fn reading(screen: &Screen) -> (String, usize) {
    let diff = &screen.model.diff;
    let document = diff.document.clone().expect("loaded");
    let DocRow::Line(line) = &document.rows[diff.cursor] else {
        panic!("not on a line");
    };
    let text = String::from_utf8_lossy(&line.bytes).into_owned();
    (text, diff.cursor - diff.top)
}

#[test]
fn the_diff_keeps_its_place_when_the_agent_rewrites_the_file() {
    let lines = |range: std::ops::Range<usize>| {
        let lines: Vec<String> = range.map(|i| format!("line {i}")).collect();
        lines.join("\n") + "\n"
    };
    let old = lines(0..200);
    let once = old.replace("line 150\n", "line 150\nnew here\n");
    let twice = lines(1000..1040) + &once.replace("line 3\n", "line three\n");
    for before in [old.as_str(), ""] {
        let session = |new: &str| {
            let mut session = Session::new();
            session.modified(b"f", before.as_bytes(), new.as_bytes(), &[]);
            session
        };
        let mut screen = Screen::new(session(&once), (120, 40));
        screen.go_to(b"f");
        screen.keys(&["2", "/"]);
        for key in "new here".chars() {
            screen.press(&if key == ' ' {
                "space".into()
            } else {
                key.to_string()
            });
        }
        screen.keys(&["enter", "esc", "z", "z"]);
        let place = reading(&screen);
        assert_eq!(place.0, "new here");
        appear(&mut screen, &session(&twice));
        assert_eq!(
            reading(&screen).0,
            "new here",
            "from {} lines",
            before.len()
        );
        // A look at what is new leads back to the same place.
        screen.keys(&["L", "j", "j"]);
        assert!(screen.model.diff.since.is_some());
        screen.press("L");
        assert_eq!(reading(&screen).0, "new here");
    }
}

#[test]
fn a_commit_of_a_part_is_no_news_from_the_agent() {
    let mut session = Session::new();
    session.modified(b"f", b"a\nb\nc\nd\ne\n", b"A\nb\nc\nd\nE\n", &[]);
    let mut screen = Screen::new(session, (80, 24));
    screen.go_to(b"f");
    screen.keys(&["2", "1"]);
    // The first hunk is on the host now; the agent's side is what it was.
    let mut later = Session::new();
    later.modified(b"f", b"A\nb\nc\nd\ne\n", b"A\nb\nc\nd\nE\n", &[]);
    appear(&mut screen, &later);
    assert!(screen.text().contains(" M f"), "{}", screen.text());
    assert!(!screen.text().contains("M*f"), "{}", screen.text());
    screen.keys(&["2", "1"]);
    // And now the agent writes.
    let mut later = Session::new();
    later.modified(b"f", b"A\nb\nc\nd\ne\n", b"A\nb\nc\nd\nEE\n", &[]);
    appear(&mut screen, &later);
    assert!(screen.text().contains("M*f"), "{}", screen.text());
    screen.keys(&["2", "L"]);
    let text = screen.text();
    assert!(
        text.contains("- E") && text.contains("+ EE") && !text.contains("- e"),
        "{text}"
    );
}

#[test]
fn a_plan_repeats_no_mark_that_the_kind_tells() {
    let mut session = Session::new();
    session.deleted(b"gone", b"x\n");
    let mut screen = Screen::new(session, (80, 24));
    screen.go_to(b"gone");
    let change = screen.state.changes[&workspace(b"gone")].clone();
    screen.decide(
        &workspace(b"gone"),
        pvisor::review::FileDecision {
            digest: change.digest,
            verdicts: change
                .items
                .iter()
                .map(|i| (i.id.clone().into(), pvisor::review::Verdict::Approved))
                .collect(),
            by: "ann".into(),
        },
    );
    screen.press("P");
    screen.wait(1000);
    let text = screen.text();
    assert!(
        text.contains("1 deleted") && !text.contains("1 marked"),
        "{text}"
    );
    assert!(
        text.contains("D gone  !del"),
        "the row keeps its mark: {text}"
    );
    assert!(text.contains("y: yes, commit"), "{text}");
}

#[test]
fn a_chain_of_new_directories_is_one_row_that_stands_for_all_of_them() {
    let mut session = Session::new();
    let dir = pvisor::layer::Node {
        file_type: pvisor::layer::FileType::Dir,
        digest: None,
        ..file(b"", 0o755)
    };
    for path in ["a", "a/b", "a/b/c", "a-b", "src/new"] {
        let sides = (None, Some(dir.clone()));
        let key = workspace(path.as_bytes());
        session.change(key, ChangeKind::Added, sides, (None, None), &[]);
    }
    for path in ["a/b/c/one", "a/b/c/two", "a-b/x", "src/new/y"] {
        session.added(path.as_bytes(), b"x\n", &[]);
    }
    let mut screen = Screen::new(session, (80, 24));
    let text = screen.text();
    let rows: Vec<&str> = text.lines().skip(2).take(8).map(str::trim_end).collect();
    let row = |start: &str| rows.iter().any(|r| r.starts_with(start));
    assert!(
        row("· ▾ A a/b/c/ ") && row("·  A one") && row("·  A two"),
        "{text}"
    );
    assert!(row("· ▾ A a-b/ ") && row("·  A x"), "{text}");
    assert!(
        row("· ▾ src/ ") && row("·  ▾ A new/") && row("·   A y"),
        "{text}"
    );
    screen.go_to(b"a");
    screen.press("space");
    let asked = screen.asked();
    let about = |path: &str| {
        asked.iter().any(|r| {
            matches!(r, pvisor::protocol::Request::Decide { targets, .. }
            if format!("{targets:?}").contains(&format!("{:?}", workspace(path.as_bytes()))))
        })
    };
    for path in ["a", "a/b", "a/b/c", "a/b/c/one", "a/b/c/two"] {
        assert!(about(path), "{path} is part of the row: {asked:?}");
    }
    assert!(!about("a-b"));
}

#[test]
fn what_was_decided_is_named_by_its_line() {
    let mut screen = Screen::new(Session::full(), (120, 40));
    screen.go_to(b"src/main.rs");
    screen.keys(&["2", "]", "space"]);
    assert!(
        screen
            .text()
            .contains("approved: src/main.rs, hunk at line 5"),
        "{}",
        screen.text()
    );
    screen.keys(&["a", "space"]);
    assert!(
        screen
            .text()
            .contains("approved: src/main.rs, line 1 of the hunk at line 5"),
        "{}",
        screen.text()
    );
    screen.keys(&["1", "!"]);
    assert!(screen.text().contains("By path."));
}

#[test]
fn a_block_of_thousands_of_hunks_is_looked_through_once() {
    let line = |i: u32, new: bool| {
        if new && i.is_multiple_of(4) {
            format!("changed {i}\n")
        } else {
            format!("line {i}\n")
        }
    };
    let old: String = (0..16_000)
        .map(|i| line(i, false))
        .collect::<Vec<_>>()
        .concat();
    let new: String = (0..16_000)
        .map(|i| line(i, true))
        .collect::<Vec<_>>()
        .concat();
    let mut session = Session::new();
    session.modified(b"f", old.as_bytes(), new.as_bytes(), &[]);
    let mut screen = Screen::new(session, (120, 40));
    screen.go_to(b"f");
    screen.press("2");
    let change = screen.state.changes[&workspace(b"f")].clone();
    assert_eq!(change.items.len(), 4_000);
    // All but the last one are approved.
    let mut verdicts: Vec<_> = change
        .items
        .iter()
        .map(|i| (i.id.clone().into(), pvisor::review::Verdict::Approved))
        .collect();
    verdicts.pop();
    let decision = pvisor::review::FileDecision {
        digest: change.digest,
        verdicts,
        by: "ann".into(),
    };
    screen.decide(&change.key, decision);
    screen.press("g");
    assert!(
        screen.text().contains("[~] @@ -1,16000 +1,16000 @@"),
        "{}",
        screen.text()
    );
    let start = std::time::Instant::now();
    for _ in 0..5 {
        screen.draw();
    }
    screen.press("n");
    assert_eq!(reading(&screen).0, "line 15996");
    // Once a hunk for each hunk would take a hundred times as long in this build.
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}
