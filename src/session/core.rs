//! The session itself: receives events, agrees on updates, hands work to the worker. Owns the
//! agreed state, the journal, the records and the clients; runs on one thread and never blocks on
//! anything but its mailbox.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use nix::sys::signal::Signal;

use super::agent::Agent;
use super::asks::Asks;
use super::event::{ClientId, Event};
use super::guard::GuardLink;
use super::journal::Journal;
use super::last_words::LastWords;
use super::outbox::Outbox;
use super::pace::Pace;
use super::state::{RunState, SessionState, Update};
use super::store::{SessionRecord, Store};
use super::worker::{Job, ReplyTo};
use crate::commit::Recovered;
use crate::protocol::{Failure, Hello, Reply, Request, Role, ServerMessage, Stream, Welcome};
use crate::reserve::Ballast;
use crate::sandbox::ExitStatus;
use crate::sandbox::spec::TerminalSize;
use crate::watch::Watch;

/// How long a command has to end after it was asked to.
const GRACE: Duration = Duration::from_secs(2);

/// Size of an agent's terminal when nobody has told another.
pub(super) const DEFAULT_SIZE: TerminalSize = TerminalSize { rows: 24, cols: 80 };

pub(super) struct Connected {
    pub(super) outbox: Arc<Outbox>,
    pub(super) role: Role,
    pub(super) user: String,
    wants_output: bool,
    pub(super) owns_command: bool,
}

/// One session in a server. See the module.
pub struct Session {
    pub(super) state: SessionState,
    pub(super) store: Store,
    pub(super) journal: Journal,
    pub(super) clients: BTreeMap<ClientId, Connected>,
    pub(super) jobs: Option<Sender<Job>>,
    pub(super) agent: Option<Agent>,
    pub(super) watch: Option<Watch>,
    /// The way to the running command's gate, when it has one.
    pub(super) guard: Option<GuardLink>,
    pub(super) asks: Asks,
    pub(super) last_words: LastWords,
    /// Jobs queued or running.
    pub(super) pending: usize,
    /// Scans among them.
    pub(super) scanning: usize,
    pub(super) pace: Pace,
    /// The host is being written: what would write it too, or take from under it, waits in
    /// `deferred`.
    pub(super) writing: bool,
    pub(super) deferred: VecDeque<(ClientId, u64, Request)>,
    /// The command is its starter's, and that has not come yet.
    awaits_owner: bool,
    pub(super) exit: Option<ExitStatus>,
    /// Given up when the command has ended.
    ballast: Option<Ballast>,
    /// The journal could not be written the last time.
    unwritten: bool,
    /// The command was stopped because it had staged too much.
    stage_full: bool,
    /// What happened before anybody was there to be told.
    pub(super) untold: Vec<String>,
    /// What was found unfinished and settled at the start: for the first who asks for a recovery,
    /// who may have been what started the server.
    pub(super) settled_first: Vec<Recovered>,
    pub(super) ending: bool,
}

impl Session {
    /// A session over what the journal told. `jobs` is `None` when nothing is staged.
    pub fn new(
        state: SessionState,
        store: Store,
        journal: Journal,
        jobs: Option<Sender<Job>>,
        agent: Option<Agent>,
        watch: Option<Watch>,
    ) -> Self {
        Self {
            state,
            store,
            journal,
            clients: BTreeMap::new(),
            jobs,
            agent,
            watch,
            guard: None,
            asks: Asks::default(),
            last_words: LastWords::default(),
            pending: 0,
            scanning: 0,
            pace: Pace::default(),
            writing: false,
            deferred: VecDeque::new(),
            awaits_owner: false,
            exit: None,
            ballast: None,
            unwritten: false,
            stage_full: false,
            untold: Vec::new(),
            settled_first: Vec::new(),
            ending: false,
        }
    }

    /// Takes the room that is kept for what is recorded when the command has ended.
    pub fn hold(&mut self, ballast: Option<Ballast>) {
        self.ballast = ballast;
    }

    /// Gives that room back: nothing of the agent's runs any more that could take it.
    pub(super) fn drop_ballast(&mut self) {
        self.ballast = None;
    }

    /// The command is its starter's: [`Session::hear`] ends it if that has not come by then.
    pub fn await_owner(&mut self) {
        self.awaits_owner = self.agent.is_some();
    }

    /// Whether the server may end: nobody is there, no command runs and nothing is being done.
    pub fn is_idle(&self) -> bool {
        !self.is_needed() && self.pending == 0
    }

    /// Whether somebody is there or a command runs.
    pub fn is_needed(&self) -> bool {
        !self.clients.is_empty() || self.agent.is_some()
    }

    /// Whether the server was told to end, and nothing is left unfinished.
    pub fn is_ending(&self) -> bool {
        self.ending && self.agent.is_none() && self.pending == 0
    }

    /// A command whose starter never came: if it was to end with that, it ends. Else it is heard
    /// all the same, or it would block on its output.
    pub fn hear(&mut self) {
        if self.awaits_owner {
            self.stop_agent();
        }
        self.listen();
    }

    /// Lets the last messages out before the process ends. A client that does not read is waited
    /// for until `deadline`.
    pub fn farewell(&mut self, deadline: Instant) {
        self.tell_untold();
        self.write_journal();
        self.record();
        for client in self.clients.values() {
            client.outbox.close();
        }
        for client in self.clients.values() {
            client.outbox.wait_drained(deadline);
        }
    }

    fn listen(&mut self) {
        if let Some(agent) = &mut self.agent {
            agent.listen();
        }
        self.conclude_when_quiet();
    }

    fn stop_agent(&self) {
        if let Some(agent) = &self.agent {
            agent.stop(GRACE);
        }
    }

    fn stage_is_full(&mut self, used: u64, limit: u64) {
        if self.agent.is_none() {
            return;
        }
        self.stage_full = true;
        self.notice(format!(
            "The command is being stopped: what it staged takes {} MiB on the disk, {} MiB are \
             allowed. Everything staged so far can be reviewed.",
            used.div_ceil(1 << 20),
            limit >> 20
        ));
        self.stop_agent();
    }

    /// Carries one event out.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Joined {
                client,
                user,
                hello,
                outbox,
            } => {
                self.joined(client, user, &hello, outbox);
            }
            Event::Left(client) => self.left(client),
            Event::CaughtUp(client) => self.caught_up(client),
            Event::Requested {
                client,
                id,
                request,
            } => self.requested(client, id, request),
            Event::OutputRead(stream, bytes) => self.output(stream, bytes),
            Event::OutputEnded => {
                if let Some(agent) = &mut self.agent {
                    agent.stream_ended();
                }
                self.conclude_when_quiet();
            }
            Event::Exited(status) => {
                if let Some(lost) = status.lost() {
                    self.notice(format!(
                        "The command was killed: {lost} has ended. What was staged is here to \
                         review; the session's server.log may say why."
                    ));
                }
                let stopped = std::mem::take(&mut self.stage_full);
                self.exit = Some(if stopped {
                    ExitStatus::StageFull
                } else {
                    status
                });
                if let Some(agent) = &mut self.agent {
                    agent.exited();
                }
                self.conclude_when_quiet();
            }
            Event::StageFull { used, limit } => self.stage_is_full(used, limit),
            Event::Hinted(hint) => self.hinted(hint),
            Event::Done(done) => self.done(*done),
            Event::Settled(settled) => {
                self.settled(&settled);
                self.notice(settled.describe());
            }
            Event::Told(text) => self.notice(text),
            Event::WorkerLost => self.worker_lost(),
            Event::Gate(said) => self.gate_said(said),
            Event::Counted(status) => self.conclude_with(status),
            Event::GateGone => self.gate_gone(),
            Event::Kept(kept) => self.kept(*kept),
            Event::Terminated => self.terminated(),
        }
        self.write_journal();
    }

    /// Hands what was agreed to the file. What cannot be written is kept and tried again with every
    /// event; that is said once.
    fn write_journal(&mut self) {
        match self.journal.flush() {
            Ok(()) => self.unwritten = false,
            Err(error) if !self.unwritten => {
                self.unwritten = true;
                tracing::error!(%error, "writing the journal");
                self.notice(format!("The session's records cannot be written: {error}."));
            }
            Err(_) => {}
        }
    }

    /// Whether what is decided now would be on record; if not, why.
    pub(super) fn can_record(&mut self) -> Result<(), Failure> {
        self.journal.flush().map_err(|error| {
            let dir = self.state.info.as_ref().map(|info| info.dir.clone());
            Failure::Other(format!(
                "the session's records in {} cannot be written: {error}; nothing was done, make \
                 room there and try again",
                crate::text::visible_path(&dir.unwrap_or_default())
            ))
        })
    }

    /// Agrees on an update: the one place where state, journal and clients learn of it.
    pub(super) fn agree(&mut self, update: Update) {
        self.state.apply(&update);
        let journalled = !matches!(update, Update::Joined(_) | Update::Left(_));
        // What does not reach the file now is tried again, and told, with the next flush.
        if journalled
            && let Err(error) = self.journal.append(&update)
            && !crate::reserve::is_full(&error)
        {
            tracing::error!(%error, "appending to the journal");
        }
        for client in self.clients.values() {
            client.outbox.push(ServerMessage::Update(update.clone()));
        }
    }

    pub(super) fn notice(&mut self, text: String) {
        tracing::warn!("{text}");
        self.agree(Update::Noticed(text));
    }

    /// What waited for somebody to be told.
    fn tell_untold(&mut self) {
        for text in std::mem::take(&mut self.untold) {
            self.notice(text);
        }
    }

    pub(super) fn reply(&self, to: ReplyTo, result: Result<Reply, Failure>) {
        if let Some((client, id)) = to
            && let Some(client) = self.clients.get(&client)
        {
            client.outbox.push(ServerMessage::Reply(id, result));
        }
    }

    /// Writes `session.json`.
    pub(super) fn record(&self) {
        let Some(info) = &self.state.info else { return };
        let record = SessionRecord {
            info: (**info).clone(),
            state: self.state.run.unwrap_or(RunState::Exited),
            exit: self.state.exit,
            ended: self.state.ended,
            boundary: self.state.boundary.clone(),
            commits: self
                .state
                .commits
                .iter()
                .filter(|c| c.undoes.is_none())
                .count() as u32,
        };
        if let Err(error) = self.store.save(&record) {
            tracing::error!(%error, "writing session.json");
        }
    }

    fn joined(&mut self, client: ClientId, user: String, hello: &Hello, outbox: Arc<Outbox>) {
        if let (Some(agent), Some(size), Role::Driver) = (&mut self.agent, hello.size, hello.role) {
            agent.resize(size);
        }
        let (size, screen) = match &self.agent {
            Some(agent) if hello.output => (agent.size(), agent.screen()),
            Some(agent) => (agent.size(), Vec::new()),
            None => (hello.size.unwrap_or(DEFAULT_SIZE), Vec::new()),
        };
        outbox.push(ServerMessage::Welcome(Box::new(Welcome {
            state: self.state.clone(),
            screen,
            size,
            role: hello.role,
        })));
        let connected = Connected {
            outbox,
            role: hello.role,
            user: user.clone(),
            wants_output: hello.output,
            owns_command: hello.owns_command,
        };
        self.awaits_owner &= !hello.owns_command;
        self.clients.insert(client, connected);
        self.agree(Update::Joined(super::state::Person {
            client,
            user,
            role: hello.role,
        }));
        self.tell_untold();
        // Nobody's bytes are lost: the agent is heard from the first listener on.
        self.listen();
    }

    fn left(&mut self, client: ClientId) {
        let Some(gone) = self.clients.remove(&client) else {
            return;
        };
        gone.outbox.abandon();
        self.agree(Update::Left(client));
        if gone.owns_command {
            self.stop_agent();
        }
    }

    fn caught_up(&mut self, client: ClientId) {
        let Some(client) = self.clients.get(&client) else {
            return;
        };
        client
            .outbox
            .push(ServerMessage::Snapshot(Box::new(self.state.clone())));
        if let Some(agent) = &self.agent
            && client.wants_output
        {
            let mut paint = b"\x1bc".to_vec();
            paint.extend(agent.screen());
            client
                .outbox
                .push(ServerMessage::Output(Stream::Out, paint));
        }
    }

    fn output(&mut self, stream: Stream, bytes: Vec<u8>) {
        let Some(agent) = &mut self.agent else { return };
        let gap = agent.wrote(stream, &bytes);
        for client in self.clients.values().filter(|c| c.wants_output) {
            client
                .outbox
                .push(ServerMessage::Output(stream, bytes.clone()));
        }
        if let Some(gap) = gap {
            self.notice(gap);
        }
    }

    pub(super) fn resize(&mut self, size: TerminalSize) {
        let Some(agent) = &mut self.agent else { return };
        if agent.resize(size) {
            for client in self.clients.values().filter(|c| c.wants_output) {
                client.outbox.push(ServerMessage::Resized(size));
            }
        }
    }

    pub(super) fn terminated(&mut self) {
        self.ending = true;
        self.stop_agent();
        // Its end is known only once its output was read.
        self.listen();
    }

    pub(super) fn stop_command(&mut self) -> Result<Reply, Failure> {
        match &self.agent {
            Some(agent) => {
                agent.stop(GRACE);
                Ok(Reply::Done)
            }
            None => Err(Failure::NotRunning),
        }
    }

    /// Passes a client's signal on to the command.
    pub(super) fn pass_on(&mut self, signal: i32) -> Result<Reply, Failure> {
        let ending = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
        let Some(signal) = ending.into_iter().find(|known| *known as i32 == signal) else {
            return Err(Failure::Other(format!("signal {signal} is not passed on")));
        };
        match &self.agent {
            Some(agent) => {
                agent.pass_on(signal, GRACE);
                Ok(Reply::Done)
            }
            None => Err(Failure::NotRunning),
        }
    }

    pub(super) fn user_of(&self, to: ReplyTo) -> String {
        to.and_then(|(client, _)| self.clients.get(&client))
            .map_or_else(String::new, |c| c.user.clone())
    }

    /// Ends the server after the reply has left.
    pub(super) fn retire(&mut self) {
        self.ending = true;
    }
}
