//! Where a node's object lies at present, as an open directory and a name in it. Owns the cache of
//! open directories and the checks that what lies there is still what it was.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use nix::errno::Errno;

use super::calls::{self, Result, Stat};
use super::counters::count;
use super::inode::{Key, Node, Side};
use super::xattr_calls::Subject;
use super::{Attr, Overlay, held};
use crate::RelPath;

/// Directories held open at once, both trees together.
const OPEN_AT_ONCE: usize = 512;

/// The directories that are held open, the earliest first.
#[derive(Default)]
pub(super) struct OpenDirs {
    order: VecDeque<(Weak<Node>, Side)>,
}

/// An open directory and a name in it; the open object itself when the name is empty.
pub(super) struct Place {
    pub dir: Arc<OwnedFd>,
    pub name: CString,
    pub side: Side,
}

impl Place {
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// As an owner of extended attributes. A directory's own descriptor is only a place, which
    /// answers under the name `.` alone.
    pub fn subject(&self, node: &Node) -> Subject<'_> {
        let name: &CStr = if self.name.is_empty() && node.is_dir() {
            c"."
        } else {
            &self.name
        };
        Subject {
            dir: self.dir(),
            name,
        }
    }
}

/// What the upper's file system has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Unit of the numbers of blocks, in bytes.
    pub fragment: u64,
    /// Preferred size of reads and writes.
    pub block: u64,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks for ordinary users.
    pub available: u64,
    /// All inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Longest name.
    pub name: u64,
}

impl Overlay {
    /// The open directory of a node on one side; `ENOENT` where it has none there.
    pub(super) fn dir_of(&self, node: &Arc<Node>, side: Side) -> Result<Arc<OwnedFd>> {
        let mut chain: Vec<(Arc<Node>, CString)> = Vec::new();
        let mut at = node.clone();
        let mut fd = loop {
            let state = at.state();
            let (open, here) = match side {
                Side::Upper => (&state.upper_dir, state.upper),
                Side::Lower => (&state.lower_dir, state.lower),
            };
            if let Some(open) = open {
                break open.clone();
            }
            if here.is_none() || state.bare {
                return Err(Errno::ENOENT);
            }
            let name = state.names.first().cloned().ok_or(Errno::ENOENT)?;
            drop(state);
            chain.push((at, name.name));
            at = name.parent;
        };
        while let Some((node, name)) = chain.pop() {
            let next = calls::sub_dir(fd.as_fd(), &name).map_err(|e| match e {
                Errno::EXDEV => Errno::ENOENT,
                other => other,
            })?;
            fd = Arc::new(next);
            self.keep_open(&node, side, &fd)?;
        }
        Ok(fd)
    }

    /// Remembers an open directory when it is what the node says.
    fn keep_open(&self, node: &Arc<Node>, side: Side, fd: &Arc<OwnedFd>) -> Result<()> {
        let stat = self.stat_at(fd.as_fd(), c"")?.ok_or(Errno::ESTALE)?;
        let key = Key::of(side, &stat);
        {
            let mut state = node.state();
            let (slot, expected) = match side {
                Side::Upper => {
                    let expected = state.upper;
                    (&mut state.upper_dir, expected)
                }
                Side::Lower => {
                    let expected = state.lower;
                    (&mut state.lower_dir, expected)
                }
            };
            if expected != Some(key) {
                return Err(Errno::ESTALE);
            }
            *slot = Some(fd.clone());
        }
        let evicted = {
            let mut open = held(&self.open_dirs);
            open.order.push_back((Arc::downgrade(node), side));
            if open.order.len() > OPEN_AT_ONCE {
                open.order.pop_front()
            } else {
                None
            }
        };
        if let Some((node, side)) = evicted
            && let Some(node) = node.upgrade()
            && node.id != super::ROOT
        {
            let mut state = node.state();
            // A removed directory has no name by which it could be opened again.
            if state.orphan.is_none() {
                let _closed = match side {
                    Side::Upper => state.upper_dir.take(),
                    Side::Lower => state.lower_dir.take(),
                };
            }
        }
        Ok(())
    }

    /// Where the node's object lies. `ESTALE` where it no longer lies under any name known.
    pub(super) fn place(&self, node: &Arc<Node>) -> Result<Place> {
        let (side, name) = {
            let state = node.state();
            let side = if state.upper.is_some() {
                Side::Upper
            } else {
                Side::Lower
            };
            if let Some(orphan) = &state.orphan {
                return Ok(Place {
                    dir: orphan.fd.clone(),
                    name: CString::default(),
                    side: orphan.side,
                });
            }
            (side, state.names.first().cloned())
        };
        if node.id == super::ROOT {
            let dir = self.dir_of(node, side)?;
            let name = CString::default();
            return Ok(Place { dir, name, side });
        }
        let name = name.ok_or(Errno::ESTALE)?;
        let dir = self.dir_of(&name.parent, side)?;
        Ok(Place {
            dir,
            name: name.name,
            side,
        })
    }

    /// Where the node's object lies, looked at there. Names under which the lower has something
    /// else by now are forgotten.
    pub(super) fn located(&self, node: &Arc<Node>) -> Result<(Place, Stat)> {
        loop {
            let place = self.place(node)?;
            let expected = {
                let state = node.state();
                state.upper.or(state.lower)
            };
            let found = match self.stat_at(place.dir(), &place.name) {
                Ok(found) => found,
                Err(Errno::ENOTDIR) => None,
                Err(e) => return Err(e),
            };
            if let Some(stat) = found
                && expected == Some(Key::of(place.side, &stat))
            {
                return Ok((place, stat));
            }
            let mut state = node.state();
            let moved = state.upper.or(state.lower) != expected;
            if !moved {
                if state.names.len() <= 1 || state.orphan.is_some() {
                    return Err(Errno::ESTALE);
                }
                let _stale = state.names.remove(0);
                self.moved();
            }
        }
    }

    /// As [`Overlay::located`], of what is to be changed: it lies in the upper, or the change does
    /// not happen.
    pub(super) fn located_above(&self, node: &Arc<Node>) -> Result<(Place, Stat)> {
        let (place, stat) = self.located(node)?;
        if place.side == Side::Upper {
            Ok((place, stat))
        } else {
            Err(Errno::EROFS)
        }
    }

    /// `statx`, counted.
    pub(super) fn stat_at(&self, dir: BorrowedFd<'_>, name: &CStr) -> Result<Option<Stat>> {
        count(&self.counters.physical_stats);
        calls::stat_at(dir, name)
    }

    /// What `stat` says of an inode; of an open file where a handle is given.
    pub fn getattr(&self, id: u64, handle: Option<u64>) -> Result<Attr> {
        let node = self.node(id)?;
        if let Some(stat) = handle.and_then(|h| self.handle_stat(h)) {
            return Ok(self.attr(&node, &stat?));
        }
        let _tree = self.reading();
        let stat = self.node_stat(&node)?;
        Ok(self.attr(&node, &stat))
    }

    /// The path of a node below the root, by a name it is known by; `None` once it has none.
    pub(super) fn path(node: &Arc<Node>) -> Option<RelPath> {
        let mut names = Vec::new();
        let mut at = node.clone();
        while at.id != super::ROOT {
            let name = at.name()?;
            names.push(name.name);
            at = name.parent;
        }
        let parts: Vec<&[u8]> = names.iter().rev().map(|n| n.to_bytes()).collect();
        RelPath::new(parts.join(&b'/')).ok()
    }

    /// What the upper's file system has room for, within the budget.
    pub fn space(&self) -> Result<Space> {
        let raw = nix::sys::statvfs::fstatvfs(&self.upper)?;
        let mut space = Space {
            fragment: raw.fragment_size(),
            block: raw.block_size(),
            blocks: raw.blocks(),
            free: raw.blocks_free(),
            available: raw.blocks_available(),
            files: raw.files(),
            files_free: raw.files_free(),
            name: raw.name_max(),
        };
        if let Some((used, most)) = self.budget.state() {
            let unit = space.fragment.max(1);
            space.blocks = space.blocks.min(most / unit);
            let left = most.saturating_sub(used) / unit;
            space.free = space.free.min(left);
            space.available = space.available.min(left);
        }
        Ok(space)
    }
}
