//! Opaque marks before a layer is mounted again.

use std::os::fd::AsFd;

use super::{LayerTracker, failed};
use crate::RelPath;
use crate::change::ChangeError;
use crate::layer::{FileType, StageAccess, Tree, mark_opaque, read};

impl LayerTracker {
    /// See [`super::Tracker::seal`].
    pub fn seal(&mut self, access: &dyn StageAccess) -> Result<(), ChangeError> {
        let entries = access.walk(&self.layer.name)?;
        let upper = Tree::open(&self.layer.upper())
            .map_err(|e| failed("opening", self.layer.upper(), e))?;
        self.host.begin();
        let mut sealed: Option<RelPath> = None;
        for entry in &entries {
            if sealed.as_ref().is_some_and(|top| entry.path.is_within(top)) {
                continue;
            }
            let pure = self.baseline.get(&entry.path).is_some_and(|r| r.pure);
            if entry.node.file_type != FileType::Dir || !pure && !entry.opaque {
                continue;
            }
            // Below an opaque directory nothing of the host can show.
            if entry.opaque {
                sealed = Some(entry.path.clone());
                continue;
            }
            let at = || self.layer.upper().join(entry.path.as_path());
            let host = self
                .host
                .stat(&entry.path)
                .map_err(|e| failed("looking at", at(), e))?;
            if host.is_some_and(|n| n.file_type == FileType::Dir) {
                seal_dir(&upper, &entry.path).map_err(|e| failed("sealing", at(), e))?;
                sealed = Some(entry.path.clone());
            }
        }
        Ok(())
    }
}

/// Marks a directory of the upper as opaque, whatever its mode and its parents' say.
fn seal_dir(upper: &Tree, path: &RelPath) -> std::io::Result<()> {
    use nix::sys::stat::{Mode, fchmod};
    let Some(name) = path.file_name() else {
        return Ok(());
    };
    let parent = upper.parent(path)?;
    let mode = read::stat(parent.as_fd(), name)?.map_or(0o700, |n| n.mode);
    let dir = read::open_dir(parent.as_fd(), name).or_else(|e| {
        if e.raw_os_error() != Some(libc::EACCES) {
            return Err(e);
        }
        nix::sys::stat::fchmodat(
            &parent,
            name,
            Mode::S_IRWXU,
            nix::sys::stat::FchmodatFlags::NoFollowSymlink,
        )?;
        read::open_dir(parent.as_fd(), name)
    })?;
    let closed = mode & 0o300 != 0o300;
    if closed {
        fchmod(&dir, Mode::S_IRWXU)?;
    }
    let marked = mark_opaque(dir.as_fd());
    if closed {
        fchmod(&dir, Mode::from_bits_truncate(mode))?;
    }
    marked
}
