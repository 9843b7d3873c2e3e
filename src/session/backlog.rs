//! Input that waits for the command to read it. Owns the count that slows a client down which sends
//! more than the command takes: the server then leaves that client's requests unread, so that its
//! own connection fills up. The session thread only counts and never waits.

use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Bytes that may wait before clients are slowed down.
const MOST: usize = 8 << 20;
/// How often a client that is held up is looked at, whether it is still there.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Waiting {
    bytes: usize,
    closed: bool,
}

/// See the module.
#[derive(Default)]
pub struct Backlog {
    waiting: Mutex<Waiting>,
    moved: Condvar,
}

impl Backlog {
    /// So much more waits.
    pub fn add(&self, bytes: usize) {
        self.lock().bytes += bytes;
    }

    /// So much was read by the command.
    pub fn taken(&self, bytes: usize) {
        let mut waiting = self.lock();
        waiting.bytes = waiting.bytes.saturating_sub(bytes);
        self.moved.notify_all();
    }

    /// Nobody reads any more: what waits is lost, and nobody is held up.
    pub fn close(&self) {
        self.lock().closed = true;
        self.moved.notify_all();
    }

    /// Holds a client's reader up while too much waits; `false` when the client went meanwhile.
    pub fn hold(&self, client: impl AsFd) -> bool {
        let mut waiting = self.lock();
        while waiting.bytes > MOST && !waiting.closed {
            let woken = self.moved.wait_timeout(waiting, LOOK);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
            if waiting.bytes > MOST && !waiting.closed && has_left(&client) {
                return false;
            }
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the other end was closed, whatever of it is still unread (a hang-up is always told).
fn has_left(client: &impl AsFd) -> bool {
    let mut end = [PollFd::new(client.as_fd(), PollFlags::empty())];
    let _ = poll(&mut end, PollTimeout::ZERO);
    end[0].any().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    #[test]
    fn a_client_is_held_up_until_the_command_reads_or_it_leaves() {
        let backlog = Arc::new(Backlog::default());
        let (ours, theirs) = UnixStream::pair().expect("pair");
        backlog.add(MOST);
        assert!(backlog.hold(&ours), "that much may wait");
        backlog.add(1);
        let reader = {
            let backlog = Arc::clone(&backlog);
            let ours = ours.try_clone().expect("clone");
            std::thread::spawn(move || backlog.hold(&ours))
        };
        backlog.taken(1);
        assert!(reader.join().expect("ends"), "read on");
        backlog.add(1);
        drop(theirs);
        assert!(!backlog.hold(&ours), "gone");
        backlog.close();
        assert!(
            backlog.hold(&ours),
            "nobody is held up by what nobody reads"
        );
    }
}
