//! Live watch. Owns inotify watches on the uppers, the list of what has moved in them, and `notify`
//! on host directories; its events are hints, the scan is the truth.

mod host;
mod recent;
mod uppers;

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::layer::{Dirt, Layer};

/// Events that come this close together make one hint.
const COALESCE: Duration = Duration::from_millis(20);

/// How often places are looked at that cannot be watched.
const BLIND: Duration = Duration::from_secs(1);

/// A hint that a scan is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// Something moved in an upper (or events were lost).
    Upper,
    /// Something moved in a watched host directory.
    Host,
}

/// What the watch's thread is told from outside.
struct Signals {
    wake: EventFd,
    stop: AtomicBool,
    /// Something moved in a host directory.
    host: AtomicBool,
    /// Host directories are wanted that cannot be watched.
    host_blind: AtomicBool,
    moved: Moved,
}

impl Signals {
    fn wake(&self) {
        // Fails only when the counter is full, and then the thread is awake anyway.
        let _ = self.wake.write(1);
    }
}

/// What has moved in the uppers since it was last taken.
#[derive(Debug, Clone, Default)]
pub struct Moved(Arc<Mutex<Dirt>>);

impl Moved {
    /// What has moved; nothing has from here on. To be taken before anything is looked at.
    pub fn take(&self) -> Dirt {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, dirt: Dirt) {
        let mut moved = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        moved.merge(dirt);
    }
}

/// Watches until it is dropped.
pub struct Watch {
    signals: Arc<Signals>,
    host: host::HostWatch,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches the uppers of these layers; `sink` is called from the watch's own thread, at most
    /// once per 20 ms and kind, and again for a hint that it could not pass on (`false`). The first hint comes at once: what happened before the watches
    /// stood is for the scan to find.
    pub fn start(
        layers: &[Layer],
        sink: impl Fn(Hint) -> bool + Send + 'static,
    ) -> std::io::Result<Self> {
        let signals = Arc::new(Signals {
            wake: EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            stop: AtomicBool::new(false),
            host: AtomicBool::new(false),
            host_blind: AtomicBool::new(false),
            moved: Moved::default(),
        });
        let uppers = uppers::Uppers::new(layers)?;
        let thread = {
            let signals = Arc::clone(&signals);
            std::thread::Builder::new()
                .name("watch".into())
                .spawn(move || run(uppers, &signals, &sink))?
        };
        Ok(Self {
            host: host::HostWatch::new(Arc::clone(&signals)),
            signals,
            thread: Some(thread),
        })
    }

    /// What has moved in the uppers; it is there before the hint that tells of it.
    pub fn moved(&self) -> Moved {
        self.signals.moved.clone()
    }

    /// Watches no host directory until they are set again: for who writes to many files there and
    /// looks at them afterwards. Each of a dozen events a file would wake two threads.
    pub fn pause_host(&self) {
        self.host.pause();
    }

    /// Replaces the set of watched host directories.
    pub fn set_host_directories(&self, directories: Vec<PathBuf>) {
        self.host.set(directories);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.signals.stop.store(true, Ordering::SeqCst);
        self.signals.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A kind of hint that waits for its moment.
struct Pending {
    hint: Hint,
    since: Option<Instant>,
}

impl Pending {
    fn raise(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    fn left(&self) -> Option<Duration> {
        self.since.map(|s| COALESCE.saturating_sub(s.elapsed()))
    }

    fn is_due(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    fn tell(&mut self, sink: &impl Fn(Hint) -> bool) {
        if self.is_due() {
            self.since = (!sink(self.hint)).then(Instant::now);
        }
    }
}

fn run(mut uppers: uppers::Uppers, signals: &Signals, sink: &impl Fn(Hint) -> bool) {
    let mut upper = Pending {
        hint: Hint::Upper,
        since: None,
    };
    let mut host = Pending {
        hint: Hint::Host,
        since: None,
    };
    let mut looked = Instant::now();
    uppers.arm_all();
    signals.moved.add(uppers.everything());
    upper.raise();
    loop {
        let blind = uppers.is_blind() || signals.host_blind.load(Ordering::SeqCst);
        let waits = [
            upper.left(),
            host.left(),
            uppers.next_poll(),
            blind.then(|| BLIND.saturating_sub(looked.elapsed())),
        ];
        let timeout = waits
            .into_iter()
            .flatten()
            .min()
            .map_or(PollTimeout::NONE, |left| {
                // Rounded up, or the last millisecond would be spent spinning.
                let millis = left.as_micros().div_ceil(1000);
                PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
            });
        let mut fds = [
            PollFd::new(uppers.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.wake.as_fd(), PollFlags::POLLIN),
        ];
        // An interrupted wait is as good as one that timed out.
        let _ = poll(&mut fds, timeout);
        let _ = signals.wake.read();
        if signals.stop.load(Ordering::SeqCst) {
            return;
        }
        uppers.take_events();
        uppers.poll_recent();
        let dirt = uppers.take_dirt();
        if !dirt.is_clean() {
            signals.moved.add(dirt);
            upper.raise();
        }
        // Told once; from then on the next event counts as another one.
        if signals.host.load(Ordering::SeqCst) {
            host.raise();
        }
        if host.is_due() {
            signals.host.store(false, Ordering::SeqCst);
        }
        if blind && looked.elapsed() >= BLIND {
            looked = Instant::now();
            if uppers.is_blind() {
                uppers.retry();
                signals.moved.add(uppers.everything());
                upper.raise();
            }
            if signals.host_blind.load(Ordering::SeqCst) {
                host.raise();
            }
        }
        upper.tell(sink);
        host.tell(sink);
    }
}

#[cfg(test)]
mod tests;
