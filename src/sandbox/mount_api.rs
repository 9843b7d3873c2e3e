//! The kernel's descriptor-based mount calls, thinly. Owns their `unsafe`; decides nothing.
//!
//! Sources: open_tree(2), move_mount(2), fsopen(2), fsconfig(2), fsmount(2), mount_setattr(2).

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::NixPath;
use nix::errno::Errno;

/// No writing through the mount.
pub(super) const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
/// No setuid programs and no device nodes: in force on every mount but `/dev`'s nodes.
pub(super) const TAME: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
/// No setuid programs.
pub(super) const NO_SETUID: u64 = libc::MOUNT_ATTR_NOSUID;
/// No programs at all.
pub(super) const NO_EXEC: u64 = libc::MOUNT_ATTR_NOEXEC;

/// An option of a new mount.
pub(super) enum MountOption<'a> {
    /// `name`
    Flag(&'a CStr),
    /// `name=value`
    Value(&'a CStr, CString),
}

/// Why a file system could not be mounted.
#[derive(Debug)]
pub(super) struct MountFailure {
    /// The errno.
    pub errno: Errno,
    /// What the kernel added in its own words; often empty.
    pub log: String,
}

/// The current directory, as an origin of relative paths.
pub(super) fn here() -> BorrowedFd<'static> {
    // SAFETY: AT_FDCWD is not a descriptor that can be closed; the kernel knows it as the current
    // directory for as long as the process lives.
    unsafe { BorrowedFd::borrow_raw(libc::AT_FDCWD) }
}

fn owned(result: libc::c_long) -> Result<OwnedFd, Errno> {
    let fd = Errno::result(result)?;
    // SAFETY: the call just returned this new descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// A detached copy of the mount at `path`, with everything mounted below it when `recursive`.
pub(super) fn clone_mount(
    dir: BorrowedFd<'_>,
    path: &Path,
    recursive: bool,
) -> Result<OwnedFd, Errno> {
    let mut flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= libc::AT_RECURSIVE as u32;
    }
    if path.as_os_str().is_empty() {
        flags |= libc::AT_EMPTY_PATH as u32;
    }
    path.with_nix_path(|path| {
        // SAFETY: `path` is NUL-terminated and outlives the call; `dir` is open.
        owned(unsafe { libc::syscall(libc::SYS_open_tree, dir.as_raw_fd(), path.as_ptr(), flags) })
    })?
}

/// Puts a detached mount on top of what `target` (any descriptor, `O_PATH` too) refers to.
pub(super) fn attach(mount: BorrowedFd<'_>, target: BorrowedFd<'_>) -> Result<(), Errno> {
    let empty = c"";
    // SAFETY: both paths are the empty NUL-terminated string; both descriptors are open.
    Errno::result(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            empty.as_ptr(),
            target.as_raw_fd(),
            empty.as_ptr(),
            libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH,
        )
    })
    .map(drop)
}

/// Adds attributes to a mount, or to a whole tree of mounts; `private` also cuts it off from mount
/// events of other namespaces.
pub(super) fn restrict(
    mount: BorrowedFd<'_>,
    set: u64,
    recursive: bool,
    private: bool,
) -> Result<(), Errno> {
    let attributes = libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation: if private { libc::MS_PRIVATE } else { 0 },
        userns_fd: 0,
    };
    let mut flags = libc::AT_EMPTY_PATH;
    if recursive {
        flags |= libc::AT_RECURSIVE;
    }
    // SAFETY: the structure lives through the call and its size is passed along.
    Errno::result(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

/// A new, detached mount of file system `kind`.
pub(super) fn new_mount(
    kind: &CStr,
    options: &[MountOption<'_>],
    attributes: u64,
) -> Result<OwnedFd, MountFailure> {
    let plain = |errno| MountFailure {
        errno,
        log: String::new(),
    };
    // SAFETY: `kind` is NUL-terminated and outlives the call.
    let context =
        owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), libc::FSOPEN_CLOEXEC) })
            .map_err(plain)?;
    configure_and_mount(&context, options, attributes).map_err(|errno| MountFailure {
        errno,
        log: kernel_log(&context),
    })
}

fn configure_and_mount(
    context: &OwnedFd,
    options: &[MountOption<'_>],
    attributes: u64,
) -> Result<OwnedFd, Errno> {
    for option in options {
        let (command, key, value) = match option {
            MountOption::Flag(key) => (libc::FSCONFIG_SET_FLAG, key.as_ptr(), std::ptr::null()),
            MountOption::Value(key, value) => {
                (libc::FSCONFIG_SET_STRING, key.as_ptr(), value.as_ptr())
            }
        };
        configure(context, command, key, value)?;
    }
    configure(
        context,
        libc::FSCONFIG_CMD_CREATE,
        std::ptr::null(),
        std::ptr::null(),
    )?;
    // SAFETY: `context` is an open file system context; the flags are plain numbers.
    owned(unsafe {
        libc::syscall(
            libc::SYS_fsmount,
            context.as_raw_fd(),
            libc::FSMOUNT_CLOEXEC,
            attributes as libc::c_uint,
        )
    })
}

fn configure(
    context: &OwnedFd,
    command: libc::c_uint,
    key: *const libc::c_char,
    value: *const libc::c_char,
) -> Result<(), Errno> {
    // SAFETY: `key` and `value` are null or NUL-terminated strings held by the caller through the
    // call, as the command demands.
    Errno::result(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            command,
            key,
            value,
            0,
        )
    })
    .map(drop)
}

/// What the kernel logged into a file system context, one message after the other.
fn kernel_log(context: &OwnedFd) -> String {
    let mut messages = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(length @ 1..) = nix::unistd::read(context, &mut buffer) {
        // Messages carry a level in front: `e `, `w ` or `i `.
        let text = buffer.get(2..length).unwrap_or_default();
        messages.push(crate::text::visible(text.trim_ascii_end()).into_owned());
    }
    messages.join("; ")
}

/// Makes the attached mount behind `root` the root directory of this mount namespace and lets go
/// of the old one.
pub(super) fn pivot_into(root: impl AsFd) -> Result<(), Errno> {
    nix::unistd::fchdir(root)?;
    // Old and new root may be the same directory: the old one then lies on top and is taken off
    // (pivot_root(2), NOTES).
    nix::unistd::pivot_root(".", ".")?;
    nix::mount::umount2(".", nix::mount::MntFlags::MNT_DETACH)?;
    nix::unistd::chdir("/")
}
