//! Stand-in until the patch writer is merged.

use crate::change::Change;

/// One change with both of its sides.
#[derive(Debug, Clone)]
pub struct PatchEntry<'a> {
    /// The change.
    pub change: &'a Change,
    /// The baseline's bytes.
    pub before: Option<Vec<u8>>,
    /// The agent's bytes.
    pub after: Option<Vec<u8>>,
}

/// Stand-in.
pub fn patch(_entries: &[PatchEntry<'_>]) -> Vec<u8> {
    Vec::new()
}
