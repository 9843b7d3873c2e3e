//! What became of one path: both sides read and compared, or remembered where nothing moved.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{Known, LARGEST_DELETED, LayerTracker, SETTLED};
use crate::change::baseline::Record;
use crate::change::content::{self, Content, LARGEST_IN_MEMORY};
use crate::change::risk::Looks;
use crate::change::scan::Candidate;
use crate::change::{Change, ChangeError, ChangeKind, Class, compare, git_index};
use crate::diff::{self, FileDiff};
use crate::layer::{AccessError, Digest, FileType, Node, StageAccess};
use crate::{LayerPath, RelPath};

impl LayerTracker {
    /// What became of a candidate, from memory where nothing moved. `None` when its entry vanished
    /// since the walk. `told`: an event has named it, so that a young file is read again whatever
    /// its times say.
    pub(super) fn learn(
        &mut self,
        candidate: Candidate,
        old: Option<Known>,
        told: bool,
        access: &dyn StageAccess,
    ) -> Result<Option<(Known, Record)>, ChangeError> {
        if let Some(mut old) = old
            && old.after == candidate.after
            && same_before(old.before.as_ref(), candidate.record.node.as_ref())
            && let Some(read_at) = self.still_holds(&candidate.path, &old, told, access)?
        {
            old.read_at = read_at;
            // The same one that the entries of this walk hold.
            old.after = candidate.after;
            return Ok(Some((old, candidate.record)));
        }
        self.compare(candidate, access)
    }

    /// Whether a digest taken before can still be believed, and since when.
    pub(super) fn still_holds(
        &mut self,
        path: &RelPath,
        old: &Known,
        told: bool,
        access: &dyn StageAccess,
    ) -> Result<Option<SystemTime>, ChangeError> {
        let Some(node) = old.after.as_ref().filter(|n| n.file_type == FileType::File) else {
            return Ok(Some(old.read_at));
        };
        let moved = node.mtime.max(node.ctime);
        let moved = SystemTime::UNIX_EPOCH
            + Duration::new(u64::try_from(moved.sec).unwrap_or(0), moved.nsec);
        let age = old.read_at.duration_since(moved).unwrap_or_default();
        if age >= SETTLED {
            return Ok(Some(old.read_at));
        }
        // Read within the clock tick of the write: the times may not tell a second write apart.
        let racy = age < Duration::from_millis(20);
        let recent =
            !self.closely && old.read_at.elapsed().unwrap_or_default() < Duration::from_secs(2);
        let (files, bytes) = self.recheck_budget;
        if !racy && !told && (recent || files == 0 || bytes < node.size) {
            return Ok(Some(old.read_at));
        }
        self.recheck_budget = (files.saturating_sub(1), bytes.saturating_sub(node.size));
        let digest = match &old.found {
            Some((change, _)) => change.after.as_ref().and_then(|n| n.digest),
            None => old.before.as_ref().and_then(|n| n.digest),
        };
        let now = SystemTime::now();
        let content = match self.read_upper(path, 0, access) {
            // The comparison finds out which.
            Err(ChangeError::Access(e)) if e.is_absent() || e.is_replaced() => return Ok(None),
            other => other?,
        };
        Ok(content.filter(|c| Some(c.digest) == digest).map(|_| now))
    }

    /// Content of the upper's file; `None` when it cannot be read with the rights we have.
    pub(super) fn read_upper(
        &self,
        path: &RelPath,
        cap: u64,
        access: &dyn StageAccess,
    ) -> Result<Option<Content>, ChangeError> {
        match access.open(&self.layer.name, path) {
            Ok(fd) => content::read(&fd.into(), cap)
                .map(Some)
                .map_err(|e| AccessError::io("reading", path, &e).into()),
            Err(AccessError::Io {
                errno: libc::EACCES | libc::EPERM,
                ..
            }) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Compares both sides of a candidate.
    pub(super) fn compare(
        &mut self,
        candidate: Candidate,
        access: &dyn StageAccess,
    ) -> Result<Option<(Known, Record)>, ChangeError> {
        let Candidate {
            path,
            mut record,
            after: walked,
        } = candidate;
        let read_at = SystemTime::now();
        let mut after = walked.clone();
        let mut new_bytes = None;
        if let Some(node) = after.as_mut() {
            let node = Arc::make_mut(node);
            match node.file_type {
                FileType::File => match self.read_upper(&path, LARGEST_IN_MEMORY, access) {
                    Ok(content) => {
                        let content = content.map(|c| (c.digest, c.bytes));
                        node.digest = content.as_ref().map(|c| c.0);
                        new_bytes = content.and_then(|c| c.1);
                    }
                    // The next scan sees what is there instead.
                    Err(ChangeError::Access(e)) if e.is_absent() || e.is_replaced() => {
                        return Ok(None);
                    }
                    Err(e) => return Err(e),
                },
                FileType::Symlink => node.digest = node.target.as_deref().map(Digest::of),
                _ => {}
            }
        }
        let old_bytes = self.read_before(&path, &mut record, after.as_deref())?;
        let mut before = record.node.clone();
        if let Some(node) = before.as_mut()
            && node.file_type == FileType::Symlink
        {
            let node = Arc::make_mut(node);
            node.digest = node.target.as_deref().map(Digest::of);
        }
        // A file that the agent never gave a time has the one that the host gave it since.
        if let (Some(node), Some(before)) = (after.as_mut(), &before)
            && node.digest.is_some()
            && node.digest == before.digest
            && record.touched.as_deref() == Some(&node.mtime)
        {
            Arc::make_mut(node).mtime = before.mtime;
        }
        let found = self.difference(
            &path,
            before,
            after,
            old_bytes.as_deref(),
            new_bytes.as_deref(),
        )?;
        let known = Known {
            after: walked,
            before: record.node.clone(),
            read_at,
            found,
        };
        Ok(Some((known, record)))
    }

    /// The baseline's bytes, as far as a comparison with `after` needs them; fills in the record's
    /// digest on the way.
    pub(super) fn read_before(
        &mut self,
        path: &RelPath,
        record: &mut Record,
        after: Option<&Node>,
    ) -> Result<Option<Vec<u8>>, ChangeError> {
        let Some(node) = record
            .node
            .as_ref()
            .filter(|n| n.file_type == FileType::File)
        else {
            return Ok(None);
        };
        let both = after.is_some_and(|n| n.file_type == FileType::File);
        if !both {
            let size = node.size;
            let ignored = self.is_ignored(path, false);
            if ignored || size > LARGEST_DELETED || size > self.deleted_budget {
                return Ok(None);
            }
            self.deleted_budget -= size;
        }
        let content = match self.host.content(path, node, LARGEST_IN_MEMORY) {
            Some(content) => Some(content),
            None => node
                .digest
                .and_then(|digest| self.baseline.kept(digest))
                .and_then(|file| content::read(&file, LARGEST_IN_MEMORY).ok()),
        };
        let Some(content) = content else {
            return Ok(None);
        };
        if node.digest != Some(content.digest) {
            let node = Node {
                digest: Some(content.digest),
                ..(**node).clone()
            };
            record.node = Some(Arc::new(node));
            self.baseline
                .set(path, record.clone())
                .map_err(self.io("writing the baseline in"))?;
        }
        Ok(content.bytes)
    }

    /// The change between two sides, without class, risks and conflict.
    pub(super) fn difference(
        &mut self,
        path: &RelPath,
        before: Option<Arc<Node>>,
        after: Option<Arc<Node>>,
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Option<(Arc<Change>, Looks)>, ChangeError> {
        let Some(kind) = compare::kind(before.as_deref(), after.as_deref()) else {
            return Ok(None);
        };
        if kind == ChangeKind::Modified
            && git_index::is_index(path)
            && let (Some(old), Some(new)) = (old, new)
            && git_index::same_but_stat(old, new)
        {
            return Ok(None);
        }
        // The same bytes written anew: git looked, and found nothing to note.
        if kind == ChangeKind::Meta
            && git_index::is_index(path)
            && let (Some(old), Some(new)) = (&before, &after)
            && old.digest.is_some()
            && old.digest == new.digest
            && (old.uid, old.gid, &old.xattrs) == (new.uid, new.gid, &new.xattrs)
        {
            return Ok(None);
        }
        let is_file =
            |n: &Option<Arc<Node>>| n.as_ref().is_some_and(|n| n.file_type == FileType::File);
        let too_large = |n: &Option<Arc<Node>>| {
            n.as_ref()
                .is_some_and(|n| n.file_type == FileType::File && n.size > LARGEST_IN_MEMORY)
        };
        let compared = match kind {
            ChangeKind::Modified if is_file(&after) => {
                old.zip(new).map(|(old, new)| diff::diff(old, new))
            }
            ChangeKind::Added if is_file(&after) => new.map(|new| diff::counted(b"", new)),
            ChangeKind::Deleted if is_file(&before) => old.map(|old| diff::counted(old, b"")),
            _ => None,
        };
        let looks = Looks {
            binary: compared.as_ref().is_some_and(|d| d.binary)
                || too_large(&before)
                || too_large(&after)
                || old.is_some_and(diff::is_binary)
                || new.is_some_and(diff::is_binary),
            hidden: new.is_some_and(|new| !diff::is_binary(new) && crate::text::has_hidden(new)),
        };
        if kind == ChangeKind::Modified
            && let Some(node) = before.as_ref()
            && let Some(digest) = node.digest
            && let Some(file) = self.host.file(path, node)
        {
            self.baseline
                .keep(digest, &file, node.size)
                .map_err(self.io("keeping the host's version in"))?;
        }
        let change = self.change(path, kind, before, after, compared.as_ref(), looks.binary);
        Ok(Some((Arc::new(change), looks)))
    }

    pub(super) fn change(
        &self,
        path: &RelPath,
        kind: ChangeKind,
        before: Option<Arc<Node>>,
        after: Option<Arc<Node>>,
        compared: Option<&FileDiff>,
        binary: bool,
    ) -> Change {
        Change {
            key: LayerPath::new(self.layer.name.clone(), path.clone()),
            class: Class::Plain,
            binary,
            added: compared.map_or(0, |d| d.added),
            removed: compared.map_or(0, |d| d.removed),
            digest: compare::change_digest(
                &self.layer.name,
                path,
                &kind,
                before.as_deref(),
                after.as_deref(),
            ),
            risks: Vec::new(),
            conflict: None,
            merges: None,
            items: diff::items(&kind, before.as_deref(), after.as_deref(), compared),
            kind,
            before,
            after,
        }
    }
}

/// Whether what was known of the baseline's side is what is on record: a digest that was found in
/// between changes nothing.
fn same_before(known: Option<&Arc<Node>>, record: Option<&Arc<Node>>) -> bool {
    match (known, record) {
        (None, None) => true,
        (Some(known), Some(record)) => known == record,
        _ => false,
    }
}
