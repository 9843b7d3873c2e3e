//! Further names of the host's files that a commit has touched. Owns taking along what it did to
//! their inode: mode, attributes, times and the count of names are the same under all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{LayerTracker, failed, may_be_shut};
use crate::RelPath;
use crate::change::ChangeError;
use crate::change::baseline::{Baseline, Record};
use crate::layer::{FileType, Node, Timestamp};

/// Files with several names that were committed under one of them, by device and inode.
#[derive(Default)]
pub(super) struct Shared(HashMap<(u64, u64), Seen>);

/// What is known of such a file.
#[derive(Default)]
struct Seen {
    /// The modification times that it had or has.
    times: Vec<Timestamp>,
    /// Its attributes, as they were known last.
    attributes: BTreeMap<String, Vec<u8>>,
}

impl Shared {
    /// Those among `paths`, as they were before the commit.
    pub fn of(paths: &BTreeSet<RelPath>, baseline: &Baseline) -> Self {
        let mut shared = Self::default();
        for path in paths {
            shared.add(baseline.get(path).and_then(|record| record.node.as_deref()));
        }
        shared
    }

    /// Adds one, if it has several names.
    pub fn add(&mut self, node: Option<&Node>) {
        if let Some(node) = node
            && node.file_type != FileType::Dir
            && node.nlink > 1
        {
            let seen = self.0.entry((node.dev, node.ino)).or_default();
            seen.times.push(node.mtime);
            seen.attributes.clone_from(&node.xattrs);
        }
    }

    /// What is on record of another name, with what the host says of it `now`; `None` where that is
    /// not the same file, or its bytes may be others. Of one that is `shut` the attributes cannot be
    /// read: they are those that were committed.
    fn moved(&self, old: &Node, now: Node, shut: bool) -> Option<Node> {
        let identity = |node: &Node| (node.dev, node.ino, node.file_type, node.size);
        let seen = self.0.get(&(old.dev, old.ino))?;
        let known = now.mtime == old.mtime || seen.times.contains(&now.mtime);
        (identity(old) == identity(&now) && known).then(|| Node {
            digest: old.digest,
            xattrs: if shut {
                seen.attributes.clone()
            } else {
                now.xattrs.clone()
            },
            ..now
        })
    }
}

impl LayerTracker {
    /// Takes the host's side of names other than `committed` in, where they are names of the same
    /// files.
    pub(super) fn follow_names(
        &mut self,
        shared: &Shared,
        committed: &BTreeSet<RelPath>,
    ) -> Result<(), ChangeError> {
        if shared.0.is_empty() {
            return Ok(());
        }
        let is_one = |record: &Record| {
            let node = record.node.as_ref();
            node.is_some_and(|node| shared.0.contains_key(&(node.dev, node.ino)))
        };
        let others: Vec<(RelPath, Record)> = self
            .baseline
            .below(&RelPath::root())
            .filter(|(path, record)| !committed.contains(path) && is_one(record))
            .map(|(path, record)| (path.clone(), record.clone()))
            .collect();
        for (path, record) in others {
            let now = self
                .host
                .node(&path)
                .map_err(|e| failed("looking at", self.layer.root.join(path.as_path()), e))?;
            let shut = now.as_ref().is_some_and(may_be_shut) && self.host.is_shut(&path);
            let node = record.node.as_ref().zip(now);
            if let Some(node) = node.and_then(|(old, now)| shared.moved(old, now, shut)) {
                self.known.remove(&path);
                let record = Record {
                    node: Some(std::sync::Arc::new(node)),
                    ..record
                };
                self.baseline
                    .set(&path, record)
                    .map_err(self.io("writing the baseline in"))?;
            }
        }
        Ok(())
    }
}
