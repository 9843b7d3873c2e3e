//! Keeps the overlay away from places inside a layer that are not the layer's: what is masked, and
//! the session's own directories. Owns that check; every other question goes on to the rules.

use std::sync::Arc;

use crate::RelPath;
use crate::overlay::{Access, Attempt, Guard, Refusal};

/// See the module.
pub(super) struct Fence {
    inner: Arc<dyn Guard>,
    fences: Vec<RelPath>,
    /// The process that makes the view and puts changes back for a person: nobody is asked about
    /// what it does.
    helper: u32,
}

impl Fence {
    /// Fences around these paths of one layer, in front of `inner`.
    pub fn new(inner: Arc<dyn Guard>, fences: Vec<RelPath>, helper: u32) -> Self {
        Self {
            inner,
            fences,
            helper,
        }
    }
}

impl Guard for Fence {
    fn permit(&self, attempt: &Attempt<'_>) -> Result<(), Refusal> {
        for fence in &self.fences {
            if !attempt.path.is_within(fence) {
                continue;
            }
            let at_the_fence = attempt.path == fence;
            return match attempt.access {
                // It carries a mount that covers it: the way there must be found, by us as well.
                Access::Lookup if at_the_fence => Ok(()),
                _ if at_the_fence => Err(Refusal::Denied),
                _ => Err(Refusal::Absent),
            };
        }
        if attempt.pid == self.helper && self.helper != 0 {
            return Ok(());
        }
        self.inner.permit(attempt)
    }

    fn lists(&self, layer: &str, path: &RelPath) -> bool {
        let inside = |fence: &RelPath| path.is_within(fence) && path != fence;
        !self.fences.iter().any(inside) && self.inner.lists(layer, path)
    }

    fn protects_below(&self, layer: &str, directory: &RelPath) -> bool {
        let below = |fence: &RelPath| fence.is_within(directory) || directory.is_within(fence);
        self.fences.iter().any(below) || self.inner.protects_below(layer, directory)
    }

    fn observed(&self, layer: &str, path: &RelPath, access: Access, bytes: u64) {
        self.inner.observed(layer, path, access, bytes);
    }

    fn concerns(&self, layer: &str, path: &RelPath) -> bool {
        let inside = |fence: &RelPath| path.is_within(fence);
        self.fences.iter().any(inside) || self.inner.concerns(layer, path)
    }

    fn decides(&self) -> bool {
        !self.fences.is_empty() || self.inner.decides()
    }

    fn waits(&self) -> bool {
        self.inner.waits()
    }

    fn settles_by_lookup(&self) -> bool {
        // Behind a fence nothing is found.
        self.inner.settles_by_lookup()
    }

    fn observes(&self) -> bool {
        self.inner.observes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay::Unguarded;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    #[test]
    fn what_is_fenced_is_neither_entered_nor_carried_away() {
        let fence = Fence::new(Arc::new(Unguarded), vec![path("a/keys")], 7);
        let permit = |at: &str, access| {
            fence.permit(&Attempt {
                layer: "home",
                path: &path(at),
                access,
                pid: 7,
                alias: None,
            })
        };
        assert_eq!(permit("a/keys", Access::Lookup), Ok(()));
        assert_eq!(permit("a/keys", Access::List), Err(Refusal::Denied));
        assert_eq!(permit("a/keys/id", Access::Lookup), Err(Refusal::Absent));
        assert_eq!(permit("a/keysmith", Access::Write), Ok(()));
        assert!(fence.protects_below("home", &path("a")));
        assert!(!fence.protects_below("home", &path("b")));
        assert!(fence.lists("home", &path("a/keys")));
        assert!(!fence.lists("home", &path("a/keys/id")));
        assert!(fence.decides() && !fence.waits());
        assert!(!Fence::new(Arc::new(Unguarded), Vec::new(), 7).decides());
    }
}
