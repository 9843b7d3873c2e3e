//! Mode, attributes, access lists, owners and times, without a byte of content.

use crate::support::{Capability, Stage, each_driver_and_user, require};

/// Runs `job`, demands exactly this one change, approves it by its path, commits it, demands that
/// the host shows what the agent saw, and takes it back.
#[track_caller]
fn one_change(stage: &Stage, job: &str, line: &str, look: &str) -> serde_json::Value {
    let before = stage.tree();
    let seen = stage.run(&format!("{job}; {look}")).out();
    let changes = stage.changes();
    assert_eq!(changes.lines(), [line], "{job}: {:#}", changes.json);
    let path = line.split_once(' ').unwrap().1;
    stage.pvisor(["diff", "last", path]).ok();
    stage.pvisor(["approve", path]).ok();
    let done = stage.pvisor(["commit"]).ok().out();
    assert_eq!(
        done,
        format!(
            "commit {}: 1 change\n  {path}\n",
            done.split([' ', ':']).nth(1).unwrap()
        )
    );
    assert_eq!(
        stage.host_ok(look),
        seen,
        "the host has what the agent saw: {job}"
    );
    assert_eq!(stage.changes().lines(), Vec::<String>::new(), "{job}");
    stage.pvisor(["undo"]).ok();
    before.assert_same(&stage.tree(), job);
    changes.get(path).clone()
}

each_driver_and_user! {
    fn mode_only(stage) {
        stage.host_ok("echo 1 >f; mkdir d; mkfifo p");
        let file = one_change(stage, "chmod 640 f", "mode f", "stat -c %a f");
        assert_eq!(file["mode"], serde_json::json!({"before": "100644", "after": "100640"}));
        assert_eq!(file["items"][0]["kind"], "mode");
        one_change(stage, "chmod 700 d", "mode d", "stat -c %a d");
        one_change(stage, "chmod 600 p", "mode p", "stat -c '%F %a' p");
        one_change(stage, "chmod 000 f", "mode f", "stat -c %a f");
        one_change(stage, "chmod 4755 f", "mode f", "stat -c %a f");
    }
}

each_driver_and_user! {
    fn attributes_only(stage) {
        require!(stage, Capability::Program("setfattr"));
        stage.host_ok("echo 1 >f; mkdir d; setfattr -n user.old -v 1 f");
        let look = "getfattr -d f d";
        let change = one_change(stage, "setfattr -n user.new -v 2 f", "meta f", look);
        assert_eq!(change["items"][0]["kind"], "meta");
        one_change(stage, "setfattr -x user.old f", "meta f", look);
        one_change(stage, "setfattr -n user.old -v 9 f", "meta f", look);
        one_change(stage, "setfattr -n user.d -v 0x00ff0a d", "meta d", "getfattr -e hex -d d");
        // What an overlay would take for its own mark is the agent's data.
        one_change(stage, "setfattr -n user.overlay.opaque -v y d", "meta d", look);
        let diff = stage.run("setfattr -n user.new -v 2 f");
        assert_eq!(diff.err(), "");
        let shown = stage.pvisor(["diff", "last"]).ok();
        assert!(shown.err().contains("left out of f: git holds no owners and no extended attributes"), "{shown}");
        let listed = stage.pvisor(["changes", "last"]).ok().out();
        assert!(listed.contains("meta  f\n"), "{listed}");
    }
}

each_driver_and_user! {
    fn access_lists_only(stage) {
        require!(stage, Capability::Program("setfacl"));
        let user = stage.user.uid;
        stage.host_ok(&format!("echo 1 >f; mkdir d; echo 1 >g; setfacl -m u:{user}:r g"));
        let look = "getfacl -n f d";
        // Inside, one user has a name: the list is of him.
        one_change(stage, &format!("setfacl -m u:{user}:r f"), "meta f", look);
        // The mask of a list stands where the group's bits were: that is a change of mode as well,
        // and one item with the list, since either alone would be a third state.
        let both = one_change(stage, &format!("setfacl -m u:{user}:rwx f"), "mode f", look);
        assert_eq!(both["mode"]["after"], "100674");
        assert_eq!(both["items"].as_array().unwrap().len(), 1, "{both:#}");
        assert_eq!(both["items"][0]["kind"], "meta");
        one_change(stage, &format!("setfacl -m d:u:{user}:r d"), "meta d", look);
        one_change(stage, "setfacl -b g", "meta g", "getfacl -n g");
    }
}

each_driver_and_user! {
    /// Only one user and group exist inside: a change of owner fails there, as it is told, and none
    /// is ever shown or committed.
    fn owners_cannot_be_changed(stage) {
        stage.host_ok("echo 1 >f");
        let done = stage.run("chown 65534 f 2>/dev/null; echo $?; chgrp 65534 f 2>/dev/null; echo $?; chown $(id -u) f; echo $?");
        assert_eq!(done.out(), "1\n1\n0\n", "{done}");
        let lines = stage.changes().lines();
        assert_eq!(lines, Vec::<String>::new());
        stage.pvisor(["commit", "--all"]).ok();
        assert_eq!(stage.host_ok("stat -c %u f"), format!("{}\n", stage.user.uid));
    }
}

each_driver_and_user! {
    /// Times without content: told in one line, out of the way, and part of all.
    fn times_only(stage) {
        stage.host_ok("for n in a b c; do echo $n >$n; done; ln -s a l; mkdir d; echo 1 >d/x");
        let change = one_change(
            stage,
            "touch -d '2020-02-02 02:02:02.123456789' a",
            "meta a",
            "stat -c %.9Y a",
        );
        assert_eq!(change["kind"], "meta");
        one_change(stage, "touch -h -d @5 l", "meta l", "stat -c %.9Y l");
        let before = stage.tree();
        stage.run("touch -d 2001-01-01 a b; touch -d 2001-01-01 d; echo new >c");
        let listed = stage.pvisor(["changes", "last"]).ok().out();
        assert!(listed.contains("2 files touched (only their times differ)"), "{listed}");
        assert!(!listed.contains(" a\n") && listed.contains("modified  c"), "{listed}");
        let changes = stage.changes();
        assert_eq!(changes.lines(), ["meta a", "meta b", "modified c"], "a directory's times are none");
        assert_eq!(changes.json["counts"]["meta"], 2);
        stage.pvisor(["commit", "--all"]).ok();
        assert_eq!(stage.host_ok("stat -c %Y a b | uniq | wc -l; cat c"), "1\nnew\n");
        stage.pvisor(["undo"]).ok();
        before.assert_same(&stage.tree(), "undo");
    }
}

each_driver_and_user! {
    /// Work that comes to nothing is no change; what is left of it is named for what it is.
    fn work_that_comes_to_nothing(stage) {
        stage.host_ok("echo 1 >same; cp -p same again; echo 1 >mode; mkdir d; echo 1 >d/x; echo 1 >back");
        stage.run(
            "cp -p again ~/kept; rm again; cp -p ~/kept again; rm ~/kept; echo x >>same; truncate -s 2 same; \
             touch -r mode same; touch -d @0 ~/t; rm ~/t; chmod 600 mode; chmod 644 mode; mv d e; mv e d; \
             mv back b2; mv b2 back; echo 1 >made; rm made; mkdir m; rmdir m",
        );
        let changes = stage.changes();
        let lines = changes.lines();
        // Only the time of the file that was written and put back may differ.
        assert!(lines.is_empty() || lines == ["meta same"], "{lines:?}");
    }
}
