//! Trees deeper than a path is long.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::{Interpreter, Outcome, file, name};
use crate::script::{Bytes, Data};

impl Interpreter {
    pub(super) fn deep(&self, path: &Bytes, each: &Bytes, levels: u32, data: Data) -> Outcome {
        let mode = Mode::from_bits_truncate(0o777);
        mkdirat(self.at(), name(path), mode)?;
        let mut at = step(self.at(), name(path))?;
        for _ in 0..levels {
            mkdirat(&at, name(each), mode)?;
            at = step(at.as_fd(), name(each))?;
        }
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let made = File::from(openat(&at, "end", flags, Mode::from_bits_truncate(0o666))?);
        file::write_at(&made, 0, data)?;
        file::read(&made)
    }

    /// As `rm -r`: what cannot be removed stays, and the first reason is told.
    pub(super) fn remove_tree(&self, path: &Bytes) -> Outcome {
        remove(self.at(), name(path)).map(|removed| format!("{removed} removed"))
    }
}

fn step(at: BorrowedFd<'_>, name: &[u8]) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

fn remove(at: BorrowedFd<'_>, name: &[u8]) -> nix::Result<u64> {
    match unlinkat(at, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR) => {}
        other => return other.map(|()| 1),
    }
    let fd = step(at, name)?;
    let mut removed = 0;
    let mut names = Vec::new();
    for entry in Dir::from_fd(step(fd.as_fd(), b".")?)?.iter() {
        let bytes = entry?.file_name().to_bytes().to_vec();
        if bytes != b"." && bytes != b".." {
            names.push(bytes);
        }
    }
    // In an order that does not depend on the file system.
    names.sort();
    let mut failed = None;
    for child in names {
        match remove(fd.as_fd(), &child) {
            Ok(n) => removed += n,
            Err(e) => failed = failed.or(Some(e)),
        }
    }
    match failed {
        Some(e) => Err(e),
        None => unlinkat(at, name, UnlinkatFlags::RemoveDir).map(|()| removed + 1),
    }
}
