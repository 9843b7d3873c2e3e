//! Settings: built-in defaults, the user's file, the workspace's file, the environment and flags,
//! merged into one [`Config`]. Owns the file formats and who may set what. Reads files only; the
//! environment and the directories are handed in.
//!
//! The workspace's file is read from the host (never from what an agent staged), only once its
//! digest was trusted, and it can only tighten: it takes things out of the agent's sight.

pub mod answers;
pub mod environment;
pub mod limits;
pub mod load;
pub mod mount;
pub mod nearest;
pub mod presets;
mod rules;
pub mod settings;
pub mod trust;
pub mod workspace;

pub use answers::AnswersError;
pub use environment::{EnvArg, environment};
pub use limits::LimitSettings;
pub use load::{Flag, Loaded, Origin, Sources, load};
pub use mount::{MountError, MountRequest, Places};
pub use settings::{Config, EnvPolicy, Hangup, RuleSettings, SessionSettings};
pub use trust::{Trust, TrustError};
pub use workspace::{WORKSPACE_FILE, WorkspaceFile};

use std::path::PathBuf;

use crate::text::visible;

/// Why the settings could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file could not be read.
    #[error("reading {}: {source}", crate::text::visible_path(path))]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file is not TOML.
    #[error("{}: {message}", crate::text::visible_path(path))]
    Syntax {
        /// Which.
        path: PathBuf,
        /// Where and what, sanitised.
        message: String,
    },
    /// A key that does not exist.
    #[error("{origin} has an unknown setting {}", visible(key.as_bytes()))]
    UnknownKey {
        /// Where it stands.
        origin: Origin,
        /// The key with its tables, joined by dots.
        key: String,
        /// The known key nearest to it.
        nearest: Option<String>,
    },
    /// A value that does not fit.
    #[error("{origin} has a setting that does not fit: {message}")]
    Value {
        /// Where it stands.
        origin: Origin,
        /// What was expected, sanitised.
        message: String,
    },
    /// A workspace's file names something that only its user may set.
    #[error(
        "{} may not set {}: a workspace's file can only tighten",
        crate::text::visible_path(path),
        visible(key.as_bytes())
    )]
    Loosens {
        /// The file.
        path: PathBuf,
        /// The key, or the entry.
        key: String,
    },
    /// The trusted digests could not be read.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

impl ConfigError {
    /// What mends it, when that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            ConfigError::UnknownKey {
                nearest: Some(nearest),
                ..
            } => Some(format!("a setting of a similar name is {nearest}")),
            ConfigError::UnknownKey { .. } => {
                Some("`pvisor-tui config show` lists every setting".into())
            }
            ConfigError::Loosens { .. } => Some(
                "a workspace's file may set hide, network = \"none\", submounts = \"read\" or \
                 \"refuse\", env.drop, rules.deny, rules.ask, rules.warn, and mounts with the access \
                 hide or private"
                    .into(),
            ),
            _ => None,
        }
    }
}
