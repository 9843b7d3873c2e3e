//! A FUSE mount of our own, before anybody answers for it. Owns its options; the file system
//! behind it is the file server's.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{getegid, geteuid};

use super::failure::Failure;
use super::mount_api::{MountOption, TAME, new_mount};
use super::probe;
use crate::fuse;

/// A detached mount and the device that answers for it.
pub(super) struct FuseMount {
    /// Where requests arrive. The mount ends when the last copy is closed.
    pub device: OwnedFd,
    /// The mount.
    pub mount: OwnedFd,
}

/// Mounts a file system nobody serves yet. The caller is in the session's user and mount namespace:
/// the kernel wants the device opened and the mount made in the same one (fuse_fill_super()).
pub(super) fn new() -> Result<FuseMount, Failure> {
    let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
    let device = open("/dev/fuse", flags, Mode::empty()).map_err(device_refused)?;
    let wanted = fuse::mount_options(device.as_fd(), geteuid().as_raw(), getegid().as_raw());
    let mut options = vec![MountOption::Value(c"source", c"pvisor-tui".into())];
    options.extend(wanted.into_iter().map(|(name, value)| match value {
        Some(value) => MountOption::Value(name, value),
        None => MountOption::Flag(name),
    }));
    let mount = new_mount(c"fuse", &options, TAME).map_err(|failure| {
        let (cause, hint) = match failure.errno {
            Errno::ENODEV => (
                format!("{}: the kernel has no FUSE", failure.errno.desc()),
                Some("load it with `sudo modprobe fuse`".into()),
            ),
            Errno::EPERM => (
                format!(
                    "{}: FUSE in user namespaces needs Linux 4.18, and a container may forbid it",
                    failure.errno.desc()
                ),
                Some("`--driver overlayfs` does without it".into()),
            ),
            errno => probe::explain(errno),
        };
        Failure {
            doing: "mounting a FUSE file system".into(),
            cause,
            hint,
        }
    })?;
    Ok(FuseMount { device, mount })
}

fn device_refused(errno: Errno) -> Failure {
    let hint = match errno {
        Errno::ENOENT | Errno::ENXIO | Errno::ENODEV => {
            "load the module (`sudo modprobe fuse`); in a container pass `--device /dev/fuse`"
        }
        _ => "everybody must be able to read and write it: `sudo chmod 666 /dev/fuse`",
    };
    Failure::new("opening /dev/fuse", errno.desc()).hint(hint)
}
