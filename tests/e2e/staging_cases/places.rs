//! Where a stage may lie, what lies inside the workspace, and sandboxes in the sandbox.

use std::os::unix::process::CommandExt;

use crate::support::{Call, Capability, Done, Stage, each_driver_and_user, require};

each_driver_and_user! {
    /// The sessions' own directory inside the workspace: refused with a reason, or out of the
    /// agent's sight; never a hang, never a stage of the stage.
    fn state_inside_the_workspace(stage) {
        stage.host_ok("echo 1 >f; mkdir .stage");
        let state = stage.workspace.join(".stage");
        let run = |script: &str| {
            let state = state.to_str().unwrap();
            let workspace = stage.workspace.to_str().unwrap();
            let args = ["run", "--state-dir", state, "--headless", "--driver", stage.driver.name()];
            stage.pvisor([&args[..], &["--workspace", workspace, "--", "bash", "-c", script]].concat()).done()
        };
        let done = run("timeout 10 find . 2>/dev/null | wc -l; mkdir -p .stage/x 2>/dev/null; echo rc=$?; echo 2 >f");
        if done.status == Some(0) {
            assert!(done.out().ends_with("rc=1\n"), "it cannot be written: {done}");
            let seen: u32 = done.out().lines().next().unwrap().parse().unwrap();
            assert!(seen <= 3, "{seen} entries are seen: {done}");
            let flags = ["--state-dir", state.to_str().unwrap(), "last", "--json"];
            let listed = stage.pvisor([&["changes"][..], &flags].concat()).ok().json();
            crate::support::Changes::from_json(listed).assert_plain(&["modified f"]);
        } else {
            let done = done.exits(125);
            assert!(done.err().contains("error:") && done.err().contains(".stage"), "{done}");
        }
        assert_eq!(stage.text("f"), "1\n");
        stage.host_ok("timeout 5 ls -A >/dev/null");
    }
}

each_driver_and_user! {
    /// The workspace inside the sessions' own directory has nowhere to stage.
    fn workspace_inside_the_state(stage) {
        let workspace = stage.state.join("pvisor-tui/deep/work");
        std::fs::create_dir_all(&workspace).unwrap();
        for dir in [stage.state.join("pvisor-tui"), stage.state.join("pvisor-tui/deep"), workspace.clone()] {
            stage.own(&dir, 0o700);
        }
        let args = ["run", "--headless", "--driver", stage.driver.name(), "--workspace", workspace.to_str().unwrap()];
        let done = stage.pvisor([&args[..], &["--", "sh", "-c", "echo ran >proof"]].concat()).done();
        assert!(!workspace.join("proof").exists(), "never without a stage: {done}");
        if done.status == Some(0) {
            stage.changes().assert_plain(&["added proof"]);
        } else {
            assert!(done.err().contains("error:"), "{done}");
        }
    }
}

/// Runs `script` as the world's user in the workspace with a file system mounted at `mnt`, in a
/// mount namespace of root's; `$0` is the binary.
fn with_mount(stage: &Stage, script: &str) -> Done {
    let ids = format!("--reuid={0} --regid={1}", stage.user.uid, stage.user.gid);
    let mut command = stage.command("unshare");
    // Only root can mount where a session can be led from: the mount is root's, the rest is not.
    command.uid(0).gid(0).args(["--mount", "sh", "-ec"]);
    command.arg(format!(
        "mkdir -p mnt; mount -t tmpfs -o mode=755,uid={},gid={} none mnt; echo in >mnt/x; \
         exec setpriv {ids} --clear-groups sh -c '{script}' \"$0\"",
        stage.user.uid, stage.user.gid
    ));
    command
        .arg(crate::support::binary())
        .current_dir(&stage.workspace);
    Call::new(command).done()
}

each_driver_and_user! {
    /// A file system mounted inside the workspace is told of at the start and then shown, or the
    /// start is refused; never an empty directory, never a write past the stage.
    fn a_mount_inside_the_workspace(stage) {
        require!(stage, Capability::Root);
        let driver = stage.driver.name();
        let done = with_mount(
            stage,
            &format!(
                "\"$0\" run --headless --driver {driver} -- bash -c \"cat mnt/x; echo new >mnt/y; echo new >f\" || echo rc=$?; \
                 echo after; cat mnt/x; ls mnt; ls"
            ),
        );
        let out = done.out();
        let (during, after) = out.split_once("after\n").unwrap_or_else(|| panic!("{done}"));
        assert_eq!(after, "in\nx\nmnt\n", "the host's side is untouched: {done}");
        assert!(during.starts_with("in\n") || during.contains("rc=125"), "shown or refused: {done}");
        assert!(done.err().contains("work/mnt"), "it is named: {done}");
    }
}

each_driver_and_user! {
    /// A file system that appears later is never written into by a commit.
    fn a_mount_that_appears_before_the_commit(stage) {
        require!(stage, Capability::Root);
        stage.host_ok("mkdir mnt; echo 1 >mnt/f");
        let before = stage.tree();
        stage.run("echo 2 >mnt/f; echo 3 >mnt/new; echo 4 >beside");
        // A server that has the mount in sight, not the one that led the run.
        let lock = stage.session_dir().join("lock");
        let done = with_mount(
            stage,
            &format!(
                "flock {} true; \"$0\" commit --all && echo committed || echo rc=$?; ls mnt",
                lock.display()
            ),
        );
        assert_eq!(done.out(), "rc=1\nx\n", "{done}");
        assert!(done.err().contains("mnt"), "{done}");
        before.assert_same(&stage.tree(), "nothing was written, there or beside");
        let lines = stage.changes().lines();
        assert_eq!(lines, ["added beside", "added mnt/new", "modified mnt/f"]);
    }
}

each_driver_and_user! {
    /// An overlay of the agent's own inside: made, or refused by the kernel, and the outer stage
    /// goes on either way. Its marks are data, not marks of ours.
    fn an_overlay_inside(stage) {
        require!(stage, Capability::Program("setfattr"));
        let done = stage.run(
            "mkdir l u w m; echo 1 >l/a; unshare -Urm sh -c \
               'mount -t overlay -o userxattr,lowerdir=l,upperdir=u,workdir=w o m && echo 1 >m/f && rm m/a' 2>/dev/null; \
             mkdir o; setfattr -n user.overlay.opaque -v y o; setfattr -n user.overlay.origin -v x o; echo 1 >o/kept; \
             mkdir u2; echo 2 >u2/f; ls o u2; rm -rf w; echo 5 >l/b",
        );
        assert_eq!(done.out(), "o:\nkept\n\nu2:\nf\n", "{done}");
        let changes = stage.changes();
        for path in ["l/a", "l/b", "o", "o/kept", "u2/f"] {
            assert_eq!(changes.get(path)["kind"], "added", "{path}");
        }
        stage.pvisor(["commit", "--all"]).ok();
        let marks = stage.host_ok("getfattr -d o | grep user | sort; cat l/b o/kept");
        assert_eq!(marks, "user.overlay.opaque=\"y\"\nuser.overlay.origin=\"x\"\n5\n1\n");
    }
}

each_driver_and_user! {
    /// A sandbox of the agent's own inside ours: it works, or ends with the kernel's word.
    fn a_sandbox_inside(stage) {
        require!(stage, Capability::Program("bwrap"));
        let done = stage.run(
            "bwrap --ro-bind / / --dev /dev true 2>err; rc=$?; [ $rc = 0 ] || [ -s err ] && echo told; \
             rm err; echo on >goes",
        );
        assert_eq!(done.out(), "told\n", "{done}");
        stage.changes().assert_plain(&["added goes"]);
    }
}

each_driver_and_user! {
    /// The host edits what the agent edited, with the same size and time; each way is a refusal.
    fn edits_on_the_host_meanwhile(stage) {
        let prepare = "rm -rf f g d n; echo aaaa >f; echo 1 >g; mkdir d; echo 1 >d/x; touch -d 2020-01-01 f";
        for (edit, path, refuses) in [
            ("echo cccc >f; touch -d 2020-01-01 f", "f", true),
            ("echo host >n", "n", true),
            ("echo host >d/ext", "d", true),
            ("chmod 600 f", "f", true),
            ("rm f", "f", true),
            ("echo other >g", "g", false),
        ] {
            stage.host_ok(prepare);
            stage.run("cat g; echo bbbb >f; rm -r d; echo 1 >n");
            stage.host_ok(edit);
            let before = stage.tree();
            let done = stage.pvisor(["commit", "--all"]).done();
            if refuses {
                let done = done.exits(1).says(path);
                before.assert_same(&stage.tree(), edit);
                assert!(done.err().contains("hint:"), "ways on are offered: {done}");
            } else {
                done.exits(0);
                assert_eq!(stage.host_ok("cat f g n; ls"), "bbbb\nother\n1\nf\ng\nn\n");
            }
        }
    }
}

each_driver_and_user! {
    /// Without namespaces, or without the file server's device: a clear end, never a run without a
    /// stage.
    fn a_driver_that_cannot_be_had(stage) {
        let binary = crate::support::binary();
        let driver = stage.driver.name();
        for (taken, flags) in [
            ("echo 0 >/proc/sys/user/max_user_namespaces", &["-Ur"][..]),
            ("mount --bind /dev/null /dev/fuse", &["-Urm"]),
        ] {
            let mut command = stage.command("unshare");
            command.args(flags).args(["sh", "-c", &format!("{taken}; exec \"$@\""), "sh"]).arg(binary);
            command.args(["run", "--headless", "--driver", driver, "--workspace"]).arg(&stage.workspace);
            command.args(["--", "sh", "-c", "echo ran >proof"]);
            let done = Call::new(command).done();
            assert!(!stage.has("proof"), "never without a stage: {done}");
            match done.status {
                Some(0) => stage.changes().assert_plain(&["added proof"]),
                Some(125) => assert!(done.err().contains("error:") && done.err().contains("hint:"), "{done}"),
                _ => panic!("neither a stage nor a clear refusal: {done}"),
            }
        }
    }
}
