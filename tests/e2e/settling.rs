//! What stands against a change and is not about lines: attributes, times and names, each settled by
//! itself.

use crate::support::{Capability, World, each_user, require};

fn mtime(world: &World, path: &str) -> i64 {
    let seconds = world.host_ok(&format!("stat -c %Y {path}"));
    seconds.trim().parse().expect("a number")
}

const FLAGS: [&str; 5] = ["--merge", "--ours", "--theirs", "--markers", "commit"];

/// Settles by `flag` and commits; or lets the commit merge by itself.
fn take(world: &World, path: &str, flag: &str) {
    if flag == "commit" {
        world.pvisor(["commit", "--all", "--merge"]).ok();
        return;
    }
    world.pvisor(["resolve", path, flag]).ok();
    let changes = world.changes();
    let conflict = changes.find(path).map(|row| row["conflict"].clone());
    assert!(
        conflict.is_none_or(|c| c.is_null()),
        "{flag}: {:#}",
        changes.json
    );
    world.pvisor(["commit", "--all"]).ok();
}

each_user! {
    fn a_mode_of_the_agents_and_bytes_of_the_persons_go_together(world) {
        for flag in FLAGS {
            world.host_ok(r"rm -f a.txt bin; echo 1 > a.txt; printf 'a\0b' > bin; chmod 644 a.txt bin");
            world.run("chmod 755 a.txt bin");
            world.host_ok(r"echo person >> a.txt; printf 'p\0q' > bin; touch -d '2024-01-02 UTC' a.txt bin");
            let changes = world.changes();
            assert_eq!(changes.get("a.txt")["merges"], "clean", "{:#}", changes.json);
            assert_eq!(changes.get("bin")["merges"], "clean", "{:#}", changes.json);
            let before = world.tree();
            if flag == "commit" {
                world.pvisor(["commit", "--all", "--merge"]).ok();
            } else {
                world.pvisor(["resolve", "a.txt", "bin", flag]).ok();
                before.assert_same(&world.tree(), "the host is not written");
                world.changes().assert_plain(&["mode a.txt", "mode bin"]);
                world.pvisor(["commit", "--all"]).ok();
            }
            assert_eq!(world.text("a.txt"), "1\nperson\n", "{flag}");
            assert_eq!(world.bytes("bin"), b"p\0q", "{flag}");
            assert_eq!((world.mode("a.txt") & 0o777, world.mode("bin") & 0o777), (0o755, 0o755), "{flag}");
            assert_eq!(mtime(world, "a.txt"), 1_704_153_600, "{flag}: its content is the person's");
            world.changes().assert_plain(&[]);
            world.pvisor(["undo"]).ok();
            before.assert_same(&world.tree(), "undone");
            world.pvisor(["revert", "--all"]).ok();
        }
    }
}

each_user! {
    fn an_attribute_of_the_agents_and_bytes_of_the_persons_go_together(world) {
        require!(world, Capability::Program("setfattr"));
        for flag in FLAGS {
            world.host_ok("rm -f a.txt; echo 1 > a.txt");
            world.run("setfattr -n user.agent -v 1 a.txt");
            world.host_ok("echo person >> a.txt");
            take(world, "a.txt", flag);
            assert_eq!(world.text("a.txt"), "1\nperson\n", "{flag}");
            assert_eq!(world.host_ok("getfattr --only-values -n user.agent a.txt"), "1", "{flag}");
            world.changes().assert_plain(&[]);
        }
    }
}

each_user! {
    fn a_file_that_the_agent_only_touched_is_the_persons(world) {
        for flag in FLAGS {
            world.host_ok("rm -rf d; mkdir d; echo 1 > d/t.txt; touch -d 2020-01-01 d/t.txt");
            world.run("touch d/t.txt");
            world.host_ok("echo person >> d/t.txt; touch -d '2024-01-02 UTC' d/t.txt");
            let listed = world.pvisor(["changes"]).ok().out();
            assert!(listed.contains("d/t.txt") && listed.contains("CONFLICT"), "{listed}");
            take(world, "d/t.txt", flag);
            assert_eq!(world.text("d/t.txt"), "1\nperson\n", "{flag}");
            assert_eq!(mtime(world, "d/t.txt"), 1_704_153_600, "{flag}");
            assert!(world.changes().all().next().is_none(), "{flag}: {:#}", world.changes().json);
        }
    }
}

each_user! {
    fn a_mode_alone_leaves_the_newer_time_of_the_content(world) {
        world.host_ok("echo 1 > a.txt; echo 1 > b.txt; touch -d '2020-01-02 UTC' a.txt b.txt");
        world.run("chmod 700 a.txt; touch -d '2019-01-02 UTC' b.txt; chmod 700 b.txt");
        world.changes();
        // The same bytes, saved again; looked at in between, and then once more.
        world.host_ok("touch -d '2024-01-02 UTC' a.txt");
        world.changes().assert_plain(&["mode a.txt", "mode b.txt"]);
        world.host_ok("touch -d '2025-01-02 UTC' a.txt");
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!((world.mode("a.txt") & 0o777, world.mode("b.txt") & 0o777), (0o700, 0o700));
        assert_eq!(mtime(world, "a.txt"), 1_735_776_000);
        // A time that the agent gave is the agent's.
        assert_eq!(mtime(world, "b.txt"), 1_546_387_200);
        world.changes().assert_plain(&[]);
    }
}

each_user! {
    fn what_both_made_is_new_and_what_one_made_has_its_time(world) {
        // Either way both sides' times are long gone.
        let old = "touch -d '2021-01-02 UTC' a.txt";
        for (flags, fresh) in [
            (&["commit", "--all", "--merge"][..], true),
            (&["resolve", "a.txt", "--merge"], true),
            (&["resolve", "a.txt", "--theirs"], true),
        ] {
            world.host_ok("rm -f a.txt; seq 10 > a.txt; touch -d '2020-01-02 UTC' a.txt");
            world.run(&format!("sed -i s/^9$/agent/ a.txt; {old}"));
            world.host_ok("sed -i s/^2$/person/ a.txt; touch -d '2022-01-02 UTC' a.txt");
            let start: i64 = world.host_ok("date +%s").trim().parse().expect("a number");
            world.pvisor(flags.iter().copied()).ok();
            world.pvisor(["commit", "--all"]).ok();
            assert_eq!(world.text("a.txt"), "1\nperson\n3\n4\n5\n6\n7\n8\nagent\n10\n");
            let time = mtime(world, "a.txt");
            assert_eq!(time >= start, fresh, "{flags:?}: {time}");
        }
    }
}

each_user! {
    fn ours_leaves_the_file_out_of_the_change_set(world) {
        world.host_ok("echo 1 > a.txt");
        world.run("echo agent > a.txt");
        world.host_ok("echo person > a.txt; touch -d '2022-01-02 UTC' a.txt");
        let before = world.tree();
        for flags in [&["--markers"][..], &["--ours"]] {
            world.pvisor([&["resolve", "a.txt"][..], flags].concat()).ok();
        }
        assert!(world.changes().all().next().is_none(), "{:#}", world.changes().json);
        world.pvisor(["commit", "--all"]).ok();
        before.assert_same(&world.tree(), "the person's file is as it was");
    }
}

each_user! {
    fn a_conflict_whose_base_is_gone_leaves_the_other_changes_in_the_diff(world) {
        world.host_ok("echo 1 > a.txt; echo 1 > b.txt; echo 1 > c.txt");
        world.run("echo agent > a.txt; echo agent > b.txt; chmod 755 c.txt");
        world.changes();
        world.host_ok("echo person > a.txt; echo person > c.txt");
        let blobs = world.session_dir().join("layers/workspace/base/blobs");
        world.host_ok(&format!("rm -r {}", blobs.display()));
        let done = world.pvisor(["diff"]).done().exits(2).says("warning: left out").says("a.txt");
        assert!(done.out().contains("+agent") && done.out().contains("b/b.txt"), "{done}");
        assert!(done.out().contains("new mode 100755"), "{done}");
        assert!(!done.out().contains("a/a.txt"), "{done}");
    }
}

each_user! {
    fn marker_lines_of_the_hosts_own_hold_no_commit_back(world) {
        world.host_ok("seq 10 > a.txt; printf '<<<<<<< host\\nx\\n=======\\ny\\n>>>>>>> agent\\n' > doc.txt");
        world.run("sed -i s/5/agent/ a.txt; echo more >> doc.txt");
        world.host_ok("sed -i s/5/person/ a.txt");
        world.pvisor(["resolve", "a.txt", "--edit"]).env("VISUAL", "true").done().exits(1)
            .says("nothing was changed").says("--merge");
        world.pvisor(["resolve", "a.txt", "--markers"]).ok();
        let changes = world.changes();
        assert!(changes.get("doc.txt")["conflict"].is_null(), "{:#}", changes.json);
        assert!(!changes.get("a.txt")["conflict"].is_null(), "{:#}", changes.json);
        world.pvisor(["approve", "doc.txt"]).ok();
        world.pvisor(["commit"]).ok();
        assert!(world.text("doc.txt").ends_with(">>>>>>> agent\nmore\n"));
    }
}
