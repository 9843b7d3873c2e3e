//! The network of a sandbox. Owns the step that takes it away: a network namespace with nothing in
//! it but its own loopback.

use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::failure::{Doing, Failure};
use super::spec::Network;

/// Puts the calling process, and those it forks, on the network that was asked for. Needs the
/// rights of its own user namespace.
pub(super) fn enter(network: Network) -> Result<(), Failure> {
    match network {
        Network::Host => Ok(()),
        Network::None => {
            unshare(CloneFlags::CLONE_NEWNET).doing("making a network namespace")?;
            loopback_up().doing("switching the loopback on")
        }
    }
}

/// Programs that talk to themselves (test servers) need a loopback that is up.
fn loopback_up() -> Result<(), Errno> {
    let control = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // SAFETY: the structure holds numbers only, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the socket is open, and the kernel only reads the structure, which outlives the call.
    let result =
        unsafe { libc::ioctl(control.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    Errno::result(result).map(drop)
}
