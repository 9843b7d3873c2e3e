//! Changes by the ten thousand.

use std::time::{Duration, Instant};

use crate::support::each_driver_and_user;

/// A script that makes `files` files in directories of a hundred.
fn make(files: u32) -> String {
    format!(
        "mkdir n; cd n; python3 -c \"
import os
for i in range({files}):
    if i % 100 == 0: os.mkdir('d%d' % (i // 100))
    open('d%d/f%d' % (i // 100, i), 'w').write('file %d\\n' % i)\""
    )
}

each_driver_and_user! {
    /// Each of them is listed, can be left out, is committed and taken back; twice as many take
    /// twice as long, not four times.
    fn each_of_many_is_there(stage) {
        const FILES: u32 = 2_000;
        let before = stage.tree();
        stage.run(&make(FILES));
        let begin = Instant::now();
        let changes = stage.changes();
        assert_eq!(changes.all().count() as u32, FILES + FILES / 100 + 1);
        assert_eq!(changes.json["counts"]["added"], FILES + FILES / 100 + 1);
        stage.pvisor(["reject", "n/d7/f777", "--reason", "not this one"]).ok();
        stage.pvisor(["commit", "--all"]).ok();
        assert_eq!(stage.host_ok("find n -type f | wc -l; cat n/d19/f1999"), "1999\nfile 1999\n");
        assert!(!stage.has("n/d7/f777"));
        let rest = stage.changes();
        assert_eq!(rest.lines(), ["added n/d7/f777"], "what was rejected is still there");
        stage.pvisor(["undo"]).ok();
        before.assert_same(&stage.tree(), "undo");
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(30), "{took:?}");
    }
}

each_driver_and_user! {
    /// Every file of a large set, half of them the host's before, is shown and written with what the
    /// agent wrote; what undo brings back is what was there.
    fn each_of_many_holds_what_it_should(stage) {
        const FILES: u32 = 3_000;
        // Prints one line for all contents and times together.
        let sum = "find . -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum | md5sum; \
                   find . -type f -printf '%p %m %T@\\n' | LC_ALL=C sort | md5sum";
        let write = |files: u32, word: &str| {
            format!(
                "python3 -c \"
import os
for i in range({files}):
    os.makedirs('d%d' % (i // 100), exist_ok=True)
    open('d%d/f%d' % (i // 100, i), 'w').write('{word} %d\\n' % i * 40)\""
            )
        };
        stage.host_ok(&write(FILES / 2, "before"));
        let before = stage.tree();
        let agents = stage.run(&format!("{}; {sum}", write(FILES, "after"))).out();
        let changes = stage.changes();
        assert_eq!(changes.json["counts"]["modified"], FILES / 2);
        assert_eq!(changes.json["counts"]["added"], FILES / 2 + FILES / 2 / 100);

        let patch = stage.pvisor(["diff"]).ok().out();
        for (start, files) in [("diff --git ", FILES), ("+after ", FILES * 40), ("-before ", FILES / 2 * 40)] {
            let lines = patch.lines().filter(|line| line.starts_with(start)).count();
            assert_eq!(lines as u32, files, "{start}");
        }

        stage.pvisor(["commit", "--all"]).ok();
        assert_eq!(stage.host_ok(sum), agents, "what the agent saw lies on the disk");
        assert_eq!(stage.changes().all().count(), 0, "nothing is left");
        // A commit that was not read again is still compared with what the host does later.
        stage.host_ok("echo mine >d7/f707");
        stage.pvisor(["undo"]).done().exits(1).says("d7/f707");
        let was = "after 707\\n".repeat(40);
        stage.host_ok(&format!("printf '{was}' >d7/f707"));
        stage.pvisor(["undo"]).ok();
        before.timeless().assert_same(&stage.tree().timeless(), "undo");
    }
}
