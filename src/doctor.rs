//! Stand-in until the examination is merged.

use std::path::Path;

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What.
    pub name: String,
    /// Whether it works.
    pub ok: bool,
    /// What was seen.
    pub detail: String,
    /// The command that mends it.
    pub remedy: Option<String>,
}

/// Everything that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// In order.
    pub checks: Vec<Check>,
}

/// Stand-in.
pub fn examine(_state_dir: &Path) -> Report {
    Report::default()
}
