//! The running command as a session holds it: its streams, terminal replica and record. Owns the
//! threads that read from and write to it; decides nothing.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Sender, unbounded};
use nix::sys::signal::Signal;

use super::backlog::Backlog;
use super::event::Event;
use super::outbox::Gate;
use crate::emulator::Emulator;
use crate::protocol::Stream;
use crate::record::OutputRecord;
use crate::sandbox::spec::TerminalSize;
use crate::sandbox::{AgentIo, Control, ExitWaiter};

/// How long an uncontained command's left-over processes may keep its streams open after its end.
const LEFTOVERS: Duration = Duration::from_millis(500);
/// Largest piece of output that travels as one event.
const CHUNK: usize = 1 << 16;

/// See the module.
pub struct Agent {
    control: Control,
    input: Option<Sender<Vec<u8>>>,
    /// Present when the command has a terminal.
    terminal: Option<Emulator>,
    size: TerminalSize,
    record: Option<OutputRecord>,
    /// Something of its output could not be recorded.
    has_gap: bool,
    /// Readers that wait for the first listener.
    unheard: Vec<(Stream, File)>,
    streams_open: usize,
    exited: bool,
    /// Its end is the end of every process it started.
    contained: bool,
    gate: Arc<Gate>,
    backlog: Arc<Backlog>,
    events: Sender<Event>,
}

impl Agent {
    #[allow(
        clippy::too_many_arguments,
        reason = "each is a part of one command, used once"
    )]
    /// Takes a started command over. Its output is read from [`Agent::listen`] on.
    pub fn new(
        io: AgentIo,
        control: Control,
        exit: ExitWaiter,
        size: TerminalSize,
        contained: bool,
        scrollback: usize,
        record: Option<OutputRecord>,
        gate: Arc<Gate>,
        backlog: Arc<Backlog>,
        events: Sender<Event>,
    ) -> std::io::Result<Self> {
        let (stdin, unheard, terminal) = match io {
            AgentIo::Pty(master) => {
                let reader = File::from(master.try_clone()?);
                (
                    master,
                    vec![(Stream::Out, reader)],
                    Some(Emulator::new(size, scrollback)),
                )
            }
            AgentIo::Pipes {
                stdin,
                stdout,
                stderr,
            } => {
                let readers = vec![(Stream::Out, stdout.into()), (Stream::Err, stderr.into())];
                (stdin, readers, None)
            }
        };
        let waiter = events.clone();
        thread::Builder::new()
            .name("agent-exit".into())
            .spawn(move || {
                let _ = waiter.send(Event::Exited(exit.wait()));
            })?;
        Ok(Self {
            control,
            input: Some(writer(stdin, Arc::clone(&backlog))?),
            terminal,
            size,
            record,
            has_gap: false,
            streams_open: unheard.len(),
            unheard,
            exited: false,
            contained,
            gate,
            backlog,
            events,
        })
    }

    /// Starts reading the command's output, once.
    pub fn listen(&mut self) {
        for (stream, file) in std::mem::take(&mut self.unheard) {
            let (gate, events) = (Arc::clone(&self.gate), self.events.clone());
            let started = thread::Builder::new()
                .name("agent-output".into())
                .spawn(move || read_stream(stream, file, &gate, &events));
            if let Err(error) = started {
                tracing::error!(%error, "starting the thread that reads the agent's output");
                // Not by an event: the session thread must not wait for its own mailbox.
                self.stream_ended();
            }
        }
    }

    /// Bytes for its terminal or standard input.
    pub fn write(&self, bytes: Vec<u8>) {
        if let Some(input) = &self.input {
            self.backlog.add(bytes.len());
            // Fails when the command has closed its input: then nothing is counted any more.
            let _ = input.send(bytes);
        }
    }

    /// Its standard input has ended (pipes only: a terminal has no end).
    pub fn end_input(&mut self) {
        if self.terminal.is_none() {
            self.input = None;
        }
    }

    /// Takes note of what it wrote: record, replica, and the replica's answers to its questions.
    /// Tells the first time that something could not be recorded.
    pub fn wrote(&mut self, stream: Stream, bytes: &[u8]) -> Option<String> {
        let mut gap = None;
        if let Some(record) = &mut self.record
            && let Err(error) = record.output(stream, bytes)
            && !self.has_gap
        {
            self.has_gap = true;
            gap = Some(format!("Not all of the output is recorded: {error}."));
        }
        if let Some(terminal) = &mut self.terminal {
            let replies = terminal.feed(bytes);
            if !replies.is_empty() {
                self.write(replies);
            }
        }
        gap
    }

    /// One of its streams has ended.
    pub fn stream_ended(&mut self) {
        self.streams_open = self.streams_open.saturating_sub(1);
    }

    /// Its process is gone. What it wrote still waits for the first listener.
    pub fn exited(&mut self) {
        // What it wrote waits for the first listener: it may have ended before its client came.
        self.exited = true;
        if self.contained {
            return;
        }
        // Processes it left behind may hold the streams open for ever; nothing waits for them.
        let (gate, events) = (Arc::clone(&self.gate), self.events.clone());
        let streams = self.streams_open;
        let _ = thread::Builder::new()
            .name("agent-leftovers".into())
            .spawn(move || {
                gate.pass();
                thread::sleep(LEFTOVERS);
                gate.pass();
                for _ in 0..streams {
                    let _ = events.send(Event::OutputEnded);
                }
            });
    }

    /// Process gone and streams dry.
    pub fn is_quiet(&self) -> bool {
        self.exited && self.streams_open == 0
    }

    /// Size of its terminal.
    pub fn size(&self) -> TerminalSize {
        self.size
    }

    /// Sets the terminal's size; false when it has it already or has none.
    pub fn resize(&mut self, size: TerminalSize) -> bool {
        let Some(terminal) = &mut self.terminal else {
            return false;
        };
        if size == self.size || size.rows == 0 || size.cols == 0 {
            return false;
        }
        self.size = size;
        terminal.resize(size);
        self.control.resize(size);
        if let Some(record) = &mut self.record
            && let Err(error) = record.resize(size)
        {
            tracing::error!(%error, "recording a resize");
        }
        true
    }

    /// Bytes that paint its terminal as it stands; empty for pipes.
    pub fn screen(&self) -> Vec<u8> {
        self.terminal
            .as_ref()
            .map_or_else(Vec::new, Emulator::snapshot)
    }

    /// Asks it to end, and ends it after `grace`.
    pub fn stop(&self, grace: Duration) {
        self.control.stop(grace);
    }

    /// Passes a signal on to its processes, and ends it after `grace`.
    pub fn pass_on(&self, signal: Signal, grace: Duration) {
        self.control.pass_on(signal, grace);
    }

    /// Closes the record.
    pub fn finish(mut self) {
        self.backlog.close();
        if let Some(record) = &mut self.record
            && let Err(error) = record.finish()
        {
            tracing::error!(%error, "closing the output record");
        }
    }
}

/// A thread that writes to the command, so that one which does not read holds up nobody but (by
/// way of the backlog) the client that sends too much.
fn writer(stdin: OwnedFd, backlog: Arc<Backlog>) -> std::io::Result<Sender<Vec<u8>>> {
    let (out, input) = unbounded::<Vec<u8>>();
    thread::Builder::new()
        .name("agent-input".into())
        .spawn(move || {
            let mut stdin = File::from(stdin);
            for bytes in input {
                if stdin.write_all(&bytes).is_err() {
                    backlog.close();
                    break;
                }
                backlog.taken(bytes.len());
            }
        })?;
    Ok(out)
}

fn read_stream(stream: Stream, mut file: File, gate: &Gate, events: &Sender<Event>) {
    let mut buffer = vec![0; CHUNK];
    loop {
        gate.pass();
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                let bytes = buffer[..length].to_vec();
                if events.send(Event::OutputRead(stream, bytes)).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // A terminal whose last program is gone answers EIO: that is its end.
            Err(_) => break,
        }
    }
    let _ = events.send(Event::OutputEnded);
}
