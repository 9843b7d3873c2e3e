//! Files that are huge on paper: holes stay holes everywhere, and cost no time.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::each_driver_and_user;

/// A gigabyte, most of it never written.
const APPARENT: u64 = 1 << 30;
/// More than what is written by far, less than any expanded part of it.
const ALLOCATED_AT_MOST: u64 = 3 << 20;

/// Bytes allocated below a directory, or for a file.
fn allocated(path: &Path) -> u64 {
    let meta = path.symlink_metadata().unwrap();
    let below: u64 = if meta.is_dir() {
        std::fs::read_dir(path)
            .unwrap()
            .flatten()
            .map(|e| allocated(&e.path()))
            .sum()
    } else {
        0
    };
    below + meta.blocks() * 512
}

each_driver_and_user! {
    fn holes_stay_holes(stage) {
        let put = |name: &str, text: &str, at: u64| {
            format!("printf {text} | dd of={name} bs=1 seek={at} conv=notrunc 2>/dev/null")
        };
        stage.host_ok(&format!("truncate -s 1G s; {}; truncate -s 1G gone", put("s", "abcd", 500_000_000)));
        let begin = Instant::now();
        stage.run(&format!(
            "{}; truncate -s 1G new; {}; rm gone; truncate -s 1T vast; {}",
            put("s", "x", 4096),
            put("new", "y", 700_000_000),
            put("vast", "z", 1 << 39),
        ));
        let changes = stage.changes();
        assert_eq!(changes.lines(), ["added new", "added vast", "deleted gone", "modified s"]);
        let size = |path: &str| changes.get(path)["size"].clone();
        assert_eq!(size("s"), serde_json::json!({"before": APPARENT, "after": APPARENT}));
        assert_eq!(size("vast")["after"], 1_u64 << 40);
        // What a patch cannot hold is named, and the exit status tells.
        let patch = stage.pvisor(["diff", "last"]).done().exits(2);
        for name in ["gone", "new", "s", "vast"] {
            assert!(patch.err().contains(&format!("left out of {name}: ")), "{patch}");
        }
        let session = stage.session_dir();
        let check = |when: &str| {
            let staged = allocated(&session);
            assert!(staged < 3 * ALLOCATED_AT_MOST, "{when}: {staged} bytes in the session");
            for name in ["s", "new", "gone", "vast"].iter().filter(|n| stage.has(n)) {
                let bytes = allocated(&stage.workspace.join(name));
                assert!(bytes < ALLOCATED_AT_MOST, "{when}: {name} has {bytes} bytes");
            }
        };
        check("staged");
        stage.pvisor(["commit", "--all"]).ok();
        check("committed");
        let read = |name: &str, at: u64, count: u64| {
            stage.host_ok(&format!("dd if={name} bs=1 skip={at} count={count} 2>/dev/null | tr '\\0' 0"))
        };
        assert_eq!((read("s", 4095, 3), read("s", 499_999_999, 6)), ("0x0".into(), "0abcd0".into()));
        assert_eq!((read("new", 700_000_000, 2), read("vast", (1 << 39) - 1, 3)), ("y0".into(), "0z0".into()));
        stage.pvisor(["undo"]).ok();
        check("undone");
        assert_eq!((read("s", 4096, 1), read("s", 500_000_000, 4)), ("0".into(), "abcd".into()));
        assert!(stage.has("gone") && !stage.has("new") && !stage.has("vast"));
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(20), "{took:?} for what holds a few bytes");
    }
}

each_driver_and_user! {
    /// A hole and written zeros are the same bytes, whatever else they are.
    fn holes_and_zeros_are_the_same_bytes(stage) {
        stage.host_ok("truncate -s 4M h; head -c 4194304 /dev/zero >z; touch -d @1 h z");
        stage.run("head -c 4194304 /dev/zero >h; fallocate -d z; touch -d @1 h z");
        assert_eq!(stage.changes().lines(), Vec::<String>::new());
    }
}
