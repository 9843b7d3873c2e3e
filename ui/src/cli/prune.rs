//! `prune`: removes sessions that are done with, and directories that were kept between sessions.

use std::io::{self, BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use pvisor::config::limits;
use pvisor::layer::remove::remove_tree;
use pvisor::session::prune::{self, Stays};
use pvisor::session::state::RunState;
use pvisor::session::store::SessionRecord;
use pvisor::text::visible;

use super::context::{Context, shown};
use super::error::CliError;
use super::list;
use super::session_arg;

/// Remove old sessions that are committed or discarded, and kept directories
///
/// A session goes with its records, its undo and whatever is still staged in it. Unless it is named
/// it stays while anything in it is undecided. What goes is listed first.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// These sessions, whatever their age and whatever is staged in them; never a running one
    #[arg(value_name = "S")]
    sessions: Vec<std::ffi::OsString>,
    /// Leave sessions in which something happened within this time
    #[arg(long, value_name = "D", default_value = "30d", value_parser = limits::parse_duration)]
    older_than: Duration,
    /// Remove the kept directory of this name, as it is called below `keep` in the state directory;
    /// without S no session goes with it
    #[arg(long, value_name = "NAME")]
    keep: Vec<String>,
    /// Say what would go, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// What goes.
struct Plan {
    sessions: Vec<SessionRecord>,
    kept: Vec<PathBuf>,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    let plan = plan(args, context)?;
    let mut out = io::stdout().lock();
    for record in &plan.sessions {
        writeln!(
            out,
            "session {} ({}, {}, {})",
            record.info.id,
            visible(record.info.name.as_bytes()),
            list::state(record),
            list::local_time(record.ended.unwrap_or(record.info.started)),
        )?;
    }
    for dir in &plan.kept {
        writeln!(out, "kept directory {}", shown(dir))?;
    }
    if plan.sessions.is_empty() && plan.kept.is_empty() {
        writeln!(out, "nothing to remove")?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    if !args.yes {
        confirm(context, &mut out)?;
    }
    for record in &plan.sessions {
        prune::remove(&context.store, record)?;
    }
    for dir in &plan.kept {
        remove_tree(dir)
            .map_err(|error| CliError::while_doing(format!("removing {}", shown(dir)), error))?;
    }
    prune::finish(&context.store)?;
    writeln!(out, "removed")?;
    Ok(ExitCode::SUCCESS)
}

fn plan(args: &Args, context: &Context) -> Result<Plan, CliError> {
    let mut sessions: Vec<SessionRecord> = Vec::new();
    for typed in &args.sessions {
        let record = session_arg::find(context, typed, false)?;
        if record.state == RunState::Running {
            return Err(CliError::refused(format!(
                "the command of session {} is still running",
                record.info.id
            ))
            .hint("`pvisor-tui stop` ends it"));
        }
        if !sessions.iter().any(|known| known.info.id == record.info.id) {
            sessions.push(record);
        }
    }
    if args.sessions.is_empty() && args.keep.is_empty() {
        let mut err = io::stderr().lock();
        for record in context.store.list()? {
            match prune::stays(&context.store, &record, args.older_than)? {
                None => sessions.push(record),
                // Those are what prune is about; the others nobody would expect to go.
                Some(why @ (Stays::Undecided(_) | Stays::Served)) => writeln!(
                    err,
                    "session {} stays: {why}; name it to remove it",
                    record.info.id
                )?,
                Some(Stays::State(_) | Stays::Young) => {}
            }
        }
    }
    let kept = args.keep.iter().map(|name| kept(name, context));
    Ok(Plan {
        sessions,
        kept: kept.collect::<Result<_, _>>()?,
    })
}

/// A kept directory. Which names a running command uses is not on record, only that it keeps
/// something: then none goes.
fn kept(name: &str, context: &Context) -> Result<PathBuf, CliError> {
    let parent = context.paths.state_dir.join("keep");
    let plain = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
    let dir = parent.join(name);
    if !plain || !dir.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        return Err(CliError::refused(format!(
            "there is no kept directory {}",
            visible(name.as_bytes())
        ))
        .hint(format!(
            "{} has: {}",
            shown(&parent),
            names(&parent).join(", ")
        )));
    }
    let keeps = |record: &SessionRecord| {
        record.state == RunState::Running && !record.boundary.kept.is_empty()
    };
    match context.store.list()?.into_iter().find(keeps) {
        None => Ok(dir),
        Some(record) => Err(CliError::refused(format!(
            "the command of session {} is running and keeps directories",
            record.info.id
        ))
        .hint("wait for its end, or `pvisor-tui stop` it")),
    }
}

fn names(parent: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let mut names: Vec<String> = names
        .filter(|name| !name.as_bytes().starts_with(b"."))
        .map(|name| visible(name.as_bytes()).into_owned())
        .collect();
    names.sort();
    names
}

/// A person says yes, or nothing goes.
fn confirm(context: &Context, out: &mut impl Write) -> Result<(), CliError> {
    let nothing = || CliError::refused("nothing was removed");
    if !context.stdin_is_terminal {
        return Err(nothing().hint("`--yes` removes what is listed"));
    }
    write!(out, "Remove this? It cannot be undone. [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(nothing())
    }
}
