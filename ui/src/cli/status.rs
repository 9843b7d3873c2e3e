//! `status`: one session, and what was really put in force for it.

use std::io::Write;
use std::process::ExitCode;

use pvisor::session::store::SessionRecord;
use pvisor::text::visible;

use super::context::{Context, shown};
use super::error::CliError;
use super::list::{local_time, state};
use super::session_arg::SessionArg;
use super::{json, table};

/// Show a session: its state and the boundary that was put in force
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    let record = args.session.find(context)?;
    if args.json {
        json::print(&json::Status::from(&record))?;
    } else {
        std::io::stdout().write_all(text(&record).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(record: &SessionRecord) -> String {
    let (info, boundary) = (&record.info, &record.boundary);
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            rows.push(vec![name.into(), value]);
        }
    };
    let safe = |text: &str| visible(text.as_bytes()).into_owned();
    let list = |texts: &[String]| safe(&texts.join(", "));
    row("session", info.id.clone());
    row("name", safe(&info.name));
    row("state", state(record));
    row(
        "started",
        format!("{} by {}", local_time(info.started), safe(&info.user)),
    );
    row("ended", record.ended.map(local_time).unwrap_or_default());
    row("command", safe(&info.command.join(" ")));
    row("workspace", shown(&info.workspace));
    row("directory", shown(&info.dir));
    row("commits", record.commits.to_string());
    row("mode", info.mode.name().into());
    row("namespaces", list(&boundary.namespaces));
    for layer in &boundary.layers {
        let root = info.layers.iter().find(|known| known.name == layer.name);
        let root = root.map_or_else(String::new, |known| shown(&known.root));
        row(
            &format!("layer {}", safe(&layer.name)),
            format!("{root} ({}: {})", safe(&layer.driver), safe(&layer.reason)),
        );
    }
    if !boundary.mode.is_empty() {
        let none = if boundary.no_capabilities {
            "none"
        } else {
            "not dropped"
        };
        row("capabilities", none.into());
        row(
            "seccomp",
            if boundary.seccomp { "yes" } else { "no" }.into(),
        );
        let abi = boundary.landlock.map(|abi| format!("ABI {abi}"));
        row("landlock", abi.unwrap_or_else(|| "no".into()));
    }
    if !boundary.mode.is_empty() && boundary.mode != "host" {
        let renames = if boundary.rename_shim {
            "as in a plain directory"
        } else {
            "refused for the host's (EXDEV)"
        };
        row("directory renames", renames.into());
    }
    row("proc", safe(&boundary.proc));
    row("network", safe(&boundary.network));
    row("hidden", list(&boundary.hidden));
    row("written directly", list(&boundary.writable));
    for note in &boundary.notes {
        row("note", safe(note));
    }
    table::aligned(&rows)
}
