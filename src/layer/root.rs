//! Whether a layer's root still is the place that was staged. Owns the note of it in the layer's
//! directory: a mount that has come or gone since would turn a commit to other files.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Layer;

/// File in a layer's directory.
const NOTE: &str = "root";
const MOUNT: &str = "a mount of its own\n";
const PLAIN: &str = "part of the mount around it\n";

/// Whether the directory is the root of a mount (statx(2), `STATX_ATTR_MOUNT_ROOT`); `None` where
/// the kernel does not tell (before Linux 5.8) or it cannot be looked at.
pub fn is_mount_root(path: &Path) -> Option<bool> {
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: an all-zero statx buffer is valid.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT;
    // SAFETY: the name is NUL-terminated, the buffer a whole statx; both outlive the call.
    let rc = unsafe {
        libc::statx(
            libc::AT_FDCWD,
            name.as_ptr(),
            flags,
            libc::STATX_TYPE,
            &raw mut stat,
        )
    };
    let root = libc::STATX_ATTR_MOUNT_ROOT as u64;
    (rc == 0 && stat.stx_attributes_mask & root != 0).then_some(stat.stx_attributes & root != 0)
}

/// Notes what the root is now. Written once, when the layer is made.
pub fn note(layer: &Layer) -> io::Result<()> {
    match is_mount_root(&layer.root) {
        Some(true) => fs::write(layer.dir.join(NOTE), MOUNT),
        Some(false) => fs::write(layer.dir.join(NOTE), PLAIN),
        None => Ok(()),
    }
}

/// Fails when the root has become a mount of its own, or is none any more. A layer without a note
/// is taken as it is.
pub fn check(layer: &Layer) -> io::Result<()> {
    let was = match fs::read_to_string(layer.dir.join(NOTE)) {
        Ok(text) if text == MOUNT => true,
        Ok(text) if text == PLAIN => false,
        _ => return Ok(()),
    };
    match (was, is_mount_root(&layer.root)) {
        (true, Some(false)) => Err(io::Error::other(
            "it was a mount of its own when the session began and is none now; mount it again",
        )),
        (false, Some(true)) => Err(io::Error::other(
            "something was mounted on it since the session began; unmount it first",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::Driver;

    #[test]
    fn a_root_that_was_a_mount_must_be_one_still() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let layer = Layer {
            name: "workspace".into(),
            root: dir.path().to_owned(),
            dir: dir.path().to_owned(),
            driver: Driver::Overlayfs,
        };
        assert!(check(&layer).is_ok(), "no note, no check");
        note(&layer).expect("noted");
        assert!(check(&layer).is_ok());
        fs::write(dir.path().join(NOTE), MOUNT).expect("writes");
        if is_mount_root(dir.path()) == Some(false) {
            let error = check(&layer).expect_err("it is none");
            assert!(error.to_string().contains("mount it again"), "{error}");
        }
    }
}
