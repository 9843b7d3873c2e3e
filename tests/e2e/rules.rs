//! Rules on paths: denied however a path is reached, asked about wherever a person is, counted.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::support::capability::{self, Capability};
use crate::support::wait::PATIENCE;
use crate::support::{Live, Terminal, World, each_user, until};

fn have_fuse(world: &World) -> bool {
    capability::have(world, Capability::FuseDriver)
}

/// The questions of the last session, once there is one that has any.
#[track_caller]
fn asks(world: &World) -> Vec<Value> {
    until("a question", || {
        let done = world.pvisor(["status", "last", "--json"]).done();
        if done.status != Some(0) {
            return None;
        }
        let asks = done.json()["asks"].as_array().cloned().unwrap_or_default();
        (!asks.is_empty()).then_some(asks)
    })
}

fn observed(world: &World) -> Value {
    world
        .pvisor(["status", "last", "--observed", "--json"])
        .ok()
        .json()
}

/// The counts of a path of the workspace.
fn counts(observed: &Value, path: &str) -> Option<Value> {
    let paths = observed["paths"].as_array()?;
    let found = paths
        .iter()
        .find(|row| row["layer"] == "workspace" && row["path"] == path);
    found.cloned()
}

each_user! {
    fn what_is_denied_is_out_of_reach_by_any_way(world) {
        if !have_fuse(world) { return; }
        world.host_ok(
            "mkdir -p deep/secrets other && echo SESAME > deep/secrets/key && \
             ln deep/secrets/key innocent && ln -s deep/secrets/key link && \
             ln -s deep/secrets dirlink && echo plain > other/x",
        );
        // Each line is one way; none may print the word, or take the file away.
        let ways = [
            "cat deep/secrets/key",
            "cat innocent",
            "cat link",
            "cat dirlink/key",
            "cat /proc/self/root$PWD/deep/secrets/key",
            "cat /proc/self/cwd/deep/secrets/key",
            "cd deep && cat secrets/../secrets/key",
            "mv deep elsewhere && cat elsewhere/secrets/key",
            "mv deep/secrets deep/open && cat deep/open/key",
            "mv innocent free && cat free",
            "ln innocent free2 && cat free2",
            "ln deep/secrets/key free3 && cat free3",
            "cp -a deep copy; cat copy/secrets/key",
            "rm -rf deep; ls deep/secrets",
            "mv other deep/secrets/in",
            "python3 -c \"import os; d = os.open('deep', os.O_RDONLY); print(open(os.open('secrets/key', os.O_RDONLY, dir_fd=d)).read())\"",
            "dd if=innocent status=none",
            "tar cf - deep | tar xOf - deep/secrets/key",
        ];
        let script = format!("({}) 2>> errors; true", ways.join(") 2>> errors; ("));
        let done = world.run_with(&["--rule", "deny:deep/secrets"], &script).ok();
        assert!(!done.out().contains("SESAME"), "{done}");
        assert!(!world.changes().lines().iter().any(|line| line.contains("secrets")), "untouched");
        // The same without the rule does print it: the ways are ways.
        let control = world.run_with(&["--driver", "fuse"], &ways[..8].join("; ")).done();
        assert!(control.out().matches("SESAME").count() >= 7, "{control}");
    }
}

each_user! {
    fn the_built_in_list_holds_where_the_file_server_is_used(world) {
        if !have_fuse(world) { return; }
        world.host_ok("echo KEY > id_ed25519; echo E=1 > .env; mkdir a; echo P > a/cert.pem");
        let done = world.run_with(
            &["--driver", "fuse"],
            "ls -A; cat .env a/cert.pem; cat id_ed25519; mv a b; cat b/cert.pem",
        ).done();
        assert_eq!(done.out(), ".env\na\nE=1\nP\nP\n", "{done}");
        assert!(done.err().contains("Permission denied"), "{done}");
        // Without it nothing is claimed.
        world.run_with(&["--driver", "overlayfs"], "cat id_ed25519").ok();
        let notes = world.status()["boundary"]["notes"].to_string();
        assert!(!notes.contains("rules on paths"), "{notes}");
        // An entry can be lifted.
        let config = world.home.join(".config/pvisor-tui");
        fs::create_dir_all(&config).unwrap();
        fs::write(config.join("config.toml"), "[rules]\nlift = ['id_ed25519']\n").unwrap();
        for dir in [world.home.join(".config"), config] { world.own(&dir, 0o700); }
        let done = world.run_with(&["--driver", "fuse"], "cat id_ed25519").ok();
        assert_eq!(done.out(), "KEY\n");
    }
}

each_user! {
    fn the_built_in_list_holds_where_the_kernel_opens_files_by_itself(world) {
        if !have_fuse(world) { return; }
        world.host_ok(
            "echo SESAME > id_ed25519; ln id_ed25519 spare; echo E=1 > .env; mkdir d; \
             ln id_ed25519 d/third; echo one > pair; ln pair other",
        );
        let before = world.host_ok("stat -c '%n %h %s %Y' id_ed25519 spare d/third; cat spare");
        let ways = [
            "cat id_ed25519",
            "ls -l . d; ls -lR; cat spare",
            "find . -type f -exec cat {} +",
            "cat d/third",
            "cat /proc/self/root$PWD/id_ed25519 /proc/self/root$PWD/spare",
            "cd d && cat ../id_ed25519 ../spare",
            "mv d e; cat e/third",
            "mv e d; cat d/third",
            "ln spare again; cat again",
            "mv spare free; cat free",
            "cp -a d copy; cat copy/third",
            "echo lost >> spare; echo lost > d/third; : > id_ed25519",
            "truncate -s 0 spare; truncate -s 0 d/third",
            "python3 -c \"import mmap; f = open('spare', 'rb'); print(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:])\"",
        ];
        let script = format!("({}) 2>> errors; cat .env other; true", ways.join(") 2>> errors; ("));
        let flags = ["--driver", "fuse", "--cache", "extended"];
        let done = world.run_with(&flags, &script).ok();
        assert!(!done.out().contains("SESAME"), "{done}");
        assert!(done.out().ends_with("E=1\none\n"), "{done}");
        world.pvisor(["commit", "--all"]).ok();
        let after = world.host_ok("stat -c '%n %h %s %Y' id_ed25519 spare d/third; cat spare");
        assert_eq!(after, before);
        // The same without the list does print it: the ways are ways.
        world.host_ok("rm -rf e copy errors again free");
        let config = world.home.join(".config/pvisor-tui");
        fs::create_dir_all(&config).unwrap();
        fs::write(config.join("config.toml"), "[rules]\nlift = ['*']\n").unwrap();
        for dir in [world.home.join(".config"), config] { world.own(&dir, 0o700); }
        let control = world.run_with(&flags, &format!("({})", ways[..10].join("); ("))).done();
        assert!(control.out().matches("SESAME").count() >= 12, "{control}");
    }
}

each_user! {
    fn what_excludes_a_rule_is_named(world) {
        for (flags, wanted) in [
            (&["--driver", "overlayfs", "--rule", "ask:x"][..], &["--driver overlayfs", "--rule ask:x"][..]),
            (&["--driver", "overlayfs", "--observe"], &["--driver overlayfs", "--observe"]),
            (&["--cache", "extended", "--rule", "warn:x"], &["--cache extended", "--rule warn:x"]),
            (&["--mode", "host", "--rule", "deny:x"], &["--mode host", "--rule deny:x"]),
            (&["--mode", "host", "--observe"], &["--mode host", "--observe"]),
            (&["--rule", "dney:x"], &["dney:x is no rule", "did you mean deny:x?"]),
            (&["--rule", "deny:./x"], &["did you mean x?"]),
            (&["--rule", "deny:a/[b"], &["did you mean a/\\[b?"]),
            (&["--rule", "deny:"], &["is empty"]),
        ] {
            let done = world.run_with(flags, "echo RAN").done().exits(2);
            assert!(!done.out().contains("RAN"));
            for word in wanted {
                assert!(done.err().contains(word), "{word}: {done}");
            }
        }
    }
}

each_user! {
    fn rules_of_settings_hold_and_are_told(world) {
        if !have_fuse(world) { return; }
        let config = world.home.join(".config/pvisor-tui");
        fs::create_dir_all(&config).unwrap();
        fs::write(config.join("config.toml"), "[rules]\ndeny = ['mine']\nwarn = ['~/w']\n").unwrap();
        for dir in [world.home.join(".config"), config.clone()] { world.own(&dir, 0o700); }
        world.host_ok("echo A > mine; echo B > theirs; printf '[rules]\\ndeny = [\"theirs\"]\\n' > .pvisor-tui.toml");
        let done = world.run_with(&[], "cat mine; cat theirs").done();
        assert_eq!(done.out(), "B\n", "untrusted, the workspace's word is none: {done}");
        world.pvisor(["trust", world.workspace.to_str().unwrap()]).ok();
        let done = world.run_with(&[], "cat mine; cat theirs; echo end").ok();
        assert_eq!(done.out(), "end\n", "{done}");
        let shown = world
            .pvisor(["config", "show", "--origin"])
            .cwd(&world.workspace)
            .ok();
        let lines = shown.out();
        assert!(lines.contains("rules.deny = [\"mine\"]") && lines.contains("rules.deny = [\"theirs\"]"), "{lines}");
        // It may not loosen.
        world.host_ok("printf '[rules]\\nlift = [\"*\"]\\n' > .pvisor-tui.toml");
        world.pvisor(["trust", world.workspace.to_str().unwrap()]).done();
        let done = world.run_with(&[], "cat mine").done();
        assert_ne!(done.out(), "A\n", "{done}");
    }
}

each_user! {
    fn a_question_is_answered_from_another_terminal(world) {
        if !have_fuse(world) { return; }
        world.host_ok("echo ONE > a.key; echo TWO > b.key; mkdir d; echo D > d/c.key; echo E > d/e.key");
        let mut live = Live::start(
            world,
            &["--rule", "ask:*.key"],
            "cat a.key; cat b.key || echo REFUSED; cat d/c.key d/e.key; echo x > new.key; echo end; read x",
        );
        let ask = asks(world).remove(0);
        assert_eq!((&ask["path"], &ask["access"], &ask["program"]), (&"a.key".into(), &"read".into(), &"cat".into()));
        let status = world.pvisor(["status", "last"]).ok().out();
        assert!(status.contains("cat (pid ") && status.contains("wants to read") && status.contains("a.key"), "{status}");
        world.pvisor(["allow", "last", "99"]).done().exits(1).says("no question has the number 99");
        world.pvisor(["allow", "x"]).done().exits(2);
        world.pvisor(["allow", "1", "--dir"]).done().exits(2);
        let done = world.pvisor(["allow", "1"]).ok();
        assert!(done.out().starts_with("allowed: cat (pid "), "{done}");
        live.hear("ONE");
        world.pvisor(["allow", "1"]).done().exits(1);
        assert_eq!(asks(world)[0]["path"], "b.key");
        world.pvisor(["deny", "2"]).ok();
        live.hear("REFUSED");
        assert_eq!(asks(world)[0]["path"], "d/c.key");
        world.pvisor(["allow", "last", "3", "--for", "session", "--dir"]).ok();
        live.hear("D");
        live.hear("E");
        let ask = asks(world).remove(0);
        assert_eq!((&ask["path"], &ask["access"]), (&"new.key".into(), &"create".into()));
        let id = ask["ask"].to_string();
        world.pvisor(["allow", &id, "--for", "user", "--suffix"]).ok();
        live.hear("end");
        live.say("x");
        live.finish().exits(0);
        world.pvisor(["allow", "1"]).done().exits(1).says("no command is running");

        // Remembered by the user, in another session; the deny rule beside it holds.
        let done = world.run_with(&["--rule", "ask:*.key", "--rule", "deny:b.key"], "cat a.key; cat b.key").done();
        assert_eq!(done.out(), "ONE\n", "{done}");
        let kept = world.home.join(".config/pvisor-tui/answers.json");
        let text = fs::read_to_string(&kept).unwrap();
        assert!(text.contains(".key"), "{text}");
        // Not from a file that others may write.
        fs::set_permissions(&kept, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        world.run_with(&["--rule", "ask:*.key"], "true").done().exits(2).says("others may write it");
    }
}

each_user! {
    fn a_question_is_not_dodged_by_other_names(world) {
        if !have_fuse(world) { return; }
        world.host_ok("mkdir -p a/b && echo SESAME > a/b/x.key && ln a/b/x.key other && ln -s a/b/x.key link");
        let ways = [
            "cat other", "cat link", "ln a/b/x.key free && cat free", "mv other free2 && cat free2",
            "mv a moved && cat moved/b/x.key", "rm -r a",
            "cat /proc/self/root$PWD/a/b/x.key",
        ];
        let script = format!("({}) 2>> errors; echo end", ways.join(") 2>> errors; ("));
        let live = Live::start(world, &["--rule", "ask:*.key"], &script);
        // Every way leads to the same question, and every answer is no.
        let mut answered = std::collections::BTreeSet::new();
        until("the end", || {
            let status = world.pvisor(["status", "last", "--json"]).done();
            if status.status != Some(0) {
                return None;
            }
            let status = status.json();
            for ask in status["asks"].as_array().into_iter().flatten() {
                assert_eq!(ask["path"], "a/b/x.key");
                let id = ask["ask"].to_string();
                if answered.insert(id.clone()) {
                    world.pvisor(["deny", &id]).done();
                }
            }
            (status["state"] != "running").then_some(())
        });
        let done = live.finish().exits(0);
        assert_eq!(done.out(), "end", "{done}");
        assert!(answered.len() >= ways.len(), "{answered:?}");
        assert!(world.changes().find("a/b/x.key").is_none());
    }
}

each_user! {
    fn answers_for_a_workspace_stay_there(world) {
        if !have_fuse(world) { return; }
        world.host_ok("echo ONE > a.key");
        let mut live = Live::start(world, &["--rule", "ask:a.key"], "cat a.key; echo end; read x");
        let id = asks(world)[0]["ask"].to_string();
        world.pvisor(["allow", &id, "--for", "workspace"]).ok();
        live.hear("ONE");
        live.say("x");
        live.finish().exits(0);
        assert_eq!(world.run_with(&["--rule", "ask:a.key"], "cat a.key").ok().out(), "ONE\n");
        assert!(!world.has("answers.json"), "nothing lies in the workspace");
    }
}

each_user! {
    fn a_question_nobody_answers_is_denied(world) {
        if !have_fuse(world) { return; }
        world.host_ok("echo ONE > a.key");
        let done = world
            .run_with(&["--rule", "ask:a.key"], "ls; cat a.key || echo REFUSED; exit 0")
            .env("PVISOR_TUI_ASK_TIMEOUT", "1")
            .ok();
        assert_eq!(done.out(), "a.key\nREFUSED\n", "looking asks nobody: {done}");
        // A command that waits for an answer can be ended.
        let live = Live::start(world, &["--rule", "ask:a.key"], "cat a.key");
        asks(world);
        world.pvisor(["stop", "last"]).ok();
        let done = live.finish();
        assert_ne!(done.status, Some(0), "{done}");
        assert_eq!(done.out(), "");
    }
}

each_user! {
    fn a_question_is_answered_on_the_screen(world) {
        if !have_fuse(world) { return; }
        world.host_ok("echo ONE > a.key; echo TWO > b.key");
        let workspace = world.workspace.to_str().unwrap();
        let script = "cat a.key; cat b.key || echo REFUSED; read x";
        let call = world.pvisor([
            "run", "--workspace", workspace, "--rule", "ask:*.key", "--", "bash", "-c", script,
        ]);
        let mut terminal = Terminal::open(call.into_command(), 24, 80);
        // The agent's pane has the keys and keeps them: the footer tells, and how to come to it.
        terminal.wait_text("to answer: cat (pid ");
        terminal.send("\x1d");
        terminal.wait_text("denied by itself");
        terminal.wait_text("a.key");
        // Heard once the page has rested; a key too early answers nothing.
        let answer = |terminal: &mut Terminal, key: &str, until_shown: &str| {
            let done = terminal.attempt(PATIENCE, |t| {
                t.send(key);
                t.attempt(Duration::from_secs(2), |t| t.text().contains(until_shown).then_some(()))
            });
            assert!(done.is_some(), "no {until_shown:?}; the screen:\n{}", terminal.text());
        };
        answer(&mut terminal, "y", "b.key");
        answer(&mut terminal, "d", "No change yet.");
        terminal.send("3");
        terminal.wait_text("REFUSED");
        assert!(terminal.text().contains("ONE"), "{}", terminal.text());
        terminal.send("end\r");
        until("the agent's end", || (world.status()["state"] != "running").then_some(()));
        // The page of rules tells what is remembered and what was in force.
        terminal.send("\x1d");
        terminal.send("o");
        terminal.wait_text("Rules: 1 given");
        terminal.send("q");
        terminal.leave_screen();
        assert!(terminal.wait_exit().success());
    }
}

each_user! {
    fn accesses_are_counted_path_by_path(world) {
        if !have_fuse(world) { return; }
        world.host_ok("printf 12345 > in.txt; echo no > secret; printf x > $'odd\\xff'");
        world.run_with(
            &["--observe", "--rule", "deny:secret"],
            "cat in.txt; printf 123 > out.txt; cat secret; cat odd*; mkdir d; mv out.txt d/out.txt; exit 0",
        ).ok();
        // Whoever was told of the end finds all of it counted.
        let observed = observed(world);
        let of = |path: &str| counts(&observed, path).unwrap_or_else(|| panic!("{path}: {observed:#}"));
        let input = of("in.txt");
        assert_eq!((&input["bytes_read"], &input["opened"]), (&5.into(), &1.into()), "{input}");
        assert!(input["first"].as_str().is_some_and(|time| time.contains('T')), "{input}");
        assert_eq!(input["first_written"], Value::Null);
        let output = of("out.txt");
        assert_eq!((&output["created"], &output["bytes_written"]), (&1.into(), &3.into()), "{output}");
        assert_eq!(output["removed"], 1, "renamed away: {output}");
        assert!(of("secret")["denied"].as_u64() > Some(0));
        let odd = observed["paths"].as_array().unwrap().iter().any(|row| row["path_b64"].is_string());
        assert!(odd, "exact bytes: {observed:#}");
        assert_eq!((&observed["counted"], &observed["more"]), (&true.into(), &0.into()));
        let text = world.pvisor(["status", "last", "--observed"]).ok().out();
        assert!(text.contains("in.txt") && !text.contains('\u{fffd}'), "{text}");
        // Without the flag nothing is counted, and that is said.
        world.run_with(&["--driver", "fuse"], "cat in.txt").ok();
        assert_eq!(self::observed(world)["counted"], false);
        let text = world.pvisor(["status", "last", "--observed"]).ok().out();
        assert!(text.contains("nothing is counted"), "{text}");
    }
}
