//! Files without a handle: what the kernel opens by itself is served by its inode. Owns the
//! descriptors that are kept for that, and when content is brought into the upper for it: with the
//! first change, since nobody says that a file was opened.
//!
//! Only descriptors for reading are kept. One for writing is closed after each request: as long as
//! it is open, a commit takes the file for one that is being written.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::calls::Result;
use super::inode::{Node, Side};
use super::{Access, Caller, Overlay, held};

/// In the place of a handle: the inode's number says which file is meant.
pub const NO_HANDLE: u64 = 0;

/// Files kept open for reading at once.
const KEPT: usize = 512;

/// The nodes whose files are kept open, the earliest first.
#[derive(Default)]
pub(super) struct OpenFiles {
    order: VecDeque<Weak<Node>>,
}

/// A file that is kept open for reading.
#[derive(Clone)]
pub(super) struct Kept {
    pub file: Arc<File>,
    pub is_upper: bool,
}

impl Overlay {
    /// Says that no file is opened before it is read or written from now on. Only for a guard that
    /// [settles by lookup](super::Guard::settles_by_lookup).
    pub fn serve_by_node(&self) {
        self.by_node.store(true, Ordering::Release);
    }

    pub(super) fn serves_by_node(&self) -> bool {
        self.by_node.load(Ordering::Acquire)
    }

    /// The file of a node for reading, in the upper as soon as it is there.
    pub(super) fn file_to_read(&self, caller: &Caller, node: &Arc<Node>) -> Result<Arc<File>> {
        let raised = node.raised.load(Ordering::Acquire);
        if let Some(kept) = &node.state().kept
            && (kept.is_upper || !raised)
        {
            return Ok(kept.file.clone());
        }
        self.permit_unopened(caller, node, Access::Read)?;
        let kept = {
            let _tree = self.reading();
            let (place, _) = self.located(node)?;
            Kept {
                file: Arc::new(File::from(Self::open_place(&place, OFlag::O_RDONLY)?)),
                is_upper: place.side == Side::Upper,
            }
        };
        let file = kept.file.clone();
        let before = node.state().kept.replace(kept);
        if before.is_none() {
            self.remember_open(node);
        }
        Ok(file)
    }

    /// The file of a node for changing, which lies in the upper from then on.
    pub(super) fn file_to_write(&self, caller: &Caller, node: &Arc<Node>) -> Result<Arc<File>> {
        self.permit_unopened(caller, node, Access::Write)?;
        self.copy_up(node, u64::MAX)?;
        let _tree = self.reading();
        let (place, stat) = self.located_above(node)?;
        self.budget.note(node, &stat);
        let file = File::from(Self::open_place(&place, OFlag::O_RDWR)?);
        Ok(Arc::new(file))
    }

    /// Asks the guard at the first request for content. What is refused has mostly been refused at
    /// lookup already; what is only remarked on is remarked on here.
    fn permit_unopened(&self, caller: &Caller, node: &Arc<Node>, access: Access) -> Result<()> {
        if !self.guard.decides()
            || (node.raised.load(Ordering::Acquire) && !self.is_spoken_of(node))
        {
            return Ok(());
        }
        self.permit_node(caller, node, access)
    }

    /// The regular file of that number.
    pub(super) fn file_node(&self, id: u64) -> Result<Arc<Node>> {
        let node = self.node(id)?;
        if node.is_file() {
            Ok(node)
        } else {
            Err(Errno::EBADF)
        }
    }

    fn remember_open(&self, node: &Arc<Node>) {
        let evicted = {
            let mut open = held(&self.open_files);
            open.order.push_back(Arc::downgrade(node));
            if open.order.len() > KEPT {
                open.order.pop_front()
            } else {
                None
            }
        };
        if let Some(node) = evicted.and_then(|node| node.upgrade()) {
            let closed = node.state().kept.take();
            drop(closed);
        }
    }
}
