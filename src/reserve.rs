//! Room on the disk that is ours before it is needed, so that an agent that fills the disk takes
//! nothing from a session's records. Owns files that are appended to with room reserved beyond
//! their end, and the ballast that is given up when a command has ended; knows nothing of what is
//! written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};

/// Bytes reserved beyond the end of an appended file.
const ROOM: u64 = 64 * 1024;

/// Bytes of the ballast: what the end of a command, some decisions and a commit's ledger take.
const BALLAST: u64 = 512 * 1024;

/// Whether an error says that the disk, or what we may use of it, is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// A file that is only appended to. What cannot be written stays in memory, whole, and is tried
/// again with the next flush: nothing in the file is ever torn by a full disk.
#[derive(Debug)]
pub struct AppendFile {
    file: File,
    pending: Vec<u8>,
    len: u64,
    /// Room is reserved up to here.
    reserved: u64,
    owner: u32,
}

impl AppendFile {
    /// Goes on at the end of `file`, which was opened for appending and is `len` bytes long. Room
    /// is reserved where the file system can.
    pub fn new(file: File, len: u64) -> Self {
        let mut file = Self {
            file,
            pending: Vec::new(),
            len,
            reserved: len,
            owner: process::id(),
        };
        file.reserve();
        file
    }

    /// Appends; it reaches the file with the next flush.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Bytes that have not reached the file.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Hands what was appended to the kernel. After an error the rest waits for the next call.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut written = 0;
        let result = loop {
            match self.file.write(&self.pending[written..]) {
                _ if written == self.pending.len() => break Ok(()),
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => written += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => break Err(e),
            }
        };
        self.pending.drain(..written);
        self.len += written as u64;
        if self.reserved < self.len + ROOM / 2 {
            self.reserve();
        }
        result
    }

    /// Reserves room beyond the end, as far as there is any: a file system that cannot, and a disk
    /// that is full already, leave what there is.
    fn reserve(&mut self) {
        let flags = FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let (from, room) = (self.len.cast_signed(), ROOM.cast_signed());
        if fallocate(&self.file, flags, from, room).is_ok() {
            self.reserved = self.len + ROOM;
        }
    }
}

impl Drop for AppendFile {
    fn drop(&mut self) {
        // A fork's copy knows nothing of what was appended since.
        if self.owner == process::id() {
            // One more try, and the room that was not needed goes back.
            let _ = self.flush();
            let _ = self.file.set_len(self.len);
        }
    }
}

/// Room that is kept while a command runs and given back by dropping it, when nothing can take it
/// any more but who needs it.
#[derive(Debug)]
pub struct Ballast {
    path: PathBuf,
    owner: u32,
}

impl Ballast {
    /// Takes the room in the directory `dir`; an error where the disk has none.
    pub fn take(dir: &Path) -> io::Result<Self> {
        let ballast = Self {
            path: Self::path(dir),
            owner: process::id(),
        };
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&ballast.path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, BALLAST.cast_signed()) {
            Err(Errno::EOPNOTSUPP) => fill(&file)?,
            other => other?,
        }
        Ok(ballast)
    }

    /// Gives back what a server left that had no time to.
    pub fn clear(dir: &Path) {
        let _ = fs::remove_file(Self::path(dir));
    }

    fn path(dir: &Path) -> PathBuf {
        dir.join("reserve")
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        if self.owner == process::id() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Where a file system cannot reserve, written bytes are the reservation.
fn fill(mut file: &File) -> io::Result<()> {
    let chunk = vec![0xa5; 64 * 1024];
    for _ in 0..BALLAST / chunk.len() as u64 {
        file.write_all(&chunk)?;
    }
    Ok(())
}

/// Writes to `inner` and swallows every error: for diagnostics, whose loss must end nothing (the
/// logging crate would answer it with a message to standard error, and a failure of that with a
/// panic).
#[derive(Debug)]
pub struct Forgiving<W>(pub W);

impl<W: Write> Write for Forgiving<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.0.write(bytes).unwrap_or(bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn room_is_reserved_and_given_back() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("f");
        let open = || {
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(&path)
                .expect("open")
        };
        let mut file = AppendFile::new(open(), 0);
        let blocks = || fs::metadata(&path).expect("stat").blocks() * 512;
        let reserved = blocks();
        for round in 0..10_000 {
            file.push(format!("line {round}\n").as_bytes());
            file.flush().expect("flush");
        }
        if reserved > 0 {
            assert!(
                blocks() >= file.len + ROOM / 2,
                "{} of {}",
                blocks(),
                file.len
            );
        }
        drop(file);
        let text = fs::read_to_string(&path).expect("read");
        assert!(text.ends_with("\nline 9999\n"));
        assert!(
            blocks() < text.len() as u64 + ROOM / 2,
            "{} bytes",
            blocks()
        );
        let mut again = AppendFile::new(open(), text.len() as u64);
        again.push(b"more\n");
        drop(again);
        assert_eq!(fs::read_to_string(&path).expect("read"), text + "more\n");
    }

    #[test]
    fn what_cannot_be_written_waits() {
        let full = OpenOptions::new()
            .append(true)
            .open("/dev/full")
            .expect("open");
        let mut file = AppendFile::new(full, 0);
        file.push(b"one\n");
        assert!(is_full(&file.flush().expect_err("full")));
        file.push(b"two\n");
        assert!(file.flush().is_err());
        assert_eq!(file.pending(), 8);
    }

    #[test]
    fn ballast_is_there_and_goes() {
        let dir = tempfile::tempdir().expect("tempdir");
        let ballast = Ballast::take(dir.path()).expect("room");
        let meta = fs::metadata(dir.path().join("reserve")).expect("stat");
        assert!(meta.blocks() * 512 >= BALLAST);
        drop(ballast);
        assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 0);
    }

    #[test]
    fn a_log_that_cannot_be_written_is_none() {
        let full = OpenOptions::new()
            .append(true)
            .open("/dev/full")
            .expect("open");
        let mut log = Forgiving(full);
        assert_eq!(log.write(b"lost").expect("swallowed"), 4);
        log.flush().expect("swallowed");
    }
}
