//! The session's socket as a file. Owns its directory and modes (directory 0700, socket 0600) and
//! the way round the kernel's limit of 108 bytes for its path.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, umask};

/// Listens on `socket`; a dead server's socket is replaced. The process must have one thread: the
/// umask is changed for a moment, so that the socket is 0600 from the first.
pub fn bind(socket: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = socket.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
    }
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (_directory, short) = shortened(socket)?;
    let before = umask(Mode::from_bits_truncate(0o177));
    let listener = UnixListener::bind(short);
    umask(before);
    listener
}

/// Connects to `socket`.
pub fn connect(socket: &Path) -> io::Result<UnixStream> {
    let (_directory, short) = shortened(socket)?;
    UnixStream::connect(short)
}

/// The same socket by a path that is always short enough; it holds while the directory is open.
fn shortened(socket: &Path) -> io::Result<(File, PathBuf)> {
    let (Some(directory), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a socket's path",
        ));
    };
    let directory = File::options()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(directory)?;
    let short = Path::new("/proc/self/fd")
        .join(directory.as_raw_fd().to_string())
        .join(name);
    Ok((directory, short))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_socket_far_down_can_be_reached_and_is_its_owners_alone() {
        let root = tempfile::tempdir().expect("temporary directory");
        let socket = root.path().join("d".repeat(120)).join("v1").join("s.sock");
        let listener = bind(&socket).expect("binds");
        let mode = fs::metadata(&socket)
            .expect("is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        connect(&socket).expect("connects");
        drop(listener);
        assert!(connect(&socket).is_err());
        bind(&socket).expect("a dead server's socket is replaced");
    }
}
