//! From effects on single paths to the steps of a batch. Owns the closure (new parent
//! directories, what lies below a replaced or removed directory), the joining of subtrees into
//! one step each, and their order. Only reads the host.

use std::collections::{BTreeMap, BTreeSet};

use crate::change::{Change, ChangeKind, Conflict};
use crate::layer::{FileType, Node};
use crate::{LayerPath, RelPath};

use super::effect::{self, Content, Effect, Want};
use super::ledger::{Action, Piece, Source, Step};
use super::place::{Root, words};
use super::{Batch, Refusal};

/// One step and, for each entry it makes, where the bytes come from.
pub(super) struct Job {
    pub step: Step,
    pub contents: Vec<Content>,
}

/// What a batch comes to.
pub(super) struct Plan {
    pub jobs: Vec<Job>,
    /// Changes that are carried out, approved or joined, in the order of their paths; both names
    /// of a rename.
    pub paths: Vec<LayerPath>,
    pub refusals: Vec<Refusal>,
}

/// Makes the plan of a batch. Everything that stands in its way is listed.
pub(super) fn make(batch: &Batch<'_>, roots: &BTreeMap<String, Root>) -> Plan {
    let mut planner = Planner {
        batch,
        roots,
        effects: BTreeMap::new(),
        paths: BTreeSet::new(),
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
    planner.settle_moves();
    let trees = planner.survey_directories();
    let jobs = planner.steps(&trees);
    Plan {
        jobs,
        paths: planner.paths.into_iter().collect(),
        refusals: planner
            .refusals
            .into_iter()
            .map(|(key, reason)| Refusal { key, reason })
            .collect(),
    }
}

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
                    conflict => self.refuse(&key, conflict.describe()),
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
        let Some(change) = change.filter(|c| c.kind == ChangeKind::Added) else {
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
        for (key, from) in moves {
            let old = LayerPath::new(key.layer.clone(), from);
            let replaced = old.path.ancestors().any(|dir| {
                matches!(
                    self.effects.get(&LayerPath::new(key.layer.clone(), dir)),
                    Some(Effect::Put { .. })
                )
            });
            let dir = key
                .path
                .parent()
                .map(|p| LayerPath::new(key.layer.clone(), p));
            let shut = self.parent(&key) == Parent::Made
                && matches!(
                    dir.and_then(|dir| self.effects.get(&dir)),
                    Some(Effect::Put { want, .. }) if want.node.mode & 0o300 != 0o300
                );
            if !replaced && !shut {
                continue;
            }
            if let Some(Effect::Move { before, after, .. }) = self.effects.remove(&key) {
                let want = effect::whole(&key.path, after);
                self.effects.insert(key, Effect::Put { before: None, want });
                self.effects.insert(old, Effect::Remove { before });
            }
        }
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
                Survey::Refused => {}
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
                    _ => match self.batch.changes.get(&key) {
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

    /// The steps in the order in which they are published.
    fn steps(&mut self, trees: &BTreeSet<LayerPath>) -> Vec<Job> {
        let effects = std::mem::take(&mut self.effects);
        let fresh: BTreeSet<LayerPath> = effects
            .iter()
            .filter(|(_, effect)| {
                matches!(effect, Effect::Put { want, .. } if want.node.file_type == FileType::Dir)
            })
            .map(|(key, _)| key.clone())
            .collect();
        let mut order = Order::default();
        // Positions of the steps that carry a whole tree, to which what lies below is added.
        let mut puts: BTreeMap<LayerPath, usize> = BTreeMap::new();
        let mut removes: BTreeMap<LayerPath, (bool, usize)> = BTreeMap::new();
        for (key, effect) in effects {
            match effect {
                Effect::Put { before, want } => {
                    if before.is_none()
                        && let Some(top) = topmost(&fresh, &key)
                        && let Some(&at) = puts.get(&top)
                    {
                        push(&mut order.puts[at], &top, &key, want);
                        continue;
                    }
                    let at = order.puts.len();
                    puts.insert(key.clone(), at);
                    if trees.contains(&key) {
                        removes.insert(key.clone(), (true, at));
                    }
                    order.puts.push(swap(&key, before, Some(want)));
                }
                Effect::Remove { before } => {
                    if let Some(top) = topmost(trees, &key)
                        && let Some(&(put, at)) = removes.get(&top)
                    {
                        let job = if put {
                            &mut order.puts[at]
                        } else {
                            &mut order.removes[at]
                        };
                        push_before(job, &top, &key, before);
                        continue;
                    }
                    removes.insert(key.clone(), (false, order.removes.len()));
                    order.removes.push(swap(&key, Some(before), None));
                }
                Effect::Meta { before, after } => {
                    let opens = before.file_type == FileType::Dir
                        && before.mode & 0o300 != 0o300
                        && after.mode & 0o300 == 0o300;
                    let list = if opens {
                        &mut order.opening
                    } else {
                        &mut order.metas
                    };
                    list.push(job(&key, Action::Meta { before, after }));
                }
                Effect::Move {
                    from,
                    before,
                    after,
                } => order.moves.push(job(
                    &key,
                    Action::Move {
                        from,
                        before,
                        after,
                    },
                )),
            }
        }
        order.into_jobs()
    }
}

enum Survey {
    Whole,
    Stays,
    Refused,
}

/// Directories that become writable first, then new entries, parents first; removals last but
/// for directories that may lose their writability, children before parents.
#[derive(Default)]
struct Order {
    opening: Vec<Job>,
    puts: Vec<Job>,
    moves: Vec<Job>,
    removes: Vec<Job>,
    metas: Vec<Job>,
}

impl Order {
    fn into_jobs(mut self) -> Vec<Job> {
        self.removes.reverse();
        self.metas.reverse();
        let mut jobs = self.opening;
        jobs.append(&mut self.puts);
        jobs.append(&mut self.moves);
        jobs.append(&mut self.removes);
        jobs.append(&mut self.metas);
        jobs
    }
}

fn job(key: &LayerPath, action: Action) -> Job {
    Job {
        step: Step {
            layer: key.layer.clone(),
            path: key.path.clone(),
            // Named by the pre-flight, which knows the directories that can be written.
            aside: RelPath::root(),
            action,
        },
        contents: Vec::new(),
    }
}

fn swap(key: &LayerPath, before: Option<Node>, want: Option<Want>) -> Job {
    let top = |node| Piece {
        path: RelPath::root(),
        node,
    };
    let (after, contents) = match want {
        Some(want) => (vec![top(unmade(want.node))], vec![want.content]),
        None => (Vec::new(), Vec::new()),
    };
    let mut job = job(
        key,
        Action::Swap {
            before: before.map(top).into_iter().collect(),
            after,
            source: Source::Made,
        },
    );
    job.contents = contents;
    job
}

/// A node that has no inode on the host yet; the upper's own must not be taken for one.
fn unmade(node: Node) -> Node {
    Node {
        dev: 0,
        ino: 0,
        ..node
    }
}

fn push(job: &mut Job, top: &LayerPath, key: &LayerPath, want: Want) {
    if let Action::Swap { after, .. } = &mut job.step.action {
        after.push(Piece {
            path: relative(&top.path, &key.path),
            node: unmade(want.node),
        });
        job.contents.push(want.content);
    }
}

fn push_before(job: &mut Job, top: &LayerPath, key: &LayerPath, node: Node) {
    if let Action::Swap { before, .. } = &mut job.step.action {
        before.push(Piece {
            path: relative(&top.path, &key.path),
            node,
        });
    }
}

/// `path` as seen from `top`, which lies above it.
fn relative(top: &RelPath, path: &RelPath) -> RelPath {
    let skip = top.as_bytes().len() + 1;
    path.as_bytes()
        .get(skip..)
        .and_then(|tail| RelPath::new(tail).ok())
        .unwrap_or_default()
}

fn within(set: &BTreeSet<LayerPath>, key: &LayerPath) -> bool {
    topmost(set, key).is_some()
}

/// The highest directory above `key` that is in `set`.
fn topmost(set: &BTreeSet<LayerPath>, key: &LayerPath) -> Option<LayerPath> {
    if set.is_empty() {
        return None;
    }
    key.path
        .ancestors()
        .map(|dir| LayerPath::new(key.layer.clone(), dir))
        .filter(|dir| set.contains(dir))
        .last()
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
