//! The rename shim: rename(2) of a directory of the lower, which the kernel's overlayfs refuses
//! with `EXDEV` in a user namespace, works as in a plain directory. Owns the filter that reports
//! renames, the process that serves them, and the note by which an interrupted one is put right.
//!
//! ```text
//! command --rename(2)--> filter --> server: a directory that shows the lower?
//!                                     no:  go on
//!                                     yes: make it one of the upper, in place; go on
//!         <------------ the kernel carries the call out, with the caller's own rights
//! ```
//!
//! The server never renames what it was asked for and never says yes for the kernel: it only turns
//! a directory into one that the kernel can rename. So a path that changes between its look and the
//! kernel's is the caller's own affair, and no caller gains a right by it.

mod filter;
mod mend;
mod moving;
mod names;
mod notify;
mod rights;
mod server;
mod staged;
mod survey;
mod target;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::fcntl::{OFlag, open, readlinkat};
use nix::sys::stat::Mode;
use nix::unistd::{ForkResult, fork, getpid};

use super::failure::{Doing, Failure};
use super::view::MountedLayer;
use super::{SandboxSpec, namespace};
use crate::layer::Driver;
use crate::layer::read::Side;
use staged::Staged;

pub(super) use filter::install;
pub(super) use mend::mend_unmounted;

/// Entries of a directory that is made ready for a rename at most; a larger one keeps `EXDEV`, and
/// programs that can copy do so.
const ENTRIES_AT_MOST: usize = 20_000;
/// Bytes of files of the lower in it at most.
const BYTES_AT_MOST: u64 = 1 << 30;
/// Levels below it at most; each holds some descriptors.
const DEEPEST: usize = 250;

/// How the temporary directories beside a renamed one are called.
const TEMPORARY: &str = ".pvisor-renaming-";

/// Forks the server; the end of its socket that PID 1 keeps and the command's process sends the
/// listener through. `None` where there is no layer to serve. The caller has one thread and is
/// about to make a PID namespace, which the server must not be in.
pub(super) fn start(
    spec: &SandboxSpec,
    mounted: &[MountedLayer],
) -> Result<Option<UnixStream>, Failure> {
    let mut layers = Vec::new();
    // Our own file server renames directories by itself.
    for mounted in mounted.iter().filter(|m| m.driver == Driver::Overlayfs) {
        if let Some(layer) = spec.layers.iter().find(|l| l.name == mounted.name) {
            layers.extend(Staged::of(layer, mounted)?);
        }
    }
    if layers.is_empty() {
        return Ok(None);
    }
    let proc = outer_proc()?;
    let (theirs, ours) = UnixStream::pair().doing("making a socket pair")?;
    let helper = getpid();
    // SAFETY: the caller promises that this process has one thread, so the child may do anything.
    match unsafe { fork() }.doing("forking the server of renames")? {
        ForkResult::Child => {
            drop(theirs);
            let life = std::panic::AssertUnwindSafe(|| {
                let mut kept: Vec<BorrowedFd<'_>> = vec![ours.as_fd(), proc.as_fd()];
                kept.extend(layers.iter().flat_map(Staged::descriptors));
                namespace::close_all_but(&kept);
                server::run(layers, proc, &ours, helper)
            });
            // Unwinding into the helper's frames would run the helper's destructors twice.
            let _ = std::panic::catch_unwind(life);
            namespace::leave(125)
        }
        ForkResult::Parent { .. } => Ok(Some(theirs)),
    }
}

/// `/proc` as long as it is still that of this process' PID namespace.
fn outer_proc() -> Result<OwnedFd, Failure> {
    let doing = "looking at /proc";
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let proc = open("/proc", flags, Mode::empty()).doing(doing)?;
    let own = readlinkat(&proc, "self").doing(doing)?;
    if own.as_encoded_bytes() != getpid().to_string().as_bytes() {
        return Err(Failure::new(doing, "it belongs to another PID namespace"));
    }
    Ok(proc)
}

/// As long as it lives, no directory of the layer is half way between two places.
pub(super) struct Still(#[allow(dead_code)] nix::fcntl::Flock<OwnedFd>); // Held, not read.

/// Waits until the layer is whole, and puts right what a server left behind that was killed.
pub(super) fn still(layer: &MountedLayer) -> std::io::Result<Still> {
    let (lock, dir) = staged::hold_still(layer.upper.as_fd())?;
    let (root, side) = match &layer.merged {
        Some(merged) => (merged, Side::Plain),
        None => (&layer.upper, Side::Upper),
    };
    // What cannot be put right is still seen, under a temporary name, and tried again next time.
    let _ = mend::mend(dir.as_fd(), root.as_fd(), side);
    Ok(Still(lock))
}
