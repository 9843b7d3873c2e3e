//! `status`: one session, and what was really put in force for it.

use std::io::Write;
use std::process::ExitCode;

use pvisor::commit::LateSave;
use pvisor::policy::{Origin, access_word};
use pvisor::protocol::Role;
use pvisor::sandbox::ExitStatus;
use pvisor::sandbox::boundary::LimitBoundary;
use pvisor::session::client::Client;
use pvisor::session::recover::is_unsettled;
use pvisor::session::state::{RunState, SessionState};
use pvisor::session::store::SessionRecord;
use pvisor::text::visible;

use super::context::{Context, shown};
use super::error::CliError;
use super::list::{local_time, state};
use super::session_arg::SessionArg;
use super::{asks, connection, json, observed, table};

/// Show a session: its state and the boundary that was put in force
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// What its command looked up, read, wrote and was denied, path by path (`run --observe`)
    #[arg(long)]
    observed: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    let record = args.session.find(context)?;
    if args.observed {
        let counts = context.store.observations(&record.info.id)?;
        if args.json {
            json::print(&observed::Observed::new(&record, counts.as_ref()))?;
        } else {
            let text = observed::text(counts.as_ref());
            std::io::stdout().write_all(text.as_bytes())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let live = live(&record, context);
    if args.json {
        let mut status = json::Status::from(&record);
        status.late_saves = late_saves(&record).iter().map(Into::into).collect();
        status.guard = Some(json::GuardInfo::new(live.as_ref()));
        json::print(&status)?;
    } else {
        let mut text = text(&record);
        if let Some(state) = &live {
            text.push_str(&guard_text(state, &record.info.id));
        }
        std::io::stdout().write_all(text.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Saves that came too late for a commit; what cannot be read is none.
fn late_saves(record: &SessionRecord) -> Vec<LateSave> {
    pvisor::commit::late_saves(&record.info.dir.join("commits")).unwrap_or_default()
}

/// What the server of a running session knows; none is started for it.
fn live(record: &SessionRecord, context: &Context) -> Option<SessionState> {
    if record.state != RunState::Running {
        return None;
    }
    let socket = context.store.socket(&record.info.id);
    let connected = Client::connect(&socket, connection::hello(Role::Observer));
    connected.ok().map(|(_, welcome)| welcome.state)
}

/// Rules, what they remarked and what waits.
fn guard_text(state: &SessionState, session: &str) -> String {
    let safe = |bytes: &[u8]| visible(bytes).into_owned();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for rule in state.rules.iter().filter(|r| r.origin != Origin::BuiltIn) {
        rows.push(vec![
            "rule".into(),
            format!(
                "{}:{} ({})",
                rule.level.name(),
                safe(rule.glob.as_bytes()),
                rule.origin.name()
            ),
        ]);
    }
    for answer in &state.answers {
        let said = if answer.allow { "allowed" } else { "denied" };
        let about = safe(&answer.subject.shown());
        let scope = answer.origin.name();
        rows.push(vec![
            "answer".into(),
            format!("{said} {about} (for the {scope})"),
        ]);
    }
    for remark in &state.remarks {
        rows.push(vec![
            if remark.level == pvisor::policy::Level::Deny {
                "denied"
            } else {
                "remarked"
            }
            .into(),
            format!(
                "{} {} (rule {}:{})",
                access_word(remark.what.access),
                safe(&state.absolute(&remark.what.key)),
                remark.level.name(),
                safe(remark.what.glob.as_bytes())
            ),
        ]);
    }
    if state.more_remarks > 0 {
        rows.push(vec![
            "remarks".into(),
            format!("and {} more", state.more_remarks),
        ]);
    }
    for ask in state.asks.values() {
        rows.push(vec![
            format!("question {}", ask.id),
            asks::with_command(state, ask, session),
        ]);
    }
    table::aligned(&rows)
}

/// A bound as a person writes it, and what holds it.
pub fn limited(limit: &LimitBoundary) -> String {
    let value = match limit.name.as_str() {
        "cpus" => format!("{}", limit.value as f64 / 1000.0),
        "processes" | "open files" => limit.value.to_string(),
        _ => bytes(limit.value),
    };
    match (&limit.by, &limit.reason) {
        (Some(by), _) => format!("{value} (by {by})"),
        (None, Some(reason)) => format!("{value}, NOT enforced: {reason}"),
        (None, None) => format!("{value}, NOT enforced"),
    }
}

/// In the largest unit that tells it exactly.
fn bytes(count: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let exact = units
        .into_iter()
        .find(|(shift, _)| count > 0 && count.is_multiple_of(1 << shift));
    exact.map_or_else(
        || count.to_string(),
        |(shift, unit)| format!("{}{unit}", count >> shift),
    )
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
    if let Some(lost) = record.exit.and_then(ExitStatus::lost) {
        row(
            "killed",
            format!("{lost} has ended, and the command with it"),
        );
    }
    row(
        "started",
        format!("{} by {}", local_time(info.started), safe(&info.user)),
    );
    row("ended", record.ended.map(local_time).unwrap_or_default());
    row("command", safe(&info.command.join(" ")));
    row("workspace", shown(&info.workspace));
    row("directory", shown(&info.dir));
    row("commits", record.commits.to_string());
    if is_unsettled(record) {
        row(
            "unfinished",
            "a commit; unless it is under way, `pvisor-tui recover` settles it".into(),
        );
    }
    for save in late_saves(record) {
        row("late save", save.describe());
    }
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
    if !boundary.layers.is_empty() {
        let text = "README.md, \"Deviations\", tells how a layer differs from a plain directory";
        row("deviations", text.into());
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
        let by_kernel = boundary.layers.iter().any(|l| l.driver == "overlayfs");
        let renames = if boundary.rename_shim || !by_kernel {
            "as in a plain directory"
        } else {
            "refused for the host's (EXDEV)"
        };
        row("directory renames", renames.into());
    }
    for limit in &boundary.limits {
        let name = format!("limit {}", safe(&limit.name));
        row(&name, safe(&limited(limit)));
    }
    row("proc", safe(&boundary.proc));
    row("network", safe(&boundary.network));
    row("hidden", list(&boundary.hidden));
    row("written directly", list(&boundary.writable));
    row("kept", list(&boundary.kept));
    for note in &boundary.notes {
        row("note", safe(note));
    }
    table::aligned(&rows)
}
