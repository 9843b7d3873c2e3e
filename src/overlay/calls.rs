//! The system calls of the overlay, each relative to an open directory. Owns their `unsafe`; knows
//! nothing of merging. No call follows a link; only [`sub_dir`] opens what it is given by name.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, SFlag};

use crate::layer::read;

/// What an operation comes to: a value, or the errno the caller is to see.
pub type Result<T> = std::result::Result<T, Errno>;

/// Seconds and nanoseconds since the epoch.
pub type Time = (i64, u32);

/// What `statx` tells of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub dev: u64,
    pub ino: u64,
    /// Type and permission bits.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: (u32, u32),
    pub size: u64,
    pub blocks: u64,
    pub blksize: u32,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    /// When the inode was made; zero where the file system does not tell.
    pub born: Time,
    /// Something is mounted here.
    pub mount_root: bool,
}

impl Stat {
    /// The type bits of the mode.
    pub fn kind(&self) -> u32 {
        self.mode & libc::S_IFMT
    }

    pub fn is_dir(&self) -> bool {
        self.kind() == libc::S_IFDIR
    }

    pub fn is_file(&self) -> bool {
        self.kind() == libc::S_IFREG
    }

    /// A character device 0/0: in an upper it hides the lower's entry.
    pub fn is_whiteout(&self) -> bool {
        self.kind() == libc::S_IFCHR && self.rdev == (0, 0)
    }

    /// Bytes on disk.
    pub fn allocated(&self) -> u64 {
        self.blocks * 512
    }
}

/// As the kernel's own answer on the entry `name` of `dir`, the directory itself for an empty name.
pub(super) fn stat_at(dir: BorrowedFd<'_>, name: &CStr) -> Result<Option<Stat>> {
    let raw = match read::statx(dir, name) {
        Ok(Some(raw)) => raw,
        Ok(None) => return Ok(None),
        Err(e) => return Err(errno(&e)),
    };
    let time = |t: libc::statx_timestamp| (t.tv_sec, t.tv_nsec);
    Ok(Some(Stat {
        dev: nix::sys::stat::makedev(u64::from(raw.stx_dev_major), u64::from(raw.stx_dev_minor)),
        ino: raw.stx_ino,
        mode: u32::from(raw.stx_mode),
        nlink: raw.stx_nlink,
        uid: raw.stx_uid,
        gid: raw.stx_gid,
        rdev: (raw.stx_rdev_major, raw.stx_rdev_minor),
        size: raw.stx_size,
        blocks: raw.stx_blocks,
        blksize: raw.stx_blksize,
        atime: time(raw.stx_atime),
        mtime: time(raw.stx_mtime),
        ctime: time(raw.stx_ctime),
        born: if raw.stx_mask & libc::STATX_BTIME == 0 {
            (0, 0)
        } else {
            time(raw.stx_btime)
        },
        mount_root: raw.stx_attributes & libc::STATX_ATTR_MOUNT_ROOT as u64 != 0,
    }))
}

/// Of an open descriptor.
pub(super) fn stat_fd(fd: BorrowedFd<'_>) -> Result<Stat> {
    stat_at(fd, c"")?.ok_or(Errno::ENOENT)
}

/// The errno inside an I/O error.
pub(super) fn errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// The directory `name` of `dir` as a mere place: no link is followed, no mount crossed.
pub(super) fn sub_dir(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(
            ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_XDEV,
        );
    loop {
        match openat2(dir, name, how) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(Errno::ELOOP) => return Err(Errno::ENOTDIR),
            other => return other,
        }
    }
}

/// Opens the entry `name` of `dir` itself. The caller knows it to be a regular file or directory,
/// or asks for `O_PATH`.
pub(super) fn open_at(dir: BorrowedFd<'_>, name: &CStr, flags: OFlag) -> Result<OwnedFd> {
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
    let name = if name.is_empty() { c"." } else { name };
    nix::fcntl::openat(dir, name, flags, Mode::empty())
}

/// Makes and opens a regular file.
pub(super) fn create_at(dir: BorrowedFd<'_>, name: &CStr, mode: u32) -> Result<OwnedFd> {
    let flags = OFlag::O_RDWR
        | OFlag::O_CREAT
        | OFlag::O_EXCL
        | OFlag::O_NOFOLLOW
        | OFlag::O_CLOEXEC
        | OFlag::O_NOCTTY;
    nix::fcntl::openat(dir, name, flags, permissions(mode))
}

/// The permission bits, setuid, setgid and sticky among them.
pub(super) fn permissions(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode & 0o7777)
}

/// Makes any node but a directory or link; device numbers as major and minor.
pub(super) fn make_node(
    dir: BorrowedFd<'_>,
    name: &CStr,
    mode: u32,
    rdev: (u32, u32),
) -> Result<()> {
    let kind = SFlag::from_bits_truncate(mode & libc::S_IFMT);
    let device = nix::sys::stat::makedev(u64::from(rdev.0), u64::from(rdev.1));
    nix::sys::stat::mknodat(dir, name, kind, permissions(mode), device)
}

/// Makes a whiteout.
pub(super) fn make_whiteout(dir: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    make_node(dir, name, libc::S_IFCHR, (0, 0))
}

/// `renameat2`.
pub(super) fn rename(
    from: BorrowedFd<'_>,
    old: &CStr,
    to: BorrowedFd<'_>,
    new: &CStr,
    flags: u32,
) -> Result<()> {
    // SAFETY: both names end in NUL and outlive the call; both descriptors are open.
    Errno::result(unsafe {
        libc::renameat2(
            from.as_raw_fd(),
            old.as_ptr(),
            to.as_raw_fd(),
            new.as_ptr(),
            flags,
        )
    })
    .map(drop)
}

/// A further name of what `name` stands for.
pub(super) fn link(
    from: BorrowedFd<'_>,
    name: &CStr,
    to: BorrowedFd<'_>,
    new: &CStr,
) -> Result<()> {
    nix::unistd::linkat(from, name, to, new, AtFlags::empty())
}

/// `fchmodat2` (Linux 6.6, the same number on every architecture we build for); not named by the
/// libc crate.
const SYS_FCHMODAT2: libc::c_long = 452;

/// Set once the kernel has said that it does not know the call above.
static NO_FCHMODAT2: AtomicBool = AtomicBool::new(false);

/// Sets the permission bits of the entry itself.
pub(super) fn chmod(dir: BorrowedFd<'_>, name: &CStr, mode: u32) -> Result<()> {
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
    if !NO_FCHMODAT2.load(Ordering::Relaxed) {
        // SAFETY: the name ends in NUL and outlives the call; the descriptor is open.
        let done = Errno::result(unsafe {
            libc::syscall(
                SYS_FCHMODAT2,
                dir.as_raw_fd(),
                name.as_ptr(),
                mode & 0o7777,
                flags,
            )
        });
        match done {
            Err(Errno::ENOSYS) => NO_FCHMODAT2.store(true, Ordering::Relaxed),
            other => return other.map(drop),
        }
    }
    if name.is_empty() {
        return nix::sys::stat::fchmod(dir, permissions(mode));
    }
    let follow = nix::sys::stat::FchmodatFlags::NoFollowSymlink;
    nix::sys::stat::fchmodat(dir, name, permissions(mode), follow)
}

/// Sets owner and group of the entry itself; `None` leaves one as it is.
pub(super) fn chown(
    dir: BorrowedFd<'_>,
    name: &CStr,
    uid: Option<u32>,
    gid: Option<u32>,
) -> Result<()> {
    nix::unistd::fchownat(
        dir,
        name,
        uid.map(nix::unistd::Uid::from_raw),
        gid.map(nix::unistd::Gid::from_raw),
        AtFlags::AT_SYMLINK_NOFOLLOW | AtFlags::AT_EMPTY_PATH,
    )
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// Left as it is.
    Keep,
    /// The present moment, by the file system's own clock.
    Now,
    /// This one.
    To(Time),
}

impl SetTime {
    fn raw(self) -> libc::timespec {
        let (tv_sec, tv_nsec) = match self {
            SetTime::Keep => (0, libc::UTIME_OMIT),
            SetTime::Now => (0, libc::UTIME_NOW),
            SetTime::To((sec, nsec)) => (sec, i64::from(nsec)),
        };
        libc::timespec { tv_sec, tv_nsec }
    }
}

/// Sets the times of the entry itself, a link's own included.
pub(super) fn set_times(
    dir: BorrowedFd<'_>,
    name: &CStr,
    atime: SetTime,
    mtime: SetTime,
) -> Result<()> {
    let times = [atime.raw(), mtime.raw()];
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
    // SAFETY: the name ends in NUL; `times` are the two structures the call reads.
    Errno::result(unsafe { libc::utimensat(dir.as_raw_fd(), name.as_ptr(), times.as_ptr(), flags) })
        .map(drop)
}

/// A child of a directory as its listing tells: name, inode number, type bits (0 when unknown).
#[derive(Debug, Clone)]
pub(super) struct Child {
    pub name: CString,
    pub ino: u64,
    pub kind: u32,
}

/// Every child of the directory but `.` and `..`, in the file system's order.
pub(super) fn children(dir: BorrowedFd<'_>) -> Result<Vec<Child>> {
    use nix::dir::Type;
    let mut stream = nix::dir::Dir::openat(dir, c".", read::DIR_FLAGS, Mode::empty())?;
    let mut found = Vec::new();
    for entry in stream.iter() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let kind = match entry.file_type() {
            None => 0,
            Some(Type::Fifo) => libc::S_IFIFO,
            Some(Type::CharacterDevice) => libc::S_IFCHR,
            Some(Type::Directory) => libc::S_IFDIR,
            Some(Type::BlockDevice) => libc::S_IFBLK,
            Some(Type::File) => libc::S_IFREG,
            Some(Type::Symlink) => libc::S_IFLNK,
            Some(Type::Socket) => libc::S_IFSOCK,
        };
        found.push(Child {
            name: name.to_owned(),
            ino: entry.ino(),
            kind,
        });
    }
    Ok(found)
}

/// A new descriptor of its own for the same open file.
pub(super) fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    let fd = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(3))?;
    // SAFETY: the call just returned this new descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `fallocate` with the caller's own mode bits.
pub(super) fn fallocate(file: impl AsFd, mode: i32, offset: u64, length: u64) -> Result<()> {
    // SAFETY: the descriptor is open during the call.
    Errno::result(unsafe {
        libc::fallocate(
            file.as_fd().as_raw_fd(),
            mode,
            offset.cast_signed(),
            length.cast_signed(),
        )
    })
    .map(drop)
}

/// `copy_file_range` between two open files, each at its own offset.
pub(super) fn copy_range(
    from: (impl AsFd, u64),
    to: (impl AsFd, u64),
    length: usize,
) -> Result<usize> {
    let (mut offset_in, mut offset_out) = (from.1.cast_signed(), to.1.cast_signed());
    // SAFETY: both descriptors are open during the call, both offsets are ours.
    let copied = Errno::result(unsafe {
        libc::copy_file_range(
            from.0.as_fd().as_raw_fd(),
            &raw mut offset_in,
            to.0.as_fd().as_raw_fd(),
            &raw mut offset_out,
            length,
            0,
        )
    })?;
    Ok(copied.unsigned_abs())
}
