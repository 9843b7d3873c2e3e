//! Names that share one file for the agent: where the host has that file and keeps it, new names
//! have to become names of the host's own. Only reads.

use std::collections::{BTreeMap, HashMap};

use crate::layer::{AccessError, FileType, Node};
use crate::{LayerPath, RelPath};

use super::Batch;
use super::effect::{self, Content, Effect};
use super::place::Root;

/// By layer, device and inode in the upper: the host's path of the same file.
pub(super) type Anchors = HashMap<(String, u64, u64), RelPath>;

/// Names of the upper that are one file, by layer, device and inode.
type Groups = BTreeMap<(String, u64, u64), Vec<LayerPath>>;

/// Finds the host's name of every file that gets new ones. What would be moved or changed in place
/// beside it, and is another file on the host, is made anew as a name of it instead.
pub(super) fn find(
    batch: &Batch<'_>,
    roots: &BTreeMap<String, Root>,
    effects: &mut BTreeMap<LayerPath, Effect>,
) -> Result<Anchors, AccessError> {
    let mut anchors = Anchors::new();
    for (inode, names) in groups(batch, effects)? {
        let unchanged = names
            .iter()
            .find(|name| !effects.contains_key(*name) && !batch.changes.contains_key(*name));
        let anchor = match unchanged {
            Some(name) => Some(name.path.clone()),
            None => moved(effects, &names),
        };
        let host = anchor
            .as_ref()
            .and_then(|path| roots.get(&inode.0)?.look(path).ok()?)
            .map(|look| (look.node.dev, look.node.ino));
        for name in &names {
            renew(batch, effects, name, anchor.as_ref(), host);
        }
        if let Some(path) = anchor {
            anchors.insert(inode, path);
        }
    }
    Ok(anchors)
}

/// Every file with several names of which one at least is touched by the batch and one is not made
/// anew: the others become one while they are made.
fn groups(batch: &Batch<'_>, effects: &BTreeMap<LayerPath, Effect>) -> Result<Groups, AccessError> {
    let mut made: BTreeMap<(String, u64, u64), (u32, u32)> = BTreeMap::new();
    for (key, effect) in effects {
        let (node, new) = match effect {
            Effect::Put { want, .. } => match &want.content {
                Content::Upper {
                    shared: Some((dev, ino)),
                    ..
                } => ((*dev, *ino, want.node.nlink), 1),
                _ => continue,
            },
            Effect::Meta { .. } | Effect::Move { .. } => {
                // What the agent has there; the effect may describe the host's entry.
                let Some(after) = batch.changes.get(key).and_then(|c| c.after.as_ref()) else {
                    continue;
                };
                ((after.dev, after.ino, after.nlink), 0)
            }
            Effect::Remove { .. } => continue,
        };
        let (dev, ino, names) = node;
        if names > 1 && !is_dir(effect) {
            made.entry((key.layer.clone(), dev, ino))
                .or_insert((0, names))
                .0 += new;
        }
    }
    let mut groups = Groups::new();
    for (inode, (made, names)) in made {
        if made < names {
            groups.insert(inode, Vec::new());
        }
    }
    let mut layers: Vec<String> = groups.keys().map(|(layer, ..)| layer.clone()).collect();
    layers.dedup();
    for layer in layers {
        for entry in batch.access.walk(&layer)? {
            let inode = (layer.clone(), entry.node.dev, entry.node.ino);
            if !entry.whiteout
                && entry.node.file_type != FileType::Dir
                && let Some(names) = groups.get_mut(&inode)
            {
                names.push(LayerPath::new(layer.clone(), entry.path));
            }
        }
    }
    Ok(groups)
}

fn is_dir(effect: &Effect) -> bool {
    matches!(effect, Effect::Meta { after, .. } | Effect::Move { after, .. }
        if after.file_type == FileType::Dir)
}

/// The host's path of the first name that is moved there as it is.
fn moved(effects: &BTreeMap<LayerPath, Effect>, names: &[LayerPath]) -> Option<RelPath> {
    names.iter().find_map(|name| match effects.get(name) {
        Some(Effect::Move {
            from,
            before,
            after,
        }) if looks_same(before, after) => Some(from.clone()),
        _ => None,
    })
}

fn looks_same(a: &Node, b: &Node) -> bool {
    (a.mode, &a.xattrs, a.mtime) == (b.mode, &b.xattrs, b.mtime)
}

/// Turns a move or a change in place into an entry made anew, unless it is about the anchor's own
/// inode or was approved in part only.
fn renew(
    batch: &Batch<'_>,
    effects: &mut BTreeMap<LayerPath, Effect>,
    name: &LayerPath,
    anchor: Option<&RelPath>,
    host: Option<(u64, u64)>,
) {
    let Some(approved) = batch.changes.get(name).and_then(|c| c.after.as_ref()) else {
        return;
    };
    let want = effect::whole(&name.path, approved.clone());
    match effects.get(name) {
        Some(Effect::Meta { before, after })
            if looks_same(after, approved) && host != Some((before.dev, before.ino)) =>
        {
            let before = Some(before.clone());
            effects.insert(name.clone(), Effect::Put { before, want });
        }
        Some(Effect::Move {
            from,
            before,
            after,
        }) if looks_same(after, approved) && anchor != Some(from) => {
            let old = LayerPath::new(name.layer.clone(), from.clone());
            let before = before.clone();
            effects.insert(old, Effect::Remove { before });
            effects.insert(name.clone(), Effect::Put { before: None, want });
        }
        _ => {}
    }
}
