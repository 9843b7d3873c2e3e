//! Hands a connection over to the screen, and says what is left when the person comes back.

use std::io::Write;
use std::process::ExitCode;

use pvisor::config::Config;
use pvisor::protocol::{Hello, PROTOCOL_VERSION, Role, Welcome};
use pvisor::sandbox::spec::TerminalSize;
use pvisor::session::client::Client;
use pvisor::session::server;
use pvisor::session::state::RunState;
use pvisor::session::store::SessionRecord;

use super::context::Context;
use super::error::CliError;
use super::{connection, report};
use crate::app::{self, Options};
use crate::keymap::Keymap;
use crate::theme::{Depth, Theme};

/// `--role R`.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct RoleArg {
    /// What you may do there: everything, decide, or look only
    #[arg(long, value_name = "ROLE", value_enum, default_value_t = AsRole::Driver)]
    role: AsRole,
}

/// The names of the roles on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum AsRole {
    /// Types into the agent, answers questions and commits
    Driver,
    /// Decides
    Reviewer,
    /// Looks
    Observer,
}

impl RoleArg {
    /// The role that is meant.
    pub fn role(self) -> Role {
        match self.role {
            AsRole::Driver => Role::Driver,
            AsRole::Reviewer => Role::Reviewer,
            AsRole::Observer => Role::Observer,
        }
    }
}

/// Connects to a session and shows it until the person leaves.
pub fn open(record: &SessionRecord, role: Role, context: &Context) -> Result<ExitCode, CliError> {
    if !context.stdin_is_terminal || !context.stdout_is_terminal {
        return Err(
            CliError::usage("the screen needs a terminal on standard input and output").hint(
                "without one: `pvisor-tui changes`, `diff`, `approve`, `reject` and `commit`",
            ),
        );
    }
    let loaded = pvisor::config::load(pvisor::config::Sources {
        paths: &context.paths,
        environment: &context.environment,
        workspace: None,
        flags: &[],
    })?;
    let options = options(&loaded.config, context)?;
    let size = crossterm::terminal::size().ok();
    let hello = Hello {
        version: PROTOCOL_VERSION,
        role,
        output: true,
        size: size.map(|(cols, rows)| TerminalSize { rows, cols }),
        owns_command: false,
    };
    let (client, welcome) = server::attach(&context.store, record, hello)?;
    show(client, welcome, options, context)
}

/// How the configuration wants the screen. A theme or a key that does not exist is told before
/// anything is started.
pub fn options(config: &Config, context: &Context) -> Result<Options, CliError> {
    let options = Options {
        theme: Some(config.theme.clone()),
        themes: Some(context.paths.config_dir.join("themes")),
        keys: config.keys.clone(),
        scrollback: config.scrollback as usize,
        mouse: config.mouse,
        editor: Some(super::editor::edit),
        ..Options::default()
    };
    Keymap::new(&options.keys)
        .map_err(|error| CliError::usage(format!("the configured keys: {error}")))?;
    Theme::load(&config.theme, options.themes.as_deref(), Depth::True)
        .map_err(|error| CliError::usage(error.to_string()))?;
    Ok(options)
}

/// Shows a session until the person leaves, then says on standard error what is staged and how to
/// come back.
pub fn show(
    client: Client,
    welcome: Welcome,
    options: Options,
    context: &Context,
) -> Result<ExitCode, CliError> {
    let id = welcome.state.info.as_ref().map(|info| info.id.clone());
    let id = id.unwrap_or_default();
    app::run(client, welcome, options)
        .map_err(|error| CliError::while_doing("the screen has failed", format!("{error:#}")))?;
    say_goodbye(&id, context)?;
    Ok(ExitCode::SUCCESS)
}

fn say_goodbye(id: &str, context: &Context) -> Result<(), CliError> {
    let Ok(record) = context.store.load(id) else {
        return Ok(());
    };
    // The server stays for a moment after its last client; what it knows is told without starting
    // another one.
    let socket = context.store.socket(id);
    let staged = Client::connect(&socket, connection::hello(Role::Observer)).ok();
    let staged = staged.map(|(_, welcome)| {
        report::counted(welcome.state.changes.values().map(|change| &**change))
    });
    let mut err = std::io::stderr().lock();
    if let Some(staged) = staged.filter(|_| record.state != RunState::Discarded) {
        writeln!(err, "pvisor-tui: session {id}: {staged} staged")?;
    }
    match record.state {
        RunState::Running => writeln!(
            err,
            "pvisor-tui: session {id} goes on; `pvisor-tui attach {id}` shows it, `pvisor-tui stop \
             {id}` ends it"
        )?,
        RunState::Discarded => writeln!(err, "pvisor-tui: session {id} was discarded")?,
        RunState::Exited | RunState::Lost | RunState::Committed => {
            writeln!(err, "{}", report::come_back(id))?;
        }
    }
    Ok(())
}
