//! Copies and removes entries between directories by descriptor. Owns how content, holes, mode,
//! attributes and times are carried over; used on merged views and on uppers that are not mounted,
//! never on a host's tree.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, UtimensatFlags};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, Whence};

use super::read;
use super::tree::{dir_beneath, open_beneath};
use super::{FileType, Node};
use crate::RelPath;

/// Where a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Into {
    /// A mounted view: attributes are written as they are, the overlay escapes them.
    Merged,
    /// An upper that is not mounted: attributes named like overlay marks are escaped here.
    Upper,
}

/// Levels a recursive copy goes down; each holds two descriptors.
const DEEPEST: usize = 300;

/// Copies the entry `name` of `from` (subtree included) to `name` in `to`, where nothing is.
pub(super) fn copy_entry(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    name: &[u8],
    into: Into,
    depth: usize,
) -> io::Result<()> {
    let Some(node) = read::read_node(from, name)? else {
        return Ok(());
    };
    match node.file_type {
        FileType::Dir => {
            too_deep(depth)?;
            let source = read::open_dir(from, name)?;
            nix::sys::stat::mkdirat(to, name, Mode::S_IRWXU)?;
            let target = read::open_dir(to, name)?;
            for child in read::list(source.as_fd())? {
                copy_entry(source.as_fd(), target.as_fd(), &child, into, depth + 1)?;
            }
            carry(source.as_fd(), target.as_fd(), &node, into)
        }
        FileType::File => {
            let source = read::open_file(from, name)?;
            let target = create(to, name)?;
            copy_bytes(&source, &target, node.size)?;
            carry(source.as_fd(), target.as_fd(), &node, into)
        }
        FileType::Symlink => {
            let link = node.target.as_deref().unwrap_or_default();
            nix::unistd::symlinkat(link, to, name)?;
            set_times_at(to, name, &node)
        }
        FileType::Fifo | FileType::Socket => {
            let kind = if node.file_type == FileType::Fifo {
                SFlag::S_IFIFO
            } else {
                SFlag::S_IFSOCK
            };
            nix::sys::stat::mknodat(to, name, kind, Mode::S_IRUSR | Mode::S_IWUSR, 0)?;
            carry_node(to, name, &node)
        }
        FileType::Device => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "a device cannot be made again here",
        )),
    }
}

/// Fails where a tree is deeper than a copy goes.
pub(super) fn too_deep(depth: usize) -> io::Result<()> {
    if depth < DEEPEST {
        return Ok(());
    }
    Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG))
}

/// Makes a new, private, empty file.
pub(super) fn create(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<File> {
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let fd = openat(dir, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
    Ok(File::from(fd))
}

/// Copies `size` bytes of data from the start, holes as holes; `target` is empty.
pub(crate) fn copy_bytes(source: &File, target: &File, size: u64) -> io::Result<()> {
    let end = i64::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    target.set_len(size)?;
    let mut at = 0;
    while at < end {
        let data = match nix::unistd::lseek(source, at, Whence::SeekData) {
            Ok(data) => data,
            // Nothing but a hole up to the end.
            Err(Errno::ENXIO) => break,
            // A file system that knows no holes: all of it is data.
            Err(Errno::EINVAL) => at,
            Err(e) => return Err(e.into()),
        };
        let hole = match nix::unistd::lseek(source, data, Whence::SeekHole) {
            Ok(hole) => hole.min(end),
            Err(Errno::EINVAL | Errno::ENXIO) => end,
            Err(e) => return Err(e.into()),
        };
        nix::unistd::lseek(source, data, Whence::SeekSet)?;
        nix::unistd::lseek(target, data, Whence::SeekSet)?;
        let length = u64::try_from(hole - data).unwrap_or(0);
        let copied = io::copy(&mut io::Read::take(source, length), &mut &*target)?;
        if copied < length {
            // It became shorter while it was copied: what is there now is what counts.
            target.set_len(u64::try_from(data).unwrap_or(0) + copied)?;
            break;
        }
        at = hole.max(at + 1);
    }
    Ok(())
}

/// Gives `target` the attributes, mode and modification time of `source`.
pub(super) fn carry(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    node: &Node,
    into: Into,
) -> io::Result<()> {
    let wanted: Vec<(Vec<u8>, Vec<u8>)> = read::raw_xattrs(source)?
        .into_iter()
        .filter(|(name, _)| !name.starts_with(b"trusted."))
        .map(|(name, value)| (stored_name(name, into), value))
        .collect();
    let present = read::raw_xattrs(target)?;
    for (name, _) in &present {
        let is_mark = name.starts_with(b"trusted.")
            || into == Into::Upper
                && name.starts_with(b"user.overlay.")
                && !name.starts_with(b"user.overlay.overlay.");
        if !is_mark && !wanted.iter().any(|(w, _)| w == name) {
            remove_xattr(target, name)?;
        }
    }
    for (name, value) in &wanted {
        if !present.iter().any(|(n, v)| n == name && v == value) {
            set_xattr(target, name, value)?;
        }
    }
    nix::sys::stat::fchmod(target, Mode::from_bits_truncate(node.mode))?;
    nix::sys::stat::futimens(target, &TimeSpec::UTIME_OMIT, &mtime(node))?;
    Ok(())
}

fn stored_name(name: Vec<u8>, into: Into) -> Vec<u8> {
    match (into, name.strip_prefix(b"user.overlay.")) {
        (Into::Upper, Some(rest)) => [b"user.overlay.overlay.", rest].concat(),
        _ => name,
    }
}

/// Mode and time of an entry that must not be opened.
fn carry_node(dir: BorrowedFd<'_>, name: &[u8], node: &Node) -> io::Result<()> {
    let mode = Mode::from_bits_truncate(node.mode);
    nix::sys::stat::fchmodat(dir, name, mode, FchmodatFlags::NoFollowSymlink)?;
    set_times_at(dir, name, node)
}

/// Mode and time of an existing pipe or socket.
pub(super) fn carry_special(dir: BorrowedFd<'_>, name: &[u8], node: &Node) -> io::Result<()> {
    carry_node(dir, name, node)
}

/// The modification time of an entry, a link's own included.
pub(super) fn set_times_at(dir: BorrowedFd<'_>, name: &[u8], node: &Node) -> io::Result<()> {
    nix::sys::stat::utimensat(
        dir,
        name,
        &TimeSpec::UTIME_OMIT,
        &mtime(node),
        UtimensatFlags::NoFollowSymlink,
    )?;
    Ok(())
}

fn mtime(node: &Node) -> TimeSpec {
    TimeSpec::new(node.mtime.sec, i64::from(node.mtime.nsec))
}

fn set_xattr(fd: BorrowedFd<'_>, name: &[u8], value: &[u8]) -> io::Result<()> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: the descriptor is borrowed for the call; name ends in NUL; value and length are one
    // slice.
    let result = unsafe {
        libc::fsetxattr(
            fd.as_raw_fd(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn remove_xattr(fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: the descriptor is borrowed for the call; the name ends in NUL.
    let result = unsafe { libc::fremovexattr(fd.as_raw_fd(), name.as_ptr()) };
    match io::Error::last_os_error() {
        _ if result == 0 => Ok(()),
        e if e.raw_os_error() == Some(libc::ENODATA) => Ok(()),
        e => Err(e),
    }
}

/// Marks a directory of an upper that is not mounted as hiding everything of the lower's.
pub(crate) fn mark_opaque(dir: BorrowedFd<'_>) -> io::Result<()> {
    set_xattr(dir, b"user.overlay.opaque", b"y")
}

/// Descriptors a removal holds on the way down.
const OPEN_AT_ONCE: usize = 64;

/// A directory being emptied.
struct Emptied {
    path: RelPath,
    fd: Option<OwnedFd>,
    names: Vec<Vec<u8>>,
}

/// Removes the entry `name` of `dir`, subtree included, however deep; nothing there is fine. Links
/// are removed, not followed; a mount in the way is an error.
pub(super) fn remove_entry(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    match unlink(dir, name, UnlinkatFlags::NoRemoveDir) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EISDIR | libc::EPERM)) => {}
        other => return other,
    }
    let mut stack = vec![emptied(dir, name, RelPath::root())?];
    while let Some(current) = stack.last_mut() {
        let Some(child) = current.names.pop() else {
            let path = current.path.clone();
            stack.pop();
            if let (Some(parent), Some(last)) = (stack.last_mut(), path.file_name()) {
                let fd = descriptor(dir, name, parent)?;
                unlink(fd, last, UnlinkatFlags::RemoveDir)?;
            }
            continue;
        };
        let path = current.path.join(&child);
        let fd = descriptor(dir, name, current)?;
        match unlink(fd, &child, UnlinkatFlags::NoRemoveDir) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EISDIR | libc::EPERM)) => {
                let next = emptied(fd, &child, path)?;
                if stack.len() >= OPEN_AT_ONCE {
                    let oldest = stack.len() - OPEN_AT_ONCE;
                    stack[oldest].fd = None;
                }
                stack.push(next);
            }
            other => other?,
        }
    }
    unlink(dir, name, UnlinkatFlags::RemoveDir)
}

fn unlink(dir: BorrowedFd<'_>, name: &[u8], flag: UnlinkatFlags) -> io::Result<()> {
    match nix::unistd::unlinkat(dir, name, flag) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn emptied(dir: BorrowedFd<'_>, name: &[u8], path: RelPath) -> io::Result<Emptied> {
    let fd = match open_beneath(dir, name) {
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
            // A directory its maker locked: ours to unlock, it is about to go.
            nix::sys::stat::fchmodat(dir, name, Mode::S_IRWXU, FchmodatFlags::NoFollowSymlink)?;
            open_beneath(dir, name)?
        }
        other => other?,
    };
    let node = read::stat_fd(fd.as_fd())?;
    if node.mode & 0o300 != 0o300 {
        // Without the right to write and search nothing in it can be removed.
        let _ = nix::sys::stat::fchmod(&fd, Mode::S_IRWXU);
    }
    let names = read::list(fd.as_fd())?;
    Ok(Emptied {
        path,
        fd: Some(fd),
        names,
    })
}

fn descriptor<'a>(
    top: BorrowedFd<'_>,
    name: &[u8],
    emptied: &'a mut Emptied,
) -> io::Result<BorrowedFd<'a>> {
    if emptied.fd.is_none() {
        let root = open_beneath(top, name)?;
        emptied.fd = Some(dir_beneath(root.as_fd(), &emptied.path)?);
    }
    emptied
        .fd
        .as_ref()
        .map(AsFd::as_fd)
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}
