//! `commit`: writes what was approved to the host, all of it or nothing.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;

use pvisor::LayerPath;
use pvisor::change::{ChangeSet, Risk, companions};
use pvisor::commit::Outcome;
use pvisor::layer::HOME;
use pvisor::protocol::{Reply, Request, Role};
use pvisor::session::client::ClientError;

use super::connection::Connection;
use super::context::Context;
use super::error::{CliError, REFUSED};
use super::git_commit;
use super::session_arg::SessionArg;
use super::{json, report};

/// Write approved changes to the host, all of them or none
///
/// Refused, with nothing written, when the host has changed one of the files meanwhile (unless
/// `--merge` can put both sides together), or the agent has after it was approved. `undo` takes it
/// back.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Only what is approved (the default)
    #[arg(long, conflicts_with = "all")]
    approved: bool,
    /// Approve everything first that is neither rejected nor ignored nor in the home directory
    #[arg(long)]
    all: bool,
    /// With --all: files ignored by git's rules too
    #[arg(long, requires = "all")]
    ignored: bool,
    /// Where the host has changed a file as well: write both sides' edits, if they merge cleanly
    /// (`diff --merged` shows them)
    #[arg(long)]
    merge: bool,
    /// Check, and say what would be written
    #[arg(long)]
    dry_run: bool,
    /// Keep what undo needs of the last N commits only, this one included [default: the
    /// configuration's `keep_undo` when the session began]
    #[arg(long, value_name = "N", conflicts_with = "dry_run")]
    keep_undo: Option<u32>,
    /// Afterwards record the written files of the workspace in its git repository, as they are:
    /// no hook, filter or signing program runs
    #[arg(long, value_name = "MESSAGE", conflicts_with = "dry_run")]
    git_commit: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    if args
        .git_commit
        .as_deref()
        .is_some_and(|m| m.trim().is_empty())
    {
        return Err(CliError::usage(
            "--git-commit needs a message that says something",
        ));
    }
    let record = args.session.find(context)?;
    if args.git_commit.is_some() {
        git_commit::check(&record.info.workspace, &record.info.dir)?;
    }
    let mut connection = Connection::open(context, &record, Role::Driver)?;
    let request = Request::Commit {
        all: args.all,
        ignored: args.ignored,
        merge: args.merge,
        dry_run: args.dry_run,
        keep_undo: args.keep_undo,
    };
    let (answer, before) = connection.commit(request);
    connection.tell_notices()?;
    let outcome = outcome(answer)?;
    if outcome == Outcome::Nothing
        && args.all
        && !args.json
        && let Some(text) = report::only_at_home(&record.info.id, &before.changes)
    {
        writeln!(std::io::stdout().lock(), "{text}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let code = conclude(&outcome, args.json, false)?;
    if args.all {
        tell_left_out(&before.changes)?;
    }
    tell_torn(&before.changes, &outcome)?;
    if let (Some(message), Outcome::Committed { number, paths, .. }) = (&args.git_commit, &outcome)
    {
        let info = &record.info;
        let message = git_commit::with_trailers(message, &info.id, &before.approved_by);
        let written = (*number, &paths[..]);
        git_commit::record(
            &info.workspace,
            &info.dir,
            written,
            &before.changes,
            &message,
        )?;
    }
    Ok(code)
}

/// What `--all` never takes is said, lest it be missed for good.
fn tell_left_out(changes: &ChangeSet) -> Result<(), CliError> {
    let mut out = std::io::stderr().lock();
    for change in changes.values() {
        if change.key.layer != HOME && change.risks.contains(&Risk::Uncommittable) {
            writeln!(
                out,
                "warning: {} is left out: a {} is never committed",
                change.key,
                change.file_type().name()
            )?;
        }
    }
    Ok(())
}

/// A database without the files that belong to it may lack its last changes.
fn tell_torn(changes: &ChangeSet, outcome: &Outcome) -> Result<(), CliError> {
    let (Outcome::Committed { paths, .. } | Outcome::Planned { paths, .. }) = outcome else {
        return Ok(());
    };
    let taken: BTreeSet<&LayerPath> = paths.iter().collect();
    let mut out = std::io::stderr().lock();
    for key in companions::left_out(changes, |key| taken.contains(key)) {
        writeln!(out, "warning: {key} is left out: {}", companions::WHY)?;
    }
    Ok(())
}

/// The outcome that an answer carries. What the server did not carry out was not written: exit 1,
/// whatever the reason; without an answer nobody knows: exit 2.
pub fn outcome(answer: Result<Reply, ClientError>) -> Result<Outcome, CliError> {
    match answer {
        Ok(Reply::Outcome(outcome)) => Ok(outcome),
        Ok(_) => Err(CliError::failure("the session server gave no outcome")),
        Err(ClientError::Failed(failure)) => Err(CliError::from(failure).with_status(REFUSED)),
        Err(lost) => Err(lost.into()),
    }
}

/// Prints how it ended and gives the exit status: 0 done or nothing to do, 1 refused, 2 unsettled.
pub fn conclude(outcome: &Outcome, as_json: bool, undo: bool) -> Result<ExitCode, CliError> {
    if as_json {
        json::print(&json::CommitInfo::from(outcome))?;
    }
    let error = match outcome {
        // A commit of nothing is done; an undo that finds no commit has failed to find it.
        Outcome::Nothing if undo => CliError::refused("there is no commit to undo"),
        Outcome::Committed { .. } | Outcome::Planned { .. } | Outcome::Nothing => {
            if !as_json {
                writeln!(
                    std::io::stdout().lock(),
                    "{}",
                    report::outcome(outcome, undo)
                )?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        Outcome::Refused { .. } if undo => CliError::refused(report::outcome(outcome, undo)).hint(
            "what stands in the way is the host's: mend it there, then `pvisor-tui undo` again",
        ),
        Outcome::Refused { .. } => CliError::refused(report::outcome(outcome, undo)).hint(
            "compare with `pvisor-tui diff`; what both sides changed is shown by `diff --merged` and \
             settled by `commit --merge` or `resolve`; or approve other paths, `reset` or `revert` \
             these, or `discard`",
        ),
        Outcome::Unsettled { .. } => CliError::failure(report::outcome(outcome, undo))
            .hint("`pvisor-tui recover` settles it: whole, or as if it had never begun"),
    };
    Err(error)
}

#[cfg(test)]
mod tests {
    use pvisor::commit::Refusal;
    use pvisor::{LayerPath, RelPath};

    use super::*;

    #[test]
    fn a_refusal_names_every_path_and_is_status_1() {
        let refusals = ["a.txt", "b.txt"].map(|path| Refusal {
            key: LayerPath::new("workspace", RelPath::try_from(path).expect("path")),
            reason: "the host's file was changed meanwhile".into(),
        });
        let refused = Outcome::Refused {
            refusals: refusals.to_vec(),
        };
        let error = conclude(&refused, false, false).expect_err("refused");
        assert_eq!(error.status(), 1);
        let undo = conclude(&refused, false, true).expect_err("refused");
        let mut said = Vec::new();
        undo.print(&mut said).expect("printed");
        let said = String::from_utf8(said).expect("text");
        assert!(
            !said.contains("approve") && said.contains("undo` again"),
            "{said}"
        );
        let mut out = Vec::new();
        error.print(&mut out).expect("printed");
        let text = String::from_utf8(out).expect("text");
        assert!(
            text.contains("a.txt: the host's") && text.contains("b.txt: "),
            "{text}"
        );
        let unsettled = Outcome::Unsettled {
            number: 3,
            reason: "I/O error".into(),
            ledger: "/s/commits/3/ledger".into(),
        };
        let error = conclude(&unsettled, false, false).expect_err("unsettled");
        assert_eq!(error.status(), 2);
    }
}
