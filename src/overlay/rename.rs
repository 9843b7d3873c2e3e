//! Renames. Owns what must lie in the upper before the kernel renames there, and the whiteouts and
//! opaque marks around it. A directory of the lower is first made pure upper, everything in it
//! included: the format knows no redirects.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::unistd::UnlinkatFlags;

use super::calls::{self, Result};
use super::guard::Access;
use super::inode::{Name, Node, Side};
use super::lookup::{Sight, checked};
use super::{Caller, Overlay};

/// One end of a rename.
struct End {
    parent: Arc<Node>,
    name: CString,
}

impl Overlay {
    /// Renames; `flags` as in renameat2(2): none, `RENAME_NOREPLACE` or `RENAME_EXCHANGE`, others are
    /// `EINVAL`.
    pub fn rename(
        &self,
        caller: &Caller,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
    ) -> Result<()> {
        if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0
            || flags == libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE
        {
            return Err(Errno::EINVAL);
        }
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        let from = End {
            parent: self.dir_node(from.0)?,
            name: checked(from.1)?,
        };
        let to = End {
            parent: self.dir_node(to.0)?,
            name: checked(to.1)?,
        };
        self.may_rename(caller, &from, &to, exchange)?;
        self.prepare(caller, &from)?;
        if exchange {
            self.prepare(caller, &to)?;
        }
        {
            let _tree = self.changing();
            if exchange {
                self.exchange(&from, &to)?;
            } else {
                self.replace(&from, &to, flags)?;
            }
        }
        self.saw(&from.parent, &from.name, Access::Remove, 0);
        self.saw(&to.parent, &to.name, Access::Create, 0);
        Ok(())
    }

    fn may_rename(&self, caller: &Caller, from: &End, to: &End, exchange: bool) -> Result<()> {
        if !self.guard.decides() {
            return Ok(());
        }
        let (source, target) = {
            let _tree = self.reading();
            let source = self.find(&from.parent, &from.name, false)?;
            let target = self.find(&to.parent, &to.name, false)?;
            (source, target)
        };
        let (source, _) = source.ok_or(Errno::ENOENT)?;
        let alias = self.alias(&source);
        self.permit(caller, &from.parent, &from.name, Access::Remove, alias)?;
        self.permit(caller, &to.parent, &to.name, Access::Create, alias)?;
        if source.is_dir() {
            self.movable(&from.parent, &from.name)?;
        }
        if let Some((target, _)) = target {
            let alias = self.alias(&target);
            self.permit(caller, &to.parent, &to.name, Access::Remove, alias)?;
            if exchange {
                self.permit(caller, &from.parent, &from.name, Access::Create, alias)?;
            }
            if target.is_dir() {
                self.movable(&to.parent, &to.name)?;
            }
        }
        Ok(())
    }

    /// Brings what is to move into the upper, without holding the tree.
    fn prepare(&self, caller: &Caller, end: &End) -> Result<()> {
        let node = {
            let _tree = self.reading();
            let (node, _) = self
                .find(&end.parent, &end.name, false)?
                .ok_or(Errno::ENOENT)?;
            node
        };
        if node.state().bare {
            return Err(Errno::EBUSY);
        }
        let done = if node.is_dir() {
            self.materialise(caller, &node)
        } else {
            self.copy_up(&node, u64::MAX)
        };
        let id = node.id;
        drop(node);
        let gone = self.table().release(id);
        drop(gone);
        done
    }

    /// Makes a directory pure upper: everything it shows lies there, and nothing of the lower does.
    fn materialise(&self, caller: &Caller, top: &Arc<Node>) -> Result<()> {
        // Parents are done after their children: only then may the lower cease to show.
        let mut stack = vec![(top.clone(), None::<Vec<CString>>)];
        while let Some((node, pending)) = stack.pop() {
            let Some(mut names) = pending else {
                if node.state().lower.is_none() {
                    continue;
                }
                if node.state().bare {
                    return Err(Errno::EBUSY);
                }
                let names = {
                    let tree = self.changing();
                    self.raised_dir(&node)?;
                    drop(tree);
                    let _tree = self.reading();
                    self.merged_names(&node)?
                };
                let names = names
                    .into_iter()
                    // What only the upper has, is done; but a directory may be merged.
                    .filter(|m| m.lower.is_some() || m.kind == libc::S_IFDIR)
                    .map(|m| m.name)
                    .collect();
                stack.push((node, Some(names)));
                continue;
            };
            let Some(name) = names.pop() else {
                let _tree = self.changing();
                self.cut_off(&node)?;
                continue;
            };
            stack.push((node.clone(), Some(names)));
            let found = {
                let _tree = self.reading();
                self.find(&node, &name, false)?
            };
            let Some((child, shown)) = found else {
                continue;
            };
            if child.is_dir() {
                stack.push((child, None));
            } else {
                // A copy has one name: that the file is protected by another would be forgotten.
                let done = self
                    .permit_alias(caller, (&node, &name, Access::Read), &child, &shown.stat)
                    .and_then(|()| self.copy_up(&child, u64::MAX));
                if done.is_ok() && shown.is_late {
                    self.link_late(&child, &node, &name);
                }
                let id = child.id;
                drop(child);
                let gone = self.table().release(id);
                drop(gone);
                done?;
            }
        }
        Ok(())
    }

    /// Marks a directory whose content is all in the upper. The tree is held for changing.
    fn cut_off(&self, node: &Arc<Node>) -> Result<()> {
        let dir = self.dir_of(node, Side::Upper)?;
        Self::mark_opaque(dir.as_fd(), c".")?;
        // Whiteouts in it hide nothing any more.
        for child in calls::children(dir.as_fd()).unwrap_or_default() {
            if child.kind == libc::S_IFCHR
                && let Some(stat) = self.stat_at(dir.as_fd(), &child.name)?
                && stat.is_whiteout()
            {
                Self::keeping_times(dir.as_fd(), || {
                    nix::unistd::unlinkat(&*dir, &*child.name, UnlinkatFlags::NoRemoveDir)
                })?;
            }
        }
        node.state().marks.opaque = true;
        self.table().parted(node);
        Ok(())
    }

    /// The node at an end, which by now must lie in the upper as a whole; `EAGAIN` never gets out,
    /// as it means that somebody moved what was prepared.
    fn ready(&self, end: &End) -> Result<(Arc<Node>, Sight)> {
        let (node, _) = self
            .find(&end.parent, &end.name, false)?
            .ok_or(Errno::ENOENT)?;
        let sight = self.sight(&end.parent, &end.name)?;
        let is_pure = sight.upper.is_some() && (!node.is_dir() || node.state().lower.is_none());
        if is_pure {
            Ok((node, sight))
        } else {
            Err(Errno::EBUSY)
        }
    }

    fn replace(&self, from: &End, to: &End, flags: u32) -> Result<()> {
        let (node, seen) = self.ready(from)?;
        self.may_remove(&from.parent, &node)?;
        let target = self.sight(&to.parent, &to.name)?;
        let replaced = self.find(&to.parent, &to.name, false)?;
        Self::alive(&to.parent)?;
        if let Some((other, _)) = &replaced {
            if flags & libc::RENAME_NOREPLACE != 0 {
                return Err(Errno::EEXIST);
            }
            // Two names of one file: nothing happens (rename(2)).
            if other.id == node.id {
                return Ok(());
            }
            match (node.is_dir(), other.is_dir()) {
                (true, true) => self.is_empty(other)?,
                (true, false) => return Err(Errno::ENOTDIR),
                (false, true) => return Err(Errno::EISDIR),
                (false, false) => {}
            }
            self.may_remove(&to.parent, other)?;
            if target.lower.is_some_and(|low| low.mount_root) {
                return Err(Errno::EBUSY);
            }
        }
        let into = self.raised_dir(&to.parent)?;
        let out = self.dir_of(&from.parent, Side::Upper)?;
        let leaves = seen.lower.is_some();
        if node.is_dir() {
            // The lower may have a directory there: it must not show in this one.
            Self::settle_opaque(&node, &out, &from.name, to, &target)?;
        }
        if let Some((other, _)) = &replaced {
            self.keep_orphan(other, &to.parent, &to.name, &target);
        }
        let moved = self.move_over(
            &node,
            (&out, &from.name),
            (&into, &to.name),
            &target,
            leaves,
        );
        if let Some((other, _)) = &replaced {
            match &moved {
                Ok(()) => {
                    if other.is_dir() {
                        Self::buried(other);
                    }
                    self.lost_name(other, &to.parent, &to.name, &target);
                }
                Err(_) => other.state().orphan = None,
            }
        }
        moved?;
        self.renamed(&node, from, to);
        Ok(())
    }

    fn settle_opaque(
        node: &Arc<Node>,
        out: &OwnedFd,
        name: &CStr,
        to: &End,
        target: &Sight,
    ) -> Result<()> {
        let needed = target.lower.is_some() || to.parent.state().lower.is_some();
        if needed && !node.state().marks.opaque {
            Self::mark_opaque(out.as_fd(), name)?;
            node.state().marks.opaque = true;
        }
        Ok(())
    }

    /// Moves within the upper. `leaves`: the old name must hide the lower's afterwards.
    fn move_over(
        &self,
        node: &Arc<Node>,
        from: (&OwnedFd, &CStr),
        to: (&OwnedFd, &CStr),
        target: &Sight,
        leaves: bool,
    ) -> Result<()> {
        let ((out, old), (into, new)) = ((from.0.as_fd(), from.1), (to.0.as_fd(), to.1));
        let in_the_way = target.whiteout || target.upper.is_some();
        if node.is_dir() && in_the_way {
            // A directory replaces nothing but an empty directory: what is there takes its place
            // first and is then done away with.
            calls::rename(out, old, into, new, libc::RENAME_EXCHANGE)?;
            return self.clean_up(out, old, target, leaves);
        }
        if !leaves {
            return calls::rename(out, old, into, new, 0);
        }
        match calls::rename(out, old, into, new, libc::RENAME_WHITEOUT) {
            Err(Errno::EINVAL | Errno::EPERM | Errno::ENOSYS) => {
                calls::rename(out, old, into, new, 0)?;
                calls::make_whiteout(out, old)
            }
            other => other,
        }
    }

    /// After an exchange: what was replaced lies under the old name.
    fn clean_up(
        &self,
        out: BorrowedFd<'_>,
        old: &CStr,
        target: &Sight,
        leaves: bool,
    ) -> Result<()> {
        if target.whiteout {
            return if leaves {
                Ok(())
            } else {
                nix::unistd::unlinkat(out, old, UnlinkatFlags::NoRemoveDir)
            };
        }
        let aside = self.temporary();
        calls::rename(out, old, self.work(), &aside, 0)?;
        if leaves {
            calls::make_whiteout(out, old)?;
        }
        let _ = Self::clear(self.work(), &aside);
        let _ = nix::unistd::unlinkat(self.work(), &*aside, UnlinkatFlags::RemoveDir);
        Ok(())
    }

    fn exchange(&self, from: &End, to: &End) -> Result<()> {
        let (first, first_seen) = self.ready(from)?;
        let (second, second_seen) = self.ready(to)?;
        if first.id == second.id {
            return Ok(());
        }
        let one = self.dir_of(&from.parent, Side::Upper)?;
        let other = self.dir_of(&to.parent, Side::Upper)?;
        if first.is_dir() {
            Self::settle_opaque(&first, &one, &from.name, to, &second_seen)?;
        }
        if second.is_dir() {
            Self::settle_opaque(&second, &other, &to.name, from, &first_seen)?;
        }
        calls::rename(
            one.as_fd(),
            &from.name,
            other.as_fd(),
            &to.name,
            libc::RENAME_EXCHANGE,
        )?;
        self.renamed(&first, from, to);
        self.renamed(&second, to, from);
        Ok(())
    }

    fn renamed(&self, node: &Arc<Node>, from: &End, to: &End) {
        let mut state = node.state();
        let gone: Vec<Name> = state
            .names
            .extract_if(.., |n| n.is(&from.parent, &from.name))
            .collect();
        state.names.push(Name {
            parent: to.parent.clone(),
            name: to.name.clone(),
        });
        drop(state);
        drop(gone);
        self.moved();
    }
}
