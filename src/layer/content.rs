//! Contents of regular files: where their data lies, what they hash to, and copies that keep holes
//! and share blocks where the file system can. Owns those raw calls for everything that writes what
//! is ours; `commit` writes the host's files itself and takes the reading half from here.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::unistd::Whence;

use super::Digest;
use super::hasher::ContentHasher;

/// Bytes read at once.
const CHUNK: usize = 128 * 1024;

/// The next stretch of data of `file` from `at` on, as its begin and end; an empty one at `len`
/// when nothing but a hole follows. Moves the file's offset.
pub(crate) fn extent(file: &File, at: u64, len: u64) -> io::Result<(u64, u64)> {
    let seek = |offset: u64, whence| {
        nix::unistd::lseek(file, offset.cast_signed(), whence).map(i64::cast_unsigned)
    };
    match seek(at, Whence::SeekData) {
        Ok(data) if data >= len => Ok((len, len)),
        Ok(data) => Ok((
            data,
            seek(data, Whence::SeekHole).map_or(len, |end| end.min(len)),
        )),
        Err(Errno::ENXIO) => Ok((len, len)),
        // A file system that knows no holes: all of it is data.
        Err(Errno::EINVAL) => Ok((at, len)),
        Err(errno) => Err(errno.into()),
    }
}

/// Hash of a file's content from its beginning, in flat memory; holes are not read. Where the
/// file's offset is does not matter; it may move.
pub(crate) fn hash(file: &File) -> io::Result<Digest> {
    let mut hasher = ContentHasher::new();
    let mut buffer = vec![0; CHUNK];
    let len = file.metadata()?.len();
    let (mut at, mut end) = (0, 0);
    loop {
        if at == end && at < len && len > CHUNK as u64 {
            let (data, until) = extent(file, at, len)?;
            hasher.skip(data - at);
            (at, end) = (data, until);
        }
        // Past the length it had, only to see whether it has grown.
        let room = if at < end { end - at } else { CHUNK as u64 };
        let room = usize::try_from(room).unwrap_or(CHUNK).min(CHUNK);
        match file.read_at(&mut buffer[..room], at) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(n) => {
                hasher.update(&buffer[..n]);
                at += n as u64;
                end = end.max(at);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Makes `to` share the blocks of `from`; an error where the file system cannot.
pub(crate) fn share_blocks(from: impl AsFd, to: impl AsFd) -> io::Result<()> {
    let (from, to) = (from.as_fd(), to.as_fd());
    // SAFETY: FICLONE takes the source descriptor by value; both are open during the call.
    let done = unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE as _, from.as_raw_fd()) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Copies `size` bytes of data from the start, holes as holes; `target` is empty.
pub(crate) fn copy_bytes(source: &File, target: &File, size: u64) -> io::Result<()> {
    target.set_len(size)?;
    let mut buffer = vec![0; CHUNK.min(usize::try_from(size).unwrap_or(CHUNK))];
    let mut at = 0;
    while at < size {
        let (data, end) = extent(source, at, size)?;
        at = data;
        while at < end {
            let room = usize::try_from(end - at)
                .unwrap_or(buffer.len())
                .min(buffer.len());
            match source.read_at(&mut buffer[..room], at) {
                Ok(0) => break,
                Ok(n) => {
                    target.write_all_at(&buffer[..n], at)?;
                    at += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        at = end;
    }
    // Where it became shorter while it was copied, what is there now is what counts.
    let now = source.metadata()?.len();
    if now < size {
        target.set_len(now)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_stay_holes_and_hashes_are_those_of_the_bytes() {
        let dir = tempfile::tempdir().expect("tempdir");
        let source = File::create_new(dir.path().join("a")).expect("create");
        let source = {
            source.set_len(8 << 20).expect("size");
            source.write_all_at(b"middle", 4 << 20).expect("write");
            File::open(dir.path().join("a")).expect("open")
        };
        let copy = File::create_new(dir.path().join("b")).expect("create");
        copy_bytes(&source, &copy, 8 << 20).expect("copy");
        let bytes = std::fs::read(dir.path().join("b")).expect("read");
        assert!(bytes == std::fs::read(dir.path().join("a")).expect("read"));
        assert_eq!(hash(&source).expect("hash"), Digest::of(&bytes));
        let blocks = std::os::unix::fs::MetadataExt::blocks(&copy.metadata().expect("stat"));
        assert!(blocks < (1 << 20) / 512, "{blocks} blocks");
    }

    #[test]
    fn a_source_that_shrank_gives_what_is_there() {
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::write(dir.path().join("a"), "short").expect("write");
        let source = File::open(dir.path().join("a")).expect("open");
        let copy = File::create_new(dir.path().join("b")).expect("create");
        copy_bytes(&source, &copy, 1 << 20).expect("copy");
        let bytes = std::fs::read(dir.path().join("b")).expect("read");
        assert_eq!(bytes, b"short");
    }
}
