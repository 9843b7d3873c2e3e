//! Merges what `stat` and the attributes say of a file: each property has the side that changed it.

use super::Favour;
use crate::layer::{Node, Timestamp};

/// What both sides changed, each in its own way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Disagreement {
    /// The permission bits.
    #[error("both sides changed its mode")]
    Mode,
    /// Owner or group.
    #[error("both sides changed its owner")]
    Owner,
    /// An extended attribute.
    #[error("both sides changed its attribute {0}")]
    Xattr(String),
}

/// The host's node with what the agent's side changed; content, size and digest stay the host's, and
/// so does the time, which is [`time`]'s to say.
pub fn nodes(base: &Node, ours: &Node, theirs: &Node) -> Result<Node, Disagreement> {
    merged(base, ours, theirs, None)
}

/// As [`nodes`]; where both sides changed the same in their own way, this side has it.
pub fn nodes_for(favour: Favour, base: &Node, ours: &Node, theirs: &Node) -> Node {
    merged(base, ours, theirs, Some(favour)).unwrap_or_else(|_| match favour {
        Favour::Ours => ours.clone(),
        Favour::Theirs => theirs.clone(),
    })
}

/// The time of a file with the bytes `merged`, given base, host and agent: that of the side whose
/// content it is. What is no side's alone is new `now`, so that whoever goes by times sees it.
pub fn time(sides: [(&Node, &[u8]); 3], merged: &[u8], now: Timestamp) -> Timestamp {
    let [base, ours, theirs] = sides;
    let times = [base.0.mtime, ours.0.mtime, theirs.0.mtime];
    if merged == ours.1 && merged == theirs.1 {
        let [base, ours, theirs] = times;
        pick(&base, &ours, &theirs, None).unwrap_or(ours.max(theirs))
    } else if merged == ours.1 {
        times[1]
    } else if merged == theirs.1 && ours.1 == base.1 {
        times[2]
    } else {
        now
    }
}

fn merged(
    base: &Node,
    ours: &Node,
    theirs: &Node,
    favour: Option<Favour>,
) -> Result<Node, Disagreement> {
    let mut merged = ours.clone();
    merged.mode = pick(&base.mode, &ours.mode, &theirs.mode, favour).ok_or(Disagreement::Mode)?;
    let owner = |node: &Node| (node.uid, node.gid);
    (merged.uid, merged.gid) =
        pick(&owner(base), &owner(ours), &owner(theirs), favour).ok_or(Disagreement::Owner)?;
    let names = [base, ours, theirs]
        .into_iter()
        .flat_map(|n| n.xattrs.keys());
    for name in names {
        let of = |node: &Node| node.xattrs.get(name).cloned();
        let value = pick(&of(base), &of(ours), &of(theirs), favour).ok_or_else(|| {
            Disagreement::Xattr(crate::text::visible(name.as_bytes()).into_owned())
        })?;
        match value {
            Some(value) => merged.xattrs.insert(name.clone(), value),
            None => merged.xattrs.remove(name),
        };
    }
    Ok(merged)
}

fn pick<T: PartialEq + Clone>(base: &T, ours: &T, theirs: &T, favour: Option<Favour>) -> Option<T> {
    if ours == theirs || theirs == base {
        Some(ours.clone())
    } else if ours == base {
        Some(theirs.clone())
    } else {
        match favour? {
            Favour::Ours => Some(ours.clone()),
            Favour::Theirs => Some(theirs.clone()),
        }
    }
}
