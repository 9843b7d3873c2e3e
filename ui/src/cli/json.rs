//! The JSON of `--json`: stable, documented, exact. Owns the names of the fields; what they say is
//! taken from the engine's types. A name that is not UTF-8 appears as text with replacement
//! characters, and its exact bytes beside it in base64 (`*_b64`).

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use base64::Engine as _;
use pvisor::change::{Change, ChangeKind, Class, Conflict};
use pvisor::commit::Outcome;
use pvisor::diff::{Item, Span};
use pvisor::doctor;
use pvisor::layer::{Layer, Timestamp};
use pvisor::review::{FileDecision, item_summary, reason, summary};
use pvisor::sandbox::{Boundary, ExitStatus};
use pvisor::session::state::SessionState;
use pvisor::session::store::SessionRecord;
use pvisor::{LayerPath, RelPath};
use serde::Serialize;

use super::error::CliError;

/// Prints one value and a newline.
pub fn print(value: &impl Serialize) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

/// Text, and the exact bytes when it is not UTF-8.
pub fn text_and_bytes(bytes: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (
            String::from_utf8_lossy(bytes).into_owned(),
            Some(base64::engine::general_purpose::STANDARD.encode(bytes)),
        ),
    }
}

/// Seconds since the epoch as RFC 3339 in UTC.
pub fn time(time: Timestamp) -> String {
    jiff::Timestamp::new(time.sec, time.nsec as i32)
        .map_or_else(|_| time.sec.to_string(), |time| time.to_string())
}

/// `status --json`, and an element of `list --json`.
#[derive(Debug, Serialize)]
pub struct Status {
    /// Id.
    pub session: String,
    /// A person's name for it.
    pub name: String,
    /// `running`, `exited`, `lost`, `committed` or `discarded`.
    pub state: &'static str,
    /// The last command's exit status as a shell gives it; null while none has ended.
    pub exit: Option<u8>,
    /// The session's directory.
    pub dir: String,
    /// Exact bytes of `dir`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir_b64: Option<String>,
    /// The workspace's root on the host.
    pub workspace: String,
    /// Exact bytes of `workspace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_b64: Option<String>,
    /// `staged` or `host`.
    pub mode: &'static str,
    /// Program and arguments of the first command.
    pub command: Vec<String>,
    /// Who started it.
    pub user: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// When the last command ended, RFC 3339.
    pub ended: Option<String>,
    /// The staged layers.
    pub layers: Vec<LayerInfo>,
    /// What was really put in force.
    pub boundary: Boundary,
    /// Commits carried out, undos not counted.
    pub commits: u32,
}

impl From<&SessionRecord> for Status {
    fn from(record: &SessionRecord) -> Self {
        let info = &record.info;
        let (dir, dir_b64) = path(&info.dir);
        let (workspace, workspace_b64) = path(&info.workspace);
        Self {
            session: info.id.clone(),
            name: info.name.clone(),
            state: record.state.name(),
            exit: record.exit.and_then(ExitStatus::known),
            dir,
            dir_b64,
            workspace,
            workspace_b64,
            mode: info.mode.name(),
            command: info.command.clone(),
            user: info.user.clone(),
            started: time(info.started),
            ended: record.ended.map(time),
            layers: info.layers.iter().map(LayerInfo::from).collect(),
            boundary: record.boundary.clone(),
            commits: record.commits,
        }
    }
}

/// A staged layer.
#[derive(Debug, Serialize)]
pub struct LayerInfo {
    /// Name.
    pub name: String,
    /// The host directory that is staged.
    pub root: String,
    /// Exact bytes of `root`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_b64: Option<String>,
    /// Who merges it.
    pub driver: &'static str,
}

impl From<&Layer> for LayerInfo {
    fn from(layer: &Layer) -> Self {
        let (root, root_b64) = path(&layer.root);
        Self {
            name: layer.name.clone(),
            root,
            root_b64,
            driver: layer.driver.name(),
        }
    }
}

/// `changes --json`.
#[derive(Debug, Serialize)]
pub struct Changes {
    /// Id of the session.
    pub session: String,
    /// As in `status --json`.
    pub state: &'static str,
    /// The staged layers.
    pub layers: Vec<LayerInfo>,
    /// How many there are of each.
    pub counts: Counts,
    /// Every change, by layer and path.
    pub changes: Vec<ChangeInfo>,
}

impl Changes {
    /// Of a session, from what was agreed.
    pub fn new(record: &SessionRecord, run: &'static str, state: &SessionState) -> Self {
        Self {
            session: record.info.id.clone(),
            state: run,
            layers: record.info.layers.iter().map(LayerInfo::from).collect(),
            counts: Counts::of(state.changes.values()),
            changes: state
                .changes
                .values()
                .map(|change| ChangeInfo::new(change, state.decisions.get(&change.key)))
                .collect(),
        }
    }
}

/// Numbers of changes by kind. What is ignored by git's rules is counted under `ignored` only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// New entries.
    pub added: usize,
    /// Content differs.
    pub modified: usize,
    /// Gone.
    pub deleted: usize,
    /// Under a new name.
    pub renamed: usize,
    /// Permission bits only.
    pub mode: usize,
    /// Another type of entry.
    pub r#type: usize,
    /// xattrs, owner or times only.
    pub meta: usize,
    /// Ignored, whatever their kind.
    pub ignored: usize,
}

impl Counts {
    /// Counts.
    pub fn of<'a>(changes: impl Iterator<Item = &'a Change>) -> Self {
        let mut counts = Self::default();
        for change in changes {
            *match (change.class, &change.kind) {
                (Class::Ignored, _) => &mut counts.ignored,
                (_, ChangeKind::Added) => &mut counts.added,
                (_, ChangeKind::Modified) => &mut counts.modified,
                (_, ChangeKind::Deleted) => &mut counts.deleted,
                (_, ChangeKind::Renamed { .. }) => &mut counts.renamed,
                (_, ChangeKind::Mode) => &mut counts.mode,
                (_, ChangeKind::Type) => &mut counts.r#type,
                (_, ChangeKind::Meta) => &mut counts.meta,
            } += 1;
        }
        counts
    }

    /// Each word with its number, zeros left out.
    pub fn words(&self) -> Vec<(&'static str, usize)> {
        [
            ("added", self.added),
            ("modified", self.modified),
            ("deleted", self.deleted),
            ("renamed", self.renamed),
            ("mode", self.mode),
            ("type", self.r#type),
            ("meta", self.meta),
            ("ignored", self.ignored),
        ]
        .into_iter()
        .filter(|(_, number)| *number > 0)
        .collect()
    }
}

/// One change.
#[derive(Debug, Serialize)]
pub struct ChangeInfo {
    /// Layer's name.
    pub layer: String,
    /// Path below the layer's root.
    pub path: String,
    /// Exact bytes of `path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<String>,
    /// `plain`, `ignored` or `git-object`.
    pub class: &'static str,
    /// `added`, `modified`, `deleted`, `renamed`, `mode`, `type` or `meta`.
    pub kind: &'static str,
    /// Old path of a rename.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Exact bytes of `from`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_b64: Option<String>,
    /// `file`, `dir`, `symlink`, `fifo`, `socket` or `device`.
    pub r#type: &'static str,
    /// Type and permission bits in octal, as git writes them.
    pub mode: Sides<String>,
    /// Apparent size in bytes.
    pub size: Sides<u64>,
    /// Either side is not text.
    pub binary: bool,
    /// Lines added.
    pub added: u32,
    /// Lines removed.
    pub removed: u32,
    /// Names exactly this change; `approve --expect` takes it.
    pub digest: String,
    /// Why it deserves a second look, heaviest first.
    pub risks: Vec<&'static str>,
    /// `undecided`, `approved`, `rejected` or `mixed`.
    pub decision: &'static str,
    /// Why it was rejected: the reasons given.
    pub reason: Option<String>,
    /// What the host did meanwhile, one sentence; null when nothing.
    pub conflict: Option<String>,
    /// What can be decided on, in file order.
    pub items: Vec<ItemInfo>,
}

/// Both sides of a change; null where there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sides<T> {
    /// The baseline's.
    pub before: Option<T>,
    /// The agent's.
    pub after: Option<T>,
}

/// One item of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ItemInfo {
    /// What stands behind `#` on the command line.
    pub id: String,
    /// `whole`, `hunk`, `mode`, `eof`, `link` or `meta`.
    pub kind: &'static str,
    /// First line and number of lines taken away.
    pub old: [u32; 2],
    /// First line and number of lines brought.
    pub new: [u32; 2],
    /// As for the change; `mixed` when lines of it were decided apart.
    pub decision: &'static str,
}

impl ChangeInfo {
    /// A change with what was said of it.
    pub fn new(change: &Change, decision: Option<&FileDecision>) -> Self {
        // What was said of other content is void.
        let decision = decision.filter(|decision| decision.digest == change.digest);
        let (name, path_b64) = text_and_bytes(change.key.path.as_bytes());
        let from = change.from().map(RelPath::as_bytes).map(text_and_bytes);
        let (from, from_b64) = from.map_or((None, None), |(text, b64)| (Some(text), b64));
        let mode = |node: &pvisor::layer::Node| format!("{:06o}", node.full_mode());
        Self {
            layer: change.key.layer.clone(),
            path: name,
            path_b64,
            class: change.class.name(),
            kind: change.kind.name(),
            from,
            from_b64,
            r#type: change.file_type().name(),
            mode: Sides {
                before: change.before.as_ref().map(mode),
                after: change.after.as_ref().map(mode),
            },
            size: Sides {
                before: change.before.as_ref().map(|node| node.size),
                after: change.after.as_ref().map(|node| node.size),
            },
            binary: change.binary,
            added: change.added,
            removed: change.removed,
            digest: change.digest.to_string(),
            risks: change.risks.iter().map(|risk| risk.name()).collect(),
            decision: summary(change, decision).name(),
            reason: decision.and_then(reason),
            conflict: change.conflict.as_ref().map(Conflict::describe),
            items: change
                .items
                .iter()
                .map(|item| ItemInfo::new(item, decision))
                .collect(),
        }
    }
}

impl ItemInfo {
    fn new(item: &Item, decision: Option<&FileDecision>) -> Self {
        let span = |span: Span| [span.start, span.len];
        Self {
            id: item.id.to_string(),
            kind: item.kind.name(),
            old: span(item.old),
            new: span(item.new),
            decision: item_summary(item, decision).name(),
        }
    }
}

/// A path in a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathInfo {
    /// Layer's name.
    pub layer: String,
    /// Path below the layer's root.
    pub path: String,
    /// Exact bytes of `path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<String>,
}

impl From<&LayerPath> for PathInfo {
    fn from(key: &LayerPath) -> Self {
        let (path, path_b64) = text_and_bytes(key.path.as_bytes());
        Self {
            layer: key.layer.clone(),
            path,
            path_b64,
        }
    }
}

/// A path that stood in the way of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedInfo {
    /// Where.
    #[serde(flatten)]
    pub path: PathInfo,
    /// Why, one sentence.
    pub reason: String,
}

/// `commit --json` and `undo --json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct CommitInfo {
    /// `committed`, `refused` or `nothing`; `planned` for a dry run; `unsettled` when a crash or an
    /// I/O error left the batch unfinished.
    pub state: &'static str,
    /// What was written, in order.
    pub committed: Vec<PathInfo>,
    /// What a dry run would write, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub planned: Vec<PathInfo>,
    /// What stood in the way.
    pub refused: Vec<RefusedInfo>,
    /// Number of the commit within the session.
    pub commit: Option<u32>,
    /// What happened, when it is unsettled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where the ledger lies, when it is unsettled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<String>,
}

impl From<&Outcome> for CommitInfo {
    fn from(outcome: &Outcome) -> Self {
        let infos = |paths: &[LayerPath]| paths.iter().map(PathInfo::from).collect();
        match outcome {
            Outcome::Committed { number, paths } => Self {
                state: "committed",
                committed: infos(paths),
                commit: Some(*number),
                ..Self::default()
            },
            Outcome::Refused { refusals } => Self {
                state: "refused",
                refused: refusals
                    .iter()
                    .map(|refusal| RefusedInfo {
                        path: (&refusal.key).into(),
                        reason: refusal.reason.clone(),
                    })
                    .collect(),
                ..Self::default()
            },
            Outcome::Planned { paths } => Self {
                state: "planned",
                planned: infos(paths),
                ..Self::default()
            },
            Outcome::Nothing => Self {
                state: "nothing",
                ..Self::default()
            },
            Outcome::Unsettled {
                number,
                reason,
                ledger,
            } => Self {
                state: "unsettled",
                commit: Some(*number),
                reason: Some(reason.clone()),
                ledger: Some(path(ledger).0),
                ..Self::default()
            },
        }
    }
}

/// `doctor --json`.
#[derive(Debug, Serialize)]
pub struct Doctor {
    /// A staged session can run.
    pub ok: bool,
    /// What was tried, in order.
    pub checks: Vec<CheckInfo>,
}

/// One thing that was tried.
#[derive(Debug, Serialize)]
pub struct CheckInfo {
    /// What.
    pub name: String,
    /// Whether it works.
    pub ok: bool,
    /// Whether a staged session needs it.
    pub needed: bool,
    /// What was seen.
    pub detail: String,
    /// The command that mends it.
    pub remedy: Option<String>,
}

impl From<&doctor::Report> for Doctor {
    fn from(report: &doctor::Report) -> Self {
        Self {
            ok: report.staged_works(),
            checks: report
                .checks
                .iter()
                .map(|check| CheckInfo {
                    name: check.name.clone(),
                    ok: check.ok,
                    needed: check.needed,
                    detail: check.detail.clone(),
                    remedy: check.remedy.clone(),
                })
                .collect(),
        }
    }
}

/// `config show --json`: by key, in order.
pub type Settings = BTreeMap<String, Vec<Setting>>;

/// A value and where it came from.
#[derive(Debug, Serialize)]
pub struct Setting {
    /// The value; of a list the entries that share an origin.
    pub value: serde_json::Value,
    /// Where from.
    pub origin: String,
}

fn path(path: &Path) -> (String, Option<String>) {
    text_and_bytes(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests;
