//! Faults that tools of this kind really had, each as a small input with the right outcome.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use crate::support::{Call, Capability, Terminal, each_user, require, until, wait};

each_user! {
    /// Escape bytes in names, inside the screen, on exit and in every listing.
    fn escape_bytes_in_names(world) {
        world.run(
            "d=$'\\033[2J\\033]0;owned\\a'; mkdir \"$d\"; echo x > \"$d\"/$'a\\nb\\rc'; printf x > $'\\xff\\xfe.bin'",
        );
        let changes = world.changes();
        let b64: Vec<_> = changes.all().filter_map(|c| c["path_b64"].as_str()).collect();
        assert_eq!(b64, ["//4uYmlu"], "exact bytes where the name is not text");
        let names: Vec<_> = changes.all().map(|c| c["path"].as_str().unwrap().to_owned()).collect();
        let hostile = "\x1b[2J\x1b]0;owned\x07/a\nb\rc";
        assert!(names.iter().any(|n| n == hostile), "JSON carries the name itself: {names:?}");

        let shown = ("\\x1b[2J", "\\xff\\xfe.bin");
        // A patch quotes names as git does.
        let quoted = ("\\033[2J", "\\377\\376.bin");
        for (args, (escape, bytes)) in [
            (&["changes", "last"][..], shown),
            (&["diff", "last"], quoted),
            (&["commit", "--all", "--dry-run"], shown),
        ] {
            // On a terminal, which is where escapes would act.
            let mut terminal = Terminal::open(world.pvisor(args).into_command(), 40, 160);
            assert!(terminal.wait_exit().success(), "{args:?}: {}", terminal.text());
            assert_no_injection(&terminal.bytes, args);
            let text = terminal.text();
            assert!(text.contains(escape), "{args:?} shows the escape: {text}");
            assert!(text.contains("a\\nb\\rc"), "{args:?} keeps the name on one row: {text}");
            assert!(text.contains(bytes), "{args:?}: {text}");
        }
        let mut review = Terminal::open(world.pvisor(["review", "last"]).into_command(), 40, 160);
        review.wait_text("\\xff\\xfe.bin");
        review.send("1jjj ");
        leave(&mut review);
        let shown = String::from_utf8_lossy(&review.bytes).into_owned();
        assert!(!shown.contains("\x1b]0;owned"), "the window title is not the agent's");
        assert_eq!(review.left_behind(), Vec::<String>::new());
        let unknown = world.pvisor(["approve", "no\x1b[31msuch"]).done().exits(2);
        assert!(!unknown.stderr.contains(&0x1b), "errors are sanitised too: {unknown}");

        world.pvisor(["commit", "--all"]).ok();
        let made: Vec<_> = std::fs::read_dir(&world.workspace).unwrap().flatten().map(|e| e.file_name()).collect();
        assert!(made.iter().any(|n| n.as_bytes() == b"\xff\xfe.bin"), "{made:?}");
        assert!(world.has(hostile));
    }
}

/// Leaves a review.
#[track_caller]
fn leave(review: &mut Terminal) {
    review.leave_screen();
    review.wait_exit();
}

/// Demands that nothing of the hostile name acts on the terminal.
#[track_caller]
fn assert_no_injection(bytes: &[u8], what: &[&str]) {
    for never in [&b"\x1b[2J"[..], b"\x1b]0;", b"a\nb", b"\x07"] {
        let found = bytes.windows(never.len()).any(|w| w == never);
        assert!(
            !found,
            "{what:?} printed {:?}",
            never.escape_ascii().to_string()
        );
    }
}

each_user! {
    /// A rename with an edit is one row; its parts can be taken apart without losing either side.
    fn rename_with_an_edit(world) {
        world.host_ok("seq 50 > old.txt");
        let before = world.tree();
        world.run("mv old.txt new.txt; sed -i 5s/5/five/ new.txt");
        let changes = world.changes();
        assert_eq!(changes.lines(), ["renamed old.txt -> new.txt"]);
        let change = changes.get("new.txt");
        assert_eq!((&change["added"], &change["removed"]), (&1.into(), &1.into()), "a small diff");
        let original = world.text("old.txt");
        let edited = original.replacen("\n5\n", "\nfive\n", 1);

        // Only the edit: in place, or refused by name; never half of it.
        let hunk = changes.items("new.txt", "hunk").remove(0);
        world.pvisor(["approve", &format!("old.txt#{hunk}")]).ok();
        let done = world.pvisor(["commit"]).done();
        if done.status == Some(0) {
            assert!(!world.has("new.txt"));
            assert_eq!(world.text("old.txt"), edited);
            world.pvisor(["undo"]).ok();
        } else {
            assert_eq!(done.status, Some(1), "{done}");
        }
        before.assert_same(&world.tree(), "back at the start");
        world.pvisor(["reset", "--all"]).ok();

        // Only the rename.
        let whole = world.changes().items("new.txt", "whole");
        assert_eq!(whole.len(), 1, "the rename itself is an item");
        world.pvisor(["approve", &format!("new.txt#{}", whole[0])]).ok();
        world.pvisor(["commit"]).ok();
        assert!(!world.has("old.txt"));
        assert_eq!(world.text("new.txt"), original);
        world.pvisor(["undo"]).ok();
        before.assert_same(&world.tree(), "back at the start");

        // All of it, addressed by the old name.
        world.pvisor(["reset", "--all"]).ok();
        world.pvisor(["approve", "old.txt"]).ok();
        world.pvisor(["commit"]).ok();
        assert!(!world.has("old.txt"));
        assert_eq!(world.text("new.txt"), edited);
    }
}

each_user! {
    /// Links are links: shown with their target, never followed, never dragging anything along.
    fn symlinks_are_never_followed(world) {
        let outside = world.root.join("outside");
        std::fs::create_dir(&outside).unwrap();
        world.own(&outside, 0o755);
        let out = outside.display();
        world.host_ok(&format!("mkdir out; echo a > real; ln -s real l1; ln -s {out} hl"));
        world.run(&format!(
            "ln -sfn /etc/hostname l1; ln -s $'x\\033[31m' l2; rm -r out; ln -s {out} out; \
             rm hl; mkdir hl; echo new > hl/f; echo b > real"
        ));
        let changes = world.changes();
        for path in ["l1", "out"] {
            assert!(changes.has_risk(path, "outside-link"), "{path}: {:#}", changes.get(path));
        }
        assert_eq!(changes.get("l1")["type"], "symlink");
        assert_eq!(changes.get("out")["kind"], "type");
        assert_eq!(changes.get("hl")["kind"], "type");

        world.pvisor(["approve", "l1"]).ok();
        world.pvisor(["commit"]).ok();
        assert_eq!(world.host_ok("readlink l1; cat real"), "/etc/hostname\na\n", "`real` is not pulled in");

        // The host still has a link at `hl` when only what lies below it is approved.
        world.pvisor(["approve", "hl/f"]).ok();
        world.pvisor(["commit"]).done();
        let strays: Vec<_> = std::fs::read_dir(&outside).unwrap().flatten().collect();
        assert!(strays.is_empty(), "written through a link: {strays:?}");

        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.host_ok("cat hl/f real; readlink out"), format!("new\nb\n{out}\n"));
        assert_eq!(world.workspace.join("l2").read_link().unwrap().as_os_str().as_bytes(), b"x\x1b[31m");
        assert!(std::fs::read_dir(&outside).unwrap().next().is_none());
    }
}

each_user! {
    /// Everything below every `.git` is under review, and nothing of it is run on the host.
    fn hooks_and_nested_repositories(world) {
        require!(world, Capability::Program("git"));
        let ran = world.root.join("ran");
        let (ran1, ran2) = (format!("{}1", ran.display()), format!("{}2", ran.display()));
        world.host_ok("git init -q .; git -c user.email=a@b -c user.name=n commit -q --allow-empty -m i");
        world.run(&format!(
            "git init -q sub; echo s > sub/f; printf '#!/bin/sh\\ntouch {ran1}\\n' > .git/hooks/pre-commit; \
             chmod +x .git/hooks/pre-commit; git config core.fsmonitor 'touch {ran2}'"
        ));
        let changes = world.changes();
        assert_eq!(changes.get("sub/f")["kind"], "added", "{:?}", changes.lines());
        assert_eq!(changes.get("sub/f")["class"], "plain");
        assert!(changes.has_risk(".git/hooks/pre-commit", "git-hook"));
        assert!(changes.has_risk(".git/config", "git-config"));
        assert!(changes.has_risk("sub/.git/config", "git-config"));
        let listing = world.pvisor(["changes", "last"]).ok().out();
        assert!(listing.contains(".git/hooks/pre-commit") && listing.contains("sub/f"), "{listing}");
        world.pvisor(["diff", "last"]).ok();
        let mut review = Terminal::open(world.pvisor(["review", "last"]).into_command(), 40, 120);
        review.wait_text("pre-commit");
        let first = review.text();
        assert!(
            first.find("pre-commit") < first.find("sub/f").or(Some(usize::MAX)),
            "risk first:\n{first}"
        );
        leave(&mut review);
        world.pvisor(["commit", "--all"]).ok();
        for path in [&ran1, &ran2] {
            assert!(!std::path::Path::new(path).exists(), "a program of the agent's ran on the host: {path}");
        }
        assert_eq!(world.mode(".git/hooks/pre-commit") & 0o111, 0o111);
        assert_eq!(world.text("sub/f"), "s\n");
    }
}

each_user! {
    /// A window that is dragged while output streams: the agent hears of each size once at most,
    /// text stays whole.
    fn resize_during_output(world) {
        let script = "trap 'w=$((w+1))' WINCH; w=0; i=0; \
             while ! [ -e stop ]; do i=$((i+1)); printf 'line %05d %s|\\n' $i 1,2,3,4,5,6,7,8,9; \
               [ $((i % 50)) = 0 ] && read -t 0.01 x && break; done; \
             echo $w > winches; stty size > size; echo THE-END; read x";
        let workspace = world.workspace.to_str().unwrap();
        let call = world.pvisor(["run", "--workspace", workspace, "--", "bash", "-c", script]);
        let mut terminal = Terminal::open(call.into_command(), 40, 200);
        terminal.wait_text("6,7,8,9|");
        for round in 0..10 {
            let cols = if round % 2 == 0 { 90 } else { 200 };
            terminal.resize(40, cols);
            // Output goes on all the while; the next size comes after some of it.
            let seen = terminal.bytes.len();
            terminal.attempt(Duration::from_millis(500), |t| {
                (t.bytes.len() > seen).then_some(())
            });
        }
        terminal.send("3");
        terminal.send("\r\r");
        terminal.wait_text("THE-END");
        let screen = terminal.text();
        let numbered = |line: &&str| {
            let number = line.split_once("line ").map(|(_, rest)| rest);
            number.is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()))
        };
        let lines = screen.lines().filter(numbered).collect::<Vec<_>>();
        assert!(!lines.is_empty(), "{screen}");
        for line in lines {
            assert!(line.contains("1,2,3,4,5,6,7,8,9|"), "cut: {line:?} in\n{screen}");
        }
        let note = until("the agent's count", || {
            let changes = world.changes();
            (changes.find("winches").is_some() && changes.find("size").is_some())
                .then(|| world.pvisor(["diff", "last", "winches"]).ok().out())
        });
        let count: u32 = note
            .lines()
            .find_map(|l| l.strip_prefix('+')?.parse().ok())
            .unwrap_or_else(|| panic!("{note}"));
        // One more than the window had: the command starts before its pane is drawn.
        assert!(count <= 11, "{count} SIGWINCH for ten resizes");
        terminal.send("end\r");
        until("its end", || (world.status()["state"] != "running").then_some(()));
    }
}

each_user! {
    /// Ctrl-Z suspends the viewer only and gives a clean shell; `fg` paints anew at the new size.
    fn suspend_and_resume(world) {
        let binary = crate::support::world::binary().display();
        let workspace = world.workspace.display();
        // The agent counts until it finds a line to read.
        std::fs::write(
            world.root.join("agent.sh"),
            "i=0; until read -t 0.05 x; do i=$((i+1)); echo $i > ticks; done; echo $x > last-word\n",
        )
        .unwrap();
        let agent = world.root.join("agent.sh");
        let mut command = world.command("bash");
        command.args(["--norc", "--noprofile", "--noediting", "-i"]).env("PS1", "ready> ");
        let mut shell = Terminal::open(command, 30, 110);
        shell.wait_text("ready>");
        shell.send(&format!("{binary} run --workspace {workspace} -- bash {}\r", agent.display()));
        // The agent's pane alone has this screen, its one change is counted below.
        shell.wait_for("the workstation", |s| s.contains("1 undecided"));
        shell.send("\x1d");
        shell.send("1");
        shell.wait_text("ticks");
        shell.send("\x1a");
        shell.wait_text("Stopped");
        assert_eq!(shell.left_behind(), Vec::<String>::new(), "while suspended");
        assert!(!shell.in_alternate_screen());
        let digest = || world.changes().get("ticks")["digest"].clone();
        let then = digest();
        until("the agent to go on meanwhile", || (digest() != then).then_some(()));
        shell.resize(40, 140);
        shell.send("stty -a | tr ' ' '\\n' | grep -xE -- '-?(echo|icanon|isig);?' | xargs echo FLAGS\r");
        shell.wait_for("a sane terminal", |s| {
            s.lines().any(|l| l.starts_with("FLAGS") && !l.contains('-') && l.contains("icanon") && l.contains("echo"))
        });
        shell.send("fg\r");
        shell.wait_for("the workstation again", |s| s.contains("ticks") && !s.contains("FLAGS"));
        assert!(shell.in_alternate_screen());
        // Ctrl-Z in the agent's pane is the agent's: its shell stops, the viewer does not.
        shell.send("3");
        shell.send("done\r");
        until("the agent's last word", || world.changes().find("last-word").map(|_| ()));
        shell.send("\x1d");
        until("the agent's end", || (world.status()["state"] != "running").then_some(()));
        shell.leave_screen();
        shell.attempt(wait::PATIENCE, |t| (!t.in_alternate_screen()).then_some(())).expect("the shell's screen again");
        // The line belongs to the shell as soon as its screen is back, before it has prompted.
        shell.send("echo BACK-$((40+2))\r");
        shell.wait_text("BACK-42");
        assert_eq!(shell.left_behind(), Vec::<String>::new());
        shell.send("exit\r");
        shell.wait_exit();
    }
}

each_user! {
    /// A file becomes a directory and the other way round; also where a link stands.
    fn file_and_directory_change_places(world) {
        world.host_ok("echo 1 > x; mkdir y; echo 1 > y/z; ln -s x s; mkdir t; echo 1 > t/u");
        let before = world.tree();
        world.run("rm x; mkdir x; echo 2 > x/k; rm -r y; echo 3 > y; rm s; mkdir s; echo 4 > s/v; rm -r t; ln -s y t");
        let changes = world.changes();
        for path in ["x", "y", "s", "t"] {
            assert_eq!(changes.get(path)["kind"], "type", "{path}: {:?}", changes.lines());
        }
        assert_eq!(changes.get("y/z")["kind"], "deleted", "what is lost is listed");
        assert_eq!(changes.get("t/u")["kind"], "deleted");
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.host_ok("ls x s; cat x/k y s/v; readlink t"), "s:\nv\n\nx:\nk\n2\n3\n4\ny\n");
        world.pvisor(["undo"]).ok();
        before.assert_same(&world.tree(), "undo of type changes");
    }
}

each_user! {
    /// Namespaces restricted by a limit: a clear end or a real stage, never a silent run without.
    fn restricted_namespaces(world) {
        let binary = crate::support::world::binary();
        let mut command = world.command("unshare");
        command
            .args(["-Ur", "sh", "-c", "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"", "sh"])
            .arg(binary)
            .args(["run", "--headless", "--workspace"])
            .arg(&world.workspace)
            .args(["--", "sh", "-c", "echo ran > proof"]);
        let done = Call::new(command).done();
        assert!(!world.has("proof"), "never without a stage: {done}");
        match done.status {
            Some(0) => world.changes().assert_plain(&["added proof"]),
            Some(125) => {
                assert!(done.err().contains("error:") && done.err().contains("hint:"), "{done}");
            }
            _ => panic!("neither a stage nor a clear refusal: {done}"),
        }
    }
}

each_user! {
    /// The host edits what the agent edited, with the same size and time; each way is a refusal.
    fn edits_below_a_mounted_stage(world) {
        let job = "cat g; echo bbbb > f; rm -r d; echo 1 > n";
        let prepare = "rm -rf f g d n; echo aaaa > f; echo 1 > g; mkdir d; echo 1 > d/x; touch -d 2020-01-01 f";
        for (edit, path, refuses) in [
            ("echo cccc > f; touch -d 2020-01-01 f", "f", true),
            ("echo host > n", "n", true),
            ("echo host > d/ext", "d", true),
            ("chmod 600 f", "f", true),
            ("rm f", "f", true),
            ("echo other > g", "g", false),
        ] {
            world.host_ok(prepare);
            world.run(job);
            world.host_ok(edit);
            let before = world.tree();
            let done = world.pvisor(["commit", "--all"]).done();
            if refuses {
                let done = done.exits(1).says(path);
                before.assert_same(&world.tree(), edit);
                assert!(done.err().contains("hint:"), "ways on are offered: {done}");
            } else {
                done.exits(0);
                assert_eq!(world.host_ok("cat f g n; ls"), "bbbb\nother\n1\nf\ng\nn\n");
            }
        }
    }
}
