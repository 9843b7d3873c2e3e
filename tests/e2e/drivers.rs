//! Which driver merges a layer, what is refused, and what becomes of a session whose file server
//! ends.

use crate::support::mounted::driver_of;
use crate::support::{World, each_user, processes, until};

each_user! {
    fn the_fastest_that_can_do_it(world) {
        world.run("true");
        let status = world.status();
        for layer in ["workspace", "home"] {
            assert_eq!(driver_of(&status, layer), "overlayfs");
        }
        world.run_with(&["--observe"], "true").ok();
        let status = world.status();
        assert_eq!(driver_of(&status, "workspace"), "fuse");
        let reason = status["boundary"]["layers"][0]["reason"].as_str().unwrap();
        assert!(reason.contains("--observe needs it"), "{reason}");
        let text = world.pvisor(["status", "last"]).ok().out();
        assert!(text.contains("fuse: --observe needs it"), "{text}");
        assert!(text.contains("README.md, \"Deviations\""), "{text}");
    }
}

each_user! {
    /// The record names the driver that was used.
    fn the_record_says_what_was_used(world) {
        world.run_with(&["--driver", "fuse"], "true").ok();
        let record = std::fs::read(world.session_dir().join("session.json")).unwrap();
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
        for layer in record["info"]["layers"].as_array().unwrap() {
            assert_eq!(layer["driver"], "fuse", "{record:#}");
        }
        let changes = world.changes();
        assert_eq!(changes.json["layers"][0]["driver"], "fuse");
    }
}

each_user! {
    fn what_cannot_go_together_is_a_usage_error(world) {
        for (flags, words) in [
            (&["--driver", "overlayfs", "--observe"][..], ["--driver overlayfs", "--observe"]),
            (&["--driver", "overlayfs", "--rule", "deny:x"], ["--driver overlayfs", "--rule deny:x"]),
            (&["--driver", "overlayfs", "--cache", "extended"], ["--driver overlayfs", "--cache extended"]),
            (&["--cache", "extended", "--observe"], ["--cache extended", "--observe"]),
            (&["--cache", "extended", "--rule", "warn:x"], ["--cache extended", "--rule warn:x"]),
            (&["--mode", "host", "--driver", "fuse"], ["--driver", "--mode host"]),
        ] {
            let done = world.run_with(flags, "echo ran").done().exits(2);
            for word in words {
                assert!(done.err().contains(word), "{flags:?}: {done}");
            }
            assert!(done.err().contains("hint:"), "{flags:?}: {done}");
            assert_eq!(done.out(), "");
        }
        world.pvisor(["list"]).ok();
    }
}

each_user! {
    /// Our own records change while the session runs: nobody can promise otherwise of a workspace
    /// that holds them.
    fn no_promise_about_a_workspace_that_holds_the_records(world) {
        for cache in ["extended", "immutable-lower"] {
            for state in ["state", "a/state/not/made/yet"] {
                let state = world.workspace.join(state);
                let flags = ["--cache", cache, "--state-dir", state.to_str().unwrap()];
                let done = world.run_with(&flags, "echo ran").done().exits(2);
                assert!(done.err().contains(&format!("--cache {cache} cannot go together with")), "{done}");
                assert!(done.err().contains("it lies in the workspace"), "{done}");
                assert_eq!(done.out(), "");
                assert!(!state.exists(), "nothing was begun");
            }
        }
        let beside = world.root.join("workspace-state");
        std::fs::create_dir(&beside).unwrap();
        world.own(&beside, 0o700);
        let flags = ["--cache", "extended", "--state-dir", beside.to_str().unwrap()];
        assert_eq!(world.run_with(&flags, "echo ran").ok().out(), "ran\n");
    }
}

each_user! {
    fn the_whole_tool_on_the_file_server(world) {
        world.host_ok("mkdir d; echo 1 > d/f; echo 1 > a; ln -s a l");
        let job = "mv d e; echo 2 > e/f; rm a; echo x > n; chmod 600 n; cat e/f";
        let done = world.run_with(&["--driver", "fuse"], job).ok();
        assert_eq!(done.out(), "2\n", "{done}");
        assert_eq!(world.text("d/f"), "1\n");
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.host_ok("cat e/f n; ls"), "2\nx\ne\nl\nn\n");
        assert_eq!(world.mode("n"), 0o600);
        world.pvisor(["undo"]).ok();
        assert_eq!(world.host_ok("cat d/f a; ls"), "1\n1\na\nd\nl\n");
    }
}

/// The file server of the world's only session.
fn file_server(world: &World) -> i32 {
    let mut command = world.command("pgrep");
    command.args(["-u", &world.user.uid.to_string(), "-x", "pvisor-files"]);
    let found = crate::support::Call::new(command).done().out();
    // Other tests run beside this one: ours has our session's log open.
    let ours = world.session_dir().join("server.log");
    found
        .lines()
        .filter_map(|pid| pid.parse().ok())
        .find(|pid: &i32| {
            std::fs::read_link(format!("/proc/{pid}/fd/2")).is_ok_and(|log| log == ours)
        })
        .expect("a file server with this session's log")
}

each_user! {
    fn a_killed_file_server_ends_the_agent_and_keeps_the_stage(world) {
        world.host_ok("echo 1 > a");
        let workspace = world.workspace.to_str().unwrap();
        let script = "echo 2 > a; echo ready > ready; while :; do cat a > /dev/null; done";
        let args = ["run", "--detach", "--driver", "fuse", "--workspace", workspace, "--", "bash", "-c", script];
        world.pvisor(args).ok();
        until("the agent's file", || world.changes().find("ready").map(|_| ()));
        let pid = file_server(world);
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
        until("the agent's end", || (world.status()["state"] != "running").then_some(()));
        let status = world.status();
        assert_eq!((&status["exit"], &status["lost"]), (&137.into(), &"the file server".into()));
        let told = world.pvisor(["status"]).ok().out();
        assert!(told.contains("the file server has ended"), "{told}");
        world.changes().assert_plain(&["modified a", "added ready"]);
        world.pvisor(["revert", "last", "ready"]).ok();
        world.changes().assert_plain(&["modified a"]);
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.text("a"), "2\n");
    }
}

each_user! {
    fn a_stop_and_a_killed_server_leave_nothing(world) {
        let workspace = world.workspace.to_str().unwrap();
        for how in ["stop", "kill"] {
            let script = "echo 2 > a; exec 3>>a; while :; do echo x >&3; done";
            let args = ["run", "--detach", "--driver", "fuse", "--workspace", workspace, "--", "bash", "-c", script];
            world.pvisor(args).ok();
            until("the agent's file", || world.changes().find("a").map(|_| ()));
            let files = file_server(world);
            if how == "stop" {
                world.pvisor(["stop", "last"]).ok();
            } else {
                processes::kill_hard(processes::server(world));
            }
            until("its end", || (world.status()["state"] != "running").then_some(()));
            if how == "kill" {
                let gone = || (!std::path::Path::new(&format!("/proc/{files}/stat")).exists()).then_some(());
                until("the file server's end", gone);
            }
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
            assert!(!mounts.contains(workspace), "{mounts}");
            world.changes().assert_plain(&["added a"]);
            world.pvisor(["discard", "last"]).ok();
        }
    }
}

each_user! {
    /// `/dev/fuse` is not there: said when it is needed, not missed when it is not.
    fn without_the_device(world) {
        let script = "mkdir ../dev && mount -t tmpfs none ../dev && \
                      for n in null zero full random urandom tty; do \
                        touch ../dev/$n && mount --bind /dev/$n ../dev/$n; done; mount --rbind ../dev /dev; \
                      $PV run --headless -- echo ran; echo rc=$?; \
                      $PV run --headless --driver fuse -- echo ran; echo rc=$?; $PV doctor";
        let Some(done) = world.in_mounts(script) else { return };
        assert!(done.out().starts_with("ran\nrc=0\nrc=125\n"), "{done}");
        assert!(done.err().contains("opening /dev/fuse") && done.err().contains("modprobe fuse"), "{done}");
        assert!(done.out().contains("FUSE file system"), "{done}");
    }
}
