//! Listings. Owns the merge of names, their true inode numbers, and offsets that stay where they
//! are while entries come and go: a listing is a picture of the moment it was begun.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::calls::{self, Result, Stat, Time};
use super::guard::Access;
use super::inode::{Key, Node, Side};
use super::{Attr, Caller, Overlay, held};

/// One name of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: Vec<u8>,
    /// The inode number that `stat` gives for it.
    pub id: u64,
    /// Type bits of the mode.
    pub kind: u32,
}

/// An open directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listing {
    /// Stands for it in later calls.
    pub handle: u64,
    /// How long ago it was last listed, when nothing has been added or removed since.
    pub unchanged: Option<Duration>,
}

/// A merged name before its number is known.
#[derive(Debug, Clone)]
pub(super) struct Merged {
    pub name: CString,
    pub kind: u32,
    pub upper: Option<u64>,
    pub lower: Option<u64>,
}

/// The picture of a directory behind a handle.
pub(super) struct Snapshot {
    node: Arc<Node>,
    entries: Mutex<Option<Arc<Vec<Merged>>>>,
}

impl Overlay {
    /// Opens a directory for listing.
    pub fn opendir(&self, caller: &Caller, id: u64) -> Result<Listing> {
        let node = self.dir_node(id)?;
        self.permit_node(caller, &node, Access::List)?;
        let times = self.listing_times(&node);
        let unchanged = match node.state().listed {
            Some((before, at)) if before == times => Some(at.elapsed()),
            _ => None,
        };
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        let snapshot = Arc::new(Snapshot {
            node: node.clone(),
            entries: Mutex::default(),
        });
        self.listings
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(handle, snapshot);
        self.saw_node(&node, Access::List, 0);
        Ok(Listing { handle, unchanged })
    }

    /// When either side of a directory was last changed.
    fn listing_times(&self, node: &Arc<Node>) -> [Option<Time>; 2] {
        let _tree = self.reading();
        [Side::Upper, Side::Lower].map(|side| {
            let dir = self.dir_of(node, side).ok()?;
            calls::stat_fd(dir.as_fd()).ok().map(|stat| stat.mtime)
        })
    }

    /// Closes a directory.
    pub fn releasedir(&self, handle: u64) {
        let gone = self
            .listings
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&handle);
        drop(gone);
    }

    fn snapshot(&self, handle: u64, offset: u64) -> Result<(Arc<Node>, Arc<Vec<Merged>>)> {
        let snapshot = self
            .listings
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&handle)
            .cloned()
            .ok_or(Errno::EBADF)?;
        let mut entries = held(&snapshot.entries);
        if let Some(entries) = entries.as_ref().filter(|_| offset != 0) {
            return Ok((snapshot.node.clone(), entries.clone()));
        }
        let times = self.listing_times(&snapshot.node);
        let fresh = {
            let _tree = self.reading();
            self.merged_names(&snapshot.node)?
        };
        snapshot.node.state().listed = Some((times, Instant::now()));
        let fresh = Arc::new(self.listed(&snapshot.node, fresh));
        *entries = Some(fresh.clone());
        Ok((snapshot.node.clone(), fresh))
    }

    fn listed(&self, dir: &Arc<Node>, mut entries: Vec<Merged>) -> Vec<Merged> {
        if self.guard.decides()
            && let Some(path) = Self::path(dir)
        {
            entries.retain(|entry| {
                self.guard
                    .lists(&self.layer, &path.join(entry.name.to_bytes()))
            });
        }
        entries
    }

    /// Hands the entries from `offset` on to `add`, each with the offset that comes after it, until
    /// it says that there is no more room. Offset 0 begins anew; `.` and `..` come first.
    pub fn readdir(
        &self,
        handle: u64,
        offset: u64,
        mut add: impl FnMut(&Entry, u64) -> bool,
    ) -> Result<()> {
        let (dir, entries) = self.snapshot(handle, offset)?;
        for (at, dot) in Self::dots(&dir).iter().enumerate().skip(offset as usize) {
            if add(dot, at as u64 + 1) {
                return Ok(());
            }
        }
        let _tree = self.reading();
        for (at, merged) in entries
            .iter()
            .enumerate()
            .skip(offset.saturating_sub(2) as usize)
        {
            let id = self.listed_number(&dir, merged)?;
            let entry = Entry {
                name: merged.name.to_bytes().to_vec(),
                id,
                kind: merged.kind,
            };
            if add(&entry, at as u64 + 3) {
                break;
            }
        }
        Ok(())
    }

    /// As [`Overlay::readdir`], with attributes: `add` gets `None` for `.` and `..`, and what it
    /// takes of the others counts as one reference each. A name that is gone by now is left out.
    pub fn readdirplus(
        &self,
        handle: u64,
        offset: u64,
        mut add: impl FnMut(&Entry, Option<&Attr>, u64) -> bool,
    ) -> Result<()> {
        let (dir, entries) = self.snapshot(handle, offset)?;
        for (at, dot) in Self::dots(&dir).iter().enumerate().skip(offset as usize) {
            if add(dot, None, at as u64 + 1) {
                return Ok(());
            }
        }
        for (at, merged) in entries
            .iter()
            .enumerate()
            .skip(offset.saturating_sub(2) as usize)
        {
            let found = {
                let _tree = self.reading();
                self.find(&dir, &merged.name, true)?
            };
            let Some((node, mut shown)) = found else {
                continue;
            };
            if shown.is_late {
                self.link_late(&node, &dir, &merged.name);
                let _tree = self.reading();
                shown.stat = self.node_stat(&node)?;
            }
            let mut attr = self.attr(&node, &shown.stat);
            // Whoever looks this one up is told why not.
            let named = (&dir, merged.name.as_c_str());
            attr.guarded |= self
                .permit_found(&Caller::default(), named, &node, &shown.stat)
                .is_err();
            let entry = Entry {
                name: merged.name.to_bytes().to_vec(),
                id: attr.id,
                kind: node.kind,
            };
            if add(&entry, Some(&attr), at as u64 + 3) {
                drop(node);
                self.forget(attr.id, 1);
                break;
            }
        }
        Ok(())
    }

    fn dots(dir: &Arc<Node>) -> [Entry; 2] {
        let above = dir.name().map_or(dir.id, |name| name.parent.id);
        [(b"." as &[u8], dir.id), (b"..", above)].map(|(name, id)| Entry {
            name: name.to_vec(),
            id,
            kind: libc::S_IFDIR,
        })
    }

    /// The inode number of an entry, as a lookup would give it.
    fn listed_number(&self, dir: &Arc<Node>, merged: &Merged) -> Result<u64> {
        let (upper_dev, lower_dev) = {
            let state = dir.state();
            (
                state.upper.map(|key| key.dev),
                state.lower.map(|key| key.dev),
            )
        };
        // Both sides: only a look tells whether the lower's directory shows.
        if merged.upper.is_none() || merged.lower.is_none() {
            let upper = merged
                .upper
                .zip(upper_dev)
                .map(|(i, d)| (i, d, Side::Upper));
            let lower = merged
                .lower
                .zip(lower_dev)
                .map(|(i, d)| (i, d, Side::Lower));
            if let Some((ino, dev, side)) = upper.or(lower) {
                return Ok(self.table().number(Key { side, dev, ino }));
            }
        }
        let sight = self.sight(dir, &merged.name)?;
        let Some(found) = sight.found() else {
            return Ok(1);
        };
        let key = found.lower.map(|(key, _)| key).or(found.upper);
        let mut table = self.table();
        let known = found.upper.and_then(|key| table.find(key));
        Ok(match (known, key) {
            (Some(node), _) => node.id,
            (None, Some(key)) => table.number(key),
            (None, None) => 1,
        })
    }

    /// Every name the directory shows. The tree is held.
    pub(super) fn merged_names(&self, dir: &Arc<Node>) -> Result<Vec<Merged>> {
        let (upper, lower, marks, bare, gone) = {
            let state = dir.state();
            (
                state.upper.is_some(),
                state.lower.is_some(),
                state.marks,
                state.bare,
                state.orphan.is_some(),
            )
        };
        if bare || gone {
            return Ok(Vec::new());
        }
        let mut merged = Vec::new();
        // Names of the upper, with whether they hide the lower's; only where there are two sides.
        let mut above: HashMap<CString, Option<usize>> = HashMap::new();
        if upper {
            let fd = self.dir_of(dir, Side::Upper)?;
            for child in Self::readable(dir, Side::Upper, &fd)? {
                let odd = child.kind == libc::S_IFCHR
                    || child.kind == 0
                    || marks.xattr_whiteouts && child.kind == libc::S_IFREG;
                let mut kind = child.kind;
                let mut hides = false;
                if odd {
                    let sight = self.sight(dir, &child.name)?;
                    hides = sight.upper.is_none();
                    kind = sight.upper.as_ref().map_or(0, Stat::kind);
                }
                if lower {
                    above.insert(child.name.clone(), (!hides).then_some(merged.len()));
                }
                if !hides {
                    merged.push(Merged {
                        name: child.name,
                        kind,
                        upper: Some(child.ino),
                        lower: None,
                    });
                }
            }
        }
        if lower {
            let fd = match self.dir_of(dir, Side::Lower) {
                Err(Errno::ENOENT | Errno::ESTALE | Errno::ENOTDIR) if upper => return Ok(merged),
                other => other?,
            };
            for child in Self::readable(dir, Side::Lower, &fd)? {
                match above.get(&child.name) {
                    Some(Some(at)) => {
                        if merged[*at].kind == libc::S_IFDIR && child.kind == libc::S_IFDIR {
                            merged[*at].lower = Some(child.ino);
                        }
                    }
                    Some(None) => {}
                    None => {
                        let mut kind = child.kind;
                        if kind == 0 {
                            let stat = self.stat_at(fd.as_fd(), &child.name)?;
                            kind = stat.as_ref().map_or(libc::S_IFREG, Stat::kind);
                        }
                        merged.push(Merged {
                            name: child.name,
                            kind,
                            upper: None,
                            lower: Some(child.ino),
                        });
                    }
                }
            }
        }
        Ok(merged)
    }

    /// Lists one side. An upper's directory that its maker closed is ours to read: who may list it
    /// was decided before.
    fn readable(
        dir: &Arc<Node>,
        side: Side,
        fd: &std::os::fd::OwnedFd,
    ) -> Result<Vec<calls::Child>> {
        match calls::children(fd.as_fd()) {
            Err(Errno::EACCES) if side == Side::Upper => {
                let mode = calls::stat_fd(fd.as_fd())?.mode;
                calls::chmod(fd.as_fd(), c"", mode | 0o500)?;
                let listed = calls::children(fd.as_fd());
                calls::chmod(fd.as_fd(), c"", mode)?;
                let _ = dir;
                listed
            }
            other => other,
        }
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, caller: &Caller, id: u64) -> Result<Vec<u8>> {
        let node = self.node(id)?;
        self.permit_node(caller, &node, Access::Read)?;
        let target = {
            let _tree = self.reading();
            let (place, _) = self.located(&node)?;
            let name: &CStr = &place.name;
            nix::fcntl::readlinkat(place.dir(), name)?
        };
        self.saw_node(&node, Access::Read, target.len() as u64);
        Ok(std::os::unix::ffi::OsStringExt::into_vec(target))
    }
}
