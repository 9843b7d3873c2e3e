//! Which system calls the command is refused, with what answer and why. Owns the one table that the
//! filter is made of and that the documentation prints; nothing else knows a number.
//!
//! The answers are those that programs meet elsewhere too: what a missing right answers (`EPERM`),
//! an older kernel (`ENOSYS`), or a kernel built without a family of sockets (`EAFNOSUPPORT`).

use nix::errno::Errno;

/// A system call by its numbers.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// Its name.
    pub name: &'static str,
    /// Number for this machine's own programs; `None` where only 32-bit programs have it.
    pub native: Option<i64>,
    /// Number for i386 programs on x86_64.
    pub compat: Option<i64>,
}

/// Which calls of it are meant. Arguments are compared as the kernel reads them: their low 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// All.
    Always,
    /// Argument `index` is this.
    Is {
        /// From 0.
        index: u8,
        /// Its low 32 bits.
        value: u32,
    },
    /// Argument `index` has all of these bits.
    Has {
        /// From 0.
        index: u8,
        /// Among its low 32 bits.
        bits: u32,
    },
    /// Argument `index` is none of these.
    IsNone {
        /// From 0.
        index: u8,
        /// Its low 32 bits.
        values: &'static [u32],
    },
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Calls that are treated alike.
    pub calls: &'static [Call],
    /// Which of them.
    pub when: When,
    /// [`Rule::when`] in words; empty for all.
    pub words: &'static str,
    /// What they answer.
    pub answer: Errno,
    /// Whether nested sandboxes need it: then the row is left out under `--allow-nested`.
    pub nested: bool,
    /// Why, one sentence.
    pub reason: &'static str,
}

macro_rules! call {
    ($name:ident, $constant:ident, $compat:expr) => {
        Call {
            name: stringify!($name),
            native: Some(libc::$constant),
            compat: $compat,
        }
    };
}

/// Of the calls added since Linux 5.1 every architecture has the same numbers.
const fn young(name: &'static str, number: i64) -> Call {
    Call {
        name,
        native: Some(number),
        compat: Some(number),
    }
}

const fn only_compat(name: &'static str, number: i64) -> Call {
    Call {
        name,
        native: None,
        compat: Some(number),
    }
}

const NEW_USER: u32 = libc::CLONE_NEWUSER as u32;

/// Families of sockets that stay: local, IPv4, IPv6, the kernel's own (routes, uevents), and raw
/// packets, which the kernel itself refuses without a capability.
const FAMILIES: &[u32] = &[
    libc::AF_UNSPEC as u32,
    libc::AF_UNIX as u32,
    libc::AF_INET as u32,
    libc::AF_INET6 as u32,
    libc::AF_NETLINK as u32,
    libc::AF_PACKET as u32,
];

/// Every row, by what it protects.
pub const TABLE: &[Rule] = &[
    Rule {
        calls: &[
            call!(add_key, SYS_add_key, Some(286)),
            call!(request_key, SYS_request_key, Some(287)),
            call!(keyctl, SYS_keyctl, Some(288)),
        ],
        when: When::Always,
        words: "",
        answer: Errno::EPERM,
        nested: false,
        reason: "the kernel keeps keyrings by user id, not by namespace: tickets and disk keys of \
                 the person's own sessions",
    },
    Rule {
        calls: &[
            call!(bpf, SYS_bpf, Some(357)),
            call!(perf_event_open, SYS_perf_event_open, Some(336)),
            call!(userfaultfd, SYS_userfaultfd, Some(374)),
        ],
        when: When::Always,
        words: "",
        answer: Errno::EPERM,
        nested: false,
        reason: "each has opened the kernel to ordinary users before, and no build, test or editor \
                 needs it",
    },
    Rule {
        calls: &[
            call!(io_uring_setup, SYS_io_uring_setup, Some(425)),
            call!(io_uring_enter, SYS_io_uring_enter, Some(426)),
            call!(io_uring_register, SYS_io_uring_register, Some(427)),
        ],
        when: When::Always,
        words: "",
        answer: Errno::EPERM,
        nested: false,
        reason: "its operations pass every filter by (renames would not be helped, refused calls not \
                 refused); the answer is that of kernel.io_uring_disabled=2, after which programs \
                 use plain calls",
    },
    Rule {
        calls: &[
            call!(mount, SYS_mount, Some(21)),
            call!(umount2, SYS_umount2, Some(52)),
            only_compat("umount", 22),
            call!(pivot_root, SYS_pivot_root, Some(217)),
            call!(chroot, SYS_chroot, Some(61)),
        ],
        when: When::Always,
        words: "",
        answer: Errno::EPERM,
        nested: true,
        reason: "the view is made of mounts; whoever has no capability is refused anyway",
    },
    Rule {
        calls: &[
            young("open_tree", libc::SYS_open_tree),
            young("move_mount", libc::SYS_move_mount),
            young("fsopen", libc::SYS_fsopen),
            young("fsconfig", libc::SYS_fsconfig),
            young("fsmount", libc::SYS_fsmount),
            young("fspick", libc::SYS_fspick),
            young("mount_setattr", libc::SYS_mount_setattr),
            young("open_tree_attr", 467),
        ],
        when: When::Always,
        words: "",
        answer: Errno::ENOSYS,
        nested: true,
        reason: "the newer way to mount; tools fall back to mount(2) and get its answer",
    },
    Rule {
        calls: &[
            call!(unshare, SYS_unshare, Some(310)),
            call!(clone, SYS_clone, Some(120)),
        ],
        when: When::Has {
            index: 0,
            bits: NEW_USER,
        },
        words: "with CLONE_NEWUSER",
        answer: Errno::EPERM,
        nested: true,
        reason: "in a user namespace of its own a program holds every capability, and most of the \
                 kernel's faults of late need one",
    },
    Rule {
        calls: &[young("clone3", libc::SYS_clone3)],
        when: When::Always,
        words: "",
        answer: Errno::ENOSYS,
        nested: true,
        reason: "its flags lie in memory, where a filter cannot see them; C libraries fall back to \
                 clone(2)",
    },
    Rule {
        calls: &[call!(setns, SYS_setns, Some(346))],
        when: When::Always,
        words: "",
        answer: Errno::EPERM,
        nested: true,
        reason: "nothing inside has another namespace to go to",
    },
    Rule {
        calls: &[call!(ioctl, SYS_ioctl, Some(54))],
        when: When::Is {
            index: 1,
            value: libc::TIOCSTI as u32,
        },
        words: "TIOCSTI",
        answer: Errno::EPERM,
        nested: false,
        reason: "types into a terminal as if the person had",
    },
    Rule {
        calls: &[call!(ioctl, SYS_ioctl, Some(54))],
        when: When::Is {
            index: 1,
            value: 0x541C,
        },
        words: "TIOCLINUX",
        answer: Errno::EPERM,
        nested: false,
        reason: "pastes into the console as if the person had",
    },
    Rule {
        calls: &[call!(socket, SYS_socket, Some(359))],
        when: When::IsNone {
            index: 0,
            values: FAMILIES,
        },
        words: "of a family other than local, IP, netlink, packet",
        answer: Errno::EAFNOSUPPORT,
        nested: false,
        reason: "AF_VSOCK reaches the hypervisor past `--net none`, AF_ALG and the old protocols are \
                 kernel code nobody here needs",
    },
    Rule {
        calls: &[only_compat("socketcall", 102)],
        when: When::Always,
        words: "",
        answer: Errno::ENOSYS,
        nested: false,
        reason: "the family lies in memory, where a filter cannot see it; newer 32-bit programs call \
                 socket(2)",
    },
    Rule {
        calls: &[call!(open_by_handle_at, SYS_open_by_handle_at, Some(342))],
        when: When::Always,
        words: "",
        answer: Errno::EPERM,
        nested: false,
        reason: "opens a file by number, past every directory that hides it",
    },
    Rule {
        calls: &[
            call!(init_module, SYS_init_module, Some(128)),
            call!(finit_module, SYS_finit_module, Some(350)),
            call!(delete_module, SYS_delete_module, Some(129)),
            call!(kexec_load, SYS_kexec_load, Some(283)),
            Call {
                name: "kexec_file_load",
                native: Some(libc::SYS_kexec_file_load),
                compat: None,
            },
        ],
        when: When::Always,
        words: "",
        answer: Errno::EPERM,
        nested: false,
        reason: "replaces the kernel or parts of it",
    },
    Rule {
        calls: &[
            call!(reboot, SYS_reboot, Some(88)),
            call!(swapon, SYS_swapon, Some(87)),
            call!(swapoff, SYS_swapoff, Some(115)),
            call!(acct, SYS_acct, Some(51)),
            call!(quotactl, SYS_quotactl, Some(131)),
            young("quotactl_fd", 443),
            call!(nfsservctl, SYS_nfsservctl, Some(169)),
        ],
        when: When::Always,
        words: "",
        answer: Errno::EPERM,
        nested: false,
        reason: "administers the whole machine",
    },
    Rule {
        calls: &[
            call!(settimeofday, SYS_settimeofday, Some(79)),
            call!(clock_settime, SYS_clock_settime, Some(264)),
            only_compat("clock_settime64", 404),
            only_compat("stime", 25),
        ],
        when: When::Always,
        words: "",
        answer: Errno::EPERM,
        nested: false,
        reason: "sets the machine's clock (adjtimex stays, which also reads it: setting takes a \
                 capability)",
    },
    #[cfg(target_arch = "x86_64")]
    Rule {
        calls: &[
            call!(iopl, SYS_iopl, Some(110)),
            call!(ioperm, SYS_ioperm, Some(101)),
        ],
        when: When::Always,
        words: "",
        answer: Errno::EPERM,
        nested: false,
        reason: "speaks to the hardware directly",
    },
];

/// The table as the documentation prints it.
pub fn as_markdown() -> String {
    let head = "| call | answer | reason |\n|---|---|---|\n";
    let row = |rule: &Rule| {
        let names: Vec<String> = rule.calls.iter().map(|c| format!("`{}`", c.name)).collect();
        let mut calls = names.join(", ");
        if !rule.words.is_empty() {
            calls = format!("{calls} {}", rule.words);
        }
        if rule.nested {
            calls += " (allowed under `--allow-nested`)";
        }
        let reason: Vec<&str> = rule.reason.split_whitespace().collect();
        format!("| {calls} | `{:?}` | {} |\n", rule.answer, reason.join(" "))
    };
    std::iter::once(head.to_owned())
        .chain(TABLE.iter().map(row))
        .collect()
}
