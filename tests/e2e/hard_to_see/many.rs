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
