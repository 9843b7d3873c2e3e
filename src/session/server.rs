//! Starting and reaching a session's server, from the command line's process. Owns the hand-over:
//! what a new session is made of, the fork, and the word whether it came up.

use std::fs;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::client::{Client, ClientError};
use super::keep::{self, Seed};
use super::layers;
use super::records::Records;
use super::serve::{self, Command, Server, SessionLock};
use super::socket;
use super::state::SessionInfo;
use super::store::{SessionRecord, Store, StoreError};
use crate::change::Tracker;
use crate::layer::{StageAccess, Timestamp};
use crate::policy::Origin;
use crate::protocol::{Hello, Request, Role, Welcome};
use crate::reserve::is_full;
use crate::sandbox::detach::detach;
use crate::sandbox::spec::MountSpec;
use crate::sandbox::{self, Mode, SandboxError, SandboxSpec, Submounts};
use crate::text::visible_path;

/// How long another server may take to let a session go.
const HANDOVER: Duration = Duration::from_secs(10);

/// A command to run in a new session or in one that has ended.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// Session to go on with; `None` makes a new one.
    pub resume: Option<SessionRecord>,
    /// A person's name for a new session.
    pub name: Option<String>,
    /// Mode of a new session.
    pub mode: Mode,
    /// Workspace root, canonical.
    pub workspace: PathBuf,
    /// Caller's home, canonical.
    pub home: PathBuf,
    /// Mounts asked for; [`MountAccess::Stage`] ones become layers.
    pub mounts: Vec<MountSpec>,
    /// What directories that are kept begin with.
    pub seeds: Vec<Seed>,
    /// What becomes of mounts inside the staged directories of a new session.
    pub submounts: Submounts,
    /// What the sandbox needs besides what the session decides itself (`layers`, `private` and the
    /// session's own hides are filled in).
    pub spec: SandboxSpec,
    /// What the configuration says to the server.
    pub settings: crate::config::SessionSettings,
}

/// Why a session could not be started or reached.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The sandbox could not be made; nothing ran.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The store could not be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server could not be reached.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The session's command is still running.
    #[error("the command of session {0} is still running; attach to it, or stop it first")]
    Running(String),
    /// The disk that holds the records is full, in one sentence.
    #[error("{0}")]
    NoRoom(String),
    /// Anything else, in one sentence.
    #[error("{0}")]
    Other(String),
}

impl StartError {
    /// As [`StartError::other`], of a file; a full disk is told apart.
    pub(super) fn file(doing: &str, path: &Path, error: std::io::Error) -> Self {
        let full = is_full(&error);
        match Self::other(doing, path, error) {
            StartError::Other(text) if full => StartError::NoRoom(text),
            other => other,
        }
    }

    pub(super) fn other(doing: &str, path: &Path, error: impl std::fmt::Display) -> Self {
        StartError::Other(format!("{doing} {}: {error}", visible_path(path)))
    }
}

/// The server's first and only word on the hand-over pipe.
#[derive(Serialize, Deserialize)]
enum Word {
    /// It listens.
    Up,
    /// Another server holds the session.
    Taken,
    /// The sandbox could not be made.
    NoSandbox {
        doing: String,
        cause: String,
        hint: Option<String>,
    },
    /// The disk that holds the records is full.
    NoRoom(String),
    /// Anything else.
    Failed(String),
}

/// Starts the detached server of a new (or resumed) session, runs the command there and connects.
/// **Must be called while the process has one thread**: the server is a fork that goes on.
pub fn run(
    store: &Store,
    request: RunRequest,
    hello: Hello,
) -> Result<(Client, Welcome), StartError> {
    let fresh = request.resume.is_none();
    let info = match &request.resume {
        Some(record) => {
            release(store, record)?;
            record.info.clone()
        }
        None => new_session(store, &request)?,
    };
    let (id, dir) = (info.id.clone(), info.dir.clone());
    let mut spec = request.spec;
    let started = keep::open(store.state_dir(), &mut spec.mounts, &request.seeds)
        .map_err(|error| StartError::Other(error.to_string()))
        .and_then(|()| prepare(store, &info, &mut spec))
        .and_then(|()| start(store, info, Some(spec), hello.owns_command))
        .and_then(came_up);
    if let Err(error) = started {
        if fresh {
            // Nothing ran: there is nothing to review, and a list of husks helps nobody.
            let _ = crate::layer::remove::remove_tree(&dir);
        }
        return Err(error);
    }
    Ok(Client::connect(&store.socket(&id), hello)?)
}

/// Connects to a session's server, starting one (without a command) when none runs.
/// **Must be called while the process has one thread.**
pub fn attach(
    store: &Store,
    session: &SessionRecord,
    hello: Hello,
) -> Result<(Client, Welcome), StartError> {
    let deadline = Instant::now() + HANDOVER;
    loop {
        // A server that is about to end may still accept, and then say nothing.
        match Client::connect(&store.socket(&session.info.id), hello.clone()) {
            Ok(connected) => return Ok(connected),
            Err(ClientError::Failed(failure)) => return Err(ClientError::Failed(failure).into()),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => {}
        }
        match start(store, session.info.clone(), None, false)? {
            Word::Taken => std::thread::sleep(Duration::from_millis(10)),
            word => came_up(word)?,
        }
    }
}

fn came_up(word: Word) -> Result<(), StartError> {
    match word {
        Word::Up => Ok(()),
        Word::Taken => Err(StartError::Other("another server holds the session".into())),
        Word::NoSandbox { doing, cause, hint } => {
            Err(SandboxError::Setup { doing, cause, hint }.into())
        }
        Word::NoRoom(cause) => Err(StartError::NoRoom(cause)),
        Word::Failed(cause) => Err(StartError::Other(cause)),
    }
}

/// Asks an idle server to let its session go, so that another may run a command in it.
pub(super) fn release(store: &Store, record: &SessionRecord) -> Result<(), StartError> {
    let hello = Hello {
        version: crate::protocol::PROTOCOL_VERSION,
        role: Role::Driver,
        output: false,
        size: None,
        owns_command: false,
    };
    let socket = store.socket(&record.info.id);
    if let Ok((client, _)) = Client::connect(&socket, hello) {
        let running = crate::protocol::Failure::Running;
        if matches!(client.call(Request::Retire), Err(ClientError::Failed(f)) if f == running) {
            return Err(StartError::Running(record.info.id.clone()));
        }
    }
    let deadline = Instant::now() + HANDOVER;
    loop {
        match SessionLock::take(&record.info.dir) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) if Instant::now() > deadline => {
                return Err(StartError::Running(record.info.id.clone()));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => return Err(StartError::other("locking", &record.info.dir, error)),
        }
    }
}

/// Forks the server and waits for its word. `owned`: the command is its starter's, and ends if
/// that never connects.
fn start(
    store: &Store,
    info: SessionInfo,
    spec: Option<SandboxSpec>,
    owned: bool,
) -> Result<Word, StartError> {
    let (ours, theirs) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)
        .map_err(|e| StartError::Other(format!("making a pipe: {e}")))?;
    let store = store.clone();
    detach(theirs, move |report| {
        daemon(store, info, spec, owned, report)
    })
    .map_err(|e| StartError::Other(format!("starting the session server: {e}")))?;
    let mut word = Vec::new();
    File::from(ours)
        .read_to_end(&mut word)
        .map_err(|e| StartError::Other(format!("waiting for the session server: {e}")))?;
    serde_json::from_slice(&word).map_err(|_| {
        StartError::Other("the session server has ended before it was ready; see its log".into())
    })
}

/// The server's process.
fn daemon(
    store: Store,
    info: SessionInfo,
    spec: Option<SandboxSpec>,
    owned: bool,
    report: OwnedFd,
) -> i32 {
    let mut report = File::from(report);
    let dir = info.dir.clone();
    let log = dir.join("server.log");
    let socket = store.new_socket(&info.id);
    // First of all: what is forked from here on must not hold the caller's terminal open.
    if let Err(error) = serve::detach_streams(&log) {
        say(
            &mut report,
            &Word::Failed(format!("opening {}: {error}", visible_path(&log))),
        );
        return 1;
    }
    match make(store, info, spec) {
        Ok((server, command, access)) => {
            say(&mut report, &Word::Up);
            drop(report);
            let served = server.serve(command, owned, access);
            let _ = fs::remove_file(socket);
            if let Err(error) = served {
                tracing::error!(%error, session = %visible_path(&dir), "the session server has failed");
                return 1;
            }
            0
        }
        Err(word) => {
            say(&mut report, &word);
            1
        }
    }
}

fn say(report: &mut File, word: &Word) {
    if let Ok(bytes) = serde_json::to_vec(word) {
        let _ = report.write_all(&bytes);
    }
}

/// A server, its command and its door to the uppers.
type Made = (Server, Option<Command>, Option<Arc<dyn StageAccess>>);

/// Everything that may fail before the server listens. It forks before it starts threads.
fn make(store: Store, info: SessionInfo, spec: Option<SandboxSpec>) -> Result<Made, Word> {
    let failed = |doing: &str, path: &Path, error: &dyn std::fmt::Display| {
        Word::Failed(format!("{doing} {}: {error}", visible_path(path)))
    };
    let lock = SessionLock::take(&info.dir)
        .map_err(|e| failed("locking", &info.dir, &e))?
        .ok_or(Word::Taken)?;
    let socket = store.new_socket(&info.id);
    let listener = socket::bind(&socket).map_err(|e| failed("listening on", &socket, &e))?;
    store
        .announce_socket(&info.id, &socket)
        .inspect_err(|_| drop(fs::remove_file(&socket)))
        .map_err(|error| match &error {
            StoreError::File { source, .. } if is_full(source) => Word::NoRoom(error.to_string()),
            _ => Word::Failed(error.to_string()),
        })?;
    let no_sandbox = |error: SandboxError| {
        let SandboxError::Setup { doing, cause, hint } = error;
        let _ = fs::remove_file(&socket);
        Word::NoSandbox { doing, cause, hint }
    };
    let dir = info.dir.clone();
    let (mut starting, mut access) = (None, None);
    if let Some(spec) = &spec
        && !spec.layers.is_empty()
        && info.dir.join("journal.jsonl").exists()
    {
        seal(&info).map_err(|e| Word::Failed(format!("preparing the layers: {e}")))?;
    }
    let stdio = spec.as_ref().map(|spec| spec.stdio);
    let is_staged = info.mode == Mode::Staged
        && (spec.is_some() || info.layers.iter().all(|l| l.upper().is_dir()));
    // Before the command runs, which it does as soon as its sandbox stands: what a crash left
    // unfinished on the host is settled by then, and what the host has is on record.
    let records = Records::open(&info, is_staged, stdio)
        .inspect_err(|_| drop(fs::remove_file(&socket)))
        .map_err(
            |error| match failed("opening the session in", &dir, &error) {
                Word::Failed(text) if is_full(&error) => Word::NoRoom(text),
                word => word,
            },
        )?;
    match spec {
        Some(spec) => {
            let words = spec
                .command
                .iter()
                .map(|w| w.to_string_lossy().into_owned())
                .collect();
            let mut spec = spec;
            // What a person said earlier in this session holds for its next command too.
            let said = records.state.answers.iter();
            let said = said.filter(|answer| answer.origin == Origin::Session);
            spec.policy.answers.extend(said.cloned());
            let sandbox = sandbox::begin(&spec).map_err(&no_sandbox)?;
            starting = Some((sandbox, words, spec.stdio, spec.policy));
        }
        None if is_staged => {
            access = Some(sandbox::open_unmounted(&info.layers).map_err(&no_sandbox)?);
        }
        None => {}
    }
    // While the sandbox is made.
    let server = Server::open(info, store, lock, listener, records, is_staged)
        .inspect_err(|_| drop(fs::remove_file(&socket)))
        .map_err(|e| failed("opening the session in", &dir, &e))?;
    let command = match starting {
        Some((sandbox, words, stdio, policy)) => {
            let running = sandbox.running().map_err(&no_sandbox)?;
            Some((running, words, stdio, policy))
        }
        None => None,
    };
    Ok((server, command, access))
}

/// Before the layers of an ended command are mounted again: what it left must be what is seen. The
/// helper that reads them is gone again before the next command's begins.
fn seal(info: &SessionInfo) -> Result<(), Box<dyn std::error::Error>> {
    let access = sandbox::open_unmounted(&info.layers)?;
    Tracker::open(&info.layers)?.seal(&*access)?;
    Ok(())
}

/// Makes a new session's directory and description.
fn new_session(store: &Store, request: &RunRequest) -> Result<SessionInfo, StartError> {
    let now = Timestamp::now();
    let (id, dir) = store.create()?;
    let suffix = id.rsplit('-').next().unwrap_or(&id);
    let program = request
        .spec
        .command
        .first()
        .map_or_else(String::new, |program| {
            let program = Path::new(program)
                .file_name()
                .unwrap_or(program.as_os_str());
            program.to_string_lossy().into_owned()
        });
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective())
        .ok()
        .flatten();
    Ok(SessionInfo {
        layers: match request.mode {
            Mode::Staged => layers::make(&dir, request).inspect_err(|_| {
                // Nothing ran: there is nothing to review.
                let _ = crate::layer::remove::remove_tree(&dir);
            })?,
            Mode::Host => Vec::new(),
        },
        name: request
            .name
            .clone()
            .unwrap_or_else(|| format!("{program}-{suffix}")),
        user: user.map_or_else(String::new, |u| u.name),
        mode: request.mode,
        command: request
            .spec
            .command
            .iter()
            .map(|w| w.to_string_lossy().into_owned())
            .collect(),
        workspace: request.workspace.clone(),
        started: now,
        settings: request.settings,
        id,
        dir,
    })
}

/// Fills in what the session decides about its sandbox.
fn prepare(store: &Store, info: &SessionInfo, spec: &mut SandboxSpec) -> Result<(), StartError> {
    spec.mode = info.mode;
    spec.layers.clone_from(&info.layers);
    spec.private = info.dir.join("private");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&spec.private)
        .map_err(|e| StartError::file("making", &spec.private, e))?;
    spec.hide
        .extend([store.state_dir().to_owned(), store.runtime_dir().to_owned()]);
    Ok(())
}
