//! `review`: the screen on a session, whether its command runs or has ended.

use std::process::ExitCode;

use super::context::Context;
use super::error::CliError;
use super::screen::{self, RoleArg};
use super::session_arg::SessionArg;

/// Look at a session's changes and decide, on the screen
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
