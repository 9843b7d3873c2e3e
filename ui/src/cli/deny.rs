//! `deny`: no to a question about a path.

use std::process::ExitCode;

use super::answer::AnswerArgs;
use super::context::Context;
use super::error::CliError;

/// Deny what a rule asks about
///
/// The command's operation fails with "permission denied". For longer than once, the answer settles
/// the same question from then on.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    answer: AnswerArgs,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    args.answer.run(false, context)
}
