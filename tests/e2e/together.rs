//! Two terminals at one session: one word on one change, one pair of hands at the agent.

use std::time::Duration;

use crate::support::wait::PATIENCE;
use crate::support::{Terminal, World, each_user, until};

/// Leaves the agent's pane.
const LEAVE: &str = "\x1d";

fn screen(world: &World, args: &[&str], rows: u16, cols: u16) -> Terminal {
    Terminal::open(world.pvisor(args).into_command(), rows, cols)
}

fn decision(world: &World) -> String {
    world.changes().get("f")["decision"]
        .as_str()
        .unwrap()
        .to_owned()
}

each_user! {
    fn of_two_who_decide_at_once_one_is_told_by_whom(world) {
        world.host_ok("echo one > f");
        world.run("echo two > f");
        let mut ann = screen(world, &["review", "last"], 40, 140);
        let mut bob = screen(world, &["review", "last"], 40, 140);
        for terminal in [&mut ann, &mut bob] {
            terminal.wait_text("+ two");
            terminal.wait_text("1 undecided");
        }
        let name = &world.user.name;
        let mut told = 0;
        // A screen that is slow enough to see the other's word first may overrule it: then again.
        for round in 0..20 {
            let (first, second) = if round % 2 == 0 {
                (("\r", &mut ann), ("x\r", &mut bob))
            } else {
                (("x\r", &mut bob), ("\r", &mut ann))
            };
            first.1.send(first.0);
            second.1.send(second.0);
            let by = [
                format!("f was approved by {name} meanwhile"),
                format!("f was rejected by {name} meanwhile"),
            ];
            let loser = until("both words", || {
                for terminal in [&mut ann, &mut bob] {
                    let moment = Duration::from_millis(100);
                    let found = terminal.attempt(moment, |t| {
                        by.iter().position(|by| t.text().contains(by))
                    });
                    if found.is_some() {
                        return Some(found);
                    }
                }
                // Both went through, one after the other.
                (decision(world) != "undecided" && round < 19).then_some(None)
            });
            if let Some(word) = loser {
                told += 1;
                // The winner's word is the one that stands.
                let stands = ["approved", "rejected"][word];
                assert_eq!(decision(world), stands);
                break;
            }
            world.pvisor(["reset", "last", "f"]).ok();
            for terminal in [&mut ann, &mut bob] {
                terminal.wait_text("1 undecided");
            }
        }
        assert_eq!(told, 1, "nobody was told:\n{}\n{}", ann.text(), bob.text());
        for mut terminal in [ann, bob] {
            terminal.leave_screen();
            assert!(terminal.wait_exit().success());
        }
    }
}

each_user! {
    fn a_guest_looks_on_and_the_terminal_stays_the_owners(world) {
        let workspace = world.workspace.to_str().unwrap();
        let script = "stty -echo; echo x > f; echo ready; while read -r line; do echo \"$(stty size) <$line>\"; \
                      echo \"$line\" >> heard; done";
        let run = ["run", "--workspace", workspace, "--", "bash", "-c", script];
        let mut owner = screen(world, &run, 60, 200);
        owner.wait_text("ready");
        until("its file", || world.changes().find("f").map(drop));
        // The size of the pane, as the agent is told it.
        let size = |owner: &mut Terminal, word: &str| -> String {
            owner.send(&format!("{word}\r"));
            owner.wait_text(&format!("<{word}>"));
            let text = owner.text();
            let at = text.find(&format!(" <{word}>")).unwrap();
            let words: Vec<&str> = text[..at].split_whitespace().rev().take(2).collect();
            format!("{} {}", words[1], words[0])
        };
        let mut before = String::new();
        // The pane's size is told once it has settled.
        let settled = owner.attempt(PATIENCE, |owner| {
            let now = size(owner, &format!("w{}", before.len()));
            let same = now == before;
            before = now;
            same.then_some(())
        });
        assert!(settled.is_some());
        let columns: u16 = before.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(columns > 60, "{before}");

        let mut guest = screen(world, &["attach", "last", "--role", "observer"], 20, 60);
        guest.wait_text("running");
        // Every key of a keyboard: none of them reaches the agent or decides anything.
        let all: String = (0x20..0x7fu8).map(char::from).collect();
        guest.send(&all);
        guest.send("guest\r");
        guest.wait_text("Only the driver types here");
        guest.send(LEAVE);
        guest.send("1");
        for key in (0x21..0x7fu8).map(char::from).filter(|key| !"qT:/".contains(*key)) {
            guest.send(&format!("{key}\x1b"));
        }
        // Where those keys have led to depends on which of them came together with an escape: from
        // wherever it is back to the list, and a decision there.
        let mut turn = 0;
        let told = guest.attempt(PATIENCE, |guest| {
            if guest.text().contains("You are looking only") {
                return Some(());
            }
            turn += 1;
            // An escape that nothing follows at once is one.
            guest.send(if turn % 2 == 0 { "\x1b" } else { "\x1d1 " });
            None
        });
        assert!(told.is_some(), "{}", guest.text());
        guest.resize(20, 50);
        assert_eq!(size(&mut owner, "after"), before, "the guest's size is the guest's");
        assert_eq!(world.changes().get("f")["decision"], "undecided");
        assert!(!owner.text().contains("guest"), "{}", owner.text());
        owner.send("end\r\x04");
        until("the agent's end", || (world.status()["state"] != "running").then_some(()));
        world.pvisor(["commit", "--all"]).ok();
        let heard = world.text("heard");
        assert!(heard.ends_with("after\nend\n") && !heard.contains("guest"), "{heard}");
        drop(guest);
        drop(owner);
    }
}
