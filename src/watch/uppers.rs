//! Inotify on the directories of uppers, one by one: armed first and then read, so that nothing
//! made in between is missed. Owns the watches; decides nothing about changes.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::dir::Type;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

use super::recent::Recent;
use crate::RelPath;
use crate::layer::{Dirt, FileType, Layer, Tree, read};

/// Watches made at most: an agent can make directories without end, and the user's other programs
/// need some too.
const WATCHES_AT_MOST: usize = 65_536;

/// Directories that could not be watched, remembered to be tried again.
const CLOSED_AT_MOST: usize = 256;

/// Batches of events taken before a hint may go out.
const BATCHES_AT_ONCE: usize = 256;

/// Levels that are watched; deeper ones are looked at in intervals.
const DEEPEST_PATH: usize = 64 * 1024;

/// See the module.
pub(super) struct Uppers {
    inotify: Inotify,
    trees: Vec<Tree>,
    watched: HashMap<WatchDescriptor, (usize, RelPath)>,
    /// Directories that we may not read.
    closed: BTreeSet<(usize, RelPath)>,
    /// Not everything can be watched: the kernel's limit, or ours.
    exhausted: bool,
    recent: Recent,
    dirt: Dirt,
}

impl Uppers {
    /// Opens the uppers; nothing is watched yet.
    pub fn new(layers: &[Layer]) -> std::io::Result<Self> {
        let trees = layers
            .iter()
            .map(|layer| Tree::open(&layer.upper()))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            inotify: Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?,
            trees,
            watched: HashMap::new(),
            closed: BTreeSet::new(),
            exhausted: false,
            recent: Recent::default(),
            dirt: Dirt::default(),
        })
    }

    /// The descriptor that becomes readable with events.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Whether something can move without an event.
    pub fn is_blind(&self) -> bool {
        self.exhausted || !self.closed.is_empty()
    }

    /// What has moved since this was last asked.
    pub fn take_dirt(&mut self) -> Dirt {
        std::mem::take(&mut self.dirt)
    }

    /// All there is.
    pub fn everything(&self) -> Dirt {
        Dirt::whole(self.trees.len())
    }

    /// Arms every directory there is.
    pub fn arm_all(&mut self) {
        for layer in 0..self.trees.len() {
            self.arm(layer, RelPath::root());
        }
    }

    /// Tries again what could not be watched.
    pub fn retry(&mut self) {
        for (layer, path) in std::mem::take(&mut self.closed) {
            self.arm(layer, path);
        }
    }

    /// Arms a directory and all below it.
    fn arm(&mut self, layer: usize, top: RelPath) {
        let mut open = vec![top];
        while let Some(path) = open.pop() {
            match self.arm_one(layer, &path) {
                Ok(below) => open.extend(below),
                Err(Errno::ENOSPC | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE) => {
                    self.exhausted = true;
                    return;
                }
                Err(Errno::EACCES | Errno::EPERM) if self.closed.len() < CLOSED_AT_MOST => {
                    self.closed.insert((layer, path));
                }
                Err(Errno::EACCES | Errno::EPERM) => self.exhausted = true,
                // Gone again, or no directory any more: its parent's events tell.
                Err(_) => {}
            }
        }
    }

    /// Arms one directory, then reads it; returns the directories in it.
    fn arm_one(&mut self, layer: usize, path: &RelPath) -> Result<Vec<RelPath>, Errno> {
        if self.watched.len() >= WATCHES_AT_MOST || path.as_bytes().len() > DEEPEST_PATH {
            return Err(Errno::ENOSPC);
        }
        let errno = |e: std::io::Error| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO));
        let dir = self.trees[layer].dir(path).map_err(errno)?;
        let flags = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_ONLYDIR;
        // By descriptor: the directory may lie deeper than a path can be long.
        let link = format!("/proc/self/fd/{}", dir.as_raw_fd());
        let watch = self.inotify.add_watch(link.as_str(), flags)?;
        self.watched.insert(watch, (layer, path.clone()));
        let mut below = Vec::new();
        let mut stream = read::to_list(dir.as_fd()).map_err(errno)?;
        let names: Vec<(Vec<u8>, Option<Type>)> = stream
            .iter()
            .flatten()
            .map(|entry| (entry.file_name().to_bytes().to_vec(), entry.file_type()))
            .filter(|(name, _)| name != b"." && name != b"..")
            .collect();
        for (name, kind) in names {
            let child = path.join(&name);
            let is_dir = match kind {
                Some(kind) => kind == Type::Directory,
                None => self.is_dir(layer, &child),
            };
            if is_dir {
                below.push(child);
            }
        }
        Ok(below)
    }

    fn is_dir(&self, layer: usize, path: &RelPath) -> bool {
        self.trees[layer].parent(path).is_ok_and(|dir| {
            read::stat(dir.as_fd(), path.file_name().unwrap_or_default())
                .ok()
                .flatten()
                .is_some_and(|n| n.file_type == FileType::Dir)
        })
    }

    /// Takes the events that are there.
    pub fn take_events(&mut self) {
        for _ in 0..BATCHES_AT_ONCE {
            match self.inotify.read_events() {
                Ok(events) => {
                    for event in events {
                        self.take(event);
                    }
                }
                Err(_) => break,
            }
        }
    }

    fn take(&mut self, event: InotifyEvent) {
        let mask = event.mask;
        if mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            // Directories may have come of which we were not told.
            self.arm_all();
            self.dirt = self.everything();
            return;
        }
        if mask.contains(AddWatchFlags::IN_IGNORED) {
            self.watched.remove(&event.wd);
            return;
        }
        let Some((layer, dir)) = self.watched.get(&event.wd) else {
            return;
        };
        let layer = *layer;
        let Some(name) = event.name.filter(|n| !n.is_empty()) else {
            // The directory's own mode or attributes.
            let dir = dir.clone();
            self.dirt.add(layer, dir, false);
            return;
        };
        let path = dir.join(name.as_bytes());
        let is_dir = mask.contains(AddWatchFlags::IN_ISDIR);
        let came = mask.intersects(AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO);
        // What came in a directory before it is armed makes no event.
        self.dirt.add(layer, path.clone(), is_dir && came);
        if is_dir {
            let opened = mask.contains(AddWatchFlags::IN_ATTRIB)
                && self.closed.remove(&(layer, path.clone()));
            if came || opened {
                // A directory that was moved keeps its watches: arming again gives them the new
                // paths.
                self.arm(layer, path);
            }
        } else if mask.intersects(
            AddWatchFlags::IN_CREATE
                | AddWatchFlags::IN_MODIFY
                | AddWatchFlags::IN_CLOSE_WRITE
                | AddWatchFlags::IN_MOVED_TO,
        ) {
            self.recent.note(layer, path);
        }
    }

    /// When recently written files are to be looked at next.
    pub fn next_poll(&self) -> Option<Duration> {
        self.recent.next_poll()
    }

    /// Looks at recently written files if it is time.
    pub fn poll_recent(&mut self) {
        for (layer, path) in self.recent.poll(&self.trees) {
            self.dirt.add(layer, path, false);
        }
    }
}
