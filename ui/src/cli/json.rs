//! The JSON of `--json`: stable, documented, exact. Owns the names of the fields; what they say is
//! taken from the engine's types. A name that is not UTF-8 appears as text with replacement
//! characters, and its exact bytes beside it in base64 (`*_b64`).

mod change;
mod guard;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use base64::Engine as _;
use pvisor::LayerPath;
use pvisor::commit::{LateSave, Outcome};
use pvisor::doctor;
use pvisor::layer::{Layer, Timestamp};
use pvisor::sandbox::{Boundary, ExitStatus};
use pvisor::session::recover::is_unsettled;
use pvisor::session::store::SessionRecord;
use pvisor::text;
use serde::Serialize;

use super::error::CliError;

pub use change::{ChangeInfo, Changes, Counts, ItemInfo, Sides};
pub use guard::{AnswerInfo, AskInfo, GuardInfo, RemarkInfo, RuleInfo};

/// Prints one value and a newline.
pub fn print(value: &impl Serialize) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    write_escaped(&serde_json::to_string_pretty(value)?, &mut out)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

/// Writes JSON so that it may go to a terminal: what steers one or cannot be seen is escaped, which
/// changes nothing for a program that reads it.
pub fn write_escaped(json: &str, out: &mut impl Write) -> io::Result<()> {
    // Below the space there is only the line break between values: strings escape it themselves.
    let escaped = |c: char| c > ' ' && text::steers(c);
    let mut rest = json;
    while let Some(at) = rest.find(escaped) {
        let (plain, tail) = rest.split_at(at);
        out.write_all(plain.as_bytes())?;
        let mut chars = tail.chars();
        for unit in chars.next().unwrap_or_default().encode_utf16(&mut [0; 2]) {
            write!(out, "\\u{unit:04x}")?;
        }
        rest = chars.as_str();
    }
    out.write_all(rest.as_bytes())
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
    /// The process of ours that was lost while the command ran, as far as it is known; the command was
    /// killed with it, and `exit` is 137, or null when nobody saw it end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<&'static str>,
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
    /// Whether a commit was left unfinished, or is just under way; `recover` settles it.
    pub needs_recover: bool,
    /// Saves of other programs that came too late for a commit and lie in what it displaced; `undo`
    /// of that commit brings them back.
    pub late_saves: Vec<LateSaveInfo>,
    /// Rules in force and what waits for a person; `status --json` only, empty once the command has
    /// ended.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardInfo>,
}

/// A save in what a commit displaced.
#[derive(Debug, Serialize)]
pub struct LateSaveInfo {
    /// The commit's number.
    pub commit: u32,
    /// What was saved.
    pub path: String,
    /// Where it is kept.
    pub kept: String,
}

impl From<&LateSave> for LateSaveInfo {
    fn from(save: &LateSave) -> Self {
        Self {
            commit: save.number,
            path: save.key.to_string(),
            kept: path(&save.kept).0,
        }
    }
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
            lost: record.exit.and_then(ExitStatus::lost),
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
            needs_recover: is_unsettled(record),
            late_saves: Vec::new(),
            guard: None,
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
    /// Those of `committed` or `planned` that are merged with the host's own edits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<PathInfo>,
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
            Outcome::Committed {
                number,
                paths,
                merged,
            } => Self {
                state: "committed",
                committed: infos(paths),
                merged: infos(merged),
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
            Outcome::Planned { paths, merged } => Self {
                state: "planned",
                planned: infos(paths),
                merged: infos(merged),
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
