//! One layer merged by the kernel's overlayfs. Owns the mount's options and its directories on
//! disk; does not place it.
//!
//! `userxattr` is what an unprivileged mount must use; it forces redirects and metacopy off, so
//! the upper holds every change in full. `volatile` saves a sync per copied-up file: the session
//! syncs the upper itself. A volatile upper may only be mounted again with a fresh work directory.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;

use super::failure::{Doing, Failure, shown};
use super::mount_api::{MountOption, TAME, new_mount};
use super::{probe, shim};
use crate::layer::Layer;

/// A merged layer, not yet in place.
pub(super) struct Overlay {
    /// The detached mount.
    pub mount: OwnedFd,
    /// The host's directory.
    pub lower: OwnedFd,
    /// The agent's changes.
    pub upper: OwnedFd,
}

/// Opens a directory for reading, or as a mere place where reading it is not allowed.
pub(super) fn open_dir(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    match open(path, flags | OFlag::O_RDONLY, Mode::empty()) {
        Err(Errno::EACCES) => open(path, flags | OFlag::O_PATH, Mode::empty()),
        other => other,
    }
}

/// Mounts `layer`, making its directories where they are missing. The caller is in the session's
/// user and mount namespace.
pub(super) fn mount(layer: &Layer) -> Result<Overlay, Failure> {
    let lower = open_dir(&layer.root).doing_at("opening", &layer.root)?;
    let upper_path = layer.upper();
    make_upper(&upper_path, &layer.root).doing_at("making", &upper_path)?;
    let upper = open_dir(&upper_path).doing_at("opening", &upper_path)?;
    // Tried again whenever the upper is read; nothing is lost meanwhile.
    let _ = shim::mend_unmounted(&layer.dir, upper.as_fd());
    let work_path = fresh_work(&layer.work()).doing_at("making a work directory in", &layer.dir)?;
    let work = open_dir(&work_path).doing_at("opening", &work_path)?;

    let through = |fd: &OwnedFd| {
        CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default()
    };
    let options = [
        // Descriptors stand for paths, whose colons and commas would need escaping.
        MountOption::Value(c"lowerdir", through(&lower)),
        MountOption::Value(c"upperdir", through(&upper)),
        MountOption::Value(c"workdir", through(&work)),
        MountOption::Flag(c"userxattr"),
        MountOption::Flag(c"volatile"),
    ];
    let mount = new_mount(c"overlay", &options, TAME).map_err(|failure| {
        let doing = format!("mounting the overlay of {}", shown(&layer.root));
        let (cause, hint) = probe::overlay_refused(upper.as_fd(), &layer.dir, &failure);
        Failure { doing, cause, hint }
    })?;
    Ok(Overlay {
        mount,
        lower,
        upper,
    })
}

/// The upper's root is what the agent sees as the layer's root: a new one takes over the lower
/// root's mode, times and attributes (default ACLs among them), as far as the owner may set them.
pub fn make_upper(upper: &Path, lower: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(upper)?;
    if std::fs::read_dir(upper)?.next().is_some() {
        return Ok(());
    }
    let wanted = std::fs::metadata(lower)?;
    for name in xattr::list(lower).into_iter().flatten() {
        let bytes = name.as_encoded_bytes();
        let plain = bytes.starts_with(b"user.") && !bytes.starts_with(b"user.overlay.");
        if (plain || bytes.starts_with(b"system.posix_acl_"))
            && let Ok(Some(value)) = xattr::get(lower, &name)
        {
            // Somebody else's ids or a file system without attributes: the root goes without.
            let _ = xattr::set(upper, &name, &value);
        }
    }
    let times = std::fs::FileTimes::new()
        .set_accessed(wanted.accessed()?)
        .set_modified(wanted.modified()?);
    std::fs::File::open(upper)?.set_times(times)?;
    // Last: it may take away the right to open it.
    let mode = wanted.mode() & 0o7777;
    std::fs::set_permissions(upper, std::fs::Permissions::from_mode(mode))
}

/// Makes a new directory in `parent` and removes those of earlier mounts, which hold nothing but
/// the kernel's own traces (mode 000: removable only here, with the namespace's capabilities).
pub(super) fn fresh_work(parent: &Path) -> io::Result<PathBuf> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(parent)?;
    builder.recursive(false);
    let mut next = 1u32;
    for entry in std::fs::read_dir(parent)? {
        let entry = entry?;
        if let Some(number) = entry.file_name().to_str().and_then(|n| n.parse().ok()) {
            next = next.max(u32::saturating_add(number, 1));
            // What stays is in nobody's way: this mount gets a number of its own.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let path = parent.join(next.to_string());
    builder.create(&path)?;
    Ok(path)
}

/// The merged view of an attached overlay.
pub(super) fn merged(mount: &OwnedFd) -> Result<OwnedFd, Errno> {
    openat(
        mount,
        ".",
        OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )
}
