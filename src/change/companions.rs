//! Files that are one thing only together. Owns the rule for sqlite: a database without the log
//! that was written beside it lacks what the log holds.

use std::sync::Arc;

use super::{Change, ChangeKind, ChangeSet};
use crate::LayerPath;

/// What sqlite adds to a database's name for its files beside it.
const BESIDE: [&[u8]; 3] = [b"-wal", b"-shm", b"-journal"];

/// What is wrong with leaving one out, one clause.
pub const WHY: &str = "the database beside it may lack its last changes without it";

/// Changes to files beside a database that is taken, and are not taken themselves.
pub fn left_out(changes: &ChangeSet, taken: impl Fn(&LayerPath) -> bool) -> Vec<&LayerPath> {
    let is_left_out = |(key, change): &(&LayerPath, &Arc<Change>)| {
        let path = key.path.as_bytes();
        let database = BESIDE.iter().find_map(|end| path.strip_suffix(*end));
        let database = database.and_then(|path| crate::RelPath::new(path).ok());
        // One that is gone was folded into its database.
        !matches!(change.kind, ChangeKind::Deleted)
            && !taken(key)
            && database.is_some_and(|path| taken(&LayerPath::new(key.layer.clone(), path)))
    };
    let found = changes.iter().filter(is_left_out);
    found.map(|(key, _)| key).collect()
}
