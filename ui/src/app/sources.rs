//! Where events come from: the terminal and the process's signals, each on a thread of its own.

use std::io;

use crossbeam_channel::{Receiver, bounded, unbounded};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
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

/// The terminal's events; closed when the terminal is gone.
pub fn input() -> io::Result<Receiver<Input>> {
    // Bounded: what is typed ahead stays in the terminal.
    let (out, events) = bounded(256);
    std::thread::Builder::new()
        .name("terminal-input".into())
        .spawn(move || {
            while let Ok(event) = crossterm::event::read() {
                if let Some(input) = Input::from_event(event)
                    && out.send(input).is_err()
                {
                    break;
                }
            }
        })?;
    Ok(events)
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
