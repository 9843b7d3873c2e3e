//! Writing to and reading from the host past the mounts.

use std::fs;

use super::{SECRET, attack, escape, verdict};
use crate::support::{Capability, require};

escape! {
    fn through_a_link_planted_in_the_workspace(cell) {
        let victim = cell.outside("other").join("victim");
        fs::write(&victim, "host").unwrap();
        cell.own(&victim, 0o666);
        let path = victim.display();
        cell.host_ok(&format!("ln -s {path} probe; echo control > probe; rm probe"));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "control\n");
        cell.refused(&format!("ln -s {path} link; echo agent >> link"));
        // The link may be taken over; through it nothing is written.
        cell.run_with(&[], &format!("ln -s {path} link; ln -s {} dir", victim.parent().unwrap().display())).ok();
        cell.pvisor(["commit", "--all"]).ok();
        assert!(cell.has("link") && cell.has("dir"));
        cell.run("rm dir; mkdir dir; echo agent > dir/victim; rm link; echo agent > link");
        cell.pvisor(["commit", "--all"]).ok();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "control\n");
        assert_eq!(cell.text("dir/victim"), "agent\n");
    }
}

escape! {
    fn by_dots_and_through_proc(cell) {
        let victim = cell.outside("other").join("victim");
        fs::write(&victim, "host").unwrap();
        cell.own(&victim, 0o666);
        let path = victim.display();
        let ways = [
            "../other/victim".to_owned(),
            "/proc/self/cwd/../other/victim".to_owned(),
            format!("/proc/self/root{path}"),
            format!("/proc/thread-self/root{path}"),
        ];
        for way in &ways {
            cell.host_ok(&format!("echo control > {way}"));
        }
        let held = fs::read_to_string(&victim).unwrap();
        for way in ways {
            cell.refused(&format!("echo agent > {way}"));
        }
        // PID 1 of the sandbox and everything it has: not even to be looked at.
        for way in ["root", "cwd", "exe", "fd/0", "fd/3", "fd/4", "environ", "mem", "maps", "ns/user"] {
            cell.refused(&format!("cat /proc/1/{way} > /dev/null && ls /proc/1/{way}/"));
            cell.refused(&format!("readlink /proc/1/{way}"));
        }
        cell.run("readlink /proc/self/root /proc/self/cwd > /dev/null; cat /proc/self/environ > /dev/null");
        assert_eq!(fs::read_to_string(&victim).unwrap(), held);
    }
}

escape! {
    fn by_a_hard_link_to_a_file_of_the_host(cell) {
        let secret = cell.home.join(".netrc");
        fs::write(&secret, SECRET).unwrap();
        cell.own(&secret, 0o600);
        let victim = cell.outside("other").join("victim");
        fs::write(&victim, "host").unwrap();
        cell.own(&victim, 0o666);
        let (path, net) = (victim.display(), secret.display());
        assert_eq!(cell.host_ok(&format!("ln {net} probe; cat probe; rm probe; ln {path} probe; rm probe")), SECRET);
        cell.refused(&format!("ln {path} here && echo agent > here"));
        cell.refused(&format!("ln {net} here && cat here"));
        cell.refused("ln ~/.netrc ~/here && cat ~/here");
        // Another name of a hidden file that the host had before is the file itself: that is told.
        assert_eq!(fs::read_to_string(&victim).unwrap(), "host");
    }
}

escape! {
    fn by_file_handle(cell) {
        require!(cell, Capability::Program("cc"));
        let secret = cell.outside("other").join("secret");
        fs::write(&secret, SECRET).unwrap();
        let tried = format!("{} handle {}", attack(), secret.display());
        if nix::unistd::geteuid().is_root() {
            let control = cell.privileged(&tried).exits(0);
            assert!(control.out().contains(SECRET), "control: {control}");
        }
        let done = cell.refused(&tried);
        assert_eq!(verdict(&done), "EPERM", "{done}");
    }
}

escape! {
    fn through_a_named_pipe_of_a_service(cell) {
        let dir = cell.outside("service");
        let pipe = dir.join("orders");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
        cell.own(&pipe, 0o666);
        // Both ends are held, so that nobody ever waits for the other one.
        let held = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let waiting = || {
            let mut bytes: libc::c_int = 0;
            // SAFETY: the request writes one int.
            unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&held), libc::FIONREAD, &raw mut bytes) };
            bytes
        };
        cell.host_ok(&format!("echo control > {}", pipe.display()));
        assert_eq!(waiting(), 8, "control");
        cell.refused(&format!("echo agent > {}", pipe.display()));
        cell.refused(&format!("echo agent 1<> {}", pipe.display()));
        assert_eq!(waiting(), 8);
    }
}

escape! {
    fn through_a_descriptor_left_open(cell) {
        require!(cell, Capability::Program("cc"));
        let secret = cell.root.join("secret");
        fs::write(&secret, SECRET).unwrap();
        cell.own(&secret, 0o600);
        let open = format!("exec 7< {}; ", secret.display());
        let control = cell.host_ok(&format!("{open}{} fds", attack()));
        assert!(control.contains(SECRET), "control: {control}");
        let inside = cell.host_ok(&format!(
            "{open}{} run --headless --workspace {} -- {} fds",
            crate::support::binary().display(),
            cell.workspace.display(),
            attack()
        ));
        assert_eq!(inside, "", "an open file of the caller's reached the agent");
    }
}

escape! {
    fn renames_and_links_inside_go_as_natively(cell) {
        // No escape, but the other side of the fence: what Landlock must not break.
        let script = "set -e; \
            mkdir -p a/b c; echo 1 > a/f; mv a/f c/f; ln c/f a/g; mv c a/b/; mv a/b/c/f .; \
            mkdir ~/x; echo 2 > ~/x/f; mv ~/x/f ~/f; ln ~/f ~/x/g; mv ~/x ~/y; \
            mkdir /tmp/p /tmp/q; echo 3 > /tmp/p/f; mv /tmp/p/f /tmp/q/; ln /tmp/q/f /tmp/p/g; mv /tmp/p /tmp/q/; \
            mkdir /dev/shm/p; echo 4 > /dev/shm/f; ln /dev/shm/f /dev/shm/p/; mv /dev/shm/p /dev/shm/q; \
            mkdir /run/p; echo 5 > /run/f; mv /run/f /run/p/; \
            echo 6 > /var/tmp/f; mkfifo fifo; mknod /tmp/whiteout c 0 0; \
            python3 -c 'import os; os.rename(\"f\", \"a/f\"); os.link(\"a/f\", \"h\"); os.rename(\"a\", \"z\")' 2>/dev/null \
              || { mv f a/f; ln a/f h; mv a z; }; \
            echo > /dev/null; : > /dev/full; echo 0 > /proc/self/oom_score_adj; cat z/f h ~/y/g /tmp/q/p/g";
        // The host has no writable /run for everybody: only what is staged is compared there.
        let done = cell.run(script);
        assert_eq!(done.out(), "1\n1\n2\n3\n", "{done}");
        assert_eq!(done.err(), "", "{done}");
    }
}
