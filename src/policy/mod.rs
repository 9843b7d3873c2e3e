//! Rules over paths: what an agent may not touch, what a person is asked about, what is only
//! remarked. Owns the vocabulary, the matching and the messages between who serves the files (the
//! [`gate`]) and the session; no I/O but in the gate.
//!
//! A rule names a glob: `*` stays in one directory, `**` crosses; a match on a directory covers
//! what lies in it. A glob without a slash is a name at any depth; one with a slash counts from a
//! layer's root; one that begins with `/` or `~/` is about the absolute path. The strictest match
//! wins, whoever said it: deny, then ask, then warn. A remembered [`Answer`] settles what is asked
//! about and never lifts a deny.
//!
//! Rules hold where our own file server stands between the agent and its files (the `fuse`
//! driver). The built-in list alone is no reason to choose it.

pub mod answer;
mod builtin;
pub mod gate;
mod matcher;
pub mod message;
pub mod observed;
mod parse;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::overlay::Access;

pub use answer::{Answer, AnswerFiles, Pattern, Scope, Subject};
pub use builtin::{builtin, builtin_globs, is_builtin};
pub use gate::Gate;
pub use matcher::{Matcher, Place};
pub use observed::{Observations, PathCounts};
pub use parse::RuleError;

/// What a rule says about the paths it matches; later ones are stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Allowed, and remarked.
    Warn,
    /// The operation waits for a person; without an answer it is denied.
    Ask,
    /// Not listed, not opened, not made, not moved.
    Deny,
}

impl Level {
    /// All of them.
    pub const ALL: [Level; 3] = [Level::Warn, Level::Ask, Level::Deny];

    /// The word on the command line, in settings and in records.
    pub fn name(self) -> &'static str {
        match self {
            Level::Warn => "warn",
            Level::Ask => "ask",
            Level::Deny => "deny",
        }
    }
}

/// Who said so; later ones are nearer to the person at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The built-in list.
    BuiltIn,
    /// The user's configuration.
    User,
    /// The workspace's configuration.
    Workspace,
    /// This session: a flag, or an answer given in it.
    Session,
}

impl Origin {
    /// How it is called in listings.
    pub fn name(self) -> &'static str {
        match self {
            Origin::BuiltIn => "built-in",
            Origin::User => "user",
            Origin::Workspace => "workspace",
            Origin::Session => "session",
        }
    }
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// What it says.
    pub level: Level,
    /// The glob as it was written.
    pub glob: String,
    /// Who said so.
    pub origin: Origin,
}

/// Every rule of a session in the order they were read, and what settles its questions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The rules.
    pub rules: Vec<Rule>,
    /// Answers given before.
    pub answers: Vec<Answer>,
    /// What `~/` at the beginning of a glob stands for.
    #[serde(with = "crate::path::exact_path")]
    pub home: PathBuf,
    /// How long a question waits for a person before it counts as denied.
    pub ask_timeout: Duration,
    /// Where answers go that outlive the session.
    pub files: AnswerFiles,
}

/// How long a question waits when nothing else is said.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(300);

impl Default for Policy {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            answers: Vec::new(),
            home: PathBuf::new(),
            ask_timeout: ASK_TIMEOUT,
            files: AnswerFiles::default(),
        }
    }
}

impl Policy {
    /// The rule because of which the kernel's overlay will not do: the first that a person gave.
    /// The built-in list holds where the file server is used anyway, and forces nothing.
    pub fn needs_file_server(&self) -> Option<&Rule> {
        self.rules
            .iter()
            .find(|rule| rule.origin != Origin::BuiltIn)
    }

    /// Whether a person may have to be asked.
    pub fn asks(&self) -> bool {
        self.rules.iter().any(|rule| rule.level == Level::Ask)
    }

    /// What is in force, in one sentence for the boundary.
    pub fn describe(&self) -> String {
        let given = self
            .rules
            .iter()
            .filter(|r| r.origin != Origin::BuiltIn)
            .count();
        format!(
            "rules on paths are in force: {} of the built-in list, {given} given",
            self.rules.len() - given
        )
    }
}

/// The word for an access in listings and questions.
pub fn access_word(access: Access) -> &'static str {
    match access {
        Access::Lookup => "look up",
        Access::List => "list",
        Access::Read => "read",
        Access::Write => "write",
        Access::Create => "create",
        Access::Remove => "remove",
    }
}
