//! Full disks: the program hears of it, the session's records do not suffer from it, and a commit
//! writes all or nothing.

use crate::support::small_disk::{Kind, SmallDisk};
use crate::support::{Changes, Done, Stage, each_driver_and_user};

/// The session whose records lie on the small disk.
struct Small<'a> {
    stage: &'a Stage,
    disk: &'a SmallDisk,
}

impl Small<'_> {
    fn run(&self, script: &str) -> Done {
        let flags = ["--state-dir", self.disk.arg()];
        self.stage.run_with(&flags, script).done()
    }

    fn call(&self, args: &[&str]) -> Done {
        let flags = ["--state-dir", self.disk.arg()];
        self.stage.pvisor([args, &flags].concat()).done()
    }

    #[track_caller]
    fn changes(&self) -> Changes {
        Changes::from_json(self.call(&["changes", "last", "--json"]).exits(0).json())
    }
}

each_driver_and_user! {
    /// The disk of the stage is full and becomes free again: at once, or when the scan that reads the
    /// removed file at that moment is done with it.
    fn a_stage_that_is_full_for_a_while(stage) {
        let Some(disk) = SmallDisk::mount(stage, "small", Kind::Tmpfs) else { return };
        let small = Small { stage, disk: &disk };
        let done = small.run(
            "head -c 8000000 /dev/zero >big; echo rc=$?; echo ok >f; echo rc=$?; rm big; \
             for i in $(seq 500); do echo ok 2>/dev/null >f && break; sleep 0.01; done; cat f",
        );
        assert_eq!(done.out(), "rc=1\nrc=1\nok\n", "{done}");
        let errors = done.err();
        assert_eq!(errors.matches("No space left on device").count(), 2, "{done}");
        assert_eq!(small.changes().lines(), ["added f"]);
        small.call(&["commit", "--all"]).exits(0);
        assert_eq!(stage.text("f"), "ok\n");
    }
}

each_driver_and_user! {
    /// The disk of the stage is full and stays so, records and all, beyond the command's end.
    fn a_stage_that_stays_full(stage) {
        for (name, kind) in [("memory", Kind::Tmpfs), ("image", Kind::Ext4)] {
            let Some(disk) = SmallDisk::mount(stage, name, kind) else { continue };
            let small = Small { stage, disk: &disk };
            stage.host_ok("rm -rf *; echo hi >keep; echo bye >gone");
            let before = stage.tree();
            let done = small.run(
                "rm gone; mkdir d; : >d/empty; cat /dev/zero >big; echo rc=$?; \
                 for i in 1 2 3 4 5 6 7 8 9; do cat /dev/zero >>fill$i; done; seq 100000 | tail -1; exit 3",
            );
            assert_eq!((done.out().as_str(), done.status), ("rc=1\n100000\n", Some(3)), "{done}");
            assert!(done.err().contains("No space left on device"), "{done}");
            before.assert_same(&stage.tree(), "the host after the run");

            // Reviewable: how it ended is known, everything is listed, decisions are taken and kept.
            let status = small.call(&["status", "last", "--json"]).exits(0).json();
            assert_eq!((&status["state"], &status["exit"]), (&"exited".into(), &3.into()), "{status:#}");
            let changes = small.changes();
            let lines = changes.lines();
            for line in ["added big", "added d", "added d/empty", "deleted gone"] {
                assert!(lines.contains(&line.into()), "{line} in {lines:?}");
            }
            small.call(&["reject", "big", "--reason", "far too big"]).exits(0);
            assert_eq!(small.changes().get("big")["reason"], "far too big");
            small.call(&["approve", "d", "gone"]).exits(0);
            small.call(&["commit"]).exits(0);
            assert_eq!(stage.host_ok("ls -A . d"), ".:\nd\nkeep\n\nd:\nempty\n");
            small.call(&["reset", "big"]).exits(0);
            small.call(&["approve", "big"]).exits(0);
            small.call(&["commit"]).exits(0);
            let size = changes.get("big")["size"]["after"].as_u64().unwrap();
            assert!(size > 1 << 20, "{size} bytes");
            assert_eq!(stage.host_ok("stat -c %s big; tr -d '\\0' <big | wc -c"), format!("{size}\n0\n"));
            // Undo has to put away what it takes from the host: without room for it, it does nothing.
            let committed = stage.tree();
            let undo = small.call(&["undo"]).exits(1);
            assert!(undo.err().contains("big: ") && undo.err().contains("bytes in the session's directory"), "{undo}");
            committed.assert_same(&stage.tree(), "an undo without room");
        }
    }
}

each_driver_and_user! {
    /// The host's disk has no room for what was approved: told before anything is written.
    fn a_full_target(stage) {
        let Some(disk) = SmallDisk::mount(stage, "target", Kind::Ext4) else { return };
        std::fs::write(disk.path.join("f"), "old\n").unwrap();
        stage.own(&disk.path.join("f"), 0o644);
        let args = ["run", "--headless", "--driver", stage.driver.name(), "--workspace", disk.arg()];
        let job = "echo new >f; head -c 6000000 /dev/urandom >big; mkdir d; echo 1 >d/x";
        stage.pvisor([&args[..], &["--", "bash", "-c", job]].concat()).ok();
        let before = crate::support::Tree::of(&disk.path);
        let refused = stage.pvisor(["commit", "--all"]).done().exits(1);
        assert!(refused.err().contains("big: the batch needs "), "{refused}");
        before.assert_same(&crate::support::Tree::of(&disk.path), "a refused commit");
        stage.pvisor(["reject", "big"]).ok();
        stage.pvisor(["approve", "f", "d"]).ok();
        stage.pvisor(["commit"]).ok();
        let text = |name: &str| std::fs::read_to_string(disk.path.join(name)).unwrap();
        assert_eq!((text("f").as_str(), text("d/x").as_str()), ("new\n", "1\n"));
        stage.pvisor(["undo"]).ok();
        before.assert_same(&crate::support::Tree::of(&disk.path), "undo");
    }
}

each_driver_and_user! {
    /// No room for a session's records: nothing runs, and nothing half-made is left.
    fn a_start_on_a_full_disk(stage) {
      for (name, kind) in [("memory", Kind::Tmpfs), ("image", Kind::Ext4)] {
       // Without any room at all, and with less than the records need.
       for room in [0, 300 * 1024] {
        let Some(disk) = SmallDisk::mount(stage, &format!("{name}-{room}"), kind) else { continue };
        let small = Small { stage, disk: &disk };
        assert_eq!(small.run("echo 1 >f").status, Some(0));
        let sessions = disk.entries("sessions");
        disk.fill(room);
        let done = small.run("echo ran; echo ran >proof").exits(125);
        assert_eq!(done.out(), "", "nothing ran: {done}");
        let error = done.err();
        assert!(error.contains("No space left on device"), "{done}");
        assert_eq!((error.matches("error:").count(), error.matches("hint:").count()), (1, 1), "{done}");
        assert!(error.contains("--state-dir"), "{done}");
        assert_eq!(disk.entries("sessions"), sessions, "no husk is left");
        assert_eq!(small.changes().lines(), ["added f"], "the session that was there is as it was");
        small.call(&["list"]).exits(0);
        std::fs::remove_file(disk.path.join("filler")).unwrap();
        assert_eq!(small.run("true").status, Some(0));
       }
      }
    }
}
