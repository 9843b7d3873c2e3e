//! `undo`: takes the last commit back.

use std::io::Write;
use std::process::ExitCode;

use pvisor::commit::Outcome;
use pvisor::protocol::{Request, Role};

use super::commit;
use super::connection::Connection;
use super::context::Context;
use super::error::CliError;
use super::git_commit;
use super::session_arg::SessionArg;

/// Take the last commit back
///
/// A commit of what was there before, under the same rules: it refuses to overwrite what somebody
/// else wrote meanwhile.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// As JSON, in the form of `commit --json`
    #[arg(long)]
    json: bool,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    let record = args.session.find(context)?;
    let mut connection = Connection::open(context, &record, Role::Driver)?;
    let outcome = commit::outcome(connection.ask(Request::Undo));
    connection.tell_notices()?;
    let outcome = outcome?;
    let code = commit::conclude(&outcome, args.json, true)?;
    if let Outcome::Committed { number, .. } = outcome {
        let commits = &connection.state.commits;
        let undone = commits.iter().find(|c| c.number == number);
        let undone = undone.and_then(|commit| commit.undoes);
        if let Some(made) = undone.and_then(|n| git_commit::noted(&record.info.dir, n)) {
            let short = &made[..12];
            writeln!(
                std::io::stderr().lock(),
                "note: git keeps its commit {short} of what was undone; `git revert {short}` takes it back there"
            )?;
        }
    }
    Ok(code)
}
