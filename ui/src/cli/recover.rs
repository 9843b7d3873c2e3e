//! `recover`: settles commits that a crash left unfinished.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use pvisor::commit::{Recovered, Settled};
use pvisor::protocol::{Reply, Request, Role};
use pvisor::session::recover::{self, RecoverError, Settlement};
use pvisor::session::store::{SessionRecord, Store};
use serde::Serialize;

use super::connection::Connection;
use super::context::Context;
use super::error::CliError;
use super::{json, session_arg};

/// Settle commits that a crash left unfinished: each becomes whole, or as if it had never begun
///
/// In every session, or in the one that is named. Harmless when there is none and when repeated.
/// Verbs that write do the same by themselves, in the sessions that share their place.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The session: `last`, its id or its name [default: every session]
    #[arg(value_name = "S", conflicts_with = "fitting")]
    session: Option<OsString>,
    /// The session by the beginning of its id or name
    #[arg(short = 's', value_name = "S", id = "fitting")]
    fitting: Option<OsString>,
    /// As JSON: a list, one element a commit
    #[arg(long)]
    json: bool,
}

/// One settled commit.
#[derive(Debug, Serialize)]
struct Info {
    /// Id of the session.
    session: String,
    /// The commit's number within it.
    commit: u32,
    /// Set when it was the undo of this commit.
    undoes: Option<u32>,
    /// What the host is like now: `before` the commit, or `after` it.
    host: &'static str,
    /// The paths it was about.
    paths: Vec<String>,
    /// Newer saves of somebody else that were left in place, a sentence each.
    kept: Vec<String>,
}

/// Carries it out. Exit 0 when everything is settled, 2 when something could not be.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    let records = match (&args.fitting, &args.session) {
        (Some(typed), _) => vec![session_arg::find(context, typed, true)?],
        (None, Some(typed)) => vec![session_arg::find(context, typed, false)?],
        (None, None) => context.store.list()?,
    };
    let (mut settled, mut failed) = (Vec::new(), Vec::new());
    for record in records {
        match of_session(&record, context) {
            Ok(found) => settled.extend(found.into_iter().map(|one| (record.info.id.clone(), one))),
            Err(error) => failed.push(error),
        }
    }
    if args.json {
        let list: Vec<_> = settled.iter().map(|(id, one)| info(id, one)).collect();
        json::print(&list)?;
    } else {
        let mut out = std::io::stdout().lock();
        for (id, one) in &settled {
            writeln!(out, "session {id}: {}", one.describe())?;
            for kept in &one.kept {
                writeln!(out, "session {id}: {}: {}", kept.key, kept.reason)?;
            }
        }
        if settled.is_empty() && failed.is_empty() {
            writeln!(out, "nothing to recover: no commit is unfinished")?;
        }
    }
    // Each is told; the last one makes the exit status.
    while failed.len() > 1 {
        failed.remove(0).print(&mut std::io::stderr().lock())?;
    }
    match failed.pop() {
        Some(error) => Err(error),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn of_session(record: &SessionRecord, context: &Context) -> Result<Vec<Recovered>, CliError> {
    match settle(record)? {
        Settlement::Nothing => Ok(Vec::new()),
        Settlement::Settled(settled) => Ok(settled),
        Settlement::Served => {
            let mut connection = Connection::open(context, record, Role::Driver)?;
            match connection.call(Request::Recover)? {
                Reply::Recovered(settled) => Ok(settled),
                _ => Err(CliError::failure(
                    "the session server gave no answer to that",
                )),
            }
        }
    }
}

/// Settles what nobody serves; what stands in the way is a failure, whatever the verb.
fn settle(record: &SessionRecord) -> Result<Settlement, CliError> {
    recover::settle(record).map_err(unsettled)
}

fn unsettled(error: RecoverError) -> CliError {
    CliError::failure(error.to_string())
        .hint("mend what stands in the way, then `pvisor-tui recover`")
}

/// Before a verb goes on in a session: what a crash left unfinished there is settled, and said.
pub fn first(record: &SessionRecord) -> Result<(), CliError> {
    if let Settlement::Settled(settled) = settle(record)? {
        let mut err = std::io::stderr().lock();
        for one in settled {
            writeln!(err, "pvisor-tui: {}", one.describe())?;
        }
    }
    Ok(())
}

/// Before a command begins in a workspace: what a crash of any session left unfinished there is
/// settled, and said.
pub fn at(store: &Store, workspace: &Path) -> Result<(), CliError> {
    let told = recover::settle_at(store, &[workspace.to_owned()], None).map_err(unsettled)?;
    let mut err = std::io::stderr().lock();
    for text in told {
        writeln!(err, "pvisor-tui: {text}")?;
    }
    Ok(())
}

fn info(session: &str, one: &Recovered) -> Info {
    Info {
        session: session.to_owned(),
        commit: one.number,
        undoes: one.undoes,
        host: match one.outcome {
            Settled::RolledBack => "before",
            Settled::RolledForward => "after",
        },
        paths: one.paths.iter().map(ToString::to_string).collect(),
        kept: one
            .kept
            .iter()
            .map(|kept| format!("{}: {}", kept.key, kept.reason))
            .collect(),
    }
}
