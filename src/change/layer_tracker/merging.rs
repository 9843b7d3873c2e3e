//! The three sides of a file that both the host and the agent changed, and the baseline after they
//! were merged. Owns reading them as one consistent set; writes only the baseline.

use std::sync::Arc;

use super::{LayerTracker, failed};
use crate::RelPath;
use crate::change::{Change, ChangeError, ChangeKind, Conflict, Merges, compare, content};
use crate::diff;
use crate::layer::{Digest, FileType, Node, StageAccess};
use crate::merge::{self, Merge};

/// Largest file that is merged, each side.
pub(super) const LARGEST: u64 = 16 << 20;

/// Said where the agent was faster.
pub(super) const MOVED: &str = "the agent changed it since it was looked at; look at it again";

/// Places of a conflict that are kept for showing.
const PLACES: usize = 8;

/// A file as base, host and agent have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sides {
    /// What both started from.
    pub base: (Node, Vec<u8>),
    /// What the host has now.
    pub host: (Node, Vec<u8>),
    /// What the agent has.
    pub agent: (Node, Vec<u8>),
}

/// Three nodes and what came of merging them.
pub(in crate::change) struct Found {
    nodes: [Option<Arc<Node>>; 3],
    merges: Option<Merges>,
}

impl LayerTracker {
    /// Whether a change in conflict merges, from memory where no side has moved.
    pub(super) fn merges(&mut self, change: &Change, access: &dyn StageAccess) -> Option<Merges> {
        let path = &change.key.path;
        let host = self.host.stat(path).ok()?;
        let nodes = [
            change.before.clone(),
            host.map(Arc::new),
            change.after.clone(),
        ];
        if let Some(found) = self.merged.get(path)
            && found.nodes == nodes
        {
            return found.merges.clone();
        }
        let merges = self.sides(change, access).ok().and_then(|sides| {
            let (base, host, agent) = (&sides.base.1, &sides.host.1, &sides.agent.1);
            let diff = diff::diff(base, agent);
            let hunks = if diff.binary || diff::is_binary(host) {
                Vec::new()
            } else {
                merge::hunks(base, host, agent, &diff)
            };
            if merge::nodes(&sides.base.0, &sides.host.0, &sides.agent.0).is_err() {
                return Some(Merges::Conflicts {
                    places: 1,
                    regions: Vec::new(),
                    hunks,
                });
            }
            match merge::merge(base, host, agent) {
                Merge::Clean(_) => Some(Merges::Clean { hunks }),
                Merge::Conflicted(mut regions) => {
                    let places = regions.len() as u32;
                    regions.truncate(PLACES);
                    Some(Merges::Conflicts {
                        places,
                        regions,
                        hunks,
                    })
                }
                Merge::Binary => None,
            }
        });
        let found = Found {
            nodes,
            merges: merges.clone(),
        };
        self.merged.insert(path.clone(), found);
        merges
    }

    /// See [`super::super::Tracker::sides`].
    pub fn sides_now(
        &mut self,
        change: &Change,
        access: &dyn StageAccess,
    ) -> Result<Sides, String> {
        if let Some(conflict) = &change.conflict
            && *conflict != Conflict::HostModified
        {
            return Err(conflict.describe());
        }
        self.host.begin();
        self.sides(change, access)
    }

    fn sides(&mut self, change: &Change, access: &dyn StageAccess) -> Result<Sides, String> {
        let path = &change.key.path;
        let (Some(before), Some(after)) = (&change.before, &change.after) else {
            return Err("only a file that both sides have is merged".into());
        };
        let kind = &change.kind;
        let plain = matches!(
            kind,
            ChangeKind::Modified | ChangeKind::Mode | ChangeKind::Meta
        );
        let unreadable = |what: &str| format!("{what} cannot be read, so nothing is merged");
        let host = self
            .host
            .node(path)
            .map_err(|_| unreadable("the host's file"))?
            .ok_or_else(|| Conflict::HostDeleted.describe())?;
        let nodes = [before, &host, after];
        if !plain || nodes.iter().any(|n| n.file_type != FileType::File) {
            return Err("only regular files are merged".into());
        }
        if nodes.iter().any(|n| n.size > LARGEST) {
            return Err(format!("files above {} MiB are not merged", LARGEST >> 20));
        }
        if host.nlink > 1 || after.nlink > 1 {
            return Err("files with several names are not merged".into());
        }
        if self.baseline.get(path).is_none_or(|record| record.unsure) {
            return Err("what the agent started from is not known, so nothing is merged".into());
        }
        let on_stage = self
            .read_upper(path, LARGEST, access)
            .ok()
            .flatten()
            .ok_or_else(|| unreadable("the agent's file"))?;
        if Some(on_stage.digest) != after.digest {
            return Err(MOVED.into());
        }
        let on_stage = on_stage.bytes.unwrap_or_default();
        let base = if compare::same_content(before, after) {
            // Only what the agent changed is kept, and it changed no byte of this.
            on_stage.clone()
        } else {
            self.baseline
                .kept(before.digest.unwrap_or(Digest::of(b"")))
                .and_then(|file| content::read(&file, LARGEST).ok()?.bytes)
                .filter(|bytes| before.digest == Some(Digest::of(bytes)))
                .or_else(|| self.bytes_before(path, Some(before)))
                .ok_or("what the agent started from was not kept, so nothing is merged")?
        };
        let on_host = self
            .host
            .content(path, &host, LARGEST)
            .ok_or_else(|| unreadable("the host's file"))?;
        let host = Node {
            digest: Some(on_host.digest),
            ..host
        };
        Ok(Sides {
            base: (Node::clone(before), base),
            host: (host, on_host.bytes.unwrap_or_default()),
            agent: (Node::clone(after), on_stage),
        })
    }

    /// See [`super::super::Tracker::part`].
    pub fn part(
        &mut self,
        path: &RelPath,
        number: u32,
        agreed: &Node,
        bytes: &[u8],
    ) -> Result<(), ChangeError> {
        let failed = |e| failed("writing the baseline in", self.layer.base(), e);
        let mut record = self.baseline.get(path).cloned().unwrap_or_default();
        if let Some(digest) = agreed.digest {
            self.baseline.keep_bytes(digest, bytes).map_err(failed)?;
        }
        if let Some(base) = record.node.replace(Arc::new(agreed.clone())) {
            record.apart.push((number, base));
        }
        record.unsure = false;
        self.put_apart(path, record)
    }

    /// See [`super::super::Tracker::rejoin_unwritten`].
    pub fn rejoin_unwritten(&mut self, is_known: &dyn Fn(u32) -> bool) -> Result<(), ChangeError> {
        loop {
            let parted = self.baseline.parted();
            let unwritten: Vec<_> = parted.iter().filter(|(_, n)| !is_known(*n)).collect();
            if unwritten.is_empty() {
                return Ok(());
            }
            for (path, number) in unwritten {
                self.rejoin(path, *number)?;
            }
        }
    }

    /// See [`super::super::Tracker::rejoin`].
    pub fn rejoin(&mut self, path: &RelPath, number: u32) -> Result<(), ChangeError> {
        let Some(mut record) = self.baseline.get(path).cloned() else {
            return Ok(());
        };
        match record.apart.pop() {
            Some((merged, base)) if merged == number => {
                record.node = Some(base);
                self.put_apart(path, record)
            }
            _ => Ok(()),
        }
    }

    /// Whether commit `number` was the last to merge the path.
    pub fn is_parted(&self, path: &RelPath, number: u32) -> bool {
        let last = self
            .baseline
            .get(path)
            .and_then(|record| record.apart.last());
        last.is_some_and(|(merged, _)| *merged == number)
    }

    pub(super) fn put_apart(
        &mut self,
        path: &RelPath,
        record: super::Record,
    ) -> Result<(), ChangeError> {
        self.known.remove(path);
        self.merged.remove(path);
        self.entries = None;
        self.baseline
            .set(path, record)
            .and_then(|()| self.baseline.flush())
            .map_err(|e| failed("writing the baseline in", self.layer.base(), e))
    }
}
