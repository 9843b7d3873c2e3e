//! PID 1 of the session's namespace. Owns what can only be done from inside it: its `/proc` and
//! the way to the command. It stays, as the parent of everything the agent starts: when it ends,
//! the kernel ends all of it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, SFlag, lstat};
use nix::unistd::geteuid;

use super::SandboxSpec;
use super::agent::{Confinement, Program, Streams};
use super::failure::{Failure, shown};
use super::mount_api::{NO_EXEC, READ_ONLY, TAME, attach, clone_mount, here, new_mount, restrict};
use super::namespace;
use super::supervisor::Supervisor;
use super::wire::Hardening;

/// Runs the command inside; the caller was just forked into the new PID namespace.
pub(super) fn run(
    spec: &SandboxSpec,
    program: Program,
    streams: Streams,
    supervisor: Supervisor,
) -> ! {
    match prepare(spec, supervisor.lifeline.as_ref()) {
        Ok(hardening) => supervisor.run(program, streams, Confinement::Full, hardening),
        Err(failure) => supervisor.fail(failure),
    }
}

fn prepare(spec: &SandboxSpec, lifeline: Option<&OwnedFd>) -> Result<Hardening, Failure> {
    namespace::die_with_parent()?;
    if lifeline.is_some_and(ended) {
        namespace::leave(0);
    }
    // Only for people who look at a process list.
    let _ = nix::sys::prctl::set_name(c"pvisor-init");
    let mut hardening = Hardening::default();
    match mount_proc() {
        Ok(()) => hardening.proc = "new".into(),
        Err(errno) => {
            hardening.proc = "host, read-only".into();
            hardening.notes.push(format!(
                "/proc is the host's, read-only ({}): the agent sees which processes run outside, \
                 but can neither signal nor look into them",
                errno.desc()
            ));
        }
    }
    nix::unistd::chdir(&spec.cwd).map_err(|errno| {
        Failure::new(format!("entering {}", shown(&spec.cwd)), errno.desc())
            .hint("the directory must be visible inside")
    })?;
    Ok(hardening)
}

/// Whether the other end of a pipe is gone.
fn ended(fd: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// A `/proc` of this PID namespace. The kernel refuses it where the one it would replace is
/// partly covered, as in most containers (mount_too_revealing() in fs/namespace.c).
pub(super) fn mount_proc() -> Result<(), Errno> {
    let proc = new_mount(c"proc", &[], TAME | NO_EXEC).map_err(|failure| failure.errno)?;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let target = open("/proc", flags, Mode::empty())?;
    attach(proc.as_fd(), target.as_fd())?;
    if geteuid().is_root() {
        close_kernel_settings()?;
    }
    Ok(())
}

/// To procfs, user id 0 is root even without capabilities: it may write kernel settings. So
/// whatever root could write there becomes read-only, the settings of PID 1 among it.
fn close_kernel_settings() -> Result<(), Errno> {
    let entries = std::fs::read_dir("/proc")
        .map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let digits = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        // Of the processes only this one: what belongs to nobody in particular is root's.
        let process = digits && name != "1";
        let path = Path::new("/proc").join(&name);
        if process || !is_setting(&path) {
            continue;
        }
        let cover = clone_mount(here(), &path, false)?;
        restrict(cover.as_fd(), READ_ONLY, false, false)?;
        let target = open(&path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
        attach(cover.as_fd(), target.as_fd())?;
    }
    Ok(())
}

/// A directory, or a file that its owner may write. Links lead to the process' own entries.
fn is_setting(path: &Path) -> bool {
    lstat(path).is_ok_and(|stat| {
        let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
        kind == SFlag::S_IFDIR || (kind == SFlag::S_IFREG && stat.st_mode & 0o222 != 0)
    })
}
