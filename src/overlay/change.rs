//! Makes and removes names. Owns whiteouts and opaque marks when they are written: a name the lower
//! still has is hidden by a whiteout when it goes, and a directory made where one hid something
//! shows nothing of the lower.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::UnlinkatFlags;

use super::calls::{self, Result};
use super::file::stamp;
use super::guard::Access;
use super::inode::{Found, Name, Node, Orphan, Side};
use super::lookup::{Sight, checked};
use super::xattr_calls::Subject;
use super::{Attr, Caller, Overlay};

/// What is to be made.
pub(super) enum New<'a> {
    File { mode: u32 },
    Dir { mode: u32 },
    Link { target: &'a [u8] },
    Special { mode: u32, rdev: (u32, u32) },
}

impl Overlay {
    /// Makes a directory. What is returned counts as one reference, as all that is made here.
    pub fn mkdir(&self, caller: &Caller, parent: u64, name: &[u8], mode: u32) -> Result<Attr> {
        self.make(caller, parent, name, &New::Dir { mode })
            .map(|made| made.0)
    }

    /// Makes a pipe, a socket, an empty file, or a device (major and minor in `rdev`) where this
    /// process may: `EPERM` in a user namespace. The device 0/0 is a whiteout, and `EPERM`.
    pub fn mknod(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        rdev: (u32, u32),
    ) -> Result<Attr> {
        let new = match mode & libc::S_IFMT {
            0 | libc::S_IFREG => New::File { mode },
            libc::S_IFIFO | libc::S_IFSOCK => New::Special { mode, rdev: (0, 0) },
            libc::S_IFCHR if rdev == (0, 0) => return Err(Errno::EPERM),
            libc::S_IFCHR | libc::S_IFBLK => New::Special { mode, rdev },
            _ => return Err(Errno::EINVAL),
        };
        self.make(caller, parent, name, &new).map(|made| made.0)
    }

    /// Makes a symbolic link.
    pub fn symlink(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attr> {
        self.make(caller, parent, name, &New::Link { target })
            .map(|made| made.0)
    }

    /// Makes an object; a file is returned open for reading and writing.
    pub(super) fn make(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        new: &New<'_>,
    ) -> Result<(Attr, Arc<Node>, Option<OwnedFd>)> {
        let parent = self.dir_node(parent)?;
        let name = checked(name)?;
        self.permit(caller, &parent, &name, Access::Create, None)?;
        self.budget.room_for(1)?;
        let made = {
            let _tree = self.changing();
            let sight = self.sight(&parent, &name)?;
            if sight.shown().is_some() {
                return Err(Errno::EEXIST);
            }
            Self::alive(&parent)?;
            let dir = self.raised_dir(&parent)?;
            let file = over_whiteout(dir.as_fd(), &name, sight.whiteout, || {
                self.make_at(caller, &parent, &dir, &name, new, sight.whiteout)
            })?;
            let stat = match &file {
                Some(file) => calls::stat_fd(file.as_fd())?,
                None => self.stat_at(dir.as_fd(), &name)?.ok_or(Errno::ENOENT)?,
            };
            let hides = sight.whiteout || parent.state().lower.is_some();
            let found = Found::made(&stat, hides);
            let name = Name {
                parent: parent.clone(),
                name: name.clone(),
            };
            let node = self.table().intern(found, name, true);
            if file.is_some() {
                node.state().stamp = Some(stamp(&stat));
            }
            (self.attr(&node, &stat), node, file)
        };
        self.saw(&parent, &name, Access::Create, 0);
        Ok(made)
    }

    fn make_at(
        &self,
        caller: &Caller,
        parent: &Arc<Node>,
        dir: &OwnedFd,
        name: &CStr,
        new: &New<'_>,
        hides: bool,
    ) -> Result<Option<OwnedFd>> {
        let masked = |mode: u32| -> Result<u32> {
            let inherits = Self::has_default_acl(parent, dir)?;
            Ok(if inherits { mode } else { mode & !caller.umask })
        };
        let mut file = None;
        match new {
            New::File { mode } => {
                file = Some(calls::create_at(
                    dir.as_fd(),
                    name,
                    masked(*mode)? & 0o7777,
                )?);
            }
            New::Dir { mode } => {
                nix::sys::stat::mkdirat(dir, name, calls::permissions(masked(*mode)?))?;
            }
            New::Link { target } => nix::unistd::symlinkat(*target, dir, name)?,
            New::Special { mode, rdev } => {
                calls::make_node(dir.as_fd(), name, masked(*mode)?, *rdev)?;
            }
        }
        let finished = self.finish(caller, parent, dir.as_fd(), name, new, hides);
        if let Err(e) = finished {
            let flag = match new {
                New::Dir { .. } => UnlinkatFlags::RemoveDir,
                _ => UnlinkatFlags::NoRemoveDir,
            };
            let _ = nix::unistd::unlinkat(dir, name, flag);
            return Err(e);
        }
        Ok(file)
    }

    /// Owner and marks of what was just made.
    fn finish(
        &self,
        caller: &Caller,
        parent: &Arc<Node>,
        dir: BorrowedFd<'_>,
        name: &CStr,
        new: &New<'_>,
        hides: bool,
    ) -> Result<()> {
        if (caller.uid, caller.gid) != self.own {
            let stat = calls::stat_at(dir, name)?.ok_or(Errno::ENOENT)?;
            let above = calls::stat_fd(dir)?;
            // A setgid directory has given its own group already.
            let group = (above.mode & libc::S_ISGID == 0).then_some(caller.gid);
            calls::chown(dir, name, Some(caller.uid), group)?;
            if stat.mode & 0o6000 != 0 && stat.kind() != libc::S_IFLNK {
                calls::chmod(dir, name, stat.mode)?;
            }
        }
        let merged = parent.state().lower.is_some();
        if matches!(new, New::Dir { .. }) && (hides || merged) {
            Self::mark_opaque(dir, name)?;
        }
        Ok(())
    }

    pub(super) fn mark_opaque(dir: BorrowedFd<'_>, name: &CStr) -> Result<()> {
        Subject { dir, name }.set(c"user.overlay.opaque", b"y", 0)
    }

    /// Whether what is made in the directory takes its mode from a default ACL.
    fn has_default_acl(parent: &Arc<Node>, dir: &OwnedFd) -> Result<bool> {
        if let Some(known) = parent.state().default_acl {
            return Ok(known);
        }
        let subject = Subject {
            dir: dir.as_fd(),
            name: c".",
        };
        let has = match subject.get(c"system.posix_acl_default") {
            Ok(_) => true,
            Err(Errno::ENODATA | Errno::EOPNOTSUPP) => false,
            Err(e) => return Err(e),
        };
        parent.state().default_acl = Some(has);
        Ok(has)
    }

    /// `ENOENT` in a directory that was removed, `EROFS` where something is mounted in the lower.
    pub(super) fn alive(dir: &Arc<Node>) -> Result<()> {
        let state = dir.state();
        if state.bare {
            Err(Errno::EROFS)
        } else if state.orphan.is_some() {
            Err(Errno::ENOENT)
        } else {
            Ok(())
        }
    }

    /// Gives an inode a further name. What is returned counts as one reference.
    pub fn link(&self, caller: &Caller, id: u64, parent: u64, name: &[u8]) -> Result<Attr> {
        let node = self.node(id)?;
        let parent = self.dir_node(parent)?;
        let name = checked(name)?;
        if node.is_dir() {
            return Err(Errno::EPERM);
        }
        self.permit_node(caller, &node, Access::Read)?;
        let alias = if self.guard.decides() {
            self.alias(&node)
        } else {
            None
        };
        self.permit(caller, &parent, &name, Access::Create, alias)?;
        self.copy_up(&node, u64::MAX)?;
        let attr = {
            let _tree = self.changing();
            let sight = self.sight(&parent, &name)?;
            if sight.shown().is_some() {
                return Err(Errno::EEXIST);
            }
            Self::alive(&parent)?;
            let (place, _) = self.located_above(&node)?;
            if place.name.is_empty() {
                return Err(Errno::ENOENT);
            }
            let dir = self.raised_dir(&parent)?;
            over_whiteout(dir.as_fd(), &name, sight.whiteout, || {
                calls::link(place.dir(), &place.name, dir.as_fd(), &name)
            })?;
            let (node, shown) = self.find(&parent, &name, true)?.ok_or(Errno::ENOENT)?;
            self.attr(&node, &shown.stat)
        };
        self.saw(&parent, &name, Access::Create, 0);
        Ok(attr)
    }

    /// Removes a name of anything but a directory.
    pub fn unlink(&self, caller: &Caller, parent: u64, name: &[u8]) -> Result<()> {
        let parent = self.dir_node(parent)?;
        let name = checked(name)?;
        self.permit(caller, &parent, &name, Access::Remove, None)?;
        {
            let _tree = self.changing();
            let (node, _) = self.find(&parent, &name, false)?.ok_or(Errno::ENOENT)?;
            if node.is_dir() {
                return Err(Errno::EISDIR);
            }
            self.may_remove(&parent, &node)?;
            let sight = self.sight(&parent, &name)?;
            if sight.lower.is_some_and(|low| low.mount_root) {
                return Err(Errno::EBUSY);
            }
            self.keep_orphan(&node, &parent, &name, &sight);
            let removed = self.take_name(&parent, &name, &sight);
            if removed.is_err() {
                node.state().orphan = None;
            }
            removed?;
            self.lost_name(&node, &parent, &name, &sight);
        }
        self.saw(&parent, &name, Access::Remove, 0);
        Ok(())
    }

    /// Takes a name away in the upper; leaves a whiteout where the lower still has it.
    fn take_name(&self, parent: &Arc<Node>, name: &CStr, sight: &Sight) -> Result<()> {
        if sight.lower.is_none() {
            let dir = self.dir_of(parent, Side::Upper)?;
            return nix::unistd::unlinkat(&*dir, name, UnlinkatFlags::NoRemoveDir);
        }
        let dir = self.raised_dir(parent)?;
        if sight.upper.is_none() {
            return calls::make_whiteout(dir.as_fd(), name);
        }
        let whiteout = self.temporary();
        calls::make_whiteout(self.work(), &whiteout)?;
        calls::rename(self.work(), &whiteout, dir.as_fd(), name, 0).inspect_err(|_| {
            let _ = nix::unistd::unlinkat(self.work(), &*whiteout, UnlinkatFlags::NoRemoveDir);
        })
    }

    /// Before its last known name goes: holds the object, so that whoever has it open can go on.
    pub(super) fn keep_orphan(
        &self,
        node: &Arc<Node>,
        parent: &Arc<Node>,
        name: &CStr,
        sight: &Sight,
    ) {
        {
            let state = node.state();
            if state.names.iter().any(|n| !n.is(parent, name)) || state.orphan.is_some() {
                return;
            }
        }
        if !node.is_known() {
            return;
        }
        let side = if sight.upper.is_some() {
            Side::Upper
        } else {
            Side::Lower
        };
        let Ok(dir) = self.dir_of(parent, side) else {
            return;
        };
        let wishes: &[OFlag] = match (node.kind, side) {
            (libc::S_IFREG, Side::Upper) => &[OFlag::O_RDWR, OFlag::O_RDONLY, OFlag::O_PATH],
            (libc::S_IFREG, Side::Lower) => &[OFlag::O_RDONLY, OFlag::O_PATH],
            _ => &[OFlag::O_PATH],
        };
        let orphan = wishes
            .iter()
            .find_map(|flags| calls::open_at(dir.as_fd(), name, *flags).ok());
        node.state().orphan = orphan.map(|fd| Orphan {
            side,
            fd: Arc::new(fd),
        });
    }

    /// After a name has gone.
    pub(super) fn lost_name(
        &self,
        node: &Arc<Node>,
        parent: &Arc<Node>,
        name: &CStr,
        sight: &Sight,
    ) {
        let mut state = node.state();
        let taken: Vec<_> = state.names.extract_if(.., |n| n.is(parent, name)).collect();
        if state.upper.is_none() {
            state.hidden += 1;
        }
        let has_names = !state.names.is_empty();
        if has_names {
            state.orphan = None;
        }
        drop(state);
        drop(taken);
        if has_names {
            self.moved();
        }
        let was_last = sight
            .upper
            .is_some_and(|stat| stat.nlink <= 1 || stat.is_dir());
        if was_last {
            if let Some(stat) = &sight.upper {
                self.budget.note(node, stat);
            }
            self.budget.settle(node, None);
            self.table().removed(node);
        }
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, caller: &Caller, parent: u64, name: &[u8]) -> Result<()> {
        let parent = self.dir_node(parent)?;
        let name = checked(name)?;
        self.permit(caller, &parent, &name, Access::Remove, None)?;
        self.movable(&parent, &name)?;
        {
            let _tree = self.changing();
            let (node, _) = self.find(&parent, &name, false)?.ok_or(Errno::ENOENT)?;
            if !node.is_dir() {
                return Err(Errno::ENOTDIR);
            }
            self.may_remove(&parent, &node)?;
            let sight = self.sight(&parent, &name)?;
            self.is_empty(&node)?;
            self.keep_orphan(&node, &parent, &name, &sight);
            let removed = self.take_dir(&parent, &name, &sight);
            if removed.is_err() {
                node.state().orphan = None;
            }
            removed?;
            Self::buried(&node);
            self.lost_name(&node, &parent, &name, &sight);
        }
        self.saw(&parent, &name, Access::Remove, 0);
        Ok(())
    }

    /// A removed directory shows nothing any more.
    pub(super) fn buried(node: &Arc<Node>) {
        let mut state = node.state();
        if let Some(orphan) = state.orphan.clone() {
            state.upper_dir = (orphan.side == Side::Upper).then(|| orphan.fd.clone());
            state.lower_dir = (orphan.side == Side::Lower).then_some(orphan.fd);
        }
    }

    fn take_dir(&self, parent: &Arc<Node>, name: &CStr, sight: &Sight) -> Result<()> {
        if sight.lower.is_some() && sight.upper.is_none() {
            let dir = self.raised_dir(parent)?;
            return calls::make_whiteout(dir.as_fd(), name);
        }
        let dir = self.dir_of(parent, Side::Upper)?;
        if sight.lower.is_none() {
            Self::clear(dir.as_fd(), name)?;
            return nix::unistd::unlinkat(&*dir, name, UnlinkatFlags::RemoveDir);
        }
        let whiteout = self.temporary();
        calls::make_whiteout(self.work(), &whiteout)?;
        let exchange = libc::RENAME_EXCHANGE;
        if let Err(e) = calls::rename(self.work(), &whiteout, dir.as_fd(), name, exchange) {
            let _ = nix::unistd::unlinkat(self.work(), &*whiteout, UnlinkatFlags::NoRemoveDir);
            return Err(e);
        }
        // What was the directory lies in the work directory now; what stays of it hurts nobody.
        let _ = Self::clear(self.work(), &whiteout);
        let _ = nix::unistd::unlinkat(self.work(), &*whiteout, UnlinkatFlags::RemoveDir);
        Ok(())
    }

    /// Removes the whiteouts of a directory of the upper in which nothing else is.
    pub(super) fn clear(dir: BorrowedFd<'_>, name: &CStr) -> Result<()> {
        let inner = calls::sub_dir(dir, name)?;
        for child in list_any(dir, name, &inner)? {
            nix::unistd::unlinkat(&inner, &*child.name, UnlinkatFlags::NoRemoveDir)?;
        }
        Ok(())
    }

    /// `ENOTEMPTY` where the directory shows anything, `EBUSY` where something is mounted.
    pub(super) fn is_empty(&self, node: &Arc<Node>) -> Result<()> {
        if node.state().bare {
            return Err(Errno::EBUSY);
        }
        if self.merged_names(node)?.is_empty() {
            Ok(())
        } else {
            Err(Errno::ENOTEMPTY)
        }
    }

    /// Whether the guard lets a directory be moved or removed as a whole. No lock is held.
    pub(super) fn movable(&self, parent: &Arc<Node>, name: &CStr) -> Result<()> {
        if !self.guard.decides() {
            return Ok(());
        }
        let Some(dir) = Self::path(parent) else {
            return Ok(());
        };
        if self
            .guard
            .protects_below(&self.layer, &dir.join(name.to_bytes()))
        {
            return Err(Errno::EACCES);
        }
        Ok(())
    }
}

/// Lists a directory whose mode may say no.
fn list_any(dir: BorrowedFd<'_>, name: &CStr, inner: &OwnedFd) -> Result<Vec<calls::Child>> {
    match calls::children(inner.as_fd()) {
        Err(Errno::EACCES) => {
            calls::chmod(dir, name, 0o700)?;
            calls::children(inner.as_fd())
        }
        other => other,
    }
}

/// Makes something under a name that a whiteout may hold; the whiteout comes back where that fails.
pub(super) fn over_whiteout<T>(
    dir: BorrowedFd<'_>,
    name: &CStr,
    is_whiteout: bool,
    make: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if is_whiteout {
        nix::unistd::unlinkat(dir, name, UnlinkatFlags::NoRemoveDir)?;
    }
    make().inspect_err(|_| {
        if is_whiteout {
            let _ = calls::make_whiteout(dir, name);
        }
    })
}
