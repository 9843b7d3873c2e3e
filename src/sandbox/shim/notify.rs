//! The kernel's side of a reported call (seccomp_unotify(2)). Owns the three ioctls and their
//! structures.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

/// `SECCOMP_IOCTL_NOTIF_RECV`, `_SEND` and `_ID_VALID`.
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
const STILL_VALID: libc::c_ulong = 0x4008_2102;
/// `SECCOMP_IOCTL_NOTIF_SET_FLAGS` and its one flag (Linux 6.6).
const SET_FLAGS: libc::c_ulong = 0x4008_2104;
const SYNC_WAKE_UP: u64 = 1;

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`: the kernel carries the call out itself.
const CONTINUE: u32 = 1;

/// `struct seccomp_notif`: a call that waits for an answer.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Call {
    /// Names this call.
    pub id: u64,
    /// The calling thread, as the receiver's PID namespace numbers it.
    pub thread: u32,
    flags: u32,
    /// Number of the system call.
    pub number: i32,
    arch: u32,
    instruction: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

#[repr(C)]
struct Answer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const _: () = assert!(size_of::<Call>() == 80 && size_of::<Answer>() == 24);

/// Asks for calls to be handed over on the caller's processor, which is about to be free: until a
/// call is taken, a signal may still interrupt it.
pub fn hurry(listener: BorrowedFd<'_>) {
    // Older kernels do not know it, and go without.
    // SAFETY: the request takes a number.
    unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS as _, SYNC_WAKE_UP) };
}

/// The next call. `ENOENT`: its thread was killed meanwhile, or no process with the filter is left.
pub fn receive(listener: BorrowedFd<'_>) -> Result<Call, Errno> {
    // The kernel refuses a structure that is not all zero.
    let mut call = Call::default();
    // SAFETY: the structure has the size and layout that the request's number names.
    Errno::result(unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE as _, &raw mut call) })?;
    Ok(call)
}

/// Whether the call still waits: its thread lives, and everything found out about it by its number
/// is about that thread.
pub fn still_waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the request reads eight bytes.
    unsafe { libc::ioctl(listener.as_raw_fd(), STILL_VALID as _, &raw const id) == 0 }
}

/// Lets the kernel carry the call out.
pub fn go_on(listener: BorrowedFd<'_>, id: u64) {
    send(
        listener,
        &Answer {
            id,
            value: 0,
            error: 0,
            flags: CONTINUE,
        },
    );
}

/// Makes the call fail.
pub fn refuse(listener: BorrowedFd<'_>, id: u64, errno: Errno) {
    send(
        listener,
        &Answer {
            id,
            value: 0,
            error: -(errno as i32),
            flags: 0,
        },
    );
}

fn send(listener: BorrowedFd<'_>, answer: &Answer) {
    // Fails where the thread is gone: nobody waits then.
    // SAFETY: the structure has the size and layout that the request's number names.
    unsafe { libc::ioctl(listener.as_raw_fd(), SEND as _, std::ptr::from_ref(answer)) };
}
