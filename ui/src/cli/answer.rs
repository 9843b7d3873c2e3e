//! What `allow` and `deny` share: which question, how long the answer holds, what it is about.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::ValueEnum;
use pvisor::policy::{Pattern, Scope};
use pvisor::protocol::{Failure, Request, Role};
use pvisor::session::state::RunState;

use super::asks;
use super::connection::Connection;
use super::context::Context;
use super::error::CliError;
use super::session_arg;

/// Which question, and how far the answer goes.
#[derive(Debug, clap::Args)]
pub struct AnswerArgs {
    /// The session (`last`, a full id or an exact name; default: last), then the question's number
    /// as `status` shows it
    #[arg(value_name = "S|ASK-ID", required = true, num_args = 1..=2)]
    arguments: Vec<OsString>,
    /// The session by the beginning of its id or name
    #[arg(short = 's', value_name = "S")]
    session: Option<OsString>,
    /// How long the answer holds
    #[arg(long = "for", value_enum, default_value = "once", value_name = "SCOPE")]
    scope: ScopeArg,
    /// Everything in the path's directory (not with `once`)
    #[arg(long, conflicts_with = "suffix")]
    dir: bool,
    /// Every name with the same suffix (not with `once`)
    #[arg(long)]
    suffix: bool,
}

/// `--for`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ScopeArg {
    /// This one operation
    Once,
    /// This session
    Session,
    /// Every session in this workspace
    Workspace,
    /// Every session
    User,
}

impl AnswerArgs {
    /// Answers.
    pub fn run(&self, allow: bool, context: &Context) -> Result<ExitCode, CliError> {
        let scope = match self.scope {
            ScopeArg::Once => Scope::Once,
            ScopeArg::Session => Scope::Session,
            ScopeArg::Workspace => Scope::Workspace,
            ScopeArg::User => Scope::User,
        };
        if scope == Scope::Once && (self.dir || self.suffix) {
            return Err(CliError::usage(
                "an answer for once is about the one operation that waits",
            )
            .hint("`--for session`, `workspace` or `user` takes --dir and --suffix"));
        }
        let pattern = match (self.dir, self.suffix) {
            (true, _) => Pattern::Directory,
            (_, true) => Pattern::Suffix,
            _ => Pattern::File,
        };
        let (named, number) = match self.arguments.as_slice() {
            [number] => (None, number),
            [session, number] => (Some(session), number),
            _ => return Err(CliError::usage("a question's number is needed")),
        };
        let ask: u64 = number
            .to_str()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| {
                let text = number.to_string_lossy();
                CliError::usage(format!("{text} is no question's number"))
                    .hint("`pvisor-tui status` shows the questions that wait")
            })?;
        let record = match (&self.session, named) {
            (Some(_), Some(_)) => {
                return Err(CliError::usage("a session is named once: -s S, or S"));
            }
            (Some(typed), None) => session_arg::find(context, typed, true)?,
            (None, Some(typed)) => session_arg::find(context, typed, false)?,
            (None, None) => context.store.last()?,
        };
        if record.state != RunState::Running {
            return Err(Failure::NotRunning.into());
        }
        let mut connection = Connection::open(context, &record, Role::Driver)?;
        let asked = connection.state.asks.get(&ask).cloned();
        connection.call(Request::Answer {
            ask,
            allow,
            scope,
            pattern,
        })?;
        let done = if allow { "allowed" } else { "denied" };
        let what = asked.map_or_else(String::new, |ask| {
            format!(": {}", asks::sentence(&connection.state, &ask))
        });
        writeln!(std::io::stdout().lock(), "{done}{what}")?;
        Ok(ExitCode::SUCCESS)
    }
}
