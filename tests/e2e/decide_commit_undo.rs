//! Decisions, commit and undo: exactly what was approved reaches the host, and all of it can be
//! taken back.

use crate::staged_run::{JOB, prepare};
use crate::support::{Capability, World, each_user, require};

each_user! {
    fn commits_exactly_what_was_approved_and_undoes_it(world) {
        prepare(world);
        world.host_ok("touch -d '2021-02-03 04:05:06.123456789' a.txt gone.txt");
        let before = world.tree();
        world.run(JOB);
        let hunks = world.changes().items("a.txt", "hunk");
        assert_eq!(hunks.len(), 1, "one hunk: {hunks:?}");
        world.pvisor(["approve", "b.txt", &format!("a.txt#{}", hunks[0])]).ok();
        world.pvisor(["reject", "gone.txt", "--reason", "keep"]).ok();
        let changes = world.changes();
        assert_eq!(changes.get("b.txt")["decision"], "approved");
        assert_eq!(changes.get("a.txt")["decision"], "approved");
        assert_eq!(changes.get("gone.txt")["decision"], "rejected");
        assert_eq!(changes.get("gone.txt")["reason"], "keep");
        before.assert_same(&world.tree(), "a decision changes no file");

        let outcome = world.pvisor(["commit", "--json"]).ok().json();
        assert_eq!(outcome["state"], "committed", "{outcome}");
        assert_eq!(outcome["commit"], 1);
        let mut paths: Vec<_> = outcome["committed"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["path"].as_str().unwrap())
            .collect();
        paths.sort_unstable();
        assert_eq!(paths, ["a.txt", "b.txt"]);
        before.assert_differs(&world.tree(), &[
            "a.txt: bytes \"one\\\\ntwo\\\\n\" became \"one\\\\ntwo\\\\nmore\\\\n\"",
            "new file: b.txt",
        ]);
        assert_eq!(world.text("b.txt"), "hi\n");
        world.changes().assert_plain(&[
            "added l", "deleted gone.txt", "mode s.sh", "renamed old.txt -> new.txt",
        ]);
        assert_eq!(world.status()["commits"], 1);

        world.pvisor(["undo"]).ok();
        before.assert_same(&world.tree(), "undo");
    }
}

each_user! {
    fn undo_restores_everything_after_a_commit_of_all(world) {
        prepare(world);
        world.host_ok(
            "mkdir d; echo deep > d/f; ln -s d/f link; chmod 600 d/f; \
             touch -d '2020-01-01 00:00:00.5' d/f a.txt",
        );
        if world.host("setfattr -n user.note -v kept d/f").status == Some(0) {
            assert_eq!(world.host_ok("getfattr --only-values -n user.note d/f"), "kept");
        }
        let before = world.tree();
        world.run(&format!("{JOB}; rm -r d; ln -sfn a.txt link; chmod 700 a.txt"));
        world.pvisor(["commit", "--all"]).ok();
        assert!(!world.has("d") && !world.has("gone.txt") && !world.has("old.txt"));
        assert_eq!(world.mode("s.sh"), 0o755);
        assert_eq!(world.mode("a.txt"), 0o700);
        assert_eq!(world.host_ok("readlink link"), "a.txt\n");
        assert_eq!(world.host_ok("seq 40 | cmp - new.txt && echo same"), "same\n");
        world.pvisor(["undo"]).ok();
        before.assert_same(&world.tree(), "undo of everything");
    }
}

each_user! {
    fn carries_times_attributes_and_hidden_bytes(world) {
        require!(world, Capability::Program("setfattr"));
        world.host_ok("echo 1 > f; setfattr -n user.k -v v f; echo tool > t; chmod 755 t");
        world.run(
            "printf '\\000\\377\\r\\n' > bin; touch -d '2019-05-06 07:08:09.987654321' bin; \
             setfattr -n user.n -v 2 f; echo 2 >> f; printf tool2 > t; mkdir -m 750 e",
        );
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.bytes("bin"), b"\x00\xff\r\n");
        assert_eq!(world.host_ok("TZ=UTC stat -c %y bin | cut -c1-29"), "2019-05-06 07:08:09.987654321\n");
        assert_eq!(world.host_ok("getfattr --only-values -n user.k f"), "v");
        assert_eq!(world.host_ok("getfattr --only-values -n user.n f"), "2");
        let overlay = world.host("getfattr -d -m user.overlay f e t bin");
        assert_eq!(overlay.out(), "", "no mark of the stage reaches the host: {overlay}");
        assert_eq!((world.mode("t"), world.mode("e")), (0o755, 0o750));
    }
}

each_user! {
    fn a_hunk_alone_is_committed_and_the_other_stays_staged(world) {
        world.host_ok("seq 30 > n.txt; chmod 640 n.txt");
        world.run("sed -i -e 's/^3$/three/' -e 's/^27$/twentyseven/' n.txt");
        let hunks = world.changes().items("n.txt", "hunk");
        assert_eq!(hunks.len(), 2);
        world.pvisor(["approve", &format!("n.txt#{}", hunks[1])]).ok();
        assert_eq!(world.changes().get("n.txt")["decision"], "mixed");
        world.pvisor(["commit"]).ok();
        let expected: String = (1..=30)
            .map(|n| if n == 27 { "twentyseven\n".into() } else { format!("{n}\n") })
            .collect();
        assert_eq!(world.text("n.txt"), expected);
        assert_eq!(world.mode("n.txt"), 0o640);
        let changes = world.changes();
        assert_eq!(changes.items("n.txt", "hunk").len(), 1, "the other hunk is still there");
        assert_eq!((&changes.get("n.txt")["added"], &changes.get("n.txt")["removed"]), (&1.into(), &1.into()));
    }
}

each_user! {
    fn single_lines_of_a_hunk_and_the_last_newline(world) {
        world.host_ok("printf 'k1\\nk2' > n.txt; printf 'a\\n' > m.txt");
        world.run("printf 'k1\\nmid\\nK2\\n' > n.txt; printf 'a\\nb\\nc\\nd\\n' > m.txt");
        let hunk = world.changes().items("m.txt", "hunk").remove(0);
        world.pvisor(["approve", &format!("m.txt#{hunk}:2-3")]).ok();
        world.pvisor(["commit"]).ok();
        assert_eq!(world.text("m.txt"), "a\nc\nd\n");
        let eof = world.changes().items("n.txt", "eof");
        assert_eq!(eof.len(), 1, "the newline at the end is an item of its own");
        world.pvisor(["approve", &format!("n.txt#{}", eof[0])]).ok();
        world.pvisor(["commit"]).ok();
        assert_eq!(world.text("n.txt"), "k1\nk2\n");
    }
}

each_user! {
    fn text_and_mode_are_decided_apart(world) {
        world.host_ok("echo 'echo 1' > run.sh; chmod 644 run.sh");
        world.run("echo 'echo 2' > run.sh; chmod 755 run.sh");
        let changes = world.changes();
        assert_eq!(changes.lines(), ["modified run.sh"]);
        let mode = changes.items("run.sh", "mode").remove(0);
        world.pvisor(["approve", &format!("run.sh#{mode}")]).ok();
        world.pvisor(["commit"]).ok();
        assert_eq!((world.text("run.sh").as_str(), world.mode("run.sh")), ("echo 1\n", 0o755));
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!((world.text("run.sh").as_str(), world.mode("run.sh")), ("echo 2\n", 0o755));
    }
}

each_user! {
    fn reset_and_revert_take_back(world) {
        prepare(world);
        world.run(JOB);
        world.pvisor(["approve", "b.txt"]).ok();
        world.pvisor(["reset", "b.txt"]).ok();
        assert_eq!(world.changes().get("b.txt")["decision"], "undecided");
        let outcome = world.pvisor(["commit", "--json"]).ok().json();
        assert_eq!(outcome["state"], "nothing");
        world.pvisor(["revert", "b.txt", "gone.txt", "a.txt", "new.txt"]).ok();
        world.changes().assert_plain(&["added l", "mode s.sh"]);
        let seen = world.run_with(&["--continue"], "ls; cat a.txt gone.txt").ok();
        assert_eq!(seen.out(), "a.txt\ngone.txt\nl\nold.txt\ns.sh\none\ntwo\nbye\n");
    }
}

each_user! {
    fn a_batch_is_all_or_nothing(world) {
        world.host_ok("mkdir shut open; echo 1 > open/a; echo 1 > shut/b; echo 1 > z");
        world.run("echo 2 > open/a; echo 2 > shut/b; echo 2 > z; echo new > open/c");
        // Root passes every permission bit; what stops both users is another type in the way.
        world.host_ok("rm shut/b; mkdir shut/b; echo host > shut/b/x");
        let before = world.tree();
        let refused = world.pvisor(["commit", "--all", "--json"]).done().exits(1).json();
        assert_eq!(refused["state"], "refused");
        assert_eq!(refused["refused"][0]["path"], "shut/b");
        assert_eq!(refused["committed"], serde_json::json!([]));
        before.assert_same(&world.tree(), "a refused batch");
        world.pvisor(["approve", "open", "z"]).ok();
        world.pvisor(["reset", "shut/b"]).ok();
        world.pvisor(["commit"]).ok();
        assert_eq!((world.text("open/a"), world.text("open/c")), ("2\n".into(), "new\n".into()));
        assert_eq!(world.text("shut/b/x"), "host\n");
    }
}

each_user! {
    fn an_unwritable_directory_refuses_the_batch(world) {
        if world.user.is_root() {
            return immutable_refuses(world);
        }
        world.host_ok("mkdir shut; echo 1 > shut/b; echo 1 > a");
        world.run("echo 2 > shut/b; echo 2 > a");
        world.host_ok("chmod 555 shut");
        let before = world.tree();
        world.pvisor(["commit", "--all"]).done().exits(1).says("shut/b");
        before.assert_same(&world.tree(), "a refused batch");
        world.host_ok("chmod 755 shut");
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.text("shut/b") + &world.text("a"), "2\n2\n");
    }
}

fn immutable_refuses(world: &World) {
    world.host_ok("echo 1 > a; echo 1 > b");
    world.run("echo 2 > a; echo 2 > b");
    if world.host("chattr +i b").status != Some(0) {
        return; // This file system has no such flag; the ordinary user's half has run.
    }
    let refused = world.pvisor(["commit", "--all"]).done();
    let after = world.text("a") + &world.text("b");
    world.host_ok("chattr -i b");
    refused.exits(1).says("b");
    assert_eq!(after, "1\n1\n");
    world.pvisor(["commit", "--all"]).ok();
    assert_eq!(world.text("a") + &world.text("b"), "2\n2\n");
}

each_user! {
    fn discard_names_the_commits_that_stay(world) {
        world.host_ok("echo 0 > a; echo 0 > b; echo 0 > c");
        world.run("echo 1 > a; echo 1 > b; echo 1 > c");
        for path in ["a", "b"] {
            world.pvisor(["approve", "last", path]).ok();
            world.pvisor(["commit"]).ok();
        }
        world.pvisor(["undo"]).ok();
        let said = world.pvisor(["discard"]).ok().out();
        assert!(
            said.ends_with("Commit 1 stays on the host and can no longer be undone.\n"),
            "{said}"
        );
        assert_eq!((world.text("a"), world.text("b"), world.text("c")), ("1\n".into(), "0\n".into(), "0\n".into()));
        let gone = world.pvisor(["changes"]).done().exits(1);
        assert!(gone.err().contains("every session was discarded"), "{gone}");
    }
}

each_user! {
    fn discard_leaves_the_host_and_removes_the_stage(world) {
        prepare(world);
        let before = world.tree();
        world.run(JOB);
        let dir = world.session_dir();
        world.pvisor(["discard"]).ok();
        before.assert_same(&world.tree(), "the host after a discard");
        assert!(!dir.join("layers/workspace/upper/b.txt").exists());
        world.pvisor(["commit", "--all"]).done().exits(1);
        before.assert_same(&world.tree(), "nothing is left to commit");
    }
}

each_user! {
    fn what_its_owner_may_not_read_is_committed_shown_and_undone(world) {
        world.host_ok("echo f > f; echo g > g; echo o > o; chmod 000 f");
        let before = world.tree();
        world.run(
            "chmod 644 f; chmod 000 g; echo n > n; chmod 000 n; mkdir nd; echo a > nd/a; chmod 000 nd; echo p > o",
        );
        let diff = world.pvisor(["diff", "last"]).done();
        assert!(diff.out().contains("+p"), "one unreadable file hides no other: {diff}");
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!((world.mode("f"), world.mode("g"), world.mode("n"), world.mode("nd")), (0o644, 0, 0, 0));
        world.changes().assert_plain(&[]);
        let after = world.tree();
        world.pvisor(["undo", "last"]).ok();
        before.assert_same(&world.tree(), "undone");
        world.pvisor(["commit", "--all"]).ok();
        after.assert_same(&world.tree(), "committed again");
    }
}

each_user! {
    fn attributes_that_no_stage_carries_stay_with_the_file(world) {
        require!(world, Capability::Program("setfattr"));
        // The kernel's overlay does not let the agent write to a file with `security.*`.
        require!(world, Capability::FuseDriver);
        let run = |script: &str| {
            world.run_with(&["--driver", "fuse"], script).ok();
        };
        world.host_ok("echo 1 > a; seq 30 > h; echo 1 > old; echo 1 > untouched");
        if world.user.uid != 0 {
            let held = std::process::Command::new("setfattr")
                .args(["-n", "security.foo", "-v", "kept", "a"])
                .current_dir(&world.workspace)
                .status();
            if !held.is_ok_and(|status| status.success()) {
                return;
            }
            run("echo 2 >> a; echo 2 >> old");
            for dry in [&["commit", "--all", "--dry-run"][..], &["commit", "--all"]] {
                let refused = world.pvisor(dry).done().exits(1);
                refused.says("a: the attribute security.foo of the host's file would be lost");
            }
            assert_eq!((world.text("a"), world.text("old")), ("1\n".into(), "1\n".into()));
            world.pvisor(["approve", "old"]).ok();
            world.pvisor(["commit"]).ok();
            assert_eq!(world.text("old"), "1\n2\n", "another file is not concerned");
            return;
        }
        world.host_ok(
            "setfattr -n trusted.t -v tt a h old; setfattr -n security.foo -v sf a h old; \
             setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 a",
        );
        let held = "getfattr --absolute-names -d -m '^(trusted|security)' a h old new 2>/dev/null | grep -v selinux; true";
        let before = world.host_ok(held);
        run("echo 2 >> a; sed -i -e 's/^3$/x/' -e 's/^27$/y/' h; mv old new; echo 2 >> new");
        let hunks = world.changes().items("h", "hunk");
        world.pvisor(["approve", &format!("h#{}", hunks[0]), "a", "new"]).ok();
        world.pvisor(["commit"]).ok();
        assert_eq!(world.text("a"), "1\n2\n");
        let both = "security.foo=\"sf\"\ntrusted.t=\"tt\"\n\n";
        let after: String = ["a", "h", "new"].map(|f| format!("# file: {f}\n{both}")).concat();
        assert_eq!(world.host_ok(held), after, "a capability goes with the bytes it was given to");
        world.pvisor(["undo"]).ok();
        assert_eq!(world.host_ok(held), before);
        assert_eq!(world.text("a"), "1\n");
    }
}

each_user! {
    fn a_refused_commit_of_all_decides_nothing(world) {
        world.host_ok("echo 1 > a; echo 1 > b; echo 1 > c");
        world.run("echo 2 > a; echo 2 > b; echo 2 > c");
        world.pvisor(["reject", "b"]).ok();
        world.host_ok("echo host > a");
        world.pvisor(["commit", "--all", "--dry-run"]).done().exits(1);
        let refused = world.pvisor(["commit", "--all"]).done().exits(1);
        refused.says("a: ");
        let decided = |path: &str| world.changes().get(path)["decision"].clone();
        let all = ["a", "b", "c"].map(decided);
        assert_eq!(all, ["undecided", "rejected", "undecided"]);
        world.pvisor(["commit"]).ok();
        assert_eq!(world.text("c"), "1\n", "nothing was approved");
        world.host_ok("echo 1 > a");
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(["a", "b", "c"].map(|path| world.text(path)), ["2\n", "1\n", "2\n"]);
        assert_eq!(decided("b"), "rejected", "what was rejected stays so");
    }
}

each_user! {
    fn a_git_commit_names_the_session_and_who_approved_and_an_undo_leaves_it(world) {
        world.host_ok(
            "git init -q . && git config user.name T && git config user.email t@example.com && \
             echo 0 > a && echo 0 > b && git add . && git commit -qm first",
        );
        world.run("echo 1 > a; echo 1 > b");
        let id = world.status()["session"].as_str().expect("an id").to_owned();
        world.pvisor(["approve", "last", "a"]).ok();
        let message = "title\n\nwhy\n\nRefs: 7";
        world.pvisor(["commit", "--git-commit", message]).ok();
        let user = world.host_ok("id -un").trim().to_owned();
        let told = world.host_ok("git log -1 --format=%B");
        let trailers = format!("Refs: 7\nPvisor-Session: {id}\nPvisor-Approved-By: {user}");
        assert_eq!(told.trim_end(), format!("title\n\nwhy\n\n{trailers}"));
        let parsed = world.host_ok("git log -1 --format='%(trailers:only)'");
        assert_eq!(parsed.trim_end(), trailers);
        let made = world.host_ok("git rev-parse --short=12 HEAD");
        let undone = world.pvisor(["undo"]).ok();
        assert!(undone.err().contains(&format!("git keeps its commit {}", made.trim_end())), "{undone}");
        assert_eq!(world.text("a"), "0\n");
        assert_eq!(world.host_ok("git log --format=%s"), "title\nfirst\n");
    }
}

each_user! {
    fn a_git_commit_that_cannot_be_made_is_refused_before_anything_is_written(world) {
        require!(world, Capability::Program("git"));
        world.host_ok("echo 1 > a");
        world.run("echo 2 > a");
        world.pvisor(["commit", "--all", "--git-commit", " "]).done().exits(2).says("needs a message");
        let refused = world.pvisor(["commit", "--all", "--git-commit", "m"]).done().exits(1);
        refused.says("no repository to record in");
        assert_eq!(world.text("a"), "1\n");
        world.host_ok("git init -q . && git config user.name ada && git config user.email a@example.org");
        world.pvisor(["commit", "--all", "--git-commit", "m"]).ok();
        assert_eq!(world.text("a"), "2\n");
        assert_eq!(world.host_ok("git log --format=%s"), "m\n");
    }
}

each_user! {
    fn undo_of_a_directory_that_was_shut_works_once_its_owner_has_opened_it(world) {
        world.host_ok("mkdir shut; echo host > shut/f");
        let before = world.tree();
        world.run("echo agent >> shut/f; chmod 000 shut");
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.mode("shut"), 0);
        if !world.user.is_root() {
            let refused = world.pvisor(["undo"]).done();
            assert!(refused.exits(1).err().contains("shut/f"));
            world.host_ok("chmod u+rwx shut");
        }
        world.pvisor(["undo"]).ok();
        before.assert_same(&world.tree(), "undone");
    }
}
