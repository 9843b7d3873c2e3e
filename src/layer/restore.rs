//! Puts entries back to what the lower holds. Owns the in-place order of steps that loses no later
//! write of a running agent.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::content::copy_bytes;
use super::copy::{self, Into};
use super::read::{self, Side};
use super::remove::remove_entry;
use super::tree::{dir_beneath, is_absent, open_beneath};
use super::{AccessError, FileType, Node};
use crate::RelPath;

/// While the layer is mounted: makes `path` in the merged view equal to the lower's (content
/// overwritten in place, missing entries made again, surplus ones removed), subtree included.
///
/// Missing parents that the lower has are made again, without what else was in them. Fails with
/// `ENOTDIR` where something else took a parent's place: that entry has to be put back itself.
pub fn restore_live(
    lower: BorrowedFd<'_>,
    merged: BorrowedFd<'_>,
    path: &RelPath,
) -> Result<(), AccessError> {
    live(lower, merged, path).map_err(|e| AccessError::io("putting back", path, &e))
}

fn live(lower: BorrowedFd<'_>, merged: BorrowedFd<'_>, path: &RelPath) -> io::Result<()> {
    let Some(name) = path.file_name() else {
        return equal_dirs(lower, merged, 0);
    };
    let parent = path.parent().unwrap_or_default();
    let mut low = Some(open_beneath(lower, b".")?);
    let mut at = open_beneath(merged, b".")?;
    for component in parent.components() {
        low = match &low {
            Some(dir) => present(open_beneath(dir.as_fd(), component))?,
            None => None,
        };
        at = match open_beneath(at.as_fd(), component) {
            Ok(dir) => dir,
            // Neither side has the parent: there is nothing to put back and nothing in the way.
            Err(e) if is_absent(&e) && low.is_none() => return Ok(()),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {
                nix::sys::stat::mkdirat(&at, component, Mode::S_IRWXU)?;
                let made = open_beneath(at.as_fd(), component)?;
                if let Some(dir) = &low {
                    let node = read::stat_fd(dir.as_fd())?;
                    copy::carry(dir.as_fd(), made.as_fd(), &node, Into::Merged)?;
                }
                made
            }
            Err(e) => return Err(e),
        };
    }
    equal_entries(low.as_ref().map(AsFd::as_fd), at.as_fd(), name, 0)
}

fn present(result: io::Result<OwnedFd>) -> io::Result<Option<OwnedFd>> {
    match result {
        Ok(fd) => Ok(Some(fd)),
        Err(e) if is_absent(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Makes `name` in the merged directory what it is in the lower one.
fn equal_entries(
    lower: Option<BorrowedFd<'_>>,
    merged: BorrowedFd<'_>,
    name: &[u8],
    depth: usize,
) -> io::Result<()> {
    let wanted = match lower {
        Some(dir) => read::read_node(dir, name)?,
        None => None,
    };
    let (Some(lower), Some(wanted)) = (lower, wanted) else {
        return remove_entry(merged, name);
    };
    let Some(found) = read::read_node(merged, name)? else {
        return copy::copy_entry(lower, merged, name, Into::Merged, depth);
    };
    match (wanted.file_type, found.file_type) {
        (FileType::Dir, FileType::Dir) => {
            copy::too_deep(depth)?;
            let source = open_beneath(lower, name)?;
            let target = open_beneath(merged, name)?;
            equal_dirs(source.as_fd(), target.as_fd(), depth + 1)
        }
        (FileType::File, FileType::File) => equal_files(lower, merged, name, &wanted, &found),
        (FileType::Symlink, FileType::Symlink) if wanted.target == found.target => {
            if wanted.mtime == found.mtime {
                return Ok(());
            }
            copy::set_times_at(merged, name, &wanted)
        }
        (FileType::Fifo, FileType::Fifo) | (FileType::Socket, FileType::Socket) => {
            copy::carry_special(merged, name, &wanted)
        }
        (FileType::Device, FileType::Device) if wanted.rdev == found.rdev => Ok(()),
        _ => {
            remove_entry(merged, name)?;
            copy::copy_entry(lower, merged, name, Into::Merged, depth)
        }
    }
}

fn equal_dirs(lower: BorrowedFd<'_>, merged: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
    let mut names = read::list(lower)?;
    names.extend(read::list(merged)?);
    names.sort_unstable();
    names.dedup();
    for name in names {
        equal_entries(Some(lower), merged, &name, depth)?;
    }
    let wanted = read::read_node(lower, b"")?.ok_or(io::ErrorKind::NotFound)?;
    let found = read::read_node(merged, b"")?.ok_or(io::ErrorKind::NotFound)?;
    if wanted.mode == found.mode && wanted.xattrs == found.xattrs && wanted.mtime == found.mtime {
        // An untouched directory stays untouched: setting its times would copy it up.
        return Ok(());
    }
    copy::carry(lower, merged, &wanted, Into::Merged)
}

/// Overwrites in place, so that whoever holds the file open goes on writing to what is seen.
fn equal_files(
    lower: BorrowedFd<'_>,
    merged: BorrowedFd<'_>,
    name: &[u8],
    wanted: &Node,
    found: &Node,
) -> io::Result<()> {
    let source = read::open_file(lower, name)?;
    let same = wanted.size == found.size && same_bytes(&source, &read::open_file(merged, name)?)?;
    if same
        && wanted.mode == found.mode
        && wanted.xattrs == found.xattrs
        && wanted.mtime == found.mtime
    {
        return Ok(());
    }
    if found.nlink > 1 && (found.nlink, found.ino) != (wanted.nlink, wanted.ino) {
        // Another name shares this inode that is none of this file's: it must keep its content. (A
        // file that was copied up keeps the number it had.)
        return replace_file(lower, merged, name);
    }
    let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let target = match openat(merged, name, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        // Running as a program, or locked by its mode where we have no right over it.
        Err(Errno::ETXTBSY | Errno::EACCES) => return replace_file(lower, merged, name),
        Err(e) => return Err(e.into()),
    };
    if !same {
        target.set_len(0)?;
        copy_bytes(&source, &target, wanted.size)?;
    }
    copy::carry(source.as_fd(), target.as_fd(), wanted, Into::Merged)
}

fn replace_file(lower: BorrowedFd<'_>, merged: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    remove_entry(merged, name)?;
    copy::copy_entry(lower, merged, name, Into::Merged, 0)
}

fn same_bytes(a: &File, b: &File) -> io::Result<bool> {
    let (mut a, mut b) = (a, b);
    let mut left = vec![0; 64 * 1024];
    let mut right = vec![0; 64 * 1024];
    loop {
        let n = fill(&mut a, &mut left)?;
        let m = fill(&mut b, &mut right)?;
        if n != m || left[..n] != right[..m] {
            return Ok(false);
        }
        if n == 0 {
            return Ok(true);
        }
    }
}

fn fill(from: &mut &File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// While the layer is not mounted: edits the upper so that a later mount shows the lower's entry
/// at `path` again, subtree included.
///
/// Fails with `ENOTDIR` where something else took a parent's place.
pub fn restore_unmounted(
    lower: BorrowedFd<'_>,
    upper: BorrowedFd<'_>,
    path: &RelPath,
) -> Result<(), AccessError> {
    unmounted(lower, upper, path).map_err(|e| AccessError::io("putting back", path, &e))
}

fn unmounted(lower: BorrowedFd<'_>, upper: BorrowedFd<'_>, path: &RelPath) -> io::Result<()> {
    let Some(name) = path.file_name() else {
        for name in read::list(upper)? {
            remove_entry(upper, &name)?;
        }
        let wanted = read::read_node(lower, b"")?.ok_or(io::ErrorKind::NotFound)?;
        return copy::carry(lower, upper, &wanted, Into::Upper);
    };
    let parent = path.parent().unwrap_or_default();
    let low = present(dir_beneath(lower, &parent))?;
    let mut hides = false;
    let mut marked = false;
    let mut at = open_beneath(upper, b".")?;
    let mut so_far = RelPath::root();
    for component in parent.components() {
        so_far = so_far.join(component);
        let Some(seen) = read::read_entry(at.as_fd(), component, Side::Upper)? else {
            if !hides || low.is_none() {
                // The lower shows through from here on, or has nothing to show.
                return Ok(());
            }
            at = make_parent(lower, &so_far, at.as_fd(), component)?;
            continue;
        };
        let whiteout = seen.char_device && seen.node.rdev == 0
            || marked && seen.marks.whiteout && seen.node.file_type == FileType::File;
        if whiteout {
            if low.is_none() {
                return Ok(());
            }
            remove_entry(at.as_fd(), component)?;
            at = make_parent(lower, &so_far, at.as_fd(), component)?;
            copy::mark_opaque(at.as_fd())?;
            hides = true;
            continue;
        }
        if seen.node.file_type != FileType::Dir {
            if low.is_none() {
                return Ok(());
            }
            return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
        }
        hides |= seen.marks.opaque;
        marked = seen.marks.xattr_whiteouts;
        at = open_beneath(at.as_fd(), component)?;
    }
    remove_entry(at.as_fd(), name)?;
    match low {
        Some(low) if hides => copy::copy_entry(low.as_fd(), at.as_fd(), name, Into::Upper, 0),
        _ => Ok(()),
    }
}

/// Makes a directory of the lower in the upper, without its content.
fn make_parent(
    lower: BorrowedFd<'_>,
    path: &RelPath,
    at: BorrowedFd<'_>,
    name: &[u8],
) -> io::Result<OwnedFd> {
    let source = dir_beneath(lower, path)?;
    nix::sys::stat::mkdirat(at, name, Mode::S_IRWXU)?;
    let made = open_beneath(at, name)?;
    let node = read::stat_fd(source.as_fd())?;
    copy::carry(source.as_fd(), made.as_fd(), &node, Into::Upper)?;
    Ok(made)
}
