//! Counts what is asked and what it costs. Owns the numbers only.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// The counters of one overlay.
#[derive(Debug, Default)]
pub(super) struct Counters {
    requests: Mutex<BTreeMap<&'static str, u64>>,
    pub physical_stats: AtomicU64,
    pub cache_hits: AtomicU64,
    pub copied_up: AtomicU64,
}

impl Counters {
    pub fn request(&self, opcode: &'static str) {
        if let Ok(mut requests) = self.requests.lock() {
            *requests.entry(opcode).or_default() += 1;
        }
    }

    pub fn now(&self) -> Counts {
        Counts {
            requests: self.requests.lock().map(|r| r.clone()).unwrap_or_default(),
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
