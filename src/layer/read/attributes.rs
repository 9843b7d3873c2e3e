//! Extended attributes relative to a directory descriptor. Owns the ways to read them (by name on
//! new kernels, else through a descriptor) and the overlay's escape rules.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::super::{FileType, origin};
use super::{DIR_FLAGS, Marks, Side, c_name};

/// Attribute that holds a POSIX access ACL.
pub const ACL_ACCESS: &str = "system.posix_acl_access";
/// Attribute that holds a directory's default ACL.
pub const ACL_DEFAULT: &str = "system.posix_acl_default";

/// `listxattrat` and `getxattrat` (Linux 6.13): the same numbers on every architecture we build
/// for, not named by the libc crate.
const SYS_GETXATTRAT: libc::c_long = 464;
const SYS_LISTXATTRAT: libc::c_long = 465;

/// Set once the kernel (or a filter in front of it) has refused the calls above.
static NO_XATTRAT: AtomicBool = AtomicBool::new(false);

/// Name and value, exact.
pub(super) type Raw = Vec<(Vec<u8>, Vec<u8>)>;

/// Sorts raw attributes into the entry's own and the overlay's marks.
pub(super) fn sort(raw: Raw, side: Side) -> (BTreeMap<String, Vec<u8>>, Marks) {
    let mut own = BTreeMap::new();
    let mut marks = Marks::default();
    for (name, value) in raw {
        if side == Side::Upper
            && let Some(mark) = strip(&name, &[b"user.overlay.", b"trusted.overlay."])
        {
            if let Some(escaped) = strip(mark, &[b"overlay."])
                && name.starts_with(b"user.")
            {
                let name = [b"user.overlay.", escaped].concat();
                own.insert(text(&name), value);
                continue;
            }
            match mark {
                b"opaque" if value == b"y" => marks.opaque = true,
                b"opaque" if value == b"x" => marks.xattr_whiteouts = true,
                b"whiteout" => marks.whiteout = true,
                origin::MARK => marks.origin = Some(value),
                _ => {}
            }
            continue;
        }
        if is_own(&name) {
            own.insert(text(&name), value);
        }
    }
    (own, marks)
}

fn strip<'a>(name: &'a [u8], prefixes: &[&[u8]]) -> Option<&'a [u8]> {
    prefixes.iter().find_map(|p| name.strip_prefix(*p))
}

fn is_own(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name == ACL_ACCESS.as_bytes() || name == ACL_DEFAULT.as_bytes()
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Attributes of an open file or directory (not `O_PATH`): `user.*`, ACLs and `trusted.overlay.*`.
pub fn raw(fd: BorrowedFd<'_>) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    raw_of(fd, Side::Plain)
}

fn raw_of(fd: BorrowedFd<'_>, side: Side) -> io::Result<Raw> {
    collect(
        side,
        // SAFETY: the pointer and length describe one buffer that lives through the call.
        |buffer, size| unsafe {
            libc::flistxattr(fd.as_raw_fd(), buffer.cast(), size) as libc::c_long
        },
        |name, buffer, size| {
            // SAFETY: as above; the name ends in NUL.
            unsafe {
                libc::fgetxattr(fd.as_raw_fd(), name.as_ptr(), buffer.cast(), size) as libc::c_long
            }
        },
    )
}

/// Attributes of the file or directory `name` of `dir`. What may not be read is left out of a plain
/// one; on an upper it is an error, since a mark that was not seen would be taken for one that is not
/// there.
pub(super) fn raw_at(
    dir: BorrowedFd<'_>,
    name: &[u8],
    file_type: FileType,
    side: Side,
) -> io::Result<Raw> {
    if !NO_XATTRAT.load(Ordering::Relaxed) {
        match raw_by_name(dir, &c_name(name)?, side) {
            // ENOSYS from old kernels; EPERM from filters that do not know the call: reading a
            // list of names never answers so by itself.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                NO_XATTRAT.store(true, Ordering::Relaxed);
            }
            other => return other,
        }
    }
    raw_by_descriptor(dir, name, file_type, side)
}

#[repr(C)]
struct XattrArgs {
    value: u64,
    size: u32,
    flags: u32,
}

fn raw_by_name(dir: BorrowedFd<'_>, name: &CStr, side: Side) -> io::Result<Raw> {
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
    collect(
        side,
        // SAFETY: descriptor and name outlive the call; pointer and size describe one buffer.
        |buffer, size| unsafe {
            libc::syscall(
                SYS_LISTXATTRAT,
                dir.as_raw_fd(),
                name.as_ptr(),
                flags,
                buffer,
                size,
            )
        },
        |attribute, buffer, size| {
            let args = XattrArgs {
                value: buffer as u64,
                size: size as u32,
                flags: 0,
            };
            // SAFETY: as above; `args` is the kernel's 16-byte structure and outlives the call.
            unsafe {
                libc::syscall(
                    SYS_GETXATTRAT,
                    dir.as_raw_fd(),
                    name.as_ptr(),
                    flags,
                    attribute.as_ptr(),
                    &raw const args,
                    size_of::<XattrArgs>(),
                )
            }
        },
    )
}

fn raw_by_descriptor(
    dir: BorrowedFd<'_>,
    name: &[u8],
    file_type: FileType,
    side: Side,
) -> io::Result<Raw> {
    let path: &[u8] = if name.is_empty() { b"." } else { name };
    let flags = if file_type == FileType::Dir {
        DIR_FLAGS
    } else {
        OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY
    };
    match openat(dir, path, flags, Mode::empty()) {
        Ok(fd) => raw_of(fd.as_fd(), side),
        // Not readable for us: names need no right to read, and of a value that may not be read
        // `collect` decides.
        Err(nix::errno::Errno::EACCES) => {
            let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let fd = openat(dir, path, flags, Mode::empty())?;
            let link = c_name(format!("/proc/self/fd/{}", fd.as_raw_fd()).as_bytes())?;
            collect(
                side,
                // SAFETY: the path ends in NUL; pointer and size describe one buffer.
                |buffer, size| unsafe {
                    libc::listxattr(link.as_ptr(), buffer.cast(), size) as libc::c_long
                },
                |name, buffer, size| {
                    // SAFETY: as above.
                    unsafe {
                        libc::getxattr(link.as_ptr(), name.as_ptr(), buffer.cast(), size)
                            as libc::c_long
                    }
                },
            )
        }
        Err(e) => Err(e.into()),
    }
}

/// Lists names, then reads the values we care for.
fn collect(
    side: Side,
    list: impl Fn(*mut u8, usize) -> libc::c_long,
    get: impl Fn(&CString, *mut u8, usize) -> libc::c_long,
) -> io::Result<Raw> {
    let mut small = [0u8; 512];
    let mut large;
    let names: &[u8] = match checked(list(small.as_mut_ptr(), small.len())) {
        Ok(length) => &small[..length],
        Err(e) if e.raw_os_error() == Some(libc::ERANGE) => {
            // The kernel's own limit on a list is 64 KiB.
            large = vec![0u8; 65_536];
            let length = checked(list(large.as_mut_ptr(), large.len()))?;
            &large[..length]
        }
        // A file system without attributes.
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut found = Vec::new();
    for name in names.split(|b| *b == 0).filter(|n| !n.is_empty()) {
        if !is_own(name) && !name.starts_with(b"trusted.overlay.") {
            continue;
        }
        let c_name = c_name(name)?;
        let mut value = vec![0u8; 256];
        let length = loop {
            match checked(get(&c_name, value.as_mut_ptr(), value.len())) {
                Err(e) if e.raw_os_error() == Some(libc::ERANGE) && value.len() < 65_536 => {
                    value.resize(65_536, 0);
                }
                other => break other,
            }
        };
        match length {
            Ok(length) => {
                value.truncate(length);
                found.push((name.to_vec(), value));
            }
            Err(e) => match e.raw_os_error() {
                // Removed in between.
                Some(libc::ENODATA) => {}
                // Not for us to read.
                Some(libc::EACCES | libc::EPERM) if side == Side::Plain => {}
                _ => return Err(e),
            },
        }
    }
    Ok(found)
}

fn checked(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_taken_out_and_the_users_own_are_unescaped() {
        let raw: Raw = vec![
            (b"user.overlay.opaque".to_vec(), b"y".to_vec()),
            (b"user.overlay.origin".to_vec(), b"".to_vec()),
            (b"user.overlay.overlay.opaque".to_vec(), b"mine".to_vec()),
            (b"user.note".to_vec(), b"n".to_vec()),
            (b"security.selinux".to_vec(), b"s".to_vec()),
        ];
        let (own, marks) = sort(raw.clone(), Side::Upper);
        assert!(marks.opaque && !marks.whiteout);
        let names: Vec<&str> = own.keys().map(String::as_str).collect();
        assert_eq!(names, ["user.note", "user.overlay.opaque"]);
        assert_eq!(own["user.overlay.opaque"], b"mine");
        let (plain, marks) = sort(raw, Side::Plain);
        assert_eq!(marks, Marks::default());
        assert_eq!(plain.len(), 4);
    }
}
