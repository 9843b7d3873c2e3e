//! Conflicts settled by a person: ours, theirs, both between markers, edited or left; in the agent's
//! view, never on the host.

use std::time::Duration;

use crate::support::small_disk::{Kind, SmallDisk};
use crate::support::wait::PATIENCE;
use crate::support::{Capability, Live, Terminal, World, each_user, require, until};

const TEN: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n";

/// Host and agent meet in line 5; each has another edit of its own.
const AGENT: &str = "sed -i 's/^5$/agent/; s/^9$/agent too/' a.txt";
const PERSON: &str = "sed -i 's/^5$/person/; s/^2$/person too/' a.txt";

fn both(world: &World) {
    world.host_ok("seq 10 > a.txt");
    world.run(AGENT);
    world.host_ok(PERSON);
}

fn merged(line: &str) -> String {
    TEN.replace("2\n", "person too\n")
        .replace("5\n", line)
        .replace("9\n", "agent too\n")
}

/// The agent's file, from the diff that would be committed.
fn staged(world: &World) -> String {
    let script = "rm -rf ../copy && mkdir ../copy && cp -p * ../copy && cd ../copy && git apply - && cat a.txt";
    let patch = world.pvisor(["diff", "a.txt"]).ok().out();
    let text = world.host_ok(&format!("({script}) <<'END'\n{patch}END"));
    world.host_ok("rm -r ../copy");
    text
}

each_user! {
    fn each_sides_edit_can_be_taken_where_edits_meet(world) {
        require!(world, Capability::Program("git"));
        for (flag, line) in [("--ours", "person\n"), ("--theirs", "agent\n")] {
            both(world);
            let before = world.tree();
            world.pvisor(["resolve", "a.txt", "--merge"]).done().exits(1).says("line 5");
            assert_eq!(world.changes().get("a.txt")["merges"], "conflicts");
            let said = world.pvisor(["resolve", "a.txt", flag]).ok().out();
            assert!(said.contains("resolved 1 change: a.txt"), "{said}");
            before.assert_same(&world.tree(), "the host is not written");
            let changes = world.changes();
            let row = changes.get("a.txt");
            assert!(row["conflict"].is_null(), "{row:#}");
            assert_eq!(row["decision"], "undecided");
            // The person's own edits are no part of the change.
            let edits = if flag == "--ours" { 1 } else { 2 };
            assert_eq!((&row["added"], &row["removed"]), (&edits.into(), &edits.into()), "{row:#}");
            assert_eq!(staged(world), merged(line));
            world.pvisor(["commit", "--all"]).ok();
            assert_eq!(world.text("a.txt"), merged(line));
            world.changes().assert_plain(&[]);
            world.pvisor(["undo"]).ok();
            before.assert_same(&world.tree(), "undone");
            world.pvisor(["resolve", "a.txt", flag]).done().exits(1).says("nothing of this is in conflict");
        }
    }
}

each_user! {
    fn an_approval_of_before_does_not_reach_what_was_resolved(world) {
        both(world);
        world.pvisor(["approve", "a.txt"]).ok();
        let before = world.tree();
        world.pvisor(["resolve", "a.txt", "--theirs"]).ok();
        assert!(world.pvisor(["commit"]).ok().out().contains("no change is approved"));
        before.assert_same(&world.tree(), "it has to be looked at first");
    }
}

each_user! {
    fn markers_lie_in_the_staged_copy_and_hold_the_commit_back(world) {
        require!(world, Capability::Program("git"));
        both(world);
        let before = world.tree();
        world.pvisor(["resolve", "--all", "--markers"]).ok();
        before.assert_same(&world.tree(), "the host is not written");
        let marked = merged("<<<<<<< host\nperson\n=======\nagent\n>>>>>>> agent\n");
        assert_eq!(staged(world), marked);
        let row = world.changes().get("a.txt").clone();
        assert!(row["conflict"].as_str().is_some_and(|c| c.contains("markers")), "{row:#}");
        for flags in [&["commit", "--all"][..], &["commit", "--all", "--merge"]] {
            world.pvisor(flags.iter().copied()).done().exits(1).says("a.txt").says("markers");
            before.assert_same(&world.tree(), "markers never reach the host");
        }
        // Nor a part of it.
        let item = row["items"][0]["id"].as_str().expect("an id").to_owned();
        world.pvisor(["approve", &format!("a.txt#{item}")]).ok();
        world.pvisor(["commit"]).done().exits(1).says("markers");
        before.assert_same(&world.tree(), "markers never reach the host");
        // The next command finds them, and may settle them.
        let fix = r"sed -i '/^<<<<<<< /,/^=======$/d; /^>>>>>>> /d' a.txt";
        world.pvisor(["run", "--headless", "--continue", "last", "--", "bash", "-c", fix]).ok();
        assert!(world.changes().get("a.txt")["conflict"].is_null());
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.text("a.txt"), merged("agent\n"));
    }
}

each_user! {
    fn markers_are_picked_apart_by_either_side(world) {
        for (flag, line) in [("--ours", "person\n"), ("--theirs", "agent\n")] {
            both(world);
            world.pvisor(["resolve", "a.txt", "--markers"]).ok();
            world.pvisor(["resolve", "a.txt", flag]).ok();
            world.pvisor(["commit", "--all"]).ok();
            assert_eq!(world.text("a.txt"), merged(line));
        }
    }
}

each_user! {
    fn an_editor_gets_the_marked_merge_and_its_result_is_staged(world) {
        both(world);
        let before = world.tree();
        let edit = |editor: &str| {
            world.pvisor(["resolve", "a.txt", "--edit"]).env("VISUAL", editor).done()
        };
        edit("false").exits(1).says("a.txt").says("editor");
        edit("true").exits(1).says("left as it was");
        assert_eq!(world.changes().get("a.txt")["merges"], "conflicts");
        // Not done with it yet: the file is not committed.
        edit("sed -i s/^person$/somebody/").exits(0);
        world.pvisor(["commit", "--all"]).done().exits(1).says("markers");
        before.assert_same(&world.tree(), "the host is not written");
        edit("sed -i -e '/^[<=>]\\{7\\}/d' -e s/^agent$/everybody/").exits(0);
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.text("a.txt"), merged("somebody\neverybody\n"));
        assert_eq!(world.host_ok("ls -d ${TMPDIR:-/tmp}/pvisor-tui-*/conflict* 2>/dev/null | wc -l"), "0\n");
    }
}

each_user! {
    fn what_the_host_saves_while_the_editor_is_open_refuses_its_result(world) {
        both(world);
        let file = world.workspace.join("a.txt");
        let editor = format!("sed -i s/^7$/later/ {}; sed -i s/^agent$/edited/", file.display());
        world
            .pvisor(["resolve", "a.txt", "--edit"])
            .env("EDITOR", &editor)
            .done()
            .exits(1)
            .says("while it was edited");
        assert_eq!(world.changes().get("a.txt")["merges"], "conflicts");
        world.pvisor(["resolve", "a.txt", "--ours"]).ok();
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.text("a.txt"), merged("person\n").replace("7\n", "later\n"));
    }
}

/// While the agent runs, it sees what was made of both, in the file it has open as well.
fn live(world: &World, flags: &[&str]) {
    world.host_ok("seq 10 > a.txt");
    let script = format!(
        "{AGENT}; exec 8<> a.txt; echo ready; read x; cat a.txt; echo shown; \
         cmp - a.txt <&8 && echo same file; read x; sed -i s/^7$/later/ a.txt; echo done; read x"
    );
    let mut agent = Live::start(world, flags, &script);
    agent.hear("ready");
    until("the change", || world.changes().find("a.txt").map(drop));
    world.host_ok(PERSON);
    until("the conflict", || {
        (world.changes().get("a.txt")["merges"] == "conflicts").then_some(())
    });
    let before = world.tree();
    world.pvisor(["resolve", "a.txt", "--theirs"]).ok();
    before.assert_same(&world.tree(), "the host is not written");
    assert!(world.changes().get("a.txt")["conflict"].is_null());
    agent.say("look");
    for line in merged("agent\n").lines() {
        agent.hear(line);
    }
    agent.hear("shown");
    // Through a descriptor from before as well.
    agent.hear("same file");
    agent.say("go on");
    agent.hear("done");
    until("the next change", || {
        (world.changes().get("a.txt")["added"] == 3).then_some(())
    });
    world.pvisor(["commit", "--all"]).ok();
    assert_eq!(
        world.text("a.txt"),
        merged("agent\n").replace("7\n", "later\n")
    );
    agent.say("end");
    agent.finish().exits(0);
    world.changes().assert_plain(&[]);
}

each_user! {
    fn a_running_agent_sees_what_was_made_of_both(world) {
        live(world, &[]);
    }
}

each_user! {
    fn a_running_agent_sees_what_was_made_of_both_through_our_file_server(world) {
        require!(world, Capability::FuseDriver);
        live(world, &["--driver", "fuse"]);
    }
}

each_user! {
    fn bytes_are_exact_whatever_the_line_ends(world) {
        world.host_ok(r"printf '1\r\n2\r\n3\r\n' > crlf; printf '1\n2' > bare; printf '1\n2\n' > gains");
        world.run(r"printf '1\r\nagent\r\n3\r\n' > crlf; printf '1\nagent' > bare; printf '1\nagent' > gains; chmod 755 gains");
        world.host_ok(r"printf '0\r\n1\r\nperson\r\n3\r\n' > crlf; printf '0\n1\nperson' > bare; printf '0\n1\nperson\n' > gains");
        world.pvisor(["resolve", "crlf", "bare", "--theirs"]).ok();
        world.pvisor(["resolve", "gains", "--ours"]).ok();
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.text("crlf"), "0\r\n1\r\nagent\r\n3\r\n");
        assert_eq!(world.text("bare"), "0\n1\nagent");
        assert_eq!(world.text("gains"), "0\n1\nperson\n");
        assert_eq!(world.mode("gains") & 0o777, 0o755);
        world.changes().assert_plain(&[]);
    }
}

each_user! {
    fn what_cannot_be_merged_is_taken_as_a_whole(world) {
        let host = r"printf 'a\0b' > bin; echo 1 > gone; ln -s x link; echo 1 > kept; echo 1 > lost";
        let agent = r"printf 'a\0c' > bin; echo 2 > gone; ln -sfn y link; echo agent > new; echo 2 > kept; rm lost";
        let person = r"printf 'a\0d' > bin; rm gone; ln -sfn z link; echo person > new; rm kept; echo 3 > lost";
        for (flag, sides) in [("--theirs", "a c|2|y|agent|2|"), ("--ours", "a d||z|person||3")] {
            world.host_ok("rm -f bin gone link new kept lost");
            world.host_ok(host);
            world.run(agent);
            world.host_ok(person);
            let before = world.tree();
            world.pvisor(["resolve", "bin", "--markers"]).done().exits(1).says("ours or theirs");
            world.pvisor(["resolve", "--all", flag]).ok();
            before.assert_same(&world.tree(), "the host is not written");
            for change in world.changes().all() {
                assert!(change["conflict"].is_null(), "{change:#}");
            }
            world.pvisor(["commit", "--all"]).ok();
            let shown = world.host_ok(
                "f() { if test -e $1; then tr -d '\\n' < $1 | tr '\\0' ' '; fi; echo -n \"$2\"; }; \
                 f bin '|'; f gone '|'; readlink -n link; echo -n '|'; f new '|'; f kept '|'; f lost",
            );
            assert_eq!(shown, sides, "{flag}");
            world.changes().assert_plain(&[]);
        }
    }
}

each_user! {
    fn a_directory_with_the_hosts_new_files_is_not_settled_by_a_word(world) {
        world.host_ok("mkdir d; echo 1 > d/1");
        world.run("rm -r d");
        world.host_ok("echo person > d/new");
        let before = world.tree();
        for flag in ["--ours", "--theirs"] {
            world.pvisor(["resolve", "d", flag]).done().exits(1).says("revert");
        }
        before.assert_same(&world.tree(), "nothing was written");
        assert!(world.pvisor(["commit", "--all"]).done().exits(1).err().contains("d/new"));
    }
}

each_user! {
    fn a_full_disk_leaves_the_agents_file_as_it_was(world) {
        let Some(disk) = SmallDisk::mount(world, "small", Kind::Tmpfs) else { return };
        let state = disk.path.join("state");
        let call = |args: &[&str]| {
            let state_dir = ["--state-dir", state.to_str().expect("text")];
            world.pvisor([&args[..1], &state_dir[..], &args[1..]].concat())
        };
        let workspace = world.workspace.to_str().expect("text");
        world.host_ok("seq 10 > a.txt");
        call(&["run", "--headless", "--workspace", workspace, "--", "bash", "-c", AGENT]).ok();
        world.host_ok(&format!("{PERSON}; seq 200000 330000 >> a.txt"));
        let before = call(&["diff", "a.txt"]).ok().out();
        let fill = disk.path.join("fill");
        // Room for records, then for the host's version as well, but not for the merge.
        for (room, failed) in [("500", "keeping the host"), ("1400", "writing")] {
            world.host_ok(&format!(
                "f=$(df -k --output=avail {} | tail -n1); head -c $(((f - {room}) * 1024)) /dev/zero > {}",
                disk.path.display(),
                fill.display(),
            ));
            call(&["resolve", "a.txt", "--theirs"]).done().exits(1).says("o space").says(failed);
            assert_eq!(call(&["diff", "a.txt"]).ok().out(), before);
            world.host_ok(&format!("rm {}", fill.display()));
        }
        call(&["resolve", "a.txt", "--theirs"]).ok();
        call(&["commit", "--all"]).ok();
        assert!(world.text("a.txt").starts_with(&merged("agent\n")));
        assert!(world.text("a.txt").ends_with("\n330000\n"));
    }
}

/// Opens the page about a conflict and waits for a key of it to have its effect.
#[track_caller]
fn settle(terminal: &mut Terminal, key: &str, done: impl Fn() -> bool) {
    terminal.send("r");
    terminal.wait_text("Settle the conflict in a.txt");
    // A key that comes too early chooses nothing.
    let settled = terminal.attempt(PATIENCE, |t| {
        t.send(key);
        t.attempt(Duration::from_secs(5), |_| done().then_some(()))
    });
    assert!(settled.is_some(), "the screen:\n{}", terminal.text());
}

each_user! {
    fn the_screen_shows_each_hunk_and_settles_by_key(world) {
        both(world);
        let mut call = world.pvisor(["review", "last"]);
        call = call.env("VISUAL", "sed -i -e '/^[<=>]\\{7\\}/d'");
        let mut terminal = Terminal::open(call.into_command(), 40, 120);
        terminal.wait_text("a.txt");
        // Where the host's directories cannot be watched (no more watches for this user), a scan
        // finds the conflict.
        let seen = terminal.attempt(PATIENCE, |t| {
            t.send("R");
            t.attempt(Duration::from_secs(5), |t| t.text().contains("[conflicts]").then_some(()))
        });
        assert!(seen.is_some(), "the screen:\n{}", terminal.text());
        settle(&mut terminal, "b", || {
            let changes = world.changes();
            let conflict = changes.get("a.txt")["conflict"].as_str().map(str::to_owned);
            conflict.is_some_and(|c| c.contains("markers"))
        });
        terminal.wait_text("markers are left");
        // The editor has the terminal, and the screen comes back after it.
        settle(&mut terminal, "e", || world.changes().get("a.txt")["conflict"].is_null());
        terminal.wait_text("Settled in the agent's file");
        terminal.leave_screen();
        assert!(terminal.wait_exit().success());
        assert_eq!(terminal.left_behind(), Vec::<String>::new());
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.text("a.txt"), merged("person\nagent\n"));
    }
}
