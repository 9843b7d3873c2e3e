//! Our overlay file system: merges a lower and an upper in user space and writes the upper in the
//! kernel's overlayfs format. Owns names, inodes, copy-up and whiteouts; knows no transport (an
//! adapter carries requests to it) and no rules (a [`Guard`] is asked).
//!
//! Locks, in the order they are taken: a node's `raising` (while it is copied up), `tree` (shared to
//! look at names, exclusive to change them, never held while content is copied), the inode table, a
//! node's state. Whatever is asked of the guard is asked before any of them.

mod attributes;
mod budget;
mod by_node;
mod calls;
mod change;
mod copy_up;
mod counters;
mod file;
mod flags;
mod foreign;
pub mod guard;
mod inode;
mod list;
mod lookup;
mod place;
mod raise;
mod rename;
mod xattr;
mod xattr_calls;

#[cfg(test)]
mod tests;

pub use attributes::Changes;
pub use by_node::NO_HANDLE;
pub use calls::{Result, SetTime, Time};
pub use counters::{Counting, Counts};
pub use file::{Opened, Seek};
pub use flags::{EXTENDED_SIZE, FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR};
pub use guard::{Access, Attempt, Guard, Refusal, Unguarded};
pub use inode::ROOT;
pub use list::{Entry, Listing};
pub use nix::errno::Errno;
pub use place::Space;

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use budget::Budget;
use calls::Stat;
use counters::Counters;
use inode::{Key, Node, Side, State, Table};

/// The directories an overlay is made of. They are opened before it is mounted, so that it never
/// looks into itself.
#[derive(Debug)]
pub struct Sources {
    /// Name of the layer, as rules and the observation log know it.
    pub layer: String,
    /// The untouched tree; reading it must be allowed, nothing in it is ever changed.
    pub lower: OwnedFd,
    /// Where changes lie: on one file system with `work`.
    pub upper: OwnedFd,
    /// An empty directory of the overlay's own.
    pub work: OwnedFd,
}

/// How an overlay behaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Most bytes on disk the upper may hold; writing beyond is `ENOSPC`.
    pub budget: Option<u64>,
    /// The lower is declared never to change: what was found in it is kept.
    pub immutable_lower: bool,
    /// This process knows one user and one group, as in a user namespace that maps no others: what
    /// belongs to anybody else is presented as its own, with the rights it really has. The kernel
    /// would refuse to remove or rename what belongs to an unknown id (`EOVERFLOW`), whatever the
    /// directory's mode says.
    pub one_id: bool,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caller {
    /// User, as the overlay's own namespace numbers it.
    pub uid: u32,
    /// Group, likewise.
    pub gid: u32,
    /// Process; 0 when unknown.
    pub pid: u32,
    /// Bits a new object does not get, where no default ACL says otherwise.
    pub umask: u32,
}

/// What `stat` says of an object of the merged view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Inode number: the same for the object's whole life.
    pub id: u64,
    /// Tells objects that have the same number one after the other.
    pub generation: u64,
    /// It lies in the upper: nobody but this overlay changes it, or puts something else under its
    /// name.
    pub stable: bool,
    /// The guard wants to be asked at each look.
    pub guarded: bool,
    /// Type and permission bits.
    pub mode: u32,
    /// Number of names; 0 once removed.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, major and minor.
    pub rdev: (u32, u32),
    /// Bytes of content.
    pub size: u64,
    /// Units of 512 bytes on disk.
    pub blocks: u64,
    /// Preferred size of reads and writes.
    pub blksize: u32,
    /// Last access.
    pub atime: Time,
    /// Last modification.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
}

/// A merged view of a lower and an upper.
pub struct Overlay {
    layer: String,
    options: Options,
    guard: Arc<dyn Guard>,
    lower: Arc<OwnedFd>,
    upper: Arc<OwnedFd>,
    work: OwnedFd,
    /// User and group this process makes files as.
    own: (u32, u32),
    tree: RwLock<()>,
    table: Mutex<Table>,
    open_dirs: Mutex<place::OpenDirs>,
    open_files: Mutex<by_node::OpenFiles>,
    /// Nobody says that a file is opened: see [`Overlay::serve_by_node`].
    by_node: AtomicBool,
    /// See [`Table::moves`].
    moves: Arc<AtomicU64>,
    files: RwLock<HashMap<u64, Arc<file::Handle>>>,
    listings: RwLock<HashMap<u64, Arc<list::Snapshot>>>,
    lower_cache: Mutex<lookup::LowerCache>,
    link_index: Mutex<Option<copy_up::LinkIndex>>,
    next: AtomicU64,
    budget: Budget,
    counters: Arc<Counters>,
}

impl Overlay {
    /// An overlay over open directories. Fails where they cannot be looked at, or where `upper` and
    /// `work` lie on different file systems (`EXDEV`).
    pub fn new(
        sources: Sources,
        options: Options,
        guard: Arc<dyn Guard>,
    ) -> std::io::Result<Overlay> {
        let Sources {
            layer,
            lower,
            upper,
            work,
        } = sources;
        let lower_stat = calls::stat_fd(lower.as_fd())?;
        let upper_stat = calls::stat_fd(upper.as_fd())?;
        if calls::stat_fd(work.as_fd())?.dev != upper_stat.dev {
            return Err(Errno::EXDEV.into());
        }
        let marks = lookup::dir_marks(upper.as_fd(), c".")?;
        let (lower, upper) = (Arc::new(lower), Arc::new(upper));
        let shows = !marks.opaque;
        let root = State {
            lower: shows.then(|| Key::of(Side::Lower, &lower_stat)),
            upper: Some(Key::of(Side::Upper, &upper_stat)),
            born: lower_stat.born,
            marks,
            upper_dir: Some(upper.clone()),
            lower_dir: shows.then(|| lower.clone()),
            ..State::default()
        };
        let budget = Budget::new(options.budget, upper.as_fd())?;
        let table = Table::new(root, lower_stat.dev);
        Ok(Overlay {
            layer,
            options,
            guard,
            moves: table.moves.clone(),
            table: Mutex::new(table),
            own: (
                nix::unistd::geteuid().as_raw(),
                nix::unistd::getegid().as_raw(),
            ),
            lower,
            upper,
            work,
            tree: RwLock::new(()),
            open_dirs: Mutex::default(),
            open_files: Mutex::default(),
            by_node: AtomicBool::new(false),
            files: RwLock::default(),
            listings: RwLock::default(),
            lower_cache: Mutex::default(),
            link_index: Mutex::default(),
            next: AtomicU64::new(1),
            budget,
            counters: Arc::default(),
        })
    }

    /// What is asked and what it costs, for whoever looks on while somebody else serves.
    pub fn counting(&self) -> Counting {
        Counting(self.counters.clone())
    }

    /// Counts a request, by the transport's word for it.
    pub fn requested(&self, opcode: &'static str) {
        self.counters.request(opcode);
    }

    /// The rules and listeners this overlay asks.
    pub fn guard(&self) -> &Arc<dyn Guard> {
        &self.guard
    }

    /// Takes back `count` references to an inode that lookups, creations and listings gave out.
    pub fn forget(&self, id: u64, count: u64) {
        let gone = self.table().forget(id, count);
        drop(gone);
    }

    fn node(&self, id: u64) -> Result<Arc<Node>> {
        self.table().get(id).ok_or(Errno::ESTALE)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        held(&self.table)
    }

    fn reading(&self) -> RwLockReadGuard<'_, ()> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn changing(&self) -> RwLockWriteGuard<'_, ()> {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a rule speaks of the node; of one of several hard links it may by another name.
    fn is_guarded(&self, node: &Arc<Node>, stat: &Stat) -> bool {
        if !self.guard.decides() {
            return false;
        }
        // Served by node, an alias was asked about when it was looked up.
        if !self.serves_by_node() && !node.is_dir() && stat.nlink > 1 {
            return true;
        }
        self.is_spoken_of(node)
    }

    /// Whether a rule speaks of the path a node is known by: found out once for each path.
    fn is_spoken_of(&self, node: &Arc<Node>) -> bool {
        // Read before the path is: a move counts after it has happened.
        let moves = self.moves.load(Ordering::Acquire);
        if let Some((_, spoken)) = node.state().spoken.filter(|(at, _)| *at == moves) {
            return spoken;
        }
        let path = Self::path(node);
        let spoken = path.is_none_or(|path| self.guard.concerns(&self.layer, &path));
        node.state().spoken = Some((moves, spoken));
        spoken
    }

    /// Some known node has another path from now on.
    fn moved(&self) {
        self.moves.fetch_add(1, Ordering::AcqRel);
    }

    /// A physical object as this node shows it.
    fn attr(&self, node: &Arc<Node>, stat: &Stat) -> Attr {
        let (nlink, stable) = {
            let state = node.state();
            let merged = state.upper.is_some() && state.lower.is_some();
            let nlink = match (node.is_dir(), &state.orphan) {
                (true, Some(_)) => 0,
                // As the kernel's overlay has it: the number of directories within is not known.
                (true, None) if merged || state.bare => 1,
                _ => stat.nlink.saturating_sub(state.hidden),
            };
            (nlink, state.upper.is_some())
        };
        let (mode, uid, gid) = self.presented(node, stat);
        Attr {
            id: node.id,
            generation: node.generation,
            stable,
            guarded: self.is_guarded(node, stat),
            mode,
            nlink,
            uid,
            gid,
            rdev: stat.rdev,
            size: stat.size,
            blocks: stat.blocks,
            blksize: stat.blksize,
            atime: stat.atime,
            mtime: stat.mtime,
            ctime: stat.ctime,
        }
    }
}

/// Takes a lock; work that panicked under it leaves nothing half done that matters here.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
