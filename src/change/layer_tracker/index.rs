//! The host's git index as it was before the agent came to it. git rewrites it on every `status`;
//! whether that is all that was done to it can only be told from its earlier bytes, and the first
//! scan that finds the agent's own index may already be too late to take them.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::{Known, LayerTracker};
use crate::RelPath;
use crate::change::baseline::Record;
use crate::change::content::LARGEST_IN_MEMORY;
use crate::change::entries::Entries;
use crate::change::scan::Candidate;
use crate::change::{ChangeError, conflict, git_index};
use crate::layer::{FileType, Node, StageAccess};

/// The index of the repository whose root is the layer's.
const INDEX: &[u8] = b".git/index";

impl LayerTracker {
    /// At the opening, before the command runs: a command may be done with its first commit, and
    /// the host with its next `status`, before anything was scanned.
    pub(super) fn keep_first_index(&mut self) -> Result<(), ChangeError> {
        let copied = self.layer.upper().join(OsStr::from_bytes(INDEX));
        match copied.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.keep_index(&Entries::default())
            }
            // The agent has one already, or it cannot be told.
            _ => Ok(()),
        }
    }

    /// Keeps the host's index while the agent has none of its own. Costs a `stat` where nothing
    /// moved.
    pub(super) fn keep_index(&mut self, entries: &Entries) -> Result<(), ChangeError> {
        let Ok(path) = RelPath::new(INDEX) else {
            return Ok(());
        };
        let ours = self.rules.is_some();
        if !ours || entries.has(&path) {
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
    /// the baseline, so that a mere refresh is told from an edit. Where it is still the kept one,
    /// the baseline gets its digest: by the time its content is to be read, git may have replaced
    /// it, and the kept bytes could not be found.
    pub(super) fn recall_index(&mut self, candidates: &mut [Candidate]) -> Result<(), ChangeError> {
        let Some(kept) = &self.index else {
            return Ok(());
        };
        let index = candidates.iter_mut().find(|c| c.path.as_bytes() == INDEX);
        if let Some(candidate) = index {
            let record = &candidate.record;
            let same = |node: &Arc<Node>| node.digest.is_none() && node.same_stat(kept);
            if !record.unsure && !record.node.as_ref().is_some_and(same) {
                return Ok(());
            }
            candidate.record = Record {
                node: Some(Arc::new(kept.clone())),
                unsure: false,
                ..candidate.record.clone()
            };
            self.baseline
                .set(&candidate.path, candidate.record.clone())
                .map_err(self.io("writing the baseline in"))?;
        }
        Ok(())
    }

    /// Where git has only refreshed the host's index: that one is the baseline from now on, so that
    /// a commit compares with it and replaces it.
    pub(super) fn follow_index(
        &mut self,
        path: &RelPath,
        entry: Known,
        mut record: Record,
        access: &dyn StageAccess,
    ) -> Result<(Known, Record), ChangeError> {
        let Some(before) = record.node.clone().filter(|_| git_index::is_index(path)) else {
            return Ok((entry, record));
        };
        let failed = self.io("following git's index in");
        let found = self.host.node(path).map_err(&failed)?;
        let Some(mut now) = found.filter(|now| !now.same_stat(&before)) else {
            return Ok((entry, record));
        };
        let host = &mut self.host;
        if !conflict::same_index(path, &before, &now, host, &self.baseline) {
            return Ok((entry, record));
        }
        let (Some(content), Some(file)) = (host.content(path, &now, 0), host.file(path, &now))
        else {
            return Ok((entry, record));
        };
        let kept = self.baseline.keep(content.digest, &file, now.size);
        kept.map_err(&failed)?;
        now.digest = Some(content.digest);
        record.node = Some(Arc::new(now));
        record.unsure = false;
        self.baseline.set(path, record.clone()).map_err(&failed)?;
        let candidate = Candidate {
            path: path.clone(),
            record: record.clone(),
            after: entry.after.clone(),
        };
        Ok(self.compare(candidate, access)?.unwrap_or((entry, record)))
    }
}
