//! While the agent runs: commits, reverts, a server that dies, a terminal that closes.

use std::sync::atomic::Ordering;

use nix::sys::signal::Signal;

use crate::support::processes;
use crate::support::{Live, Terminal, each_user, until};

each_user! {
    fn a_commit_while_it_runs_and_another_after_it_went_on(world) {
        world.host_ok("echo 0 > kept; mkdir d; echo 0 > d/old");
        let mut agent = Live::start(
            world,
            &[],
            "echo 1 > first; echo 1 > second; echo 1 > d/new; echo ready; read x; \
             rm first; echo 2 > second; rm d/new d/old; echo again; read x",
        );
        agent.hear("ready");
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.text("first") + &world.text("second"), "1\n1\n");
        world.changes().assert_plain(&[]);
        agent.say("go on");
        agent.hear("again");
        until("what came after the commit", || {
            let lines = world.changes().plain();
            (lines == ["deleted d/new", "deleted d/old", "deleted first", "modified second"]).then_some(())
        });
        world.pvisor(["commit", "--all"]).ok();
        assert!(!world.has("first") && !world.has("d/new") && !world.has("d/old"));
        assert_eq!(world.text("second") + &world.text("kept"), "2\n0\n");
        agent.say("end");
        agent.finish().exits(0);
        world.changes().assert_plain(&[]);
        assert_eq!(world.status()["commits"], 2);
    }
}

each_user! {
    fn a_revert_while_it_runs_loses_no_later_write(world) {
        world.host_ok("echo host > f; echo host > g");
        let mut agent = Live::start(
            world,
            &[],
            "echo agent > f; rm g; echo ready; read x; cat f g; echo later >> f; echo seen; read x",
        );
        agent.hear("ready");
        world.pvisor(["revert", "f", "g"]).ok();
        world.changes().assert_plain(&[]);
        agent.say("look");
        agent.hear("host");
        agent.hear("host");
        agent.hear("seen");
        until("the later write", || {
            (world.changes().plain() == ["modified f"]).then_some(())
        });
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.text("f"), "host\nlater\n");
        agent.say("end");
        agent.finish().exits(0);
    }
}

each_user! {
    fn changes_appear_while_the_agent_writes(world) {
        let mut agent = Live::start(
            world,
            &[],
            "mkdir -p a/b/c; echo 1 > a/b/c/f; echo ready; read x; echo 2 >> a/b/c/f; \
             chmod +x a/b/c/f; echo again; read x",
        );
        agent.hear("ready");
        let digest = until("the new file", || {
            let changes = world.changes();
            changes.find("a/b/c/f").map(|c| c["digest"].clone())
        });
        agent.say("go on");
        agent.hear("again");
        until("its later form", || {
            let changes = world.changes();
            let change = changes.get("a/b/c/f");
            (change["digest"] != digest && change["mode"]["after"] == "100755").then_some(())
        });
        agent.say("end");
        agent.finish().exits(0);
    }
}

each_user! {
    fn a_decision_falls_back_when_the_agent_rewrites_the_file(world) {
        let mut agent = Live::start(world, &[], "echo v1 > t; echo ready; read x; echo v2 > t; echo again; read x");
        agent.hear("ready");
        let digest = until("t", || world.changes().find("t").map(|c| c["digest"].as_str().unwrap().to_owned()));
        world.pvisor(["approve", "t", "--expect", &digest]).ok();
        assert_eq!(world.changes().get("t")["decision"], "approved");
        agent.say("go on");
        agent.hear("again");
        until("the decision to fall back", || {
            (world.changes().get("t")["decision"] == "undecided").then_some(())
        });
        world.pvisor(["approve", "t", "--expect", &digest]).done().exits(1);
        world.pvisor(["commit"]).ok();
        assert!(!world.has("t"), "v2 is never committed under v1's approval");
        agent.say("end");
        agent.finish().exits(0);
    }
}

each_user! {
    fn a_killed_server_takes_the_sandbox_along_and_leaves_the_stage(world) {
        world.host_ok("echo host > f");
        let before = world.tree();
        let mut agent = Live::start(
            world,
            &[],
            "echo agent > f; echo new > made-new; (setsid sleep 600 &) ; echo ready; \
             read x || exec sleep 600; echo no > never",
        );
        agent.hear("ready");
        until("both changes", || (world.changes().plain().len() == 2).then_some(()));
        processes::kill_hard(processes::server(world));
        let done = agent.finish().exits(137).says("session server has ended");
        assert!(done.err().contains("pvisor-tui review"), "{done}");
        processes::await_none(world);
        before.assert_same(&world.tree(), "the host after the server was killed");
        // A process lets its lock go a moment after it can no longer be seen.
        let status = until("the loss", || Some(world.status()).filter(|s| s["state"] == "lost"));
        assert!(status["exit"].is_null(), "nobody saw it end: {status:#}");
        world.changes().assert_plain(&["added made-new", "modified f"]);
        let mut review = Terminal::open(world.pvisor(["review", "last"]).into_command(), 30, 100);
        review.wait_text("made-new");
        drop(review);
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.text("f") + &world.text("made-new"), "agent\nnew\n");
        assert!(!world.has("never"));
    }
}

each_user! {
    fn a_killed_helper_costs_the_command_and_nothing_else(world) {
        world.host_ok("echo host > f");
        let before = world.tree();
        let mut agent = Live::start(world, &[], "echo agent > f; echo ready; read x || exec sleep 600");
        agent.hear("ready");
        until("the change", || (world.changes().plain().len() == 1).then_some(()));
        let server = processes::server(world);
        let children = std::fs::read_to_string(format!("/proc/{server}/task/{server}/children"));
        let helper = children.unwrap().split_whitespace().next().unwrap().parse().unwrap();
        processes::kill_hard(helper);
        let done = agent.finish().exits(137).says("the helper");
        assert!(done.err().contains("pvisor-tui review"), "{done}");
        before.assert_same(&world.tree(), "the host after the helper was killed");
        // Whoever comes next gets a server that can read the layers.
        until("the change again", || {
            let done = world.pvisor(["changes", "last"]).done();
            (done.status == Some(0) && done.out().contains("modified  f")).then_some(())
        });
        assert_eq!(world.status()["state"], "lost");
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.text("f"), "agent\n");
    }
}

each_user! {
    fn a_closed_terminal_leaves_the_agent_at_work(world) {
        let workspace = world.workspace.to_str().unwrap();
        let script = "echo before > one; echo READY; read x; echo $x > two";
        let call = world.pvisor(["run", "--workspace", workspace, "--", "bash", "-c", script]);
        let mut first = Terminal::open(call.into_command(), 30, 100);
        first.wait_text("READY");
        first.hang_up();
        until("the client to leave", || first_gone(&mut first));
        assert_eq!(world.status()["state"], "running", "the agent goes on");
        world.changes().assert_plain(&["added one"]);
        let mut second = Terminal::open(world.pvisor(["attach", "last"]).into_command(), 30, 100);
        second.wait_text("READY");
        // Whoever joins a running command is in its pane.
        second.send("typed-here\r");
        until("the agent's answer", || {
            (world.changes().plain() == ["added one", "added two"]).then_some(())
        });
        until("its end", || (world.status()["state"] == "exited").then_some(()));
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.text("two"), "typed-here\n");
    }
}

each_user! {
    fn a_terminal_that_ends_without_a_signal_is_left(world) {
        let workspace = world.workspace.to_str().unwrap();
        let call = world.pvisor(["run", "--workspace", workspace, "--", "bash", "-c", "echo READY; read x"]);
        let mut first = Terminal::open_without_control(call.into_command(), 30, 100);
        first.wait_text("READY");
        first.hang_up();
        until("the client to leave", || first_gone(&mut first));
        assert_eq!(world.status()["state"], "running", "the agent goes on");
        world.pvisor(["stop"]).ok();
    }
}

fn first_gone(terminal: &mut Terminal) -> Option<()> {
    let pid = terminal.pid();
    let gone = processes::is_zombie(pid) || !std::path::Path::new(&format!("/proc/{pid}")).exists();
    gone.then_some(())
}

each_user! {
    fn stop_ends_every_process_of_the_sandbox(world) {
        let mut agent = Live::start(world, &[], "trap '' TERM HUP; (setsid sleep 600 &); echo ready; read x; sleep 600");
        agent.hear("ready");
        world.pvisor(["stop"]).ok();
        let done = agent.finish();
        assert_ne!(done.status, Some(0), "{done}");
        processes::await_none(world);
        assert_eq!(world.status()["state"], "exited");
    }
}

each_user! {
    fn a_signal_to_the_headless_client_stops_the_session(world) {
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            let mut agent = Live::start(world, &[], "echo ready; sleep 600");
            agent.hear("ready");
            agent.signal(signal);
            agent.finish().exits(128 + signal as i32);
            processes::await_none(world);
            assert_eq!(world.status()["exit"], 128 + signal as i32);
        }
    }
}

each_user! {
    fn the_command_hears_the_signal_that_the_client_got(world) {
        let traps = "for s in INT TERM HUP; do trap \"echo $s; exit 7\" $s; done";
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            // A shell runs its traps between commands: a long one would hold up a signal that came
            // right before it.
            let script = format!("{traps}; echo ready; while :; do sleep 0.02; done");
            let mut agent = Live::start(world, &[], &script);
            agent.hear("ready");
            agent.signal(signal);
            let done = agent.finish().exits(7);
            assert_eq!(done.out(), signal.as_str().trim_start_matches("SIG"), "{done}");
            assert_eq!(world.status()["exit"], 7);
        }
    }
}

each_user! {
    fn a_detached_run_goes_on_without_a_client(world) {
        let done = world.run_with(&["--detach"], "echo out; echo 1 > f").ok();
        assert!(!done.out().contains("out"), "a detached run shows no output: {done}");
        until("its end", || (world.status()["state"] == "exited").then_some(()));
        world.changes().assert_plain(&["added f"]);
        assert_eq!(world.pvisor(["output", "last"]).ok().out().replace('\r', ""), "out\n");
    }
}

each_user! {
    fn input_that_is_not_read_waits_with_whoever_sends_it(world) {
        let mut agent = Live::start(world, &[], "echo ready; sleep 600");
        agent.hear("ready");
        let poured = agent.pour();
        let (mut last, mut same) = (0, 0);
        until("the flow to stand still", || {
            let now = poured.load(Ordering::Relaxed);
            same = if now == last { same + 1 } else { 0 };
            last = now;
            (now > 0 && same > 20).then_some(())
        });
        assert!(last < 64 << 20, "{last} bytes were taken that nobody reads");
        // However full the connection is, the client can still end the command.
        agent.signal(Signal::SIGINT);
        agent.finish();
        processes::await_none(world);
        assert_eq!(world.status()["state"], "exited");
    }
}

each_user! {
    fn a_hang_up_stops_the_agent_where_that_is_wanted_and_leaving_does_not(world) {
        let workspace = world.workspace.to_str().unwrap();
        let open = || {
            let script = "echo READY; read x; echo $x > two";
            let call = world
                .pvisor(["run", "--workspace", workspace, "--", "bash", "-c", script])
                .env("PVISOR_TUI_HANGUP", "stop");
            let mut terminal = Terminal::open(call.into_command(), 30, 100);
            terminal.wait_text("READY");
            terminal
        };
        let mut left = open();
        left.send("\x1d");
        left.leave_screen();
        assert!(left.wait_exit().success());
        let mut again = Terminal::open(world.pvisor(["attach", "last"]).into_command(), 30, 100);
        again.wait_text("READY");
        again.send("3");
        again.send("typed-here\r");
        until("the agent's answer", || (world.changes().plain() == ["added two"]).then_some(()));
        until("its end", || (world.status()["state"] == "exited").then_some(()));
        drop(again);
        open().hang_up();
        until("its end", || (world.status()["state"] == "exited").then_some(()));
        world.changes().assert_plain(&[]);
    }
}

each_user! {
    fn a_directory_that_cannot_be_watched_keeps_no_server(world) {
        world.run("mkdir shut; echo 1 > shut/f; chmod 000 shut");
        world.changes().assert_plain(&["added shut", "added shut/f"]);
        processes::await_none(world);
    }
}
