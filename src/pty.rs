//! Pseudo-terminals. Owns how one is made, sized and becomes somebody's controlling terminal;
//! does not read or write it.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::sys::termios::{InputFlags, SetArg, tcgetattr, tcsetattr};

use crate::sandbox::spec::TerminalSize;

/// Both ends of a terminal.
#[derive(Debug)]
pub struct Pty {
    /// Who holds this shows the terminal and types into it.
    pub master: OwnedFd,
    /// The end a program uses as its terminal.
    pub slave: OwnedFd,
}

impl Pty {
    /// A new terminal of the devpts that `ptmx` belongs to (`/dev/ptmx` or `/dev/pts/ptmx`).
    ///
    /// The slave is opened through the master (`TIOCGPTPEER`), so that no path of another
    /// namespace is ever looked up.
    pub fn open(ptmx: &Path, size: TerminalSize) -> Result<Self, Errno> {
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let master = open(ptmx, flags, Mode::empty())?;
        let unlock: libc::c_int = 0;
        // SAFETY: the request reads one int through the pointer, which is valid for the call.
        Errno::result(unsafe {
            libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlock)
        })?;
        // SAFETY: the request takes open flags by value and returns a new descriptor.
        let slave = Errno::result(unsafe {
            libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags.bits())
        })?;
        // SAFETY: the descriptor was just returned to us.
        let slave = unsafe { OwnedFd::from_raw_fd(slave) };
        resize(&master, size)?;
        erase_whole_characters(&slave)?;
        Ok(Self { master, slave })
    }
}

/// Backspace takes a whole UTF-8 character off a line, as in every terminal program.
fn erase_whole_characters(slave: &OwnedFd) -> Result<(), Errno> {
    let mut modes = tcgetattr(slave)?;
    modes.input_flags |= InputFlags::IUTF8;
    tcsetattr(slave, SetArg::TCSANOW, &modes)
}

/// Sets the size of the terminal behind `fd`; the kernel sends `SIGWINCH` to its foreground group.
pub fn resize(fd: impl AsFd, size: TerminalSize) -> Result<(), Errno> {
    let window = libc::winsize {
        ws_row: size.rows,
        ws_col: size.cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the request reads one winsize through the pointer, which is valid for the call.
    Errno::result(unsafe {
        libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCSWINSZ, &raw const window)
    })
    .map(drop)
}

/// Waits until a terminal's other side is closed, which may be for ever. For whoever reads from it:
/// a process that is no session leader gets no signal then.
pub fn wait_hang_up(fd: impl AsFd) -> Result<(), Errno> {
    loop {
        // A hang-up is told without being asked for.
        let mut fds = [PollFd::new(fd.as_fd(), PollFlags::empty())];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => {
                let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
                if fds[0].revents().is_some_and(|r| r.intersects(gone)) {
                    return Ok(());
                }
            }
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes `slave` the controlling terminal of the calling process, which must lead a session that
/// has none.
pub fn take_control(slave: impl AsFd) -> Result<(), Errno> {
    // SAFETY: the request takes its argument by value.
    Errno::result(unsafe { libc::ioctl(slave.as_fd().as_raw_fd(), libc::TIOCSCTTY, 0) }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_closed_terminal_is_noticed_and_input_is_not_taken_for_it() {
        let size = TerminalSize { rows: 24, cols: 80 };
        let pty = Pty::open(Path::new("/dev/ptmx"), size).expect("a pty");
        let Pty { master, slave } = pty;
        let (out, noticed) = channel();
        let waiter = std::thread::spawn(move || out.send(wait_hang_up(&slave)));
        nix::unistd::write(&master, b"typed\n").expect("typing");
        assert!(noticed.recv_timeout(Duration::from_millis(100)).is_err());
        drop(master);
        let told = noticed.recv_timeout(Duration::from_secs(10));
        assert_eq!(told, Ok(Ok(())));
        waiter.join().expect("no panic").expect("still listening");
    }
}
