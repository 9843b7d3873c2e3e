//! What belongs to ids that this process's namespace does not know. Owns how that is presented and
//! what may be done with it.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::unistd::AccessFlags;

use super::Overlay;
use super::calls::{self, Result, Stat};
use super::inode::{Node, Side};

impl Overlay {
    /// Whether somebody else's, by an id that has no number here.
    fn is_foreign(&self, stat: &Stat) -> bool {
        self.options.one_id && (stat.uid, stat.gid) != self.own
    }

    /// Mode, owner and group as they are shown.
    ///
    /// With an unknown owner, every class of the mode becomes what this process may really do:
    /// the caller is taken for the owner then.
    pub(super) fn presented(&self, node: &Arc<Node>, stat: &Stat) -> (u32, u32, u32) {
        if !self.is_foreign(stat) {
            return (stat.mode, stat.uid, stat.gid);
        }
        let (uid, gid) = self.own;
        if stat.uid == uid || stat.kind() == libc::S_IFLNK {
            return (stat.mode, uid, gid);
        }
        let rights = self
            .place(node)
            .map_or(0, |place| rights(place.dir(), &place.name));
        let special = stat.mode & !0o777;
        (special | rights << 6 | rights << 3 | rights, uid, gid)
    }

    /// Refuses early what could not be given its owner.
    pub(super) fn may_own(&self, stat: &Stat) -> Result<()> {
        let possible = if self.options.one_id {
            (stat.uid, stat.gid) == self.own
        } else {
            stat.uid == self.own.0 || self.own.0 == 0
        };
        if possible { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// In a sticky directory the kernel takes what it was shown for the caller's own.
    pub(super) fn may_remove(&self, parent: &Arc<Node>, node: &Arc<Node>) -> Result<()> {
        if node.state().bare {
            return Err(Errno::EBUSY);
        }
        if !self.options.one_id {
            return Ok(());
        }
        let side = if parent.state().upper.is_some() {
            Side::Upper
        } else {
            Side::Lower
        };
        let above = calls::stat_fd(self.dir_of(parent, side)?.as_fd())?;
        if above.mode & libc::S_ISVTX == 0 {
            return Ok(());
        }
        // The lower's owner counts, also where the upper's directory had to become our own.
        let lower = self.dir_of(parent, Side::Lower).ok();
        let real = lower.and_then(|dir| calls::stat_fd(dir.as_fd()).ok());
        let (victim, above) = (self.node_stat(node)?, real.unwrap_or(above));
        if victim.uid == self.own.0 || above.uid == self.own.0 {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }
}

/// What this process may do with an entry: the bits of one class of a mode.
fn rights(dir: BorrowedFd<'_>, name: &CStr) -> u32 {
    let name = if name.is_empty() { c"." } else { name };
    let flags = AtFlags::AT_EACCESS | AtFlags::AT_SYMLINK_NOFOLLOW;
    [
        (AccessFlags::R_OK, 4),
        (AccessFlags::W_OK, 2),
        (AccessFlags::X_OK, 1),
    ]
    .into_iter()
    .filter(|(right, _)| nix::unistd::faccessat(dir, name, *right, flags).is_ok())
    .map(|(_, bit)| bit)
    .sum()
}
