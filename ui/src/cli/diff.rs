//! `diff`: the change set as a patch that `git apply` takes.

use std::collections::VecDeque;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use crossbeam_channel::Receiver;
use pvisor::LayerPath;
use pvisor::change::{Change, ChangeKind, Class};
use pvisor::diff::patch::{PatchEntry, left_out, patch};
use pvisor::layer::{FileType, WORKSPACE};
use pvisor::protocol::{Contents, Failure, Reply, Request, Role, Target};
use pvisor::review;
use pvisor::session::client::ClientError;
use pvisor::session::state::SessionState;
use pvisor::text::visible;

use super::connection::Connection;
use super::context::Context;
use super::error::{CliError, REFUSED, USAGE};
use super::path_args::PathArgs;
use super::targets::{self, Items};

/// How often a change that moves while it is read is read again.
const ATTEMPTS: usize = 5;

/// Hunks of a file in conflict that are told one by one.
const HUNKS: usize = 100;

/// Changes whose contents are asked for ahead, and how many bytes of them, at most.
const AHEAD: usize = 64;
const AHEAD_BYTES: u64 = 4 << 20;

/// Print changes as a patch for `git apply`
///
/// Without paths: the workspace's changes, without those that git ignores and those below a `.git`
/// (git applies none there); name them to see them. To a terminal the text is sanitised, to a pipe
/// or a file it is exact.
///
/// With `--merged`: what `commit --merge` of everything would change on the host as it is now.
/// Standard error names each hunk of a file that you changed as well with how it stands: still
/// applies, merges cleanly or conflicts. Files that do not merge are named there with the places,
/// and the status is 1.
#[derive(Debug, clap::Args)]
#[command(override_usage = "pvisor-tui diff [S] [--merged] [PATH]...")]
pub struct Args {
    #[command(flatten)]
    paths: PathArgs,
    /// Against the host as it is now, its own edits merged in
    #[arg(long)]
    merged: bool,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    let (record, paths) = args.paths.resolve(context)?;
    let mut connection = Connection::open(context, &record, Role::Observer)?;
    connection.refresh()?;
    let targets = targets::resolve(&record, &connection.state, &paths, Items::Refused)?;
    let (keys, folded) = chosen(&connection.state, &targets);
    let mut out = Printer {
        out: std::io::BufWriter::new(std::io::stdout().lock()),
        to_terminal: context.stdout_is_terminal,
    };
    let mut layer = WORKSPACE.to_owned();
    let mut complete = true;
    let mut conflicts = false;
    let mut ahead = Ahead::new(keys, args.merged);
    while let Some((key, asked)) = ahead.next(&connection)? {
        let read = if args.merged {
            read_merged(&mut connection, &key)?
        } else {
            read(&mut connection, &key, asked)?
        };
        let (change, contents) = match read {
            Some(Ok(read)) => read,
            Some(Err(why)) if !args.merged => {
                complete = false;
                eprintln_safe(&format!("warning: left out: {why}"));
                continue;
            }
            Some(Err(why)) => {
                conflicts = true;
                eprintln_safe(&format!("conflict in {key}: {why}"));
                tell_standings(connection.state.changes.get(&key).map(Arc::as_ref));
                continue;
            }
            None => continue,
        };
        if args.merged {
            tell_standings(Some(&change));
        }
        // git skips what stands before the first header.
        if change.key.layer != layer {
            layer.clone_from(&change.key.layer);
            out.print(format!("# layer {layer}\n").as_bytes())?;
        }
        complete &= !contents.too_large;
        let entry = PatchEntry {
            change: &change,
            before: contents.before,
            after: contents.after,
        };
        // Of directories git knows nothing that a patch could lose.
        if let Some(why) = left_out(&entry).filter(|_| change.file_type() != FileType::Dir) {
            eprintln_safe(&format!("warning: left out of {key}: {why}"));
        }
        out.print(&patch(&[entry]))?;
    }
    out.out.flush()?;
    for (number, what) in folded {
        if number > 0 {
            eprintln_safe(&match number {
                1 => format!("1 change {what} is left out; name it to see it"),
                _ => format!("{number} changes {what} are left out; name them to see them"),
            });
        }
    }
    Ok(match (complete, conflicts) {
        (false, _) => ExitCode::from(USAGE),
        (true, true) => ExitCode::from(REFUSED),
        (true, false) => ExitCode::SUCCESS,
    })
}

type LeftOut = [(usize, &'static str); 3];

/// The changes to print, by layer and path, and how many are left out for which reason.
fn chosen(state: &SessionState, targets: &[Target]) -> (Vec<LayerPath>, LeftOut) {
    let mut left_out = [
        (0, "that git ignores"),
        (0, "below .git"),
        (0, "in other layers"),
    ];
    let places: Vec<LayerPath> = targets
        .iter()
        .filter_map(|target| match target {
            Target::Path(path) => Some(review::places(&state.changes, path)),
            _ => None,
        })
        .flatten()
        .collect();
    let keys = state
        .changes
        .values()
        .filter(|change| {
            if !targets.is_empty() {
                return review::covers(&places, change);
            }
            let reason = if change.class == Class::Ignored {
                0
            } else if change.key.layer != WORKSPACE {
                2
            } else if change.key.path.components().any(|part| part == b".git") {
                1
            } else {
                return true;
            };
            left_out[reason].0 += 1;
            false
        })
        .map(|change| change.key.clone())
        .collect();
    (keys, left_out)
}

/// An answer that was asked for.
type Asked = Receiver<Result<Reply, Failure>>;

/// Asks for the contents of the next changes while those before them are printed, so that neither
/// side waits for the other at every file.
struct Ahead {
    keys: std::vec::IntoIter<LayerPath>,
    /// With the bytes that the answer may hold, roughly.
    asked: VecDeque<(LayerPath, Option<Asked>, u64)>,
    bytes: u64,
    /// Nothing is asked for ahead of time.
    idle: bool,
}

impl Ahead {
    fn new(keys: Vec<LayerPath>, idle: bool) -> Self {
        Self {
            idle,
            keys: keys.into_iter(),
            asked: VecDeque::new(),
            bytes: 0,
        }
    }

    /// The next change, and the answer that is on its way where it has bytes.
    fn next(
        &mut self,
        connection: &Connection,
    ) -> Result<Option<(LayerPath, Option<Asked>)>, CliError> {
        while self.asked.len() < AHEAD && (self.asked.is_empty() || self.bytes < AHEAD_BYTES) {
            let Some(key) = self.keys.next() else { break };
            let change = connection.state.changes.get(&key).filter(|c| has_bytes(c));
            let (mut asked, mut bytes) = (None, 0);
            if let Some(change) = change.filter(|_| !self.idle) {
                let sides = [&change.before, &change.after];
                bytes = sides.into_iter().flatten().map(|node| node.size).sum();
                let request = Request::Contents(key.clone());
                asked = Some(connection.client.ask(request).map_err(CliError::from)?);
            }
            self.bytes += bytes;
            self.asked.push_back((key, asked, bytes));
        }
        Ok(self.asked.pop_front().map(|(key, asked, bytes)| {
            self.bytes -= bytes;
            (key, asked)
        }))
    }
}

/// Whether there is anything to read of a change.
fn has_bytes(change: &Change) -> bool {
    [&change.before, &change.after]
        .into_iter()
        .flatten()
        .any(|node| matches!(node.file_type, FileType::File | FileType::Symlink))
}

/// A change and the bytes that belong to it, or why they cannot be had; `None` when it is gone by
/// now. `asked`: its contents
/// were asked for before.
fn read(
    connection: &mut Connection,
    key: &LayerPath,
    mut asked: Option<Asked>,
) -> Result<Option<Merged>, CliError> {
    for _ in 0..ATTEMPTS {
        let Some(change) = connection.state.changes.get(key).cloned() else {
            return Ok(None);
        };
        if !has_bytes(&change) {
            let nothing = Contents {
                digest: change.digest,
                before: None,
                after: None,
                too_large: false,
            };
            return Ok(Some(Ok((change, nothing))));
        }
        let asked = match asked.take() {
            Some(asked) => asked,
            None => connection.client.ask(Request::Contents(key.clone()))?,
        };
        match connection.hear(&asked) {
            Ok(Reply::Contents(contents)) if contents.digest == change.digest => {
                return Ok(Some(Ok((change, contents))));
            }
            // It moved, or went, since it was asked for.
            Ok(_) | Err(ClientError::Failed(Failure::UnknownPath(_))) => {}
            // Of this one something is lacking; the others can be printed.
            Err(ClientError::Failed(Failure::Other(why))) => return Ok(Some(Err(why))),
            Err(error) => return Err(error.into()),
        }
        connection.refresh()?;
    }
    Err(
        CliError::refused(format!("{key} keeps changing while it is read"))
            .hint("try again, or `pvisor-tui stop` the command"),
    )
}

/// A change with both sides (as a merge leaves them), or why there is none.
type Merged = Result<(Arc<Change>, Contents), String>;

/// A change as `commit --merge` would carry it out, or why it would not; `None` when it is gone by
/// now.
fn read_merged(connection: &mut Connection, key: &LayerPath) -> Result<Option<Merged>, CliError> {
    for _ in 0..ATTEMPTS {
        let Some(mut change) = connection.state.changes.get(key).cloned() else {
            return Ok(None);
        };
        if change.conflict.is_none() {
            return read(connection, key, None);
        }
        if let Reply::Merged(answer) = connection.call(Request::Merged(key.clone()))? {
            let merged = match *answer {
                Ok(merged) => merged,
                Err(why) => return Ok(Some(Err(why))),
            };
            if merged.digest == change.digest {
                let row = Arc::make_mut(&mut change);
                row.kind = ChangeKind::Modified;
                row.before = Some(Arc::new(merged.host));
                row.after = Some(Arc::new(merged.node));
                let contents = Contents {
                    digest: merged.digest,
                    before: Some(merged.host_bytes),
                    after: Some(merged.bytes),
                    too_large: false,
                };
                return Ok(Some(Ok((change, contents))));
            }
        }
        connection.refresh()?;
    }
    Err(
        CliError::refused(format!("{key} keeps changing while it is read"))
            .hint("try again, or `pvisor-tui stop` the command"),
    )
}

/// How each hunk of a change in conflict stands to the host's edits, one a line.
fn tell_standings(change: Option<&Change>) {
    let Some((change, merges)) = change.and_then(|change| Some((change, change.merges.as_ref()?)))
    else {
        return;
    };
    let hunks: Vec<String> = change
        .items
        .iter()
        .filter_map(|item| {
            let standing = merges.standing(&item.id)?.name();
            Some(format!("  {}#{}: {standing}", change.key, item.id))
        })
        .collect();
    for line in hunks.iter().take(HUNKS) {
        eprintln_safe(line);
    }
    if hunks.len() > HUNKS {
        eprintln_safe(&format!("  and {} hunks more", hunks.len() - HUNKS));
    }
}

struct Printer<W: Write> {
    out: W,
    to_terminal: bool,
}

impl<W: Write> Printer<W> {
    /// Exact to a pipe; to a terminal line by line, tabs kept.
    fn print(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if !self.to_terminal {
            return self.out.write_all(bytes);
        }
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            for (n, part) in line.split(|byte| *byte == b'\t').enumerate() {
                if n > 0 {
                    self.out.write_all(b"\t")?;
                }
                self.out.write_all(visible(part).as_bytes())?;
            }
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }
}

fn eprintln_safe(line: &str) {
    // A closed standard error is no reason to stop.
    let _ = writeln!(std::io::stderr().lock(), "{}", visible(line.as_bytes()));
}

#[cfg(test)]
mod tests {
    use pvisor::RelPath;

    use super::*;
    use crate::cli::fixture::{change, renamed};

    fn state() -> SessionState {
        let mut ignored = change("workspace", b"target/x", &[]);
        ignored.class = Class::Ignored;
        let set = [
            change("workspace", b"a", &[]),
            change("workspace", b"sub/.git/config", &[]),
            ignored,
            change("home", b".profile", &[]),
            renamed("workspace", b"was", b"is", &[]),
        ];
        SessionState {
            changes: set
                .into_iter()
                .map(|c| (c.key.clone(), Arc::new(c)))
                .collect(),
            ..SessionState::default()
        }
    }

    #[test]
    fn without_paths_what_git_apply_takes() {
        let (keys, left_out) = chosen(&state(), &[]);
        let names: Vec<_> = keys.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a", "is"]);
        assert_eq!(left_out.map(|(number, _)| number), [1, 1, 1]);
    }

    #[test]
    fn named_paths_are_never_left_out() {
        let path = |layer: &str, path: &str| {
            Target::Path(LayerPath::new(
                layer,
                RelPath::try_from(path).expect("path"),
            ))
        };
        let targets = [
            path("home", ""),
            path("workspace", "was"),
            path("workspace", "sub"),
        ];
        let (keys, _) = chosen(&state(), &targets);
        let names: Vec<_> = keys.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["home:.profile", "is", "sub/.git/config"]);
    }

    #[test]
    fn exact_to_a_pipe_and_harmless_to_a_terminal() {
        let bytes = b"+\ta\x1b[2J\r\n-\xff\n";
        let printed = |to_terminal| {
            let mut printer = Printer {
                out: Vec::new(),
                to_terminal,
            };
            printer.print(bytes).expect("printed");
            printer.out
        };
        assert_eq!(printed(false), bytes);
        let text = String::from_utf8(printed(true)).expect("text");
        assert!(text.starts_with("+\ta"), "{text:?}");
        assert!(!text.contains('\u{1b}') && !text.contains('\r'), "{text:?}");
        assert_eq!(text.lines().count(), 2);
    }
}
