//! No arguments at all: the sessions there are, or the first steps when there is none.

use std::io::Write;
use std::process::ExitCode;

use super::context::Context;
use super::error::CliError;
use super::list;

const FIRST_STEPS: &str = "\
There is no session yet. The first steps:

  pvisor-tui doctor            whether this machine can make the sandbox
  cd YOUR-PROJECT
  pvisor-tui run -- bash       work on staged copies: nothing reaches the host's files
  pvisor-tui review            look at what was changed and decide
  pvisor-tui commit            write what you approved, all of it or nothing
  pvisor-tui undo              take the last commit back

`pvisor-tui --help` lists every verb.
";

/// Carries it out.
pub fn run(context: &Context) -> Result<ExitCode, CliError> {
    let records = context.store.list()?;
    let mut out = std::io::stdout().lock();
    if records.is_empty() {
        out.write_all(FIRST_STEPS.as_bytes())?;
    } else {
        out.write_all(list::text(&records).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}
