//! `list`: the sessions there are.

use std::io::Write;
use std::process::ExitCode;

use pvisor::layer::Timestamp;
use pvisor::sandbox::ExitStatus;
use pvisor::session::recover::is_unsettled;
use pvisor::session::store::SessionRecord;
use pvisor::text::visible;

use super::context::{Context, shown};
use super::error::CliError;
use super::{json, table};

/// List sessions, the newest first
#[derive(Debug, clap::Args)]
pub struct Args {
    /// As JSON: a list of what `status --json` gives
    #[arg(long)]
    json: bool,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    let records = context.store.list()?;
    if args.json {
        json::print(&records.iter().map(json::Status::from).collect::<Vec<_>>())?;
    } else if records.is_empty() {
        writeln!(std::io::stderr().lock(), "there is no session yet")?;
    } else {
        std::io::stdout().write_all(text(&records).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The table of sessions.
pub fn text(records: &[SessionRecord]) -> String {
    let head = ["NAME", "STATE", "STARTED", "WORKSPACE", "COMMAND", "ID"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for record in records {
        let info = &record.info;
        rows.push(vec![
            visible(info.name.as_bytes()).into_owned(),
            state(record),
            local_time(info.started),
            shown(&info.workspace),
            visible(info.command.join(" ").as_bytes())
                .chars()
                .take(40)
                .collect(),
            info.id.clone(),
        ]);
    }
    table::aligned(&rows)
}

/// The state in a word, with the exit status where it says something, and whether a commit was left
/// unfinished.
pub fn state(record: &SessionRecord) -> String {
    let mut state = match record.exit.and_then(ExitStatus::known) {
        Some(code) if code != 0 => format!("{} ({code})", record.state.name()),
        _ => record.state.name().into(),
    };
    if is_unsettled(record) {
        state.push_str(", needs recover");
    }
    state
}

/// Date and time of day where the caller is.
pub fn local_time(time: Timestamp) -> String {
    jiff::Timestamp::new(time.sec, time.nsec as i32).map_or_else(
        |_| time.sec.to_string(),
        |time| {
            let zoned = time.to_zoned_datetime(jiff::tz::TimeZone::system());
            zoned.strftime("%Y-%m-%d %H:%M:%S").to_string()
        },
    )
}
