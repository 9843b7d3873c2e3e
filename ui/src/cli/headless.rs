//! `run --headless`: a client without a screen. Owns the passing on of bytes, exact and apart, of
//! the end of the input and of signals, and the exit status.

use std::io::{self, IsTerminal, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;

use crossbeam_channel::{Receiver, never, select, unbounded};
use crossterm::terminal;
use pvisor::protocol::{Request, Role, ServerMessage, Stream, Welcome};
use pvisor::sandbox::spec::TerminalSize;
use pvisor::sandbox::{ExitStatus, Stdio};
use pvisor::session::client::{Client, ClientError};
use pvisor::session::state::{Ask, RunState, SessionState, Update};
use pvisor::session::store::Store;
use pvisor::text::visible;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

use super::connection::{apply, hello};
use super::context::Context;
use super::error::{CliError, NO_SANDBOX};
use super::{asks, report};

/// Exit status of a program that wrote into a pipe nobody reads.
const BROKEN_PIPE: u8 = 128 + 13;
/// Largest piece of input that travels at once.
const CHUNK: usize = 1 << 16;

/// Passes everything on until the command has ended. The screen in `welcome` is not painted: the
/// command is heard from its first client on, so every byte is still to come.
pub fn run(
    client: Client,
    welcome: Welcome,
    stdio: Stdio,
    context: &Context,
) -> Result<ExitCode, CliError> {
    let client = Arc::new(client);
    let raw = Raw::enter(stdio, context);
    forward_input(Arc::clone(&client))?;
    let signals = signals(stdio).map_err(|error| {
        CliError::while_doing("signals cannot be watched", error).with_status(NO_SANDBOX)
    })?;
    let mut session = Session {
        state: welcome.state,
        client,
        store: context.store.clone(),
        stdout: Some(io::stdout()),
        stopping: None,
        notices: Vec::new(),
    };
    for ask in session.state.asks.values() {
        session.tell(ask);
    }
    // The server looks a last time before it tells of the end: the changes have arrived by then.
    while session.state.run == Some(RunState::Running) || session.state.run.is_none() {
        select! {
            recv(session.client.messages()) -> message => match message {
                Ok(message) => session.take(&message),
                Err(_) => return Err(lost(&session.state)),
            },
            recv(signals) -> signal => if let Ok(signal) = signal
                && let Some(code) = session.signalled(signal)
            {
                return Ok(code);
            },
        }
    }
    drop(raw);
    session.conclude()
}

struct Session {
    state: SessionState,
    client: Arc<Client>,
    store: Store,
    /// `None` once its reader has gone.
    stdout: Option<io::Stdout>,
    /// The signal that asked for the end.
    stopping: Option<i32>,
    /// What the person should know; told at the end, when nothing of the command's can mix with it.
    notices: Vec<String>,
}

impl Session {
    fn take(&mut self, message: &ServerMessage) {
        match message {
            ServerMessage::Output(stream, bytes) => self.write(*stream, bytes),
            other => {
                if let ServerMessage::Update(Update::Noticed(notice)) = other {
                    self.notices.push(notice.clone());
                }
                apply(&mut self.state, other);
                if let ServerMessage::Update(Update::Asked(ask)) = other {
                    self.tell(ask);
                }
            }
        }
    }

    /// A question, and how to answer it: the command waits. A pipe's reader gets what the command
    /// wrote and nothing else.
    fn tell(&self, ask: &Ask) {
        let mut err = io::stderr().lock();
        if err.is_terminal() {
            let line = asks::with_command(&self.state, ask, &id(&self.state));
            // The terminal may be in raw mode.
            let _ = write!(err, "\r\npvisor-tui: question {}: {line}\r\n", ask.id);
        }
    }

    /// Writes on; when nobody reads any more the command is stopped, as a pipe would have done.
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        match stream {
            Stream::Err => {
                // Without a reader there is nothing left to tell, and nobody to tell it to.
                let _ = io::stderr().lock().write_all(bytes);
            }
            Stream::Out => {
                let Some(stdout) = &self.stdout else { return };
                let mut out = stdout.lock();
                if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
                    drop(out);
                    self.stdout = None;
                    self.end(Request::Stop);
                }
            }
        }
    }

    /// The first signal is passed on to the command, a second one leaves at once (and the server, which knows
    /// that the command is ours, stops it then).
    fn signalled(&mut self, signal: i32) -> Option<ExitCode> {
        if signal == SIGWINCH {
            if let Ok((cols, rows)) = terminal::size() {
                let _ = self
                    .client
                    .send(Request::Resize(TerminalSize { rows, cols }));
            }
            return None;
        }
        if self.stopping.replace(signal).is_some() {
            return Some(ExitCode::from(128 + signal as u8));
        }
        self.end(Request::PassOn(signal));
        None
    }

    /// Asks for the command's end, on a connection of its own: ours may be full of input that the
    /// command does not read.
    fn end(&self, how: Request) {
        let socket = self.store.socket(&id(&self.state));
        let ours = Arc::clone(&self.client);
        let here = how.clone();
        let asking = move || {
            let asked = Client::connect(&socket, hello(Role::Driver))
                .and_then(|(client, _)| client.call(how.clone()));
            if let Err(ClientError::Connect { .. } | ClientError::Lost(_)) = asked {
                let _ = ours.send(how);
            }
        };
        if std::thread::Builder::new().spawn(asking).is_err() {
            let _ = self.client.send(here);
        }
    }

    fn conclude(self) -> Result<ExitCode, CliError> {
        let session = id(&self.state);
        let mut err = io::stderr().lock();
        match self.state.exit {
            None => return Err(lost(&self.state)),
            Some(ExitStatus::TimedOut) => {
                writeln!(err, "error: the time limit has ended the command").ok();
            }
            Some(ExitStatus::StageFull) => {
                writeln!(
                    err,
                    "error: the command has staged more than it may and was stopped; what is staged \
                     can be reviewed"
                )
                .ok();
            }
            // What could not be executed has said so itself, as a shell would.
            Some(_) => {}
        }
        if let Some(lost) = self.state.exit.and_then(ExitStatus::lost) {
            writeln!(err, "error: {lost} has ended; the command was killed").ok();
            writeln!(err, "hint: {}", kept(&session)).ok();
        }
        // A pipe's reader gets what the command wrote and nothing else.
        if err.is_terminal() {
            for notice in &self.notices {
                writeln!(err, "warning: {}", visible(notice.as_bytes())).ok();
            }
            let remarks = self.state.remarks.len() as u64 + self.state.more_remarks;
            if remarks > 0 {
                writeln!(
                    err,
                    "warning: rules denied or remarked {remarks} accesses; `pvisor-tui review \
                     {session}` and the key of the page of rules list them"
                )
                .ok();
            }
            writeln!(err, "{}", report::last_word(&session, &self.state)).ok();
        }
        let code = match self.state.exit {
            _ if self.stdout.is_none() => BROKEN_PIPE,
            exit => exit.map_or(NO_SANDBOX, ExitStatus::code),
        };
        Ok(ExitCode::from(code))
    }
}

fn lost(state: &SessionState) -> CliError {
    CliError::failure("the session server has ended; the command was killed")
        .hint(kept(&id(state)))
        .with_status(ExitStatus::Lost.code())
}

/// What can be done after a process of ours was lost.
fn kept(session: &str) -> String {
    format!(
        "what was staged is kept: `pvisor-tui changes {session}` lists it, `pvisor-tui review \
         {session}` shows it"
    )
}

fn id(state: &SessionState) -> String {
    state
        .info
        .as_ref()
        .map_or_else(|| "last".into(), |info| info.id.clone())
}

/// Reads standard input in a thread of its own: it may block for ever.
fn forward_input(client: Arc<Client>) -> Result<(), CliError> {
    let started = std::thread::Builder::new()
        .name("stdin".into())
        .spawn(move || {
            let mut stdin = io::stdin().lock();
            let mut buffer = vec![0; CHUNK];
            loop {
                match stdin.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(length) => {
                        let bytes = buffer[..length].to_vec();
                        if client.send(Request::Input(bytes)).is_err() {
                            return;
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            let _ = client.send(Request::InputEnded);
        });
    match started {
        Ok(_) => Ok(()),
        Err(error) => Err(
            CliError::while_doing("standard input cannot be read", error).with_status(NO_SANDBOX),
        ),
    }
}

fn signals(stdio: Stdio) -> io::Result<Receiver<i32>> {
    let mut wanted = vec![SIGINT, SIGTERM, SIGHUP];
    if matches!(stdio, Stdio::Pty(_)) {
        wanted.push(SIGWINCH);
    }
    let mut signals = Signals::new(wanted)?;
    let (out, received) = unbounded();
    let started = std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                if out.send(signal).is_err() {
                    break;
                }
            }
        });
    // Without the thread signals keep their usual effect, which ends us and so the command.
    Ok(if started.is_ok() { received } else { never() })
}

/// The caller's terminal in raw mode while a command with a terminal of its own runs: keys reach
/// it as they are, Ctrl-C too.
struct Raw {
    entered: bool,
}

impl Raw {
    fn enter(stdio: Stdio, context: &Context) -> Self {
        let wanted = matches!(stdio, Stdio::Pty(_))
            && context.stdin_is_terminal
            && context.stdout_is_terminal;
        Self {
            entered: wanted && terminal::enable_raw_mode().is_ok(),
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if self.entered {
            let _ = terminal::disable_raw_mode();
        }
    }
}
