//! The command's network: the host's, or a namespace with nothing but a loopback. Owns the latter.

use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::failure::{Doing, Failure};

/// Moves the calling process into a network namespace of its own and brings its loopback up, so
/// that a program which talks to itself still can. Needs capabilities in the user namespace.
pub(super) fn isolate() -> Result<(), Failure> {
    unshare(CloneFlags::CLONE_NEWNET).doing("making a network namespace")?;
    raise_loopback().doing("bringing the loopback interface up")
}

fn raise_loopback() -> Result<(), Errno> {
    let socket = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: the request is a whole ifreq that outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    Errno::result(result).map(drop)
}
