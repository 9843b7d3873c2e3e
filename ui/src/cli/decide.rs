//! What `approve`, `reject` and `reset` share: paths or `--all`, the digest that is expected, one
//! request, and what is said of it.

use std::io::Write;
use std::process::ExitCode;

use pvisor::layer::Digest;
use pvisor::protocol::{Reply, Request, Role, Say, Target};

use super::connection::Connection;
use super::context::Context;
use super::error::CliError;
use super::path_args::PathArgs;
use super::report;
use super::targets::{self, Items};

/// The common arguments.
#[derive(Debug, clap::Args)]
pub struct DecideArgs {
    #[command(flatten)]
    pub paths: PathArgs,
    /// Every change of the staged layers other than `home`, ignored ones apart
    #[arg(long)]
    all: bool,
    /// Only when the change still has this digest (`changes --json` tells it)
    #[arg(long, value_name = "DIGEST")]
    expect: Option<String>,
}

/// Sends the decision; `done` is the word for it.
pub fn run(
    args: &DecideArgs,
    say: Say,
    done: &str,
    context: &Context,
) -> Result<ExitCode, CliError> {
    let expect =
        match &args.expect {
            None => None,
            Some(hex) => Some(Digest::parse(hex).ok_or_else(|| {
                CliError::usage("--expect takes a digest of 64 hexadecimal digits")
            })?),
        };
    let (record, paths) = args.paths.resolve_or_all(args.all, context)?;
    if expect.is_some() && paths.len() != 1 {
        return Err(CliError::usage("--expect goes with exactly one path"));
    }
    let mut connection = Connection::open(context, &record, Role::Reviewer)?;
    connection.refresh()?;
    let targets = if args.all {
        vec![Target::All]
    } else {
        targets::resolve(&record, &connection.state, &paths, Items::Allowed)?
    };
    let reply = connection.call(Request::Decide {
        seen: None,
        targets,
        say,
        expect,
    })?;
    let mut out = std::io::stdout().lock();
    if let Reply::Concerned(mut keys) = reply {
        keys.dedup();
        writeln!(out, "{}", report::concerned(done, &keys))?;
    }
    Ok(ExitCode::SUCCESS)
}
