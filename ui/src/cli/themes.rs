//! `themes`: the names that `theme = "..."` takes.

use std::io::Write;
use std::process::ExitCode;

use super::context::Context;
use super::error::CliError;
use super::json;

/// List the themes
#[derive(Debug, clap::Args)]
pub struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    let names = crate::theme::names_in(Some(&context.paths.config_dir.join("themes")));
    if args.json {
        json::print(&names)?;
    } else {
        let mut out = std::io::stdout().lock();
        for name in names {
            writeln!(out, "{}", pvisor::text::visible(name.as_bytes()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
