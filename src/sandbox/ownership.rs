//! Which files of a lower the kernel's overlay cannot change although the caller may: with one
//! mapped user and group, a copy-up of a file of anybody else ends in EOVERFLOW. Owns the look at
//! the top of a layer that lets us say so at the start; the rest of the tree is not walked.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{getegid, geteuid};

use super::failure::shown;
use crate::layer::Layer;

/// Entries looked at per layer.
const LOOKED_AT: usize = 256;

/// One sentence when something at the top of the layer's lower is the caller's to write but cannot
/// be written inside. Called from within the user namespace, where foreign ids read as nobody's.
pub(super) fn remark(layer: &Layer) -> Option<String> {
    let first = first_foreign(&layer.root)?;
    Some(format!(
        "{}: {} does not belong to your user and group; the kernel's overlay refuses to change such \
         files (EOVERFLOW), `chown` or `chgrp` them to let an agent write them",
        layer.name,
        shown(&first)
    ))
}

fn first_foreign(root: &Path) -> Option<std::path::PathBuf> {
    let is_foreign = |stat: &Metadata| {
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        // Another owner's file is not an ordinary user's to write outside either.
        stat.gid() != gid && stat.uid() == uid || uid == 0 && stat.uid() != uid
    };
    if fs::symlink_metadata(root).is_ok_and(|stat| is_foreign(&stat)) {
        return Some(root.to_owned());
    }
    let entries = fs::read_dir(root).ok()?.flatten().take(LOOKED_AT);
    let foreign = |entry: &fs::DirEntry| entry.metadata().is_ok_and(|stat| is_foreign(&stat));
    entries.into_iter().find(foreign).map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::Driver;

    #[test]
    fn a_file_of_another_group_is_named() {
        if !geteuid().is_root() {
            eprintln!("skipped: only root can give a file away");
            return;
        }
        let dir = tempfile::tempdir().expect("temporary directory");
        let layer = Layer {
            name: "workspace".into(),
            root: dir.path().to_owned(),
            dir: dir.path().join("layer"),
            driver: Driver::Overlayfs,
        };
        fs::write(dir.path().join("own"), "").expect("writes");
        assert_eq!(remark(&layer), None);
        let other = dir.path().join("other");
        fs::write(&other, "").expect("writes");
        std::os::unix::fs::lchown(&other, None, Some(4242)).expect("chown");
        assert!(remark(&layer).is_some_and(|text| text.contains("other")));
    }
}
