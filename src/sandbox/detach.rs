//! Detaching: a fork of this process that goes on as a daemon. Owns the one fork that the session
//! server comes from; what the daemon does is the caller's business.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork, setsid};

/// A thread that was waited for may still be listed for a moment, longer on a busy machine.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// Runs `daemon` in a detached process (own session, no controlling terminal, not our child) and
/// returns at once. What `daemon` returns is its exit status. Besides its standard streams it keeps
/// only `report` open; the caller's copy is closed on return.
///
/// Refused with [`io::ErrorKind::Unsupported`] when this process has more than one thread: only the
/// calling thread would go on in the fork, and locks held by the others would stay locked.
pub fn detach(report: OwnedFd, daemon: impl FnOnce(OwnedFd) -> i32) -> io::Result<()> {
    let deadline = Instant::now() + GONE_WITHIN;
    while std::fs::read_dir("/proc/self/task")?.count() != 1 {
        if Instant::now() > deadline {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "a process with several threads cannot fork a server",
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: the process has one thread (checked above), so the child's memory is consistent and
    // any code may run in it.
    match unsafe { fork() }.map_err(io::Error::from)? {
        ForkResult::Parent { child } => {
            waitpid(child, None).map_err(io::Error::from)?;
            Ok(())
        }
        ForkResult::Child => {
            if setsid().is_err() {
                std::process::exit(1);
            }
            // A second fork: the daemon is not a session leader and can never gain a terminal.
            // SAFETY: as above, this child has one thread.
            match unsafe { fork() } {
                Ok(ForkResult::Child) => {
                    close_others(&report);
                    let status = daemon(report);
                    std::process::exit(status);
                }
                // `_exit`: the buffers of this copy belong to the original process.
                // SAFETY: _exit has no preconditions.
                Ok(ForkResult::Parent { .. }) => unsafe { libc::_exit(0) },
                // SAFETY: as above.
                Err(_) => unsafe { libc::_exit(1) },
            }
        }
    }
}

/// Closes every descriptor above the standard ones but `kept`: what the caller's parent left open
/// must not live on in a daemon.
fn close_others(kept: &OwnedFd) {
    let kept = kept.as_raw_fd() as u32;
    let close = |from: u32, to: u32| {
        if from <= to {
            // SAFETY: this process exits without dropping anything that owned these descriptors,
            // and nothing of it was opened after the fork.
            unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
        }
    };
    close(3, kept.saturating_sub(1));
    close(kept + 1, u32::MAX);
}
