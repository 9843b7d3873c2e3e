//! Directories on their way into the upper: made there with what the lower's has, parents first.
//! Owns the temporary names in the work directory and the rule that a copy-up does not move the
//! parent's time.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use nix::sys::stat::Mode;
use nix::unistd::UnlinkatFlags;

use super::Overlay;
use super::calls::{self, Result, SetTime, Stat};
use super::inode::{Key, Node, Side};
use super::xattr::stored_name;
use super::xattr_calls::Subject;

impl Overlay {
    /// A name in the work directory that nobody else uses.
    pub(super) fn temporary(&self) -> CString {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        CString::new(format!("t{number}")).unwrap_or_default()
    }

    pub(super) fn work(&self) -> BorrowedFd<'_> {
        self.work.as_fd()
    }

    /// The directory in the upper, made together with those above it where it is missing. The tree
    /// is held for changing.
    pub(super) fn raised_dir(&self, node: &Arc<Node>) -> Result<Arc<OwnedFd>> {
        let mut missing = Vec::new();
        let mut at = node.clone();
        while at.state().upper.is_none() {
            let name = at.name().ok_or(Errno::ENOENT)?;
            if at.state().bare {
                return Err(Errno::EROFS);
            }
            missing.push((at, name.name));
            at = name.parent;
        }
        while let Some((node, name)) = missing.pop() {
            self.raise_dir(&at, &node, &name)?;
            at = node;
        }
        if node.state().orphan.is_some() {
            return Err(Errno::ENOENT);
        }
        self.dir_of(node, Side::Upper)
    }

    fn raise_dir(&self, parent: &Arc<Node>, node: &Arc<Node>, name: &CStr) -> Result<()> {
        let into = self.dir_of(parent, Side::Upper)?;
        let from = self.dir_of(node, Side::Lower)?;
        let stat = calls::stat_fd(from.as_fd())?;
        self.budget.room_for(4096)?;
        let temporary = self.temporary();
        nix::sys::stat::mkdirat(self.work(), &*temporary, Mode::S_IRWXU)?;
        let made = self.dress_dir(&from, &stat, &temporary).and_then(|key| {
            Self::keeping_times(into.as_fd(), || {
                calls::rename(
                    self.work(),
                    &temporary,
                    into.as_fd(),
                    name,
                    libc::RENAME_NOREPLACE,
                )
            })?;
            Ok(key)
        });
        match made {
            Ok(key) => {
                self.table().raised(node, key);
                Ok(())
            }
            Err(e) => {
                let _ = nix::unistd::unlinkat(self.work(), &*temporary, UnlinkatFlags::RemoveDir);
                Err(e)
            }
        }
    }

    fn dress_dir(&self, from: &OwnedFd, stat: &Stat, temporary: &CStr) -> Result<Key> {
        let source = Subject {
            dir: from.as_fd(),
            name: c".",
        };
        let target = Subject {
            dir: self.work(),
            name: temporary,
        };
        self.carry(source, target, stat)?;
        let made = calls::stat_at(self.work(), temporary)?.ok_or(Errno::ENOENT)?;
        Ok(Key::of(Side::Upper, &made))
    }

    /// Gives a new object of the upper the attributes, owner, mode and times of the lower's.
    pub(super) fn carry(
        &self,
        source: Subject<'_>,
        target: Subject<'_>,
        stat: &Stat,
    ) -> Result<()> {
        if matches!(stat.kind(), libc::S_IFDIR | libc::S_IFREG) {
            for name in source.list()? {
                let Some(stored) = stored_name(&name) else {
                    continue;
                };
                match source.get(&name) {
                    Ok(value) => match target.set(&stored, &value, 0) {
                        // A file system without attributes cannot hold what the lower's could.
                        Err(Errno::EOPNOTSUPP) => {}
                        // An ACL with ids that this namespace does not know cannot be kept: better
                        // refused than lost.
                        Err(Errno::EINVAL) if stored.to_bytes().starts_with(b"system.") => {
                            return Err(Errno::EPERM);
                        }
                        other => other?,
                    },
                    Err(Errno::ENODATA | Errno::EACCES | Errno::EPERM) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        let (dir, name) = (target.dir, target.name);
        if (stat.uid, stat.gid) != self.own {
            match calls::chown(dir, name, Some(stat.uid), Some(stat.gid)) {
                // Somebody else's directory: what happens in it is the caller's, and its owner is
                // nothing a review looks at.
                Err(Errno::EINVAL | Errno::EPERM) if stat.is_dir() => {}
                Err(Errno::EINVAL) => return Err(Errno::EPERM),
                other => other?,
            }
        }
        if stat.kind() != libc::S_IFLNK {
            calls::chmod(dir, name, stat.mode)?;
        }
        calls::set_times(dir, name, SetTime::To(stat.atime), SetTime::To(stat.mtime))
    }

    /// Does something in a directory of the upper and puts the directory's times back: a copy-up
    /// is nothing that happened to it.
    pub(super) fn keeping_times<T>(
        dir: BorrowedFd<'_>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let before = calls::stat_fd(dir)?;
        let value = work()?;
        calls::set_times(
            dir,
            c"",
            SetTime::To(before.atime),
            SetTime::To(before.mtime),
        )?;
        Ok(value)
    }
}
