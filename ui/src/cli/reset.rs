//! `reset`: undecided again.

use std::process::ExitCode;

use pvisor::protocol::Say;

use super::context::Context;
use super::decide::{self, DecideArgs};
use super::error::CliError;

/// Take decisions back, by file or by item
#[derive(Debug, clap::Args)]
#[command(override_usage = "pvisor-tui reset [S] (PATH[#ITEM[:LINE[-LINE]]]... | --all)")]
pub struct Args {
    #[command(flatten)]
    decide: DecideArgs,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    decide::run(&args.decide, Say::Reset, "undecided again:", context)
}
