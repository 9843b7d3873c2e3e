//! From a forked child to the agent's program. Owns the last steps before exec: terminal, signals,
//! capabilities, descriptors, and what is said when the program cannot be executed.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow};

use super::failure::{Doing, Failure, shown};
use super::landlock::Fence;
use super::namespace::{close_at_exec, leave};
use super::spec::{Limits, SandboxSpec};
use super::wire::send_fds;
use super::{Mode, limits, seccomp, shim};
use crate::pty;

/// The command's ends of its standard streams.
pub(super) enum Streams {
    /// One terminal for all three.
    Terminal(OwnedFd),
    /// Standard input, output and error.
    Pipes([OwnedFd; 3]),
}

/// The command, ready to be executed.
pub(super) struct Program {
    /// Paths to try, in the order of `PATH`.
    candidates: Vec<CString>,
    /// The name has no slash: it is looked for in `PATH`.
    searched: bool,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    /// As the person typed it, made harmless.
    name: String,
    /// What it is locked in with besides.
    guards: Guards,
}

/// What the command puts on itself before exec, after everything it needs more rights for.
#[derive(Default)]
pub(super) struct Guards {
    /// Upper bounds.
    limits: Limits,
    /// `cgroup.procs` of the command's own cgroup.
    cgroup: Option<OwnedFd>,
    /// Landlock.
    fence: Option<Fence>,
    /// Whether it may make user namespaces of its own.
    nested: bool,
}

impl Guards {
    /// Those of this specification; `cgroup` is an open `cgroup.procs`.
    pub fn of(spec: &SandboxSpec, cgroup: Option<OwnedFd>) -> Self {
        Self {
            limits: spec.limits,
            cgroup,
            fence: (spec.mode == Mode::Staged).then(|| Fence::of(spec)),
            nested: spec.nested,
        }
    }
}

/// How far an agent is locked in before exec.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Confinement {
    /// No capabilities, nothing regained by exec, no reach to outside sockets without a path.
    Full,
    /// A plain process.
    None,
}

/// What a child tells its parent through a pipe that closes at exec.
pub(super) mod told {
    /// Renames are reported to their server; a zero follows.
    pub const RENAMES: u8 = b'R';
    /// Landlock is in force; its ABI follows.
    pub const LANDLOCK: u8 = b'L';
    /// The seccomp filter is in force; a zero follows.
    pub const SECCOMP: u8 = b'S';
    /// The cgroup could not be entered; the errno follows.
    pub const NO_CGROUP: u8 = b'C';
    /// The program was not executed; a shell's status follows.
    pub const NOT_EXECUTED: u8 = b'X';
    /// A step failed; a [`super::Failure`] follows.
    pub const FAILED: u8 = b'F';
}

impl Program {
    /// Looks at names only: what exists is found out by executing it, inside.
    pub fn new(
        command: &[OsString],
        environment: &[(OsString, OsString)],
    ) -> Result<Self, Failure> {
        let doing = "reading the command";
        let nul = |_| Failure::new(doing, "it holds a NUL byte");
        let Some(name) = command.first().filter(|name| !name.is_empty()) else {
            return Err(Failure::new(doing, "there is none"));
        };
        let path = environment
            .iter()
            .rev()
            .find(|(key, _)| key == "PATH")
            .map_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"), |(_, v)| v);
        let searched = !name.as_bytes().contains(&b'/');
        let candidates: Vec<PathBuf> = if searched {
            std::env::split_paths(path)
                .map(|dir| {
                    // An empty entry means the current directory (POSIX).
                    let dir = if dir.as_os_str().is_empty() {
                        Path::new(".")
                    } else {
                        &dir
                    };
                    dir.join(name)
                })
                .collect()
        } else {
            vec![name.into()]
        };
        let text = |bytes: &OsStr| CString::new(bytes.as_bytes()).map_err(nul);
        Ok(Self {
            searched,
            candidates: candidates
                .iter()
                .map(|path| text(path.as_os_str()))
                .collect::<Result<_, _>>()?,
            arguments: command.iter().map(|a| text(a)).collect::<Result<_, _>>()?,
            environment: environment
                .iter()
                .map(|(key, value)| {
                    let mut pair = key.clone().into_vec();
                    pair.push(b'=');
                    pair.extend_from_slice(value.as_bytes());
                    CString::new(pair).map_err(nul)
                })
                .collect::<Result<_, _>>()?,
            name: shown(Path::new(name)),
            guards: Guards::default(),
        })
    }

    /// The same, locked in.
    pub fn guarded(mut self, guards: Guards) -> Self {
        self.guards = guards;
        self
    }

    /// The same, beside so many threads of our own in its user namespace: the kernel counts them
    /// with its processes, so they are added to that limit.
    pub fn beside(mut self, threads: u64) -> Self {
        if let Some(processes) = &mut self.guards.limits.processes {
            *processes = processes.saturating_add(threads);
        }
        self
    }

    /// What of it must stay open until exec.
    pub fn kept(&self) -> Option<BorrowedFd<'_>> {
        self.guards.cgroup.as_ref().map(AsFd::as_fd)
    }

    /// Becomes the program. Runs in a freshly forked child; returns never.
    pub fn become_it(
        self,
        streams: Streams,
        confinement: Confinement,
        renamer: Option<&UnixStream>,
        mut parent: File,
    ) -> ! {
        if let Err(failure) = prepare(streams, confinement, &self.guards, renamer, &mut parent) {
            let mut message = vec![told::FAILED];
            message.extend(postcard::to_stdvec(&failure).unwrap_or_default());
            // The parent sees a child that ended without exec even if this is lost.
            let _ = parent.write_all(&message);
            leave(125);
        }
        let (status, reason) = self.execute();
        let _ = parent.write_all(&[told::NOT_EXECUTED, status]);
        let line = format!("pvisor-tui: {}: {reason}\n", self.name);
        let _ = std::io::stderr().write_all(line.as_bytes());
        leave(i32::from(status));
    }

    /// Tries every candidate; comes back only if none could be executed.
    fn execute(&self) -> (u8, String) {
        let mut refused = None;
        for path in &self.candidates {
            let Err(errno) = nix::unistd::execve(path, &self.arguments, &self.environment);
            match errno {
                Errno::ENOENT | Errno::ENOTDIR => {}
                // A script without an interpreter line: shells run it themselves.
                Errno::ENOEXEC => {
                    let mut arguments = vec![c"sh".to_owned(), path.clone()];
                    arguments.extend(self.arguments.iter().skip(1).cloned());
                    let Err(errno) = nix::unistd::execve(c"/bin/sh", &arguments, &self.environment);
                    return (126, errno.desc().to_owned());
                }
                // In a directory of PATH that may not be searched there is none, as shells see it.
                Errno::EACCES
                    if self.searched && nix::sys::stat::stat(path.as_c_str()).is_err() => {}
                // Another directory of PATH may hold one that can be executed.
                Errno::EACCES => refused = Some(errno),
                other => return (126, other.desc().to_owned()),
            }
        }
        match refused {
            Some(errno) => (126, errno.desc().to_owned()),
            None => (127, "not found".to_owned()),
        }
    }
}

fn prepare(
    streams: Streams,
    confinement: Confinement,
    guards: &Guards,
    renamer: Option<&UnixStream>,
    parent: &mut File,
) -> Result<(), Failure> {
    nix::unistd::setsid().doing("making a session")?;
    attach(streams).doing("connecting the standard streams")?;
    reset_signals().doing("resetting signals")?;
    bound(guards, confinement, parent)?;
    if confinement == Confinement::Full {
        new_keyring();
        drop_capabilities()?;
        nix::sys::prctl::set_no_new_privs().doing("setting no_new_privs")?;
        // Refused by kernels that are too old for it: directories then keep the kernel's answer.
        if let Some(renamer) = renamer
            && let Ok(listener) = shim::install()
        {
            send_fds(renamer, &[listener.as_fd()]).doing("handing over renames")?;
            let _ = parent.write_all(&[told::RENAMES, 0]);
        }
        lock_in(guards, parent)?;
    }
    close_at_exec();
    Ok(())
}

/// Upper bounds: the cgroup first, which a limit on open files must not keep us from entering.
fn bound(guards: &Guards, confinement: Confinement, parent: &mut File) -> Result<(), Failure> {
    if let Some(cgroup) = &guards.cgroup {
        // "0" is whoever writes it. A file whose write is refused holds nobody: that is told.
        if let Err(errno) = nix::unistd::write(cgroup, b"0") {
            let _ = parent.write_all(&[told::NO_CGROUP, errno as i32 as u8]);
        }
    }
    let mode = match confinement {
        Confinement::Full => Mode::Staged,
        Confinement::None => Mode::Host,
    };
    limits::put_up(&guards.limits, mode)
}

/// The last two fences: from here on this process has no more rights than its program will have.
fn lock_in(guards: &Guards, parent: &mut File) -> Result<(), Failure> {
    if let Some(fence) = &guards.fence {
        let abi = fence.put_up();
        let abi = abi.map_err(|cause| Failure::new("putting Landlock in force", cause))?;
        if let Some(abi) = abi {
            let _ = parent.write_all(&[told::LANDLOCK, abi as u8]);
        }
    }
    seccomp::put_up(guards.nested).map_err(|cause| {
        Failure::new("putting the seccomp filter in force", cause)
            .hint("the kernel needs CONFIG_SECCOMP_FILTER")
    })?;
    let _ = parent.write_all(&[told::SECCOMP, 0]);
    Ok(())
}

fn attach(streams: Streams) -> Result<(), Errno> {
    let [input, output, error] = match &streams {
        Streams::Terminal(terminal) => {
            pty::take_control(terminal)?;
            [terminal, terminal, terminal]
        }
        Streams::Pipes([input, output, error]) => [input, output, error],
    }
    .map(AsFd::as_fd);
    nix::unistd::dup2_stdin(input)?;
    nix::unistd::dup2_stdout(output)?;
    nix::unistd::dup2_stderr(error)
}

/// Ignored signals stay ignored across exec, and so does the mask.
fn reset_signals() -> Result<(), Errno> {
    // The kernel's structure, all zero: the default action, no flags, an empty mask.
    let default = [0_u64; 4];
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: the default action runs no code of ours, and the structure (at most as large as
        // this one on any architecture) is read only. By the system call, since the C library
        // refuses the two numbers that it keeps to itself and whoever it spawned ignores. Refused
        // for SIGKILL and SIGSTOP, which nobody can ignore.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null::<libc::c_void>(),
                size_of::<u64>(),
            )
        };
    }
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

/// The caller's session keyring (tickets, disk keys) does not come along.
fn new_keyring() {
    const JOIN_SESSION_KEYRING: libc::c_int = 1;
    // SAFETY: a null name asks for an anonymous keyring; no memory is passed. Kernels without
    // keyrings answer ENOSYS, and then there is nothing to leave behind.
    unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            JOIN_SESSION_KEYRING,
            std::ptr::null::<libc::c_char>(),
        )
    };
}

/// Empties all five capability sets and forbids root to get them back at exec.
pub(super) fn drop_capabilities() -> Result<(), Failure> {
    let locked = libc::SECBIT_NOROOT
        | libc::SECBIT_NOROOT_LOCKED
        | libc::SECBIT_NO_SETUID_FIXUP
        | libc::SECBIT_NO_SETUID_FIXUP_LOCKED
        | libc::SECBIT_NO_CAP_AMBIENT_RAISE
        | libc::SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED
        | libc::SECBIT_KEEP_CAPS_LOCKED;
    control(libc::PR_SET_SECUREBITS, locked as libc::c_ulong, 0).doing("locking root's rights")?;
    for capability in 0.. {
        match control(libc::PR_CAPBSET_DROP, capability, 0) {
            Ok(()) => {}
            // Beyond the last one the kernel knows.
            Err(Errno::EINVAL) if capability > 0 => break,
            Err(errno) => return Err(errno).doing("emptying the capability bounding set"),
        }
    }
    match control(
        libc::PR_CAP_AMBIENT,
        libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong,
        0,
    ) {
        // Kernels before 4.3 have no such set.
        Ok(()) | Err(Errno::EINVAL) => {}
        Err(errno) => return Err(errno).doing("emptying the ambient capabilities"),
    }
    /// `_LINUX_CAPABILITY_VERSION_3`, this process.
    const HEADER: [u32; 2] = [0x2008_0522, 0];
    /// Effective, permitted, inheritable; low and high words.
    const NOTHING: [[u32; 3]; 2] = [[0; 3]; 2];
    // SAFETY: both arrays have the layout of capset(2)'s structures for version 3 and live on.
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, HEADER.as_ptr(), NOTHING.as_ptr()) })
        .map(drop)
        .doing("dropping capabilities")
}

fn control(
    operation: libc::c_int,
    second: libc::c_ulong,
    third: libc::c_ulong,
) -> Result<(), Errno> {
    let none: libc::c_ulong = 0;
    // SAFETY: the operations used here take numbers only.
    Errno::result(unsafe { libc::prctl(operation, second, third, none, none) }).map(drop)
}
