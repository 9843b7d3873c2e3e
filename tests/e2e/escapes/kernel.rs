//! System calls that reach past what mounts and namespaces hold.

use super::{Cell, SECRET, attack, escape, verdict};
use crate::support::{Capability, require};

/// What an attempt answers outside and inside, both as the cell's user.
fn compare(cell: &Cell, words: &str) -> (String, String) {
    let tried = format!("{} {words}", attack());
    let outside = verdict(&cell.host(&tried));
    let inside = verdict(&cell.run_with(&[], &tried).done());
    (outside, inside)
}

#[track_caller]
fn answers(cell: &Cell, words: &str, wanted: &str) {
    let (outside, inside) = compare(cell, words);
    assert_ne!(outside, wanted, "control: {words}");
    assert_eq!(inside, wanted, "{words}");
}

escape! {
    fn keyrings(cell) {
        require!(cell, Capability::Program("cc"));
        let name = format!("pvtest-{}", cell.root.file_name().unwrap().to_str().unwrap());
        let kept = cell.host(&format!("{} keep {name} {SECRET}", attack()));
        assert_eq!(verdict(&kept), "ok", "control: {kept}");
        let control = cell.host(&format!("{} key {name}", attack()));
        assert!(control.out().contains(SECRET), "control: {control}");
        let done = cell.refused(&format!("{} key {name}", attack()));
        assert_eq!(verdict(&done), "EPERM", "{done}");
        let done = cell.refused(&format!("{} keep {name} mine", attack()));
        assert_eq!(verdict(&done), "EPERM", "{done}");
        assert!(cell.host(&format!("{} key {name}", attack())).out().contains(SECRET));
        cell.host(&format!("{} forget {name}", attack()));
    }
}

escape! {
    fn io_uring_bpf_perf_and_userfaultfd(cell) {
        require!(cell, Capability::Program("cc"));
        // A null structure: allowed, the kernel finds fault with the argument instead.
        answers(cell, "call 425 1 0", "EPERM");
        // USER_MODE_ONLY
        answers(cell, "call 323 1", "EPERM");
        answers(cell, "call 298 0 0 -1 -1 0", "EPERM");
        if cell.user.is_root() {
            answers(cell, "call 321 0 0 0", "EPERM");
        }
    }
}

escape! {
    fn a_user_namespace_of_its_own(cell) {
        require!(cell, Capability::Program("cc"));
        answers(cell, "call 272 0x10000000", "EPERM");
        // clone(CLONE_NEWUSER | SIGCHLD), and with bits set that the kernel does not look at.
        answers(cell, "call 56 0x10000011 0", "EPERM");
        // clone3 answers as a kernel that does not know it.
        answers(cell, "call 435 0 0", "ENOSYS");
        let mounting = "unshare --user --map-root-user --mount mount -t tmpfs x .";
        cell.host_ok(mounting);
        cell.refused(mounting);
        cell.host_ok("unshare --user --map-root-user --pid --fork --mount-proc true");
        cell.refused("unshare --user --map-root-user --pid --fork --mount-proc true");
    }
}

escape! {
    fn another_entry_into_the_kernel(cell) {
        require!(cell, Capability::Program("cc"));
        if !cfg!(target_arch = "x86_64") {
            return;
        }
        // keyctl(GET_KEYRING_ID, session, create) by the 32-bit entry.
        answers(cell, "int80 288 0 -3 1", "EPERM");
        // unshare(CLONE_NEWUSER)
        answers(cell, "int80 310 0x10000000 0 0", "EPERM");
        // socket(AF_VSOCK), directly and through the call that hides its arguments in memory.
        answers(cell, "int80 359 40 1 0", "EAFNOSUPPORT");
        answers(cell, "int80 102 1 0 0", "ENOSYS");
        // getpid stays: 32-bit programs run.
        assert_eq!(compare(cell, "int80 20 0 0 0"), ("ok".into(), "ok".into()));
        // x32 numbers: unknown inside, whatever the kernel outside says.
        let (_, inside) = compare(cell, "call 0x40000027");
        assert_eq!(inside, "ENOSYS");
        let (_, inside) = compare(cell, "call 0x400000fa 0 -3 1");
        assert_eq!(inside, "ENOSYS");
    }
}

escape! {
    fn sockets_past_the_network(cell) {
        require!(cell, Capability::Program("cc"));
        // AF_VSOCK; AF_ALG and AF_BLUETOOTH, which not every machine has.
        answers(cell, "call 41 40 1 0", "EAFNOSUPPORT");
        for words in ["call 41 38 5 0", "call 41 31 3 1"] {
            assert_eq!(compare(cell, words).1, "EAFNOSUPPORT", "{words}");
        }
        // Those that stay.
        for words in ["call 41 1 1 0", "call 41 2 1 0", "call 41 10 2 0", "call 41 16 3 0"] {
            assert_eq!(compare(cell, words).1, "ok", "{words}");
        }
        // Raw packets: the kernel's own word.
        let (_, inside) = compare(cell, "call 41 17 3 0");
        assert_eq!(inside, "EPERM");
    }
}

escape! {
    fn the_clock_modules_reboot_and_swap(cell) {
        require!(cell, Capability::Program("cc"));
        // Null arguments: nothing is done even where it is allowed.
        for words in [
            "call 227 0 0",          // clock_settime
            "call 313 -1 0 0",       // finit_module
            "call 176 0 0",          // delete_module
            "call 246 0 0 0 0xffff", // kexec_load
            "call 169 0 0 0",        // reboot without its magic numbers
            "call 167 0 0",          // swapon
            "call 163 1",            // acct
        ] {
            let inside = compare(cell, words).1;
            assert_eq!(inside, "EPERM", "{words}");
            if nix::unistd::geteuid().is_root() {
                let outside = cell.privileged(&format!("{} {words}", attack()));
                assert_ne!(verdict(&outside), "EPERM", "control: {words}");
            }
        }
        cell.refused("date -s '2001-01-01' 2>&1");
        let year = cell.host_ok("date +%Y");
        assert_ne!(year, "2001\n");
    }
}

escape! {
    fn typing_into_the_terminal(cell) {
        require!(cell, Capability::Program("cc"));
        require!(cell, Capability::Program("script"));
        // On a terminal of its own outside, whatever the kernel's setting answers there.
        let outside = cell.host_ok(&format!("script -qec '{} type x' /dev/null < /dev/null || true", attack()));
        assert!(!outside.contains("EPERM"), "control: {outside}");
        for more in ["", " high"] {
            let done = cell.run_with(&["--pty"], &format!("{} type x{more}", attack())).done();
            assert!(done.out().contains("EPERM"), "{done}");
        }
    }
}

escape! {
    fn settings_of_the_kernel(cell) {
        let files = [
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/modprobe",
            "/proc/sys/kernel/hostname",
            "/proc/sys/vm/overcommit_memory",
            "/proc/sys/user/max_user_namespaces",
            "/proc/sysrq-trigger",
            "/sys/kernel/uevent_helper",
            "/sys/kernel/mm/ksm/run",
            "/sys/fs/cgroup/release_agent",
            "/sys/fs/cgroup/cgroup.procs",
            "/sys/fs/cgroup/unified/cgroup.procs",
            "/sys/fs/cgroup/memory/release_agent",
        ];
        let mut controls = 0;
        let held = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
        for file in files.into_iter().filter(|f| std::path::Path::new(f).exists()) {
            // Opened only: nothing is written outside.
            if nix::unistd::geteuid().is_root() && cell.privileged(&format!("exec 9>> {file}")).status == Some(0) {
                controls += 1;
            }
            cell.refused(&format!("echo '|/bin/false' > {file}"));
            cell.refused(&format!("exec 9>> {file}"));
        }
        assert!(controls > 3 || !nix::unistd::geteuid().is_root(), "control: {controls}");
        assert_eq!(std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap(), held);
        cell.refused("mkdir /sys/fs/cgroup/pvtest || mkdir /sys/fs/cgroup/memory/pvtest");
    }
}

escape! {
    fn devices(cell) {
        for script in [
            "mknod disk b 8 0", "mknod /tmp/disk b 7 0", "mknod /tmp/mem c 1 1", "mknod /dev/shm/kmsg c 1 11",
            "losetup -f --show /etc/passwd", "cat /dev/kmsg", "cat /dev/mem", "cat /dev/loop-control",
            "ls /dev/kvm /dev/fuse /dev/vsock", "exec 9<> /dev/net/tun",
        ] {
            cell.refused(script);
        }
        if nix::unistd::geteuid().is_root() {
            let file = cell.root.join("disk");
            cell.privileged(&format!("mknod {file} b 7 0; rm {file}", file = file.display())).exits(0);
        }
        let listed = cell.run("ls /dev | tr '\\n' ' '").out();
        assert_eq!(listed, "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero ");
    }
}
