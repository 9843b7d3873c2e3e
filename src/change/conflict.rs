//! Whether the host moved since the baseline was taken. Owns what counts as having moved: content,
//! target, mode, attributes and type do, inode numbers and times alone do not.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use super::baseline::{Baseline, Record};
use super::content::{self, LARGEST_IN_MEMORY};
use super::host::Host;
use super::{Conflict, compare, git_index};
use crate::RelPath;
use crate::layer::{Digest, FileType, Node};

/// What the host's side says of a difference.
pub(super) enum Judgement {
    /// The host is where the baseline says.
    Unmoved,
    /// It is not.
    Moved(Conflict),
    /// The host has exactly what the agent has: there is nothing to decide or to write.
    Agreed,
}

/// Digests of host files that are not where the baseline says, kept between scans.
#[derive(Default)]
pub(super) struct HostDigests {
    known: HashMap<RelPath, (Node, Digest)>,
}

impl HostDigests {
    /// The host's entry with the digest of its content.
    fn read(&mut self, host: &mut Host, path: &RelPath) -> io::Result<Option<Node>> {
        let Some(mut node) = host.node(path)? else {
            return Ok(None);
        };
        if node.file_type == FileType::File {
            node.digest = match self.known.get(path) {
                Some((seen, digest)) if seen.same_stat(&node) => Some(*digest),
                _ => host
                    .file(path, &node)
                    .and_then(|f| crate::layer::content::hash(&f).ok()),
            };
            if let Some(digest) = node.digest {
                self.known.insert(path.clone(), (node.clone(), digest));
            }
        }
        Ok(Some(node))
    }
}

/// Judges one path that differs from its baseline. `record` is brought up to date where the host's
/// entry was only touched.
pub(super) fn judge(
    path: &RelPath,
    record: &mut Record,
    after: Option<&Node>,
    host: &mut Host,
    digests: &mut HostDigests,
    baseline: &mut Baseline,
) -> io::Result<Judgement> {
    let Some(now) = host.stat(path)? else {
        return match (&record.node, after) {
            (Some(_), None) => Ok(Judgement::Agreed),
            (Some(_), Some(_)) => Ok(Judgement::Moved(Conflict::HostDeleted)),
            (None, _) => parent(path, host, baseline),
        };
    };
    if let Some(before) = &record.node
        && !record.unsure
        && now.same_stat(before)
    {
        return inside(path, record, host, baseline);
    }
    let Some(now) = digests.read(host, path)? else {
        return Ok(Judgement::Moved(Conflict::HostDeleted));
    };
    if after.is_some_and(|after| compare::equal(after, &now)) {
        return Ok(Judgement::Agreed);
    }
    let Some(before) = &record.node else {
        return Ok(Judgement::Moved(Conflict::HostCreated));
    };
    if before.file_type != now.file_type {
        return Ok(Judgement::Moved(Conflict::HostTypeChanged));
    }
    let same = compare::equal(before, &now) || same_index(path, before, &now, host, baseline);
    if record.unsure || !same {
        return Ok(Judgement::Moved(Conflict::HostModified));
    }
    if now.file_type == FileType::File && before.digest == now.digest {
        // Next time its stat alone tells. A directory's is kept: it tells whether names came.
        if now.mtime != before.mtime {
            record.touched.get_or_insert(Box::new(before.mtime));
        }
        record.node = Some(Arc::new(now));
        baseline.set(path, record.clone())?;
    }
    inside(path, record, host, baseline)
}

/// For a directory that is to go or to be replaced: whether the host has names in it that the
/// baseline does not know.
fn inside(
    path: &RelPath,
    record: &Record,
    host: &mut Host,
    baseline: &Baseline,
) -> io::Result<Judgement> {
    let Some(before) = record.node.as_ref().filter(|_| record.tree || record.pure) else {
        return Ok(Judgement::Unmoved);
    };
    if before.file_type != FileType::Dir
        || host.stat(path)?.is_some_and(|now| now.same_stat(before))
    {
        return Ok(Judgement::Unmoved);
    }
    for name in host.list(path) {
        let child = path.join(&name);
        if baseline.get(&child).is_none_or(|r| r.node.is_none()) {
            return Ok(Judgement::Moved(Conflict::HostAddedInside { path: child }));
        }
    }
    Ok(Judgement::Unmoved)
}

/// For a new entry: whether the host still has the directory it goes to.
fn parent(path: &RelPath, host: &mut Host, baseline: &Baseline) -> io::Result<Judgement> {
    if host.has_parent(path)? {
        return Ok(Judgement::Unmoved);
    }
    let parent = path.parent().unwrap_or_default();
    let expected = baseline
        .get(&parent)
        .and_then(|r| r.node.as_ref())
        .is_some_and(|n| n.file_type == FileType::Dir);
    if !expected {
        // The agent made it; it is a row of its own.
        return Ok(Judgement::Unmoved);
    }
    Ok(match host.stat(&parent)? {
        None => Judgement::Moved(Conflict::HostDeleted),
        Some(now) if now.file_type == FileType::Dir => Judgement::Unmoved,
        Some(_) => Judgement::Moved(Conflict::HostTypeChanged),
    })
}

/// Whether the host's side of git's index was only refreshed.
pub(super) fn same_index(
    path: &RelPath,
    before: &Node,
    now: &Node,
    host: &mut Host,
    baseline: &Baseline,
) -> bool {
    if !git_index::is_index(path)
        || before.file_type != FileType::File
        || before.mode != now.mode
        || before.size.max(now.size) > LARGEST_IN_MEMORY
    {
        return false;
    }
    let old = before
        .digest
        .and_then(|digest| baseline.kept(digest))
        .and_then(|file| content::read(&file, LARGEST_IN_MEMORY).ok()?.bytes);
    let new = host
        .content(path, now, LARGEST_IN_MEMORY)
        .and_then(|content| content.bytes);
    match (old, new) {
        (Some(old), Some(new)) => git_index::same_but_stat(&old, &new),
        _ => false,
    }
}
