//! Conflicts with the host: how each hunk stands, and the page that settles them.

use pvisor::change::{Conflict, Merges};
use pvisor::diff;
use pvisor::merge::{self, Merge};
use pvisor::protocol::{Request, Resolution};

use crate::fixture::{Screen, Session};
use crate::views::at_both_sizes;

/// The host has changed a file of two hunks as well: one stands as it is, the other meets an edit.
fn in_conflict() -> Session {
    let mut s = Session::new();
    let lines = |edits: &[(usize, &str)]| -> Vec<u8> {
        let line = |n: usize| edits.iter().find(|(at, _)| *at == n).map(|(_, text)| *text);
        let all =
            (1..=24).map(|n| line(n).map_or_else(|| format!("line {n}\n"), |l| format!("{l}\n")));
        all.collect::<String>().into_bytes()
    };
    let (base, agent) = (lines(&[]), lines(&[(2, "near"), (20, "agent")]));
    let host = lines(&[(5, "person"), (20, "person")]);
    let hunks = merge::hunks(&base, &host, &agent, &diff::diff(&base, &agent));
    let Merge::Conflicted(regions) = merge::merge(&base, &host, &agent) else {
        panic!("they meet");
    };
    let change = s.modified(b"meets.txt", &base, &agent, &[]);
    change.conflict = Some(Conflict::HostModified);
    change.merges = Some(Merges::Conflicts {
        places: 1,
        regions,
        hunks,
    });
    let change = s.modified(b"merges.txt", b"1\n2\n3\n", b"1\n2\nC\n", &[]);
    change.conflict = Some(Conflict::HostModified);
    change.merges = Some(Merges::Clean { hunks: Vec::new() });
    let change = s.modified(b"marked.txt", b"1\n2\n", b"1\n<<<<<<< host\n", &[]);
    change.conflict = Some(Conflict::Markers);
    let change = s.modified(b"removed.txt", b"1\n2\n", b"1\n", &[]);
    change.conflict = Some(Conflict::HostDeleted);
    s
}

#[test]
fn each_hunk_says_how_it_stands_to_the_hosts_edits() {
    at_both_sizes("hunks_in_conflict", in_conflict, |s| {
        s.go_to(b"meets.txt");
        s.press("2");
    });
}

#[test]
fn a_conflict_offers_what_can_be_made_of_it() {
    for file in ["meets", "merges", "marked", "removed"] {
        let name = format!("resolve_{file}");
        at_both_sizes(&name, in_conflict, |s| {
            s.go_to(format!("{file}.txt").as_bytes());
            s.press("r");
            s.wait(500);
        });
    }
}

#[test]
fn a_conflict_is_settled_by_a_key_that_its_page_offers_once_it_was_shown() {
    let ways = |s: &mut Screen| -> Vec<Resolution> {
        let asked = s.asked().into_iter();
        let how = |request| match request {
            Request::Resolve { how, .. } => Some(how),
            _ => None,
        };
        asked.filter_map(how).collect()
    };
    let mut screen = Screen::new(in_conflict(), (80, 24));
    screen.go_to(b"meets.txt");
    screen.ahead("r");
    screen.press("o");
    assert_eq!(ways(&mut screen), [], "typed ahead");
    screen.wait(500);
    // It does not merge cleanly, and `y` is no choice.
    screen.keys(&["m", "y"]);
    screen.wait(500);
    assert_eq!(ways(&mut screen), []);
    for (key, how) in [
        ("o", Resolution::Ours),
        ("t", Resolution::Theirs),
        ("b", Resolution::Markers),
    ] {
        let mut screen = Screen::new(in_conflict(), (80, 24));
        screen.go_to(b"meets.txt");
        screen.press("r");
        screen.wait(500);
        screen.press(key);
        assert_eq!(ways(&mut screen), [how]);
    }
    let mut screen = Screen::new(in_conflict(), (80, 24));
    screen.go_to(b"merges.txt");
    screen.press("r");
    screen.wait(500);
    screen.press("m");
    assert_eq!(ways(&mut screen), [Resolution::Merge]);
    let mut screen = Screen::new(in_conflict(), (80, 24));
    screen.go_to(b"meets.txt");
    screen.press("r");
    screen.wait(500);
    screen.press("n");
    screen.wait(500);
    assert_eq!(ways(&mut screen), [], "left as it is");
}
