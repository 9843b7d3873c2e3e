//! Rules over paths: what an agent may not touch, what a person is asked about, what is only
//! remarked. Owns the vocabulary and the decision; no I/O.
//!
//! A rule names a glob below a layer's root (`*` stays in one directory, `**` crosses; a match on a
//! directory covers what lies in it). The strictest match wins: deny, then ask, then warn.

use serde::{Deserialize, Serialize};

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

/// Every rule of a session, in the order they were read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Policy {
    /// The rules.
    pub rules: Vec<Rule>,
}
