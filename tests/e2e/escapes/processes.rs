//! Other processes: ours, the host's, and those that would outlive the session.

use super::{attack, escape, verdict};
use crate::support::{Capability, processes, require, until};

escape! {
    fn tracing_the_supervisor(cell) {
        require!(cell, Capability::Program("cc"));
        let tool = attack();
        // Control: a debugger's calls work on the agent's own processes.
        for verb in ["trace", "peek", "fd-of"] {
            let own = cell.run_with(&[], &format!("sleep 60 & {tool} {verb} $!; kill %1")).done();
            assert_eq!(own.out().lines().next(), Some("ok"), "control: {verb}: {own}");
            let done = cell.refused(&format!("{tool} {verb} 1"));
            assert_eq!(verdict(&done), "EPERM", "{verb}: {done}");
        }
        for way in [": < /proc/1/mem", ": >> /proc/1/mem", "ls /proc/1/root/", "cat /proc/1/syscall",
            "cat /proc/1/stack", "echo 0 > /proc/1/oom_score_adj", "nsenter -t 1 -m true", "nsenter -t 1 -p true"] {
            cell.refused(way);
        }
    }
}

escape! {
    fn tracing_helper_and_server_by_the_hosts_numbers(cell) {
        require!(cell, Capability::Program("cc"));
        let workspace = cell.workspace.to_str().unwrap();
        cell.pvisor(["run", "--headless", "--detach", "--name", "victim", "--workspace", workspace, "--", "sleep", "600"]).ok();
        let ours: Vec<i32> = processes::of(cell);
        assert!(ours.len() >= 4, "server, helper, PID 1 and the command: {ours:?}");
        let server = processes::server(cell);
        // From outside the helper and PID 1 are closed to their own user as well, the server is not.
        let tool = attack();
        assert_eq!(verdict(&cell.host(&format!("{tool} peek {server}"))), "ok", "control");
        for pid in &ours {
            let done = cell.run_with(&["--name", &format!("x{pid}")], &format!("{tool} peek {pid}; {tool} trace {pid}; kill -9 {pid}")).done();
            assert!(!done.out().contains("ok"), "{pid}: {done}");
        }
        let left = processes::of(cell);
        assert!(ours.iter().all(|pid| left.contains(pid)), "{ours:?} {left:?}");
        cell.pvisor(["stop", "-s", "victim"]).ok();
    }
}

escape! {
    fn signals_stay_inside(cell) {
        let mut victim = cell.command("sleep").arg("600").spawn().unwrap();
        let control = cell.host(&format!("kill -0 {}", victim.id()));
        assert_eq!(control.status, Some(0), "control");
        // PID 1 hears nothing; everything else that is inside ends, and nothing outside does.
        let done = cell.run_with(&[], "kill -9 1; kill -TERM 1; kill -SEGV 1; echo alive").done();
        assert!(done.out().contains("alive"), "{done}");
        let done = cell.run_with(&[], "trap '' TERM; sleep 600 & kill -9 -1; echo here").done();
        assert!(!done.err().contains("server"), "{done}");
        assert_ne!(done.status, Some(125), "the session is told its end: {done}");
        assert_eq!(cell.status()["state"], "exited");
        assert!(victim.try_wait().unwrap().is_none(), "a process of the host was ended");
        victim.kill().unwrap();
        victim.wait().unwrap();
    }
}

escape! {
    fn nothing_outlives_the_session(cell) {
        require!(cell, Capability::Program("cc"));
        let mark = format!("pvtest-{}", cell.root.file_name().unwrap().to_str().unwrap());
        let alive = || {
            let found = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
                std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| {
                    line.windows(mark.len()).any(|w| w == mark.as_bytes()) && line.ends_with(b"\0")
                        && line.windows(4).any(|w| w == b"stay")
                })
            });
            found.count()
        };
        // Control: on the host the daemon goes on.
        cell.host_ok(&format!("{} daemon {mark}", attack()));
        until("the daemon", || (alive() == 1).then_some(()));
        cell.host_ok(&format!("pkill -f -- 'stay {mark}'"));
        until("its end", || (alive() == 0).then_some(()));
        cell.run(&format!(
            "{tool} daemon {mark}; setsid nohup {tool} stay {mark} > /dev/null 2>&1 & (trap '' HUP TERM INT; {tool} stay {mark} > /dev/null 2>&1 &) ; sleep 0.2",
            tool = attack()
        ));
        until("the end of everything", || (alive() == 0).then_some(()));
    }
}

escape! {
    fn shared_memory_is_the_sessions_own(cell) {
        let name = format!("pvtest-{}", cell.root.file_name().unwrap().to_str().unwrap());
        let host = format!("/dev/shm/{name}");
        cell.host_ok(&format!("echo host > {host}"));
        let done = cell.run(&format!("ls /dev/shm; head -c 1000000 /dev/zero > /dev/shm/{name}; ls /dev/shm"));
        assert_eq!(done.out(), format!("{name}\n"), "{done}");
        assert_eq!(cell.host_ok(&format!("cat {host}; rm {host}")), "host\n");
        // System V shared memory and message queues as well.
        require!(cell, Capability::Program("ipcmk"));
        let made = cell.host_ok("ipcmk -M 4096 | grep -o '[0-9]*$'");
        let id = made.trim();
        assert!(cell.host_ok("ipcs -m").contains(&format!(" {id} ")), "control");
        let seen = cell.run("ipcs -m").out();
        cell.host_ok(&format!("ipcrm -m {id}"));
        assert!(!seen.contains("0x"), "{seen}");
    }
}
