//! Brings files, links and nodes into the upper. Owns the order in which that is done: the whole
//! object under a temporary name first, then its name, so that half of it is never seen.
//!
//! Content is copied without holding the tree. A group of hard links of the lower becomes one file
//! of the upper, under every name of the group that can be found.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::UnlinkatFlags;

use super::calls::{self, Result, Stat, errno};
use super::counters::count;
use super::inode::{Key, Name, Node, Orphan, Side};
use super::place::Place;
use super::xattr_calls::Subject;
use super::{Overlay, held};
use crate::RelPath;
use crate::layer::content;

/// How long the lower is searched for the other names of a group, and how many entries are looked
/// at; what is not found by then is joined when it is first looked up.
const SEARCH_TIME: Duration = Duration::from_secs(3);
const SEARCH_ENTRIES: usize = 500_000;

/// Names of the lower's files that have more than one, by device and inode.
pub(super) type LinkIndex = HashMap<(u64, u64), Vec<RelPath>>;

/// A copy that lies in the work directory.
struct Copy {
    name: CString,
    stat: Stat,
}

impl Overlay {
    /// Makes the node's object an upper's. At most `length` bytes of content are copied: what is
    /// about to be cut off need not be. Nothing is held.
    pub(super) fn copy_up(&self, node: &Arc<Node>, length: u64) -> Result<()> {
        if node.is_dir() {
            let _tree = self.changing();
            return self.raised_dir(node).map(drop);
        }
        if node.state().upper.is_some() {
            return Ok(());
        }
        let _raising = held(&node.raising);
        if node.state().upper.is_some() {
            return Ok(());
        }
        // Somebody may write to the lower's file while it is copied: twice is enough to tell.
        for _ in 0..3 {
            let (place, stat) = {
                let _tree = self.reading();
                self.located(node)?
            };
            let length = if stat.nlink > 1 { u64::MAX } else { length };
            self.may_own(&stat)?;
            let copy = self.copy(&place, &stat, length)?;
            let after = calls::stat_at(place.dir(), &place.name)?;
            let steady = after.is_some_and(|now| {
                (now.ino, now.mtime, now.size) == (stat.ino, stat.mtime, stat.size)
            });
            if !steady && node.state().orphan.is_none() {
                self.discard(&copy.name);
                continue;
            }
            let siblings = self.siblings(node, &stat);
            let published = self.publish(node, &copy, &siblings);
            if published.is_err() {
                self.discard(&copy.name);
            } else {
                count(&self.counters.copied_up);
                self.budget.settle(node, Some(&copy.stat));
            }
            return published;
        }
        Err(Errno::EBUSY)
    }

    fn discard(&self, name: &CStr) {
        let _ = nix::unistd::unlinkat(self.work(), name, UnlinkatFlags::NoRemoveDir);
    }

    /// Copies the object into the work directory.
    fn copy(&self, place: &Place, stat: &Stat, length: u64) -> Result<Copy> {
        let name = self.temporary();
        let made = self
            .copy_to(place, stat, length, &name)
            .and_then(|()| calls::stat_at(self.work(), &name)?.ok_or(Errno::ENOENT));
        match made {
            Ok(stat) => Ok(Copy { name, stat }),
            Err(e) => {
                self.discard(&name);
                Err(e)
            }
        }
    }

    fn copy_to(&self, place: &Place, stat: &Stat, length: u64, name: &CStr) -> Result<()> {
        let source;
        let subject = match stat.kind() {
            libc::S_IFREG => {
                source = File::from(Self::open_place(place, OFlag::O_RDONLY)?);
                let target = File::from(calls::create_at(self.work(), name, 0o600)?);
                let wanted = stat.size.min(length);
                self.budget.room_for(wanted.min(stat.allocated()))?;
                if wanted > 0
                    && (wanted < stat.size || content::share_blocks(&source, &target).is_err())
                {
                    content::copy_bytes(&source, &target, wanted).map_err(|e| errno(&e))?;
                }
                Subject {
                    dir: source.as_fd(),
                    name: c"",
                }
            }
            libc::S_IFLNK => {
                let link = nix::fcntl::readlinkat(place.dir(), &*place.name)?;
                nix::unistd::symlinkat(link.as_os_str(), self.work(), name)?;
                Subject {
                    dir: place.dir(),
                    name: &place.name,
                }
            }
            _ => {
                calls::make_node(self.work(), name, stat.kind() | 0o600, stat.rdev)?;
                Subject {
                    dir: place.dir(),
                    name: &place.name,
                }
            }
        };
        let target = Subject {
            dir: self.work(),
            name,
        };
        self.carry(subject, target, stat)
    }

    /// Opens the object of a place that is a regular file.
    pub(super) fn open_place(place: &Place, flags: OFlag) -> Result<OwnedFd> {
        if !place.name.is_empty() {
            return calls::open_at(place.dir(), &place.name, flags);
        }
        // A removed file, held open: its own descriptor, or another one of the same object.
        let path = format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&*place.dir)
        );
        match nix::fcntl::open(
            path.as_str(),
            flags | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY,
            nix::sys::stat::Mode::empty(),
        ) {
            Err(Errno::ENOENT) => calls::duplicate(place.dir()),
            other => other,
        }
    }

    /// Gives the copy its names.
    fn publish(&self, node: &Arc<Node>, copy: &Copy, siblings: &[Name]) -> Result<()> {
        let _tree = self.changing();
        let mut names = node.state().names.clone();
        if names.is_empty() && !siblings.is_empty() {
            // Its known name is gone, but not the file: what is written shows under the others.
            names = siblings.to_vec();
            node.state().names.clone_from(&names);
        }
        let key = Key::of(Side::Upper, &copy.stat);
        let Some((first, others)) = names.split_first() else {
            // Removed while it was copied: it lives on without a name.
            let flags = if node.is_file() {
                OFlag::O_RDWR
            } else {
                OFlag::O_PATH
            };
            let orphan = calls::open_at(self.work(), &copy.name, flags)?;
            self.discard(&copy.name);
            self.table().raised(node, key);
            let mut state = node.state();
            state.orphan = Some(Orphan {
                side: Side::Upper,
                fd: Arc::new(orphan),
            });
            state.hidden = 0;
            return Ok(());
        };
        let into = self.raised_dir(&first.parent)?;
        Self::keeping_times(into.as_fd(), || {
            calls::rename(
                self.work(),
                &copy.name,
                into.as_fd(),
                &first.name,
                libc::RENAME_NOREPLACE,
            )
        })?;
        self.table().raised(node, key);
        {
            let mut state = node.state();
            state.hidden = 0;
            // What the kernel has cached is the lower's content, if it was opened as it is now.
            if let Some(stamp) = &mut state.stamp {
                stamp.3 = copy.stat.ino;
            }
        }
        for name in others.iter().chain(siblings) {
            if self.join(&into, &first.name, name).is_ok() {
                let mut state = node.state();
                if !state.names.iter().any(|n| n.is(&name.parent, &name.name)) {
                    state.names.push(name.clone());
                }
            }
        }
        Ok(())
    }

    /// Adds a further name in the upper to what `name` in `dir` is.
    fn join(&self, dir: &OwnedFd, name: &CStr, further: &Name) -> Result<()> {
        let into = self.raised_dir(&further.parent)?;
        Self::keeping_times(into.as_fd(), || {
            calls::link(dir.as_fd(), name, into.as_fd(), &further.name)
        })
    }

    /// Joins a name of the lower, just found, to the file that was copied up under another name.
    pub(super) fn link_late(&self, node: &Arc<Node>, parent: &Arc<Node>, name: &CStr) {
        let _tree = self.changing();
        let joined = self.place(node).and_then(|place| {
            if place.side != Side::Upper || place.name.is_empty() {
                return Ok(());
            }
            let further = Name {
                parent: parent.clone(),
                name: name.to_owned(),
            };
            match self.join(&place.dir, &place.name, &further) {
                Err(Errno::EEXIST) => Ok(()),
                other => other,
            }
        });
        if let Err(error) = joined {
            tracing::warn!(%error, "a hard link could not be kept");
        }
    }

    /// The other names in the lower of a file that has more than one, where they still show it.
    fn siblings(&self, node: &Arc<Node>, stat: &Stat) -> Vec<Name> {
        if stat.nlink <= 1 {
            return Vec::new();
        }
        let known = {
            let state = node.state();
            state.names.len() as u32 + state.hidden
        };
        if known >= stat.nlink {
            return Vec::new();
        }
        let paths = {
            let mut index = held(&self.link_index);
            let index = index.get_or_insert_with(|| self.index_links());
            index
                .get(&(stat.dev, stat.ino))
                .cloned()
                .unwrap_or_default()
        };
        let _tree = self.reading();
        let key = Key::of(Side::Lower, stat);
        paths
            .iter()
            .filter_map(|path| self.sibling(path, key).ok().flatten())
            .filter(|name| {
                !node
                    .state()
                    .names
                    .iter()
                    .any(|n| n.is(&name.parent, &name.name))
            })
            .collect()
    }

    /// The name at a path of the merged view, when it shows this object of the lower.
    fn sibling(&self, path: &RelPath, key: Key) -> Result<Option<Name>> {
        let mut at = self.table().root();
        let Some(last) = path.file_name() else {
            return Ok(None);
        };
        let above = path.parent().unwrap_or_default();
        for component in above.components() {
            let name = super::lookup::checked(component)?;
            match self.find(&at, &name, false)? {
                Some((node, _)) if node.is_dir() => at = node,
                _ => return Ok(None),
            }
        }
        let name = super::lookup::checked(last)?;
        let sight = self.sight(&at, &name)?;
        let shows = sight.upper.is_none()
            && !sight.whiteout
            && sight
                .lower
                .is_some_and(|stat| Key::of(Side::Lower, &stat) == key);
        Ok(shows.then_some(Name { parent: at, name }))
    }

    /// Looks through the lower for files with several names.
    fn index_links(&self) -> LinkIndex {
        let mut index = LinkIndex::new();
        let begun = Instant::now();
        let mut seen = 0;
        let mut dirs = vec![RelPath::root()];
        while let Some(path) = dirs.pop() {
            let Ok(dir) = crate::layer::tree::dir_beneath(self.lower.as_fd(), &path) else {
                continue;
            };
            for child in calls::children(dir.as_fd()).unwrap_or_default() {
                seen += 1;
                if seen > SEARCH_ENTRIES || begun.elapsed() > SEARCH_TIME {
                    tracing::warn!("the lower is too large to search it for hard links");
                    return index;
                }
                match child.kind {
                    libc::S_IFDIR => dirs.push(path.join(child.name.to_bytes())),
                    libc::S_IFREG | libc::S_IFLNK | 0 => {
                        if let Ok(Some(stat)) = calls::stat_at(dir.as_fd(), &child.name)
                            && stat.nlink > 1
                            && !stat.is_dir()
                        {
                            index
                                .entry((stat.dev, stat.ino))
                                .or_default()
                                .push(path.join(child.name.to_bytes()));
                        }
                    }
                    _ => {}
                }
            }
        }
        index
    }
}
