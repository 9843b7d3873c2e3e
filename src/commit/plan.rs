//! From approved changes to the effects of a batch. Owns the closure: new parent directories, what
//! lies below a replaced or removed directory, and what stands in the way. Only reads the host.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::change::{Change, ChangeKind, Conflict, Merges};
use crate::layer::{AccessError, FileType, Node};
use crate::{LayerPath, RelPath};

use super::anchor::{self, Anchors};
use super::effect::{self, Content, Effect, Want};
use super::ledger::Step;
use super::names;
use super::place::{Root, words};
use super::steps::{self, Contents, topmost};
use super::{Batch, Refusal};

/// What a batch comes to.
pub(super) struct Plan {
    /// In the order in which they are published.
    pub steps: Vec<Step>,
    pub contents: Contents,
    /// The host's names of files that new names join.
    pub anchors: Anchors,
    /// Changes that are carried out, approved or joined, in the order of their paths; both names
    /// of a rename.
    pub paths: Vec<LayerPath>,
    /// Those of them that are merged with the host's edits.
    pub merged: Vec<LayerPath>,
    pub refusals: Vec<Refusal>,
}

/// Makes the plan of a batch. Everything that stands in its way is listed.
pub(super) fn make(batch: &Batch<'_>, roots: &BTreeMap<String, Root>) -> Result<Plan, AccessError> {
    let mut planner = Planner {
        batch,
        roots,
        effects: BTreeMap::new(),
        paths: BTreeSet::new(),
        merged: Vec::new(),
        refusals: BTreeMap::new(),
        parents: BTreeMap::new(),
        renamed_away: batch
            .changes
            .values()
            .filter_map(|c| Some(LayerPath::new(c.key.layer.clone(), c.from()?.clone())))
            .collect(),
    };
    planner.take_approved();
    planner.join_parents();
    planner.part_names();
    planner.settle_moves();
    let anchors = anchor::find(batch, roots, &mut planner.effects)?;
    let trees = planner.survey_directories();
    let (steps, contents) = steps::in_order(planner.effects, &trees);
    Ok(Plan {
        steps,
        contents,
        anchors,
        paths: planner.paths.into_iter().collect(),
        merged: planner.merged,
        refusals: planner
            .refusals
            .into_iter()
            .map(|(key, reason)| Refusal { key, reason })
            .collect(),
    })
}

/// Largest file of the host that is read to give one of its names other attributes.
const SMALL: u64 = 16 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Parent {
    /// Lies on the host.
    There,
    /// Is made by this batch.
    Made,
    /// Stands in the way; the reason was noted.
    Refused,
}

struct Planner<'a> {
    batch: &'a Batch<'a>,
    roots: &'a BTreeMap<String, Root>,
    effects: BTreeMap<LayerPath, Effect>,
    paths: BTreeSet<LayerPath>,
    merged: Vec<LayerPath>,
    refusals: BTreeMap<LayerPath, String>,
    parents: BTreeMap<LayerPath, Parent>,
    /// Old paths of every rename in the change set.
    renamed_away: BTreeSet<LayerPath>,
}

impl Planner<'_> {
    fn refuse(&mut self, key: &LayerPath, reason: impl Into<String>) {
        self.refusals
            .entry(key.clone())
            .or_insert_with(|| reason.into());
    }

    fn take_approved(&mut self) {
        for approved in &self.batch.approved {
            let change = &approved.change;
            let key = change.key.clone();
            if let Some(conflict) = &change.conflict {
                match conflict {
                    Conflict::OldName { path, conflict } => {
                        let old = LayerPath::new(key.layer.clone(), path.clone());
                        self.refuse(&old, conflict.describe());
                    }
                    conflict => match self.batch.merged.get(&key) {
                        Some(Ok(merged)) => {
                            let effects = vec![(key.path.clone(), merged.effect())];
                            self.take(change, effects);
                            self.merged.push(key);
                        }
                        Some(Err(reason)) => self.refuse(&key, reason),
                        None => self.refuse(&key, unmerged(change, conflict)),
                    },
                }
                continue;
            }
            match effect::of(approved) {
                Ok(effects) if effects.is_empty() => {}
                Ok(effects) => self.take(change, effects),
                Err(reason) => self.refuse(&key, reason),
            }
        }
    }

    fn take(&mut self, change: &Change, effects: Vec<(RelPath, Effect)>) {
        let key = &change.key;
        for (path, effect) in effects {
            let at = LayerPath::new(key.layer.clone(), path);
            if let Effect::Move { from, .. } = &effect {
                self.paths
                    .insert(LayerPath::new(key.layer.clone(), from.clone()));
            }
            self.paths.insert(at.clone());
            if self.effects.insert(at.clone(), effect).is_some() {
                self.refuse(&at, "two approved changes are about this path");
            }
        }
    }

    /// New entries need their directories: missing ones join with the agent's mode.
    fn join_parents(&mut self) {
        let needy: Vec<LayerPath> = self
            .effects
            .iter()
            .filter(|(_, effect)| {
                matches!(
                    effect,
                    Effect::Put { before: None, .. } | Effect::Move { .. }
                )
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in needy {
            let parent = self.parent(&key);
            if parent == Parent::Refused && !self.refusals.contains_key(&key) {
                self.refuse(&key, "its directory stands in the way, see there");
            }
        }
    }

    /// How the directory of `key` stands.
    fn parent(&mut self, key: &LayerPath) -> Parent {
        let Some(dir) = key.path.parent() else {
            return Parent::There;
        };
        let dir = LayerPath::new(key.layer.clone(), dir);
        if let Some(known) = self.parents.get(&dir) {
            return *known;
        }
        let found = self.find_parent(key, &dir);
        self.parents.insert(dir, found);
        found
    }

    fn find_parent(&mut self, key: &LayerPath, dir: &LayerPath) -> Parent {
        if let Some(Effect::Put { before, want }) = self.effects.get(dir) {
            if want.node.file_type != FileType::Dir {
                self.refuse(
                    key,
                    format!("{dir} is committed as something else than a directory"),
                );
                return Parent::Refused;
            }
            let fresh = before.is_none();
            return if fresh && self.parent(dir) == Parent::Refused {
                Parent::Refused
            } else {
                Parent::Made
            };
        }
        let Some(root) = self.roots.get(&dir.layer) else {
            return Parent::Refused;
        };
        match root.look(&dir.path) {
            Ok(Some(look)) if look.node.file_type == FileType::Dir => return Parent::There,
            Ok(Some(_)) => {
                let reason = format!(
                    "{dir} is no directory on the host; approve that change as well, or none below it"
                );
                self.refuse(key, reason);
                return Parent::Refused;
            }
            Ok(None) => {}
            Err(e) => {
                self.refuse(key, unreachable_dir(dir, &e));
                return Parent::Refused;
            }
        }
        let change = self.batch.changes.get(dir);
        let is_new =
            |kind: &ChangeKind| matches!(kind, ChangeKind::Added | ChangeKind::Renamed { .. });
        let Some(change) = change.filter(|c| is_new(&c.kind)) else {
            self.refuse(key, format!("its directory {dir} is no longer on the host"));
            return Parent::Refused;
        };
        if let Some(conflict) = &change.conflict {
            self.refuse(dir, conflict.describe());
            return Parent::Refused;
        }
        let Some(after) = change
            .after
            .clone()
            .filter(|node| node.file_type == FileType::Dir)
        else {
            self.refuse(
                key,
                format!("{dir} is not a directory for the agent either"),
            );
            return Parent::Refused;
        };
        self.paths.insert(dir.clone());
        self.effects.insert(
            dir.clone(),
            Effect::Put {
                before: None,
                want: Want {
                    node: after,
                    content: Content::None,
                },
            },
        );
        if self.parent(dir) == Parent::Refused {
            Parent::Refused
        } else {
            Parent::Made
        }
    }

    /// An inode is moved where that can be done; else its bytes are written anew.
    fn settle_moves(&mut self) {
        let moves: Vec<(LayerPath, RelPath)> = self
            .effects
            .iter()
            .filter_map(|(key, effect)| match effect {
                Effect::Move { from, .. } => Some((key.clone(), from.clone())),
                _ => None,
            })
            .collect();
        let in_place = self.changed_in_place();
        for (key, from) in moves {
            // Changing one name of a file changes its others, whether this batch speaks of them or
            // not; and a change of another one would change this.
            let changes = matches!(self.effects.get(&key), Some(Effect::Move { before, after, .. })
                if before.file_type != FileType::Dir
                    && before.nlink > 1
                    && (in_place.contains(&(before.dev, before.ino))
                        || (before.mode, &before.xattrs, before.mtime)
                            != (after.mode, &after.xattrs, after.mtime)));
            let old = LayerPath::new(key.layer.clone(), from);
            let replaced = old.path.ancestors().any(|dir| {
                matches!(
                    self.effects.get(&LayerPath::new(key.layer.clone(), dir)),
                    Some(Effect::Put { .. })
                )
            });
            // A directory that is made shut, whatever stands between, cannot be moved into.
            let shut = self.parent(&key) == Parent::Made
                && key.path.ancestors().any(|dir| {
                    matches!(
                        self.effects.get(&LayerPath::new(key.layer.clone(), dir)),
                        Some(Effect::Put { want, .. }) if want.node.mode & 0o300 != 0o300
                    )
                });
            if !replaced && !shut && !changes {
                continue;
            }
            if let Some(Effect::Move { before, after, .. }) = self.effects.remove(&key) {
                // Which of the agent's names are one file is said by its own entry.
                let agents = self.batch.changes.get(&key).and_then(|c| c.after.as_ref());
                let agents = agents.unwrap_or(&after);
                let node = Node {
                    dev: agents.dev,
                    ino: agents.ino,
                    nlink: agents.nlink,
                    ..(*after).clone()
                };
                let want = effect::whole(&key.path, Arc::new(node));
                self.effects.insert(key, Effect::Put { before: None, want });
                self.effects.insert(old, Effect::Remove { before });
            }
        }
    }

    /// Names of one file that are to look different from each other are made anew: changed in place
    /// they would all be what the last one became. So is a name the agent has parted from the others.
    fn part_names(&mut self) {
        let mut names: BTreeMap<(u64, u64), Vec<LayerPath>> = BTreeMap::new();
        for (key, effect) in &self.effects {
            if let Effect::Meta { before, .. } = effect
                && before.nlink > 1
                && before.file_type != FileType::Dir
            {
                let inode = (before.dev, before.ino);
                names.entry(inode).or_default().push(key.clone());
            }
        }
        let looks = |effects: &BTreeMap<LayerPath, Effect>, key: &LayerPath| match effects.get(key)
        {
            Some(Effect::Meta { after, .. }) => {
                Some((after.mode, after.xattrs.clone(), after.mtime))
            }
            _ => None,
        };
        for keys in names.into_values() {
            let first = looks(&self.effects, &keys[0]);
            let alike = keys.iter().all(|key| looks(&self.effects, key) == first);
            for key in keys {
                if alike && !self.is_parted(&key) {
                    continue;
                }
                let Some(Effect::Meta { before, after }) = self.effects.get(&key) else {
                    continue;
                };
                let agents = self.batch.changes.get(&key).and_then(|c| c.after.clone());
                let whole = agents.filter(|agents| {
                    (after.mode, &after.xattrs, after.mtime)
                        == (agents.mode, &agents.xattrs, agents.mtime)
                        && (before.digest, &before.target) == (agents.digest, &agents.target)
                });
                let want = match whole {
                    Some(agents) => effect::whole(&key.path, agents),
                    None if before.file_type == FileType::File && before.size <= SMALL => {
                        effect::with_bytes_of(&key.path, before, after.clone())
                    }
                    None => continue,
                };
                let before = Some(before.clone());
                self.effects.insert(key, Effect::Put { before, want });
            }
        }
    }

    /// Whether a name of a host's file with several is, for the agent who saw all of them, another
    /// file than some of the others are.
    fn is_parted(&self, key: &LayerPath) -> bool {
        let Some(Effect::Meta { before, .. }) = self.effects.get(key) else {
            return false;
        };
        let agents = |key: &LayerPath| {
            let after = self.batch.changes.get(key)?.after.as_ref()?;
            Some((after.dev, after.ino))
        };
        let (own, inode) = (agents(key), (before.dev, before.ino));
        let root = self.roots.get(&key.layer).filter(|root| root.keeps_groups);
        root.is_some_and(|root| {
            let names = names::below(&root.path, inode);
            let known = names.len() as u32 + names::kept(self.batch.store, inode);
            let mut names = names
                .into_iter()
                .map(|path| LayerPath::new(&key.layer, path));
            // What changes one name changes all: one without a change is not the same file any more.
            known >= before.nlink && names.any(|name| agents(&name) != own)
        })
    }

    /// The files of the host of which some name gets another mode, time or attribute.
    fn changed_in_place(&self) -> BTreeSet<(u64, u64)> {
        let changed = self.effects.values().filter_map(|effect| match effect {
            Effect::Meta { before, .. } => Some((before.dev, before.ino)),
            _ => None,
        });
        changed.collect()
    }

    /// Looks into directories that go or give way to something else. The result names those that
    /// do so in one step, with everything below.
    fn survey_directories(&mut self) -> BTreeSet<LayerPath> {
        let moved: BTreeSet<LayerPath> = self.moved();
        let dirs: Vec<(LayerPath, bool)> = self
            .effects
            .iter()
            .filter_map(|(key, effect)| match effect {
                Effect::Remove { before } if before.file_type == FileType::Dir => {
                    Some((key.clone(), false))
                }
                Effect::Put {
                    before: Some(before),
                    ..
                } if before.file_type == FileType::Dir => Some((key.clone(), true)),
                _ => None,
            })
            .collect();
        let mut trees = BTreeSet::new();
        for (key, replaced) in dirs {
            if within(&trees, &key) {
                continue;
            }
            match self.survey(&key, replaced, &moved) {
                Survey::Whole => {
                    trees.insert(key);
                }
                Survey::Stays => {
                    // What stays below keeps its directory; its removal stays undecided.
                    self.effects.remove(&key);
                    self.paths.remove(&key);
                }
                // What it would come to, as it is now, is not worth a second reason.
                Survey::Refused => {
                    self.effects.remove(&key);
                }
            }
        }
        trees
    }

    fn moved(&self) -> BTreeSet<LayerPath> {
        self.effects
            .iter()
            .filter_map(|(key, effect)| match effect {
                Effect::Move { from, .. } => Some(LayerPath::new(key.layer.clone(), from.clone())),
                _ => None,
            })
            .collect()
    }

    fn survey(&mut self, top: &LayerPath, replaced: bool, moved: &BTreeSet<LayerPath>) -> Survey {
        let Some(root) = self.roots.get(&top.layer) else {
            return Survey::Refused;
        };
        let mut unknown = None;
        let mut stays = false;
        let mut queue = vec![top.path.clone()];
        while let Some(dir) = queue.pop() {
            let listed = match root.at(&dir).and_then(|place| match place.look()? {
                Some(look) if look.node.file_type == FileType::Dir => place.names(),
                // The comparison with the baseline reports that.
                _ => Ok(Vec::new()),
            }) {
                Ok(listed) => listed,
                Err(e) => {
                    let key = LayerPath::new(top.layer.clone(), dir);
                    self.refuse(&key, format!("it cannot be listed: {}", words(&e)));
                    return Survey::Refused;
                }
            };
            for name in listed {
                let key = LayerPath::new(top.layer.clone(), dir.join(&name));
                let node = match self.effects.get(&key) {
                    Some(Effect::Remove { before }) => before.clone(),
                    _ if moved.contains(&key) => continue,
                    _ => match self.batch.changes.get(&key).map(|change| &**change) {
                        Some(Change {
                            kind: ChangeKind::Deleted,
                            before: Some(before),
                            conflict,
                            ..
                        }) if replaced => {
                            let before = before.clone();
                            if let Some(conflict) = conflict.clone() {
                                self.refuse(&key, conflict.describe());
                            }
                            self.paths.insert(key.clone());
                            self.effects.insert(
                                key.clone(),
                                Effect::Remove {
                                    before: before.clone(),
                                },
                            );
                            before
                        }
                        Some(_) => {
                            stays = true;
                            continue;
                        }
                        None if self.renamed_away.contains(&key) => {
                            stays = true;
                            continue;
                        }
                        None => {
                            unknown.get_or_insert(key.path);
                            continue;
                        }
                    },
                };
                if node.file_type == FileType::Dir {
                    queue.push(key.path);
                }
            }
        }
        if stays && !replaced {
            return Survey::Stays;
        }
        if stays {
            self.refuse(
                top,
                "entries below it belong to changes that were not approved; approve those as well",
            );
            return Survey::Refused;
        }
        if let Some(path) = unknown {
            self.refuse(top, Conflict::HostAddedInside { path }.describe());
            return Survey::Refused;
        }
        Survey::Whole
    }
}

/// Why a change in conflict is refused when nothing is to be merged, and whether that would help.
fn unmerged(change: &Change, conflict: &Conflict) -> String {
    let why = conflict.describe();
    match &change.merges {
        None => why,
        Some(Merges::Clean { .. }) => {
            format!("{why}; it merges cleanly with the agent's: `commit --merge` takes it")
        }
        Some(Merges::Conflicts {
            places, regions, ..
        }) if !regions.is_empty() => {
            let places = Merges::places(*places as usize, regions);
            format!("{why} and does not merge as a whole: {places}")
        }
        Some(Merges::Conflicts { .. }) => format!("{why} and does not merge as a whole"),
    }
}

enum Survey {
    Whole,
    Stays,
    Refused,
}

fn within(set: &BTreeSet<LayerPath>, key: &LayerPath) -> bool {
    topmost(set, key).is_some()
}

fn unreachable_dir(dir: &LayerPath, error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ELOOP | libc::ENOTDIR) => format!(
            "a link or file stands on the host where {dir} would be; approve that change as well, or none below it"
        ),
        Some(libc::EXDEV) => format!("{dir} lies on another file system that is mounted there"),
        _ => format!("its directory {dir} cannot be reached: {}", words(error)),
    }
}
