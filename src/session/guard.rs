//! The session's end of the connection to a gate. Owns the thread that hears it, and the
//! observation log: counts never pass through the session's mailbox, they go to `observed.json`.

use std::fs::OpenOptions;
use std::io::{self, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::event::Event;
use super::store::StoreError;
use crate::policy::Observations;
use crate::policy::message::{Said, Told};
use crate::policy::observed::MAX_PATHS;
use crate::protocol::codec;
use crate::sandbox::ExitStatus;

/// Name of the log in a session's directory.
const FILE: &str = "observed.json";
/// How often it is written while something happens.
const SAVE: Duration = Duration::from_secs(2);
/// It is written at once when nothing was counted for so long.
const QUIET: Duration = Duration::from_millis(200);
/// How long the last counts of a command that has ended are waited for.
const COUNTING: Duration = Duration::from_secs(2);
/// How long a gate may leave a word of ours unread.
const STALLED: Duration = Duration::from_secs(5);

/// See the module.
pub struct GuardLink {
    stream: UnixStream,
    /// Hears when the last counts were written, and ends with the thread that writes them.
    counted: Receiver<()>,
    observed: Arc<Mutex<Option<Observations>>>,
}

impl GuardLink {
    /// Starts to hear a gate. Counts are added to those of the session's earlier commands.
    pub fn listen(stream: UnixStream, dir: &Path, events: Sender<Event>) -> io::Result<Self> {
        let known = load(dir).unwrap_or_else(|error| {
            tracing::error!(%error, "the observation log of earlier commands is given up");
            None
        });
        let observed = Arc::new(Mutex::new(known));
        let input = stream.try_clone()?;
        let (tell_counted, counted) = bounded(1);
        stream.set_write_timeout(Some(STALLED))?;
        let log = Log {
            path: dir.join(FILE),
            observed: Arc::clone(&observed),
            saved: Instant::now(),
            dirty: false,
            counted: tell_counted,
        };
        thread::Builder::new()
            .name("guard".into())
            .spawn(move || log.hear(input, &events))?;
        Ok(Self {
            stream,
            counted,
            observed,
        })
    }

    /// Says something to the gate. One that is gone has denied everything already.
    pub fn tell(&self, told: &Told) {
        if let Err(error) = codec::write(&mut &self.stream, told) {
            tracing::warn!(%error, "telling the gate");
        }
    }

    /// After the command's end: sends [`Event::Counted`] once the last counts are in the log, or the
    /// gate is gone or has let [`COUNTING`] pass. False when that cannot be waited for.
    pub fn settle(&self, status: ExitStatus, events: Sender<Event>) -> bool {
        self.tell(&Told::Count);
        let counted = self.counted.clone();
        let waiting = thread::Builder::new()
            .name("guard-counts".into())
            .spawn(move || {
                let _ = counted.recv_timeout(COUNTING);
                let _ = events.send(Event::Counted(status));
            });
        waiting.is_ok()
    }

    /// What was counted so far, if anything is.
    pub fn observed(&self) -> MutexGuard<'_, Option<Observations>> {
        lock(&self.observed)
    }
}

struct Log {
    path: PathBuf,
    observed: Arc<Mutex<Option<Observations>>>,
    saved: Instant,
    dirty: bool,
    counted: Sender<()>,
}

impl Log {
    fn hear(mut self, stream: UnixStream, events: &Sender<Event>) {
        let mut input = BufReader::new(stream);
        loop {
            // A frame that has begun to arrive is waited for; between frames the log is written.
            if self.dirty && input.buffer().is_empty() {
                let left = SAVE.saturating_sub(self.saved.elapsed()).min(QUIET);
                let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
                let mut ready = [PollFd::new(input.get_ref().as_fd(), PollFlags::POLLIN)];
                if left.is_zero() || poll(&mut ready, timeout) == Ok(0) {
                    self.save();
                    continue;
                }
            }
            match codec::read(&mut input) {
                Ok(Some(Said::Observed(counts))) => {
                    let mut observed = lock(&self.observed);
                    observed.get_or_insert_default().merge(&counts, MAX_PATHS);
                    self.dirty = true;
                }
                Ok(Some(Said::Counted)) => {
                    if self.dirty {
                        self.save();
                    }
                    let _ = self.counted.try_send(());
                }
                Ok(Some(said)) => {
                    if events.send(Event::Gate(said)).is_err() {
                        break;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, "hearing the gate");
                    break;
                }
            }
        }
        if self.dirty {
            self.save();
        }
        let _ = events.send(Event::GateGone);
    }

    /// Replaces the file in one step; not synced, as `session.json` is not.
    fn save(&mut self) {
        self.dirty = false;
        self.saved = Instant::now();
        let text = match &*lock(&self.observed) {
            Some(observed) => serde_json::to_vec(observed),
            None => return,
        };
        let beside = self.path.with_extension("json.new");
        let written = text.map_err(io::Error::from).and_then(|text| {
            let mut out = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&beside)?;
            out.write_all(&text)?;
            std::fs::rename(&beside, &self.path)
        });
        if let Err(error) = written {
            tracing::error!(%error, "writing the observation log");
        }
    }
}

/// Reads a session's observation log; `None` when there is none.
pub fn load(dir: &Path) -> Result<Option<Observations>, StoreError> {
    let path = dir.join(FILE);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::file("reading", &path, error)),
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|error| StoreError::Record {
            path,
            cause: error.to_string(),
        })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
