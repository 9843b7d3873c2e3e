//! From what was approved to what shall become of each path. Owns the meaning of items: which
//! bytes, mode, target and attributes an approval of some of them stands for. No I/O.

use std::sync::Arc;

use crate::RelPath;
use crate::change::{Change, ChangeKind};
use crate::diff::{ItemKind, ItemRef, mode_is_acl};
use crate::layer::{FileType, Node};

use super::{Approved, Selection};

/// Where the bytes of a new file come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// None are needed: no regular file.
    None,
    /// The upper's file, whose digest is the node's (or its link or pipe with several names).
    Upper {
        path: RelPath,
        /// Device and inode of an upper's file with several names, which shall be one file on the
        /// host as well.
        shared: Option<(u64, u64)>,
    },
    /// These: a merge of the host's and the agent's.
    Bytes(Vec<u8>),
    /// The host's bytes with some of the agent's edits.
    Picked(Box<Picked>),
}

/// Which bytes and edits a partial approval is put together from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Picked {
    /// The host's file and what it must be; none: no bytes.
    pub old: Option<(RelPath, Arc<Node>)>,
    /// The upper's file and what it must be; none: no bytes.
    pub new: Option<(RelPath, Arc<Node>)>,
    pub chosen: Vec<ItemRef>,
}

/// A new entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Want {
    pub node: Arc<Node>,
    pub content: Content,
}

/// What shall become of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    /// A new entry, in place of `before` when there is one.
    Put {
        before: Option<Arc<Node>>,
        want: Want,
    },
    /// The entry goes.
    Remove { before: Arc<Node> },
    /// The entry stays, its mode, xattrs, owner or times change.
    Meta { before: Arc<Node>, after: Arc<Node> },
    /// The entry comes from another path as it is.
    Move {
        from: RelPath,
        before: Arc<Node>,
        after: Arc<Node>,
    },
}

struct Chosen {
    whole: bool,
    link: bool,
    mode: bool,
    meta: bool,
    /// Chosen hunks and ends of file.
    edits: Vec<ItemRef>,
    /// Every hunk and end of file is chosen.
    all_edits: bool,
}

/// The effects of an approval, by path of its layer.
pub(super) fn of(approved: &Approved) -> Result<Vec<(RelPath, Effect)>, String> {
    let change = &approved.change;
    let picked = pick(change, &approved.selection)?;
    if let Some(after) = &change.after
        && matches!(after.file_type, FileType::Socket | FileType::Device)
    {
        return Err(format!(
            "a {} is never committed; reject it or leave it out",
            after.file_type.name()
        ));
    }
    let path = &change.key.path;
    if path.is_root() && !matches!(change.kind, ChangeKind::Mode | ChangeKind::Meta) {
        return Err("the layer's root itself can be neither replaced nor removed".into());
    }
    let missing = || "the change does not say what was there; scan again".to_string();
    let before = change.before.as_ref();
    let after = change.after.as_ref();
    let effect = match &change.kind {
        ChangeKind::Added => added(path, after.ok_or_else(missing)?, picked),
        ChangeKind::Deleted => deleted(path, before.ok_or_else(missing)?, picked),
        ChangeKind::Renamed { from } => {
            return Ok(renamed(
                path,
                from,
                before.ok_or_else(missing)?,
                after.ok_or_else(missing)?,
                picked,
            ));
        }
        ChangeKind::Type => picked
            .whole
            .then(|| {
                after.map(|after| Effect::Put {
                    before: before.cloned(),
                    want: whole(path, after.clone()),
                })
            })
            .flatten(),
        ChangeKind::Modified | ChangeKind::Mode | ChangeKind::Meta => changed(
            path,
            path,
            before.ok_or_else(missing)?,
            after.ok_or_else(missing)?,
            picked,
        ),
    };
    Ok(effect
        .map(|effect| (path.clone(), effect))
        .into_iter()
        .collect())
}

fn pick(change: &Change, selection: &Selection) -> Result<Chosen, String> {
    let is_edit = |kind| matches!(kind, ItemKind::Hunk | ItemKind::Eof);
    let Selection::Items(refs) = selection else {
        return Ok(Chosen {
            whole: true,
            link: true,
            mode: true,
            meta: true,
            edits: Vec::new(),
            all_edits: true,
        });
    };
    let chosen = |kind: ItemKind| {
        let mut of_kind = change.items.iter().filter(|i| i.kind == kind).peekable();
        // What has no item of its own goes with the rest.
        of_kind.peek().is_none() || of_kind.any(|i| refs.iter().any(|r| r.id == i.id))
    };
    let mut edits = Vec::new();
    for reference in refs {
        let Some(item) = change.items.iter().find(|i| i.id == reference.id) else {
            return Err(format!(
                "it has no item {}",
                crate::text::visible(reference.id.0.as_bytes())
            ));
        };
        if is_edit(item.kind) {
            edits.push(reference.clone());
        }
    }
    let both = change.before.as_ref().zip(change.after.as_ref());
    let mode = if both.is_some_and(|(a, b)| mode_is_acl(a, b)) {
        ItemKind::Meta
    } else {
        ItemKind::Mode
    };
    let named = |kind: ItemKind| {
        change
            .items
            .iter()
            .any(|i| i.kind == kind && refs.iter().any(|r| r.id == i.id))
    };
    let all_edits = change
        .items
        .iter()
        .filter(|i| is_edit(i.kind))
        .all(|i| edits.iter().any(|r| r.id == i.id && r.lines.is_none()));
    Ok(Chosen {
        whole: named(ItemKind::Whole),
        link: named(ItemKind::Link),
        mode: chosen(mode),
        meta: chosen(ItemKind::Meta),
        edits,
        all_edits,
    })
}

fn has_edits(picked: &Chosen) -> bool {
    !picked.edits.is_empty()
}

/// All of the agent's entry at `path`.
pub(super) fn whole(path: &RelPath, node: Arc<Node>) -> Want {
    let shared = (node.nlink > 1).then_some((node.dev, node.ino));
    let content = match node.file_type {
        FileType::File => Content::Upper {
            path: path.clone(),
            shared,
        },
        FileType::Symlink | FileType::Fifo if shared.is_some() => Content::Upper {
            path: path.clone(),
            shared,
        },
        _ => Content::None,
    };
    Want { node, content }
}

/// The host's file at `path` made anew with its own bytes, and with the attributes of `node`.
pub(super) fn with_bytes_of(path: &RelPath, before: &Arc<Node>, node: Arc<Node>) -> Want {
    Want {
        node,
        content: Content::Picked(Box::new(Picked {
            old: Some((path.clone(), before.clone())),
            new: None,
            chosen: Vec::new(),
        })),
    }
}

fn added(path: &RelPath, after: &Arc<Node>, picked: Chosen) -> Option<Effect> {
    let want = if has_edits(&picked) && !picked.all_edits {
        Want {
            node: after.clone(),
            content: Content::Picked(Box::new(Picked {
                old: None,
                new: Some((path.clone(), after.clone())),
                chosen: picked.edits,
            })),
        }
    } else if picked.whole || has_edits(&picked) {
        whole(path, after.clone())
    } else {
        return None;
    };
    Some(Effect::Put { before: None, want })
}

fn deleted(path: &RelPath, before: &Arc<Node>, picked: Chosen) -> Option<Effect> {
    if picked.whole {
        return Some(Effect::Remove {
            before: before.clone(),
        });
    }
    has_edits(&picked).then(|| Effect::Put {
        before: Some(before.clone()),
        want: Want {
            node: before.clone(),
            content: Content::Picked(Box::new(Picked {
                old: Some((path.clone(), before.clone())),
                new: None,
                chosen: picked.edits,
            })),
        },
    })
}

/// A change that leaves an entry of the same type under the name `path`; the agent's bytes lie at
/// `upper`.
fn changed(
    path: &RelPath,
    upper: &RelPath,
    before: &Arc<Node>,
    after: &Arc<Node>,
    picked: Chosen,
) -> Option<Effect> {
    let meta = if picked.meta { after } else { before };
    let mode = if picked.mode { after } else { before };
    let node = Node {
        mode: mode.mode,
        uid: meta.uid,
        gid: meta.gid,
        xattrs: meta.xattrs.clone(),
        ..(**after).clone()
    };
    match after.file_type {
        FileType::File if before.digest != after.digest || after.digest.is_none() => {
            if picked.whole || (has_edits(&picked) && picked.all_edits) {
                return Some(Effect::Put {
                    before: Some(before.clone()),
                    want: whole(upper, Arc::new(node)),
                });
            }
            if has_edits(&picked) {
                return Some(Effect::Put {
                    before: Some(before.clone()),
                    want: Want {
                        node: Arc::new(node),
                        content: Content::Picked(Box::new(Picked {
                            old: Some((path.clone(), before.clone())),
                            new: Some((upper.clone(), after.clone())),
                            chosen: picked.edits,
                        })),
                    },
                });
            }
        }
        FileType::Symlink if before.target != after.target => {
            return (picked.whole || picked.link).then(|| Effect::Put {
                before: Some(before.clone()),
                want: whole(upper, Arc::new(node)),
            });
        }
        _ => {}
    }
    // The content stays. Its time goes with the attributes, unless it is the time of content that
    // was not chosen, or of a directory, which every entry made in it moves anyway.
    let same_content = before.digest == after.digest && before.target == after.target;
    let times = same_content && after.file_type != FileType::Dir;
    let stays = Node {
        mtime: if times { meta.mtime } else { before.mtime },
        digest: before.digest,
        size: before.size,
        target: before.target.clone(),
        ..node
    };
    let moved = stays.mode != before.mode
        || stays.xattrs != before.xattrs
        || stays.mtime != before.mtime
        || (stays.uid, stays.gid) != (before.uid, before.gid);
    moved.then(|| Effect::Meta {
        before: before.clone(),
        after: Arc::new(stays),
    })
}

fn renamed(
    path: &RelPath,
    from: &RelPath,
    before: &Arc<Node>,
    after: &Arc<Node>,
    picked: Chosen,
) -> Vec<(RelPath, Effect)> {
    if picked.whole && after.file_type == FileType::Dir {
        // What lies in it moves by changes of its own, each as it was approved.
        let gone = Effect::Remove {
            before: before.clone(),
        };
        let come = Effect::Put {
            before: None,
            want: whole(path, after.clone()),
        };
        return vec![(from.clone(), gone), (path.clone(), come)];
    }
    if !picked.whole {
        // The rename was not approved: what was goes to the old path, in place.
        return changed(from, path, before, after, picked)
            .map(|effect| (from.clone(), effect))
            .into_iter()
            .collect();
    }
    let no_edit = picked.edits.is_empty() && !picked.all_edits;
    let edited = changed(
        from,
        path,
        before,
        after,
        Chosen {
            // Without any chosen edit the old bytes go to the new path.
            whole: !no_edit && picked.all_edits,
            ..picked
        },
    );
    match edited {
        Some(Effect::Put { want, .. }) => vec![
            (
                from.clone(),
                Effect::Remove {
                    before: before.clone(),
                },
            ),
            (path.clone(), Effect::Put { before: None, want }),
        ],
        Some(Effect::Meta { after, .. }) => vec![(
            path.clone(),
            Effect::Move {
                from: from.clone(),
                before: before.clone(),
                after,
            },
        )],
        _ => vec![(
            path.clone(),
            Effect::Move {
                from: from.clone(),
                before: before.clone(),
                after: before.clone(),
            },
        )],
    }
}
