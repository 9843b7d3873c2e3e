//! `prune`: what is done with goes, what somebody may still want stays.

use crate::support::{World, each_user, until};

fn ids(world: &World) -> Vec<String> {
    let listed = world.pvisor(["list", "--json"]).ok().out();
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let listed = listed.as_array().unwrap().iter();
    listed
        .map(|s| s["session"].as_str().unwrap().to_owned())
        .collect()
}

fn session(world: &World, script: &str) -> String {
    world.run(script);
    ids(world).remove(0)
}

each_user! {
    fn what_is_done_with_goes_and_the_rest_stays(world) {
        let undecided = session(world, "echo 1 >a");
        let sessions = world.session_dir().parent().unwrap().to_owned();
        let mixed = session(world, "echo 1 >b; echo 1 >~/elsewhere");
        world.pvisor(["commit", "--all"]).ok();
        let discarded = session(world, "echo 1 >c");
        world.pvisor(["discard"]).ok();
        let committed = session(world, "echo 1 >d");
        world.pvisor(["commit", "--all"]).ok();
        let now = ["prune", "--older-than", "1ms"];
        // The servers of the last commands go by themselves.
        until("idle servers are gone", || {
            let said = world.pvisor([&now[..], &["--dry-run"]].concat()).ok();
            let all = said.out().contains(&committed) && said.err().contains("1 staged and undecided");
            all.then_some(())
        });
        let said = world.pvisor([&now[..], &["--dry-run"]].concat()).ok();
        assert!(said.out().contains(&discarded) && !said.out().contains(&undecided), "{said}");
        assert!(!said.out().contains(&mixed), "{said}");
        assert!(said.err().contains(&format!("session {mixed} stays")), "{said}");
        assert_eq!(ids(world).len(), 4, "nothing went");
        // Nobody is there to be asked.
        world.pvisor(now).done().exits(1).says("--yes");
        assert_eq!(world.pvisor(["prune", "--yes"]).ok().out(), "nothing to remove\n", "a month is not over");
        assert_eq!(ids(world).len(), 4);
        world.pvisor([&now[..], &["--yes"]].concat()).ok();
        assert_eq!(ids(world), [mixed.clone(), undecided.clone()]);
        assert_eq!(world.host_ok("cat b d"), "1\n1\n", "what was committed is the host's");
        // Named, it goes whatever is in it.
        world.pvisor(["prune", "--yes", &undecided, &mixed]).ok();
        assert_eq!(ids(world), Vec::<String>::new());
        assert_eq!(std::fs::read_dir(sessions).unwrap().count(), 0, "nothing is left of them");
        world.pvisor(["prune", "../../elsewhere", "--yes"]).done().exits(1);
    }
}

each_user! {
    fn a_running_session_stays_and_so_does_what_it_uses(world) {
        let flags = ["--mount", "~/.tool=tool:keep"];
        let mut live = crate::support::Live::start(world, &flags, "echo 1 >~/.tool/x; echo ready; read x");
        live.hear("ready");
        let id = ids(world).remove(0);
        world.pvisor(["prune", "--yes", &id]).done().exits(1).says("still running");
        world.pvisor(["prune", "--yes", "--keep", "tool"]).done().exits(1).says("keeps directories");
        live.finish();
        for never in ["../keep/tool", ".", "", "nothing"] {
            world.pvisor(["prune", "--yes", "--keep", never]).done().exits(1).says("no kept directory");
        }
        let said = world.pvisor(["prune", "--keep", "tool", "--dry-run"]).ok();
        assert!(said.out().contains("keep/tool"), "{said}");
        assert_eq!(world.run_with(&flags, "cat ~/.tool/x").ok().out(), "1\n");
        world.pvisor(["prune", "--yes", "--keep", "tool"]).ok();
        assert_eq!(world.run_with(&flags, "ls -A ~/.tool").ok().out(), "", "it begins anew");
        assert!(ids(world).contains(&id), "no session went with it");
    }
}
