//! `revert`: takes changes back in the agent's view.

use std::io::Write;
use std::process::ExitCode;

use pvisor::protocol::{Reply, Request, Role, Target};

use super::connection::Connection;
use super::context::Context;
use super::error::CliError;
use super::path_args::PathArgs;
use super::report;
use super::targets::{self, Items};

/// Take changes back in the agent's view
///
/// The agent sees the host's version again, while it runs too. The host is not touched.
#[derive(Debug, clap::Args)]
#[command(override_usage = "pvisor-tui revert [S] (PATH... | --all)")]
pub struct Args {
    #[command(flatten)]
    paths: PathArgs,
    /// Every change of the staged layers other than `home`, ignored ones apart
    #[arg(long)]
    all: bool,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    let (record, paths) = args.paths.resolve_or_all(args.all, context)?;
    let mut connection = Connection::open(context, &record, Role::Driver)?;
    connection.refresh()?;
    let targets = if args.all {
        vec![Target::All]
    } else {
        targets::resolve(&record, &connection.state, &paths, Items::Refused)?
    };
    let reply = connection.call(Request::Revert(targets))?;
    let mut out = std::io::stdout().lock();
    match reply {
        Reply::Concerned(keys) => writeln!(out, "{}", report::concerned("reverted", &keys))?,
        _ => writeln!(out, "reverted")?,
    }
    Ok(ExitCode::SUCCESS)
}
