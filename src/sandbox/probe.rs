//! Why this machine refuses a sandbox, and what mends it. Owns the reading of errnos and kernel
//! settings; [`crate::doctor`] really tries the steps and explains what failed with these words.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::{Mode, SFlag, mknodat};
use nix::sys::statfs::{FsType, fstatfs};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::failure::{Failure, shown};
use super::mount_api::MountFailure;

const ELSEWHERE: &str =
    "keep the sessions on ext4, xfs, btrfs or tmpfs: `--state-dir DIR` or XDG_STATE_HOME";

/// Cause and remedy.
pub(super) type Diagnosis = (String, Option<String>);

/// Every kernel setting that matters, by its path below `/proc/sys`.
fn setting(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
    text.trim().parse().ok()
}

/// Ubuntu since 23.10 lets everybody make a user namespace, and then allows nothing in it.
fn apparmor_restricts() -> bool {
    setting("kernel/apparmor_restrict_unprivileged_userns") == Some(1)
}

const APPARMOR_HINT: &str = "allow it with `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or give \
     pvisor-tui an AppArmor profile that contains `userns,`";

/// An errno of any step after the user namespace was made.
pub(super) fn explain(errno: Errno) -> Diagnosis {
    let cause = errno.desc().to_owned();
    match errno {
        Errno::EPERM | Errno::EACCES if apparmor_restricts() => (
            format!(
                "{cause}: AppArmor restricts unprivileged user namespaces \
                 (kernel.apparmor_restrict_unprivileged_userns is 1)"
            ),
            Some(APPARMOR_HINT.into()),
        ),
        Errno::ENOSYS => (
            format!("{cause}: the kernel is too old, or a container forbids the call"),
            Some("Linux 5.12 or newer is needed".into()),
        ),
        Errno::ENOSPC => (
            format!("{cause}: a limit below /proc/sys/user is reached, or the disk is full"),
            Some("`pvisor-tui doctor` names the limit".into()),
        ),
        _ => (cause, None),
    }
}

/// The kernel refused a user namespace.
pub(super) fn user_namespace_refused(errno: Errno) -> Failure {
    let failure = |cause: &str| {
        Failure::new(
            "making a user namespace",
            format!("{}: {cause}", errno.desc()),
        )
    };
    match errno {
        Errno::ENOSPC | Errno::EUSERS => match setting("user/max_user_namespaces") {
            Some(0) => failure(
                "user namespaces are switched off (/proc/sys/user/max_user_namespaces is 0)",
            )
            .hint("switch them on with `sudo sysctl user.max_user_namespaces=15000`"),
            limit => failure(&format!(
                "the limit of {} user namespaces is reached, or they are nested too deeply",
                limit.unwrap_or_default()
            ))
            .hint("raise it with `sudo sysctl user.max_user_namespaces=60000`"),
        },
        Errno::EPERM | Errno::EACCES
            if setting("kernel/unprivileged_userns_clone") == Some(0) =>
        {
            failure("unprivileged user namespaces are switched off (kernel.unprivileged_userns_clone is 0)")
                .hint("switch them on with `sudo sysctl kernel.unprivileged_userns_clone=1`")
        }
        Errno::EPERM | Errno::EACCES if apparmor_restricts() => failure(
            "AppArmor restricts them (kernel.apparmor_restrict_unprivileged_userns is 1)",
        )
        .hint(APPARMOR_HINT),
        Errno::EPERM | Errno::EACCES => failure(
            "a container's seccomp profile, a security module or a chroot forbids them",
        )
        .hint("in a container, start it with `--security-opt seccomp=unconfined`"),
        Errno::EINVAL | Errno::ENOSYS => failure("the kernel is built without user namespaces")
            .hint("use a kernel with CONFIG_USER_NS"),
        _ => failure("the system gave no further reason"),
    }
}

/// The kernel refused an overlay whose upper is `upper`.
pub(super) fn overlay_refused(
    upper: BorrowedFd<'_>,
    dir: &Path,
    failure: &MountFailure,
) -> Diagnosis {
    let log = if failure.log.is_empty() {
        String::new()
    } else {
        format!(" ({})", failure.log)
    };
    let cause = format!("{}{log}", failure.errno.desc());
    if let Some((name, reason)) = unfit(upper) {
        return (
            format!("{cause}: {} is on {name}, {reason}", shown(dir)),
            Some(ELSEWHERE.into()),
        );
    }
    match failure.errno {
        Errno::ENODEV => (
            format!("{cause}: the kernel has no overlayfs"),
            Some("load it with `sudo modprobe overlay`".into()),
        ),
        Errno::EPERM | Errno::EACCES if !apparmor_restricts() => (
            format!("{cause}: overlays in user namespaces need Linux 5.11 or newer"),
            Some("use a newer kernel".into()),
        ),
        errno @ (Errno::EPERM | Errno::EACCES | Errno::ENOSYS) => explain(errno),
        _ => (cause, None),
    }
}

/// Tries what our own overlay file system writes into an upper: a whiteout and an attribute.
pub(super) fn holds_marks(upper: BorrowedFd<'_>, dir: &Path) -> Result<(), Failure> {
    // Known ones need no trial.
    let Some((name, _)) = unfit(upper) else {
        return Ok(());
    };
    let trial = format!(".pvisor-tui-{}", std::process::id());
    let made = mknodat(upper, trial.as_str(), SFlag::S_IFCHR, Mode::empty(), 0).and_then(|()| {
        unlinkat(upper, trial.as_str(), UnlinkatFlags::NoRemoveDir)?;
        let path = format!("/proc/self/fd/{}", upper.as_raw_fd());
        xattr::set(&path, "user.overlay.trial", b"y")
            .and_then(|()| xattr::remove(&path, "user.overlay.trial"))
            .map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))
    });
    made.map_err(|errno| {
        Failure::new(
            format!("keeping changes in {}", shown(dir)),
            format!("{}: {name} cannot hold an overlay's marks", errno.desc()),
        )
        .hint(ELSEWHERE)
    })
}

/// File systems an upper cannot lie on, by name and reason.
pub(super) fn unfit(dir: BorrowedFd<'_>) -> Option<(&'static str, &'static str)> {
    const NO_NESTING: &str = "on which no further overlay can write";
    const NO_SUPPORT: &str = "which cannot hold an overlay's marks";
    let kind = fstatfs(dir).ok()?.filesystem_type();
    let known: [(FsType, &str, &str); 6] = [
        (
            nix::sys::statfs::OVERLAYFS_SUPER_MAGIC,
            "overlayfs",
            NO_NESTING,
        ),
        (nix::sys::statfs::NFS_SUPER_MAGIC, "NFS", NO_SUPPORT),
        (nix::sys::statfs::FUSE_SUPER_MAGIC, "FUSE", NO_SUPPORT),
        (nix::sys::statfs::MSDOS_SUPER_MAGIC, "vfat", NO_SUPPORT),
        (FsType(0x0102_1997), "9p", NO_SUPPORT),
        (FsType(0x2011_bab0), "exfat", NO_SUPPORT),
    ];
    known
        .into_iter()
        .find(|(magic, _, _)| *magic == kind)
        .map(|(_, name, reason)| (name, reason))
}
