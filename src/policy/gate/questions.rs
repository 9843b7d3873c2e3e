//! Questions that wait for an answer. Owns the waiting: until the answer, the time set, the end of
//! the process that asked, or the end of the session.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::RelPath;
use crate::overlay::Access;

/// Questions that wait at once; one more is denied.
const MOST: usize = 64;
/// How often a waiting question looks whether the process that asked is still there: a call into
/// the file server cannot be broken off, not even by `SIGKILL`, before it is answered.
const LOOK: Duration = Duration::from_millis(250);

/// What is asked: the same operation of several processes is one question.
type Key = (usize, RelPath, Access);

#[derive(Default)]
struct Open {
    answer: Mutex<Option<bool>>,
    answered: Condvar,
}

struct Waiting {
    key: Key,
    open: Arc<Open>,
    callers: usize,
}

#[derive(Default)]
struct Table {
    waiting: HashMap<u64, Waiting>,
    by_key: HashMap<Key, u64>,
    last: u64,
    closed: bool,
}

/// See the module.
#[derive(Default)]
pub struct Questions(Mutex<Table>);

/// One caller's part in a question.
pub struct Question {
    /// Its number.
    pub id: u64,
    /// It was not asked before: the person has to be told.
    pub first: bool,
    open: Arc<Open>,
}

/// How a question ended for one caller.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    /// By an answer.
    Answered(bool),
    /// By the time set; everybody who waits is denied.
    TimedOut,
    /// The last caller was ended.
    CallerGone,
    /// This caller was ended, others still wait.
    NotOurs,
}

impl Questions {
    /// Opens a question or joins one; `None` when too many wait or nobody would hear it.
    pub fn open(&self, room: usize, path: &RelPath, access: Access) -> Option<Question> {
        let mut table = lock(&self.0);
        if table.closed {
            return None;
        }
        let key = (room, path.clone(), access);
        if let Some(id) = table.by_key.get(&key).copied()
            && let Some(waiting) = table.waiting.get_mut(&id)
        {
            waiting.callers += 1;
            return Some(Question {
                id,
                first: false,
                open: Arc::clone(&waiting.open),
            });
        }
        if table.waiting.len() >= MOST {
            return None;
        }
        table.last += 1;
        let id = table.last;
        let open = Arc::new(Open::default());
        table.by_key.insert(key.clone(), id);
        table.waiting.insert(
            id,
            Waiting {
                key,
                open: Arc::clone(&open),
                callers: 1,
            },
        );
        Some(Question {
            id,
            first: true,
            open,
        })
    }

    /// Answers a question; one that does not wait any more needs no answer.
    pub fn answer(&self, id: u64, allow: bool) {
        let mut table = lock(&self.0);
        if let Some(waiting) = table.waiting.remove(&id) {
            table.by_key.remove(&waiting.key);
            *lock(&waiting.open.answer) = Some(allow);
            waiting.open.answered.notify_all();
        }
    }

    /// Denies every question that waits and every one to come.
    pub fn close(&self) {
        lock(&self.0).closed = true;
        let all: Vec<u64> = lock(&self.0).waiting.keys().copied().collect();
        for id in all {
            self.answer(id, false);
        }
    }

    /// Waits for the end of a question. `caller` is the process that asked, if it can be watched.
    pub fn wait(&self, question: &Question, timeout: Duration, caller: Option<u32>) -> Ending {
        let end = Instant::now() + timeout;
        let mut answer = lock(&question.open.answer);
        loop {
            if let Some(allow) = *answer {
                return Ending::Answered(allow);
            }
            let left = end.saturating_duration_since(Instant::now());
            let gone = caller.is_some_and(is_ended);
            if gone || left.is_zero() {
                // In the order of `answer`: first the table, then the question.
                drop(answer);
                return self.leave(question, gone);
            }
            let woken = question.open.answered.wait_timeout(answer, left.min(LOOK));
            answer = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn leave(&self, question: &Question, gone: bool) -> Ending {
        let mut table = lock(&self.0);
        let Some(waiting) = table.waiting.get_mut(&question.id) else {
            // It was answered just now.
            return Ending::Answered(lock(&question.open.answer).unwrap_or(false));
        };
        waiting.callers -= 1;
        let others = waiting.callers > 0;
        if gone && others {
            return Ending::NotOurs;
        }
        drop(table);
        self.answer(question.id, false);
        if gone {
            Ending::CallerGone
        } else {
            Ending::TimedOut
        }
    }
}

/// The name of a process, lossy; `None` when it cannot be seen.
pub fn program(pid: u32) -> Option<String> {
    if pid == 0 {
        return None;
    }
    let comm = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    let name = comm.strip_suffix(b"\n").unwrap_or(&comm);
    Some(String::from_utf8_lossy(name).into_owned())
}

/// Whether a process is gone, or was killed and only waits for us.
fn is_ended(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => status
            .lines()
            .filter_map(|line| {
                line.strip_prefix("SigPnd:")
                    .or_else(|| line.strip_prefix("ShdPnd:"))
            })
            .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .any(|mask| mask & KILL != 0),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// `SIGKILL` in a mask of pending signals; the kernel turns every fatal signal into it.
const KILL: u64 = 1 << (9 - 1);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
