//! Uppers by plain system calls, with this process's own rights. Owns nothing but descriptors; for
//! layers that are **not mounted** (it edits uppers), and for tests.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::OFlag;

use super::overwrite::{Overwrite, overwrite_unmounted};
use super::read::open_file;
use super::restore::restore_unmounted;
use super::tree::{Tree, resolve};
use super::walk::{look_upper, walk_upper};
use super::{AccessError, Layer, StageAccess, UpperEntry};
use crate::RelPath;

/// Access without a helper. An entry that its mode closes to us cannot be read.
#[derive(Debug)]
pub struct DirectAccess {
    layers: BTreeMap<String, Trees>,
}

#[derive(Debug)]
struct Trees {
    lower: Tree,
    upper: Tree,
}

impl DirectAccess {
    /// Opens lower and upper of every layer.
    pub fn open(layers: &[Layer]) -> Result<Self, AccessError> {
        let open = |path: &std::path::Path| {
            Tree::open(path).map_err(|e| AccessError::Io {
                doing: "opening".into(),
                path: path.to_owned(),
                message: e.to_string(),
                errno: e.raw_os_error().unwrap_or(0),
            })
        };
        let mut found = BTreeMap::new();
        for layer in layers {
            let trees = Trees {
                lower: open(&layer.root)?,
                upper: open(&layer.upper())?,
            };
            found.insert(layer.name.clone(), trees);
        }
        Ok(Self { layers: found })
    }

    fn trees(&self, layer: &str) -> Result<&Trees, AccessError> {
        self.layers
            .get(layer)
            .ok_or_else(|| AccessError::NoLayer(layer.to_owned()))
    }
}

impl StageAccess for DirectAccess {
    fn walk(&self, layer: &str) -> Result<Vec<UpperEntry>, AccessError> {
        walk_upper(self.trees(layer)?.upper.root())
    }

    fn look(&self, layer: &str, paths: &[(RelPath, bool)]) -> Result<Vec<UpperEntry>, AccessError> {
        look_upper(self.trees(layer)?.upper.root(), paths)
    }

    fn open(&self, layer: &str, path: &RelPath) -> Result<OwnedFd, AccessError> {
        open_regular(self.trees(layer)?.upper.root(), path)
    }

    fn restore(&self, layer: &str, path: &RelPath) -> Result<(), AccessError> {
        let trees = self.trees(layer)?;
        restore_unmounted(trees.lower.root(), trees.upper.root(), path)
    }

    fn overwrite(&self, layer: &str, path: &RelPath, new: &Overwrite) -> Result<(), AccessError> {
        overwrite_unmounted(self.trees(layer)?.upper.root(), path, new)
    }

    fn sync(&self, layer: &str) -> Result<(), AccessError> {
        nix::unistd::syncfs(self.trees(layer)?.upper.root().as_fd())
            .map_err(|e| AccessError::io("syncing", &RelPath::root(), &e.into()))
    }
}

/// Opens a regular file of an upper for reading: what [`StageAccess::open`] promises. The
/// directories on the way need not be readable.
pub fn open_regular(upper: BorrowedFd<'_>, path: &RelPath) -> Result<OwnedFd, AccessError> {
    let parent = path.parent().unwrap_or_default();
    resolve(upper, &parent, OFlag::O_PATH)
        .and_then(|dir| open_file(dir.as_fd(), path.file_name().unwrap_or_default()))
        .map(OwnedFd::from)
        .map_err(|e| AccessError::io("opening", path, &e))
}
