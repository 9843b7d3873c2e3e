//! The host's git index as it was before the agent came to it. git rewrites it on every `status`;
//! whether that is all that was done to it can only be told from its earlier bytes, and the first
//! scan that finds the agent's own index may already be too late to take them.

use super::LayerTracker;
use crate::RelPath;
use crate::change::ChangeError;
use crate::change::baseline::Record;
use crate::change::content::LARGEST_IN_MEMORY;
use crate::change::scan::Candidate;
use crate::layer::{FileType, UpperEntry};

/// The index of the repository whose root is the layer's.
const INDEX: &[u8] = b".git/index";

impl LayerTracker {
    /// Keeps the host's index while the agent has none of its own. Costs a `stat` where nothing
    /// moved.
    pub(super) fn keep_index(&mut self, entries: &[UpperEntry]) -> Result<(), ChangeError> {
        let Ok(path) = RelPath::new(INDEX) else {
            return Ok(());
        };
        let ours = self.rules.is_some();
        if !ours || entries.iter().any(|entry| entry.path == path) {
            return Ok(());
        }
        let failed = self.io("keeping git's index in");
        let found = self.host.node(&path).map_err(&failed)?;
        let found = found.filter(|n| n.file_type == FileType::File);
        if let Some(old) = self.index.take() {
            if found.as_ref().is_some_and(|now| now.same_stat(&old)) {
                self.index = Some(old);
                return Ok(());
            }
            if let Some(digest) = old.digest {
                self.baseline.let_go(digest, old.size);
            }
        }
        let Some(mut node) = found else {
            return Ok(());
        };
        let Some(content) = self.host.content(&path, &node, 0) else {
            return Ok(());
        };
        if node.size <= LARGEST_IN_MEMORY
            && let Some(file) = self.host.file(&path, &node)
        {
            self.baseline
                .keep(content.digest, &file, node.size)
                .map_err(&failed)?;
            node.digest = Some(content.digest);
            self.index = Some(node);
        }
        Ok(())
    }

    /// Where the host's index was written after the agent had copied it: what was kept before is
    /// the baseline, so that a mere refresh is told from an edit.
    pub(super) fn recall_index(&mut self, candidates: &mut [Candidate]) -> Result<(), ChangeError> {
        let Some(kept) = &self.index else {
            return Ok(());
        };
        let index = candidates
            .iter_mut()
            .find(|c| c.path.as_bytes() == INDEX && c.record.unsure);
        if let Some(candidate) = index {
            candidate.record = Record {
                node: Some(kept.clone()),
                unsure: false,
                ..candidate.record.clone()
            };
            self.baseline
                .set(&candidate.path, candidate.record.clone())
                .map_err(self.io("writing the baseline in"))?;
        }
        Ok(())
    }
}
