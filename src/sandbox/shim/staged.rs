//! The staged layers as the server sees them: by descriptors that nobody inside can move. Owns the
//! questions whether a directory is one of a layer's, where it lies in it, and whether the kernel
//! would refuse to rename it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{Flock, FlockArg, OFlag, openat};
use nix::sys::stat::Mode;

use super::super::failure::{Doing, Failure};
use super::super::view::MountedLayer;
use crate::RelPath;
use crate::layer::read::{self, Side};
use crate::layer::tree::{self, is_absent};
use crate::layer::{FileType, Layer};

/// One layer that the kernel merges.
pub struct Staged {
    /// Its place, as a path inside.
    pub root: RelPath,
    /// Device number of the merged view's directories.
    pub device: u64,
    /// The host's side.
    pub lower: OwnedFd,
    /// The agent's changes.
    pub upper: OwnedFd,
    /// What the agent sees, as it is mounted in the session.
    pub merged: OwnedFd,
    /// The layer's directory on disk, out of every agent's sight.
    pub dir: OwnedFd,
}

impl Staged {
    /// Copies the descriptors of a mounted layer.
    pub fn of(layer: &Layer, mounted: &MountedLayer) -> Result<Option<Self>, Failure> {
        let doing = "keeping a layer for renames";
        let (Some(lower), Some(merged)) = (&mounted.lower, &mounted.merged) else {
            return Ok(None);
        };
        let root = layer.root.as_os_str().as_encoded_bytes();
        let root = RelPath::parse(root.strip_prefix(b"/").unwrap_or(root))
            .map_err(|e| Failure::new(doing, e.to_string()))?;
        Ok(Some(Self {
            root,
            device: read::stat_fd(merged.as_fd()).doing(doing)?.dev,
            lower: lower.try_clone().doing(doing)?,
            upper: mounted.upper.try_clone().doing(doing)?,
            merged: merged.try_clone().doing(doing)?,
            dir: parent_of(mounted.upper.as_fd()).doing(doing)?,
        }))
    }

    /// The descriptors, to be kept at a fork.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 4] {
        [&self.lower, &self.upper, &self.merged, &self.dir].map(AsFd::as_fd)
    }

    /// The path below the layer's root of an absolute path inside.
    pub fn relative(&self, absolute: &[u8]) -> Option<RelPath> {
        let path = RelPath::parse(absolute.strip_prefix(b"/")?).ok()?;
        if !path.is_within(&self.root) {
            return None;
        }
        let skip = match self.root.as_bytes().len() {
            0 => 0,
            length => length + 1,
        };
        RelPath::new(path.as_bytes().get(skip..).unwrap_or_default()).ok()
    }

    /// Whether the directory at `path` shows something of the lower, so that the kernel would
    /// refuse to rename it (`ovl_can_move()` in fs/overlayfs/dir.c).
    pub fn shows_lower(&self, path: &RelPath) -> io::Result<bool> {
        let mut lower = self.lower.try_clone()?;
        let mut upper = Some(self.upper.try_clone()?);
        for name in path.components() {
            lower = match open_place(lower.as_fd(), name) {
                Ok(dir) => dir,
                Err(e) if is_absent(&e) => return Ok(false),
                Err(e) => return Err(e),
            };
            let Some(dir) = &upper else { continue };
            let Some(seen) = read::read_entry(dir.as_fd(), name, Side::Upper)? else {
                upper = None;
                continue;
            };
            if seen.node.file_type != FileType::Dir || seen.marks.opaque {
                return Ok(false);
            }
            upper = Some(open_place(dir.as_fd(), name)?);
        }
        Ok(true)
    }
}

/// A directory as a place to go on from.
fn open_place(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let name = RelPath::new(name).map_err(io::Error::other)?;
    tree::resolve(dir, &name, OFlag::O_PATH)
}

/// The directory that holds a layer's upper.
fn parent_of(upper: BorrowedFd<'_>) -> nix::Result<OwnedFd> {
    openat(upper, "..", read::DIR_FLAGS, Mode::empty())
}

/// Waits until no directory of the layer whose upper this is is being made ready for a rename, and
/// keeps the next one from it as long as what is returned lives.
pub fn hold_still(upper: BorrowedFd<'_>) -> io::Result<(Flock<OwnedFd>, OwnedFd)> {
    let dir = parent_of(upper)?;
    let lock = lock(dir.as_fd(), FlockArg::LockShared)?;
    Ok((lock, dir))
}

/// A lock on the layer's directory, by a description of its own.
pub fn lock(dir: BorrowedFd<'_>, kind: FlockArg) -> io::Result<Flock<OwnedFd>> {
    let mut fd = openat(dir, ".", read::DIR_FLAGS, Mode::empty())?;
    loop {
        match Flock::lock(fd, kind) {
            Ok(lock) => return Ok(lock),
            Err((back, nix::errno::Errno::EINTR)) => fd = back,
            Err((_, errno)) => return Err(errno.into()),
        }
    }
}
