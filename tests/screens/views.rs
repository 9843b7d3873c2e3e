//! Every view at 80x24 and 120x40.

use pvisor::change::{Conflict, Merges};
use pvisor::commit::{Outcome, Refusal};
use pvisor::layer::Timestamp;
use pvisor::protocol::{Request, Target};
use pvisor::review::{FileDecision, Verdict};
use pvisor::session::state::{CommitRecord, Update};

use crate::fixture::{Screen, Session, workspace};

const SIZES: [(u16, u16); 2] = [(80, 24), (120, 40)];

/// Draws a scene at both sizes.
pub fn at_both_sizes(name: &str, session: impl Fn() -> Session, play: impl Fn(&mut Screen)) {
    for size in SIZES {
        let mut screen = Screen::new(session(), size);
        play(&mut screen);
        screen.wait(500);
        let text = screen.text();
        insta::assert_snapshot!(format!("{name}_{}x{}", size.0, size.1), text);
    }
}

/// Says what the server would answer to a decision.
fn answer(screen: &mut Screen) {
    for request in screen.asked() {
        let Request::Decide { targets, say, .. } = request else {
            continue;
        };
        let verdict = match say {
            pvisor::protocol::Say::Approve => Verdict::Approved,
            pvisor::protocol::Say::Reject(reason) => Verdict::Rejected { reason },
            pvisor::protocol::Say::Reset => continue,
        };
        for target in targets {
            let (key, items) = match target {
                Target::Path(key) => {
                    let change = &screen.state.changes[&key];
                    let all = change.items.iter().map(|i| i.id.clone().into()).collect();
                    (key, all)
                }
                Target::Items(key, items) => (key, items),
                Target::All => continue,
            };
            let digest = screen.state.changes[&key].digest;
            let items: Vec<pvisor::diff::ItemRef> = items;
            screen.decide(
                &key,
                FileDecision {
                    digest,
                    verdicts: items.into_iter().map(|i| (i, verdict.clone())).collect(),
                    by: "ann".into(),
                },
            );
        }
    }
}

#[test]
fn change_list() {
    at_both_sizes("change_list", Session::full, |_| {});
}

#[test]
fn change_list_by_path() {
    at_both_sizes("change_list_by_path", Session::full, |s| {
        s.press("!");
    });
}

#[test]
fn a_renamed_directory_is_one_row_and_what_differs_below_it() {
    let session = || {
        let mut s = Session::new();
        s.renamed(b"lib/old", b"lib/new", None, None);
        s.renamed(b"lib/old/deep", b"lib/new/deep", None, None);
        for name in ["a", "b", "deep/c"] {
            let (from, to) = (format!("lib/old/{name}"), format!("lib/new/{name}"));
            s.renamed(from.as_bytes(), to.as_bytes(), Some(b"x\n"), Some(b"x\n"));
        }
        let (old, new) = (b"1\n2\n".as_slice(), b"1\n3\n".as_slice());
        s.renamed(b"lib/old/edited", b"lib/new/edited", Some(old), Some(new));
        s.added(b"lib/new/fresh", b"f\n", &[]);
        s
    };
    let mut screen = Screen::new(session(), (120, 40));
    screen.wait(500);
    let text = screen.text();
    for row in ["▸ R old/ -> new/", "lib/old/edited -> edited", "A fresh"] {
        assert!(text.contains(row), "{row}:\n{text}");
    }
    assert!(!text.contains("deep"), "{text}");
}

#[test]
fn nothing_yet() {
    at_both_sizes("nothing_yet", Session::new, |_| {});
}

#[test]
fn diff() {
    at_both_sizes("diff", Session::full, |s| {
        s.go_to(b"src/main.rs");
        s.keys(&["2", "]"]);
    });
}

#[test]
fn diff_with_decisions_by_line() {
    at_both_sizes("diff_with_decisions", Session::full, |s| {
        s.go_to(b"src/main.rs");
        s.keys(&["2", "space"]);
        answer(s);
        s.keys(&["]", "a", "j"]);
    });
}

#[test]
fn diff_of_a_link_and_of_a_binary() {
    at_both_sizes("diff_of_a_link", Session::full, |s| {
        s.go_to(b"passwd");
        s.press("2");
    });
    at_both_sizes("diff_of_a_binary", Session::full, |s| {
        s.go_to(b"data.bin");
        s.press("2");
    });
}

#[test]
fn agent() {
    at_both_sizes("agent", Session::full, |s| {
        s.press("3");
    });
}

#[test]
fn log() {
    at_both_sizes("log", Session::full, |s| {
        s.learn(Update::Noticed("The disk is nearly full.".into()));
        s.press("4");
    });
}

#[test]
fn help() {
    at_both_sizes("help", Session::full, |s| {
        s.press("?");
    });
}

#[test]
fn commit_plan() {
    at_both_sizes("commit_plan", Session::full, |s| {
        s.go_to(b"src/main.rs");
        s.keys(&["2", "space", "1"]);
        answer(s);
        s.go_to(b"gone.txt");
        s.press("space");
        answer(s);
        s.press("P");
    });
}

#[test]
fn commit_plan_refused() {
    at_both_sizes("commit_plan_refused", Session::full, |s| {
        s.plan = Some(Outcome::Refused {
            refusals: vec![Refusal {
                key: workspace(b"Cargo.lock"),
                reason: "the host's file was changed meanwhile".into(),
            }],
        });
        s.go_to(b"Cargo.lock");
        s.press("space");
        answer(s);
        s.press("P");
    });
}

#[test]
fn undo_of_a_commit() {
    at_both_sizes("undo_commit", Session::full, |s| {
        s.learn(Update::Committed(CommitRecord {
            number: 1,
            undoes: None,
            paths: vec![workspace(b"a.txt"), workspace(b"dir/b.txt")],
            at: Timestamp::default(),
            by: "ann".into(),
        }));
        s.press("U");
    });
}

/// `u` after a commit is the same page as `U`, and what a crash left is told when one comes.
#[test]
fn undo_key_after_a_commit() {
    at_both_sizes("undo_key", Session::full, |s| {
        s.press("space");
        s.learn(Update::Committed(CommitRecord {
            number: 3,
            undoes: None,
            paths: vec![workspace(b"a.txt"), workspace(b"dir/b.txt")],
            at: Timestamp::default(),
            by: "ann".into(),
        }));
        s.press("u");
    });
}

#[test]
fn an_interrupted_commit_is_told() {
    at_both_sizes("recovered", Session::full, |s| {
        let recovered = pvisor::commit::Recovered {
            number: 2,
            undoes: None,
            outcome: pvisor::commit::Settled::RolledBack,
            paths: vec![workspace(b"a.txt"), workspace(b"dir/b.txt")],
            touched: Vec::new(),
            kept: Vec::new(),
        };
        s.learn(Update::Noticed(recovered.describe()));
    });
}

#[test]
fn reject_reason() {
    at_both_sizes("reject_reason", Session::full, |s| {
        s.keys(&["x", "w", "h", "y"]);
    });
}

#[test]
fn quit_question() {
    at_both_sizes("quit_running", Session::full, |s| {
        s.press("q");
    });
    at_both_sizes(
        "quit_ended",
        || Session::full().ended(3),
        |s| {
            s.press("q");
        },
    );
}

#[test]
fn search() {
    at_both_sizes("search", Session::full, |s| {
        s.keys(&["/", "l", "i", "b", "enter"]);
    });
}

#[test]
fn zoomed_diff() {
    at_both_sizes("zoomed_diff", Session::full, |s| {
        s.go_to(b"src/main.rs");
        s.keys(&["2", "+"]);
    });
}

#[test]
fn too_small() {
    for size in [(39, 10), (1, 1), (200, 3)] {
        let mut screen = Screen::new(Session::full(), size);
        insta::assert_snapshot!(format!("too_small_{}x{}", size.0, size.1), screen.text());
    }
}

/// Two files that the host has changed as well: one merges, one does not.
fn both_sides() -> Session {
    let mut s = Session::new();
    let change = s.modified(b"merges.txt", b"1\n2\n3\n", b"1\n2\nC\n", &[]);
    change.conflict = Some(Conflict::HostModified);
    change.merges = Some(Merges::Clean { hunks: Vec::new() });
    let change = s.modified(b"meets.txt", b"1\n2\n3\n", b"1\n2\nC\n", &[]);
    change.conflict = Some(Conflict::HostModified);
    change.merges = Some(Merges::Conflicts {
        places: 2,
        regions: Vec::new(),
        hunks: Vec::new(),
    });
    s.added(b"new.txt", b"new\n", &[]);
    s
}

#[test]
fn a_conflict_says_whether_it_merges() {
    at_both_sizes("merges_cleanly", both_sides, |s| {
        s.go_to(b"merges.txt");
        s.press("2");
    });
    at_both_sizes("merge_conflicts", both_sides, |s| {
        s.go_to(b"meets.txt");
        s.press("2");
    });
    at_both_sizes("change_list_with_merges", both_sides, |_| {});
}

#[test]
fn a_merge_is_planned_by_a_key_of_its_own_and_accepted_like_any_commit() {
    let approve = |s: &mut Screen| {
        s.plan = Some(Outcome::Refused {
            refusals: vec![Refusal {
                key: workspace(b"merges.txt"),
                reason: "the host's file was changed meanwhile; it merges cleanly".into(),
            }],
        });
        s.go_to(b"merges.txt");
        s.press("A");
        answer(s);
        s.press("P");
        s.wait(500);
    };
    at_both_sizes("commit_plan_that_would_merge", both_sides, approve);
    let merging = |s: &mut Screen| {
        approve(s);
        s.asked();
        s.plan = Some(Outcome::Planned {
            paths: vec![workspace(b"merges.txt")],
            merged: vec![workspace(b"merges.txt")],
        });
        s.press("m");
    };
    at_both_sizes("commit_plan_with_merges", both_sides, merging);
    let mut screen = Screen::new(both_sides(), (80, 24));
    approve(&mut screen);
    screen.press("y");
    screen.wait(500);
    let commits = |s: &mut Screen| -> Vec<(bool, bool)> {
        s.asked()
            .into_iter()
            .filter_map(|r| match r {
                Request::Commit { merge, dry_run, .. } => Some((merge, dry_run)),
                _ => None,
            })
            .collect()
    };
    assert_eq!(
        commits(&mut screen),
        [(false, true)],
        "refused as it stands"
    );
    screen.plan = Some(Outcome::Planned {
        paths: vec![workspace(b"merges.txt")],
        merged: vec![workspace(b"merges.txt")],
    });
    screen.press("m");
    screen.wait(500);
    screen.press("y");
    assert_eq!(commits(&mut screen), [(true, true), (true, false)]);
}
