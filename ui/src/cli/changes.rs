//! `changes`: the change set, one row a change.

use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

use pvisor::change::{Change, ChangeKind, Class, Merges, came_along};
use pvisor::protocol::Role;
use pvisor::review::{Summary, reason, summary};
use pvisor::session::state::{RunState, SessionState};
use pvisor::session::store::SessionRecord;
use pvisor::text::visible;

use super::connection::Connection;
use super::context::{Context, shown};
use super::error::CliError;
use super::session_arg::SessionArg;
use super::{json, report, table};

/// List what the agent has changed and what was decided
///
/// The riskiest come first. Ignored files, new git objects and files of which only the times
/// differ are counted, not listed, and so is what a renamed directory took along unchanged; `--json` has every one.
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
    let state = agreed(context, &record)?;
    let run = state.run.unwrap_or(record.state);
    if args.json {
        json::print(&json::Changes::new(&record, run.name(), &state))?;
    } else {
        let text = text(&record, run, &state);
        std::io::stdout().write_all(text.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The session as it is now; of a discarded one nothing is left to ask a server for.
fn agreed(context: &Context, record: &SessionRecord) -> Result<SessionState, CliError> {
    if record.state == RunState::Discarded {
        return Ok(SessionState {
            run: Some(RunState::Discarded),
            ..SessionState::default()
        });
    }
    let mut connection = Connection::open(context, record, Role::Observer)?;
    connection.refresh()?;
    Ok(connection.state)
}

fn text(record: &SessionRecord, run: RunState, state: &SessionState) -> String {
    let mut listed: Vec<&Change> = Vec::new();
    let (mut ignored, mut objects, mut touched, mut along) = (0, 0, 0, 0);
    for change in state.changes.values() {
        match change.class {
            Class::Ignored => ignored += 1,
            Class::GitObject => objects += 1,
            Class::Plain if came_along(&state.changes, change) => along += 1,
            Class::Plain if only_touched(change) => touched += 1,
            Class::Plain => listed.push(change),
        }
    }
    // Stable: below the risk the order of the paths stays.
    listed.sort_by_key(|change| {
        let heaviest = change.risks.first().copied();
        (heaviest.is_none(), heaviest)
    });
    let mut out = format!(
        "session {} ({}), {}, {}\n",
        record.info.id,
        visible(record.info.name.as_bytes()),
        run.name(),
        shown(&record.info.workspace)
    );
    let rows: Vec<_> = listed.iter().map(|change| row(change, state)).collect();
    out.push_str(&table::aligned(&rows));
    let folded = [
        (along, "moved along with a renamed directory"),
        (ignored, "ignored by git's rules"),
        (objects, "new git objects"),
        (touched, "files touched (only their times differ)"),
    ];
    for (number, what) in folded {
        if number > 0 {
            let _ = writeln!(out, "{number} {what}");
        }
    }
    out.push_str(&report::counted(state.changes.values().map(|c| &**c)));
    out.push('\n');
    out
}

fn row(change: &Change, state: &SessionState) -> Vec<String> {
    let decision = state.decisions.get(&change.key);
    let mut said = match summary(change, decision) {
        Summary::Undecided => String::new(),
        said => said.name().into(),
    };
    let in_force = decision.filter(|decision| decision.digest == change.digest);
    if let Some(reason) = in_force.and_then(reason) {
        said.push_str(": ");
        said.push_str(&visible(reason.as_bytes()));
    }
    let mut path = match change.from() {
        Some(from) => format!("{from} -> {}", change.key),
        None => change.key.to_string(),
    };
    if change.file_type() == pvisor::layer::FileType::Dir {
        path.push('/');
    }
    let lines = match (change.added, change.removed) {
        _ if change.binary => "binary".into(),
        (0, 0) => String::new(),
        (added, removed) => format!("+{added} -{removed}"),
    };
    let mut marks: Vec<String> = change.risks.iter().map(|r| r.name().into()).collect();
    if let Some(conflict) = &change.conflict {
        let merges = change.merges.as_ref().map(Merges::describe);
        let merges = merges.map_or(String::new(), |merges| format!(", {merges}"));
        marks.insert(0, format!("CONFLICT: {}{merges}", conflict.describe()));
    }
    vec![
        change.kind.name().into(),
        path,
        lines,
        said,
        marks.join(", "),
    ]
}

/// Whether nothing but the times differs, and the host has not moved.
fn only_touched(change: &Change) -> bool {
    change.kind == ChangeKind::Meta
        && change.conflict.is_none()
        && change
            .before
            .as_ref()
            .zip(change.after.as_ref())
            .is_some_and(|(before, after)| {
                before.xattrs == after.xattrs && before.uid == after.uid && before.gid == after.gid
            })
}

#[cfg(test)]
mod tests {
    use pvisor::change::{Conflict, Risk};
    use pvisor::layer::Timestamp;
    use pvisor::sandbox::{Boundary, Mode};
    use pvisor::session::state::SessionInfo;

    use super::*;
    use crate::cli::fixture::{change, renamed};

    fn record() -> SessionRecord {
        SessionRecord {
            info: SessionInfo {
                settings: pvisor::config::SessionSettings::default(),
                id: "20261130-100000-aaaa".into(),
                name: "fix".into(),
                user: "ada".into(),
                mode: Mode::Staged,
                command: vec!["sh".into()],
                dir: "/state/sessions/20261130-100000-aaaa".into(),
                workspace: "/home/ada/work".into(),
                layers: Vec::new(),
                started: Timestamp::default(),
            },
            state: RunState::Exited,
            exit: None,
            ended: None,
            boundary: Boundary::default(),
            commits: 0,
        }
    }

    #[test]
    fn one_row_a_change_the_riskiest_first() {
        let mut conflicting = change("workspace", b"b.txt", &["h1"]);
        conflicting.conflict = Some(Conflict::HostDeleted);
        let mut gone = change("workspace", b"z", &["w1"]);
        gone.kind = ChangeKind::Deleted;
        gone.after = None;
        gone.risks = vec![Risk::Delete];
        let mut ignored = change("workspace", b"target/x", &[]);
        ignored.class = Class::Ignored;
        let mut touched = change("workspace", b"t", &[]);
        touched.kind = ChangeKind::Meta;
        let mut hostile = change("workspace", b"\x1b[2J\x1b]0;owned\x07/a\nb", &[]);
        hostile.binary = true;
        let set = [
            conflicting,
            gone,
            ignored,
            touched,
            hostile,
            renamed("workspace", b"old", b"new", &[]),
            change("home", b".profile", &[]),
        ];
        let state = SessionState {
            changes: set
                .into_iter()
                .map(|c| (c.key.clone(), std::sync::Arc::new(c)))
                .collect(),
            ..SessionState::default()
        };
        let text = text(&record(), RunState::Exited, &state);
        assert!(
            text.bytes().all(|b| b == b'\n' || !b.is_ascii_control()),
            "{text:?}"
        );
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].starts_with("deleted   z "), "{text}");
        assert!(lines[1].ends_with("delete"), "{text}");
        assert!(lines[2].contains("home:.profile"), "{text}");
        assert!(lines[3].contains("owned"), "{text}");
        assert!(
            lines[4].contains("CONFLICT: the host's entry was removed meanwhile"),
            "{text}"
        );
        assert!(lines[5].contains("old -> new"), "{text}");
        assert_eq!(lines[6], "1 ignored by git's rules");
        assert_eq!(lines[7], "1 files touched (only their times differ)");
        assert!(lines[8].starts_with("7 changes ("), "{text}");
        assert_eq!(lines.len(), 9);
    }
}
