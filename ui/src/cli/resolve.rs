//! `resolve`: settles conflicts in the agent's view.

use std::io::Write;
use std::process::ExitCode;

use pvisor::LayerPath;
use pvisor::layer::is_of_home;
use pvisor::protocol::{Failure, Reply, Request, Resolution, Role, Target};
use pvisor::review;
use pvisor::session::client::ClientError;
use pvisor::session::state::SessionState;
use pvisor::text::visible;

use super::connection::Connection;
use super::context::Context;
use super::editor;
use super::error::{CliError, REFUSED};
use super::path_args::PathArgs;
use super::report;
use super::targets::{self, Items};

/// Settle conflicts in the agent's view
///
/// Of a file that you and the agent both changed: what is made of both is written into the agent's
/// file, while it runs too, and is the change from then on, to be looked at, approved and committed
/// like any other. The host is not touched. Where your edits and the agent's do not meet both stay,
/// whatever is chosen; `diff --merged` shows where they meet. What is not taken of the agent's edits
/// is gone then. To leave a conflict as it is, do
/// nothing: it is refused by `commit`.
///
/// What cannot be merged (binary files, links, what one side removed or both made) is taken as a
/// whole, with --ours or --theirs.
#[derive(Debug, clap::Args)]
#[command(override_usage = "pvisor-tui resolve [S] (PATH... | --all) \
                            (--merge | --ours | --theirs | --markers | --edit)")]
#[command(group = clap::ArgGroup::new("how").required(true))]
pub struct Args {
    #[command(flatten)]
    paths: PathArgs,
    /// Every conflict of the staged layers other than `home`
    #[arg(long)]
    all: bool,
    /// Both sides' edits, if they merge cleanly
    #[arg(long, group = "how")]
    merge: bool,
    /// The host's edits where edits meet
    #[arg(long, group = "how")]
    ours: bool,
    /// The agent's edits where edits meet
    #[arg(long, group = "how")]
    theirs: bool,
    /// Both between conflict markers where edits meet; the file is not committed while they are
    /// there
    #[arg(long, group = "how")]
    markers: bool,
    /// Edit the merge, with markers where edits meet, in $VISUAL or $EDITOR
    #[arg(long, group = "how")]
    edit: bool,
}

/// Carries it out. Exit 1 when one of them could not be.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    let (record, paths) = args.paths.resolve_or_all(args.all, context)?;
    let mut connection = Connection::open(context, &record, Role::Driver)?;
    connection.refresh()?;
    let targets = if args.all {
        vec![Target::All]
    } else {
        targets::resolve(&record, &connection.state, &paths, Items::Refused)?
    };
    let keys = conflicts(&connection.state, &targets);
    if keys.is_empty() {
        let error = "nothing of this is in conflict with the host";
        return Err(CliError::refused(error).hint("`pvisor-tui changes` names what is"));
    }
    let (mut resolved, mut refused) = (Vec::new(), Vec::new());
    for key in keys {
        match resolve(args, &mut connection, &key) {
            Ok(true) => resolved.push(key),
            Ok(false) => refused.push(format!(
                "{key}: nothing was changed in the editor, so it is left as it was; to take the \
                 merge as it is: `resolve --merge`, or `--markers` where edits meet"
            )),
            Err(error) => refused.push(said(&key, &error)),
        }
    }
    connection.tell_notices()?;
    if !resolved.is_empty() {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", report::concerned("resolved", &resolved))?;
        writeln!(
            out,
            "the host is untouched: look at the result with `pvisor-tui diff`, then approve and commit"
        )?;
    }
    let mut err = std::io::stderr().lock();
    for text in &refused {
        writeln!(err, "error: {text}")?;
    }
    Ok(if refused.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(REFUSED)
    })
}

/// What went wrong with one of several, which has its path.
fn said(key: &LayerPath, error: &ClientError) -> String {
    let text = error.to_string();
    if text.starts_with(&key.to_string()) {
        return visible(text.as_bytes()).into_owned();
    }
    format!("{key}: {}", visible(text.as_bytes()))
}

/// Changes in conflict that are meant.
fn conflicts(state: &SessionState, targets: &[Target]) -> Vec<LayerPath> {
    let places: Vec<LayerPath> = targets
        .iter()
        .filter_map(|target| match target {
            Target::Path(path) => Some(review::places(&state.changes, path)),
            _ => None,
        })
        .flatten()
        .collect();
    let all = targets.contains(&Target::All);
    let meant = |change: &&std::sync::Arc<pvisor::change::Change>| {
        change.conflict.is_some()
            && (review::covers(&places, change) || all && !is_of_home(&change.key.layer))
    };
    state
        .changes
        .values()
        .filter(meant)
        .map(|change| change.key.clone())
        .collect()
}

/// One of them; false when the person edited nothing.
fn resolve(args: &Args, connection: &mut Connection, key: &LayerPath) -> Result<bool, ClientError> {
    let gone = || ClientError::Failed(Failure::UnknownPath(key.clone()));
    let other = |text: String| ClientError::Failed(Failure::Other(text));
    let change = connection.state.changes.get(key).ok_or_else(gone)?;
    let mut expect = change.digest;
    let how = match () {
        () if args.merge => Resolution::Merge,
        () if args.ours => Resolution::Ours,
        () if args.theirs => Resolution::Theirs,
        () if args.markers => Resolution::Markers,
        () => {
            let Reply::Marked(marked) = connection.ask(Request::Marked(key.clone()))? else {
                return Err(ClientError::Closed);
            };
            let marked = marked.map_err(other)?;
            expect = marked.digest;
            let edited = editor::edit(&marked.bytes, key.path.as_path());
            match edited.map_err(|error| other(error.to_string()))? {
                Some(bytes) => Resolution::Edited {
                    bytes,
                    host: marked.host,
                },
                None => return Ok(false),
            }
        }
    };
    let key = key.clone();
    connection.ask(Request::Resolve { key, expect, how })?;
    Ok(true)
}
