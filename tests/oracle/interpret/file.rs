//! Contents: writes in every way there is, and what reading gives back.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, FallocateFlags, OFlag, openat};
use nix::sys::mman::{MapFlags, MsFlags, ProtFlags};
use nix::sys::stat::Mode;

use super::{Interpreter, Outcome, done, errno, name};
use crate::script::{Bytes, Data, Flags, Room};

const WRITE: Flags = Flags {
    read: false,
    write: true,
    create: false,
    exclusive: false,
    truncate: false,
    append: false,
};

impl Interpreter {
    pub(super) fn write(&self, path: &Bytes, at: u64, data: Data) -> Outcome {
        write_at(&self.open(path, WRITE, 0)?, at, data)
    }

    pub(super) fn append(&self, path: &Bytes, data: Data, descriptors: usize) -> Outcome {
        let flags = Flags {
            append: true,
            ..WRITE
        };
        let files = (0..descriptors)
            .map(|_| self.open(path, flags, 0))
            .collect::<nix::Result<Vec<_>>>()?;
        for (n, part) in data.bytes().chunks(700).enumerate() {
            nix::unistd::write(&files[n % descriptors], part)?;
        }
        Ok(String::new())
    }

    pub(super) fn truncate(&self, path: &Bytes, len: u64) -> Outcome {
        nix::unistd::truncate(&self.full(path), len.cast_signed()).map(done)
    }

    pub(super) fn tmpfile(&self, dir: &Bytes, path: &Bytes, mode: u32, data: Data) -> Outcome {
        let flags = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let fd = openat(self.at(), name(dir), flags, Mode::from_bits_truncate(mode))?;
        let file = File::from(fd);
        write_at(&file, 0, data)?;
        let magic = format!("/proc/self/fd/{}", file.as_raw_fd());
        let follow = AtFlags::AT_SYMLINK_FOLLOW;
        nix::unistd::linkat(
            nix::fcntl::AT_FDCWD,
            magic.as_str(),
            self.at(),
            name(path),
            follow,
        )
        .map(done)
    }

    pub(super) fn copy_range(
        &self,
        from: &Bytes,
        to: &Bytes,
        (at, into): (u64, u64),
        len: u64,
    ) -> Outcome {
        let source = self.open(from, super::READ, 0)?;
        let target = self.open(to, WRITE, 0)?;
        let (mut at, mut into) = (at.cast_signed(), into.cast_signed());
        let mut left = usize::try_from(len).unwrap_or(0);
        while left > 0 {
            let n = nix::fcntl::copy_file_range(
                &source,
                Some(&mut at),
                &target,
                Some(&mut into),
                left,
            )?;
            if n == 0 {
                break;
            }
            left -= n;
        }
        Ok(format!("{left} left"))
    }
}

pub(super) fn write_at(file: &File, at: u64, data: Data) -> Outcome {
    file.write_all_at(&data.bytes(), at)
        .map(done)
        .map_err(|e| errno(&e))
}

pub(super) fn allocate(file: &File, room: Room, at: u64, len: u64) -> Outcome {
    let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let mode = match room {
        Room::Extend => FallocateFlags::empty(),
        Room::KeepSize => keep,
        Room::Punch => FallocateFlags::FALLOC_FL_PUNCH_HOLE | keep,
        Room::Zero => FallocateFlags::FALLOC_FL_ZERO_RANGE,
        Room::ZeroKeepSize => FallocateFlags::FALLOC_FL_ZERO_RANGE | keep,
        Room::Collapse => FallocateFlags::FALLOC_FL_COLLAPSE_RANGE,
        Room::Insert => FallocateFlags::FALLOC_FL_INSERT_RANGE,
    };
    nix::fcntl::fallocate(file, mode, at.cast_signed(), len.cast_signed()).map(done)
}

/// A store through a shared map; the file is made long enough first.
pub(super) fn store(file: &File, at: u64, data: Data) -> Outcome {
    let meta = file.metadata().map_err(|e| errno(&e))?;
    let bytes = data.bytes();
    let begin = usize::try_from(at).unwrap_or(0);
    let end = begin + bytes.len();
    if !meta.is_file() {
        return Err(Errno::ENODEV);
    }
    if meta.len() < end as u64 {
        nix::unistd::ftruncate(file, end as i64)?;
    }
    let Some(length) = NonZeroUsize::new(end) else {
        return Ok(String::new());
    };
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new map of a length that the file has; nobody shortens it before it is unmapped.
    let map =
        unsafe { nix::sys::mman::mmap(None, length, protection, MapFlags::MAP_SHARED, file, 0) }?;
    // SAFETY: the map is `end` bytes long, and `begin..end` lies inside it.
    unsafe {
        std::ptr::copy_nonoverlapping(
            bytes.as_ptr(),
            map.as_ptr().cast::<u8>().add(begin),
            bytes.len(),
        );
    }
    // SAFETY: exactly the map made above, which nothing refers to afterwards.
    unsafe {
        nix::sys::mman::msync(map, end, MsFlags::MS_SYNC)?;
        nix::sys::mman::munmap(map, end)?;
    }
    Ok(String::new())
}

/// Length, hash and beginning of what can be read.
pub(super) fn read(file: &File) -> Outcome {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read_at(&mut buffer, bytes.len() as u64) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            Err(e) => return Err(errno(&e)),
        }
    }
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    let begin = Bytes(bytes[..bytes.len().min(24)].to_vec());
    Ok(format!("{} {:x} {begin}", bytes.len(), hasher.finish()))
}
