//! Inode flags (ioctl_iflags(2), `lsattr` and `chattr`), asked of the file beneath. Owns which of
//! them may be changed: those that bind nobody but the file itself.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::calls::Result;
use super::guard::Access;
use super::{Caller, Overlay};

/// `struct fsxattr` of `linux/fs.h`, in bytes.
pub const EXTENDED_SIZE: usize = 28;

/// `FS_IOC_FSGETXATTR`, which the libc crate does not name: `_IOR('X', 31, struct fsxattr)`.
pub const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;

/// `FS_IOC_FSSETXATTR`: `_IOW('X', 32, struct fsxattr)`.
pub const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;

/// `FS_IMMUTABLE_FL` and `FS_APPEND_FL`: they take a capability that no caller has.
const PRIVILEGED: u32 = 0x10 | 0x20;

/// `FS_SYNC_FL`, `FS_NODUMP_FL`, `FS_NOATIME_FL`, `FS_DIRSYNC_FL`.
const HARMLESS: u32 = 0x8 | 0x40 | 0x80 | 0x1_0000;

impl Overlay {
    /// The flags of a regular file or directory, as `FS_IOC_GETFLAGS` tells them. `ENOTTY` where
    /// the file system beneath has none.
    pub fn flags(&self, id: u64) -> Result<u32> {
        let mut flags = 0u32;
        let file = self.beneath(id)?;
        // SAFETY: the descriptor is open; the call writes an int (the `long` in its number is
        // history) into `flags`, which outlives it.
        Errno::result(unsafe {
            libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut flags)
        })?;
        Ok(flags)
    }

    /// Sets the flags, in the upper. `EPERM` for those that take a capability, `EOPNOTSUPP` for
    /// others that mean something to the file system beneath only.
    pub fn set_flags(&self, caller: &Caller, id: u64, flags: u32) -> Result<()> {
        let changed = self.flags(id)? ^ flags;
        if changed == 0 {
            return Ok(());
        }
        if changed & PRIVILEGED != 0 {
            return Err(Errno::EPERM);
        }
        if changed & !HARMLESS != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let node = self.node(id)?;
        self.permit_node(caller, &node, Access::Write)?;
        self.copy_up(&node, u64::MAX)?;
        // What the file system gave the copy by itself stays.
        let wanted = self.flags(id)? & !HARMLESS | flags & HARMLESS;
        let file = self.beneath(id)?;
        // SAFETY: as above; the call reads an int from `wanted`.
        Errno::result(unsafe {
            libc::ioctl(file.as_raw_fd(), libc::FS_IOC_SETFLAGS, &raw const wanted)
        })?;
        self.saw_node(&node, Access::Write, 0);
        Ok(())
    }

    /// `struct fsxattr`, as `FS_IOC_FSGETXATTR` tells it.
    pub fn extended_flags(&self, id: u64) -> Result<[u8; EXTENDED_SIZE]> {
        let mut told = [0; EXTENDED_SIZE];
        let file = self.beneath(id)?;
        // SAFETY: the descriptor is open; the call writes one `struct fsxattr`, five u32 and eight
        // bytes without a gap, into `told`, which is as large.
        Errno::result(unsafe {
            libc::ioctl(
                file.as_raw_fd(),
                libc::Ioctl::from(FS_IOC_FSGETXATTR),
                told.as_mut_ptr(),
            )
        })?;
        Ok(told)
    }

    /// Nothing that only this structure tells (projects, extents) can be changed: `EOPNOTSUPP`
    /// unless it says what is.
    pub fn set_extended_flags(&self, id: u64, wanted: &[u8]) -> Result<()> {
        // How many extents there are is told, never set.
        let told =
            |bytes: &[u8]| [bytes.get(..8), bytes.get(12..20)].map(|b| b.map(<[u8]>::to_vec));
        if told(&self.extended_flags(id)?) == told(wanted) {
            Ok(())
        } else {
            Err(Errno::EOPNOTSUPP)
        }
    }

    /// The file or directory itself, wherever it lies now.
    fn beneath(&self, id: u64) -> Result<OwnedFd> {
        let node = self.node(id)?;
        if !node.is_file() && !node.is_dir() {
            return Err(Errno::ENOTTY);
        }
        let _tree = self.reading();
        let (place, _) = self.located(&node)?;
        Self::open_place(&place, OFlag::O_RDONLY)
    }
}
