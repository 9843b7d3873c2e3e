//! What a person made of a conflict: the baseline after it, and the conflict markers that may be
//! left in the agent's file. Writes only the baseline.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::merging::{LARGEST, MOVED};
use super::{LayerTracker, Written, failed};
use crate::RelPath;
use crate::change::{Change, ChangeError, Conflict, content};
use crate::layer::{FileType, Node, StageAccess};
use crate::merge;

impl LayerTracker {
    /// See [`super::super::Tracker::keep_host`].
    pub fn keep_host(&mut self, (host, bytes): &(Node, Vec<u8>)) -> Result<(), ChangeError> {
        let Some(digest) = host.digest else {
            return Ok(());
        };
        self.baseline
            .keep_bytes(digest, bytes)
            .map_err(|e| failed("keeping the host's version in", self.layer.base(), e))
    }

    /// See [`super::super::Tracker::agree_on_host`].
    pub fn agree_on_host(
        &mut self,
        path: &RelPath,
        host: &Node,
        marked: Option<u32>,
    ) -> Result<(), ChangeError> {
        let mut record = self.baseline.get(path).cloned().unwrap_or_default();
        record.node = Some(Arc::new(host.clone()));
        record.unsure = false;
        record.marked = marked;
        record.touched = None;
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
        self.rebase(BTreeSet::from([path.clone()]), &Written::default())?;
        Ok(Ok(()))
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

    /// Whether the agent's file holds conflict markers like those that were put into a file of the
    /// layer: it may have been renamed or copied since. What the host's file holds as well was not
    /// put there.
    pub(super) fn marks_left(
        &mut self,
        change: &Change,
        access: &dyn StageAccess,
    ) -> Option<Conflict> {
        let found = self.marks_in(change, access)?;
        let path = &change.key.path;
        let put = |record: &super::Record| record.marked.is_some();
        if self.baseline.get(path).is_some_and(put) {
            return Some(found);
        }
        let old = self.bytes_before(path, change.before.as_deref());
        let had = old.is_some_and(|old| self.markers_of(&old).is_some());
        (!had).then_some(found)
    }

    fn marks_in(&mut self, change: &Change, access: &dyn StageAccess) -> Option<Conflict> {
        let lengths = self.baseline.marks();
        if lengths.is_empty() {
            self.marks.clear();
            return None;
        }
        let after = change.after.as_ref()?;
        if after.file_type != FileType::File {
            return None;
        }
        let mut unknown = Vec::new();
        for length in lengths {
            match after
                .digest
                .and_then(|digest| self.marks.get(&(digest, length)))
            {
                Some(true) => return Some(Conflict::Markers),
                Some(false) => {}
                None => unknown.push(length),
            }
        }
        if unknown.is_empty() {
            return None;
        }
        let cap = content::LARGEST_IN_MEMORY;
        let read = self
            .read_upper(&change.key.path, cap, access)
            .ok()
            .flatten();
        let read = read.and_then(|content| Some((content.digest, content.bytes?)));
        let Some((digest, bytes)) = read else {
            // What cannot be read is not known to be free of them, where they were put.
            let marked = self.baseline.get(&change.key.path)?.marked.is_some();
            return marked.then_some(Conflict::Markers);
        };
        let mut found = false;
        for length in unknown {
            let holds = merge::holds_markers(&bytes, length);
            self.marks.insert((digest, length), holds);
            found |= holds;
        }
        found.then_some(Conflict::Markers)
    }

    /// The length of the conflict markers that a text holds, of those that were put into a file of
    /// the layer.
    pub fn markers_of(&self, text: &[u8]) -> Option<u32> {
        let mut lengths = self.baseline.marks().into_iter();
        lengths.find(|length| merge::holds_markers(text, *length))
    }

    /// See [`super::super::Tracker::unmark`].
    pub fn unmark(&mut self, path: &RelPath) -> Result<(), ChangeError> {
        match self.baseline.get(path).cloned() {
            Some(record) if record.marked.is_some() => self.put_apart(
                path,
                super::Record {
                    marked: None,
                    ..record
                },
            ),
            _ => Ok(()),
        }
    }
}
