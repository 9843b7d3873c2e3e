//! `attach`: the screen on a session whose command may still run.

use std::process::ExitCode;

use super::context::Context;
use super::error::CliError;
use super::screen::{self, RoleArg};
use super::session_arg::SessionArg;

/// Come back to a session that runs in the background
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    session: SessionArg,
    #[command(flatten)]
    role: RoleArg,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    screen::open(&args.session.find(context)?, args.role.role(), context)
}
