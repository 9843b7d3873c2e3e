//! What a client and a session server say to each other. Owns the messages and their version;
//! no I/O (frames are read and written by [`codec`]).
//!
//! Every type here must keep to what both JSON and postcard carry: no skipped, flattened or
//! internally tagged fields.

pub mod codec;

use serde::{Deserialize, Serialize};

use crate::LayerPath;
use crate::commit::{Outcome, Recovered};
use crate::diff::ItemRef;
use crate::layer::{AccessError, Digest, Node};
use crate::policy::{Answer, Observations, Pattern, Scope};
use crate::sandbox::spec::TerminalSize;
use crate::session::state::{SessionState, Update};

/// Version of these messages; part of the socket's path, so that versions never meet by accident.
pub const PROTOCOL_VERSION: u32 = 4;

/// What a client may do. Enforced by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Looks.
    Observer,
    /// Decides as well.
    Reviewer,
    /// Types into the agent and commits as well.
    Driver,
}

/// First message of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Must equal [`PROTOCOL_VERSION`].
    pub version: u32,
    /// Wanted role.
    pub role: Role,
    /// Whether the agent's output is wanted.
    pub output: bool,
    /// Size of the agent's pane; the terminal follows it when this client drives.
    pub size: Option<TerminalSize>,
    /// The command is this client's: its hang-up ends it, unless it said [`Request::Detach`] first.
    pub owns_command: bool,
}

/// First message of the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// Everything agreed so far.
    pub state: SessionState,
    /// Bytes that paint the agent's terminal as it stands on a fresh emulator of this size;
    /// empty when no output was asked for or the command has pipes.
    #[serde(with = "crate::path::exact_bytes")]
    pub screen: Vec<u8>,
    /// Size of the agent's terminal.
    pub size: TerminalSize,
    /// The granted role.
    pub role: Role,
}

/// What of the change set is meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// Every change of the staged layers other than `home`, ignored ones apart.
    All,
    /// A change, or every change below a directory; a rename by either name.
    Path(LayerPath),
    /// Items of one change.
    Items(LayerPath, Vec<ItemRef>),
}

/// What a decision says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Say {
    /// Approve.
    Approve,
    /// Reject, with a reason.
    Reject(Option<String>),
    /// Back to undecided.
    Reset,
}

/// What somebody said, in the past tense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// Approved.
    Approved,
    /// Rejected.
    Rejected,
    /// Put back to undecided.
    Undecided,
}

impl Said {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Said::Approved => "approved",
            Said::Rejected => "rejected",
            Said::Undecided => "put back to undecided",
        }
    }
}

impl Say {
    /// What was said once it was.
    pub fn said(&self) -> Said {
        match self {
            Say::Approve => Said::Approved,
            Say::Reject(_) => Said::Rejected,
            Say::Reset => Said::Undecided,
        }
    }
}

/// An action that left the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Bytes for the agent's terminal or standard input. No reply.
    Input(#[serde(with = "crate::path::exact_bytes")] Vec<u8>),
    /// The agent's standard input has ended (pipes only). No reply.
    InputEnded,
    /// The size of the agent's pane. No reply.
    Resize(TerminalSize),
    /// Rescan now; the reply comes after the change set is up to date.
    Rescan,
    /// Decide. `expect` refuses the decision when a change's digest is another one.
    Decide {
        /// What is decided on; all or nothing.
        targets: Vec<Target>,
        /// What is said.
        say: Say,
        /// The digest the person was shown, when a single change is meant.
        expect: Option<Digest>,
        /// [`SessionState::said`] as the person was shown it: what somebody else has decided since
        /// is not overruled. `None` asks for no such care.
        seen: Option<u64>,
    },
    /// Take changes back in the agent's view.
    Revert(Vec<Target>),
    /// Settle a conflict in the agent's view: the result is the change from then on, to be decided
    /// on like any other. The host is not written.
    Resolve {
        /// The change.
        key: LayerPath,
        /// The digest the person was shown.
        expect: Digest,
        /// How.
        how: Resolution,
    },
    /// What [`Resolution::Edited`] begins with.
    Marked(LayerPath),
    /// Commit.
    Commit {
        /// Approve everything not rejected and not ignored first.
        all: bool,
        /// With `all`: ignored changes too.
        ignored: bool,
        /// Where the host has changed a file as well: write the merge, if it is clean.
        merge: bool,
        /// Plan and check only.
        dry_run: bool,
        /// For how many commits, this one included, undo is kept; `None` is the session's setting.
        keep_undo: Option<u32>,
    },
    /// Undo the last commit (or the last undo).
    Undo,
    /// Both sides of a change, for a diff.
    Contents(LayerPath),
    /// What a commit of the whole change with `merge` would make of the host's file.
    Merged(LayerPath),
    /// End the command.
    Stop,
    /// Throw the staged side away; refused while the command runs.
    Discard,
    /// End the server if no command runs (before another takes the session over).
    Retire,
    /// Answer a question about a path.
    Answer {
        /// Its number.
        ask: u64,
        /// What is said.
        allow: bool,
        /// How long it holds.
        scope: Scope,
        /// What it is about when it holds for more than once.
        pattern: Pattern,
    },
    /// A remembered answer no longer holds.
    Forget(Answer),
    /// The observation log, as far as a screen wants it.
    Observed,
    /// The client is about to leave on purpose: its end is no hang-up, the command goes on. No
    /// reply.
    Detach,
    /// Settle a commit that an error or a crash left unfinished.
    Recover,
    /// A signal to the client (its number: INT, TERM or HUP) is passed on to the command's processes;
    /// what has not ended after the usual grace is ended.
    PassOn(i32),
}

/// What is made of a file that host and agent both changed. Where their edits do not meet both
/// stay, whatever is chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resolution {
    /// The merge, if it is clean.
    Merge,
    /// The host's edits where edits meet.
    Ours,
    /// The agent's edits where edits meet.
    Theirs,
    /// Both between markers where edits meet. While they are there the file is not committed.
    Markers,
    /// What a person made of both.
    Edited {
        /// The file.
        #[serde(with = "crate::path::exact_bytes")]
        bytes: Vec<u8>,
        /// The host's content that went into it.
        host: Digest,
    },
}

/// A merge with markers where edits meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkedFile {
    /// Digest of the change this belongs to.
    pub digest: Digest,
    /// Digest of the host's content that went into it.
    pub host: Digest,
    /// The text.
    #[serde(with = "crate::path::exact_bytes")]
    pub bytes: Vec<u8>,
}

/// Both sides of a change. Absent sides are `None`; a link's bytes are its target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Digest of the change these belong to.
    pub digest: Digest,
    /// The baseline's bytes.
    #[serde(with = "crate::path::optional_bytes")]
    pub before: Option<Vec<u8>>,
    /// The agent's bytes.
    #[serde(with = "crate::path::optional_bytes")]
    pub after: Option<Vec<u8>>,
    /// A side is larger than the server sends; both are `None` then.
    pub too_large: bool,
}

/// A file of which host and agent changed something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedFile {
    /// Digest of the change this belongs to.
    pub digest: Digest,
    /// The host's file now.
    pub host: Node,
    /// Its bytes.
    #[serde(with = "crate::path::exact_bytes")]
    pub host_bytes: Vec<u8>,
    /// What would be written.
    pub node: Node,
    /// Its bytes.
    #[serde(with = "crate::path::exact_bytes")]
    pub bytes: Vec<u8>,
}

/// Answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Done.
    Done,
    /// Done; so many changes were concerned.
    Concerned(Vec<LayerPath>),
    /// How a commit, a dry run or an undo ended.
    Outcome(Outcome),
    /// Answer to [`Request::Contents`].
    Contents(Contents),
    /// Answer to [`Request::Merged`]: the merge, or why there is none.
    Merged(Box<Result<MergedFile, String>>),
    /// Answer to [`Request::Marked`]: the text, or why there is none.
    Marked(Box<Result<MarkedFile, String>>),
    /// Answer to [`Request::Observed`]; `None` when nothing is counted in this session.
    Observed(Option<Box<Observations>>),
    /// Answer to [`Request::Recover`]: what was settled.
    Recovered(Vec<Recovered>),
}

/// A request that was not carried out, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Failure {
    /// The client's role does not allow it.
    #[error("this needs the role {0:?}")]
    Role(Role),
    /// A path names no change.
    #[error("{0} is not in the change set")]
    UnknownPath(LayerPath),
    /// An item is not among the change's items.
    #[error("{0} has no item {1}")]
    UnknownItem(LayerPath, String),
    /// What is there now is not what the person was shown.
    #[error("{path} has changed since it was shown; it is {now} now")]
    Changed {
        /// Where.
        path: LayerPath,
        /// Its digest now.
        now: Digest,
    },
    /// Somebody else has decided otherwise, and the person could not know when they decided.
    #[error("{path} was {} by {by} meanwhile; look at it again", said.name())]
    Overtaken {
        /// Where.
        path: LayerPath,
        /// Who (a user name).
        by: String,
        /// What they said of it.
        said: Said,
    },
    /// No question of this number waits.
    #[error("no question has the number {0}: it was answered, or never asked")]
    UnknownAsk(u64),
    /// The command is running.
    #[error("the command is still running")]
    Running,
    /// No command is running.
    #[error("no command is running")]
    NotRunning,
    /// The session was discarded.
    #[error("the session was discarded; nothing is staged any more")]
    Discarded,
    /// Mode `host` stages nothing.
    #[error("this session ran in mode host: its changes went to the host directly")]
    NothingStaged,
    /// The stage could not be read.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The versions differ.
    #[error("the server speaks version {server} of the protocol, this client {client}")]
    Version {
        /// The server's.
        server: u32,
        /// The client's.
        client: u32,
    },
    /// Anything else, in one sentence.
    #[error("{0}")]
    Other(String),
}

/// Which stream some output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// The terminal, or standard output.
    Out,
    /// Standard error (pipes only).
    Err,
}

/// From a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientMessage {
    /// First message.
    Hello(Hello),
    /// `id` is the client's own; the reply carries it back.
    Request(u64, Request),
}

/// From the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ServerMessage {
    /// Answer to [`Hello`].
    Welcome(Box<Welcome>),
    /// Hello was refused; the connection ends.
    Refused(Failure),
    /// An agreed fact.
    Update(Update),
    /// The client was too slow for single updates: everything anew.
    Snapshot(Box<SessionState>),
    /// Bytes the agent wrote.
    Output(Stream, #[serde(with = "crate::path::exact_bytes")] Vec<u8>),
    /// The agent's terminal has this size now.
    Resized(TerminalSize),
    /// Answer to a request.
    Reply(u64, Result<Reply, Failure>),
}
