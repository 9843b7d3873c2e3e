//! Moving names between directories. Owns the raw call and the way back: everything that was moved
//! out of a directory returns into it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::layer::read::{self, Side};
use crate::layer::{FileType, mark_opaque};

/// Appended to the name of a file that another one took the place of while its directory was being
/// moved.
pub const KEPT: &[u8] = b".before-rename";

/// `renameat2`, by number: not every C library wraps it.
pub fn rename(
    old: BorrowedFd<'_>,
    old_name: &[u8],
    new: BorrowedFd<'_>,
    new_name: &[u8],
    flags: u32,
) -> Result<(), Errno> {
    let nul = |_| Errno::EINVAL;
    let (old_name, new_name) = (
        CString::new(old_name).map_err(nul)?,
        CString::new(new_name).map_err(nul)?,
    );
    // SAFETY: both descriptors are borrowed and both names live through the call.
    Errno::result(unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            old.as_raw_fd(),
            old_name.as_ptr(),
            new.as_raw_fd(),
            new_name.as_ptr(),
            flags,
        )
    })
    .map(drop)
}

/// As [`rename`] under one name, but what lies there already goes on under another one.
pub fn rename_keeping(old: BorrowedFd<'_>, new: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    loop {
        match rename(old, name, new, name, libc::RENAME_NOREPLACE) {
            Err(Errno::EEXIST) => {}
            other => return other,
        }
        match set_aside(new, name, new) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Moves `name` of `from` to a free name in `to` that tells what it was.
fn set_aside(from: BorrowedFd<'_>, name: &[u8], to: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut aside = [&name[..name.len().min(200)], KEPT].concat();
    let length = aside.len();
    let mut number = 0;
    loop {
        match rename(from, name, to, &aside, libc::RENAME_NOREPLACE) {
            Err(Errno::EEXIST) if number < 100 => {}
            other => return other,
        }
        number += 1;
        aside.truncate(length);
        aside.extend_from_slice(format!(".{number}").as_bytes());
    }
}

/// Moves everything in `from` back into `to`, directories that both have entry by entry. On
/// [`Side::Upper`] the two are directories of an upper that is not mounted: whiteouts give way, and
/// a directory hides what the lower has in its place, since all of that was in it.
pub fn merge_back(from: BorrowedFd<'_>, to: BorrowedFd<'_>, side: Side) -> io::Result<()> {
    for name in read::list(from)? {
        let Some(moved) = read::read_entry(from, &name, side)? else {
            continue;
        };
        let is_dir = moved.node.file_type == FileType::Dir;
        let there = read::read_entry(to, &name, side)?;
        if let Some(there) = there {
            let whiteout = side == Side::Upper && there.char_device && there.node.rdev == 0;
            if whiteout {
                unlinkat(to, name.as_slice(), UnlinkatFlags::NoRemoveDir)?;
            } else if is_dir && there.node.file_type == FileType::Dir {
                let (a, b) = (read::open_dir(from, &name)?, read::open_dir(to, &name)?);
                merge_back(a.as_fd(), b.as_fd(), side)?;
                unlinkat(from, name.as_slice(), UnlinkatFlags::RemoveDir)?;
                continue;
            } else {
                // What came later keeps the name.
                set_aside(from, &name, to)?;
                continue;
            }
        }
        if is_dir && side == Side::Upper {
            mark_opaque(read::open_dir(from, &name)?.as_fd())?;
        }
        rename(from, &name, to, &name, libc::RENAME_NOREPLACE)?;
    }
    Ok(())
}
