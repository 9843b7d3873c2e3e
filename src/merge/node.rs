//! Merges what `stat` and the attributes say of a file: each property has the side that changed it.

use super::Favour;
use crate::layer::Node;

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

/// The host's node with what the agent's side changed; content, size and digest stay the host's, the
/// time is the later of both.
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
    merged.mtime = ours.mtime.max(theirs.mtime);
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
