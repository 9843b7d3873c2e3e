//! Changes of attributes. Owns the order in which they are applied: owner first (it takes special
//! bits away), then mode, size, times.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::calls::{self, Result, SetTime, Stat};
use super::guard::Access;
use super::inode::Node;
use super::place::Place;
use super::{Attr, Caller, Overlay};

/// What is to become different.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// Permission bits, special ones among them.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes: cut, or lengthened by a hole.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last modification.
    pub mtime: Option<SetTime>,
}

impl Overlay {
    /// Changes attributes of an inode, through an open file where a handle is given.
    pub fn setattr(
        &self,
        caller: &Caller,
        id: u64,
        handle: Option<u64>,
        changes: &Changes,
    ) -> Result<Attr> {
        let node = self.node(id)?;
        self.permit_node(caller, &node, Access::Write)?;
        if changes.uid.is_none() && changes.gid.is_none() && *changes == Changes::default() {
            return self.getattr(id, handle);
        }
        let stat = {
            let _tree = self.reading();
            self.node_stat(&node)?
        };
        // Nothing is copied up for an owner that stays the same.
        let same_owner = changes.uid.is_none_or(|uid| uid == stat.uid)
            && changes.gid.is_none_or(|gid| gid == stat.gid);
        if !same_owner {
            self.may_chown(changes)?;
        }
        self.copy_up(&node, changes.size.unwrap_or(u64::MAX))?;
        let after = self.change(&node, handle, changes)?;
        self.budget.settle(&node, Some(&after));
        self.saw_node(&node, Access::Write, 0);
        Ok(self.attr(&node, &after))
    }

    /// Ids that the namespace does not know would be `EINVAL`; the caller is told `EPERM` where a
    /// change of owner is beyond what this process may do.
    fn may_chown(&self, changes: &Changes) -> Result<()> {
        let foreign = changes.uid.is_some_and(|uid| uid != self.own.0);
        if foreign && self.own.0 != 0 {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    fn change(&self, node: &Arc<Node>, handle: Option<u64>, changes: &Changes) -> Result<Stat> {
        // Held for changing: a copy-up or a rename must not come between the steps.
        let _tree = self.changing();
        let (place, stat) = self.located_above(node)?;
        self.budget.note(node, &stat);
        let (dir, name): (BorrowedFd<'_>, &CStr) = (place.dir(), &place.name);
        if changes.uid.is_some() || changes.gid.is_some() {
            calls::chown(dir, name, changes.uid, changes.gid)?;
        }
        if let Some(mode) = changes.mode {
            calls::chmod(dir, name, mode)?;
            node.plain.store(false, Ordering::Release);
        }
        if let Some(size) = changes.size {
            self.resize(&place, handle, size, &stat)?;
            if changes.mode.is_none() {
                Self::strip_special((dir, name), &stat)?;
            }
        }
        if changes.atime.is_some() || changes.mtime.is_some() {
            let keep = SetTime::Keep;
            calls::set_times(
                dir,
                name,
                changes.atime.unwrap_or(keep),
                changes.mtime.unwrap_or(keep),
            )?;
        }
        self.stat_at(dir, name)?.ok_or(Errno::ESTALE)
    }

    fn resize(&self, place: &Place, handle: Option<u64>, size: u64, stat: &Stat) -> Result<()> {
        if !stat.is_file() {
            return Err(Errno::EINVAL);
        }
        let length = i64::try_from(size).map_err(|_| Errno::EFBIG)?;
        let open = handle.and_then(|h| self.writable_file(h));
        if let Some(file) = open {
            return nix::unistd::ftruncate(file.as_fd(), length);
        }
        let file = File::from(Self::open_place(place, OFlag::O_WRONLY)?);
        nix::unistd::ftruncate(file.as_fd(), length)
    }
}
