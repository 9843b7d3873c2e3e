//! Where events come from: the terminal and the process's signals, each on a thread of its own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded, unbounded};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::Signals;

use crate::input::Input;

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Leave.
    End,
    /// Give the terminal back and stop.
    Stop,
    /// We were stopped and go on: what is on the terminal is unknown.
    Continued,
}

/// How long the reader is waited for when the screen is left. One whose terminal is gone may
/// never end.
const STOPPED: Duration = Duration::from_millis(200);

/// The terminal's events, until they are stopped.
pub struct Events {
    /// What comes; closed when the terminal is gone.
    pub received: Receiver<Input>,
    stop: Arc<AtomicBool>,
    ended: Receiver<()>,
}

impl Events {
    /// Reads no more: what is typed from now on is the shell's.
    pub fn stop(self) {
        drop(self.received);
        self.stop.store(true, Ordering::SeqCst);
        // The reader waits for the terminal; a change of its size is the one event that can be
        // made up.
        if signal_hook::low_level::raise(SIGWINCH).is_ok() {
            let _ = self.ended.recv_timeout(STOPPED);
        }
    }
}

/// Reads the terminal's events.
pub fn input() -> io::Result<Events> {
    // From here on a change of the terminal's size is noticed. The reader's first call would do the
    // same, but its thread may come to it after the first frame. An error comes back there.
    let _ = crossterm::event::poll(Duration::ZERO);
    // Bounded: what is typed ahead stays in the terminal.
    let (out, received) = bounded(256);
    let (still, ended) = bounded(0);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    std::thread::Builder::new()
        .name("terminal-input".into())
        .spawn(move || {
            while !stopped.load(Ordering::SeqCst)
                && let Ok(event) = crossterm::event::read()
            {
                if let Some(input) = Input::from_event(event)
                    && out.send(input).is_err()
                {
                    break;
                }
            }
            drop(still);
        })?;
    Ok(Events {
        received,
        stop,
        ended,
    })
}

/// The signals that end, stop or continue us. A terminal that hangs up counts as one even where
/// none is sent: the reader of its events would never notice.
pub fn signals() -> io::Result<Receiver<Signal>> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGTSTP, SIGCONT])?;
    let (out, received) = unbounded();
    let hang_up = out.clone();
    std::thread::Builder::new()
        .name("hang-up".into())
        .spawn(move || {
            if pvisor::pty::wait_hang_up(io::stdin()).is_ok() {
                let _ = hang_up.send(Signal::End);
            }
        })?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                let meaning = match signal {
                    SIGTSTP => Signal::Stop,
                    SIGCONT => Signal::Continued,
                    _ => Signal::End,
                };
                if out.send(meaning).is_err() {
                    break;
                }
            }
        })?;
    Ok(received)
}

/// Stops this process as its terminal's stop key would. Returns when it goes on.
pub fn stop_self() -> io::Result<()> {
    signal_hook::low_level::emulate_default_handler(SIGTSTP)
}
