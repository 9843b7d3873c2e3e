//! The command line as documented: exit codes, sessions and paths, listings, streams.

use crate::staged_run::{JOB, prepare};
use crate::support::{Call, Capability, Live, Terminal, Tree, World, each_user, require, until};

each_user! {
    fn run_ends_as_the_command_does(world) {
        for (flags, script, code) in [
            (&[][..], "exit 0", 0),
            (&[], "exit 3", 3),
            (&[], "kill -TERM $$", 143),
            (&[], "kill -KILL $$", 137),
            (&["--timeout", "1s"], "sleep 60", 124),
        ] {
            world.run_with(flags, script).done().exits(code);
        }
        let workspace = world.workspace.to_str().unwrap();
        world.host_ok("echo data > plain-file; chmod 644 plain-file");
        let file = world.workspace.join("plain-file");
        for (program, code) in [("no-such-program-here", 127), (file.to_str().unwrap(), 126)] {
            let done = world.pvisor(["run", "--headless", "--workspace", workspace, "--", program]).done();
            assert_eq!(done.status, Some(code), "{done}");
            assert!(!done.err().is_empty(), "{done}");
        }
        // A directory of PATH that the caller may not search holds nothing for it.
        world.host_ok("mkdir shut; chmod 000 shut");
        let path = format!("{workspace}/shut:/usr/bin:/bin");
        let done = world
            .pvisor(["run", "--headless", "--workspace", workspace, "--", "no-such-program-here"])
            .env("PATH", &path)
            .done();
        assert_eq!(done.status, Some(127), "{done}");
    }
}

each_user! {
    fn usage_errors_are_2_and_run_nothing(world) {
        let workspace = world.workspace.to_str().unwrap();
        for args in [
            &["run", "--no-such-flag", "--", "true"][..],
            &["run", "--headless", "--workspace", "/", "--", "true"],
            &["run", "--headless", "--workspace", "/no/such/dir", "--", "true"],
            &["run", "--headless", "--workspace", workspace, "--mount", "/etc:nonsense", "--", "true"],
            &["run", "--headless", "--workspace", workspace, "--timeout", "soon", "--", "true"],
            &["no-such-verb"],
        ] {
            let done = world.pvisor(args).done().exits(2);
            assert!(done.err().contains("error:"), "{done}");
        }
        let list = world.pvisor(["list", "--json"]).ok().json();
        assert_eq!(list["sessions"].as_array().or(list.as_array()).map(Vec::len), Some(0), "{list}");
    }
}

each_user! {
    fn streams_pass_exactly(world) {
        let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
        let done = world.run_with(&[], "cat; printf 'e\\000\\377' >&2").stdin(bytes.clone()).ok();
        assert_eq!(done.stdout.len(), bytes.len());
        assert!(done.stdout == bytes, "stdin to stdout, byte for byte");
        assert_eq!(done.stderr, b"e\x00\xff");
        let no_terminal = world.run("test -t 0 || test -t 1 || test -t 2 || echo pipes");
        assert_eq!(no_terminal.out(), "pipes\n");
        let forced = world.run_with(&["--pty"], "test -t 0 && test -t 1 && echo terminal").ok();
        assert_eq!(forced.out().replace('\r', ""), "terminal\n");
    }
}

each_user! {
    fn input_arrives_while_it_runs(world) {
        let mut agent = Live::start(world, &[], "echo ready; read a; echo got $a; read b; echo then $b");
        agent.hear("ready");
        agent.say("one");
        agent.hear("got one");
        agent.say("two");
        agent.hear("then two");
        agent.finish().exits(0);
    }
}

each_user! {
    fn a_session_is_found_by_name_id_and_prefix(world) {
        world.run_with(&["--name", "first-one"], "echo 1 > a").ok();
        let first = world.status()["session"].as_str().unwrap().to_owned();
        world.run_with(&["--name", "second-one"], "echo 2 > b").ok();
        let paths = |args: &[&str]| {
            let json = world.pvisor(args).ok().json();
            json["changes"][0]["path"].as_str().unwrap().to_owned()
        };
        assert_eq!(paths(&["changes", "--json"]), "b", "the newest by default");
        assert_eq!(paths(&["changes", "last", "--json"]), "b");
        assert_eq!(paths(&["changes", "first-one", "--json"]), "a");
        assert_eq!(paths(&["changes", &first, "--json"]), "a");
        assert_eq!(paths(&["changes", "-s", "first", "--json"]), "a");
        assert_eq!(paths(&["changes", "-s", "sec", "--json"]), "b");
        let resume = ["run", "--headless", "--continue", "first", "--", "true"];
        world.pvisor(resume).done().exits(2).says("first");
        world.pvisor(["changes", "-s", "nobody"]).done().exits(1).says("nobody");
        let list = world.pvisor(["list", "--json"]).ok().json();
        let text = list.to_string();
        assert!(text.contains("first-one") && text.contains("second-one"), "{list}");
    }
}

each_user! {
    fn paths_are_exact_and_all_or_nothing(world) {
        world.run("mkdir -p d/e; echo 1 > d/e/f; echo 1 > d/g; echo 1 > last; echo 1 > 'a#h1'; echo 1 > b");
        let decided = || -> Vec<String> {
            let changes = world.changes();
            let approved = changes.all().filter(|c| c["decision"] == "approved" && c["type"] == "file");
            approved.map(|c| c["path"].as_str().unwrap().to_owned()).collect()
        };
        world.pvisor(["approve", "b", "nope"]).done().exits(2).says("nope");
        world.pvisor(["approve", "b#hffff"]).done().exits(2);
        assert_eq!(decided(), Vec::<String>::new(), "nothing is decided when one name is unknown");
        world.pvisor(["approve", "./last"]).ok();
        world.pvisor(["approve", "a#h1"]).ok();
        assert_eq!(decided(), ["a#h1", "last"]);
        // Never relative to the current directory.
        let inside = world.workspace.join("d");
        std::fs::create_dir(&inside).unwrap();
        world.own(&inside, 0o755);
        world.pvisor(["approve", "g"]).cwd(&inside).done().exits(2);
        world.pvisor(["approve", "d"]).ok();
        assert_eq!(decided(), ["a#h1", "d/e/f", "d/g", "last"]);
        let absolute = world.workspace.join("b");
        world.pvisor(["approve", absolute.to_str().unwrap()]).ok();
        assert_eq!(decided().len(), 5);
        world.pvisor(["reset", "--all"]).ok();
        assert_eq!(decided(), Vec::<String>::new());
    }
}

each_user! {
    fn names_come_from_a_file_of_bytes(world) {
        world.run("printf 1 > $'new\\nline'; printf 2 > $'\\xff'; printf 3 > plain");
        let list = world.root.join("list");
        std::fs::write(&list, b"new\nline\0\xff\0").unwrap();
        world.own(&list, 0o644);
        world.pvisor(["approve", "--paths-from", list.to_str().unwrap(), "-0"]).ok();
        world.pvisor(["commit"]).ok();
        assert_eq!(world.host_ok("cat $'new\\nline' $'\\xff'; test ! -e plain"), "12");
        std::fs::write(&list, b"plain\0missing\0").unwrap();
        world.pvisor(["approve", "--paths-from", list.to_str().unwrap(), "-0"]).done().exits(2);
        assert_eq!(world.changes().get("plain")["decision"], "undecided");
    }
}

each_user! {
    fn nothing_to_commit_is_fine_and_a_dry_run_writes_nothing(world) {
        prepare(world);
        world.run(JOB);
        let before = world.tree();
        let nothing = world.pvisor(["commit"]).ok();
        assert!((nothing.out() + &nothing.err()).to_lowercase().contains("nothing"), "{nothing}");
        assert_eq!(world.pvisor(["commit", "--json"]).ok().json()["state"], "nothing");
        let plan = world.pvisor(["commit", "--all", "--dry-run"]).ok();
        assert!(plan.out().contains("b.txt"), "{plan}");
        before.assert_same(&world.tree(), "a dry run");
        assert_eq!(world.status()["commits"], 0);
        world.pvisor(["undo"]).done().exits(1);
    }
}

each_user! {
    fn diff_is_what_git_apply_takes(world) {
        require!(world, Capability::Program("git"));
        prepare(world);
        world.host_ok("printf '\\000\\001old' > bin; printf 'no newline' > nonl; mkdir 'd d'; echo x > 'd d/t\tb'; : > empty-gone");
        let copy = world.root.join("copy");
        world.host_ok(&format!("cp -a . {}", copy.display()));
        world.run(&format!(
            "{JOB}; printf '\\000\\002new' > bin; printf 'no newline still' > nonl; echo y > 'd d/t\tb'; \
             : > empty; rm empty-gone; printf 'x\\r\\n' > crlf; seq 60 > old2; sed -i 3s/3/three/ new.txt; \
             echo 'q' > $'quote\"d'; echo u > ünï"
        ));
        let patch = world.pvisor(["diff", "last"]).ok();
        let mut apply = world.command("git");
        apply.args(["apply", "--whitespace=nowarn", "-"]).current_dir(&copy).env("GIT_CEILING_DIRECTORIES", &world.root);
        Call::new(apply).stdin(patch.stdout.clone()).ok();
        world.pvisor(["commit", "--all"]).ok();
        let (committed, patched) = (world.tree().timeless(), Tree::of(&copy).timeless());
        committed.assert_same(&patched, "a patch and a commit come to the same");
    }
}

each_user! {
    fn diff_of_one_path_and_its_items(world) {
        world.host_ok("seq 30 > n.txt; echo 1 > other");
        world.run("sed -i -e 3d -e 27d n.txt; echo 2 > other");
        let one = world.pvisor(["diff", "last", "n.txt"]).ok().out();
        assert!(one.contains("n.txt") && !one.contains("other"), "{one}");
        assert_eq!(one.matches("@@ ").count(), 2, "{one}");
        world.pvisor(["diff", "last", "nowhere"]).done().exits(2);
    }
}

each_user! {
    fn output_is_kept_and_exact(world) {
        let script = "printf 'a\\033[31mred\\033[0m\\n'; printf 'b\\n' >&2";
        world.run_with(&["--pty"], script).ok();
        let kept = world.pvisor(["output", "last"]).ok();
        assert_eq!(kept.out().replace('\r', ""), "a\x1b[31mred\x1b[0m\nb\n");
        let mut terminal = Terminal::open(world.pvisor(["output", "last"]).into_command(), 24, 80);
        terminal.wait_exit();
        assert!(!terminal.bytes.windows(5).any(|w| w == b"\x1b[31m"), "sanitised on a terminal");
        let cast = std::fs::read_to_string(world.session_dir().join("output.cast")).unwrap();
        let head: serde_json::Value = serde_json::from_str(cast.lines().next().unwrap()).unwrap();
        assert_eq!(head["version"], 2, "asciicast v2");
        let event: serde_json::Value = serde_json::from_str(cast.lines().nth(1).unwrap()).unwrap();
        assert!(event[0].is_number() && event[1] == "o", "{event}");
    }
}

each_user! {
    fn every_listing_has_json(world) {
        world.run("echo 1 > a");
        for args in [
            &["list", "--json"][..],
            &["status", "--json"],
            &["changes", "--json"],
            &["themes", "--json"],
            &["doctor", "--json"],
            &["config", "show", "--json"],
        ] {
            world.pvisor(args).ok().json();
        }
        let status = world.status();
        for field in ["session", "name", "state", "exit", "dir", "workspace", "boundary", "commits"] {
            assert!(status.get(field).is_some(), "status --json has no {field}: {status}");
        }
        assert_eq!(status["exit"].as_i64().or(status["exit"]["code"].as_i64()), Some(0), "{status}");
        for shell in ["bash", "zsh", "fish"] {
            let script = world.pvisor(["completions", shell]).ok().out();
            assert!(script.contains("pvisor-tui"), "{shell}: {script}");
        }
    }
}

each_user! {
    fn without_arguments_it_shows_the_way(world) {
        let first = world.pvisor::<_, &str>([]).ok();
        assert!(first.out().contains("pvisor-tui run"), "the first steps: {first}");
        world.run_with(&["--name", "seen-in-list"], "true").ok();
        let list = world.pvisor::<_, &str>([]).ok();
        assert!(list.out().contains("seen-in-list"), "{list}");
    }
}

each_user! {
    fn a_state_directory_of_its_own(world) {
        let other = world.root.join("elsewhere");
        std::fs::create_dir(&other).unwrap();
        world.own(&other, 0o700);
        let other = other.to_str().unwrap();
        world.run_with(&["--state-dir", other], "echo 1 > a").ok();
        world.pvisor(["changes", "last"]).done().exits(1);
        let changes = world.pvisor(["changes", "last", "--json", "--state-dir", other]).ok().json();
        assert_eq!(changes["changes"][0]["path"], "a");
    }
}

each_user! {
    fn mode_host_writes_directly_and_says_so(world) {
        let done = world.run_with(&["--mode", "host"], "echo direct > f; pwd").ok();
        assert_eq!(done.out(), format!("{}\n", world.workspace.display()));
        assert_eq!(world.text("f"), "direct\n");
        let status = world.status();
        assert_eq!(status["boundary"]["mode"], "host");
        let shown = world.pvisor(["status", "last"]).ok().out();
        assert!(shown.contains("not staged") || shown.contains("directly"), "{shown}");
        let refused = world.pvisor(["commit", "--all"]).done();
        assert_ne!(refused.status, Some(2), "{refused}");
        assert_eq!(world.text("f"), "direct\n");
    }
}

each_user! {
    fn mounts_are_what_was_asked(world) {
        for name in ["read", "write", "hide", "stage", "private"] {
            let dir = world.root.join(name);
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("f"), "host\n").unwrap();
            world.own(&dir.join("f"), 0o644);
            world.own(&dir, 0o755);
        }
        let root = world.root.display();
        let mounts: Vec<String> = ["read", "write", "hide", "private"]
            .iter()
            .map(|name| format!("{root}/{name}:{name}"))
            .chain([format!("{root}/stage=extra:stage")])
            .collect();
        let flags: Vec<&str> = mounts.iter().flat_map(|m| ["--mount", m.as_str()]).collect();
        let script = format!(
            "cd {root}; for d in read write hide stage private; do \
             echo \"$d $(cat $d/f 2>/dev/null || echo unseen) $( (echo agent > $d/f) 2>/dev/null && echo written || echo refused)\"; done"
        );
        let done = world.run_with(&flags, &script).ok();
        let lines: Vec<String> = done.out().lines().map(str::to_owned).collect();
        assert_eq!(
            lines,
            ["read host refused", "write host written", "hide unseen refused", "stage host written", "private unseen written"]
        );
        let on_host = |name: &str| std::fs::read_to_string(world.root.join(name).join("f")).unwrap();
        assert_eq!(on_host("write"), "agent\n");
        for name in ["read", "hide", "stage", "private"] {
            assert_eq!(on_host(name), "host\n", "{name}");
        }
        let lines = world.changes().lines();
        assert_eq!(lines, ["modified extra:f"]);
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(on_host("stage"), "agent\n");
        let boundary = world.status()["boundary"].to_string();
        assert!(boundary.contains(&format!("{root}/write")), "direct writes are said: {boundary}");
    }
}

each_user! {
    fn a_home_workspace_is_the_only_layer(world) {
        let home = world.home.to_str().unwrap();
        world.pvisor(["run", "--headless", "--workspace", home, "--", "sh", "-c", "echo 1 > f; pwd"]).ok();
        let changes = world.changes();
        let layers = changes.json["layers"].as_array().unwrap();
        assert_eq!(layers.len(), 1, "{layers:?}");
        assert_eq!(changes.lines(), ["added f"]);
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(std::fs::read_to_string(world.home.join("f")).unwrap(), "1\n");
    }
}

each_user! {
    fn the_workspaces_own_config_needs_trust_and_only_tightens(world) {
        let workspace = world.workspace.to_str().unwrap();
        world.host_ok("echo 'hdie = [\"secret\"]' > .pvisor-tui.toml");
        // Not trusted: it has no say, whatever it holds.
        world.run_with(&[], "true").ok();
        let refused = world.pvisor(["trust", workspace]).done().exits(2);
        assert!(refused.err().contains("hdie"), "{refused}");
        assert!(refused.err().contains("hide"), "the nearest name is told: {refused}");
        world.host_ok("echo 'hide = [\"secret\"]' > .pvisor-tui.toml; echo s > secret");
        assert_eq!(world.run_with(&[], "cat secret").ok().out(), "s\n", "not trusted yet");
        world.pvisor(["trust", workspace]).ok();
        assert_ne!(world.run_with(&[], "cat secret").done().status, Some(0));
        // Trust is bound to the bytes: another file has no say again.
        world.host_ok("echo '# more' >> .pvisor-tui.toml");
        assert_eq!(world.run_with(&[], "cat secret").ok().out(), "s\n");
        let shown = world.pvisor(["config", "show", "--origin"]).ok().out();
        assert!(shown.to_lowercase().contains("default"), "{shown}");
    }
}

each_user! {
    fn two_sessions_of_one_workspace_do_not_mix(world) {
        let mut first = Live::start(world, &["--name", "one"], "echo 1 > a; echo ready; read x; ls");
        first.hear("ready");
        let mut second = Live::start(world, &["--name", "two"], "ls; echo 2 > b; echo ready; read x");
        second.hear("ready");
        until("each its own change", || {
            let of = |name: &str| world.pvisor(["changes", name, "--json"]).ok().json()["changes"].clone();
            (of("one")[0]["path"] == "a" && of("two")[0]["path"] == "b").then_some(())
        });
        first.say("end");
        second.say("end");
        first.finish().exits(0);
        second.finish().exits(0);
    }
}

/// Demands that a call fails with this code and names its cause and a way on.
#[track_caller]
fn fails_well(world: &World, args: &[&str], code: i32) {
    let done = world.pvisor(args).done().exits(code);
    assert!(done.err().starts_with("error:"), "{done}");
    assert_eq!(done.out(), "", "{done}");
}

each_user! {
    fn errors_go_to_stderr_and_begin_alike(world) {
        fails_well(world, &["changes", "last"], 1);
        fails_well(world, &["commit", "last"], 1);
        world.run("echo 1 > a");
        fails_well(world, &["approve", "missing"], 2);
        fails_well(world, &["undo"], 1);
        fails_well(world, &["stop"], 1);
    }
}
