//! `run`: starts a command in a new session, or in one that has ended.

mod args;
mod request;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pvisor::config::{Hangup, Sources, load};
use pvisor::protocol::{Hello, PROTOCOL_VERSION, Request, Role};
use pvisor::sandbox::spec::{Network, TerminalSize};
use pvisor::sandbox::{Boundary, Mode, Stdio, Submounts, submounts};
use pvisor::session::server::{self, RunRequest};
use pvisor::session::state::RunState;
use pvisor::session::store::{LAST, SessionRecord};
use pvisor::text::visible;

use super::context::{Context, shown};
use super::error::{CliError, NO_SANDBOX};
use super::{headless, refuse, screen, session_arg, status};
use args::flags;
use request::request;

pub use args::Args;

/// Carries it out.
pub fn run(args: Args, context: &Context) -> Result<ExitCode, CliError> {
    let has_screen = context.stdin_is_terminal && context.stdout_is_terminal;
    if !args.headless && !args.detach && !has_screen {
        return Err(
            CliError::usage("the screen needs a terminal on standard input and output")
                .hint("`--headless` runs without the screen, `--detach` in the background"),
        );
    }
    let resume = match &args.resume {
        None => None,
        Some(typed) => Some(resumed(context, typed)?),
    };
    if let Some(name) = &args.name {
        check_name(context, name)?;
    }
    let workspace = match (&resume, &args.workspace) {
        (Some(record), None) => record.info.workspace.clone(),
        (Some(record), Some(typed)) => {
            let typed = workspace(context, Some(typed))?;
            if typed != record.info.workspace {
                return Err(CliError::usage(format!(
                    "session {} is about {}, not {}",
                    record.info.id,
                    shown(&record.info.workspace),
                    shown(&typed)
                )));
            }
            typed
        }
        (None, typed) => workspace(context, typed.as_deref())?,
    };
    let loaded = load(Sources {
        paths: &context.paths,
        environment: &context.environment,
        workspace: Some(&workspace),
        flags: &flags(&args),
    })?;
    for notice in &loaded.notices {
        writeln!(
            std::io::stderr().lock(),
            "warning: {}",
            visible(notice.as_bytes())
        )?;
    }
    let mode = resume
        .as_ref()
        .map_or(loaded.config.mode, |record| record.info.mode);
    if mode == Mode::Host && loaded.config.network != Network::Host {
        return Err(CliError::usage(
            "mode host contains nothing: the command has the host's network",
        )
        .hint("`--mode staged --net none` takes the network away"));
    }
    let interactive = !args.headless && !args.detach;
    let options = if interactive {
        Some(screen::options(&loaded.config, context)?)
    } else {
        None
    };
    let stdio = stdio(&args, context);
    let request = request(&args, context, &loaded, workspace, resume, stdio)?;
    if request.mode == Mode::Staged {
        name_submounts(&request)?;
    }
    let shows = !args.detach;
    let hello = Hello {
        version: PROTOCOL_VERSION,
        role: Role::Driver,
        output: shows,
        size: match stdio {
            Stdio::Pty(size) if shows => Some(size),
            _ => None,
        },
        owns_command: shows && (args.headless || loaded.config.hangup == Hangup::Stop),
    };
    // The command shall not begin on a half-written workspace.
    super::recover::at(&context.store, &request.workspace)?;
    let started = server::run(&context.store, request, hello);
    // From here on nothing is a usage error: whatever failed, the command did not run.
    let (client, welcome) =
        started.map_err(|error| CliError::from(error).with_status(NO_SANDBOX))?;
    warn_of_limits(&welcome.state.boundary)?;
    if args.detach {
        let id = welcome.state.info.as_ref().map(|info| info.id.clone());
        let id = id.unwrap_or_default();
        if stdio == Stdio::Pipes {
            client.send(Request::InputEnded)?;
        }
        // An answer means that the server has taken the end of the input before we leave.
        client.call(Request::Rescan)?;
        writeln!(std::io::stdout().lock(), "{id}")?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.headless {
        headless::run(client, welcome, stdio, context)
    } else {
        let options = options.unwrap_or_default();
        screen::show(client, welcome, options, context)
    }
}

/// Says which mounts lie inside the workspace and what becomes of each.
fn name_submounts(request: &RunRequest) -> Result<(), CliError> {
    let Ok(found) = submounts::below(&request.workspace) else {
        // Whoever makes the sandbox says why it cannot be read.
        return Ok(());
    };
    let mut err = std::io::stderr().lock();
    for mount in found {
        if request
            .mounts
            .iter()
            .any(|m| mount.point.starts_with(&m.target))
        {
            continue;
        }
        let becomes = match (request.submounts, mount.unstageable()) {
            (Submounts::Refuse, _) => continue,
            (Submounts::Read, _) => "shown read-only".to_owned(),
            (Submounts::Stage, Some(why)) => format!("shown read-only, since {why}"),
            (Submounts::Stage, None) => "staged as a layer of its own".to_owned(),
        };
        let point = shown(&mount.point);
        writeln!(
            err,
            "warning: {point} is mounted inside the workspace: it is {becomes}"
        )?;
    }
    Ok(())
}

/// The session that `--continue` means: one that has ended.
fn resumed(context: &Context, typed: &OsString) -> Result<SessionRecord, CliError> {
    let record = session_arg::find(context, typed, false)
        .map_err(|error| error.with_status(super::error::USAGE))?;
    match record.state {
        RunState::Running => Err(CliError::usage(format!(
            "the command of session {} is still running",
            record.info.id
        ))
        .hint("`pvisor-tui attach` shows it, `pvisor-tui stop` ends it")),
        RunState::Discarded => Err(CliError::usage(format!(
            "session {} was discarded; nothing is staged any more",
            record.info.id
        ))),
        _ => Ok(record),
    }
}

/// A name must tell sessions apart, and must not look like something else on the command line.
fn check_name(context: &Context, name: &str) -> Result<(), CliError> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(plain) || name.starts_with(['-', '.']) || name == LAST {
        return Err(
            CliError::usage(format!("{name:?} cannot be a session's name"))
                .hint("letters, digits, `-`, `_` and `.`; not `last`"),
        );
    }
    match context.store.find(name, false) {
        Ok(record) => Err(CliError::usage(format!(
            "session {} has the name {name} already",
            record.info.id
        ))),
        Err(_) => Ok(()),
    }
}

/// The workspace's root, without links.
fn workspace(context: &Context, typed: Option<&Path>) -> Result<PathBuf, CliError> {
    refuse::relative_to_nothing(typed, &context.current_dir)?;
    let path = match typed {
        Some(typed) => context.current_dir.join(typed),
        None => context.current_dir.clone(),
    };
    let real = path.canonicalize().map_err(|error| {
        CliError::while_doing(format!("looking for the workspace {}", shown(&path)), error)
    })?;
    if !real.is_dir() {
        return Err(CliError::usage(format!(
            "the workspace {} is no directory",
            shown(&real)
        )));
    }
    refuse::workspace(&real)?;
    Ok(real)
}

/// A terminal for the screen; headless pipes, unless a terminal is there or wanted.
fn stdio(args: &Args, context: &Context) -> Stdio {
    if args.headless && !args.pty && !context.stdout_is_terminal {
        return Stdio::Pipes;
    }
    let size = crossterm::terminal::size().ok();
    let size = size.filter(|(cols, rows)| context.stdout_is_terminal && *cols > 0 && *rows > 0);
    let (cols, rows) = size.unwrap_or((80, 24));
    Stdio::Pty(TerminalSize { rows, cols })
}

/// A bound on memory or processors is always somebody's wish: who relies on it is told at once when
/// nothing holds it. (The built-in one on processes is told by `status`.)
fn warn_of_limits(boundary: &Boundary) -> Result<(), CliError> {
    for limit in &boundary.limits {
        let wished = matches!(limit.name.as_str(), "memory" | "cpus" | "stage");
        if wished && limit.by.is_none() {
            writeln!(
                std::io::stderr().lock(),
                "warning: limit {}: {}",
                visible(limit.name.as_bytes()),
                visible(status::limited(limit).as_bytes())
            )?;
        }
    }
    Ok(())
}
