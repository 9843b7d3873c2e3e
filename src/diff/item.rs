//! Names of items, and the list of what can be decided on in a change. Owns the rule that an id is
//! made of content and survives edits elsewhere.

use std::collections::HashMap;

use super::compute::FileDiff;
use super::{Item, ItemId, ItemKind, Span};
use crate::change::ChangeKind;
use crate::layer::read::ACL_ACCESS;
use crate::layer::{FileType, Node};

/// Fewest hex digits of an id; more are used where two items of a change would look alike.
const MIN_DIGITS: usize = 4;

/// Content of an item, hashed.
pub(crate) type Fingerprint = blake3::Hash;

/// Hashes what a hunk removes and adds.
pub(crate) fn hunk_fingerprint(removed: &[&[u8]], added: &[&[u8]]) -> Fingerprint {
    let mut hasher = blake3::Hasher::new();
    for side in [removed, added] {
        hasher.update(&(side.len() as u64).to_le_bytes());
        for line in side {
            hasher.update(&(line.len() as u64).to_le_bytes());
            hasher.update(line);
        }
    }
    hasher.finalize()
}

/// Tells equal fingerprints apart by their ordinal, in order.
pub(crate) fn number_equal_ones(prints: Vec<Fingerprint>) -> Vec<Fingerprint> {
    let mut seen: HashMap<[u8; 32], u64> = HashMap::new();
    prints
        .into_iter()
        .map(|print| {
            let ordinal = seen.entry(*print.as_bytes()).or_insert(0);
            *ordinal += 1;
            if *ordinal == 1 {
                return print;
            }
            let mut hasher = blake3::Hasher::new();
            hasher.update(print.as_bytes());
            hasher.update(&ordinal.to_le_bytes());
            hasher.finalize()
        })
        .collect()
}

/// Ids for distinct fingerprints: the letter and as few digits as tell each from all others.
pub(crate) fn name(letter: char, prints: &[Fingerprint]) -> Vec<ItemId> {
    let hex: Vec<_> = prints.iter().map(blake3::Hash::to_hex).collect();
    let mut order: Vec<usize> = (0..hex.len()).collect();
    order.sort_unstable_by(|a, b| hex[*a].as_str().cmp(hex[*b].as_str()));
    let mut digits = vec![MIN_DIGITS; hex.len()];
    for pair in order.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        let common = hex[a]
            .bytes()
            .zip(hex[b].bytes())
            .take_while(|(x, y)| x == y)
            .count();
        let needed = (common + 1).min(64);
        digits[a] = digits[a].max(needed);
        digits[b] = digits[b].max(needed);
    }
    hex.iter()
        .zip(digits)
        .map(|(hex, digits)| ItemId(format!("{letter}{}", &hex.as_str()[..digits])))
        .collect()
}

fn single(letter: char, feed: impl FnOnce(&mut blake3::Hasher)) -> ItemId {
    let mut hasher = blake3::Hasher::new();
    feed(&mut hasher);
    let hex = hasher.finalize().to_hex();
    ItemId(format!("{letter}{}", &hex.as_str()[..MIN_DIGITS]))
}

/// Id of the newline at the end of the file.
pub(crate) fn eof_id(adds: bool) -> ItemId {
    single('e', |h| {
        h.update(if adds { b"adds" } else { b"drop" });
    })
}

/// Everything that can be decided on in a change, in file order; never empty.
///
/// An addition, a deletion, a type change and a changed binary are one `whole`. Changed text gives
/// its hunks, then `eof`, `mode` and `meta` as they differ; a link that points elsewhere gives
/// `link`. A rename begins with the `whole` that is the rename itself.
/// `diff` is the comparison of both sides' bytes; without one, changed content is one `whole`.
pub fn items(
    kind: &ChangeKind,
    before: Option<&Node>,
    after: Option<&Node>,
    diff: Option<&FileDiff>,
) -> Vec<Item> {
    let plain = |kind: ItemKind, id: ItemId| Item {
        id,
        kind,
        old: Span::default(),
        new: Span::default(),
    };
    let whole = || {
        plain(
            ItemKind::Whole,
            single('w', |h| {
                h.update(kind.name().as_bytes());
                if let ChangeKind::Renamed { from } = kind {
                    h.update(from.as_bytes());
                } else {
                    feed_node(h, before);
                    feed_node(h, after);
                }
            }),
        )
    };
    let (Some(a), Some(b)) = (before, after) else {
        return vec![whole()];
    };
    let mut out = Vec::new();
    match kind {
        ChangeKind::Added | ChangeKind::Deleted | ChangeKind::Type => return vec![whole()],
        ChangeKind::Renamed { .. } => out.push(whole()),
        ChangeKind::Modified | ChangeKind::Mode | ChangeKind::Meta => {}
    }
    if a.file_type != b.file_type {
        return vec![whole()];
    }
    if a.file_type == FileType::Symlink {
        if a.target != b.target {
            let id = single('l', |h| {
                feed_bytes(h, a.target.as_deref().unwrap_or_default());
                feed_bytes(h, b.target.as_deref().unwrap_or_default());
            });
            out.push(plain(ItemKind::Link, id));
        }
    } else if content_differs(kind, a, b) {
        match diff.filter(|d| !d.binary) {
            Some(diff) => {
                out.extend(diff.hunks.iter().map(|hunk| Item {
                    id: hunk.id.clone(),
                    kind: ItemKind::Hunk,
                    old: hunk.old,
                    new: hunk.new,
                }));
                out.extend(
                    diff.eof
                        .iter()
                        .map(|eof| plain(ItemKind::Eof, eof.id.clone())),
                );
            }
            // Bytes that cannot be taken apart are decided on together with everything else.
            None => return vec![whole()],
        }
    }
    let one = mode_is_acl(a, b);
    if a.mode != b.mode && !one {
        let id = single('m', |h| {
            h.update(&a.mode.to_le_bytes());
            h.update(&b.mode.to_le_bytes());
        });
        out.push(plain(ItemKind::Mode, id));
    }
    if *kind == ChangeKind::Meta || attributes_differ(a, b) {
        let id = single('x', |h| {
            for node in [a, b] {
                h.update(&node.uid.to_le_bytes());
                h.update(&node.gid.to_le_bytes());
                if one {
                    h.update(&node.mode.to_le_bytes());
                }
                for (name, value) in &node.xattrs {
                    feed_bytes(h, name.as_bytes());
                    feed_bytes(h, value);
                }
            }
        });
        out.push(plain(ItemKind::Meta, id));
    }
    if out.is_empty() {
        out.push(whole());
    }
    out
}

/// Content differs unless both digests say otherwise; kinds that are about something else never
/// carry content.
fn content_differs(kind: &ChangeKind, a: &Node, b: &Node) -> bool {
    match kind {
        ChangeKind::Mode | ChangeKind::Meta => false,
        _ => a.file_type == FileType::File && (a.digest.is_none() || a.digest != b.digest),
    }
}

/// Whether mode and attributes can only be decided on together: an access list that differs says the
/// group's bits too (acl(5)), so that neither can be set without the other.
pub fn mode_is_acl(a: &Node, b: &Node) -> bool {
    a.mode != b.mode && a.xattrs.get(ACL_ACCESS) != b.xattrs.get(ACL_ACCESS)
}

fn attributes_differ(a: &Node, b: &Node) -> bool {
    a.xattrs != b.xattrs || a.uid != b.uid || a.gid != b.gid
}

fn feed_bytes(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

fn feed_node(hasher: &mut blake3::Hasher, node: Option<&Node>) {
    let Some(node) = node else {
        hasher.update(b"-");
        return;
    };
    hasher.update(&node.full_mode().to_le_bytes());
    hasher.update(&node.digest.map_or([0; 32], |d| d.0));
    feed_bytes(hasher, node.target.as_deref().unwrap_or_default());
}
