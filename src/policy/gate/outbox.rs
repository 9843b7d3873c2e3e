//! What the gate has to tell the session. Owns the queue, the counts that are gathered for a
//! moment, and the bounds of both: the file server never waits for a session that does not read.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use super::room::Room;
use crate::layer::Timestamp;
use crate::overlay::Access;
use crate::policy::message::Said;
use crate::policy::{Level, Observations, PathCounts};
use crate::protocol::codec;
use crate::{LayerPath, RelPath};

/// Messages that may wait.
const QUEUE: usize = 1_024;
/// Counts are gathered this long before they are sent.
const GATHER: Duration = Duration::from_millis(100);
/// Paths that are counted one by one in that time.
const GATHERED: usize = 8_192;
/// Remarks sent in a session's run; further ones are only counted.
const REMARKS: usize = 2_000;

enum Item {
    Say(Box<Said>),
    /// Something was counted.
    Counted,
    End,
}

/// See the module.
pub struct Outbox {
    queue: Sender<Item>,
    tally: Mutex<Tally>,
    remarked: Mutex<HashSet<(Level, usize, RelPath, Access)>>,
    cut: AtomicU64,
}

#[derive(Default)]
struct Tally {
    paths: HashMap<(usize, RelPath), PathCounts>,
    more: u64,
    /// The writer knows that there is something.
    announced: bool,
}

/// The writer's end.
pub struct Queue(Receiver<Item>);

impl Outbox {
    /// An empty queue and its other end.
    pub fn new() -> (Self, Queue) {
        let (queue, items) = bounded(QUEUE);
        let this = Self {
            queue,
            tally: Mutex::default(),
            remarked: Mutex::default(),
            cut: AtomicU64::new(0),
        };
        (this, Queue(items))
    }

    /// Queues a message; false when that is not possible.
    pub fn say(&self, said: Said) -> bool {
        self.queue.try_send(Item::Say(Box::new(said))).is_ok()
    }

    /// Ends the queue; what is in it is still sent.
    pub fn end(&self) {
        let _ = self.queue.send(Item::End);
    }

    /// Whether a remark was not made yet; too many are only counted.
    pub fn is_news(&self, level: Level, room: usize, path: &RelPath, access: Access) -> bool {
        let mut remarked = lock(&self.remarked);
        let remark = (level, room, path.clone(), access);
        if remarked.contains(&remark) {
            return false;
        }
        if remarked.len() >= REMARKS {
            if self.cut.fetch_add(1, Ordering::Relaxed) == 0 {
                self.announce(&mut lock(&self.tally));
            }
            return false;
        }
        remarked.insert(remark)
    }

    /// Counts an access.
    pub fn count(&self, room: usize, path: &RelPath, access: Access, bytes: u64) {
        let now = Timestamp::now();
        self.tally(room, path, |counts| counts.note(access, bytes, now));
    }

    /// Counts a refusal.
    pub fn count_denied(&self, room: usize, path: &RelPath) {
        let now = Timestamp::now();
        self.tally(room, path, |counts| counts.note_denied(now));
    }

    fn tally(&self, room: usize, path: &RelPath, note: impl FnOnce(&mut PathCounts)) {
        let mut tally = lock(&self.tally);
        let key = (room, path.clone());
        if tally.paths.len() < GATHERED || tally.paths.contains_key(&key) {
            note(tally.paths.entry(key).or_default());
        } else {
            tally.more += 1;
        }
        self.announce(&mut tally);
    }

    fn announce(&self, tally: &mut Tally) {
        if !tally.announced {
            // A full queue is looked at soon: the counts go with whatever is in it.
            tally.announced = !matches!(
                self.queue.try_send(Item::Counted),
                Err(TrySendError::Disconnected(_))
            );
        }
    }

    fn gathered(&self, rooms: &[Room]) -> Option<Observations> {
        let tally = std::mem::take(&mut *lock(&self.tally));
        let paths = tally.paths.into_iter().map(|((room, path), counts)| {
            let layer = rooms[room].name.clone();
            (LayerPath::new(layer, path), counts)
        });
        let observed = Observations {
            paths: paths.collect(),
            more: tally.more,
        };
        (!observed.is_empty()).then_some(observed)
    }

    /// Writes until the queue ends or nobody reads any more.
    pub fn drain(&self, queue: &Queue, out: &mut impl Write, rooms: &[Room]) {
        let mut due = None;
        loop {
            let next = match due {
                None => queue.0.recv().ok(),
                Some(at) => match queue.0.recv_deadline(at) {
                    Ok(item) => Some(item),
                    Err(error) => error.is_timeout().then_some(Item::Counted),
                },
            };
            let now = std::time::Instant::now();
            let written = match &next {
                Some(Item::Say(said)) => {
                    let before = if **said == Said::Counted {
                        self.send_counts(out, rooms)
                    } else {
                        Ok(())
                    };
                    before.and_then(|()| codec::write(out, said))
                }
                Some(Item::Counted) => Ok(()),
                Some(Item::End) | None => {
                    let _ = self.send_counts(out, rooms);
                    return;
                }
            };
            // The word that something was counted finds no room in a full queue.
            if due.is_none() && lock(&self.tally).announced {
                due = Some(now + GATHER);
            }
            let written = written.and_then(|()| {
                if due.is_some_and(|at| at <= now) {
                    due = None;
                    return self.send_counts(out, rooms);
                }
                Ok(())
            });
            if written.is_err() {
                return;
            }
        }
    }

    fn send_counts(&self, out: &mut impl Write, rooms: &[Room]) -> std::io::Result<()> {
        let cut = self.cut.swap(0, Ordering::Relaxed);
        if cut > 0 {
            codec::write(out, &Said::RemarksCut(cut))?;
        }
        match self.gathered(rooms) {
            Some(observed) => codec::write(out, &Said::Observed(observed)),
            None => Ok(()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
