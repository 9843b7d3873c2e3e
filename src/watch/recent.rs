//! Files that were written lately. Owns their polling: a store through a memory map makes no event,
//! but it moves the file's times.

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime};

use crate::RelPath;
use crate::layer::{Node, Tree, read};

/// How often they are looked at.
const EVERY: Duration = Duration::from_millis(100);

/// How long after the last sign of life.
const FOR: Duration = Duration::from_secs(10);

/// Most files looked at; of more, the newest.
const AT_MOST: usize = 512;

/// A file by layer and path.
type Key = (usize, RelPath);

/// See the module.
#[derive(Default)]
pub(super) struct Recent {
    files: HashMap<Key, Seen>,
    order: VecDeque<Key>,
    polled: Option<Instant>,
}

struct Seen {
    node: Option<Node>,
    /// When the event that named it was taken.
    noted: SystemTime,
    until: Instant,
}

impl Recent {
    /// A file was written.
    pub fn note(&mut self, layer: usize, path: RelPath) {
        let until = Instant::now() + FOR;
        let key = (layer, path);
        if let Some(seen) = self.files.get_mut(&key) {
            seen.until = until;
            return;
        }
        if self.files.len() >= AT_MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.files.remove(&oldest);
        }
        self.order.push_back(key.clone());
        let seen = Seen {
            node: None,
            noted: SystemTime::now(),
            until,
        };
        self.files.insert(key, seen);
    }

    /// When they are to be looked at next; `None` when there are none.
    pub fn next_poll(&self) -> Option<Duration> {
        if self.files.is_empty() {
            return None;
        }
        Some(
            self.polled
                .map_or(EVERY, |at| EVERY.saturating_sub(at.elapsed())),
        )
    }

    /// Looks at all of them if it is time; whether any moved.
    pub fn poll(&mut self, trees: &[Tree]) -> bool {
        let now = Instant::now();
        if self.files.is_empty() || self.polled.is_some_and(|at| now - at < EVERY) {
            return false;
        }
        self.polled = Some(now);
        let mut moved = false;
        for ((layer, path), seen) in &mut self.files {
            let node = stat(&trees[*layer], path);
            let first = seen.node.is_none();
            let same = match (&seen.node, &node) {
                (Some(a), Some(b)) => a.same_stat(b),
                (None, None) => true,
                _ => false,
            };
            if !same {
                // At the first look only what came after the event is news.
                let news = !first || node.as_ref().is_some_and(|n| changed(n) > seen.noted);
                moved |= news;
                seen.node = node;
                if news {
                    seen.until = now + FOR;
                }
            }
        }
        self.files.retain(|_, seen| seen.until > now);
        let files = &self.files;
        self.order.retain(|key| files.contains_key(key));
        moved
    }
}

fn stat(tree: &Tree, path: &RelPath) -> Option<Node> {
    let dir = tree.parent(path).ok()?;
    read::stat(dir.as_fd(), path.file_name()?).ok()?
}

fn changed(node: &Node) -> SystemTime {
    let seconds = u64::try_from(node.ctime.sec).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::new(seconds, node.ctime.nsec)
}
