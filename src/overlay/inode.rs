//! The inode table: which number stands for which object. Owns numbers, names and where an object
//! lies at present; makes no system call.
//!
//! A number stays the same through copy-up, rename and link, and is not given to another object
//! while somebody may still use it. It is the object's own inode number where that is free.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::by_node::Kept;
use super::calls::{Stat, Time};

/// Number of the root, as FUSE has it.
pub const ROOT: u64 = 1;

/// First of the numbers that belong to no file system: given where an object's own is taken.
const FOREIGN: u64 = 1 << 61;

/// Set in the numbers of an upper that lies on another file system than the lower.
const OTHER_DEVICE: u64 = 1 << 62;

/// New nodes between two looks for ones that nobody needs any more.
const SWEEP_EVERY: u64 = 16_384;

/// One of the two trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Side {
    Lower,
    Upper,
}

/// An object of one tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub side: Side,
    pub dev: u64,
    pub ino: u64,
}

impl Key {
    pub fn of(side: Side, stat: &Stat) -> Self {
        Self {
            side,
            dev: stat.dev,
            ino: stat.ino,
        }
    }
}

/// A name in a directory.
#[derive(Clone)]
pub(super) struct Name {
    pub parent: Arc<Node>,
    pub name: CString,
}

impl Name {
    pub fn is(&self, parent: &Node, name: &std::ffi::CStr) -> bool {
        self.parent.id == parent.id && self.name.as_c_str() == name
    }
}

/// What tells that content has not changed: modification, change, size, object.
pub(super) type Stamp = (Time, Time, u64, u64);

/// What a directory's marks in the upper say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct DirMarks {
    /// The lower's directory does not show.
    pub opaque: bool,
    /// Files in it may be whiteouts by attribute.
    pub xattr_whiteouts: bool,
}

/// An object whose last known name is gone, held open.
#[derive(Clone)]
pub(super) struct Orphan {
    pub side: Side,
    pub fd: Arc<OwnedFd>,
}

/// What changes in a node's life.
#[derive(Default)]
pub(super) struct State {
    /// The names that are known; a directory has one at most. Empty once removed.
    pub names: Vec<Name>,
    /// The lower's object, for directories only while it shows.
    pub lower: Option<Key>,
    /// The upper's object, once there is one.
    pub upper: Option<Key>,
    /// When the lower's object was made: tells a number used again.
    pub born: Time,
    /// Holds the object when its last known name is gone.
    pub orphan: Option<Orphan>,
    /// Names of a lower file that were removed here while the lower still has them.
    pub hidden: u32,
    /// Marks of the upper's directory.
    pub marks: DirMarks,
    /// Something is mounted there in the lower: shown as an empty directory nobody changes.
    pub bare: bool,
    /// Open directories, given up when there are too many.
    pub upper_dir: Option<Arc<OwnedFd>>,
    /// See above.
    pub lower_dir: Option<Arc<OwnedFd>>,
    /// Whether a rule speaks of its path, as of a number of moves.
    pub spoken: Option<(u64, bool)>,
    /// Its file, kept open for readers that have no handle.
    pub kept: Option<Kept>,
    /// What the content was when it was last opened.
    pub stamp: Option<Stamp>,
    /// The times of both sides of a directory when it was last listed, and when that was.
    pub listed: Option<([Option<Time>; 2], Instant)>,
    /// Whether the upper's directory has a default ACL, once asked.
    pub default_acl: Option<bool>,
    /// Bytes on disk in the upper, as last accounted; absent until they are first looked at.
    pub accounted: Option<u64>,
}

impl State {
    /// Takes in what was found out about its path, where it has one name.
    pub fn tell_spoken(&mut self, moves: u64, spoken: bool) {
        if self.names.len() == 1 {
            self.spoken = Some((moves, spoken));
        }
    }
}

/// One file, directory, link or node of the merged view.
pub(super) struct Node {
    pub id: u64,
    pub generation: u64,
    /// Type bits of the mode.
    pub kind: u32,
    state: Mutex<State>,
    /// Held while the node is copied up; never together with another lock taken before it.
    pub raising: Mutex<()>,
    /// Set for good once the content is in the upper.
    pub raised: AtomicBool,
    /// Its mode has no special bits that a write would take away.
    pub plain: AtomicBool,
    /// Handles by which the kernel runs it as a program.
    pub programs: AtomicU32,
    lookups: AtomicU64,
}

impl Node {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_dir(&self) -> bool {
        self.kind == libc::S_IFDIR
    }

    pub fn is_file(&self) -> bool {
        self.kind == libc::S_IFREG
    }

    /// A name it is known by.
    pub fn name(&self) -> Option<Name> {
        self.state().names.first().cloned()
    }

    /// Whether the kernel may still speak of it.
    pub fn is_known(&self) -> bool {
        self.lookups.load(Ordering::Acquire) > 0
    }
}

impl Drop for Node {
    /// Parents go in a loop: a chain of thousands would exhaust the stack.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut chain: Vec<Name> = state.names.drain(..).collect();
        while let Some(name) = chain.pop() {
            if let Some(mut parent) = Arc::into_inner(name.parent) {
                let state = parent
                    .state
                    .get_mut()
                    .unwrap_or_else(PoisonError::into_inner);
                chain.append(&mut state.names);
            }
        }
    }
}

/// An object that was found, to be given its node.
pub(super) struct Found {
    pub kind: u32,
    pub lower: Option<(Key, Time)>,
    pub upper: Option<Key>,
    pub marks: DirMarks,
    pub bare: bool,
}

impl Found {
    /// What was just made in the upper; a directory shows nothing of a lower that it `hides`.
    pub fn made(stat: &Stat, hides: bool) -> Self {
        Self {
            kind: stat.kind(),
            lower: None,
            upper: Some(Key::of(Side::Upper, stat)),
            marks: DirMarks {
                opaque: hides && stat.is_dir(),
                xattr_whiteouts: false,
            },
            bare: false,
        }
    }
}

/// The table. Short work under one lock.
pub(super) struct Table {
    nodes: HashMap<u64, Arc<Node>>,
    by_key: HashMap<Key, u64>,
    /// Numbers that are not the object's own: of what was copied up, and where the own was taken.
    given: HashMap<Key, u64>,
    root: Arc<Node>,
    lower_dev: u64,
    /// How often the path of a known node has changed.
    pub moves: Arc<AtomicU64>,
    next: u64,
    generation: u64,
}

impl Table {
    /// A table that holds the root.
    pub fn new(root: State, lower_dev: u64) -> Self {
        let keys = [root.lower, root.upper];
        let root = Arc::new(Node {
            id: ROOT,
            generation: 0,
            kind: libc::S_IFDIR,
            state: Mutex::new(root),
            raising: Mutex::new(()),
            raised: AtomicBool::new(true),
            plain: AtomicBool::new(false),
            programs: AtomicU32::new(0),
            lookups: AtomicU64::new(1),
        });
        Self {
            nodes: HashMap::from([(ROOT, root.clone())]),
            by_key: keys.into_iter().flatten().map(|key| (key, ROOT)).collect(),
            given: HashMap::new(),
            root,
            lower_dev,
            moves: Arc::default(),
            next: FOREIGN,
            generation: 0,
        }
    }

    pub fn root(&self) -> Arc<Node> {
        self.root.clone()
    }

    pub fn get(&self, id: u64) -> Option<Arc<Node>> {
        self.nodes.get(&id).cloned()
    }

    /// The node of an object, when it has one.
    pub fn find(&self, key: Key) -> Option<Arc<Node>> {
        self.get(*self.by_key.get(&key)?)
    }

    /// The number an object has or would get.
    pub fn number(&mut self, key: Key) -> u64 {
        if let Some(id) = self.by_key.get(&key).or_else(|| self.given.get(&key)) {
            return *id;
        }
        let own = self.own_number(key);
        if own > ROOT && !self.nodes.contains_key(&own) {
            return own;
        }
        let id = self.next;
        self.next += 1;
        self.given.insert(key, id);
        id
    }

    fn own_number(&self, key: Key) -> u64 {
        match key.side {
            _ if key.dev == self.lower_dev && key.ino < FOREIGN => key.ino,
            Side::Upper if key.ino < FOREIGN => key.ino | OTHER_DEVICE,
            _ => 0,
        }
    }

    /// The node of what was found under a name; a new one where there is none. `referenced` counts
    /// one lookup of the kernel's.
    pub fn intern(&mut self, found: Found, name: Name, referenced: bool) -> Arc<Node> {
        let lower = found.lower.map(|(key, _)| key);
        let known = found
            .upper
            .and_then(|key| self.find(key))
            .or_else(|| lower.and_then(|key| self.find(key)))
            .filter(|node| node.kind == found.kind && Self::is_same(node, &found));
        let node = known.unwrap_or_else(|| self.insert(&found));
        {
            let mut state = node.state();
            let first = state.names.first();
            let moved = first.is_none_or(|n| node.is_dir() && !n.is(&name.parent, &name.name));
            if moved && state.spoken.is_some() {
                self.moves.fetch_add(1, Ordering::AcqRel);
            }
            if node.is_dir() {
                state.names.clear();
                state.names.push(name);
                // The lower's directory may have been replaced, have come or gone meanwhile.
                if state.lower != lower && !found.marks.opaque {
                    if let Some(old) = state.lower {
                        self.by_key.remove(&old);
                    }
                    state.lower = lower;
                    state.lower_dir = None;
                    state.born = found.lower.map_or((0, 0), |(_, born)| born);
                    if let Some(key) = lower {
                        self.by_key.insert(key, node.id);
                    }
                }
                state.bare = found.bare;
            } else if !state.names.iter().any(|n| n.is(&name.parent, &name.name)) {
                state.names.push(name);
            }
            // It has a name again: one of a group of hard links that was not known before.
            state.orphan = None;
        }
        if referenced {
            node.lookups.fetch_add(1, Ordering::AcqRel);
        }
        node
    }

    /// Whether a known node is what was found, and not an earlier owner of its inode number.
    fn is_same(node: &Node, found: &Found) -> bool {
        let state = node.state();
        match (found.upper, found.lower) {
            (Some(key), _) => state.upper == Some(key),
            (None, Some((_, born))) => state.born == born,
            (None, None) => false,
        }
    }

    fn insert(&mut self, found: &Found) -> Arc<Node> {
        let keys: Vec<Key> = found
            .lower
            .map(|(key, _)| key)
            .into_iter()
            .chain(found.upper)
            .collect();
        // An earlier owner keeps its number; the object gets another.
        for key in &keys {
            self.by_key.remove(key);
        }
        let id = keys
            .iter()
            .find_map(|key| self.given.get(key).copied())
            .filter(|id| !self.nodes.contains_key(id));
        let id = match (id, keys.first()) {
            (Some(id), _) => id,
            (None, Some(key)) => {
                self.given.remove(key);
                self.number(*key)
            }
            (None, None) => {
                self.next += 1;
                self.next
            }
        };
        self.generation += 1;
        if self.generation.is_multiple_of(SWEEP_EVERY) {
            self.sweep();
        }
        let node = Arc::new(Node {
            id,
            generation: self.generation,
            kind: found.kind,
            state: Mutex::new(State {
                lower: found.lower.map(|(key, _)| key),
                upper: found.upper,
                born: found.lower.map_or((0, 0), |(_, born)| born),
                marks: found.marks,
                bare: found.bare,
                ..State::default()
            }),
            raising: Mutex::new(()),
            raised: AtomicBool::new(found.upper.is_some()),
            plain: AtomicBool::new(false),
            programs: AtomicU32::new(0),
            lookups: AtomicU64::new(0),
        });
        for key in keys {
            self.by_key.insert(key, id);
        }
        self.nodes.insert(id, node.clone());
        node
    }

    /// The node's object now lies in the upper under this key.
    pub fn raised(&mut self, node: &Node, key: Key) {
        {
            let mut state = node.state();
            state.upper = Some(key);
            // The lower's object is nothing to work on any more.
            state.orphan = None;
        }
        node.raised.store(true, Ordering::Release);
        self.by_key.insert(key, node.id);
        self.given.insert(key, node.id);
    }

    /// The lower's object is no longer this node's: its directory became opaque.
    pub fn parted(&mut self, node: &Node) {
        let mut state = node.state();
        if let Some(key) = state.lower.take()
            && self.by_key.get(&key) == Some(&node.id)
        {
            self.by_key.remove(&key);
        }
        state.lower_dir = None;
    }

    /// The upper's object is gone: its number on disk may be used again.
    pub fn removed(&mut self, node: &Node) {
        let key = node.state().upper;
        if let Some(key) = key {
            self.by_key.remove(&key);
            self.given.remove(&key);
        }
    }

    /// Takes back references of the kernel's. What is returned is dropped outside of the lock.
    pub fn forget(&mut self, id: u64, count: u64) -> Vec<Arc<Node>> {
        let Some(node) = self.nodes.get(&id) else {
            return Vec::new();
        };
        let _ = node
            .lookups
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
                Some(n.saturating_sub(count))
            });
        self.release(id)
    }

    /// Drops a node that neither the kernel nor a node below it refers to, and those above it that
    /// were kept for its sake.
    pub fn release(&mut self, id: u64) -> Vec<Arc<Node>> {
        let mut dropped = Vec::new();
        let mut next = vec![id];
        while let Some(id) = next.pop() {
            let unused = self
                .nodes
                .get(&id)
                .is_some_and(|node| !node.is_known() && Arc::strong_count(node) == 1);
            if id == ROOT || !unused {
                continue;
            }
            let Some(node) = self.nodes.remove(&id) else {
                continue;
            };
            {
                let mut state = node.state();
                for key in [state.lower, state.upper].into_iter().flatten() {
                    if self.by_key.get(&key) == Some(&id) {
                        self.by_key.remove(&key);
                    }
                }
                next.extend(state.names.drain(..).map(|name| name.parent.id));
            }
            dropped.push(node);
        }
        dropped
    }

    /// Every now and then: drops what was in use when its last reference went.
    fn sweep(&mut self) {
        let unused: Vec<u64> = self
            .nodes
            .iter()
            .filter(|(_, node)| !node.is_known() && Arc::strong_count(node) == 1)
            .map(|(id, _)| *id)
            .collect();
        for id in unused {
            let _dropped = self.release(id);
        }
    }
}
