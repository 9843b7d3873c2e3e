//! `reject`: must not be committed.

use std::process::ExitCode;

use pvisor::protocol::Say;

use super::context::Context;
use super::decide::{self, DecideArgs};
use super::error::CliError;

/// Reject changes, by file or by item
///
/// The agent's files stay as they are; `revert` takes a change back in the agent's view.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "pvisor-tui reject [S] (PATH[#ITEM[:LINE[-LINE]]]... | --all) [--reason TEXT]"
)]
pub struct Args {
    #[command(flatten)]
    decide: DecideArgs,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    let say = Say::Reject(args.reason.clone());
    decide::run(&args.decide, say, "rejected", context)
}
