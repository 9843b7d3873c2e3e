//! The command line: one file per verb, each with its arguments and what it does. Owns parsing,
//! text and JSON output, exit statuses; decides nothing itself, every decision is a request to the
//! session's server.
//!
//! A verb that reaches a server does so before it starts a thread: the server is a fork of this
//! process.

mod address;
mod allow;
mod answer;
mod approve;
mod argv;
mod asks;
mod attach;
mod changes;
mod commit;
mod completions;
mod config;
mod connection;
mod context;
mod decide;
mod deny;
mod diff;
mod discard;
mod doctor;
mod editor;
mod error;
#[cfg(test)]
mod fixture;
mod git_commit;
mod headless;
pub mod json;
mod list;
mod log;
mod observed;
mod output;
mod path_args;
mod preset;
mod prune;
mod recover;
mod refuse;
mod reject;
mod report;
mod reset;
mod resolve;
mod revert;
mod review;
mod run;
mod screen;
mod session_arg;
mod start;
mod status;
mod stop;
mod table;
mod targets;
mod themes;
mod trust;
mod undo;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

pub use context::Context;
pub use error::CliError;

/// Let a coding agent work on staged layers, watch what it changes, and commit what you approve.
#[derive(Debug, Parser)]
#[command(
    name = "pvisor-tui",
    version,
    args_override_self = false,
    after_help = "`run` may be left out: `pvisor-tui -- COMMAND` stages the current directory.\n\
                  Without arguments: the sessions there are."
)]
pub struct Cli {
    /// Where sessions are kept [default: $XDG_STATE_HOME/pvisor-tui]
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(Box<run::Args>),
    List(list::Args),
    Status(status::Args),
    Changes(changes::Args),
    Diff(diff::Args),
    Output(output::Args),
    Approve(approve::Args),
    Reject(reject::Args),
    Reset(reset::Args),
    Revert(revert::Args),
    Resolve(resolve::Args),
    Commit(commit::Args),
    Undo(undo::Args),
    Discard(discard::Args),
    Prune(prune::Args),
    Recover(recover::Args),
    Allow(allow::Args),
    Deny(deny::Args),
    Review(review::Args),
    Attach(attach::Args),
    Stop(stop::Args),
    Doctor(doctor::Args),
    Config(config::Args),
    Trust(trust::Args),
    Themes(themes::Args),
    Completions(completions::Args),
}

/// The clap command, for completions and the reference of its help.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses, runs the verb, prints what went wrong. `arguments` begin with the program's name.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(argv::with_verb(arguments)) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    match run_verb(cli) {
        Ok(code) => code,
        Err(error) => {
            // Nobody may be left to read it; the exit status still tells.
            let _ = error.print(&mut std::io::stderr().lock());
            ExitCode::from(error.status())
        }
    }
}

fn run_verb(cli: Cli) -> Result<ExitCode, CliError> {
    let context = &Context::of_process(cli.state_dir.as_deref())?;
    log::start(context);
    match cli.verb {
        None => start::run(context),
        Some(Verb::Run(args)) => run::run(*args, context),
        Some(Verb::List(args)) => list::run(&args, context),
        Some(Verb::Status(args)) => status::run(&args, context),
        Some(Verb::Changes(args)) => changes::run(&args, context),
        Some(Verb::Diff(args)) => diff::run(&args, context),
        Some(Verb::Output(args)) => output::run(&args, context),
        Some(Verb::Approve(args)) => approve::run(&args, context),
        Some(Verb::Reject(args)) => reject::run(&args, context),
        Some(Verb::Reset(args)) => reset::run(&args, context),
        Some(Verb::Revert(args)) => revert::run(&args, context),
        Some(Verb::Resolve(args)) => resolve::run(&args, context),
        Some(Verb::Commit(args)) => commit::run(&args, context),
        Some(Verb::Undo(args)) => undo::run(&args, context),
        Some(Verb::Discard(args)) => discard::run(&args, context),
        Some(Verb::Prune(args)) => prune::run(&args, context),
        Some(Verb::Recover(args)) => recover::run(&args, context),
        Some(Verb::Allow(args)) => allow::run(&args, context),
        Some(Verb::Deny(args)) => deny::run(&args, context),
        Some(Verb::Review(args)) => review::run(&args, context),
        Some(Verb::Attach(args)) => attach::run(&args, context),
        Some(Verb::Stop(args)) => stop::run(&args, context),
        Some(Verb::Doctor(args)) => doctor::run(&args, context),
        Some(Verb::Config(args)) => config::run(&args, context),
        Some(Verb::Trust(args)) => trust::run(&args, context),
        Some(Verb::Themes(args)) => themes::run(&args, context),
        Some(Verb::Completions(args)) => completions::run(&args),
    }
}

/// Help and version go out as they are; a mistake is echoed sanitised, because an argument may be
/// a name that an agent made.
fn refuse(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        let text = error.render().to_string();
        let mut out = std::io::stderr().lock();
        for line in text.lines() {
            let _ = writeln!(out, "{}", pvisor::text::visible(line.as_bytes()));
        }
        if error.kind() == clap::error::ErrorKind::InvalidSubcommand {
            let _ = writeln!(
                out,
                "hint: a command stands behind `--`: pvisor-tui -- COMMAND"
            );
        }
        return ExitCode::from(error::USAGE);
    }
    match error.print() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ExitCode::from(CliError::from(error).status()),
    }
}
