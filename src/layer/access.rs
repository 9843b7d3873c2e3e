//! The one door to a session's uppers. Owns the contract; who stands behind it is the helper
//! process in the session's namespaces, or plain system calls where that is enough.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Node, Overwrite, Timestamp};
use crate::RelPath;

/// One entry of an upper, as a walk reports it. Parents come before their children.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpperEntry {
    /// Path below the layer's root; the root itself is reported first.
    pub path: RelPath,
    /// What lies there (for a whiteout: the device node itself). Content is not read.
    pub node: Arc<Node>,
    /// The lower's entry of this name is deleted (character device 0/0, or an xattr whiteout).
    pub whiteout: bool,
    /// A directory that hides everything of the lower's directory of this name.
    pub opaque: bool,
    /// Of a directory: where the host has what it was made of (see [`super::origin`]).
    pub origin: Option<RelPath>,
    /// When the upper's inode was made, if the file system tells.
    pub born: Option<Timestamp>,
}

/// Why a stage could not be read or put back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum AccessError {
    /// A system call failed.
    #[error("{doing} {}: {message}", crate::text::visible_path(path))]
    Io {
        /// What was attempted, e.g. `reading`.
        doing: String,
        /// The path it was attempted on.
        #[serde(with = "crate::path::exact_path")]
        path: PathBuf,
        /// The system's words.
        message: String,
        /// The raw errno, 0 when unknown.
        errno: i32,
    },
    /// The helper process is gone; the uppers can still be read after the session was re-opened.
    #[error("the session's helper process has ended")]
    HelperGone,
    /// No layer of this name.
    #[error("no layer is named {0:?}")]
    NoLayer(String),
}

impl AccessError {
    /// A failed system call on a path of a layer.
    pub fn io(doing: &str, path: &RelPath, error: &std::io::Error) -> Self {
        AccessError::Io {
            doing: doing.to_owned(),
            path: path.as_path().to_owned(),
            message: error.to_string(),
            errno: error.raw_os_error().unwrap_or(0),
        }
    }

    /// Whether something else than a regular file is there (by now).
    pub fn is_replaced(&self) -> bool {
        matches!(
            self,
            AccessError::Io {
                errno: 0 | libc::EINVAL | libc::ENXIO,
                ..
            }
        )
    }

    /// Whether the entry is not there (any more).
    pub fn is_absent(&self) -> bool {
        matches!(
            self,
            AccessError::Io {
                errno: libc::ENOENT | libc::ENOTDIR | libc::ELOOP,
                ..
            }
        )
    }
}

/// Access to the uppers of one session, with the rights of the agent's namespace.
///
/// Implementations never follow a symbolic link in a path's components and never cross a mount.
/// **The upper is never edited while it is mounted**: [`StageAccess::restore`] and
/// [`StageAccess::overwrite`] then work through the merged view.
pub trait StageAccess: Send + Sync {
    /// Every entry of the layer's upper, parents first, siblings in byte order.
    fn walk(&self, layer: &str) -> Result<Vec<UpperEntry>, AccessError>;

    /// The entries at these paths of the layer's upper, in this order; what is not there is left
    /// out. Behind a directory marked `true` everything below it follows, as in a walk.
    fn look(&self, layer: &str, paths: &[(RelPath, bool)]) -> Result<Vec<UpperEntry>, AccessError> {
        let mut walked = self.walk(layer)?;
        walked.retain(|entry| {
            paths
                .iter()
                .any(|(path, deep)| entry.path == *path || *deep && entry.path.is_within(path))
        });
        Ok(walked)
    }

    /// Opens an entry of the upper for reading (regular files only, `O_NOFOLLOW`).
    fn open(&self, layer: &str, path: &RelPath) -> Result<OwnedFd, AccessError>;

    /// Puts `path` back to what the lower holds now, in the agent's view: made again, overwritten
    /// in place or removed, subtree included.
    fn restore(&self, layer: &str, path: &RelPath) -> Result<(), AccessError>;

    /// Gives the file `path`, which the upper has, this content in the agent's view: in place, as
    /// [`StageAccess::restore`] does. Refused where it holds something else than expected.
    fn overwrite(&self, layer: &str, path: &RelPath, new: &Overwrite) -> Result<(), AccessError>;

    /// What the layer's upper takes on its disk, in bytes. Where nobody measures better, the sizes
    /// of its files.
    fn allocated(&self, layer: &str) -> Result<u64, AccessError> {
        Ok(self.walk(layer)?.iter().map(|entry| entry.node.size).sum())
    }

    /// `syncfs` of the upper's file system.
    fn sync(&self, layer: &str) -> Result<(), AccessError>;
}
