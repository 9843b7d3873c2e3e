//! Entering a user and mount namespace with one mapped identity. Owns the order of its steps and
//! the ties of life between our processes.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::{Pid, getegid, geteuid, getppid};

use super::failure::{Doing, Failure};
use super::probe;

/// Unshares a user namespace, and a mount namespace when `mounts`, and maps the caller's own ids
/// onto themselves: files keep their owner, an ordinary user stays one, and nobody else exists.
///
/// The calling process must have one thread.
pub(super) fn enter(mounts: bool) -> Result<(), Failure> {
    let (uid, gid) = (geteuid(), getegid());
    let mut flags = CloneFlags::CLONE_NEWUSER;
    if mounts {
        flags |= CloneFlags::CLONE_NEWNS;
    }
    unshare(flags).map_err(probe::user_namespace_refused)?;
    // Without this an unprivileged caller may not write gid_map (user_namespaces(7)).
    write("/proc/self/setgroups", "deny").doing("denying setgroups")?;
    write("/proc/self/uid_map", &format!("{uid} {uid} 1")).doing("mapping the user id")?;
    write("/proc/self/gid_map", &format!("{gid} {gid} 1")).doing("mapping the group id")
}

/// Forbids further user namespaces below this one, so that nothing inside regains capabilities of
/// any kind. Needs the old `/proc`, writable.
pub(super) fn forbid_nesting() -> Result<(), Errno> {
    write("/proc/sys/user/max_user_namespaces", "0")
}

fn write(path: &str, text: &str) -> Result<(), Errno> {
    let file = open(path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    nix::unistd::write(&file, text.as_bytes()).map(drop)
}

/// Ties this process to the life of the **thread** that forked it. Every change of credentials may
/// loosen the tie, so it is called again after each.
pub(super) fn die_with_parent() -> Result<(), Failure> {
    prctl::set_pdeathsig(Signal::SIGKILL).doing("tying a process to its parent")
}

/// Ends this process when the parent was gone before [`die_with_parent`] took hold.
pub(super) fn check_parent(parent: Pid) {
    if getppid() != parent {
        leave(0);
    }
}

/// Ends this process at once: no destructors, no exit handlers of the process it was forked from.
pub(super) fn leave(status: i32) -> ! {
    // SAFETY: _exit takes a number and does not return.
    unsafe { libc::_exit(status) }
}

/// Closes every descriptor of this process but the standard streams and `kept`.
pub(super) fn close_all_but(kept: &[BorrowedFd<'_>]) {
    let mut kept: Vec<u32> = kept.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    kept.sort_unstable();
    kept.dedup();
    let mut from = 3;
    for fd in kept.into_iter().filter(|fd| *fd >= 3) {
        if fd > from {
            close_between(from, fd - 1, 0);
        }
        from = fd + 1;
    }
    close_between(from, u32::MAX, 0);
}

/// Marks every descriptor above the standard streams to be closed at exec.
pub(super) fn close_at_exec() {
    close_between(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32);
}

fn close_between(first: u32, last: u32, flags: i32) {
    // SAFETY: called in freshly forked children only, whose frames above never run again: no
    // owner of a closed descriptor is left that would use or close it.
    unsafe { libc::close_range(first, last, flags) };
}

/// Standard streams to `/dev/null`: a child that goes on for long must not hold a pipe of whoever
/// started the program.
pub(super) fn silence() -> Result<(), Errno> {
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)
}
