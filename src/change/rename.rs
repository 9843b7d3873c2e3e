//! Finds renames among deleted and added entries. Owns the rule of what belongs together: identical
//! content first (same base name, then byte order), then text that is at least half the same. No
//! I/O: contents are asked for.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::{Change, ChangeKind, Class};
use crate::layer::{Digest, FileType};

/// Largest text that is compared for similarity.
pub(super) const LARGEST_TEXT: u64 = 1 << 20;

/// Pairs of texts compared at most; beyond, only those of one base name are.
const PAIRS_AT_MOST: usize = 20_000;

/// Bytes of text read for fingerprints at most, per side.
const BYTES_AT_MOST: u64 = 64 << 20;

/// How many bytes stand in lines of each hash.
pub(super) type Fingerprint = HashMap<u64, u32>;

/// Lines of a text by hash.
pub(super) fn fingerprint(text: &[u8]) -> Fingerprint {
    let mut lines = Fingerprint::new();
    for line in text.split_inclusive(|b| *b == b'\n') {
        let hash = blake3::hash(line);
        let mut first = [0; 8];
        first.copy_from_slice(&hash.as_bytes()[..8]);
        *lines.entry(u64::from_le_bytes(first)).or_default() += line.len() as u32;
    }
    lines
}

/// Which of the changes belong together: (deleted, added), by index.
///
/// `print` gives the fingerprint of a change's content (of the deleted or added side), or `None`
/// when it is no text or cannot be read.
pub(super) fn pairs(
    changes: &[Arc<Change>],
    mut print: impl FnMut(&Change) -> Option<Arc<Fingerprint>>,
) -> Vec<(usize, usize)> {
    let mut deleted: Vec<usize> = Vec::new();
    let mut added: Vec<usize> = Vec::new();
    for (index, change) in changes.iter().enumerate() {
        let side = match change.kind {
            ChangeKind::Deleted => &mut deleted,
            ChangeKind::Added if change.class != Class::GitObject => &mut added,
            _ => continue,
        };
        if matches!(change.file_type(), FileType::File | FileType::Symlink) {
            side.push(index);
        }
    }
    if deleted.is_empty() || added.is_empty() {
        return Vec::new();
    }
    let mut found = identical(changes, &deleted, &added);
    let left = |side: &[usize], taken: &dyn Fn(&(usize, usize)) -> usize| -> Vec<usize> {
        let used: HashSet<usize> = found.iter().map(taken).collect();
        side.iter()
            .copied()
            .filter(|i| !used.contains(i) && is_candidate(&changes[*i]))
            .collect()
    };
    let deleted = left(&deleted, &|pair| pair.0);
    let added = left(&added, &|pair| pair.1);
    found.extend(similar(changes, &deleted, &added, &mut print));
    found
}

/// What makes two entries the same content: type, class and digest (of a link: its target's).
fn content(change: &Change) -> Option<(FileType, Class, Digest)> {
    let node = change.after.as_ref().or(change.before.as_ref())?;
    if node.size == 0 {
        // Every empty file is like every other.
        return None;
    }
    Some((node.file_type, change.class, node.digest?))
}

fn name(change: &Change) -> &[u8] {
    change.key.path.file_name().unwrap_or_default()
}

fn identical(changes: &[Arc<Change>], deleted: &[usize], added: &[usize]) -> Vec<(usize, usize)> {
    let mut groups: HashMap<_, (Vec<usize>, Vec<usize>)> = HashMap::new();
    for index in deleted {
        if let Some(key) = content(&changes[*index]) {
            groups.entry(key).or_default().0.push(*index);
        }
    }
    for index in added {
        if let Some(key) = content(&changes[*index])
            && let Some(group) = groups.get_mut(&key)
        {
            group.1.push(*index);
        }
    }
    let mut found = Vec::new();
    for (old, new) in groups.into_values() {
        // Both lists are in byte order, since the changes are.
        let mut by_name: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
        for index in new.iter().rev() {
            by_name
                .entry(name(&changes[*index]))
                .or_default()
                .push(*index);
        }
        let mut rest = Vec::new();
        let mut used = HashSet::new();
        for index in old {
            match by_name.get_mut(name(&changes[index])).and_then(Vec::pop) {
                Some(partner) => {
                    used.insert(partner);
                    found.push((index, partner));
                }
                None => rest.push(index),
            }
        }
        let free = new.into_iter().filter(|i| !used.contains(i));
        found.extend(rest.into_iter().zip(free));
    }
    found
}

fn is_candidate(change: &Change) -> bool {
    change
        .after
        .as_ref()
        .or(change.before.as_ref())
        .is_some_and(|n| {
            n.file_type == FileType::File && n.size > 0 && n.size <= LARGEST_TEXT && !change.binary
        })
}

fn size(change: &Change) -> u64 {
    change
        .after
        .as_ref()
        .or(change.before.as_ref())
        .map_or(0, |n| n.size)
}

fn similar(
    changes: &[Arc<Change>],
    deleted: &[usize],
    added: &[usize],
    print: &mut impl FnMut(&Change) -> Option<Arc<Fingerprint>>,
) -> Vec<(usize, usize)> {
    let names_only = deleted.len().saturating_mul(added.len()) > PAIRS_AT_MOST;
    let mut budget = BYTES_AT_MOST;
    let mut prints: HashMap<usize, Option<Arc<Fingerprint>>> = HashMap::new();
    let mut get = |index: usize| {
        prints
            .entry(index)
            .or_insert_with(|| {
                let cost = size(&changes[index]);
                if cost > budget {
                    return None;
                }
                budget -= cost;
                print(&changes[index])
            })
            .clone()
    };
    let mut by_name: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for index in added {
        by_name
            .entry(name(&changes[*index]))
            .or_default()
            .push(*index);
    }
    // (score, same name) best first; ties in byte order.
    let mut scored: Vec<(u64, bool, usize, usize)> = Vec::new();
    let mut compared = 0;
    for old in deleted {
        let partners = if names_only {
            by_name
                .get(name(&changes[*old]))
                .map_or(&[][..], Vec::as_slice)
        } else {
            added
        };
        for new in partners {
            let (a, b) = (size(&changes[*old]), size(&changes[*new]));
            // Half of the larger one must be common: hopeless when the other is not half its size.
            if changes[*old].class != changes[*new].class || a.min(b) * 2 < a.max(b) {
                continue;
            }
            compared += 1;
            if compared > PAIRS_AT_MOST {
                break;
            }
            let (Some(x), Some(y)) = (get(*old), get(*new)) else {
                continue;
            };
            let common: u64 = x
                .iter()
                .map(|(hash, bytes)| u64::from((*bytes).min(y.get(hash).copied().unwrap_or(0))))
                .sum();
            if common * 2 >= a.max(b) {
                let score = common * 1000 / a.max(b);
                let same_name = name(&changes[*old]) == name(&changes[*new]);
                scored.push((score, same_name, *old, *new));
            }
        }
    }
    scored.sort_by(|a, b| {
        (b.0, b.1)
            .cmp(&(a.0, a.1))
            .then((a.2, a.3).cmp(&(b.2, b.3)))
    });
    let mut used_old = HashSet::new();
    let mut used_new = HashSet::new();
    scored
        .into_iter()
        .filter(|(_, _, old, new)| {
            let free = !used_old.contains(old) && !used_new.contains(new);
            if free {
                used_old.insert(*old);
                used_new.insert(*new);
            }
            free
        })
        .map(|(_, _, old, new)| (old, new))
        .collect()
}
