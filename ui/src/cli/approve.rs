//! `approve`: may be committed.

use std::process::ExitCode;

use pvisor::protocol::Say;

use super::context::Context;
use super::decide::{self, DecideArgs};
use super::error::CliError;

/// Approve changes, by file or by item
///
/// An approval is bound to the content of this moment: when the agent changes it again, it is
/// undecided again. Nothing is written to the host before `commit`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "pvisor-tui approve [S] (PATH[#ITEM[:LINE[-LINE]]]... | --all)")]
pub struct Args {
    #[command(flatten)]
    decide: DecideArgs,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    decide::run(&args.decide, Say::Approve, "approved", context)
}
