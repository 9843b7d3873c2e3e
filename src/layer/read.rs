//! Reads single entries relative to a directory descriptor. Owns how a [`Node`] comes from the
//! file system, on either side of a layer; never follows a link, never opens a pipe or device,
//! never changes anything.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::{FileType, Node, Timestamp};

mod attributes;

pub use attributes::{ACL_ACCESS, ACL_DEFAULT, raw as raw_xattrs};

/// Which vocabulary an entry's attributes are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A host's tree: every attribute stands for itself.
    Plain,
    /// An upper: overlay marks are taken out, the user's own `user.overlay.*` are unescaped.
    Upper,
}

/// Marks of the overlay on an upper's entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marks {
    /// `overlay.opaque=y`: nothing of the lower's directory shows.
    pub opaque: bool,
    /// `overlay.opaque=x`: files in this directory may be whiteouts by attribute.
    pub xattr_whiteouts: bool,
    /// `overlay.whiteout` is set; counts only on an empty file in a directory with the mark above.
    pub whiteout: bool,
    /// Where the host has what this directory was made of, see [`super::origin`].
    pub origin: Option<Vec<u8>>,
}

/// An entry as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What it is; `digest` is not filled in.
    pub node: Node,
    /// When its inode was made, if the file system tells.
    pub born: Option<Timestamp>,
    /// Overlay marks; all false on [`Side::Plain`].
    pub marks: Marks,
    /// A character device ([`FileType::Device`] holds block devices too).
    pub char_device: bool,
}

/// What one `statx` tells.
struct Stat {
    node: Node,
    born: Option<Timestamp>,
    char_device: bool,
}

/// The entry `name` of `dir` (the directory itself for an empty name) with target and attributes;
/// `None` if there is none.
pub fn read_entry(dir: BorrowedFd<'_>, name: &[u8], side: Side) -> io::Result<Option<Seen>> {
    let Some(Stat {
        mut node,
        born,
        char_device,
    }) = stat_born(dir, name)?
    else {
        return Ok(None);
    };
    let mut marks = Marks::default();
    match node.file_type {
        FileType::Symlink => {
            let target = match nix::fcntl::readlinkat(dir, name) {
                Err(nix::errno::Errno::ENOENT) => return Ok(None),
                other => other?,
            };
            node.target = Some(std::os::unix::ffi::OsStringExt::into_vec(target));
        }
        FileType::File | FileType::Dir => {
            let raw = match attributes::raw_at(dir, name, node.file_type, side) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                other => other?,
            };
            (node.xattrs, marks) = attributes::sort(raw, side);
        }
        FileType::Fifo | FileType::Socket | FileType::Device => {}
    }
    Ok(Some(Seen {
        node,
        born,
        marks,
        char_device,
    }))
}

/// The host's entry `name` of `dir`, with target and attributes; `None` if there is none.
pub fn read_node(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Node>> {
    Ok(read_entry(dir, name, Side::Plain)?.map(|seen| seen.node))
}

/// What `stat` alone tells of the entry `name` of `dir`: no target, no attributes. `None` if there
/// is none.
pub fn stat(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Node>> {
    Ok(stat_born(dir, name)?.map(|stat| stat.node))
}

/// As [`stat`], of an open descriptor.
pub fn stat_fd(fd: BorrowedFd<'_>) -> io::Result<Node> {
    stat(fd, b"")?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// When the entry `name` of `dir` was made, where its file system knows.
pub fn born(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Timestamp>> {
    Ok(stat_born(dir, name)?.and_then(|stat| stat.born))
}

fn stat_born(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Stat>> {
    let Some(raw) = statx(dir, &c_name(name)?)? else {
        return Ok(None);
    };
    Ok(Some(Stat {
        node: node_of(&raw),
        born: (raw.stx_mask & libc::STATX_BTIME != 0).then(|| time(raw.stx_btime)),
        char_device: u32::from(raw.stx_mode) & libc::S_IFMT == libc::S_IFCHR,
    }))
}

/// The system's own words on the entry `name` of `dir` (on what the descriptor stands for when the
/// name is empty); no link is followed. `None` if there is none.
pub(crate) fn statx(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<libc::statx>> {
    // SAFETY: `statx` is a plain structure of integers; all zero is a valid value.
    let mut buffer: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is borrowed for the call, the name ends in NUL, the buffer is ours.
    let result = unsafe {
        libc::statx(
            dir.as_raw_fd(),
            name.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH | libc::AT_NO_AUTOMOUNT,
            libc::STATX_BASIC_STATS | libc::STATX_BTIME | libc::STATX_MNT_ID,
            &raw mut buffer,
        )
    };
    if result == 0 {
        return Ok(Some(buffer));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOENT) => Ok(None),
        _ => Err(error),
    }
}

fn time(t: libc::statx_timestamp) -> Timestamp {
    Timestamp {
        sec: t.tv_sec,
        nsec: t.tv_nsec,
    }
}

/// The node of what [`statx`] told: no target, no attributes, no digest.
pub(crate) fn node_of(raw: &libc::statx) -> Node {
    let st_mode = u32::from(raw.stx_mode);
    let file_type = FileType::from_mode(st_mode);
    let device = |major, minor| nix::sys::stat::makedev(u64::from(major), u64::from(minor));
    Node {
        file_type,
        mode: st_mode & 0o7777,
        uid: raw.stx_uid,
        gid: raw.stx_gid,
        // A directory's size says how its file system stores it, nothing about its content.
        size: match file_type {
            FileType::File | FileType::Symlink => raw.stx_size,
            _ => 0,
        },
        mtime: time(raw.stx_mtime),
        ctime: time(raw.stx_ctime),
        dev: device(raw.stx_dev_major, raw.stx_dev_minor),
        ino: raw.stx_ino,
        nlink: raw.stx_nlink,
        rdev: match file_type {
            FileType::Device => device(raw.stx_rdev_major, raw.stx_rdev_minor),
            _ => 0,
        },
        target: None,
        xattrs: std::collections::BTreeMap::new(),
        digest: None,
    }
}

/// Opens the regular file `name` of `dir` for reading. Anything else is refused without having
/// been opened for reading, so that neither a pipe blocks nor a device acts.
pub fn open_file(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<File> {
    let fd = open_unseen(
        dir,
        name,
        OFlag::O_RDONLY
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK
            | OFlag::O_CLOEXEC
            | OFlag::O_NOCTTY,
    )?;
    if stat_fd(std::os::fd::AsFd::as_fd(&fd))?.file_type != FileType::File {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ));
    }
    Ok(File::from(fd))
}

/// Opens an entry so that reading it leaves its access time alone, where it is ours: what is looked
/// at must not change by being looked at.
fn open_unseen(dir: BorrowedFd<'_>, name: &[u8], flags: OFlag) -> nix::Result<OwnedFd> {
    match openat(dir, name, flags | OFlag::O_NOATIME, Mode::empty()) {
        // Somebody else's.
        Err(nix::errno::Errno::EPERM) => openat(dir, name, flags, Mode::empty()),
        other => other,
    }
}

/// The directory again, to read its names: with an offset of its own, which duplicates share, and
/// unseen.
pub(crate) fn to_list(dir: BorrowedFd<'_>) -> io::Result<nix::dir::Dir> {
    Ok(nix::dir::Dir::from_fd(open_unseen(dir, b".", DIR_FLAGS)?)?)
}

/// Opens the directory `name` of `dir` for listing; a link is refused.
pub fn open_dir(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let name: &[u8] = if name.is_empty() { b"." } else { name };
    Ok(openat(dir, name, DIR_FLAGS, Mode::empty())?)
}

/// How directories are opened everywhere here.
pub(crate) const DIR_FLAGS: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

/// The names in a directory, in byte order, without `.` and `..`.
pub fn list(dir: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    let mut stream = to_list(dir)?;
    let mut names = Vec::new();
    for entry in stream.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn c_name(name: &[u8]) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}
