//! Counts what is asked and what it costs. Owns the numbers only.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What has been counted since the overlay was made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Requests by opcode, in the transport's own words.
    pub requests: BTreeMap<&'static str, u64>,
    /// `statx` calls on lower or upper.
    pub physical_stats: u64,
    /// Lower metadata answered from the immutable-lower cache.
    pub cache_hits: u64,
    /// Files, links and nodes copied up.
    pub copied_up: u64,
}

/// A hold on the counters of an overlay, which counts on in somebody else's hands.
#[derive(Debug, Clone)]
pub struct Counting(pub(super) Arc<Counters>);

impl Counting {
    /// What was asked so far and what it cost.
    pub fn now(&self) -> Counts {
        self.0.now()
    }
}

/// The counters of one overlay.
#[derive(Debug, Default)]
pub(super) struct Counters {
    requests: Mutex<BTreeMap<&'static str, u64>>,
    pub physical_stats: AtomicU64,
    pub cache_hits: AtomicU64,
    pub copied_up: AtomicU64,
}

impl Counters {
    fn requests(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn request(&self, opcode: &'static str) {
        *self.requests().entry(opcode).or_default() += 1;
    }

    fn now(&self) -> Counts {
        Counts {
            requests: self.requests().clone(),
            physical_stats: self.physical_stats.load(Ordering::Relaxed),
            cache_hits: self.cache_hits.load(Ordering::Relaxed),
            copied_up: self.copied_up.load(Ordering::Relaxed),
        }
    }
}

/// Adds one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
