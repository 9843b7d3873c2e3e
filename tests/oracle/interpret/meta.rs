//! Everything about an entry but its content and its name.

use std::fmt::Write;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, UtimensatFlags, fchmodat, fstatat};
use nix::sys::time::TimeSpec;
use nix::unistd::AccessFlags;

use super::{FRESH, Interpreter, Outcome, done, errno, name};
use crate::script::{Acl, Bytes, Op, When};

impl Interpreter {
    pub(super) fn on_meta(&self, op: &Op) -> Outcome {
        match op {
            Op::Chmod { path, mode } => {
                let mode = Mode::from_bits_truncate(*mode);
                fchmodat(self.at(), name(path), mode, FchmodatFlags::FollowSymlink).map(done)
            }
            Op::Chown { path } => {
                let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
                let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
                nix::unistd::fchownat(self.at(), name(path), Some(uid), Some(gid), flags).map(done)
            }
            Op::SetXattr {
                path,
                name: attribute,
                value,
            } => xattr::set_deref(self.full(path), attribute, &value.0)
                .map(done)
                .map_err(|e| errno(&e)),
            Op::RemoveXattr {
                path,
                name: attribute,
            } => xattr::remove_deref(self.full(path), attribute)
                .map(done)
                .map_err(|e| errno(&e)),
            Op::SetAcl { path, default, acl } => {
                let attribute = if *default { DEFAULT } else { ACCESS };
                xattr::set_deref(self.full(path), attribute, &encoded(acl))
                    .map(done)
                    .map_err(|e| errno(&e))
            }
            Op::Utimens {
                path,
                atime,
                mtime,
                follow,
            } => {
                let flag = if *follow {
                    UtimensatFlags::FollowSymlink
                } else {
                    UtimensatFlags::NoFollowSymlink
                };
                let (atime, mtime) = (time(*atime), time(*mtime));
                nix::sys::stat::utimensat(self.at(), name(path), &atime, &mtime, flag).map(done)
            }
            Op::Stat { path, follow } => {
                let flags = if *follow {
                    AtFlags::empty()
                } else {
                    AtFlags::AT_SYMLINK_NOFOLLOW
                };
                Ok(told(&fstatat(self.at(), name(path), flags)?))
            }
            Op::Xattrs { path } => self.attributes(path),
            Op::Access { path, mode } => {
                let wanted = AccessFlags::from_bits_truncate((*mode & 7).cast_signed());
                let flags = AtFlags::AT_EACCESS;
                nix::unistd::faccessat(self.at(), name(path), wanted, flags).map(done)
            }
            _ => Err(Errno::ENOSYS),
        }
    }

    fn attributes(&self, path: &Bytes) -> Outcome {
        // Opened first, so that an answer never mixes two entries.
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        openat(self.at(), name(path), flags, Mode::empty())?;
        let full = self.full(path);
        let mut found = Vec::new();
        for attribute in xattr::list_deref(&full).map_err(|e| errno(&e))? {
            let attribute = attribute.to_string_lossy().into_owned();
            if !attribute.starts_with("user.") && !attribute.starts_with("system.posix_acl") {
                continue;
            }
            let value = match xattr::get_deref(&full, &attribute) {
                Ok(value) => Bytes(value.unwrap_or_default()).to_string(),
                Err(e) => format!("{:?}", errno(&e)),
            };
            found.push(format!("{attribute}={value}"));
        }
        found.sort();
        Ok(found.join(", "))
    }
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// The kernel's form of an access list: a version, then tag, permissions and id of each entry.
fn encoded(acl: &Acl) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    let entries = [
        (0x01, Some(acl.owner), NOBODY),
        (0x02, acl.user, uid.as_raw()),
        (0x04, Some(acl.group), NOBODY),
        (0x08, acl.named_group, gid.as_raw()),
        (0x10, acl.mask, NOBODY),
        (0x20, Some(acl.other), NOBODY),
    ];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        let Some(permissions) = permissions else {
            continue;
        };
        bytes.extend_from_slice(&u16::to_le_bytes(tag));
        bytes.extend_from_slice(&u16::from(permissions).to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

fn time(when: When) -> TimeSpec {
    match when {
        When::Omit => TimeSpec::UTIME_OMIT,
        When::Now => TimeSpec::UTIME_NOW,
        When::At(sec, nsec) => TimeSpec::new(sec, i64::from(nsec)),
    }
}

/// What of a `stat` can be told apart by a program and is the same everywhere: no numbers that a
/// file system chooses, and of times only those that somebody set.
pub(super) fn told(stat: &FileStat) -> String {
    let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
    let sized = kind == SFlag::S_IFREG || kind == SFlag::S_IFLNK;
    let mut text = format!("{:o}", stat.st_mode);
    if sized {
        let _ = write!(text, " size {}", stat.st_size);
    }
    if kind != SFlag::S_IFDIR {
        let _ = write!(text, " names {}", stat.st_nlink);
    }
    let own = (
        stat.st_uid == nix::unistd::geteuid().as_raw(),
        stat.st_gid == nix::unistd::getegid().as_raw(),
    );
    if own != (true, true) {
        let _ = write!(text, " owner {} {}", stat.st_uid, stat.st_gid);
    }
    // A pipe's is another matter, see the deviations.
    let pipe = stat.st_mode & libc::S_IFMT == libc::S_IFIFO;
    if stat.st_mtime < FRESH && !pipe {
        let _ = write!(text, " mtime {}.{:09}", stat.st_mtime, stat.st_mtime_nsec);
    }
    text
}
