//! `stop`: ends the command of a session.

use std::io::Write;
use std::process::ExitCode;

use pvisor::protocol::{Failure, Request, Role};
use pvisor::session::state::RunState;

use super::connection::Connection;
use super::context::Context;
use super::error::CliError;
use super::session_arg::SessionArg;

/// End a session's command and every process it started
///
/// What it has staged stays. Returns when the command has ended.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    session: SessionArg,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    let record = args.session.find(context)?;
    if record.state != RunState::Running {
        return Err(Failure::NotRunning.into());
    }
    let mut connection = Connection::open(context, &record, Role::Driver)?;
    connection.call(Request::Stop)?;
    if !connection.await_exit() {
        return Err(CliError::failure(
            "the connection to the session server was lost before the command had ended",
        ));
    }
    writeln!(
        std::io::stdout().lock(),
        "stopped session {}",
        record.info.id
    )?;
    Ok(ExitCode::SUCCESS)
}
