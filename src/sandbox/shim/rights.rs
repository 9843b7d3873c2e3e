//! Capabilities of the server's threads, in the session's user namespace: over files there that is
//! a right over the session's own id only.

use nix::errno::Errno;

/// `CAP_*` by their numbers (capability.h).
const DAC_OVERRIDE: u32 = 1;
const DAC_READ_SEARCH: u32 = 2;
const FOWNER: u32 = 3;
const FSETID: u32 = 4;
const SYS_CHROOT: u32 = 18;
const SYS_PTRACE: u32 = 19;

/// To look at a thread's path, directories and root.
const LOOKING: u64 = 1 << SYS_PTRACE | 1 << SYS_CHROOT;
/// To move entries whatever their modes, and to give them back what they had.
const MOVING: u64 = 1 << DAC_OVERRIDE | 1 << DAC_READ_SEARCH | 1 << FOWNER | 1 << FSETID;

/// Gives up everything that is never needed, and the rights over files until they are.
pub fn reduce() -> Result<(), Errno> {
    set(LOOKING, LOOKING | MOVING)
}

/// As long as it lives, this thread may open and move whatever the session's id owns.
pub struct OverFiles(());

impl OverFiles {
    /// Raises the rights.
    pub fn raise() -> Result<Self, Errno> {
        set(LOOKING | MOVING, LOOKING | MOVING)?;
        Ok(Self(()))
    }
}

impl Drop for OverFiles {
    fn drop(&mut self) {
        // Giving up a right that is held cannot fail.
        let _ = set(LOOKING, LOOKING | MOVING);
    }
}

/// Sets this thread's effective and permitted set; nothing is inheritable.
fn set(effective: u64, permitted: u64) -> Result<(), Errno> {
    /// `_LINUX_CAPABILITY_VERSION_3`, this thread.
    const HEADER: [u32; 2] = [0x2008_0522, 0];
    let word = |set: u64, high: u32| (set >> (32 * high)) as u32;
    let sets: [[u32; 3]; 2] = [0, 1].map(|high| [word(effective, high), word(permitted, high), 0]);
    // SAFETY: both arrays have the layout of capset(2)'s structures for version 3 and live on.
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, HEADER.as_ptr(), sets.as_ptr()) })
        .map(drop)
}
