//! The agreed state of a session and its one reducer. Owns what server, client, replay and tests
//! all know; no I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::LayerPath;
use crate::change::{Change, ChangeSet};
use crate::commit::Outcome;
use crate::layer::{Digest, Layer, Timestamp};
use crate::policy::message::{Attempted, Withdrawn};
use crate::policy::{Answer, AnswerFiles, Level, Rule};
use crate::review::{Decisions, FileDecision};
use crate::sandbox::{Boundary, ExitStatus, Mode};

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// The command runs.
    Running,
    /// The command has ended.
    Exited,
    /// The server was lost while the command ran.
    Lost,
    /// Ended, a commit holds (it was not undone), and of what `--all` takes nothing is left but what
    /// was rejected. A change that turns up or is reset brings back `Exited` or `Lost`.
    Committed,
    /// The staged side was thrown away.
    Discarded,
}

impl RunState {
    /// The word used in listings.
    pub fn name(self) -> &'static str {
        match self {
            RunState::Running => "running",
            RunState::Exited => "exited",
            RunState::Lost => "lost",
            RunState::Committed => "committed",
            RunState::Discarded => "discarded",
        }
    }
}

/// What a session is: fixed at its start. The content of `session.json` begins with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Unique, sorts by start: `20261130-131602-x7k2`.
    pub id: String,
    /// A person's name for it, or the program's with a number.
    pub name: String,
    /// Name of the user who started it.
    pub user: String,
    /// Mode.
    pub mode: Mode,
    /// Program and arguments, lossy text (for showing only).
    pub command: Vec<String>,
    /// The session's directory.
    #[serde(with = "crate::path::exact_path")]
    pub dir: PathBuf,
    /// The workspace's root on the host, canonical.
    #[serde(with = "crate::path::exact_path")]
    pub workspace: PathBuf,
    /// Staged layers.
    pub layers: Vec<Layer>,
    /// When it began.
    pub started: Timestamp,
    /// What of the configuration its server goes by.
    pub settings: crate::config::SessionSettings,
}

/// One commit or undo that was carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitRecord {
    /// Number within the session, from 1.
    pub number: u32,
    /// Set when it was the undo of this commit.
    pub undoes: Option<u32>,
    /// What was written.
    pub paths: Vec<LayerPath>,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: String,
}

/// A person attached to the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// Connection number.
    pub client: u64,
    /// User name.
    pub user: String,
    /// Role.
    pub role: crate::protocol::Role,
}

/// An operation that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Number within the session, from 1.
    pub id: u64,
    /// What waits, and the rule because of which it does.
    pub what: Attempted,
    /// Since when.
    pub at: Timestamp,
    /// When it counts as denied.
    pub until: Timestamp,
}

/// What ended a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AnsweredBy {
    /// A person, by user name.
    Person(String),
    /// An answer remembered by this person, which it did not bring itself.
    Remembered(String),
    /// A person whose answer could not be saved: denied.
    Unsaved(String),
    /// Nobody.
    Nobody(Withdrawn),
}

/// A `warn` or `deny` rule has spoken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    /// Which level.
    pub level: Level,
    /// What was attempted.
    pub what: Attempted,
    /// When.
    pub at: Timestamp,
}

/// An agreed fact, in the past tense. Journalled, one a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Update {
    /// The session was made.
    Opened(Box<SessionInfo>),
    /// A command was started.
    Started {
        /// What was put in force.
        boundary: Box<Boundary>,
        /// Program and arguments, lossy text.
        command: Vec<String>,
        /// When.
        at: Timestamp,
    },
    /// The command ended.
    Exited {
        /// How.
        status: ExitStatus,
        /// When.
        at: Timestamp,
    },
    /// The server was found dead while the command ran.
    Lost,
    /// The change set differs from the last one by this.
    ChangesMoved {
        /// New or different changes.
        changed: Vec<Arc<Change>>,
        /// No longer changes.
        gone: Vec<LayerPath>,
    },
    /// Decisions on one change are now these; `None` takes all back.
    Decided {
        /// Which change.
        key: LayerPath,
        /// All its decisions.
        decision: Option<FileDecision>,
    },
    /// Changes were taken back in the agent's view.
    Reverted {
        /// Which.
        paths: Vec<LayerPath>,
        /// Who.
        by: String,
    },
    /// A commit or an undo was carried out.
    Committed(CommitRecord),
    /// A commit or undo was refused or is unsettled.
    NotCommitted(Outcome),
    /// The staged side was thrown away.
    Discarded,
    /// These rules hold for the command that was started, and these answers settle their questions.
    Guarded {
        /// The rules.
        rules: Vec<Rule>,
        /// The answers.
        answers: Vec<Answer>,
        /// Where answers are kept.
        files: AnswerFiles,
    },
    /// An operation waits for a person.
    Asked(Box<Ask>),
    /// It does not any more.
    Answered {
        /// Number of the question.
        ask: u64,
        /// Whether it was allowed.
        allow: bool,
        /// What ended it.
        by: AnsweredBy,
        /// When.
        at: Timestamp,
    },
    /// An answer is remembered from now on.
    Remembered(Answer),
    /// It is not any more.
    Forgotten(Answer),
    /// A `warn` or `deny` rule has spoken.
    Warned(Box<Remark>),
    /// So many more remarks were left out.
    WarnedMore(u64),
    /// Somebody came.
    Joined(Person),
    /// Somebody left.
    Left(u64),
    /// Something the person should know, sanitised.
    Noticed(String),
    /// As [`Update::Decided`], of many changes at once.
    DecidedTogether(Vec<(LayerPath, Option<FileDecision>)>),
}

/// Everything agreed so far: what `apply` has made of the updates.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SessionState {
    /// Set by the first update.
    pub info: Option<Box<SessionInfo>>,
    /// Where it stands; `None` before a command was started.
    pub run: Option<RunState>,
    /// What is in force, or was in the last run.
    pub boundary: Boundary,
    /// How the last command ended.
    pub exit: Option<ExitStatus>,
    /// When the last command ended.
    pub ended: Option<Timestamp>,
    /// The change set.
    pub changes: ChangeSet,
    /// Decisions; those of changes that moved on are voided by the reducer.
    pub decisions: Decisions,
    /// How many updates about decisions were applied. A client tells with a decision what it knew.
    pub said: u64,
    /// Changes whose decisions were voided because the agent went on, with the digest that had been
    /// decided on: "changed since you looked". Until the next decision on them.
    pub voided: BTreeMap<LayerPath, Digest>,
    /// Rejections on changes of which a commit took something: they hold for what is left of the
    /// change when the next change set brings it. (They permit nothing, so they may.)
    pub carried: Decisions,
    /// Commits and undos in order.
    pub commits: Vec<CommitRecord>,
    /// The rules in force; empty when nothing stands between the agent and its files that could
    /// hold them.
    pub rules: Vec<Rule>,
    /// Remembered answers.
    pub answers: Vec<Answer>,
    /// Where answers are kept that outlive the session.
    pub answer_files: AnswerFiles,
    /// Operations that wait, by number.
    pub asks: BTreeMap<u64, Ask>,
    /// The highest number a question had.
    pub last_ask: u64,
    /// What rules remarked, oldest first, at most 200.
    pub remarks: Vec<Remark>,
    /// Remarks that are not among them.
    pub more_remarks: u64,
    /// Who is attached. Not journalled.
    pub people: Vec<Person>,
    /// The last refusal or unsettled outcome.
    pub last_outcome: Option<Outcome>,
    /// The last notices, oldest first, at most 100.
    pub notices: Vec<String>,
}

impl SessionState {
    /// Numbers of the commits that no later undo has taken back, the newest first.
    pub fn undoable(&self) -> impl Iterator<Item = u32> {
        let undone: BTreeSet<u32> = self.commits.iter().filter_map(|c| c.undoes).collect();
        let commits = self.commits.iter().rev().filter(|c| c.undoes.is_none());
        commits
            .map(|commit| commit.number)
            .filter(move |number| !undone.contains(number))
    }

    /// What throwing the stage away takes from the commits: a sentence, or nothing where there is
    /// none to undo.
    pub fn lost_undo(&self) -> Option<String> {
        let mut numbers: Vec<String> = self.undoable().map(|n| n.to_string()).collect();
        numbers.reverse();
        let (what, verb) = match numbers.len() {
            0 => return None,
            1 => ("Commit", "stays"),
            _ => ("Commits", "stay"),
        };
        let numbers = numbers.join(", ");
        Some(format!(
            "{what} {numbers} {verb} on the host and can no longer be undone."
        ))
    }

    /// The absolute host path of an entry, in bytes; of a layer that is not staged here the path
    /// below the file system's root.
    pub fn absolute(&self, key: &LayerPath) -> Vec<u8> {
        let layers = self.info.as_ref().map(|info| info.layers.as_slice());
        let layer = layers
            .unwrap_or_default()
            .iter()
            .find(|layer| layer.name == key.layer);
        let root = layer.map_or(b"/".as_slice(), |layer| {
            layer.root.as_os_str().as_encoded_bytes()
        });
        let place = crate::policy::Place {
            root,
            folds_case: false,
        };
        place.absolute(&key.path)
    }
}
