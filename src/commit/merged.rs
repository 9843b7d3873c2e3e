//! What is written where the host's edits and the approved ones are put together. No I/O.

use std::sync::Arc;

use super::effect::{self, Content, Effect, Want};
use super::{Approved, Selection};
use crate::change::{Merges, Sides};
use crate::diff;
use crate::layer::{Digest, Node, Timestamp};
use crate::merge::{self, Merge};

/// A file of which host and agent changed something, merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// What the host has: the merge holds for exactly this.
    pub host: Node,
    /// What is written.
    pub node: Node,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What was approved, without the host's edits: what the agent's file is compared with from
    /// then on.
    pub agreed: Node,
    /// Its bytes.
    pub agreed_bytes: Vec<u8>,
}

/// Merges what was approved of a change with what the host has. The reason why not, in words
/// without the path.
pub fn merged(approved: &Approved, sides: &Sides) -> Result<Merged, String> {
    let change = &approved.change;
    let effect = effect::of(approved)?.pop().map(|(_, effect)| effect);
    let (base, agent) = (&sides.base.1, &sides.agent.1);
    let (mut agreed, agreed_bytes) = match effect {
        Some(Effect::Put { want, .. }) => {
            let bytes = match (&want.content, &approved.selection) {
                (Content::Picked(_), Selection::Items(chosen)) => {
                    let edits: Vec<_> = chosen
                        .iter()
                        .filter(|c| is_edit(change, c))
                        .cloned()
                        .collect();
                    diff::select(base, agent, &diff::diff(base, agent), &edits)
                        .map_err(|e| e.to_string())?
                }
                _ => agent.clone(),
            };
            (Node::clone(&want.node), bytes)
        }
        Some(Effect::Meta { after, .. }) => (Node::clone(&after), base.clone()),
        Some(Effect::Remove { .. } | Effect::Move { .. }) => {
            return Err("only a changed file is merged".into());
        }
        None => (sides.base.0.clone(), base.clone()),
    };
    let mut node = merge::nodes(&sides.base.0, &sides.host.0, &agreed)
        .map_err(|e| format!("it does not merge: {e}"))?;
    let bytes = match merge::merge(base, &sides.host.1, &agreed_bytes) {
        Merge::Clean(bytes) => bytes,
        Merge::Conflicted(regions) => {
            let places = Merges::places(regions.len(), &regions);
            return Err(format!("it does not merge: {places}"));
        }
        Merge::Binary => return Err("binary files are not merged".into()),
    };
    let (base, host) = (&sides.base, &sides.host);
    let three = [
        (&base.0, &base.1[..]),
        (&host.0, &host.1),
        (&agreed, &agreed_bytes),
    ];
    node.mtime = merge::time(three, &bytes, Timestamp::now());
    settle(&mut node, &bytes);
    settle(&mut agreed, &agreed_bytes);
    // It is no inode of the host's, and must not be taken for one.
    (agreed.dev, agreed.ino) = (0, 0);
    Ok(Merged {
        host: sides.host.0.clone(),
        node,
        bytes,
        agreed,
        agreed_bytes,
    })
}

fn is_edit(change: &crate::change::Change, chosen: &diff::ItemRef) -> bool {
    let kind = |kind| matches!(kind, diff::ItemKind::Hunk | diff::ItemKind::Eof);
    let mut items = change.items.iter();
    items.any(|item| item.id == chosen.id && kind(item.kind))
}

fn settle(node: &mut Node, bytes: &[u8]) {
    node.size = bytes.len() as u64;
    node.digest = Some(Digest::of(bytes));
    node.nlink = 1;
}

impl Merged {
    /// What becomes of the path.
    pub(super) fn effect(&self) -> Effect {
        let node = self.node.clone();
        // Content that stays is not written anew.
        let said = |node: &Node| (node.mode, node.mtime, node.xattrs.clone());
        if node.digest == self.host.digest && said(&node) != said(&self.host) {
            return Effect::Meta {
                before: Arc::new(self.host.clone()),
                after: Arc::new(node),
            };
        }
        Effect::Put {
            before: Some(Arc::new(self.host.clone())),
            want: Want {
                node: Arc::new(node),
                content: Content::Bytes(self.bytes.clone()),
            },
        }
    }
}
