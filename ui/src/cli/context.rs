//! What every verb knows of its caller: directories, sessions, environment and standard streams.
//! Owns the one place where the process environment is read.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use pvisor::paths::{Environment, Paths};
use pvisor::session::store::Store;
use pvisor::text::visible_path;

use super::error::CliError;

/// See the module.
#[derive(Debug)]
pub struct Context {
    /// The caller's environment.
    pub environment: Environment,
    /// Our directories.
    pub paths: Paths,
    /// The caller's sessions.
    pub store: Store,
    /// Where the caller is.
    pub current_dir: PathBuf,
    /// Standard input is a terminal.
    pub stdin_is_terminal: bool,
    /// Standard output is a terminal: what is printed there is sanitised.
    pub stdout_is_terminal: bool,
}

impl Context {
    /// From the process; `state_dir` is what `--state-dir` said.
    pub fn of_process(state_dir: Option<&Path>) -> Result<Self, CliError> {
        let environment: Environment = std::env::vars_os()
            .collect::<Vec<(OsString, OsString)>>()
            .into_iter()
            .collect();
        // A current directory that is gone matters only to verbs that use it.
        let current_dir = std::env::current_dir().unwrap_or_default();
        let paths = Paths::resolve(&environment, state_dir, &current_dir)?;
        if paths.state_dir.exists() && !paths.state_dir.is_dir() {
            let shown = shown(&paths.state_dir);
            return Err(
                CliError::usage(format!("the state directory {shown} is no directory"))
                    .hint("`--state-dir DIR` or $XDG_STATE_HOME names another one"),
            );
        }
        Ok(Self {
            store: Store::new(paths.state_dir.clone(), paths.runtime_dir.clone()),
            environment,
            paths,
            current_dir,
            stdin_is_terminal: io::stdin().is_terminal(),
            stdout_is_terminal: io::stdout().is_terminal(),
        })
    }
}

/// A path as it may be shown.
pub fn shown(path: &Path) -> String {
    visible_path(path).into_owned()
}
