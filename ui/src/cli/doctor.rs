//! `doctor`: whether this machine can make the sandbox, and what mends it if not.

use std::io::Write;
use std::process::ExitCode;

use pvisor::text::visible;

use super::context::Context;
use super::error::{CliError, REFUSED};
use super::json;

/// Try everything the sandbox needs, and name the remedy for what fails
///
/// The exit status is 1 when something fails that a staged session needs.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    let report = pvisor::doctor::examine(&context.paths.state_dir);
    let info = json::Doctor::from(&report);
    if args.json {
        json::print(&info)?;
    } else {
        let mut out = std::io::stdout().lock();
        for check in &info.checks {
            let mark = match (check.ok, check.needed) {
                (true, _) => "ok  ",
                (false, true) => "FAIL",
                (false, false) => "no  ",
            };
            let (name, detail) = (
                visible(check.name.as_bytes()),
                visible(check.detail.as_bytes()),
            );
            writeln!(out, "{mark} {name}: {detail}")?;
            if let Some(remedy) = check.remedy.as_ref().filter(|_| !check.ok) {
                writeln!(out, "      remedy: {}", visible(remedy.as_bytes()))?;
            }
        }
    }
    Ok(if info.ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(REFUSED)
    })
}
