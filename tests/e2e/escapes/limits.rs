//! Upper bounds: what is claimed holds, and what does not hold is not claimed.

use super::{attack, escape};
use crate::support::{Capability, require};

/// The boundary's word on one limit.
fn limit(cell: &super::Cell, name: &str) -> serde_json::Value {
    let status = cell.status();
    let limits = status["boundary"]["limits"].as_array().unwrap().clone();
    limits
        .into_iter()
        .find(|l| l["name"] == name)
        .unwrap_or_default()
}

fn configure(cell: &super::Cell, text: &str) {
    let dir = cell.home.join(".config/pvisor-tui");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("config.toml"), text).unwrap();
    for path in [cell.home.join(".config"), dir.clone()] {
        cell.own(&path, 0o755);
    }
    cell.own(&dir.join("config.toml"), 0o644);
}

escape! {
    fn processes_files_and_descriptors(cell) {
        require!(cell, Capability::Program("cc"));
        let forks = format!("{} forks 200", attack());
        assert_eq!(cell.run(&forks).out(), "200 ok\n", "control: the built-in limit is far above");
        configure(cell, "[limits]\nprocesses = 40\nfile_size = \"1M\"\nopen_files = 64\n");
        let done = cell.run(&forks);
        let held = limit(cell, "processes");
        if held["by"].is_null() {
            assert!(cell.user.is_root(), "{held}");
            assert_eq!(done.out(), "200 ok\n", "not enforced, and said so: {held}");
            assert!(held["reason"].as_str().unwrap().contains("root"), "{held}");
        } else {
            // Each session counts for itself; what starts a command may still hold some of the 40.
            for done in [done, cell.run(&forks)] {
                let made = done.out().strip_suffix(" EAGAIN\n").map(str::to_owned);
                let made: u32 = made.and_then(|n| n.parse().ok()).unwrap_or(0);
                assert!((30..40).contains(&made), "{done}");
            }
        }
        let big = cell.run_with(&[], "head -c 2000000 /dev/zero > big; stat -c %s big").done();
        assert_eq!(big.out(), "1048576\n", "{big}");
        let many = cell.run_with(&[], "for i in $(seq 3 200); do eval \"exec $i< /dev/null\" || exit 1; done").done();
        assert_ne!(many.status, Some(0), "{many}");
        assert_eq!(limit(cell, "file size")["by"], "resource limit");
        assert_eq!(limit(cell, "open files")["value"], 64);
    }
}

escape! {
    fn memory_and_processors_are_not_claimed_without_a_cgroup(cell) {
        let done = cell.run_with(&["--memory", "64M", "--cpus", "0.5"], "head -c 200M /dev/zero | tail | wc -c").done();
        let (memory, cpus) = (limit(cell, "memory"), limit(cell, "cpus"));
        assert_eq!(memory["value"], 64 << 20);
        assert_eq!(cpus["value"], 500);
        if memory["by"].is_null() {
            assert!(done.err().contains("warning: limit memory: 64M, NOT enforced"), "{done}");
            assert_eq!(done.out(), "209715200\n", "{done}");
            let shown = cell.pvisor(["status"]).ok().out();
            assert!(shown.contains("limit memory") && shown.contains("NOT enforced"), "{shown}");
            assert!(shown.contains("limit cpus"), "{shown}");
        } else {
            assert_eq!(memory["by"], "cgroup");
            assert_ne!(done.out(), "209715200\n", "{done}");
        }
        let plain = cell.run("true");
        assert_eq!(plain.err(), "", "nothing asked for, nothing said");
    }
}

escape! {
    fn the_stage(cell) {
        let script = "echo first > small; i=0; \
            while head -c 1000000 /dev/urandom > big-$i; do i=$((i+1)); sleep 0.02; done; exit 28";
        let done = cell.run_with(&["--stage-max", "8M"], script).done();
        if done.status == Some(28) {
            // A file server says it to the program itself.
            assert!(done.err().contains("No space left"), "{done}");
        } else {
            assert_eq!(done.status, Some(124), "{done}");
            assert!(done.err().contains("staged more than it may"), "{done}");
        }
        assert_eq!(cell.status()["exit"].as_i64(), done.status.map(i64::from));
        let changes = cell.changes();
        assert!(changes.find("small").is_some() && changes.find("big-0").is_some());
        assert_eq!(cell.status()["state"], "exited");
        cell.pvisor(["approve", "small"]).ok();
        cell.pvisor(["commit"]).ok();
        assert_eq!(cell.text("small"), "first\n");
        // Control: below the limit nothing happens, holes do not count.
        cell.run_with(&["--stage-max", "8M"], "head -c 2000000 /dev/urandom > some; truncate -s 1G hole; sleep 0.7").ok();
    }
}

escape! {
    fn time_by_the_settings(cell) {
        configure(cell, "[limits]\ntimeout = \"300ms\"\n");
        cell.run_with(&[], "sleep 600").done().exits(124);
        cell.run_with(&["--timeout", "60s"], "sleep 0.5").ok();
    }
}
