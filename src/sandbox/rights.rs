//! The few capabilities a process of ours may keep. Owns their numbers and the calls that take all
//! others away.

use nix::errno::Errno;

use super::failure::{Doing, Failure};

/// A capability by its number (capabilities(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Right {
    /// Gives files away, among the mapped ids.
    Chown = 0,
    /// Passes over permissions.
    DacOverride = 1,
    /// Passes over permissions to read and search.
    DacReadSearch = 2,
    /// Acts as the owner of any file.
    Fowner = 3,
    /// Keeps set-id bits.
    Fsetid = 4,
    /// Makes special files.
    Mknod = 27,
    /// Sets file capabilities.
    Setfcap = 31,
}

/// Keeps `rights` of what this thread has, and nothing that an exec or a child could regain.
pub(super) fn keep_only(rights: &[Right]) -> Result<(), Failure> {
    let kept = rights
        .iter()
        .fold(0_u64, |all, right| all | 1 << (*right as u32));
    for capability in 0..u64::from(u32::BITS * 2) {
        if kept & 1 << capability != 0 {
            continue;
        }
        match control(libc::PR_CAPBSET_DROP, capability) {
            Ok(()) => {}
            // Beyond the last one the kernel knows.
            Err(Errno::EINVAL) if capability > 0 => break,
            Err(errno) => return Err(errno).doing("narrowing the capability bounding set"),
        }
    }
    match control(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as u64) {
        // Kernels before 4.3 have no such set.
        Ok(()) | Err(Errno::EINVAL) => {}
        Err(errno) => return Err(errno).doing("emptying the ambient capabilities"),
    }
    /// `_LINUX_CAPABILITY_VERSION_3`, this thread.
    const HEADER: [u32; 2] = [0x2008_0522, 0];
    let (low, high) = (kept as u32, (kept >> 32) as u32);
    // Effective, permitted, inheritable; low and high words.
    let sets = [[low, low, 0], [high, high, 0]];
    // SAFETY: both arrays have the layout of capset(2)'s structures for version 3 and live on.
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, HEADER.as_ptr(), sets.as_ptr()) })
        .map(drop)
        .doing("dropping capabilities")
}

fn control(operation: libc::c_int, argument: u64) -> Result<(), Errno> {
    let none: libc::c_ulong = 0;
    // SAFETY: the operations used here take numbers only.
    Errno::result(unsafe { libc::prctl(operation, argument as libc::c_ulong, none, none, none) })
        .map(drop)
}
