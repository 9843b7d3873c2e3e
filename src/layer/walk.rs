//! Walks an upper, whatever wrote it. Knows every vocabulary of whiteouts and opaque marks; never
//! follows a link, never crosses a mount, never changes anything.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::read::{self, Seen, Side};
use super::tree::{self, dir_beneath};
use super::{AccessError, FileType, UpperEntry};
use crate::RelPath;

/// Directories held open at once on the way down; deeper trees are opened again on the way up.
const OPEN_AT_ONCE: usize = 64;

/// Longest path that is reported. Names cost memory for every level, and an agent can make levels
/// without end.
const LONGEST_PATH: usize = 64 * 1024;

/// A directory being walked.
struct Frame {
    path: RelPath,
    fd: Option<OwnedFd>,
    names: std::vec::IntoIter<Vec<u8>>,
    xattr_whiteouts: bool,
    inode: (u64, u64),
}

/// Every entry of the upper behind `root`, parents first, siblings in byte order; the root itself
/// is the first.
///
/// An entry that vanishes during the walk is left out. A directory that cannot be read is an
/// error: a change set that is silently incomplete would be worse than none.
pub fn walk_upper(root: BorrowedFd<'_>) -> Result<Vec<UpperEntry>, AccessError> {
    let top = RelPath::root();
    let seen = read::read_entry(root, b"", Side::Upper)
        .map_err(|e| AccessError::io("reading", &top, &e))?
        .ok_or_else(|| AccessError::io("reading", &top, &io::ErrorKind::NotFound.into()))?;
    let child =
        frame(root, b"", top.clone(), &seen).map_err(|e| AccessError::io("listing", &top, &e))?;
    let device = seen.node.dev;
    let mut found = vec![entry(top, seen, false)];
    descend(root, device, child, &mut found)?;
    Ok(found)
}

/// The entries at these paths, in this order, as [`walk_upper`] would report them: one that is not
/// there is left out, and of a directory marked `true` everything below follows it.
pub fn look_upper(
    root: BorrowedFd<'_>,
    paths: &[(RelPath, bool)],
) -> Result<Vec<UpperEntry>, AccessError> {
    let mut found = Vec::with_capacity(paths.len());
    // Siblings come one after another: their directory is opened once.
    let mut at: Option<(RelPath, Option<Parent>)> = None;
    for (path, deep) in paths {
        let parent = path.parent().unwrap_or_default();
        if at.as_ref().is_none_or(|(known, _)| *known != parent) {
            let opened = match Parent::open(root, &parent) {
                Err(e) if tree::is_absent(&e) => None,
                other => Some(other.map_err(|e| AccessError::io("opening", &parent, &e))?),
            };
            at = Some((parent, opened));
        }
        let Some(dir) = at.as_ref().and_then(|(_, dir)| dir.as_ref()) else {
            continue;
        };
        let name = path.file_name().unwrap_or_default();
        let Some(seen) = read::read_entry(dir.fd.as_fd(), name, Side::Upper)
            .map_err(|e| AccessError::io("reading", path, &e))?
        else {
            continue;
        };
        let below = *deep && seen.node.file_type == FileType::Dir && seen.node.dev == dir.device;
        let child = if below {
            match frame(dir.fd.as_fd(), name, path.clone(), &seen) {
                Ok(child) => Some(child),
                Err(e) if gone(&e) => continue,
                Err(e) => return Err(AccessError::io("listing", path, &e)),
            }
        } else {
            None
        };
        found.push(entry(path.clone(), seen, dir.xattr_whiteouts));
        if let Some(child) = child {
            descend(root, dir.device, child, &mut found)?;
        }
    }
    Ok(found)
}

/// The directory that holds what is looked at.
struct Parent {
    fd: OwnedFd,
    device: u64,
    xattr_whiteouts: bool,
}

impl Parent {
    fn open(root: BorrowedFd<'_>, path: &RelPath) -> io::Result<Self> {
        let fd = dir_beneath(root, path)?;
        let seen = read::read_entry(fd.as_fd(), b"", Side::Upper)?
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Self {
            fd,
            device: seen.node.dev,
            xattr_whiteouts: seen.marks.xattr_whiteouts,
        })
    }
}

/// Everything below a directory, on its own file system.
fn descend(
    root: BorrowedFd<'_>,
    device: u64,
    top: Frame,
    found: &mut Vec<UpperEntry>,
) -> Result<(), AccessError> {
    let mut stack = vec![top];
    while let Some(current) = stack.last_mut() {
        let Some(name) = current.names.next() else {
            stack.pop();
            continue;
        };
        let path = current.path.join(&name);
        if current.fd.is_none() {
            match reopen(root, current) {
                Ok(Some(fd)) => current.fd = Some(fd),
                // Moved away while we were below it: the move made a hint, the next walk sees it.
                Ok(None) => {
                    stack.pop();
                    continue;
                }
                Err(e) => return Err(AccessError::io("opening", &current.path, &e)),
            }
        }
        let dir = current.fd.as_ref().map_or(root, AsFd::as_fd);
        let Some(seen) = read::read_entry(dir, &name, Side::Upper)
            .map_err(|e| AccessError::io("reading", &path, &e))?
        else {
            continue;
        };
        let below = seen.node.file_type == FileType::Dir && seen.node.dev == device;
        let child = if below {
            if path.as_bytes().len() > LONGEST_PATH {
                let error = io::Error::from_raw_os_error(libc::ENAMETOOLONG);
                return Err(AccessError::io("walking", &path, &error));
            }
            match frame(dir, &name, path.clone(), &seen) {
                Ok(child) => Some(child),
                Err(e) if gone(&e) => continue,
                Err(e) => return Err(AccessError::io("listing", &path, &e)),
            }
        } else {
            None
        };
        let marked = current.xattr_whiteouts;
        found.push(entry(path, seen, marked));
        if let Some(child) = child {
            if stack.len() >= OPEN_AT_ONCE {
                let oldest = stack.len() - OPEN_AT_ONCE;
                stack[oldest].fd = None;
            }
            stack.push(child);
        }
    }
    Ok(())
}

fn frame(dir: BorrowedFd<'_>, name: &[u8], path: RelPath, seen: &Seen) -> io::Result<Frame> {
    let fd = read::open_dir(dir, name)?;
    let names = read::list(fd.as_fd())?.into_iter();
    Ok(Frame {
        path,
        fd: Some(fd),
        names,
        xattr_whiteouts: seen.marks.xattr_whiteouts,
        inode: (seen.node.dev, seen.node.ino),
    })
}

/// Opens a directory again whose descriptor was given up; `None` if another one lies there now.
fn reopen(root: BorrowedFd<'_>, frame: &Frame) -> io::Result<Option<OwnedFd>> {
    let fd = match dir_beneath(root, &frame.path) {
        Err(e) if gone(&e) => return Ok(None),
        other => other?,
    };
    let now = read::stat_fd(fd.as_fd())?;
    Ok(((now.dev, now.ino) == frame.inode).then_some(fd))
}

fn gone(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)
    )
}

fn entry(path: RelPath, seen: Seen, in_marked_dir: bool) -> UpperEntry {
    let node = seen.node;
    let origin = seen.marks.origin.as_deref();
    let by_device = node.file_type == FileType::Device
        && node.rdev == 0
        // A block device 0/0 has the same number but hides nothing; its mode bits tell.
        && seen.char_device;
    let by_attribute =
        in_marked_dir && seen.marks.whiteout && node.file_type == FileType::File && node.size == 0;
    UpperEntry {
        opaque: seen.marks.opaque && node.file_type == FileType::Dir,
        whiteout: by_device || by_attribute,
        origin: origin
            .filter(|_| node.file_type == FileType::Dir)
            .and_then(|origin| RelPath::new(origin).ok()),
        born: seen.born,
        path,
        node: Arc::new(node),
    }
}
