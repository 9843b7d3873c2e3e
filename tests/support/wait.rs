//! Waiting for conditions. The only place of the tests that lets time pass without an event.

use std::time::{Duration, Instant};

/// Long enough for a loaded machine of two cores, short enough to fail while somebody watches.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Looks until `look` finds something; fails with `what` when it never does.
#[track_caller]
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    match attempt(PATIENCE, look) {
        Some(found) => found,
        None => panic!("waited {PATIENCE:?} in vain for {what}"),
    }
}

/// [`until`] with a limit of its own, where coming to nothing is an answer too.
pub fn attempt<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
