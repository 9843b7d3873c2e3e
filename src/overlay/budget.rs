//! How much the upper may hold. Owns the account in bytes on disk; costs nothing without a limit.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;

use super::calls::{Result, Stat};
use super::inode::Node;

/// The account of one upper.
#[derive(Debug)]
pub(super) struct Budget {
    most: Option<u64>,
    used: AtomicU64,
}

impl Budget {
    /// An account that begins with what the upper holds already.
    pub fn new(most: Option<u64>, upper: BorrowedFd<'_>) -> std::io::Result<Self> {
        let mut used = 0;
        if most.is_some() {
            for entry in crate::layer::walk::walk_upper(upper).map_err(std::io::Error::other)? {
                // The allocation is not part of an entry; its size is near enough to begin with.
                used += entry.node.size;
            }
        }
        Ok(Self {
            most,
            used: AtomicU64::new(used),
        })
    }

    /// Whether anything is counted.
    pub fn limits(&self) -> bool {
        self.most.is_some()
    }

    /// Bytes used and bytes allowed.
    pub fn state(&self) -> Option<(u64, u64)> {
        Some((self.used.load(Ordering::Relaxed), self.most?))
    }

    /// `ENOSPC` where so many bytes more would be too many.
    pub fn room_for(&self, bytes: u64) -> Result<()> {
        match self.state() {
            Some((used, most)) if used.saturating_add(bytes) > most => Err(Errno::ENOSPC),
            _ => Ok(()),
        }
    }

    /// Before a change: what the node's object takes, unless it is known already.
    pub fn note(&self, node: &Node, stat: &Stat) {
        if self.limits() {
            node.state().accounted.get_or_insert(stat.allocated());
        }
    }

    /// Brings the account up to what a node's object in the upper takes by now.
    pub fn settle(&self, node: &Node, stat: Option<&Stat>) {
        if !self.limits() {
            return;
        }
        let now = stat.map_or(0, Stat::allocated);
        let mut state = node.state();
        let before = state.accounted.replace(now).unwrap_or(0);
        drop(state);
        if now >= before {
            self.used.fetch_add(now - before, Ordering::Relaxed);
        } else {
            let _ = self
                .used
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                    Some(used.saturating_sub(before - now))
                });
        }
    }
}
