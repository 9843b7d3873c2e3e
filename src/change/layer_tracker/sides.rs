//! Both sides' bytes of a change, for showing and comparing.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::LayerTracker;
use crate::change::content::{self, LARGEST_IN_MEMORY};
use crate::change::{Change, ChangeError, compare};
use crate::layer::{AccessError, FileType, Node, StageAccess, read};
use crate::protocol::Contents;
use crate::{LayerPath, RelPath};

impl LayerTracker {
    /// The baseline's bytes, from the host while it has not moved, else as kept.
    pub(super) fn bytes_before(&self, path: &RelPath, node: Option<&Node>) -> Option<Vec<u8>> {
        let node = node?;
        let from_host = || {
            let file = self.host.tree().file(path).ok()?;
            let content = content::read(&file, LARGEST_IN_MEMORY).ok()?;
            match node.digest {
                Some(digest) => digest == content.digest,
                None => read::stat_fd(file.as_fd()).is_ok_and(|now| now.same_stat(node)),
            }
            .then_some(content.bytes?)
        };
        let from_kept = || {
            let file = self.baseline.kept(node.digest?)?;
            content::read(&file, LARGEST_IN_MEMORY).ok()?.bytes
        };
        from_host().or_else(from_kept)
    }

    /// The bytes of a file of which the agent changed none: its own.
    fn unchanged(&self, change: &Change, access: &dyn StageAccess) -> Option<Vec<u8>> {
        let (before, after) = (change.before.as_ref()?, change.after.as_ref()?);
        let same = compare::same_content(before, after);
        let read = || self.read_upper(&change.key.path, LARGEST_IN_MEMORY, access);
        same.then(read)?.ok()??.bytes
    }

    /// See [`super::Tracker::contents`].
    pub fn contents(
        &self,
        change: &Change,
        access: &dyn StageAccess,
    ) -> Result<Contents, ChangeError> {
        let size = |node: &Option<Arc<Node>>| {
            node.as_ref()
                .filter(|n| n.file_type == FileType::File)
                .map_or(0, |n| n.size)
        };
        let mut contents = Contents {
            digest: change.digest,
            before: None,
            after: None,
            too_large: size(&change.before) + size(&change.after) > LARGEST_IN_MEMORY,
        };
        if contents.too_large {
            return Ok(contents);
        }
        let old_path = change.from().unwrap_or(&change.key.path);
        contents.before = match &change.before {
            Some(node) if node.file_type == FileType::File => {
                // A file that its owner may not read was not kept either; what cannot be read is
                // no reason to show nothing of the others.
                if self.host.is_shut(old_path) {
                    contents.too_large = true;
                    return Ok(contents);
                }
                let old = LayerPath::new(self.layer.name.clone(), old_path.clone());
                let bytes = self
                    .bytes_before(old_path, Some(node))
                    .or_else(|| self.unchanged(change, access))
                    .ok_or(ChangeError::NotKept(old))?;
                Some(bytes)
            }
            Some(node) => node.target.clone(),
            None => None,
        };
        contents.after = match &change.after {
            Some(node) if node.file_type == FileType::File => {
                let fd = access.open(&self.layer.name, &change.key.path)?;
                let content = content::read(&fd.into(), LARGEST_IN_MEMORY)
                    .map_err(|e| AccessError::io("reading", &change.key.path, &e))?;
                if content.bytes.is_none() {
                    contents.before = None;
                    contents.too_large = true;
                }
                content.bytes
            }
            Some(node) => node.target.clone(),
            None => None,
        };
        Ok(contents)
    }
}
