//! A person at the keyboard: the real binary on a terminal, driven by keys only.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::wait::PATIENCE;
use crate::support::{Terminal, World, each_user, until};

/// Leaves the agent's pane.
const LEAVE: &str = "\x1d";

/// `run` of a script in a terminal of this size.
fn run(world: &World, script: &str, rows: u16, cols: u16) -> Terminal {
    let workspace = world.workspace.to_str().unwrap();
    let call = world.pvisor(["run", "--workspace", workspace, "--", "bash", "-c", script]);
    Terminal::open(call.into_command(), rows, cols)
}

/// `review` of the last session.
fn review(world: &World, rows: u16, cols: u16) -> Terminal {
    Terminal::open(world.pvisor(["review", "last"]).into_command(), rows, cols)
}

/// How the decision on a path stands, as the command line tells it.
fn decision(world: &World, path: &str) -> String {
    world.changes().get(path)["decision"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Opens the plan page, confirms once it is armed, and waits for the host's file.
#[track_caller]
fn commit_by_keys(terminal: &mut Terminal, world: &World, path: &str) {
    terminal.send("P");
    terminal.wait_for("the plan page", |s| {
        s.to_lowercase().contains("commit") && s.contains(path)
    });
    // The page is armed when it has been drawn for a moment and no key came; a key that comes too
    // early decides nothing, so another try is harmless.
    let written = terminal.attempt(PATIENCE, |t| {
        t.send("y");
        t.attempt(Duration::from_secs(5), |_| world.has(path).then_some(()))
    });
    assert!(
        written.is_some(),
        "{path} was not committed; the screen:\n{}",
        terminal.text()
    );
}

/// Presses a key until the decision is the wanted one. A key that comes before its row was drawn
/// decides nothing, so it may take another.
#[track_caller]
fn decide(terminal: &mut Terminal, world: &World, keys: &str, path: &str, wanted: &str) {
    let done = terminal.attempt(PATIENCE, |t| {
        t.send(keys);
        // Long enough for a busy machine: a second key could take back what the first did.
        t.attempt(Duration::from_secs(10), |_| {
            (decision(world, path) == wanted).then_some(())
        })
    });
    assert!(
        done.is_some(),
        "{path} is not {wanted}; the screen:\n{}",
        terminal.text()
    );
}

/// Leaves, and demands a clean terminal.
#[track_caller]
fn quit(terminal: &mut Terminal) {
    terminal.leave_screen();
    let status = terminal.wait_exit();
    assert!(
        status.success(),
        "{status:?}; the screen:\n{}",
        terminal.text()
    );
    assert_eq!(terminal.left_behind(), Vec::<String>::new());
    assert!(!terminal.in_alternate_screen());
}

each_user! {
    fn run_approve_commit(world) {
        let mut terminal = run(world, "echo hi > b.txt; echo DONE-WRITING; read x", 30, 120);
        terminal.wait_text("DONE-WRITING");
        terminal.wait_text("b.txt");
        terminal.send(LEAVE);
        terminal.send("1");
        decide(&mut terminal, world, " ", "b.txt", "approved");
        assert!(!world.has("b.txt"), "an approval writes nothing");
        commit_by_keys(&mut terminal, world, "b.txt");
        assert_eq!(world.text("b.txt"), "hi\n");
        // Back to the agent, which still waits for a line.
        terminal.send("3");
        terminal.send("end\r");
        until("the agent's end", || (world.status()["state"] != "running").then_some(()));
        terminal.send(LEAVE);
        quit(&mut terminal);
    }
}

each_user! {
    fn review_of_an_ended_session_on_a_small_screen(world) {
        world.host_ok("seq 30 > n.txt");
        world.run("sed -i 's/^15$/fifteen/' n.txt");
        let mut terminal = review(world, 24, 80);
        terminal.wait_text("n.txt");
        terminal.send("1");
        decide(&mut terminal, world, " ", "n.txt", "approved");
        decide(&mut terminal, world, "u", "n.txt", "undecided");
        decide(&mut terminal, world, " ", "n.txt", "approved");
        terminal.send("2");
        terminal.wait_text("fifteen");
        quit(&mut terminal);
        assert_eq!(world.host_ok("sed -n 15p n.txt"), "15\n", "leaving commits nothing");
    }
}

each_user! {
    fn a_rejection_keeps_its_reason(world) {
        world.run("echo bad > b.txt");
        let mut terminal = review(world, 30, 100);
        terminal.wait_text("b.txt");
        terminal.send("1");
        terminal.send("x");
        terminal.wait_for("the question for a reason", |s| s.to_lowercase().contains("reason"));
        terminal.send("not like this");
        terminal.wait_text("not like this");
        terminal.send("\r");
        until("a rejection", || (decision(world, "b.txt") == "rejected").then_some(()));
        assert_eq!(world.changes().get("b.txt")["reason"], "not like this");
        quit(&mut terminal);
    }
}

each_user! {
    fn type_ahead_and_paste_decide_nothing(world) {
        world.run("echo hi > b.txt");
        world.pvisor(["approve", "b.txt"]).ok();
        let mut terminal = review(world, 30, 100);
        terminal.wait_text("b.txt");
        terminal.send("Pyyyy\r");
        terminal.wait_for("the plan page", |s| s.to_lowercase().contains("commit"));
        assert!(!world.has("b.txt"), "typed ahead, not confirmed");
        terminal.send("\x1b");
        world.pvisor(["reset", "b.txt"]).ok();
        terminal.send("\x1b[200~1 P y\r\x1b[201~");
        // The help is a key that came after the paste: once it is shown, the paste is through.
        terminal.send("?");
        terminal.wait_text("one row down");
        assert_eq!(decision(world, "b.txt"), "undecided");
        assert!(!world.has("b.txt"));
        // Escape alone: together with the next key it would be that key with Alt.
        terminal.send("\x1b");
        terminal.wait_for("the help's end", |s| !s.contains("one row down"));
        quit(&mut terminal);
    }
}

each_user! {
    fn a_signal_gives_the_terminal_back(world) {
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            world.run("echo hi > b.txt");
            let mut terminal = review(world, 30, 100);
            terminal.wait_text("b.txt");
            kill(Pid::from_raw(terminal.pid()), signal).unwrap();
            terminal.wait_exit();
            assert_eq!(terminal.left_behind(), Vec::<String>::new(), "after {signal}");
            assert!(!terminal.in_alternate_screen(), "after {signal}");
        }
    }
}

each_user! {
    fn every_size_is_survived(world) {
        world.run("seq 100 > b.txt");
        let mut terminal = review(world, 40, 120);
        terminal.wait_text("b.txt");
        for (rows, cols) in [(24, 80), (10, 40), (3, 200), (1, 1), (60, 9), (2, 2), (40, 120)] {
            terminal.resize(rows, cols);
            terminal.send("j");
        }
        terminal.wait_text("b.txt");
        quit(&mut terminal);
    }
}

each_user! {
    /// A key and a new size that come at the same moment: neither waits for another key.
    fn a_key_that_comes_with_a_resize_counts_at_once(world) {
        world.run("echo hi > b.txt");
        let mut terminal = review(world, 40, 120);
        terminal.wait_text("b.txt");
        for round in 0..40 {
            terminal.resize(40, 100 + round);
            terminal.send("?");
            terminal.wait_text("one row down");
            terminal.resize(40, 160 - round);
            terminal.send("q");
            terminal.wait_for("the help's end", |s| !s.contains("one row down"));
        }
        quit(&mut terminal);
    }
}

each_user! {
    fn what_the_agent_sends_never_reaches_the_outer_terminal(world) {
        // Title, clipboard, colour scheme and focus modes, a colour query, a device query, a bell. The words
        // are put together by the script, because the command itself is shown as the pane's title.
        let script = "printf '\\033]0;ow%s\\a\\033]52;c;b3du%s\\a\\033[?2031h\\033[?1004h\\033]11;?\\a\\033[c\\a' ned ZWQ=; \
                      printf 'SHOWN\\n'; read -r answer; printf '%q\\n' \"$answer\" > answer; echo READ-IT; read x";
        let mut terminal = run(world, script, 30, 120);
        terminal.wait_text("SHOWN");
        terminal.send("\r");
        terminal.wait_text("READ-IT");
        for never in [&b"owned"[..], b"b3duZWQ=", b"\x1b[?2031h"] {
            let found = terminal.bytes.windows(never.len()).any(|w| w == never);
            assert!(!found, "{:?} reached the outer terminal", never.escape_ascii().to_string());
        }
        assert!(!terminal.titles.iter().any(|t| t.contains("owned")), "{:?}", terminal.titles);
        assert_eq!(terminal.clipboard, Vec::<String>::new());
        let answer = until("the agent's note of what it was answered", || {
            let changes = world.changes();
            changes.find("answer").is_some().then(|| world.pvisor(["diff", "last", "answer"]).ok().out())
        });
        assert!(answer.contains("11;rgb:"), "the colour query is answered: {answer}");
        assert!(answer.contains("[?"), "the device query is answered: {answer}");
        terminal.send("end\r");
        until("the agent's end", || (world.status()["state"] != "running").then_some(()));
        terminal.send(LEAVE);
        quit(&mut terminal);
    }
}

each_user! {
    /// A commit of many files is not watched; what comes after it is.
    fn an_edit_after_a_large_commit_is_shown(world) {
        world.host_ok("echo base > kept.txt");
        world.run("echo agent > kept.txt; mkdir new; for i in $(seq 200); do echo $i > new/f$i; done");
        let mut terminal = review(world, 40, 120);
        terminal.wait_text("202 undecided");
        world.pvisor(["approve", "last", "new"]).ok();
        world.pvisor(["commit", "last"]).ok();
        terminal.wait_for("what is left", |s| s.contains("| 1 undecided"));
        assert_eq!(world.text("new/f200"), "200\n");
        world.host_ok("echo person > kept.txt");
        terminal.wait_for("the conflict", |s| s.contains("conflict +1") || s.contains("1 conflict"));
        quit(&mut terminal);
    }
}
