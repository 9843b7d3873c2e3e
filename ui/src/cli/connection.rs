//! A verb's connection to a session's server: what has been agreed, kept up to date while requests
//! are answered.

use std::collections::BTreeSet;
use std::io::Write;

use crossbeam_channel::Receiver;
use pvisor::change::ChangeSet;
use pvisor::commit::Outcome;
use pvisor::protocol::{Failure, Hello, PROTOCOL_VERSION, Reply, Request, Role, ServerMessage};
use pvisor::session::client::{Client, ClientError};
use pvisor::session::server;
use pvisor::session::state::{RunState, SessionState, Update};
use pvisor::session::store::SessionRecord;
use pvisor::text::visible;

use super::context::Context;
use super::error::CliError;

/// See the module.
pub struct Connection {
    /// The connection itself.
    pub client: Client,
    /// Everything agreed so far, as of the last answer.
    pub state: SessionState,
    /// Notices that came since it was opened.
    pub notices: Vec<String>,
}

/// What a commit was made from.
pub struct Before {
    /// The change set.
    pub changes: ChangeSet,
    /// Who approved what was written; with `commit --all` who committed.
    pub approved_by: BTreeSet<String>,
}

impl Connection {
    /// Reaches the session's server, starting one when none runs. Must be called while this
    /// process has one thread.
    pub fn open(context: &Context, record: &SessionRecord, role: Role) -> Result<Self, CliError> {
        super::recover::first(record)?;
        let (client, welcome) = server::attach(&context.store, record, hello(role))?;
        Ok(Self {
            client,
            state: welcome.state,
            notices: Vec::new(),
        })
    }

    /// Has the server look again; the state is up to date afterwards.
    pub fn refresh(&mut self) -> Result<(), CliError> {
        self.call(Request::Rescan).map(drop)
    }

    /// Sends a request and waits for its answer; the state includes all that led to it.
    pub fn call(&mut self, request: Request) -> Result<Reply, CliError> {
        Ok(self.ask(request)?)
    }

    /// The same with the error as it came.
    pub fn ask(&mut self, request: Request) -> Result<Reply, ClientError> {
        let reply = self.client.ask(request)?;
        self.hear(&reply)
    }

    /// Waits for the answer to a request that was sent before; the state includes all that led to
    /// it.
    pub fn hear(&mut self, reply: &Receiver<Result<Reply, Failure>>) -> Result<Reply, ClientError> {
        let reply = reply.recv().map_err(|_| ClientError::Closed);
        self.catch_up(|_, _| {});
        Ok(reply??)
    }

    /// Has the server commit; what came of it, and what was committed from.
    pub fn commit(&mut self, request: Request) -> (Result<Reply, ClientError>, Before) {
        let reply = self.client.ask(request);
        let reply = reply.and_then(|reply| Ok(reply.recv().map_err(|_| ClientError::Closed)??));
        let ours = match &reply {
            Ok(Reply::Outcome(Outcome::Committed { number, .. })) => Some(*number),
            _ => None,
        };
        let mut before = None;
        self.catch_up(|state, update| {
            if let Update::Committed(record) = update
                && ours == Some(record.number)
            {
                let decided = record
                    .paths
                    .iter()
                    .filter_map(|key| state.decisions.get(key));
                let mut approved_by: BTreeSet<_> = decided.map(|one| one.by.clone()).collect();
                if approved_by.is_empty() {
                    approved_by.insert(record.by.clone());
                }
                before = Some(Before {
                    changes: state.changes.clone(),
                    approved_by,
                });
            }
        });
        let before = before.unwrap_or_else(|| Before {
            changes: self.state.changes.clone(),
            approved_by: BTreeSet::new(),
        });
        (reply, before)
    }

    /// What the server agreed on before it answered lies in the channel by now. `first` sees each
    /// update before the state does.
    fn catch_up(&mut self, mut first: impl FnMut(&SessionState, &Update)) {
        while let Ok(message) = self.client.messages().try_recv() {
            if let ServerMessage::Update(update) = &message {
                if let Update::Noticed(text) = update {
                    self.notices.push(text.clone());
                }
                first(&self.state, update);
            }
            apply(&mut self.state, &message);
        }
    }

    /// Says on standard error what the server remarked on the way.
    pub fn tell_notices(&mut self) -> Result<(), CliError> {
        let mut err = std::io::stderr().lock();
        for text in self.notices.drain(..) {
            writeln!(err, "pvisor-tui: {}", visible(text.as_bytes()))?;
        }
        Ok(())
    }

    /// Waits until the command has ended; false when the connection ended first.
    pub fn await_exit(&mut self) -> bool {
        while self.state.run == Some(RunState::Running) {
            match self.client.messages().recv() {
                Ok(message) => apply(&mut self.state, &message),
                Err(_) => return false,
            }
        }
        true
    }
}

/// Takes a message of the server into the state.
pub fn apply(state: &mut SessionState, message: &ServerMessage) {
    match message {
        ServerMessage::Update(update) => state.apply(update),
        ServerMessage::Snapshot(snapshot) => (**snapshot).clone_into(state),
        _ => {}
    }
}

/// The greeting of a verb that wants no output.
pub fn hello(role: Role) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        role,
        output: false,
        size: None,
        owns_command: false,
    }
}
