//! What was really put in force. Owns the record of it; nothing requested but not enforced may
//! stand here as if it were.

use serde::{Deserialize, Serialize};

/// The boundary of a session, recorded at start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Boundary {
    /// `staged` or `host`.
    pub mode: String,
    /// Namespaces in force, by their names under `/proc/self/ns`.
    pub namespaces: Vec<String>,
    /// Driver per layer and why it was chosen.
    pub layers: Vec<LayerBoundary>,
    /// Whether every capability set is empty and `no_new_privs` is set.
    pub no_capabilities: bool,
    /// `new` for the namespace's own procfs, else which fallback.
    pub proc: String,
    /// `host` or what is in force.
    pub network: String,
    /// Landlock ABI in force, if any.
    pub landlock: Option<u32>,
    /// Whether the rename of a lower directory is helped over the kernel's `EXDEV`; never where no
    /// layer is the kernel's.
    #[serde(default)]
    pub rename_shim: bool,
    /// Whether a seccomp filter is in force.
    pub seccomp: bool,
    /// Every upper bound that was asked for, and what holds it.
    #[serde(default)]
    pub limits: Vec<LimitBoundary>,
    /// Places masked inside, as paths.
    pub hidden: Vec<String>,
    /// Places the agent writes directly, as paths.
    pub writable: Vec<String>,
    /// Private places that live on across sessions, as paths.
    #[serde(default)]
    pub kept: Vec<String>,
    /// What could not be had and what that means, one sentence each.
    pub notes: Vec<String>,
}

/// One upper bound. Exactly one of `by` and `reason` is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitBoundary {
    /// `memory`, `cpus`, `processes`, `file size`, `open files` or `stage`.
    pub name: String,
    /// Bytes, thousandths of a processor, or a number.
    pub value: u64,
    /// What holds it: `cgroup`, `resource limit`, `the session`; `None` when nothing does.
    pub by: Option<String>,
    /// Why nothing does, one sentence.
    pub reason: Option<String>,
}

/// One layer's line in the boundary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerBoundary {
    /// Layer name.
    pub name: String,
    /// `overlayfs`, `fuse`, or `read-only` where it is not staged.
    pub driver: String,
    /// Why this driver.
    pub reason: String,
}
