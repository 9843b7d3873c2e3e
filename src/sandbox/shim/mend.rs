//! The note that a directory is being made ready for a rename, and what is done about one that was
//! left behind. Owns that note: a file in the layer's directory, out of every agent's sight.
//!
//! The note names the directory and the temporary one beside it. Whoever comes next after a crash
//! (a server process that was killed, a machine that stopped) moves everything back, so that no
//! temporary name is ever seen in a change set and no file is lost.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::names::merge_back;
use crate::RelPath;
use crate::layer::read::{self, Side};
use crate::layer::tree;

/// The note's name.
const NOTE: &str = "renaming";

/// Writes the note: `temporary` lies in the directory that holds `path`.
pub fn note(layer_dir: BorrowedFd<'_>, path: &RelPath, temporary: &[u8]) -> io::Result<()> {
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let fd = openat(layer_dir, NOTE, flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
    // In one piece: a torn note would name nothing.
    let text = [path.as_bytes(), b"\0", temporary].concat();
    File::from(fd).write_all(&text)
}

/// Takes the note away: nothing lies under the temporary name any more.
pub fn forget(layer_dir: BorrowedFd<'_>) {
    // One that stays names a directory that is not there, which does no harm.
    let _ = unlinkat(layer_dir, NOTE, UnlinkatFlags::NoRemoveDir);
}

/// Puts back what a note tells of, if there is one. `root` is the upper of a layer that is not
/// mounted, or the merged view of one that is.
pub fn mend(layer_dir: BorrowedFd<'_>, root: BorrowedFd<'_>, side: Side) -> io::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let fd = match openat(layer_dir, NOTE, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::ENOENT) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    let mut text = Vec::new();
    File::from(fd).read_to_end(&mut text)?;
    let mut parts = text.splitn(2, |b| *b == 0);
    let path = parts.next().and_then(|path| RelPath::new(path).ok());
    let temporary = parts.next().and_then(|name| RelPath::new(name).ok());
    if let (Some(path), Some(temporary)) = (path, temporary)
        && let (Some(name), Some(temporary)) = (path.file_name(), temporary.file_name())
    {
        put_back(root, &path, name, temporary, side)?;
    }
    forget(layer_dir);
    Ok(())
}

fn put_back(
    root: BorrowedFd<'_>,
    path: &RelPath,
    name: &[u8],
    temporary: &[u8],
    side: Side,
) -> io::Result<()> {
    let absent = |e: &io::Error| tree::is_absent(e);
    let parent = match tree::dir_beneath(root, &path.parent().unwrap_or_default()) {
        Err(e) if absent(&e) => return Ok(()),
        other => other?,
    };
    let moved = match read::open_dir(parent.as_fd(), temporary) {
        // It was not made yet, or has become the directory already.
        Err(e) if absent(&e) => return Ok(()),
        other => other?,
    };
    match read::open_dir(parent.as_fd(), name) {
        Ok(old) => merge_back(moved.as_fd(), old.as_fd(), side)?,
        // Nothing was moved out of a directory that the upper does not have.
        Err(e) if absent(&e) => {}
        Err(e) => return Err(e),
    }
    match unlinkat(&parent, temporary, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// [`mend`] for a layer that is not mounted, by the path of its directory.
pub fn mend_unmounted(layer_dir: &Path, upper: BorrowedFd<'_>) -> io::Result<()> {
    let dir = nix::fcntl::open(layer_dir, read::DIR_FLAGS, Mode::empty())?;
    mend(dir.as_fd(), upper, Side::Upper)
}
