//! `trust`: a workspace's settings file counts from now on, as it is.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use pvisor::config::{Trust, WORKSPACE_FILE, WorkspaceFile};
use pvisor::text::visible;

use super::context::{Context, shown};
use super::error::CliError;

/// Trust a workspace's settings file (.pvisor-tui.toml) as it is now
///
/// The file can only tighten: hide paths, take the network or variables away. Trust is bound to
/// its content and ends when that changes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The workspace [default: the current directory]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    let typed = args.dir.clone().unwrap_or_else(|| ".".into());
    let workspace = context
        .current_dir
        .join(&typed)
        .canonicalize()
        .map_err(|error| {
            CliError::while_doing(
                format!("looking for the workspace {}", shown(&typed)),
                error,
            )
        })?;
    let Some(file) = WorkspaceFile::read(&workspace)? else {
        return Err(CliError::refused(format!(
            "{} has no {WORKSPACE_FILE}",
            shown(&workspace)
        )));
    };
    // What could not be used must not be trusted either.
    file.table()?;
    let mut out = std::io::stdout().lock();
    for line in file.text.lines() {
        writeln!(out, "  {}", visible(line.as_bytes()))?;
    }
    Trust::open(&context.paths.state_dir)
        .and_then(|mut trust| trust.record(&workspace, file.digest))
        .map_err(|error| CliError::failure(error.to_string()))?;
    writeln!(out, "trusted {}", shown(&file.path))?;
    Ok(ExitCode::SUCCESS)
}
