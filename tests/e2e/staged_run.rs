//! A staged run: the agent works as if on the host, and the host stays as it was.

use std::os::unix::fs::MetadataExt;

use crate::support::{World, each_user};

/// The workspace that several subjects begin with.
pub fn prepare(world: &World) {
    world.host_ok(
        "printf 'one\\ntwo\\n' > a.txt; echo bye > gone.txt; seq 40 > old.txt; \
         printf '#!/bin/sh\\necho hi\\n' > s.sh; chmod 644 s.sh",
    );
}

/// The job that goes with [`prepare`]: every kind of change once.
pub const JOB: &str = "echo hi > b.txt; echo more >> a.txt; rm gone.txt; mv old.txt new.txt; \
     chmod +x s.sh; ln -s a.txt l; pwd; id -u; echo $HOME";

each_user! {
    fn shows_each_kind_of_change_and_leaves_the_host_alone(world) {
        prepare(world);
        let before = world.tree();
        let done = world.run(JOB);
        let expected = format!(
            "{}\n{}\n{}\n",
            world.workspace.display(),
            world.user.uid,
            world.home.display()
        );
        assert_eq!(done.out(), expected, "{done}");
        before.assert_same(&world.tree(), "the host after the run");
        let changes = world.changes();
        let mut expected = [
            "modified a.txt",
            "added b.txt",
            "deleted gone.txt",
            "added l",
            "renamed old.txt -> new.txt",
            "mode s.sh",
        ];
        expected.sort_unstable();
        assert_eq!(changes.lines(), expected, "{:#}", changes.json);
    }
}

each_user! {
    fn tells_sizes_modes_types_and_counts(world) {
        prepare(world);
        world.run(JOB);
        let changes = world.changes();
        assert_eq!(changes.json["state"], "exited");
        let counts = &changes.json["counts"];
        for (kind, n) in [
            ("added", 2), ("modified", 1), ("deleted", 1), ("renamed", 1), ("mode", 1), ("type", 0),
        ] {
            assert_eq!(counts[kind], n, "count of {kind} in {counts}");
        }
        let text = changes.get("a.txt");
        assert_eq!(text["size"], serde_json::json!({"before": 8, "after": 13}));
        assert_eq!((&text["added"], &text["removed"]), (&1.into(), &0.into()));
        assert_eq!(text["type"], "file");
        assert_eq!(text["binary"], false);
        assert_eq!(text["decision"], "undecided");
        assert_eq!(text["conflict"], serde_json::Value::Null);
        let hunk = &text["items"][0];
        assert_eq!(hunk["kind"], "hunk");
        assert_eq!(hunk["new"], serde_json::json!([3, 1]));
        let mode = changes.get("s.sh");
        assert_eq!(mode["mode"]["before"], "100644");
        assert_eq!(mode["mode"]["after"], "100755");
        assert_eq!(mode["items"][0]["kind"], "mode");
        assert_eq!(changes.get("l")["type"], "symlink");
        let layers = changes.json["layers"].as_array().unwrap();
        let workspace = layers.iter().find(|l| l["name"] == "workspace").unwrap();
        assert_eq!(workspace["root"], world.workspace.to_str().unwrap());
        assert_eq!(workspace["driver"], "overlayfs");
    }
}

each_user! {
    fn records_what_is_in_force(world) {
        world.run_with(&["--name", "boundary"], "true").ok();
        let status = world.status();
        assert_eq!(status["name"], "boundary");
        assert_eq!(status["state"], "exited");
        assert_eq!(status["workspace"], world.workspace.to_str().unwrap());
        assert_eq!(status["commits"], 0);
        let boundary = &status["boundary"];
        assert_eq!(boundary["mode"], "staged");
        assert_eq!(boundary["no_capabilities"], true);
        let namespaces = boundary["namespaces"].as_array().unwrap();
        for name in ["user", "mnt", "pid", "ipc", "uts"] {
            assert!(namespaces.iter().any(|n| n == name), "no {name} in {namespaces:?}");
        }
        let dir = world.session_dir();
        let mode = dir.metadata().unwrap().mode() & 0o777;
        assert_eq!(mode, 0o700, "the session's directory is the user's alone");
        for file in ["session.json", "journal.jsonl", "output.cast"] {
            assert!(dir.join(file).exists(), "{file} in {}", dir.display());
        }
    }
}

each_user! {
    fn stages_home_as_a_layer_of_its_own(world) {
        std::fs::write(world.home.join(".profile"), "old\n").unwrap();
        world.own(&world.home.join(".profile"), 0o644);
        world.run("echo new > ~/.profile; echo x > ~/.made; echo y > here");
        let lines = world.changes().lines();
        assert_eq!(lines, ["added here", "added home:.made", "modified home:.profile"]);
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.text("here"), "y\n");
        let profile = std::fs::read_to_string(world.home.join(".profile")).unwrap();
        assert_eq!(profile, "old\n", "--all never takes the home layer");
        world.pvisor(["approve", "home:.profile"]).ok();
        world.pvisor(["commit"]).ok();
        let profile = std::fs::read_to_string(world.home.join(".profile")).unwrap();
        assert_eq!(profile, "new\n");
        assert!(!world.home.join(".made").exists());
    }
}

each_user! {
    fn goes_on_with_another_command_on_the_same_layers(world) {
        prepare(world);
        world.run("echo first > f; rm gone.txt");
        let first = world.status()["session"].clone();
        world
            .run_with(&["--continue"], "cat f; test ! -e gone.txt; echo second >> f")
            .ok();
        assert_eq!(world.status()["session"], first, "it is the same session");
        world.changes().assert_plain(&["added f", "deleted gone.txt"]);
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.text("f"), "first\nsecond\n");
    }
}

each_user! {
    fn gives_private_places_that_leave_no_trace(world) {
        let mark = world.root.file_name().unwrap().to_str().unwrap();
        let script = format!(
            "for d in /tmp /var/tmp /dev/shm; do echo x > $d/{mark} && cat $d/{mark}; done; \
             test -w /dev/null && echo y > /dev/null && ps -e -o pid= | wc -l"
        );
        let done = world.run(&script);
        let lines: Vec<String> = done.out().lines().map(|l| l.trim().to_owned()).collect();
        assert_eq!(lines[..3], ["x", "x", "x"], "{done}");
        let seen: u32 = lines[3].parse().unwrap();
        assert!(seen < 10, "{seen} processes are seen inside: {done}");
        for dir in ["/tmp", "/var/tmp", "/dev/shm"] {
            let leak = std::path::Path::new(dir).join(mark);
            assert!(!leak.exists(), "{} on the host", leak.display());
        }
    }
}
