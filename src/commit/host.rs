//! Every writing system call of a commit, and no other place has one. Owns nothing but the calls;
//! each passes [`super::seam`] first, acts on a [`Place`] and follows no link.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, UtimensatFlags, futimens, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, LinkatFlags, Uid, UnlinkatFlags, linkat, symlinkat, unlinkat};

use super::place::{Place, proc_path};
use super::seam::pass;
use crate::layer::content::share_blocks;
use crate::layer::{FileType, Timestamp};

/// A new, empty file of mode 0600.
pub(super) fn create_file(at: &Place) -> io::Result<File> {
    pass("create")?;
    let flags =
        OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    Ok(File::from(openat(
        &*at.dir,
        at.name.as_c_str(),
        flags,
        mode,
    )?))
}

/// A new directory of mode 0700.
pub(super) fn create_dir(at: &Place) -> io::Result<()> {
    pass("mkdir")?;
    Ok(mkdirat(&*at.dir, at.name.as_c_str(), Mode::S_IRWXU)?)
}

/// A new symbolic link.
pub(super) fn create_link(at: &Place, target: &[u8]) -> io::Result<()> {
    pass("symlink")?;
    Ok(symlinkat(target, &*at.dir, at.name.as_c_str())?)
}

/// A new named pipe of mode 0600.
pub(super) fn create_fifo(at: &Place) -> io::Result<()> {
    pass("mkfifo")?;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    Ok(nix::unistd::mkfifoat(&*at.dir, at.name.as_c_str(), mode)?)
}

/// A second name for a file.
pub(super) fn hard_link(from: &Place, to: &Place) -> io::Result<()> {
    pass("link")?;
    Ok(linkat(
        &*from.dir,
        from.name.as_c_str(),
        &*to.dir,
        to.name.as_c_str(),
        LinkatFlags::empty(),
    )?)
}

/// A second name for a file that is held by an `O_PATH` descriptor, wherever it lies.
pub(super) fn hard_link_held(from: BorrowedFd<'_>, to: &Place) -> io::Result<()> {
    pass("link")?;
    // Without a privilege there is no other way from a descriptor to a name (open(2), O_TMPFILE).
    let link = format!("/proc/self/fd/{}", from.as_raw_fd());
    Ok(linkat(
        nix::fcntl::AT_FDCWD,
        link.as_str(),
        &*to.dir,
        to.name.as_c_str(),
        LinkatFlags::AT_SYMLINK_FOLLOW,
    )?)
}

/// Lets two names change places in one step.
pub(super) fn exchange(a: &Place, b: &Place) -> io::Result<()> {
    pass("exchange")?;
    rename_flags(a, b, libc::RENAME_EXCHANGE)
}

/// Renames; fails with `EEXIST` when the new name is taken.
pub(super) fn rename_new(from: &Place, to: &Place) -> io::Result<()> {
    let outcome = pass("rename").and_then(|()| rename_flags(from, to, libc::RENAME_NOREPLACE));
    match outcome {
        // A file system without the flag (NFS and others): the second best.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => rename_new_by_link(from, to),
        other => other,
    }
}

fn rename_new_by_link(from: &Place, to: &Place) -> io::Result<()> {
    let Some(look) = from.look()? else {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    };
    if look.node.file_type != FileType::Dir {
        match hard_link(from, to) {
            Ok(()) => return unlink(from),
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => return Err(e),
            Err(_) => {}
        }
    }
    if to.look()?.is_some() {
        return Err(io::Error::from_raw_os_error(libc::EEXIST));
    }
    rename_over(from, to)
}

/// Renames over whatever lies at the new name.
pub(super) fn rename_over(from: &Place, to: &Place) -> io::Result<()> {
    pass("rename-over")?;
    rename_flags(from, to, 0)
}

fn rename_flags(from: &Place, to: &Place, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: both names are NUL-terminated and both descriptors open for the call's duration;
    // renameat2 keeps none of them. (By number: not every C library wraps it.)
    let rc = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            from.dir.as_raw_fd(),
            from.name.as_ptr(),
            to.dir.as_raw_fd(),
            to.name.as_ptr(),
            flags,
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Removes a name that is no directory.
pub(super) fn unlink(at: &Place) -> io::Result<()> {
    pass("unlink")?;
    Ok(unlinkat(
        &*at.dir,
        at.name.as_c_str(),
        UnlinkatFlags::NoRemoveDir,
    )?)
}

/// Removes an empty directory.
pub(super) fn remove_dir(at: &Place) -> io::Result<()> {
    pass("rmdir")?;
    Ok(unlinkat(
        &*at.dir,
        at.name.as_c_str(),
        UnlinkatFlags::RemoveDir,
    )?)
}

/// Removes whatever lies here, subtree included; nothing is fine too. Only for entries whose
/// names the ledger holds as this commit's own.
pub(super) fn remove_all(at: &Place) -> io::Result<()> {
    let Some(look) = at.look()? else {
        return Ok(());
    };
    if look.node.file_type != FileType::Dir {
        return unlink(at);
    }
    if look.node.mode & 0o700 != 0o700 {
        set_mode(at.handle()?.as_fd(), 0o700)?;
    }
    let dir = std::sync::Arc::new(at.handle()?);
    for name in at.names()? {
        remove_all(&Place {
            dir: std::sync::Arc::clone(&dir),
            name: std::ffi::CString::new(name)?,
        })?;
    }
    remove_dir(at)
}

/// Writes all of `bytes` at `offset`.
pub(super) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    pass("write")?;
    file.write_all_at(bytes, offset)
}

/// Sets a file's length; what was not written before reads as zeros.
pub(super) fn set_len(file: &File, len: u64) -> io::Result<()> {
    pass("truncate")?;
    file.set_len(len)
}

/// Makes `to` share the blocks of `from`, where the file system can.
pub(super) fn clone_file(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    pass("clone")?;
    share_blocks(from, to)
}

/// Permission bits of whatever `fd` stands for; an `O_PATH` descriptor will do.
pub(super) fn set_mode(fd: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    pass("chmod")?;
    let bits = nix::sys::stat::Mode::from_bits_truncate(mode);
    match nix::sys::stat::fchmod(fd, bits) {
        // An `O_PATH` descriptor, which costs a walk through /proc.
        Err(nix::errno::Errno::EBADF) => {}
        other => return Ok(other?),
    }
    std::fs::set_permissions(proc_path(fd), std::fs::Permissions::from_mode(mode))
}

/// Owner of the entry at a place.
pub(super) fn set_owner(at: &Place, uid: u32, gid: u32) -> io::Result<()> {
    pass("chown")?;
    Ok(nix::unistd::fchownat(
        &*at.dir,
        at.name.as_c_str(),
        Some(Uid::from_raw(uid)),
        Some(Gid::from_raw(gid)),
        AtFlags::AT_SYMLINK_NOFOLLOW,
    )?)
}

fn spec(time: Timestamp) -> TimeSpec {
    TimeSpec::new(time.sec, i64::from(time.nsec))
}

/// Modification time of the entry at a place; the access time stays.
pub(super) fn set_mtime(at: &Place, time: Timestamp) -> io::Result<()> {
    pass("utimens")?;
    Ok(utimensat(
        &*at.dir,
        at.name.as_c_str(),
        &TimeSpec::UTIME_OMIT,
        &spec(time),
        UtimensatFlags::NoFollowSymlink,
    )?)
}

/// Modification time of an open file; the access time stays.
pub(super) fn set_mtime_fd(file: BorrowedFd<'_>, time: Timestamp) -> io::Result<()> {
    pass("utimens")?;
    Ok(futimens(file, &TimeSpec::UTIME_OMIT, &spec(time))?)
}

/// Sets an extended attribute; an `O_PATH` descriptor will do.
pub(super) fn set_xattr(
    fd: BorrowedFd<'_>,
    name: impl AsRef<std::ffi::OsStr>,
    value: &[u8],
) -> io::Result<()> {
    pass("setxattr")?;
    xattr::set_deref(proc_path(fd), name, value)
}

/// Removes an extended attribute; an `O_PATH` descriptor will do.
pub(super) fn remove_xattr(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    pass("removexattr")?;
    xattr::remove_deref(proc_path(fd), name)
}

/// Brings everything written to a file system onto its device.
pub(super) fn sync_file_system(fd: BorrowedFd<'_>) -> io::Result<()> {
    pass("syncfs")?;
    Ok(nix::unistd::syncfs(fd)?)
}

/// Appends to the ledger.
pub(super) fn append(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    pass("ledger")?;
    file.write_all(bytes)
}

/// Brings a file or directory of the store onto its device.
pub(super) fn sync_file(file: &File) -> io::Result<()> {
    pass("fsync")?;
    file.sync_all()
}
