//! A FUSE mount of our own, before anybody answers for it. Owns its options; the file system
//! behind it is the file server's.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{getegid, geteuid};

use super::failure::Failure;
use super::mount_api::{MountOption, TAME, new_mount};
use super::probe;

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
    let number =
        |value: &dyn std::fmt::Display| CString::new(value.to_string()).unwrap_or_default();
    let options = [
        MountOption::Value(c"source", c"pvisor-tui".into()),
        MountOption::Value(c"fd", number(&device.as_raw_fd())),
        // A directory; its permissions are asked for like any other's.
        MountOption::Value(c"rootmode", c"40755".into()),
        MountOption::Value(c"user_id", number(&geteuid())),
        MountOption::Value(c"group_id", number(&getegid())),
        // The kernel checks permissions, as on any file system: the server has rights of its own.
        MountOption::Flag(c"default_permissions"),
        // Whoever is in this user namespace: a set-id program is somebody else.
        MountOption::Flag(c"allow_other"),
    ];
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
