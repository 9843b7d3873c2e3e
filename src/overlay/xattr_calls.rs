//! Extended attributes by name beneath an open directory: the `*xattrat` calls of new kernels, a
//! descriptor on old ones. Owns those raw calls; the overlay's escape rules are in `xattr`.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::calls::{Result, open_at};

/// Linux 6.13; the same numbers on every architecture we build for, not named by the libc crate.
const SYS_SETXATTRAT: libc::c_long = 463;
const SYS_GETXATTRAT: libc::c_long = 464;
const SYS_LISTXATTRAT: libc::c_long = 465;
const SYS_REMOVEXATTRAT: libc::c_long = 466;

/// Set once the kernel (or a filter in front of it) has refused the calls above.
static NO_XATTRAT: AtomicBool = AtomicBool::new(false);

/// Largest value and largest list of names the kernel hands out.
const LARGEST: usize = 65_536;

#[repr(C)]
struct XattrArgs {
    value: u64,
    size: u32,
    flags: u32,
}

/// What is asked for: an entry of a directory, or an open descriptor when the name is empty.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub dir: BorrowedFd<'a>,
    pub name: &'a CStr,
}

impl Subject<'_> {
    /// Runs the call by name, or by descriptor where the name is empty or the kernel is old.
    fn call(
        &self,
        by_name: impl Fn(&CStr) -> libc::c_long,
        by_fd: impl Fn(i32) -> libc::c_long,
    ) -> Result<usize> {
        if self.name.is_empty() {
            return done(by_fd(self.dir.as_raw_fd()));
        }
        if !NO_XATTRAT.load(Ordering::Relaxed) {
            match done(by_name(self.name)) {
                Err(Errno::ENOSYS) => NO_XATTRAT.store(true, Ordering::Relaxed),
                other => return other,
            }
        }
        match open_at(self.dir, self.name, OFlag::O_RDONLY) {
            Ok(fd) => done(by_fd(fd.as_raw_fd())),
            // Links, sockets and pipes hold no attributes of the user's.
            Err(Errno::ELOOP | Errno::ENXIO) => Err(Errno::EOPNOTSUPP),
            Err(e) => Err(e),
        }
    }

    /// The value of the attribute.
    pub fn get(&self, attribute: &CStr) -> Result<Vec<u8>> {
        let mut value = vec![0u8; 256];
        loop {
            let (pointer, size) = (value.as_mut_ptr(), value.len());
            let length = self.call(
                |name| {
                    let args = XattrArgs {
                        value: pointer as u64,
                        size: size as u32,
                        flags: 0,
                    };
                    // SAFETY: names end in NUL, `args` is the kernel's 16-byte structure, pointer
                    // and size describe one buffer; all outlive the call.
                    unsafe {
                        libc::syscall(
                            SYS_GETXATTRAT,
                            self.dir.as_raw_fd(),
                            name.as_ptr(),
                            libc::AT_SYMLINK_NOFOLLOW,
                            attribute.as_ptr(),
                            &raw const args,
                            size_of::<XattrArgs>(),
                        )
                    }
                },
                // SAFETY: the name ends in NUL; pointer and size describe one buffer.
                |fd| unsafe {
                    libc::fgetxattr(fd, attribute.as_ptr(), pointer.cast(), size) as libc::c_long
                },
            );
            match length {
                Err(Errno::ERANGE) if value.len() < LARGEST => value.resize(LARGEST, 0),
                Err(e) => return Err(e),
                Ok(length) => {
                    value.truncate(length);
                    return Ok(value);
                }
            }
        }
    }

    /// Every attribute's name; none where the file system has no attributes.
    pub fn list(&self) -> Result<Vec<CString>> {
        let mut buffer = vec![0u8; 512];
        loop {
            let (pointer, size) = (buffer.as_mut_ptr(), buffer.len());
            let length = self.call(
                // SAFETY: the name ends in NUL; pointer and size describe one buffer.
                |name| unsafe {
                    libc::syscall(
                        SYS_LISTXATTRAT,
                        self.dir.as_raw_fd(),
                        name.as_ptr(),
                        libc::AT_SYMLINK_NOFOLLOW,
                        pointer,
                        size,
                    )
                },
                // SAFETY: pointer and size describe one buffer.
                |fd| unsafe { libc::flistxattr(fd, pointer.cast(), size) as libc::c_long },
            );
            match length {
                Err(Errno::ERANGE) if buffer.len() < LARGEST => buffer.resize(LARGEST, 0),
                Err(Errno::EOPNOTSUPP) => return Ok(Vec::new()),
                Err(e) => return Err(e),
                Ok(length) => {
                    return Ok(buffer[..length]
                        .split(|b| *b == 0)
                        .filter(|n| !n.is_empty())
                        .filter_map(|n| CString::new(n).ok())
                        .collect());
                }
            }
        }
    }

    /// Sets the attribute; `flags` as in setxattr(2).
    pub fn set(&self, attribute: &CStr, value: &[u8], flags: i32) -> Result<()> {
        self.call(
            |name| {
                let args = XattrArgs {
                    value: value.as_ptr() as u64,
                    size: value.len() as u32,
                    flags: flags.cast_unsigned(),
                };
                // SAFETY: as in `get`; the value is only read.
                unsafe {
                    libc::syscall(
                        SYS_SETXATTRAT,
                        self.dir.as_raw_fd(),
                        name.as_ptr(),
                        libc::AT_SYMLINK_NOFOLLOW,
                        attribute.as_ptr(),
                        &raw const args,
                        size_of::<XattrArgs>(),
                    )
                }
            },
            // SAFETY: the name ends in NUL; value and length are one slice.
            |fd| unsafe {
                libc::c_long::from(libc::fsetxattr(
                    fd,
                    attribute.as_ptr(),
                    value.as_ptr().cast(),
                    value.len(),
                    flags,
                ))
            },
        )
        .map(drop)
    }

    /// Removes the attribute.
    pub fn remove(&self, attribute: &CStr) -> Result<()> {
        self.call(
            // SAFETY: both names end in NUL and outlive the call.
            |name| unsafe {
                libc::syscall(
                    SYS_REMOVEXATTRAT,
                    self.dir.as_raw_fd(),
                    name.as_ptr(),
                    libc::AT_SYMLINK_NOFOLLOW,
                    attribute.as_ptr(),
                )
            },
            // SAFETY: the name ends in NUL.
            |fd| unsafe { libc::c_long::from(libc::fremovexattr(fd, attribute.as_ptr())) },
        )
        .map(drop)
    }
}

fn done(result: libc::c_long) -> Result<usize> {
    usize::try_from(result).map_err(|_| Errno::last())
}
