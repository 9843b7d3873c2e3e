//! What lies on disk after a commit, in cases that other tools have got wrong.

use crate::support::{Capability, each_driver_and_user, require};

each_driver_and_user! {
    /// A file without a newline at its end: each subset of its lines and of that newline is
    /// committed as it was chosen, and the rest of it afterwards makes the agent's file.
    fn every_part_of_a_file_without_a_last_newline(stage) {
        stage.host_ok("for i in $(seq 0 15); do printf 'k1\\nk2' > n$i; done");
        let before = stage.tree();
        stage.run("for i in $(seq 0 15); do printf 'k1\\nmid\\nK2\\n' > n$i; done");
        let changes = stage.changes();
        let mut chosen = Vec::new();
        for bits in 0..16 {
            let path = format!("n{bits}");
            let hunk = changes.items(&path, "hunk").remove(0);
            let eof = changes.items(&path, "eof").remove(0);
            // Lines of the hunk: `k2` goes, `mid` and `K2` come.
            for line in (0..3).filter(|line| bits & (1 << line) != 0) {
                chosen.push(format!("{path}#{hunk}:{}", line + 1));
            }
            if bits & 8 != 0 {
                chosen.push(format!("{path}#{eof}"));
            }
        }
        let approve = ["approve".to_owned()].into_iter().chain(chosen);
        stage.pvisor(approve).ok();
        stage.pvisor(["commit"]).ok();
        for bits in 0..16 {
            let mut lines = vec!["k1"];
            lines.extend((bits & 2 != 0).then_some("mid"));
            lines.extend((bits & 1 == 0).then_some("k2"));
            lines.extend((bits & 4 != 0).then_some("K2"));
            let end = if bits & 8 != 0 { "\n" } else { "" };
            assert_eq!(stage.text(&format!("n{bits}")), lines.join("\n") + end, "{bits:04b}");
        }
        stage.pvisor(["commit", "--all"]).ok();
        for bits in 0..16 {
            assert_eq!(stage.text(&format!("n{bits}")), "k1\nmid\nK2\n", "{bits:04b}");
        }
        stage.changes().assert_plain(&[]);
        stage.pvisor(["undo"]).ok();
        stage.pvisor(["undo"]).ok();
        before.assert_same(&stage.tree(), "undone");
    }
}

each_driver_and_user! {
    /// A file and a directory change places while the host goes on below that directory: what came
    /// late is a conflict that names it, not a loss; what has none can be had.
    fn a_type_change_over_later_edits(stage) {
        stage.host_ok("echo f > a; mkdir d; echo 1 > d/1; echo 2 > d/2");
        stage.run("rm a; mkdir a; echo n > a/n; rm -r d; echo file > d");
        let lines = stage.changes().lines();
        for line in ["type a", "added a/n", "type d", "deleted d/1", "deleted d/2"] {
            assert!(lines.contains(&line.to_owned()), "what is lost is listed: {lines:?}");
        }
        for (late, path) in [("echo late > d/3", "d/3"), ("rm d/3; echo host >> d/2", "d/2")] {
            stage.host_ok(late);
            let before = stage.tree();
            let refused = stage.pvisor(["commit", "--all"]).done().exits(1);
            assert!(refused.err().contains(path), "{late}: {refused}");
            before.assert_same(&stage.tree(), late);
        }
        let before = stage.tree();
        stage.pvisor(["approve", "a"]).ok();
        stage.pvisor(["commit"]).ok();
        assert_eq!(stage.host_ok("cat a/n d/1 d/2"), "n\n1\n2\nhost\n");
        stage.pvisor(["undo"]).ok();
        before.assert_same(&stage.tree(), "undone");
    }
}

each_driver_and_user! {
    /// The second of three files cannot be written: nothing is, the cause is named, and the stage
    /// holds everything as before.
    fn the_second_of_three_cannot_be_written(stage) {
        stage.host_ok("mkdir 1 2 3; echo old | tee 1/f 2/f > 3/f");
        stage.run("for i in 1 2 3; do echo new > $i/f; done");
        let staged = stage.changes().lines();
        let (shut, open) = if stage.user.is_root() {
            ("chattr +i 2/f", "chattr -i 2/f")
        } else {
            ("chmod 555 2", "chmod 755 2")
        };
        if stage.host(shut).status != Some(0) {
            return; // This file system has no such flag; the ordinary user's half has run.
        }
        let before = stage.tree();
        let refused = stage.pvisor(["commit", "--all"]).done();
        let after = stage.tree();
        stage.host_ok(open);
        let refused = refused.exits(1);
        assert!(refused.err().contains("2/f: "), "{refused}");
        before.assert_same(&after, "refused");
        assert_eq!(stage.changes().lines(), staged);
        stage.pvisor(["commit", "--all"]).ok();
        assert_eq!(stage.host_ok("cat 1/f 2/f 3/f"), "new\nnew\nnew\n");
    }
}

each_driver_and_user! {
    /// An access list and the mode it says are one decision; the text beside them is another.
    fn an_access_list_comes_with_its_mode(stage) {
        require!(stage, Capability::Program("setfacl"));
        stage.host_ok("seq 9 > f; chmod 600 f");
        let before = stage.tree();
        stage.run(&format!(
            "sed -i s/4/four/ f; setfacl -m u:{}:r,g::rwx,m::r,o::rx f",
            stage.user.uid
        ));
        let changes = stage.changes();
        assert!(changes.items("f", "mode").is_empty(), "{:#}", changes.get("f"));
        let (hunk, meta) = (changes.items("f", "hunk"), changes.items("f", "meta"));
        stage.pvisor(["approve", &format!("f#{}", hunk[0])]).ok();
        stage.pvisor(["commit"]).ok();
        assert_eq!((stage.mode("f"), stage.host_ok("sed -n 4p f").as_str()), (0o600, "four\n"));
        stage.pvisor(["approve", &format!("f#{}", meta[0])]).ok();
        stage.pvisor(["commit"]).ok();
        assert_eq!(stage.mode("f"), 0o645);
        assert!(stage.host_ok("getfacl -pc f").contains("group::rwx"));
        stage.changes().assert_plain(&[]);
        stage.pvisor(["undo"]).ok();
        stage.pvisor(["undo"]).ok();
        before.assert_same(&stage.tree(), "undone");
    }
}

each_driver_and_user! {
    /// Of two names of a file one is removed and made anew with the same bytes and another mode: the
    /// other name keeps what it had.
    fn a_name_that_was_made_anew_leaves_the_other_alone(stage) {
        if !stage.is_fuse() {
            // The kernel's overlay shows the agent two files from the first write on; which of them
            // was made anew cannot be told.
            return;
        }
        stage.host_ok("mkdir d; echo same > d/a; ln d/a b; chmod 640 b");
        let before = stage.tree();
        stage.run("rm d/a; echo same > d/a; chmod 600 d/a");
        stage.pvisor(["commit", "--all"]).ok();
        assert_eq!((stage.mode("d/a"), stage.mode("b")), (0o600, 0o640));
        stage.host_ok("! test d/a -ef b");
        stage.changes().assert_plain(&[]);
        stage.pvisor(["undo"]).ok();
        before.assert_same(&stage.tree(), "undone");
        // The same with a part of it.
        stage.host_ok("echo same > p; ln p q; setfattr -n user.k -v 1 p");
        stage.run_with(&["--continue"], "rm p; echo other > p").ok();
        let attributes = stage.changes().items("p", "meta").remove(0);
        stage.pvisor(["approve", &format!("p#{attributes}")]).ok();
        stage.pvisor(["commit"]).ok();
        assert_eq!(stage.text("p") + &stage.text("q"), "same\nsame\n");
        stage.host_ok("! getfattr -n user.k p && getfattr -n user.k q");
        // A new name of the host's own file brings no attributes that were not approved.
        stage.host_ok("echo data > data; setfattr -n user.k -v 1 data; : > two");
        stage.run_with(&["--continue"], "rm two; ln data two").ok();
        let text = stage.changes().items("two", "hunk").remove(0);
        stage.pvisor(["approve", &format!("two#{text}")]).ok();
        stage.pvisor(["commit"]).ok();
        assert_eq!(stage.text("two"), "data\n");
        stage.host_ok("! getfattr -n user.k two");
        stage.pvisor(["undo"]).ok();
        assert_eq!(stage.text("two"), "");
        stage.pvisor(["commit", "--all"]).ok();
        stage.host_ok("test two -ef data");
        // A name elsewhere was never seen by the agent: the file stays one.
        stage.host_ok("mkdir -p ../elsewhere; echo one > one; ln one ../elsewhere/one");
        stage.run("chmod 600 one");
        stage.pvisor(["commit", "--all"]).ok();
        assert_eq!(stage.host_ok("stat -c '%h %a' one ../elsewhere/one"), "2 600\n2 600\n");
    }
}

each_driver_and_user! {
    /// Two names of a file are replaced by a pipe each: two pipes, not one of two names.
    fn what_replaces_two_names_of_a_file_is_not_one(stage) {
        stage.host_ok("echo one > a; ln a b; echo two > c; ln c d");
        let before = stage.tree();
        stage.run("rm a b; mkfifo a b");
        stage.pvisor(["commit", "--all"]).ok();
        stage.host_ok("test -p a && test -p b && ! test a -ef b");
        stage.changes().assert_plain(&[]);
        if stage.is_fuse() {
            // The kernel's overlay shows two files from the first write on; there they are put together.
            stage.run_with(&["--continue"], "rm c d; echo new > c; cp c d").ok();
            stage.pvisor(["commit", "--all"]).ok();
            stage.host_ok("! test c -ef d");
            stage.changes().assert_plain(&[]);
            stage.pvisor(["undo"]).ok();
        }
        stage.pvisor(["undo"]).ok();
        before.assert_same(&stage.tree(), "undone");
    }
}

each_driver_and_user! {
    /// Of a file with three names, one of them new, one is committed without its mode: the others
    /// are one file at once, all three when the mode follows.
    fn names_of_a_file_come_together_in_two_commits(stage) {
        if !stage.is_fuse() {
            // There the host's two names are two files for the agent.
            return;
        }
        stage.host_ok("mkdir k; echo one > z; ln z k/data; chmod 640 z");
        let before = stage.tree();
        stage.run("echo two >> z; chmod 755 z; ln z a");
        let changes = stage.changes();
        let hunk = |path: &str| format!("{path}#{}", changes.items(path, "hunk")[0]);
        let mode = format!("z#{}", changes.items("z", "mode")[0]);
        stage.pvisor(["approve", "a", &hunk("k/data"), &hunk("z"), &mode]).ok();
        stage.pvisor(["commit"]).ok();
        stage.host_ok("test a -ef z && ! test a -ef k/data");
        assert_eq!((stage.mode("z"), stage.mode("k/data")), (0o755, 0o640));
        stage.pvisor(["commit", "--all"]).ok();
        stage.host_ok("test a -ef z && test a -ef k/data");
        stage.changes().assert_plain(&[]);
        stage.pvisor(["undo"]).ok();
        stage.pvisor(["undo"]).ok();
        before.assert_same(&stage.tree(), "undone");
    }
}
