//! Layers: what of the host is staged, and where its upper lies. Owns the on-disk format (the
//! kernel's overlayfs format, <https://docs.kernel.org/filesystems/overlayfs.html>) and reads it
//! without following a link or crossing a mount. Never writes to a lower.

pub mod access;
pub(crate) mod content;
mod copy;
pub mod direct;
pub mod dirt;
pub(crate) mod hasher;
pub mod near;
pub mod node;
pub(crate) mod origin;
pub mod overwrite;
pub mod points;
pub mod read;
pub mod remove;
pub mod restore;
pub mod root;
pub mod tree;
pub mod usage;
pub mod walk;

pub use access::{AccessError, StageAccess, UpperEntry};
pub(crate) use copy::{carry_merged, mark_opaque};
pub use direct::DirectAccess;
pub use dirt::Dirt;
pub use near::NearAccess;
pub use node::{Digest, FileType, Node, Timestamp};
pub use overwrite::Overwrite;
pub use tree::Tree;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Name of the layer that holds the workspace.
pub const WORKSPACE: &str = "workspace";
/// Name of the layer that holds the caller's home directory.
pub const HOME: &str = "home";

/// Whether a layer belongs to the caller's home directory: the home itself, or a mount inside it. Its
/// changes are a group of their own that nothing takes along.
pub fn is_of_home(name: &str) -> bool {
    name.strip_prefix(HOME)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Who merges lower and upper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// The kernel's overlayfs inside the session's user namespace.
    Overlayfs,
    /// Our overlay file system over FUSE.
    Fuse,
}

impl Driver {
    /// The name used on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Driver::Overlayfs => "overlayfs",
            Driver::Fuse => "fuse",
        }
    }
}

/// One staged place: a host directory (the lower) and the session's own upper for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Unique within the session: `workspace`, `home`, or a mount's name.
    pub name: String,
    /// The lower: an absolute host path, canonical. It appears inside at the same path.
    #[serde(with = "crate::path::exact_path")]
    pub root: PathBuf,
    /// `<session>/layers/<name>`: holds `upper`, `work` and `base`.
    #[serde(with = "crate::path::exact_path")]
    pub dir: PathBuf,
    /// Who merges it.
    pub driver: Driver,
}

impl Layer {
    /// Where the agent's changes lie.
    pub fn upper(&self) -> PathBuf {
        self.dir.join("upper")
    }

    /// Parent of the work directories, a fresh one per mount.
    pub fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    /// Since when the kernel has been merging this layer, or last did: each mount has a work directory
    /// of its own, made right before. `None` where it never has.
    pub fn merged_by_kernel_since(&self) -> Option<Timestamp> {
        if self.driver != Driver::Overlayfs {
            return None;
        }
        let flags = read::DIR_FLAGS;
        let work = nix::fcntl::open(&self.work(), flags, nix::sys::stat::Mode::empty()).ok()?;
        let names = read::list(work.as_fd()).ok()?;
        let born = names.iter().map(|name| read::born(work.as_fd(), name));
        born.filter_map(|born| born.ok().flatten()).max()
    }

    /// Pre-images kept for conflict checks and merges, and the baseline index.
    pub fn base(&self) -> PathBuf {
        self.dir.join("base")
    }

    /// The path below this layer's root of an absolute host path, when it lies there.
    pub fn relative(&self, host: &Path) -> Option<crate::RelPath> {
        use std::os::unix::ffi::OsStrExt;
        let tail = host.strip_prefix(&self.root).ok()?;
        crate::RelPath::parse(tail.as_os_str().as_bytes()).ok()
    }
}
