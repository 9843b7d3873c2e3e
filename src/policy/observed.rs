//! The observation log: what was looked up, opened, read, written and denied, path by path. Owns
//! the counts, their bound and their form on disk; no I/O.
//!
//! What is counted are the requests that reach the file server: what the kernel answers from its
//! own caches (a name looked up again within a second, a page read twice) is not among them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::LayerPath;
use crate::layer::Timestamp;
use crate::overlay::Access;

/// Paths a session keeps at most; accesses to others are counted in [`Observations::more`].
pub const MAX_PATHS: usize = 20_000;

/// Counts of one path. Times are those of the first access of the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PathCounts {
    /// Looked up, or its attributes read.
    pub looked_up: u64,
    /// Listed.
    pub listed: u64,
    /// Opened (for reading or writing), or a link's target or an attribute read.
    pub opened: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Changed: truncated, mode, times or attributes set, content written.
    pub written: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Made.
    pub created: u64,
    /// Removed, or renamed away.
    pub removed: u64,
    /// Refused by a rule, by an answer or for want of one.
    pub denied: u64,
    /// The first access of any kind.
    pub first: Timestamp,
    /// The first that read.
    pub first_read: Option<Timestamp>,
    /// The first that wrote, made or removed.
    pub first_written: Option<Timestamp>,
}

impl PathCounts {
    /// Notes an access that happened at `now`.
    pub fn note(&mut self, access: Access, bytes: u64, now: Timestamp) {
        match access {
            Access::Lookup => self.looked_up += 1,
            Access::List => self.listed += 1,
            Access::Read if bytes == 0 => self.opened += 1,
            Access::Read => self.bytes_read += bytes,
            Access::Write => {
                self.written += 1;
                self.bytes_written += bytes;
            }
            Access::Create => self.created += 1,
            Access::Remove => self.removed += 1,
        }
        self.touch(now);
        match access {
            Access::Read => {
                self.first_read.get_or_insert(now);
            }
            Access::Write | Access::Create | Access::Remove => {
                self.first_written.get_or_insert(now);
            }
            Access::Lookup | Access::List => {}
        }
    }

    /// Notes a refusal at `now`.
    pub fn note_denied(&mut self, now: Timestamp) {
        self.denied += 1;
        self.touch(now);
    }

    fn touch(&mut self, now: Timestamp) {
        if self.first == Timestamp::default() {
            self.first = now;
        }
    }

    /// Accesses of all kinds, refused ones included; bytes are not among them.
    pub fn accesses(&self) -> u64 {
        let counts = [
            self.looked_up,
            self.listed,
            self.opened,
            self.written,
            self.created,
            self.removed,
            self.denied,
        ];
        counts.into_iter().fold(0, u64::saturating_add)
    }

    fn add(&mut self, other: &PathCounts) {
        for (mine, more) in [
            (&mut self.looked_up, other.looked_up),
            (&mut self.listed, other.listed),
            (&mut self.opened, other.opened),
            (&mut self.bytes_read, other.bytes_read),
            (&mut self.written, other.written),
            (&mut self.bytes_written, other.bytes_written),
            (&mut self.created, other.created),
            (&mut self.removed, other.removed),
            (&mut self.denied, other.denied),
        ] {
            *mine = mine.saturating_add(more);
        }
        let earlier = |a: Option<Timestamp>, b: Option<Timestamp>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let set = |t: Timestamp| (t != Timestamp::default()).then_some(t);
        self.first = earlier(set(self.first), set(other.first)).unwrap_or_default();
        self.first_read = earlier(self.first_read, other.first_read);
        self.first_written = earlier(self.first_written, other.first_written);
    }
}

/// Counts of many paths.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Listed", into = "Listed")]
pub struct Observations {
    /// By path.
    pub paths: BTreeMap<LayerPath, PathCounts>,
    /// Accesses to paths that are not among them, because there were too many.
    pub more: u64,
}

/// Neither JSON nor a person wants a path as the key of a table.
#[derive(Serialize, Deserialize)]
struct Listed {
    paths: Vec<(LayerPath, PathCounts)>,
    more: u64,
}

impl From<Listed> for Observations {
    fn from(listed: Listed) -> Self {
        Self {
            paths: listed.paths.into_iter().collect(),
            more: listed.more,
        }
    }
}

impl From<Observations> for Listed {
    fn from(observations: Observations) -> Self {
        Self {
            paths: observations.paths.into_iter().collect(),
            more: observations.more,
        }
    }
}

impl Observations {
    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.more == 0
    }

    /// Adds another's counts, up to `most` paths altogether.
    pub fn merge(&mut self, other: &Observations, most: usize) {
        self.more = self.more.saturating_add(other.more);
        for (key, counts) in &other.paths {
            if let Some(known) = self.paths.get_mut(key) {
                known.add(counts);
            } else if self.paths.len() < most {
                self.paths.insert(key.clone(), *counts);
            } else {
                self.more = self.more.saturating_add(counts.accesses());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RelPath;

    fn key(name: &str) -> LayerPath {
        LayerPath::new("workspace", RelPath::try_from(name).expect("a path"))
    }

    fn at(sec: i64) -> Timestamp {
        Timestamp { sec, nsec: 0 }
    }

    #[test]
    fn counts_add_up_and_first_times_stay() {
        let mut counts = PathCounts::default();
        counts.note(Access::Lookup, 0, at(5));
        counts.note(Access::Read, 0, at(6));
        counts.note(Access::Read, 100, at(7));
        counts.note(Access::Write, 7, at(8));
        counts.note_denied(at(9));
        let mut all = Observations::default();
        for _ in 0..2 {
            all.merge(
                &Observations {
                    paths: [(key("a"), counts)].into(),
                    more: 1,
                },
                10,
            );
        }
        let sum = all.paths[&key("a")];
        assert_eq!((sum.looked_up, sum.opened, sum.bytes_read), (2, 2, 200));
        assert_eq!((sum.written, sum.bytes_written, sum.denied), (2, 14, 2));
        assert_eq!((sum.first, sum.first_read), (at(5), Some(at(6))));
        assert_eq!((sum.first_written, all.more), (Some(at(8)), 2));
    }

    #[test]
    fn what_does_not_fit_is_counted_and_both_forms_survive() {
        let mut counts = PathCounts::default();
        counts.note(Access::Create, 0, at(1));
        let batch = Observations {
            paths: ["a", "b", "c"].map(|name| (key(name), counts)).into(),
            more: 0,
        };
        let mut all = Observations::default();
        all.merge(&batch, 2);
        assert_eq!((all.paths.len(), all.more), (2, 1));
        let json = serde_json::to_string(&all).expect("json");
        assert_eq!(
            serde_json::from_str::<Observations>(&json).expect("json"),
            all
        );
        let wire = postcard::to_stdvec(&all).expect("postcard");
        assert_eq!(
            postcard::from_bytes::<Observations>(&wire).expect("postcard"),
            all
        );
    }
}
