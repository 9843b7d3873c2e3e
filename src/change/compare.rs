//! What differs between two sides of a path, and the name of exactly that difference. No I/O.

use super::ChangeKind;
use crate::RelPath;
use crate::layer::{Digest, FileType, Node};

/// Whether two nodes of one type hold the same content. Without digests on both sides contents
/// that could differ count as different.
pub(super) fn same_content(a: &Node, b: &Node) -> bool {
    match a.file_type {
        FileType::File => a.size == b.size && a.digest.is_some() && a.digest == b.digest,
        FileType::Symlink => a.target == b.target,
        FileType::Device => a.rdev == b.rdev,
        FileType::Dir | FileType::Fifo | FileType::Socket => true,
    }
}

/// Whether two sides are the same entry for a reviewer: type, content, mode and attributes. A
/// link's own mode means nothing; owners and times are left out.
pub(super) fn equal(a: &Node, b: &Node) -> bool {
    a.file_type == b.file_type
        && same_content(a, b)
        && (a.mode == b.mode || a.file_type == FileType::Symlink)
        && a.xattrs == b.xattrs
}

/// What became of a path; `None` when nothing did.
pub(super) fn kind(before: Option<&Node>, after: Option<&Node>) -> Option<ChangeKind> {
    let (before, after) = match (before, after) {
        (None, None) => return None,
        (None, Some(_)) => return Some(ChangeKind::Added),
        (Some(_), None) => return Some(ChangeKind::Deleted),
        (Some(before), Some(after)) => (before, after),
    };
    if before.file_type != after.file_type {
        return Some(ChangeKind::Type);
    }
    if !same_content(before, after) {
        return Some(ChangeKind::Modified);
    }
    if before.mode != after.mode && after.file_type != FileType::Symlink {
        return Some(ChangeKind::Mode);
    }
    // A directory's moves with what lies in it; a socket is never committed.
    let timed = matches!(
        after.file_type,
        FileType::File | FileType::Symlink | FileType::Fifo
    );
    if before.xattrs != after.xattrs || timed && before.mtime != after.mtime {
        return Some(ChangeKind::Meta);
    }
    None
}

/// Names exactly this change: see [`super::Change::digest`].
pub(super) fn change_digest(
    layer: &str,
    path: &RelPath,
    kind: &ChangeKind,
    before: Option<&Node>,
    after: Option<&Node>,
) -> Digest {
    let mut hasher = blake3::Hasher::new();
    // Each part with its length, so that no two changes spell the same bytes.
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    part(kind.name().as_bytes());
    part(layer.as_bytes());
    part(path.as_bytes());
    if let ChangeKind::Renamed { from } = kind {
        part(from.as_bytes());
    }
    for side in [before, after] {
        let Some(node) = side else {
            part(b"none");
            continue;
        };
        part(node.file_type.name().as_bytes());
        part(&node.mode.to_le_bytes());
        part(&node.rdev.to_le_bytes());
        part(&node.size.to_le_bytes());
        part(node.digest.as_ref().map_or(&[][..], |d| &d.0));
        part(node.target.as_deref().unwrap_or_default());
        part(&(node.xattrs.len() as u64).to_le_bytes());
        for (name, value) in &node.xattrs {
            part(name.as_bytes());
            part(value);
        }
    }
    Digest(*hasher.finalize().as_bytes())
}
