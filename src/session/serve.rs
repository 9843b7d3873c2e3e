//! The server's life in its own process: puts session, worker, agent and watch together, and runs
//! the session until nobody needs it. Owns the session thread's loop, the server's lock, signals and
//! standard streams.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use nix::fcntl::{Flock, FlockArg};

use super::agent::Agent;
use super::backlog::Backlog;
use super::connection;
use super::core::Session;
use super::event::Event;
use super::guard::GuardLink;
use super::outbox::Gate;
use super::records::{Records, terminal_size};
use super::stage_limit;
use super::state::{RunState, SessionInfo, Update};
use super::store::Store;
use super::worker::{Job, Then, Worker};
use crate::commit;
use crate::layer::{StageAccess, Timestamp};
use crate::policy::Policy;
use crate::reserve::Forgiving;
use crate::sandbox::{Running, Stdio};
use crate::watch::Watch;

/// Events that may wait; readers of the agent's output block beyond it.
const MAILBOX: usize = 1_024;
/// How long a server without command and clients stays, for the next command line.
const LINGER: Duration = Duration::from_millis(1_500);
/// How long a started command waits for its first listener.
const UNHEARD: Duration = Duration::from_secs(5);
/// How long clients that read slowly are waited for at the end.
const FAREWELL: Duration = Duration::from_secs(1);

/// A server that lacks nothing but what its session runs: its doors are open, its records too.
pub struct Server {
    info: SessionInfo,
    store: Store,
    lock: SessionLock,
    records: Records,
    watch: Option<Watch>,
    gate: Arc<Gate>,
    backlog: Arc<Backlog>,
    events: Sender<Event>,
    mailbox: Receiver<Event>,
}

/// What a session runs: the command, its words, its streams' kind and the rules asked for.
pub type Command = (Running, Vec<String>, Stdio, Policy);

/// The lock that makes a server the only one of its session.
pub struct SessionLock {
    _file: Flock<File>,
}

impl SessionLock {
    /// Takes the lock; `None` when another server holds it.
    pub fn take(session: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(session.join("lock"))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => Ok(Some(Self { _file: file })),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, errno)) => Err(errno.into()),
        }
    }
}

impl Server {
    /// Starts the threads that listen, beside the opened `records`. The sandbox may be made
    /// meanwhile, as long as that forks nothing any more.
    pub fn open(
        info: SessionInfo,
        store: Store,
        lock: SessionLock,
        listener: UnixListener,
        records: Records,
        is_staged: bool,
    ) -> io::Result<Self> {
        let (events, mailbox) = bounded(MAILBOX);
        let gate = Arc::new(Gate::default());
        let backlog = Arc::new(Backlog::default());
        connection::accept(listener, &gate, &backlog, events.clone())?;
        signals(events.clone())?;
        let watch = if is_staged {
            let hints = events.clone();
            Some(Watch::start(&info.layers, move |hint| {
                // Never waits for a full mailbox: the session may be waiting for the watch.
                hints.try_send(Event::Hinted(hint)).is_ok()
            })?)
        } else {
            None
        };
        Ok(Self {
            info,
            store,
            lock,
            records,
            watch,
            gate,
            backlog,
            events,
            mailbox,
        })
    }

    /// Runs the session until it is done. The calling thread becomes the session thread: the
    /// sandbox's processes end with it. `owned`: the command is its starter's, and ends if that never
    /// connects. `access` is the door to the uppers when no command runs.
    pub fn serve(
        self,
        command: Option<Command>,
        owned: bool,
        access: Option<Arc<dyn StageAccess>>,
    ) -> io::Result<()> {
        let Self {
            info,
            store,
            lock,
            records,
            watch,
            gate,
            backlog,
            events,
            mailbox,
        } = self;
        let Records {
            state,
            journal,
            recovered,
            tracker,
            output,
            ballast,
        } = records;
        let first = state.info.is_none();
        let crashed = state.run == Some(RunState::Running);
        let scrollback = info.settings.scrollback as usize;
        let access = match &command {
            Some((running, ..)) => running.access.clone(),
            None => access,
        };
        let held = access.clone();
        let jobs = match (access, tracker) {
            (Some(access), Some(mut tracker)) => {
                let mut layers = info.layers.clone();
                if let Some((running, ..)) = &command {
                    super::reduce::take_drivers(&mut layers, &running.boundary);
                    tracker.merged_by(&layers);
                }
                let moved = watch.as_ref().map(Watch::moved).unwrap_or_default();
                let worker = Worker::new(
                    (store.clone(), info.clone()),
                    layers,
                    tracker,
                    access,
                    moved,
                    events.clone(),
                );
                let (jobs, queue) = unbounded::<Job>();
                thread::Builder::new()
                    .name("worker".into())
                    .spawn(move || worker.run(&queue))?;
                Some(jobs)
            }
            _ => None,
        };
        if let (Some((running, ..)), Some(access)) = (&command, &held)
            && let Some(limit) = stage_limit::of(&running.boundary)
        {
            stage_limit::watch(limit, &info.layers, access, events.clone())?;
        }
        drop(held);
        let for_answers = events.clone();
        let (mut started, mut guard) = (None, None);
        let agent = match command {
            Some((mut running, words, stdio, policy)) => {
                if let Some(gate) = running.gate.take() {
                    running.boundary.notes.push(policy.describe());
                    guard = Some((GuardLink::listen(gate, &info.dir, events.clone())?, policy));
                }
                started = Some((running.boundary, words));
                Some(Agent::new(
                    running.io,
                    running.control,
                    running.exit,
                    terminal_size(stdio),
                    running.access.is_some(),
                    scrollback,
                    output,
                    gate,
                    backlog,
                    events,
                )?)
            }
            None => None,
        };

        let mut session = Session::new(state, store, journal, jobs, agent, watch);
        session.hold(ballast);
        session.asks.events = Some(for_answers);
        if first {
            session.agree(Update::Opened(Box::new(info)));
        }
        if crashed {
            session.agree(Update::Lost);
        }
        if let Some((boundary, command)) = started {
            let (boundary, at) = (Box::new(boundary), Timestamp::now());
            session.agree(Update::Started {
                boundary,
                command,
                at,
            });
        }
        if let Some((link, policy)) = guard {
            session.guarded(link, policy);
        }
        for settled in recovered {
            session.settled(&settled);
            session.untold.push(settled.describe());
            session.settled_first.push(settled);
        }
        session.record();
        if session.watch.is_none() {
            // Otherwise the watch's first hint brings the first scan.
            session.scan(Then::Rest);
        }
        if owned {
            session.await_owner();
        }
        run(&mut session, &mailbox);
        session.farewell(Instant::now() + FAREWELL);
        drop(session);
        drop(lock);
        Ok(())
    }
}

/// The session thread.
fn run(session: &mut Session, mailbox: &Receiver<Event>) {
    let begun = Instant::now();
    let mut heard = false;
    // Hints are nobody's need: where a directory cannot be watched they come for ever.
    let mut needed = begun;
    loop {
        let patience = session.tends_in().map_or(LINGER, |due| due.min(LINGER));
        match mailbox.recv_timeout(patience) {
            Ok(event) => session.handle(event),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        session.tend();
        if session.is_needed() {
            needed = Instant::now();
        } else if needed.elapsed() >= LINGER && session.is_idle() {
            return;
        }
        if !heard && begun.elapsed() > UNHEARD {
            heard = true;
            session.hear();
        }
        if session.is_ending() {
            return;
        }
    }
}

impl Session {
    /// A commit that was left unfinished is on record when it was finished.
    pub(super) fn settled(&mut self, settled: &commit::Recovered) {
        if let Some(record) = super::recover::record_of(settled)
            && self.state.commits.iter().all(|c| c.number != record.number)
        {
            self.agree(Update::Committed(record));
        }
    }
}

/// TERM and INT end the command, then the server. HUP is nothing to a process without a terminal.
fn signals(events: Sender<Event>) -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                if signal != SIGHUP && events.send(Event::Terminated).is_err() {
                    return;
                }
            }
        })?;
    Ok(())
}

/// The standard streams lead nowhere but to the server's log.
pub fn detach_streams(log: &Path) -> io::Result<()> {
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(log)?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&log)?;
    // The log is read with a pager by whoever looks for a fault: plain text, warnings by default.
    let filter = tracing_subscriber::EnvFilter::try_from_env("PVISOR_TUI_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(|| Forgiving(io::stderr()))
        .try_init();
    Ok(())
}
