//! The overlay's words in fuser's and back. Owns no state.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo, Request, TimeOrNow};

use crate::overlay::{Attr, Caller, SetTime, Time};

/// Who sent a request.
pub(super) fn caller(request: &Request, umask: u32) -> Caller {
    Caller {
        uid: request.uid(),
        gid: request.gid(),
        pid: request.pid(),
        umask,
    }
}

/// An errno as it is sent.
pub(super) fn errno(error: crate::overlay::Errno) -> Errno {
    Errno::from_i32(error as i32)
}

/// The type bits of a mode.
pub(super) fn kind(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// Attributes as they are sent.
pub(super) fn attributes(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.id),
        size: attr.size,
        blocks: attr.blocks,
        atime: moment(attr.atime),
        mtime: moment(attr.mtime),
        ctime: moment(attr.ctime),
        crtime: UNIX_EPOCH,
        kind: kind(attr.mode),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: device(attr.rdev),
        blksize: attr.blksize,
        flags: 0,
    }
}

/// The answer that a name does not exist, which the kernel may remember.
pub(super) fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// A device number in the 32 bits of the wire (`new_encode_dev` in the kernel).
fn device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// Major and minor of a device number on the wire.
pub(super) fn parts(wire: u32) -> (u32, u32) {
    (
        (wire & 0x000f_ff00) >> 8,
        (wire & 0xff) | ((wire >> 12) & 0x000f_ff00),
    )
}

fn moment((sec, nsec): Time) -> SystemTime {
    let seconds = Duration::from_secs(sec.unsigned_abs());
    let whole = if sec >= 0 {
        UNIX_EPOCH.checked_add(seconds)
    } else {
        UNIX_EPOCH.checked_sub(seconds)
    };
    whole
        .and_then(|time| time.checked_add(Duration::new(0, nsec)))
        .unwrap_or(UNIX_EPOCH)
}

/// A time to set.
pub(super) fn set_time(time: TimeOrNow) -> SetTime {
    let TimeOrNow::SpecificTime(time) = time else {
        return SetTime::Now;
    };
    SetTime::To(match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after.as_secs().cast_signed(), after.subsec_nanos()),
        // fuser 0.18 takes both parts of a time before 1970 away from the epoch; the wire's own
        // seconds and nanoseconds are the two parts of the difference.
        Err(before) => {
            let before = before.duration();
            (-before.as_secs().cast_signed(), before.subsec_nanos())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_go_out_as_they_are() {
        let time = moment((-2, 800_000_000));
        let before = UNIX_EPOCH.duration_since(time).expect("before");
        assert_eq!(before, Duration::new(1, 200_000_000));
    }

    #[test]
    fn large_device_numbers_keep_their_parts() {
        assert_eq!(device((8, 1)), 0x801);
        assert_eq!(device((259, 300)), 0x2c | (259 << 8) | (0x100 << 12));
        assert_eq!(parts(device((259, 300))), (259, 300));
    }
}
