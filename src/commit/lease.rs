//! Read leases: proof that nobody has a file open for writing, and notice when somebody wants to.
//! Owns taking, asking and waiting; writes nothing.
//!
//! The kernel tells of a broken lease by a signal, SIGIO unless another is chosen, and SIGIO kills
//! by default. SIGURG is chosen here: it is ignored unless somebody handles it, and nothing in
//! this program does. Whether the lease still stands is asked with `F_GETLEASE`.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// `fcntl` command that chooses the signal; the number is the same on every architecture that
/// Linux has, and the `libc` crate does not name it.
const F_SETSIG: libc::c_int = 10;

/// How long a commit waits, all in all, for others to close files.
pub(super) struct Patience(Cell<Duration>);

impl Patience {
    /// Two seconds, which only waiting uses up.
    pub fn new() -> Self {
        Self(Cell::new(Duration::from_secs(2)))
    }

    /// Waits a moment; `false` when patience is at its end.
    pub fn wait(&self) -> bool {
        const MOMENT: Duration = Duration::from_millis(5);
        let Some(rest) = self.0.get().checked_sub(MOMENT) else {
            return false;
        };
        self.0.set(rest);
        std::thread::sleep(MOMENT);
        true
    }
}

/// A read lease; ends when dropped.
pub(super) struct Lease {
    file: File,
    /// `false`: the file system or the file's owner allows none, which is weaker.
    taken: bool,
}

impl Lease {
    /// Takes a lease; `None` when the file is open for writing somewhere.
    pub fn try_take(file: File) -> Option<Self> {
        let fd = file.as_raw_fd();
        // SAFETY: plain fcntl calls with integer arguments on a descriptor that `file` keeps open.
        let rc = unsafe {
            libc::fcntl(fd, F_SETSIG, libc::SIGURG);
            libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK)
        };
        if rc == 0 {
            return Some(Self { file, taken: true });
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EAGAIN) => None,
            // Another owner's file, or a file system without leases.
            _ => Some(Self { file, taken: false }),
        }
    }

    /// Takes a lease on what `open` opens, waiting with `patience` while it is open for writing.
    pub fn take(
        mut open: impl FnMut() -> io::Result<File>,
        patience: &Patience,
    ) -> io::Result<Option<Self>> {
        loop {
            if let Some(lease) = Self::try_take(open()?) {
                return Ok(Some(lease));
            }
            if !patience.wait() {
                return Ok(None);
            }
        }
    }

    /// Whether nobody has asked to write since.
    pub fn stands(&self) -> bool {
        if !self.taken {
            return true;
        }
        // SAFETY: an fcntl without pointer arguments on an open descriptor.
        unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_GETLEASE) == libc::F_RDLCK }
    }

    /// The file under lease.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.taken {
            // SAFETY: an fcntl with an integer argument on an open descriptor. Closing would end
            // the lease as well, unless the descriptor was duplicated by a fork.
            unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
        }
    }
}
