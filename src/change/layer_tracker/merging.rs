//! The three sides of a file that both the host and the agent changed, and the baseline after they
//! were merged. Owns reading them as one consistent set; writes only the baseline.

use super::{LayerTracker, failed};
use crate::RelPath;
use crate::change::{Change, ChangeError, ChangeKind, Conflict, Merges, content};
use crate::diff;
use crate::layer::{Digest, FileType, Node, StageAccess};
use crate::merge::{self, Merge};
use std::collections::{BTreeSet, HashMap};

/// Largest file that is merged, each side.
const LARGEST: u64 = 16 << 20;

/// Said where the agent was faster.
const MOVED: &str = "the agent changed it since it was looked at; look at it again";

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
    nodes: [Option<Node>; 3],
    merges: Option<Merges>,
}

impl LayerTracker {
    /// Whether a change in conflict merges, from memory where no side has moved.
    pub(super) fn merges(&mut self, change: &Change, access: &dyn StageAccess) -> Option<Merges> {
        let path = &change.key.path;
        let host = self.host.stat(path).ok()?;
        let nodes = [change.before.clone(), host, change.after.clone()];
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
        let base = self
            .baseline
            .kept(before.digest.unwrap_or(Digest::of(b"")))
            .and_then(|file| content::read(&file, LARGEST).ok()?.bytes)
            .filter(|bytes| before.digest == Some(Digest::of(bytes)))
            .or_else(|| self.bytes_before(path, Some(before)))
            .ok_or("what the agent started from was not kept, so nothing is merged")?;
        let on_host = self
            .host
            .content(path, &host, LARGEST)
            .ok_or_else(|| unreadable("the host's file"))?;
        let on_stage = self
            .read_upper(path, LARGEST, access)
            .ok()
            .flatten()
            .ok_or_else(|| unreadable("the agent's file"))?;
        if Some(on_stage.digest) != after.digest {
            return Err(MOVED.into());
        }
        let host = Node {
            digest: Some(on_host.digest),
            ..host
        };
        Ok(Sides {
            base: (before.clone(), base),
            host: (host, on_host.bytes.unwrap_or_default()),
            agent: (after.clone(), on_stage.bytes.unwrap_or_default()),
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
        if let Some(base) = record.node.replace(agreed.clone()) {
            record.apart.push((number, base));
        }
        record.unsure = false;
        self.put_apart(path, record)
    }

    /// See [`super::super::Tracker::agree_on_host`].
    pub fn agree_on_host(
        &mut self,
        path: &RelPath,
        (host, bytes): &(Node, Vec<u8>),
        marked: Option<u32>,
    ) -> Result<(), ChangeError> {
        let failed = |e| failed("writing the baseline in", self.layer.base(), e);
        let mut record = self.baseline.get(path).cloned().unwrap_or_default();
        if let Some(digest) = host.digest {
            self.baseline.keep_bytes(digest, bytes).map_err(failed)?;
        }
        record.node = Some(host.clone());
        record.unsure = false;
        record.marked = marked;
        self.put_apart(path, record)
    }

    /// See [`super::super::Tracker::take_host`].
    pub fn take_host(&mut self, path: &RelPath) -> Result<Result<(), String>, ChangeError> {
        self.host.begin();
        let now = self
            .host
            .stat(path)
            .map_err(|e| failed("looking at", self.layer.root.join(path.as_path()), e))?;
        if now.is_some_and(|node| node.file_type == FileType::Dir) {
            return Ok(Err("the host has a directory there".into()));
        }
        self.merged.remove(path);
        self.rebase(BTreeSet::from([path.clone()]), &HashMap::new())?;
        Ok(Ok(()))
    }

    /// Length of the conflict markers that were put into the agent's file.
    pub fn marked(&self, path: &RelPath) -> Option<u32> {
        self.baseline.get(path)?.marked
    }

    /// The agent's bytes of a change, if they are what the change is about.
    pub fn agents_bytes(
        &self,
        change: &Change,
        access: &dyn StageAccess,
    ) -> Result<Vec<u8>, String> {
        let content = self
            .read_upper(&change.key.path, LARGEST, access)
            .ok()
            .flatten();
        let content = content.ok_or("the agent's file cannot be read")?;
        let expected = change.after.as_ref().and_then(|node| node.digest);
        if Some(content.digest) != expected {
            return Err(MOVED.into());
        }
        content
            .bytes
            .ok_or_else(|| format!("it is larger than {} MiB", LARGEST >> 20))
    }

    /// Whether the agent's file holds conflict markers of this length.
    pub(super) fn marks_left(
        &self,
        change: &Change,
        marked: Option<u32>,
        access: &dyn StageAccess,
    ) -> Option<Conflict> {
        let length = marked?;
        let after = change.after.as_ref()?;
        let found = after.file_type == FileType::File && {
            let cap = content::LARGEST_IN_MEMORY;
            let content = self.read_upper(&change.key.path, cap, access).ok();
            // What cannot be read is not known to be free of them.
            let bytes = content.flatten().and_then(|content| content.bytes);
            bytes.is_none_or(|bytes| merge::holds_markers(&bytes, length))
        };
        found.then_some(Conflict::Markers)
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

    fn put_apart(&mut self, path: &RelPath, record: super::Record) -> Result<(), ChangeError> {
        self.known.remove(path);
        self.merged.remove(path);
        self.entries = None;
        self.baseline
            .set(path, record)
            .and_then(|()| self.baseline.flush())
            .map_err(|e| failed("writing the baseline in", self.layer.base(), e))
    }
}
