//! Renames that do not come to their end: nothing is lost, and nothing of ours is left to be seen.

use std::fs;
use std::path::Path;

use crate::support::wait;
use crate::support::{Capability, Live, World, each_user, processes, require};

/// Files in the tree: enough that moving them takes a while.
const FILES: usize = 3000;

fn large_tree(world: &World) {
    world.host_ok(&format!(
        "mkdir -p a/s/t; for i in $(seq {FILES}); do echo $i >a/s/t/$i; done; echo f >a/f"
    ));
}

fn is_under_way(upper: &Path) -> bool {
    fs::read_dir(upper)
        .into_iter()
        .flatten()
        .flatten()
        .any(|e| {
            e.file_name()
                .as_encoded_bytes()
                .starts_with(b".pvisor-renaming-")
        })
}

/// The process that serves renames.
fn server_of_renames(world: &World) -> i32 {
    let named = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c.trim() == "pvisor-renamer")
    };
    let found = processes::of(world).into_iter().find(named);
    found.expect("a server of renames")
}

#[track_caller]
fn whole(world: &World) {
    world.changes().assert_plain(&[]);
    let left = world.session_dir().join("layers/workspace/upper");
    assert!(!is_under_way(&left), "a temporary directory is left");
    let script = "ls; find a -type f | wc -l; \
                  for i in a/s/t/*; do test \"$(cat $i)\" = ${i##*/} || echo wrong $i; done";
    let seen = world.run_with(&["--continue"], script).ok().out();
    assert_eq!(seen, format!("a\n{}\n", FILES + 1));
}

each_user! {
    fn a_command_that_is_killed_meanwhile_leaves_the_old_directory(world) {
        require!(world, Capability::Program("python3"));
        large_tree(world);
        let done = world.run(
            "python3 -c \"import os; os.rename('a', 'b')\" & \
             until ls -d .pvisor-renaming-* >/dev/null 2>&1; do :; done; \
             kill -9 $!; wait $!; ls -A; find a -type f | wc -l",
        );
        let out = done.out();
        // It may have come to its end just before.
        if !out.starts_with("b\n") {
            assert!(out.ends_with(&format!("{}\n", FILES + 1)) || out.contains("renaming"), "{out}");
            whole(world);
        }
    }
}

each_user! {
    fn the_end_of_the_session_meanwhile_leaves_the_old_directory(world) {
        require!(world, Capability::Program("python3"));
        large_tree(world);
        let agent = Live::start(world, &[], "exec python3 -c \"import os; os.rename('a', 'b')\"");
        let upper = wait::until("the session", || {
            world.pvisor(["status", "last", "--json"]).done().status.eq(&Some(0)).then(|| world.session_dir())
        }).join("layers/workspace/upper");
        let caught = wait::attempt(std::time::Duration::from_secs(5), || is_under_way(&upper).then_some(()));
        processes::kill_hard(processes::server(world));
        drop(agent);
        processes::await_none(world);
        if caught.is_some() && world.changes().plain().is_empty() {
            whole(world);
        }
    }
}

each_user! {
    fn without_its_server_the_command_ends_and_the_old_directory_stays(world) {
        require!(world, Capability::Program("python3"));
        require!(world, Capability::Root);
        large_tree(world);
        let mut agent = Live::start(
            world,
            &[],
            "echo ready; read x; python3 -c \"import os; os.rename('a', 'b')\" && echo renamed",
        );
        agent.hear("ready");
        let upper = world.session_dir().join("layers/workspace/upper");
        let server = server_of_renames(world);
        agent.say("go");
        let under_way = wait::attempt(wait::PATIENCE, || is_under_way(&upper).then_some(()));
        assert!(under_way.is_some(), "it was never under way");
        processes::kill_hard(server);
        let done = agent.finish();
        assert_ne!(done.status, Some(0), "{done}");
        assert!(!done.out().contains("renamed"), "{done}");
        whole(world);
    }
}
