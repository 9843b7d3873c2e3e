//! The settings as the rest of the program reads them. Owns their names and types; every default
//! stands in `default.toml`, none here.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::LimitSettings;
use crate::sandbox::spec::Network;
use crate::sandbox::{Mode, Submounts};

/// What becomes of a running command when the screen that started it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hangup {
    /// It goes on; `attach` finds it again.
    Keep,
    /// It is stopped.
    Stop,
}

/// What of the caller's environment reaches the agent. Patterns are exact names, or a beginning
/// followed by `*`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvPolicy {
    /// Passed besides the presets.
    pub pass: Vec<String>,
    /// Never passed.
    pub drop: Vec<String>,
    /// Set to fixed values.
    pub set: BTreeMap<String, String>,
    /// Named lists that are passed.
    pub presets: BTreeMap<String, Vec<String>>,
}

/// Rules on paths, as globs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSettings {
    /// Denied.
    pub deny: Vec<String>,
    /// Asked about.
    pub ask: Vec<String>,
    /// Remarked.
    pub warn: Vec<String>,
    /// Entries of the built-in list that do not hold.
    pub lift: Vec<String>,
}

/// Every setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How a command is run.
    pub mode: Mode,
    /// The agent's network.
    pub network: Network,
    /// Whether renames of the host's directories are helped over the kernel's `EXDEV`.
    pub rename_shim: bool,
    /// What becomes of a running command when the screen that started it is gone.
    pub hangup: Hangup,
    /// Name of a theme.
    pub theme: String,
    /// Whether the screen uses the mouse.
    pub mouse: bool,
    /// Lines of the agent's terminal that are kept.
    pub scrollback: u32,
    /// Most that is kept of the agent's output, in MiB.
    pub record_mib: u32,
    /// How many commits of a session can be undone.
    pub keep_undo: u32,
    /// Seconds a question waits for a person.
    pub ask_timeout: u32,
    /// Mounts as for `--mount`.
    pub mounts: Vec<String>,
    /// What becomes of mounts inside staged directories.
    pub submounts: Submounts,
    /// What is known of the command: `auto`, `none`, or a preset's name.
    pub preset: String,
    /// Paths that the agent does not see.
    pub hide: Vec<String>,
    /// Paths of the built-in list that it may see.
    pub unhide: Vec<String>,
    /// Rules on paths.
    pub rules: RuleSettings,
    /// Upper bounds on what the command uses.
    pub limits: LimitSettings,
    /// The agent's environment.
    pub env: EnvPolicy,
    /// Keys of named actions.
    #[serde(deserialize_with = "keys")]
    pub keys: BTreeMap<String, Vec<String>>,
}

/// The settings that the session's server needs. Fixed at a session's start and recorded with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SessionSettings {
    /// Most that is kept of the agent's output, in bytes.
    pub record_cap: u64,
    /// How many commits can be undone.
    pub keep_undo: u32,
    /// Lines of the agent's terminal that are kept.
    pub scrollback: u32,
}

impl Default for SessionSettings {
    /// The values of `default.toml`, for a server that was started without a configuration.
    fn default() -> Self {
        Self {
            record_cap: 256 << 20,
            keep_undo: 20,
            scrollback: 10_000,
        }
    }
}

impl Config {
    /// What the session's server needs of these.
    pub fn session(&self) -> SessionSettings {
        SessionSettings {
            record_cap: u64::from(self.record_mib) << 20,
            keep_undo: self.keep_undo,
            scrollback: self.scrollback,
        }
    }
}

/// One key may stand without a list around it.
fn keys<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Keys {
        One(String),
        Several(Vec<String>),
    }
    let table = BTreeMap::<String, Keys>::deserialize(deserializer)?;
    Ok(table
        .into_iter()
        .map(|(action, keys)| match keys {
            Keys::One(key) => (action, vec![key]),
            Keys::Several(keys) => (action, keys),
        })
        .collect())
}
