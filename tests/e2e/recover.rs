//! A session server killed in the middle of a commit: the next look says so, and whatever comes
//! next settles it, whole or not at all, and tells which.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use crate::support::wait::PATIENCE;
use crate::support::{Terminal, Tree, World, each_user, processes, wait};

/// Enough that a commit takes a while.
const FILES: usize = 400;

struct Both {
    before: Tree,
    ledger: PathBuf,
}

fn staged(world: &World) -> Both {
    world.host_ok(&format!(
        "mkdir d; for i in $(seq {FILES}); do echo $i > d/$i; done; echo keep > keep"
    ));
    let before = world.tree();
    world.run("for f in d/*; do echo agent >> $f; done; rm d/7; mkdir new; echo n > new/n");
    let ledger = world.session_dir().join("commits/1/ledger");
    Both { before, ledger }
}

/// Kills the server while a commit is under way. False when that was over each time.
fn killed_in_a_commit(world: &World, both: &Both) -> bool {
    for _ in 0..10 {
        let mut commit = world
            .pvisor(["commit", "--all"])
            .into_command()
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the commit starts");
        let mut ended = false;
        wait::until("the commit to begin", || {
            ended = commit.try_wait().expect("the commit's status").is_some();
            (ended || both.ledger.exists()).then_some(())
        });
        if !ended {
            processes::kill_hard(processes::server(world));
        }
        let status = commit.wait().expect("the commit ends");
        if both.ledger.exists() {
            assert_eq!(status.code(), Some(2), "nobody knows how it ended");
            return true;
        }
        // It was through, or had not begun.
        world.pvisor(["recover"]).ok();
        world.pvisor(["undo"]).done();
        both.before.assert_same(&world.tree(), "undone");
    }
    false
}

/// The host is as the sentence says, and everything goes on from there.
#[track_caller]
fn is_as_told(world: &World, both: &Both, told: &str) {
    let after = told.contains("the host is as after it");
    assert!(after || told.contains("the host is as before it"), "{told}");
    if after {
        assert_eq!(world.text("d/1"), "1\nagent\n");
        assert!(!world.has("d/7") && world.has("new/n"));
        world.changes().assert_plain(&[]);
    } else {
        both.before.assert_same(&world.tree(), "rolled back");
        world.pvisor(["commit", "--all"]).ok();
    }
    assert_eq!(world.host_ok("ls -A | grep -c pvisor || true").trim(), "0");
    world.pvisor(["undo"]).ok();
    both.before.assert_same(&world.tree(), "undone afterwards");
}

each_user! {
    fn a_killed_commit_is_shown_settled_and_told(world) {
        let both = staged(world);
        if !killed_in_a_commit(world, &both) {
            eprintln!("never caught");
            return;
        }
        assert!(world.pvisor(["list"]).ok().out().contains("needs recover"));
        assert!(world.pvisor(["status"]).ok().out().contains("`pvisor-tui recover` settles it"));
        assert_eq!(world.status()["needs_recover"], true);
        let told = world.pvisor(["recover"]).ok().out();
        assert!(told.contains("An interrupted commit"), "{told}");
        assert!(world.pvisor(["recover"]).ok().out().contains("nothing to recover"));
        assert_eq!(world.pvisor(["recover", "--json"]).ok().json(), serde_json::json!([]));
        assert_eq!(world.status()["needs_recover"], false);
        is_as_told(world, &both, &told);
        world.pvisor(["recover", "nobody"]).done().exits(1);
    }
}

each_user! {
    fn a_verb_that_writes_settles_it_first_and_says_so(world) {
        let both = staged(world);
        if !killed_in_a_commit(world, &both) {
            eprintln!("never caught");
            return;
        }
        // From another session in the same place, which finds it whole or not begun.
        let elsewhere = world.run("echo other > other");
        assert!(elsewhere.err().contains("An interrupted commit"), "{elsewhere}");
        assert!(!both.ledger.exists());
        let one = world.text("d/1");
        assert!(one == "1\n" || one == "1\nagent\n", "{one}");
    }
}

each_user! {
    fn the_screen_tells_it_and_u_takes_the_commit_back(world) {
        let both = staged(world);
        if !killed_in_a_commit(world, &both) {
            eprintln!("never caught");
            return;
        }
        let review = world.pvisor(["review", "last"]).into_command();
        let mut screen = Terminal::open(review, 30, 110);
        screen.wait_text("An interrupted commit");
        let text = screen.text();
        drop(screen);
        if text.contains("rolled back") {
            both.before.assert_same(&world.tree(), "rolled back");
            world.pvisor(["commit", "--all"]).ok();
        }
        let review = world.pvisor(["review", "last"]).into_command();
        let mut screen = Terminal::open(review, 30, 110);
        screen.wait_text("No change.");
        screen.send("u");
        screen.wait_text("Put back what commit");
        screen.wait_text("d/1");
        // The page wants to be read to its end, and takes no key before it was seen for a moment.
        screen.send(&"\x06".repeat(40));
        let back = screen.attempt(PATIENCE, |t| {
            t.send("y");
            t.attempt(Duration::from_secs(5), |_| (world.text("d/1") == "1\n").then_some(()))
        });
        assert!(back.is_some(), "not put back; the screen:\n{}", screen.text());
        screen.wait_text("put back 40");
        drop(screen);
        both.before.assert_same(&world.tree(), "put back by keys");
    }
}
