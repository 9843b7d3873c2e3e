//! What may happen to a session. Owns the mailbox's message type; every source (clients, agent,
//! watch, worker) speaks it, and only the session thread receives it.

use std::sync::Arc;

use super::asks::Kept;
use super::outbox::Outbox;
use super::worker::JobDone;
use crate::commit::Recovered;
use crate::policy::message::Said;
use crate::protocol::{Hello, Request, Stream};
use crate::sandbox::ExitStatus;
use crate::watch::Hint;

/// Number of a connection, unique within a server's life.
pub type ClientId = u64;

/// Something happened.
pub enum Event {
    /// A client has greeted.
    Joined {
        /// Its number.
        client: ClientId,
        /// User name by its peer credentials.
        user: String,
        /// What it asked for.
        hello: Hello,
        /// Where its messages go.
        outbox: Arc<Outbox>,
    },
    /// A client's connection has ended.
    Left(ClientId),
    /// A slow client's queue has drained: it needs everything anew.
    CaughtUp(ClientId),
    /// A client asked for something.
    Requested {
        /// Who.
        client: ClientId,
        /// The client's own number for the reply.
        id: u64,
        /// What.
        request: Request,
    },
    /// The agent wrote.
    OutputRead(Stream, Vec<u8>),
    /// One of the agent's streams has ended.
    OutputEnded,
    /// The command has ended.
    Exited(ExitStatus),
    /// The uppers hold more than they may.
    StageFull {
        /// Allocated bytes.
        used: u64,
        /// What they may hold.
        limit: u64,
    },
    /// The watch saw something.
    Hinted(Hint),
    /// The worker has finished a job.
    Done(Box<JobDone>),
    /// The worker has settled a commit that was left unfinished.
    Settled(Box<Recovered>),
    /// The worker has something to tell, in a sentence.
    Told(String),
    /// The worker has failed and finishes no job any more.
    WorkerLost,
    /// The gate of the running command has something to say (counts apart, which the session does
    /// not see).
    Gate(Said),
    /// The command has ended so, and what was counted of it is on record.
    Counted(ExitStatus),
    /// The gate is gone.
    GateGone,
    /// An answer was written to its file or taken out of it, or could not be.
    Kept(Box<Kept>),
    /// A signal asks the server to end.
    Terminated,
}
