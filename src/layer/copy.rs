//! Copies entries between directories by descriptor. Owns how content, holes, mode,
//! attributes and times are carried over; used on merged views and on uppers that are not mounted,
//! never on a host's tree.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, UtimensatFlags};
use nix::sys::time::TimeSpec;

use super::content::copy_bytes;
use super::read;
use super::{FileType, Node, Timestamp};

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

/// Gives a directory of a mounted view the attributes, mode and modification time of another one.
pub(crate) fn carry_merged(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    node: &Node,
) -> io::Result<()> {
    carry(source, target, node, Into::Merged)
}

pub(super) fn stored_name(name: Vec<u8>, into: Into) -> Vec<u8> {
    match (into, name.strip_prefix(b"user.overlay.")) {
        (Into::Upper, Some(rest)) => [b"user.overlay.overlay.", rest].concat(),
        _ => name,
    }
}

/// Mode and time of an entry that must not be opened.
fn carry_node(dir: BorrowedFd<'_>, name: &[u8], node: &Node) -> io::Result<()> {
    set_mode_at(dir, name, node.mode)?;
    set_times_at(dir, name, node)
}

/// `fchmodat2` (Linux 6.6): the same number on every architecture we build for.
const SYS_FCHMODAT2: libc::c_long = 452;

/// The mode of the entry `name` of `dir`, which is no link.
///
/// The C library's way not to follow links leads through `/proc`, which a namespace may not have;
/// it is the fallback for older kernels.
pub(crate) fn set_mode_at(dir: BorrowedFd<'_>, name: &[u8], mode: u32) -> io::Result<()> {
    let c_name = std::ffi::CString::new(name)?;
    // SAFETY: the descriptor is borrowed for the call, the name ends in NUL.
    let result = unsafe {
        libc::syscall(
            SYS_FCHMODAT2,
            dir.as_raw_fd(),
            c_name.as_ptr(),
            mode,
            libc::AT_SYMLINK_NOFOLLOW,
        )
    };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    // ENOSYS from old kernels, EPERM also from filters that do not know the call.
    if !matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) {
        return Err(error);
    }
    let mode = Mode::from_bits_truncate(mode);
    nix::sys::stat::fchmodat(dir, name, mode, FchmodatFlags::NoFollowSymlink)?;
    Ok(())
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

/// The modification time of an open file; that of the last access stays.
pub(super) fn set_mtime(target: BorrowedFd<'_>, time: Timestamp) -> io::Result<()> {
    Ok(nix::sys::stat::futimens(
        target,
        &TimeSpec::UTIME_OMIT,
        &spec(time),
    )?)
}

fn mtime(node: &Node) -> TimeSpec {
    spec(node.mtime)
}

fn spec(time: Timestamp) -> TimeSpec {
    TimeSpec::new(time.sec, i64::from(time.nsec))
}

pub(super) fn set_xattr(fd: BorrowedFd<'_>, name: &[u8], value: &[u8]) -> io::Result<()> {
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

pub(super) fn remove_xattr(fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
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
