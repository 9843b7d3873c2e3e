//! Host and agent changed the same file: `--merge` puts both together where that is clean, and
//! nothing of either side is ever lost.

use crate::support::{Live, World, each_user, until};

const TEN: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n";

/// A file of ten lines, edited by the agent and then by the host.
fn both(world: &World, agent: &str, host: &str) {
    world.host_ok("seq 10 > a.txt");
    world.run(agent);
    world.host_ok(host);
}

each_user! {
    fn a_clean_merge_is_written_shown_before_and_undone(world) {
        both(world, "sed -i s/9/agent/ a.txt", "sed -i s/2/person/ a.txt");
        assert_eq!(world.changes().get("a.txt")["merges"], "clean");
        assert!(world.pvisor(["changes"]).ok().out().contains("meanwhile, merges cleanly"));
        let before = world.tree();
        world.pvisor(["commit", "--all"]).done().exits(1).says("a.txt").says("--merge");
        before.assert_same(&world.tree(), "without the flag nothing is merged");
        let planned = world.pvisor(["commit", "--all", "--merge", "--dry-run", "--json"]).ok().json();
        assert_eq!(planned["merged"][0]["path"], "a.txt", "{planned:#}");
        before.assert_same(&world.tree(), "a dry run writes nothing");
        let said = world.pvisor(["commit", "--all", "--merge"]).ok().out();
        assert!(said.contains("a.txt (merged with the host's edits)"), "{said}");
        let both = TEN.replace('2', "person").replace('9', "agent");
        assert_eq!(world.text("a.txt"), both);
        // The person's line is not something that the agent took away.
        world.changes().assert_plain(&[]);
        world.pvisor(["undo"]).ok();
        assert_eq!(world.text("a.txt"), TEN.replace('2', "person"));
        let again = world.changes();
        assert_eq!(again.get("a.txt")["merges"], "clean", "{:#}", again.json);
        assert_eq!(again.get("a.txt")["added"], 1);
        world.pvisor(["commit", "--all", "--merge"]).ok();
        assert_eq!(world.text("a.txt"), both);
    }
}

each_user! {
    fn edits_of_the_same_line_are_refused_by_path_and_line(world) {
        both(
            world,
            "sed -i s/5/agent/ a.txt; echo new > b.txt",
            "sed -i '1i first' a.txt; sed -i s/5/person/ a.txt",
        );
        assert_eq!(world.changes().get("a.txt")["merges"], "conflicts");
        assert!(world.pvisor(["changes"]).ok().out().contains("conflicts in 1 place"));
        let before = world.tree();
        for flags in [&["commit", "--all", "--merge"][..], &["commit", "--all"], &["diff", "--merged"]] {
            world
                .pvisor(flags.iter().copied())
                .done()
                .exits(1)
                .says("a.txt")
                .says("line 6 (the agent's 5)");
            before.assert_same(&world.tree(), "all or nothing");
        }
    }
}

each_user! {
    fn what_the_host_saves_after_the_dry_run_counts(world) {
        both(world, "sed -i s/9/agent/ a.txt", "sed -i s/2/person/ a.txt");
        world.pvisor(["commit", "--all", "--merge", "--dry-run"]).ok();
        world.host_ok("sed -i s/4/later/ a.txt");
        world.pvisor(["commit", "--all", "--merge"]).ok();
        let all = TEN.replace('2', "person").replace('4', "later").replace('9', "agent");
        assert_eq!(world.text("a.txt"), all);
    }
}

each_user! {
    fn a_save_that_conflicts_after_the_dry_run_refuses(world) {
        both(world, "sed -i s/9/agent/ a.txt", "sed -i s/2/person/ a.txt");
        world.pvisor(["commit", "--all", "--merge", "--dry-run"]).ok();
        world.host_ok("sed -i s/9/later/ a.txt");
        let before = world.tree();
        world.pvisor(["commit", "--all", "--merge"]).done().exits(1).says("line 9");
        before.assert_same(&world.tree(), "the later save stays");
    }
}

each_user! {
    fn line_ends_and_a_missing_last_newline_are_kept(world) {
        world.host_ok(r"printf '1\r\n2\r\n3\r\n' > crlf.txt; printf '1\n2\n3' > bare.txt; printf '1\n2\n3' > gains.txt");
        world.run(r"printf '1\r\n2\r\nthree\r\n' > crlf.txt; printf '1\n2\nthree' > bare.txt; printf '1\n2\n3\n' > gains.txt");
        world.host_ok(r"for f in crlf bare gains; do sed -i 's/^1/one/' $f.txt; done");
        world.pvisor(["commit", "--all", "--merge"]).ok();
        assert_eq!(world.text("crlf.txt"), "one\r\n2\r\nthree\r\n");
        assert_eq!(world.text("bare.txt"), "one\n2\nthree");
        assert_eq!(world.text("gains.txt"), "one\n2\n3\n");
        world.changes().assert_plain(&[]);
    }
}

each_user! {
    fn a_partial_approval_is_merged_and_the_rest_stays(world) {
        both(
            world,
            "sed -i 's/^1$/agent one/; s/^9$/agent nine/' a.txt",
            "sed -i s/5/person/ a.txt",
        );
        let first = world.changes().get("a.txt")["items"][0]["id"].as_str().expect("an id").to_owned();
        world.pvisor(["approve", &format!("a.txt#{first}")]).ok();
        world.pvisor(["commit", "--merge"]).ok();
        let half = TEN.replacen("1\n", "agent one\n", 1).replace('5', "person");
        assert_eq!(world.text("a.txt"), half);
        let left = world.changes();
        let row = left.get("a.txt");
        assert_eq!((row["added"].as_u64(), row["removed"].as_u64()), (Some(1), Some(1)), "{row:#}");
        assert_eq!(row["merges"], "clean");
        world.pvisor(["commit", "--all", "--merge"]).ok();
        assert_eq!(world.text("a.txt"), half.replace('9', "agent nine"));
        world.changes().assert_plain(&[]);
        // Both come back one after the other.
        world.pvisor(["undo"]).ok();
        assert_eq!(world.text("a.txt"), half);
        world.pvisor(["undo"]).ok();
        assert_eq!(world.text("a.txt"), TEN.replace('5', "person"));
        assert_eq!(world.changes().get("a.txt")["added"], 2);
    }
}

each_user! {
    fn only_what_is_approved_has_to_merge(world) {
        both(
            world,
            "sed -i 's/^1$/agent one/; s/^9$/agent nine/' a.txt",
            "sed -i s/9/person/ a.txt",
        );
        let changes = world.changes();
        assert_eq!(changes.get("a.txt")["merges"], "conflicts");
        let items = &changes.get("a.txt")["items"];
        assert_eq!(items[0]["stands"], "still applies");
        assert_eq!(items[1]["stands"], "conflicts");
        let stand = world.pvisor(["diff", "--merged"]).done().exits(1).err();
        for (item, stands) in [(&items[0], "still applies"), (&items[1], "conflicts")] {
            let line = format!("a.txt#{}: {stands}", item["id"].as_str().expect("an id"));
            assert!(stand.contains(&line), "{line} is not in {stand}");
        }
        let first = changes.get("a.txt")["items"][0]["id"].as_str().expect("an id").to_owned();
        world.pvisor(["approve", &format!("a.txt#{first}")]).ok();
        world.pvisor(["commit", "--merge"]).ok();
        let half = TEN.replacen("1\n", "agent one\n", 1).replace('9', "person");
        assert_eq!(world.text("a.txt"), half);
    }
}

each_user! {
    fn an_agent_that_goes_on_after_a_merge_never_takes_the_persons_edit_away(world) {
        world.host_ok("seq 10 > a.txt");
        let mut agent = Live::start(
            world,
            &[],
            "sed -i s/9/agent/ a.txt; echo ready; read x; sed -i s/7/more/ a.txt; echo done; read x",
        );
        agent.hear("ready");
        until("the change", || world.changes().find("a.txt").map(drop));
        world.host_ok("sed -i s/2/person/ a.txt");
        world.pvisor(["commit", "--all", "--merge"]).ok();
        agent.say("go");
        agent.hear("done");
        until("the next change", || world.changes().find("a.txt").map(drop));
        assert_eq!(world.changes().get("a.txt")["added"], 1);
        let before = world.tree();
        world.pvisor(["commit", "--all"]).done().exits(1).says("a.txt");
        before.assert_same(&world.tree(), "the person's edit is not overwritten");
        world.pvisor(["commit", "--all", "--merge"]).ok();
        let all = TEN.replace('2', "person").replace('7', "more").replace('9', "agent");
        assert_eq!(world.text("a.txt"), all);
        agent.say("end");
        agent.finish().exits(0);
    }
}

each_user! {
    fn modes_go_with_the_side_that_changed_them(world) {
        world.host_ok("seq 10 > a.txt; seq 10 > b.txt; seq 10 > c.txt; chmod 644 *.txt");
        world.run("sed -i s/9/agent/ a.txt; chmod 755 b.txt; chmod 600 c.txt");
        world.host_ok("sed -i s/2/person/ a.txt; chmod 640 a.txt; echo 11 >> b.txt");
        world.pvisor(["commit", "--all", "--merge"]).ok();
        assert_eq!(
            world.host_ok("stat -c %a a.txt b.txt c.txt; tail -n1 b.txt; sed -n 2p a.txt"),
            "640\n755\n600\n11\nperson\n"
        );
        world.pvisor(["undo"]).ok();
        assert_eq!(world.host_ok("stat -c %a a.txt b.txt c.txt"), "640\n644\n644\n");
        world.host_ok("chmod 700 c.txt");
        let before = world.tree();
        world.pvisor(["commit", "--all", "--merge"]).done().exits(1).says("c.txt").says("mode");
        before.assert_same(&world.tree(), "nothing is written");
    }
}

each_user! {
    fn what_is_no_text_file_on_both_sides_is_refused(world) {
        world.host_ok(r"printf 'a\0b' > bin; echo 1 > gone; ln -s x link; echo 1 > type");
        world.run(r"printf 'a\0c' > bin; echo 2 > gone; ln -sfn y link; echo 2 > type; echo agent > new");
        world.host_ok(r"printf 'a\0d' > bin; rm gone; ln -sfn z link; rm type; mkdir type; echo person > new");
        let before = world.tree();
        let refused = world.pvisor(["commit", "--all", "--merge", "--json"]).done().exits(1).json();
        let mut paths: Vec<_> = refused["refused"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|r| r["path"].as_str().expect("a path").to_owned())
            .collect();
        paths.sort();
        assert_eq!(paths, ["bin", "gone", "link", "new", "type"], "{refused:#}");
        before.assert_same(&world.tree(), "nothing is written");
        for change in world.changes().all() {
            assert_eq!(change["merges"], "conflicts", "{change:#}");
        }
    }
}

each_user! {
    fn the_merged_diff_is_what_git_applies_to_the_host(world) {
        world.host_ok("seq 10 > a.txt; seq 10 > b.txt");
        world.run("sed -i s/9/agent/ a.txt; echo more >> b.txt; echo new > n.txt");
        world.host_ok("sed -i s/2/person/ a.txt; mkdir ../copy; cp -p *.txt ../copy");
        let patch = world.pvisor(["diff", "--merged"]).ok().out();
        world.host_ok(&format!("cd ../copy && git apply - <<'END'\n{patch}END"));
        world.pvisor(["commit", "--all", "--merge"]).ok();
        assert_eq!(world.host_ok("for f in *.txt; do cmp $f ../copy/$f; done; rm -r ../copy"), "");
    }
}

each_user! {
    fn c19_a_directory_replaces_a_file_and_back(world) {
        world.host_ok("echo f > a; mkdir d; echo 1 > d/1; echo 2 > d/2");
        world.run("rm a; mkdir a; echo n > a/n; rm -r d; echo file > d");
        world.host_ok("echo host >> d/2; echo late > d/3");
        let changes = world.changes();
        assert_eq!(changes.get("a")["kind"], "type");
        assert_eq!(changes.get("d")["kind"], "type");
        assert!(changes.get("d")["conflict"].as_str().is_some_and(|c| c.contains("d/3")));
        // What would be lost is listed.
        assert_eq!(changes.get("d/1")["kind"], "deleted");
        assert_eq!(changes.get("d/2")["merges"], "conflicts");
        let before = world.tree();
        world.pvisor(["commit", "--all", "--merge"]).done().exits(1).says("d/3");
        before.assert_same(&world.tree(), "the later edits stay");
        world.host_ok("rm d/3; echo 2 > d/2");
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.text("a/n") + &world.text("d"), "n\nfile\n");
    }
}
