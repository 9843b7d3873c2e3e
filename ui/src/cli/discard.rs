//! `discard`: throws the staged side away.

use std::io::Write;
use std::process::ExitCode;

use pvisor::protocol::{Request, Role};

use super::connection::Connection;
use super::context::Context;
use super::error::CliError;
use super::session_arg::SessionArg;

/// Throw the staged side of a session away
///
/// The host keeps what was committed, which can no longer be undone then: those commits are named.
/// Refused while the command runs.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    session: SessionArg,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    let record = args.session.find(context)?;
    let mut connection = Connection::open(context, &record, Role::Driver)?;
    let lost = connection.state.lost_undo();
    connection.call(Request::Discard)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "discarded session {}", record.info.id)?;
    if let Some(lost) = lost {
        writeln!(out, "{lost}")?;
    }
    Ok(ExitCode::SUCCESS)
}
