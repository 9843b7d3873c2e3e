//! One client's queue of messages. Owns the rule for slow clients: a lossless one holds the agent
//! back (as a pipe would), any other is skipped ahead to a fresh snapshot; the session thread never
//! waits for either.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::protocol::{ServerMessage, codec};

/// Bytes queued for a lossless client at which the agent's output is no longer read.
const HOLD_AT: usize = 4 << 20;
/// Bytes queued for any other client at which the next output drops single messages for a snapshot.
const SKIP_AT: usize = 8 << 20;
/// The same for updates: one of many changes alone is large, and a snapshot is larger.
const SKIP_UPDATES_AT: usize = 64 << 20;

/// Lets the agent's readers pass or wait. Shared by every outbox of a session.
#[derive(Default)]
pub struct Gate {
    holders: Mutex<u32>,
    moved: Condvar,
}

impl Gate {
    /// Blocks while somebody holds the gate.
    pub fn pass(&self) {
        let mut holders = lock(&self.holders);
        while *holders > 0 {
            holders = self
                .moved
                .wait(holders)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// One more holder.
    pub fn hold(&self) {
        *lock(&self.holders) += 1;
    }

    /// One holder less.
    pub fn release(&self) {
        let mut holders = lock(&self.holders);
        *holders = holders.saturating_sub(1);
        self.moved.notify_all();
    }
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<ServerMessage>,
    bytes: usize,
    holding: bool,
    skipping: bool,
    closed: bool,
    /// Nothing will be written any more.
    drained: bool,
}

/// See the module.
pub struct Outbox {
    lossless: bool,
    gate: Arc<Gate>,
    queue: Mutex<Queue>,
    filled: Condvar,
    emptied: Condvar,
}

impl Outbox {
    /// An empty queue. `lossless` clients get every byte of output.
    pub fn new(lossless: bool, gate: Arc<Gate>) -> Self {
        Self {
            lossless,
            gate,
            queue: Mutex::default(),
            filled: Condvar::new(),
            emptied: Condvar::new(),
        }
    }

    /// Queues a message; never blocks.
    pub fn push(&self, message: ServerMessage) {
        let mut queue = lock(&self.queue);
        if queue.closed {
            return;
        }
        let is_reply = matches!(message, ServerMessage::Reply(..));
        let skip_at = match message {
            ServerMessage::Update(_) => SKIP_UPDATES_AT,
            _ => SKIP_AT,
        };
        if queue.skipping && !is_reply {
            return;
        }
        queue.bytes += weight(&message);
        queue.messages.push_back(message);
        if self.lossless {
            if queue.bytes > HOLD_AT && !queue.holding {
                queue.holding = true;
                self.gate.hold();
            }
        } else if queue.bytes > skip_at {
            queue.skipping = true;
            queue
                .messages
                .retain(|m| matches!(m, ServerMessage::Reply(..)));
            queue.bytes = queue.messages.iter().map(weight).sum();
        }
        self.filled.notify_one();
    }

    /// Ends the queue: what is in it is still written.
    pub fn close(&self) {
        let mut queue = lock(&self.queue);
        queue.closed = true;
        self.filled.notify_one();
    }

    /// Waits until everything was written or cannot be, at most until `deadline`.
    pub fn wait_drained(&self, deadline: Instant) -> bool {
        let mut queue = lock(&self.queue);
        while !queue.drained {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.emptied.wait_timeout(queue, left);
            queue = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Writes messages until the queue is closed and empty, or the connection breaks. Calls
    /// `caught_up` when a skipped client has drained; its snapshot is then expected.
    pub fn drain(&self, out: &mut impl Write, caught_up: impl FnMut()) {
        self.write(out, caught_up);
        lock(&self.queue).drained = true;
        self.emptied.notify_all();
    }

    fn write(&self, out: &mut impl Write, mut caught_up: impl FnMut()) {
        loop {
            let message = {
                let mut queue = lock(&self.queue);
                loop {
                    if let Some(message) = queue.messages.pop_front() {
                        queue.bytes = queue.bytes.saturating_sub(weight(&message));
                        if queue.holding && queue.bytes < HOLD_AT / 4 {
                            queue.holding = false;
                            self.gate.release();
                        }
                        break message;
                    }
                    if queue.skipping {
                        queue.skipping = false;
                        // Without the lock: who is told may wait for a thread that pushes.
                        drop(queue);
                        caught_up();
                        queue = lock(&self.queue);
                        continue;
                    }
                    if queue.closed {
                        return;
                    }
                    queue = self
                        .filled
                        .wait(queue)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            };
            if codec::write(out, &message).is_err() {
                self.abandon();
                return;
            }
        }
    }

    /// The connection is gone: drops everything and lets the agent go on.
    pub fn abandon(&self) {
        let mut queue = lock(&self.queue);
        queue.closed = true;
        queue.messages.clear();
        queue.bytes = 0;
        if queue.holding {
            queue.holding = false;
            self.gate.release();
        }
        self.filled.notify_one();
    }
}

/// What a message weighs in the queue, roughly in bytes.
fn weight(message: &ServerMessage) -> usize {
    use crate::session::state::Update;
    match message {
        ServerMessage::Output(_, bytes) => bytes.len() + 32,
        ServerMessage::Update(Update::ChangesMoved { changed, gone }) => {
            changed.len() * 512 + gone.len() * 64 + 64
        }
        ServerMessage::Update(Update::DecidedTogether(decided)) => decided.len() * 256,
        _ => 256,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Stream;

    fn output(size: usize) -> ServerMessage {
        ServerMessage::Output(Stream::Out, vec![0; size])
    }

    #[test]
    fn a_slow_viewer_is_skipped_ahead_and_told_when_it_has_caught_up() {
        let outbox = Outbox::new(false, Arc::default());
        for _ in 0..200 {
            outbox.push(output(1 << 16));
        }
        outbox.push(ServerMessage::Reply(7, Ok(crate::protocol::Reply::Done)));
        outbox.close();
        let (mut wire, mut told) = (Vec::new(), 0);
        outbox.drain(&mut wire, || told += 1);
        assert_eq!(told, 1);
        assert!(wire.len() < SKIP_AT, "the backlog was dropped");
        let mut input = wire.as_slice();
        let last =
            std::iter::from_fn(|| codec::read::<ServerMessage>(&mut input).ok().flatten()).last();
        assert!(
            matches!(last, Some(ServerMessage::Reply(7, _))),
            "replies are never dropped"
        );
    }

    #[test]
    fn a_slow_pipe_holds_the_agent_back_and_loses_nothing() {
        let gate = Arc::new(Gate::default());
        let outbox = Outbox::new(true, Arc::clone(&gate));
        for _ in 0..200 {
            outbox.push(output(1 << 16));
        }
        assert_eq!(*lock(&gate.holders), 1);
        outbox.push(ServerMessage::Snapshot(Box::default()));
        outbox.close();
        let mut wire = Vec::new();
        outbox.drain(&mut wire, || {});
        assert!(wire.len() >= 200 << 16);
        gate.pass();
    }
}
