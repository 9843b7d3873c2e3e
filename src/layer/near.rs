//! Uppers read by this process itself as far as its own rights go, and by the helper beyond. Owns
//! that order: most entries are the caller's own and open to it, and asking another process for
//! each of them costs several times what reading it does. Whatever writes goes to the helper.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{AccessError, DirectAccess, Layer, Overwrite, StageAccess, UpperEntry};
use crate::RelPath;

/// See the module.
pub struct NearAccess {
    /// `None` where an upper cannot even be opened from here.
    near: Option<DirectAccess>,
    helper: Arc<dyn StageAccess>,
}

impl NearAccess {
    /// In front of `helper`, for the same layers.
    pub fn new(layers: &[Layer], helper: Arc<dyn StageAccess>) -> Self {
        Self {
            near: DirectAccess::open(layers).ok(),
            helper,
        }
    }

    fn read<T>(
        &self,
        read: impl Fn(&dyn StageAccess) -> Result<T, AccessError>,
    ) -> Result<T, AccessError> {
        let Some(near) = &self.near else {
            return read(&*self.helper);
        };
        match read(near) {
            Err(AccessError::Io {
                errno: libc::EACCES | libc::EPERM,
                ..
            }) => read(&*self.helper),
            other => other,
        }
    }
}

impl StageAccess for NearAccess {
    fn walk(&self, layer: &str) -> Result<Vec<UpperEntry>, AccessError> {
        // By the helper, which sees to it that no rename of a directory is half done meanwhile.
        self.helper.walk(layer)
    }

    fn look(&self, layer: &str, paths: &[(RelPath, bool)]) -> Result<Vec<UpperEntry>, AccessError> {
        self.read(|access| access.look(layer, paths))
    }

    fn open(&self, layer: &str, path: &RelPath) -> Result<OwnedFd, AccessError> {
        self.read(|access| access.open(layer, path))
    }

    fn restore(&self, layer: &str, path: &RelPath) -> Result<(), AccessError> {
        self.helper.restore(layer, path)
    }

    fn overwrite(&self, layer: &str, path: &RelPath, new: &Overwrite) -> Result<(), AccessError> {
        self.helper.overwrite(layer, path, new)
    }

    fn sync(&self, layer: &str) -> Result<(), AccessError> {
        self.helper.sync(layer)
    }
}
