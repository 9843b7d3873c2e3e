//! From the effects of a batch to its steps. Owns the joining of subtrees into one step each, and
//! the order in which they are published. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::effect::{Content, Effect, Want};
use super::ledger::{Action, Piece, Source, Step};
use crate::layer::{FileType, Node};
use crate::{LayerPath, RelPath};

/// Of each step, for each entry that it makes, where the bytes come from.
pub(super) type Contents = Vec<Vec<Content>>;

struct Job {
    step: Step,
    contents: Vec<Content>,
}

/// The steps in the order in which they are published.
pub(super) fn in_order(
    effects: BTreeMap<LayerPath, Effect>,
    trees: &BTreeSet<LayerPath>,
) -> (Vec<Step>, Contents) {
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
                if want.node.file_type == FileType::Dir {
                    puts.insert(key.clone(), at);
                }
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
                if trees.contains(&key) {
                    removes.insert(key.clone(), (false, order.removes.len()));
                }
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
    let jobs = order.into_jobs();
    jobs.map(|job| (job.step, job.contents)).unzip()
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
    fn into_jobs(self) -> impl Iterator<Item = Job> {
        let first = self.opening.into_iter().chain(self.puts).chain(self.moves);
        let last = self.removes.into_iter().rev();
        first.chain(last).chain(self.metas.into_iter().rev())
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

fn swap(key: &LayerPath, before: Option<Arc<Node>>, want: Option<Want>) -> Job {
    let top = |node: Arc<Node>| Piece {
        path: RelPath::root(),
        node,
    };
    let (after, contents) = match want {
        Some(want) => (vec![top(unmade(&want.node))], vec![want.content]),
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
fn unmade(node: &Node) -> Arc<Node> {
    Arc::new(Node {
        dev: 0,
        ino: 0,
        ..node.clone()
    })
}

fn push(job: &mut Job, top: &LayerPath, key: &LayerPath, want: Want) {
    if let Action::Swap { after, .. } = &mut job.step.action {
        after.push(Piece {
            path: relative(&top.path, &key.path),
            node: unmade(&want.node),
        });
        job.contents.push(want.content);
    }
}

fn push_before(job: &mut Job, top: &LayerPath, key: &LayerPath, node: Arc<Node>) {
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

/// The highest directory above `key` that is in `set`.
pub(super) fn topmost(set: &BTreeSet<LayerPath>, key: &LayerPath) -> Option<LayerPath> {
    if set.is_empty() {
        return None;
    }
    key.path
        .ancestors()
        .map(|dir| LayerPath::new(key.layer.clone(), dir))
        .filter(|dir| set.contains(dir))
        .last()
}
