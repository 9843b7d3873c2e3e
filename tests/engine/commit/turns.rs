//! Commits of different sessions to the same place, or to a place inside another's: one after the
//! other, and what one left unfinished is nobody else's to step over.

use std::cell::Cell;
use std::fs;
use std::sync::mpsc;
use std::time::Duration;

use pvisor::commit::seam::{self, Verdict};
use pvisor::commit::{self, Outcome};

use super::scene::{Scene, snapshot};

/// Commits `a`, and while that stands before its first exchange, `b` on another thread. Which of
/// the two ended first.
fn meet(a: &Scene, b: &Scene) -> (&'static str, Outcome, Outcome) {
    let (ended, order) = mpsc::channel();
    let (begin, begun) = mpsc::channel();
    std::thread::scope(|threads| {
        let told = ended.clone();
        let other = threads.spawn(move || {
            begun.recv().unwrap();
            let outcome = b.commit(1, b.all()).unwrap();
            told.send("b").unwrap();
            outcome
        });
        let done = Cell::new(false);
        let (hold, held) = mpsc::channel::<()>();
        let outcome = seam::with(
            move |call| {
                if call == "exchange" && !done.replace(true) {
                    begin.send(()).unwrap();
                    // As long as it would take the other to be through.
                    let _ = held.recv_timeout(Duration::from_millis(400));
                }
                Verdict::Pass
            },
            || a.commit(1, a.all()).unwrap(),
        );
        let _ = ended.send("a");
        drop(hold);
        let second = other.join().unwrap();
        (order.recv().unwrap(), outcome, second)
    })
}

/// A second session's view of a directory of the first one's workspace.
fn below(scene: &Scene, dir: &str, script: &str) -> Scene {
    let mut inner = Scene::new("true");
    inner.host = scene.host.join(dir);
    inner.layers[0].root.clone_from(&inner.host);
    let _ = fs::remove_dir_all(&inner.agent);
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([&inner.host, &inner.agent])
        .status();
    assert!(copied.unwrap().success());
    inner.rebase();
    inner.agent(script);
    inner
}

#[test]
fn a_commit_waits_for_one_to_a_directory_around_or_inside() {
    for outer_first in [true, false] {
        let outer = Scene::new("mkdir -p d/in; echo 1 > a; echo 2 > d/in/f");
        outer.agent("echo one > a");
        let inner = below(&outer, "d/in", "echo two > f");
        let (first, a, b) = if outer_first {
            meet(&outer, &inner)
        } else {
            meet(&inner, &outer)
        };
        assert_eq!(first, "a", "the second waits for the first");
        for outcome in [a, b] {
            assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
        }
        assert_eq!(outer.read("a"), "one\n");
        assert_eq!(outer.read("d/in/f"), "two\n");
    }
}

#[test]
fn commits_beside_each_other_do_not_wait() {
    let outer = Scene::new("mkdir -p one two; echo 1 > one/f; echo 2 > two/f");
    let one = below(&outer, "one", "echo uno > f");
    let two = below(&outer, "two", "echo due > f");
    let (first, a, b) = meet(&one, &two);
    assert_eq!(first, "b");
    for outcome in [a, b] {
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    }
}

#[test]
fn two_sessions_that_want_the_same_file_do_not_both_get_it() {
    let first = Scene::new("echo 1 > f");
    first.agent("echo one > f");
    let second = below(&first, ".", "echo two > f");
    let (order, a, b) = meet(&first, &second);
    assert_eq!(order, "a");
    assert!(matches!(a, Outcome::Committed { .. }), "{a:?}");
    assert!(matches!(b, Outcome::Refused { .. }), "{b:?}");
    assert_eq!(first.read("f"), "one\n");
    assert_eq!(fs::read_dir(&first.host).unwrap().count(), 1);
}

#[test]
fn a_commit_that_is_under_way_is_not_recovered_from_under_it() {
    let scene = Scene::new("echo 1 > f; echo 2 > g");
    scene.agent("echo one > f; echo two > g");
    let after = snapshot(&scene.agent);
    let (begin, begun) = mpsc::channel();
    std::thread::scope(|threads| {
        let scene = &scene;
        let other = threads.spawn(move || {
            begun.recv().unwrap();
            assert_eq!(commit::unfinished(&scene.store).unwrap(), [1]);
            scene.recover()
        });
        let done = Cell::new(false);
        let outcome = seam::with(
            move |call| {
                if call == "exchange" && !done.replace(true) {
                    begin.send(()).unwrap();
                }
                Verdict::Pass
            },
            || scene.commit(1, scene.all()).unwrap(),
        );
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
        assert!(other.join().unwrap().is_empty());
    });
    assert_eq!(snapshot(&scene.host), after);
    assert!(commit::unfinished(&scene.store).unwrap().is_empty());
}
