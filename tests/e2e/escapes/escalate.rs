//! Getting more rights than the agent began with.

use std::fs;

use super::escape;
use crate::support::{Capability, require};

escape! {
    fn by_file_capabilities(cell) {
        require!(cell, Capability::Root);
        require!(cell, Capability::Program("setcap"));
        let program = cell.outside("caps").join("cat");
        fs::copy("/bin/cat", &program).unwrap();
        let path = program.display();
        cell.privileged(&format!("chmod 755 {path}; setcap cap_net_raw,cap_dac_override+ep {path}")).exits(0);
        let status = format!("{path} /proc/self/status | grep ^CapEff");
        assert!(!cell.host_ok(&status).contains("0000000000000000"), "control");
        let inside = cell.run(&status).out();
        assert_eq!(inside, "CapEff:\t0000000000000000\n");
        // What it sets itself gives nothing either, inside or after a commit.
        cell.run_with(&[], "cp /bin/cat mine; setcap cap_net_raw+ep mine; ./mine /proc/self/status | grep ^CapEff").done();
        cell.pvisor(["commit", "--all"]).ok();
        assert_eq!(cell.host_ok("getcap mine"), "", "no capability reaches the host");
    }
}

escape! {
    fn by_setuid_programs_of_the_system(cell) {
        // Whatever they answer: nobody becomes anybody else.
        let before = cell.run("id -u; grep ^NoNewPrivs /proc/self/status").out();
        assert_eq!(before, format!("{}\nNoNewPrivs:\t1\n", cell.user.uid));
        for program in ["su -c id", "sudo -n id", "newuidmap 1 0 1000 1", "mount -t tmpfs x /tmp", "fusermount3 -u /tmp", "pkexec id", "chsh -s /bin/sh"] {
            let done = cell.run_with(&[], &format!("{program} < /dev/null 2>&1")).done();
            assert!(!done.out().contains("uid=0(root) gid=0(root) groups=0(root)") || cell.user.is_root(), "{done}");
        }
        if cell.user.is_root() {
            cell.refused("su -s /bin/sh nobody -c id");
            cell.host_ok("su -s /bin/sh nobody -c id");
        } else {
            let root = cell.run("find /usr/bin -perm -4000 -user root 2>/dev/null | head -1").out();
            if !root.trim().is_empty() {
                let effective = cell.run(&format!("sh -c 'stat -c %a {}' >/dev/null; awk '/^Uid/ {{print $3}}' /proc/self/status", root.trim()));
                assert_eq!(effective.out(), format!("{}\n", cell.user.uid));
            }
        }
    }
}

escape! {
    fn by_giving_files_away(cell) {
        cell.refused("echo x > f; chown nobody f");
        cell.refused("echo x > f; chown 0:4711 f && chgrp 4711 f");
        if nix::unistd::geteuid().is_root() {
            let file = cell.root.join("own");
            cell.privileged(&format!("touch {f}; chown nobody {f}; rm {f}", f = file.display())).exits(0);
        }
        cell.run("cp /bin/true s; chmod 6755 s");
        cell.pvisor(["commit", "--all"]).ok();
        let owner = fs::metadata(cell.workspace.join("s")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), cell.user.uid, "its owner is its maker");
    }
}
