//! The host moves while the agent works: nobody's edit is ever overwritten unseen.

use crate::support::{Capability, Live, each_driver_and_user, each_user, require, until};

each_user! {
    fn an_edit_of_the_same_file_is_marked_live_and_refuses_the_commit(world) {
        world.host_ok("echo base > a.txt; echo base > b.txt");
        let mut agent = Live::start(world, &[], "echo agent > a.txt; echo agent > b.txt; echo ready; read x");
        agent.hear("ready");
        until("both changes", || (world.changes().plain().len() == 2).then_some(()));
        assert!(world.changes().get("a.txt")["conflict"].is_null());
        world.host_ok("echo person > a.txt");
        until("a conflict mark while the agent runs", || {
            (!world.changes().get("a.txt")["conflict"].is_null()).then_some(())
        });
        assert!(world.changes().get("b.txt")["conflict"].is_null());
        let before = world.tree();
        let refused = world.pvisor(["commit", "--all"]).done().exits(1).says("a.txt");
        assert!(!refused.err().contains("b.txt") || refused.err().contains("nothing"), "{refused}");
        before.assert_same(&world.tree(), "nothing of the batch is written");
        assert_eq!(world.text("a.txt"), "person\n");
        agent.say("end");
        agent.finish().exits(0);
    }
}

each_user! {
    fn an_edit_of_another_file_is_kept_and_is_not_the_agents(world) {
        world.host_ok("echo base > a.txt; echo base > mine.txt");
        let mut agent = Live::start(world, &[], "echo agent > a.txt; echo ready; read x");
        agent.hear("ready");
        world.host_ok("echo person > mine.txt; echo new > mine2.txt");
        agent.say("end");
        agent.finish().exits(0);
        world.changes().assert_plain(&["modified a.txt"]);
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.text("a.txt"), "agent\n");
        assert_eq!(world.text("mine.txt") + &world.text("mine2.txt"), "person\nnew\n");
    }
}

each_user! {
    fn a_refresh_of_gits_index_is_no_conflict(world) {
        require!(world, Capability::Program("git"));
        world.host_ok(
            "git init -q; git config user.name n; git config user.email e@x; \
             echo 1 > a.txt; echo 1 > b.txt; git add .; git commit -qm first",
        );
        let mut agent = Live::start(
            world,
            &[],
            "echo 2 > a.txt; git add a.txt; git commit -qm second && echo ready; read x",
        );
        agent.hear("ready");
        // The stat data in the index goes stale, and the host's git writes it anew.
        world.host_ok("touch b.txt; git status --short; git update-index --refresh");
        agent.say("end");
        agent.finish().exits(0);
        let changes = world.changes();
        for change in changes.all() {
            assert!(change["conflict"].is_null(), "{change:#}");
        }
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.host_ok("git log --format=%s"), "second\nfirst\n");
        assert_eq!(world.host_ok("git status --short"), "");
    }
}

each_user! {
    fn looks_alone_change_nothing_and_touching_is_no_conflict(world) {
        world.host_ok("echo 1 > a.txt; echo 1 > t.txt; touch -d 2020-01-01 a.txt");
        world.run("echo 2 > a.txt; touch t.txt; cat a.txt > /dev/null");
        // Same bytes, mode and attributes: only the inode's own change time moves.
        world.host_ok("chmod 600 a.txt; chmod 644 a.txt");
        let changes = world.changes();
        assert!(changes.get("a.txt")["conflict"].is_null(), "{:#}", changes.json);
        assert!(changes.find("t.txt").is_none_or(|c| c["kind"] == "meta"));
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.text("a.txt"), "2\n");
    }
}

each_user! {
    fn a_file_put_back_is_no_change(world) {
        world.host_ok("echo 1 > a.txt; cp -p a.txt keep; mkdir d; echo x > d/f");
        world.run("echo 2 > a.txt; cp -p keep a.txt; rm -r d; mkdir d; echo x > d/f; echo y > n; rm n");
        let plain = world.changes().plain();
        let real: Vec<_> = plain.iter().filter(|l| !l.starts_with("meta ")).collect();
        assert!(real.is_empty(), "{real:?}");
    }
}

each_user! {
    fn an_edit_of_a_renamed_file_is_named_by_the_name_the_host_knows(world) {
        world.host_ok("echo base > old.txt");
        world.run("mv old.txt new.txt");
        world.host_ok("echo person > old.txt");
        let shown = world.changes().get("new.txt")["conflict"].to_string();
        assert!(shown.contains("old.txt"), "{shown}");
        let before = world.tree();
        let refused = world.pvisor(["commit", "--all", "--json"]).done().exits(1).json();
        assert_eq!(refused["refused"][0]["path"], "old.txt", "{refused:#}");
        assert_eq!(refused["refused"][0]["reason"], "the host's file was changed meanwhile");
        before.assert_same(&world.tree(), "nothing is written");
    }
}

each_user! {
    fn a_refresh_of_gits_index_long_after_the_agents_commit_is_followed(world) {
        require!(world, Capability::Program("git"));
        world.host_ok(
            "git init -q; git config user.name n; git config user.email e@x; \
             echo 1 > a.txt; echo 1 > b.txt; git add .; git commit -qm first",
        );
        let mut agent = Live::start(
            world,
            &[],
            "echo 2 > a.txt; git add a.txt; git commit -qm second && echo ready; read x",
        );
        agent.hear("ready");
        until("the agent's index", || world.changes().find(".git/index").map(drop));
        world.host_ok("touch b.txt; git status --short; git update-index --refresh");
        agent.say("end");
        agent.finish().exits(0);
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.host_ok("git log --format=%s; git status --short"), "second\nfirst\n");
    }
}

each_driver_and_user! {
    /// The kernel's overlay goes on showing what an agent once looked at, whatever is put in its place
    /// on the host: what was saved meanwhile is never taken for what the agent started from.
    fn what_was_replaced_while_the_agent_ran_is_a_conflict_or_was_seen(stage) {
        stage.host_ok("for n in edited modes removed; do printf 'one\\ntwo\\nthree\\n' >$n; done");
        // A file server asks anew a second after it was told.
        let (driver, wait) = if stage.is_fuse() {
            ("fuse", "until grep -q person removed && test -e new; do sleep 0.02; done; ")
        } else {
            ("overlayfs", "")
        };
        let script = format!(
            "cat edited modes removed >/dev/null; test ! -e new; echo ready; read x; {wait}\
             echo agent >>edited; chmod 755 modes; rm removed; echo agent >new; echo done; read x"
        );
        let mut agent = Live::start(stage, &["--driver", driver], &script);
        agent.hear("ready");
        stage.host_ok(
            "for n in edited modes removed; do sed s/one/person/ $n >.n && mv .n $n; done; \
             echo person >.n; mv .n new",
        );
        agent.say("go on");
        agent.hear("done");
        agent.say("end");
        agent.finish().exits(0);
        let done = stage.pvisor(["commit", "--all"]).done();
        if stage.is_fuse() {
            done.exits(0);
            assert_eq!(stage.text("edited"), "person\ntwo\nthree\nagent\n");
        } else {
            let said = done.exits(1).err();
            for name in ["edited", "modes", "removed", "new"] {
                assert!(said.contains(name), "{name}: {said}");
                assert!(stage.text(name).starts_with("person\n"), "{name}");
            }
        }
    }
}
