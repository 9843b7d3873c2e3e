//! What a sandbox is asked to be. Owns the description only.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Mode;
use crate::layer::Layer;
use crate::policy::Policy;

/// What the agent may do with a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountAccess {
    /// Seen, not written.
    Read,
    /// A staged layer.
    Stage,
    /// Written directly: not staged, and said so in the boundary.
    Write,
    /// Not seen: an empty, unreadable place.
    Hide,
    /// An empty place of the session's own.
    Private,
    /// A private place that lives on across sessions.
    Keep,
}

/// One `--mount SRC[:DST]:ACCESS`, resolved: absolute paths, no links in the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountSpec {
    /// Host path.
    pub source: PathBuf,
    /// Path inside; the source's own unless said otherwise.
    pub target: PathBuf,
    /// What may be done with it.
    pub access: MountAccess,
    /// Name of the layer when it is staged, of the kept directory when it is kept; from the path when
    /// absent.
    pub name: Option<String>,
}

/// The agent's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// The host's own.
    #[default]
    Host,
    /// None but a loopback of its own.
    None,
}

impl Network {
    /// The name used on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Network::Host => "host",
            Network::None => "none",
        }
    }
}

/// Who is to merge the staged layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriverChoice {
    /// Per layer the fastest that can do what is asked.
    #[default]
    Auto,
    /// The kernel, or nothing runs.
    Overlayfs,
    /// Our overlay file system.
    Fuse,
}

/// How long what the file server said may be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheMode {
    /// By the kernel, for a second.
    #[default]
    Default,
    /// Besides, the file server keeps the metadata of lowers that are declared immutable.
    ImmutableLower,
    /// By the kernel, for the mount's whole life.
    Extended,
}

/// Upper bounds on what the command uses. What could not be put in force is said in the boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of all processes together, in bytes.
    pub memory: Option<u64>,
    /// Processor time, in thousandths of a processor.
    pub cpu_millis: Option<u64>,
    /// Processes and threads at once.
    pub processes: Option<u64>,
    /// Size of one file, in bytes.
    pub file_size: Option<u64>,
    /// Open descriptors of one process.
    pub open_files: Option<u64>,
    /// What the uppers may hold together, in bytes.
    pub stage: Option<u64>,
}

/// Rows and columns of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// What the command's standard streams are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdio {
    /// A terminal of the sandbox's own devpts.
    Pty(TerminalSize),
    /// Three pipes.
    Pipes,
}

/// Everything needed to start a command. Built by the session from flags and config; every path
/// is absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Staged or host.
    pub mode: Mode,
    /// Program and arguments; the program is looked up in the environment's `PATH`.
    pub command: Vec<OsString>,
    /// Where it starts, as it is called inside.
    pub cwd: PathBuf,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// The staged layers, outermost first.
    pub layers: Vec<Layer>,
    /// Mounts beyond the built-in table, in order; later ones win.
    pub mounts: Vec<MountSpec>,
    /// Paths masked by default that the person gave back (`--mount PATH:read`).
    pub unhide: Vec<PathBuf>,
    /// Paths masked besides the built-in list, pvisor-tui's own directories among them.
    pub hide: Vec<PathBuf>,
    /// Caller's home directory.
    pub home: PathBuf,
    /// Directory for `/tmp` and `/var/tmp` inside: on disk, in the session's directory.
    pub private: PathBuf,
    /// Terminal or pipes.
    pub stdio: Stdio,
    /// The command is ended after this long.
    pub timeout: Option<Duration>,
    /// What network it has.
    pub network: Network,
    /// Who merges the layers.
    pub driver: DriverChoice,
    /// How long what the file server said may be believed (`fuse` only).
    pub cache: CacheMode,
    /// Whether every access is counted (`fuse` only).
    pub observe: bool,
    /// Rules on paths.
    pub policy: Policy,
    /// Upper bounds.
    pub limits: Limits,
    /// Whether a rename of a lower directory is helped over the kernel's `EXDEV`.
    pub rename_shim: bool,
    /// Whether the command may make user namespaces of its own (nested sandboxes).
    pub nested: bool,
    /// What whoever asked for it wants recorded in the boundary, one sentence each.
    pub notes: Vec<String>,
}
