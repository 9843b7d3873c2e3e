//! Files that were written lately. Owns their polling: a store through a memory map makes no event,
//! but it moves the file's times. A file is looked at often right after a sign of life and ever
//! more seldom without one, so that many written at once cost little once they rest.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use crate::RelPath;
use crate::layer::{Node, Tree, read};

/// How soon after a sign of life; the next looks come each twice as late.
const SOONEST: Duration = Duration::from_millis(100);

/// How seldom at most.
const SELDOM: Duration = Duration::from_millis(1_600);

/// How long after the last sign of life.
const FOR: Duration = Duration::from_secs(20);

/// Most files looked at; of more, the newest.
const AT_MOST: usize = 512;

/// A file by layer and path.
type Key = (usize, RelPath);

/// See the module.
#[derive(Default)]
pub(super) struct Recent {
    files: HashMap<Key, Seen>,
    order: VecDeque<Key>,
    /// When each is due; one that is not its file's own `due` any more is passed over.
    due: BinaryHeap<Reverse<(Instant, Key)>>,
}

struct Seen {
    node: Option<Node>,
    /// When the event that named it was taken.
    noted: SystemTime,
    until: Instant,
    due: Instant,
    every: Duration,
}

impl Recent {
    /// A file was written.
    pub fn note(&mut self, layer: usize, path: RelPath) {
        let now = Instant::now();
        let key = (layer, path);
        if let Some(seen) = self.files.get_mut(&key) {
            seen.until = now + FOR;
            // A file that is written all the time makes events enough.
            seen.every = SOONEST;
            return;
        }
        if self.files.len() >= AT_MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.files.remove(&oldest);
        }
        self.order.push_back(key.clone());
        let due = now + SOONEST;
        self.due.push(Reverse((due, key.clone())));
        let seen = Seen {
            node: None,
            noted: SystemTime::now(),
            until: now + FOR,
            due,
            every: SOONEST,
        };
        self.files.insert(key, seen);
    }

    /// When the next is to be looked at; `None` when there are none.
    pub fn next_poll(&self) -> Option<Duration> {
        let Reverse((due, _)) = self.due.peek()?;
        // Those that are due close together are looked at together.
        let soon = due.saturating_duration_since(Instant::now());
        Some(soon.max(SOONEST / 2))
    }

    /// Looks at those that are due; which of them have moved.
    pub fn poll(&mut self, trees: &[Tree]) -> Vec<Key> {
        let now = Instant::now();
        let mut keys = Vec::new();
        while let Some(Reverse((due, _))) = self.due.peek()
            && *due <= now
            && let Some(Reverse((due, key))) = self.due.pop()
        {
            if self.files.get(&key).is_some_and(|seen| seen.due == due) {
                keys.push(key);
            }
        }
        if keys.is_empty() {
            return Vec::new();
        }
        // Siblings come one after another: their directory is opened once.
        keys.sort_unstable();
        let mut moved = Vec::new();
        let mut forgotten = false;
        let mut at: Option<(Key, Option<OwnedFd>)> = None;
        for key in keys {
            let parent = (key.0, key.1.parent().unwrap_or_default());
            if at.as_ref().is_none_or(|(known, _)| *known != parent) {
                let dir = trees[parent.0].dir(&parent.1).ok();
                at = Some((parent, dir));
            }
            let dir = at.as_ref().and_then(|(_, dir)| dir.as_ref());
            let name = key.1.file_name().unwrap_or_default();
            let node = dir.and_then(|dir| read::stat(dir.as_fd(), name).ok()?);
            let Some(seen) = self.files.get_mut(&key) else {
                continue;
            };
            if seen.look(node, now) {
                moved.push(key.clone());
            }
            if seen.until <= now {
                self.files.remove(&key);
                forgotten = true;
            } else {
                seen.due = now + seen.every;
                self.due.push(Reverse((seen.due, key)));
            }
        }
        if forgotten {
            let files = &self.files;
            self.order.retain(|key| files.contains_key(key));
        }
        moved
    }
}

impl Seen {
    /// Takes note of what the file is now; whether that is news.
    fn look(&mut self, node: Option<Node>, now: Instant) -> bool {
        let first = self.node.is_none();
        let same = match (&self.node, &node) {
            (Some(a), Some(b)) => a.same_stat(b),
            (None, None) => true,
            _ => false,
        };
        // At the first look only what came after the event is news.
        let news = !same && (!first || node.as_ref().is_some_and(|n| changed(n) > self.noted));
        self.node = node;
        if news {
            self.until = now + FOR;
            self.every = SOONEST;
        } else {
            self.every = (self.every * 2).min(SELDOM);
        }
        news
    }
}

fn changed(node: &Node) -> SystemTime {
    let seconds = u64::try_from(node.ctime.sec).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::new(seconds, node.ctime.nsec)
}
