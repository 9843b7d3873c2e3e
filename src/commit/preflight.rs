//! What can be known before the first write. Owns the checks and the choice of temporary names;
//! only reads. Every path that stands in the way is named.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use crate::change::Conflict;
use crate::layer::{FileType, Node};
use crate::{LayerPath, RelPath};

use super::lease::{Lease, Patience};
use super::ledger::{Action, Piece, Source, Step};
use super::names;
use super::place::{Root, shown, words};
use super::verify::{self, Expect, Tree};
use super::{CommitError, Refusal, room};

/// What is asked about the agent's side.
pub(super) struct AgentSide<'a> {
    /// Bytes that the upper's file really takes, if that can be told.
    pub measure: &'a dyn Fn(&str, &RelPath) -> Option<u64>,
    /// Whether the agent did anything to a path, approved or not.
    pub differs: &'a dyn Fn(&LayerPath) -> bool,
}

/// Longest name of the file systems served.
const NAME_MAX: usize = 255;

/// Checks every step against the host and completes it: the nodes before get what `stat` says now,
/// and each step its temporary name.
pub(super) fn check(
    steps: &mut [Step],
    roots: &BTreeMap<String, Root>,
    store: &Path,
    agent: &AgentSide<'_>,
) -> Result<Vec<Refusal>, CommitError> {
    let moved = moved(steps);
    let mut checks = Checks {
        roots,
        refusals: Vec::new(),
        opened: steps
            .iter()
            .filter(|step| opens(step))
            .map(Step::key)
            .collect(),
        shut: steps
            .iter()
            // A mode shuts nothing to root.
            .filter(|step| shuts(step) && !nix::unistd::geteuid().is_root())
            .map(Step::key)
            .collect(),
        names: Names::new()?,
        parents: BTreeMap::new(),
        patience: Patience::new(),
    };
    let none = BTreeSet::new();
    for step in steps.iter_mut() {
        let moved = moved.get(&step.layer).unwrap_or(&none);
        checks.step(step, moved);
    }
    checks.hard_links(steps, store, agent);
    if checks.refusals.is_empty() {
        checks.refusals = room::check(steps, roots, store, agent);
    }
    Ok(checks.refusals)
}

/// Paths, by layer, that the steps move in or out.
pub(super) fn moved(steps: &[Step]) -> BTreeMap<String, BTreeSet<RelPath>> {
    let mut moved: BTreeMap<String, BTreeSet<RelPath>> = BTreeMap::new();
    for step in steps {
        let of_layer = moved.entry(step.layer.clone()).or_default();
        if let Action::Move { from, .. } = &step.action {
            of_layer.insert(from.clone());
            of_layer.insert(step.path.clone());
        }
    }
    moved
}

/// Whether a step makes a directory writable.
fn opens(step: &Step) -> bool {
    let open = |node: &Node| node.mode & 0o300 == 0o300;
    matches!(&step.action, Action::Meta { before, after }
        if before.file_type == FileType::Dir && !open(before) && open(after))
}

/// Whether a step takes a directory's owner the right to write or to enter it.
fn shuts(step: &Step) -> bool {
    let loses = |before: &Node, after: &Node| before.mode & !after.mode & 0o300 != 0;
    matches!(&step.action, Action::Meta { before, after }
        if before.file_type == FileType::Dir && loses(before, after))
}

/// Makes unguessable names.
struct Names(blake3::OutputReader);

impl Names {
    fn new() -> Result<Self, CommitError> {
        let path = std::path::Path::new("/dev/urandom");
        let mut seed = [0; 32];
        std::fs::File::open(path)
            .and_then(|mut file| file.read_exact(&mut seed))
            .map_err(|e| CommitError::store("reading", path, e))?;
        Ok(Self(blake3::Hasher::new_keyed(&seed).finalize_xof()))
    }

    fn next(&mut self) -> String {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        format!("{}{:016x}", super::TEMPORARY, u64::from_le_bytes(bytes))
    }
}

struct Checks<'a> {
    roots: &'a BTreeMap<String, Root>,
    refusals: Vec<Refusal>,
    /// Directories that a step of the batch makes writable.
    opened: BTreeSet<LayerPath>,
    /// Directories that a step of the batch makes unwritable; what waits in one for its settlement
    /// could not leave it any more.
    shut: BTreeSet<LayerPath>,
    names: Names,
    /// Per directory, where temporaries for it go, or why nothing can be done in it.
    parents: BTreeMap<LayerPath, Result<RelPath, String>>,
    patience: Patience,
}

impl Checks<'_> {
    fn refuse(&mut self, key: LayerPath, reason: impl Into<String>) {
        self.refusals.push(Refusal {
            key,
            reason: reason.into(),
        });
    }

    fn step(&mut self, step: &mut Step, moved: &BTreeSet<RelPath>) {
        let roots = self.roots;
        let Some(root) = roots.get(&step.layer) else {
            return;
        };
        let key = step.key();
        let path = step.path.clone();
        match &mut step.action {
            Action::Swap { before, after, .. } => {
                if before.is_empty() {
                    self.vacant(root, &key);
                } else if let Some(live) = self.tree(root, &path, before, moved) {
                    *before = live;
                    let files: Vec<RelPath> = before
                        .iter()
                        .filter(|p| p.node.file_type == FileType::File)
                        .map(|p| p.path.under(&path))
                        .collect();
                    for file in files {
                        self.idle(root, &file);
                    }
                    self.sticky(root, &key, &before[0].node);
                }
                for piece in after.iter() {
                    let full = piece.path.under(&path);
                    if full.file_name().is_some_and(|name| name.len() > NAME_MAX) {
                        let key = LayerPath::new(key.layer.clone(), full);
                        self.refuse(key, "its name is longer than file systems allow");
                    }
                }
                let fixed = [before.first(), after.first()]
                    .iter()
                    .flatten()
                    .any(|p| is_fixed(p));
                self.place(root, step);
                if fixed && step.aside.parent() != path.parent() {
                    self.refuse(
                        key,
                        "its owner may not write that directory, so it cannot be moved into one \
                         that is shut by the same commit; approve the two one after the other",
                    );
                }
            }
            Action::Move {
                from,
                before,
                after,
            } => {
                let old = LayerPath::new(key.layer.clone(), from.clone());
                let pieces = [Piece {
                    path: RelPath::root(),
                    node: before.clone(),
                }];
                let from = from.clone();
                if let Some(live) = self.tree(root, &from, &pieces, &BTreeSet::new()) {
                    if let Some(piece) = live.into_iter().next() {
                        follow(after, before, &piece.node);
                        *before = piece.node;
                    }
                    if before.file_type == FileType::File {
                        self.idle(root, &from);
                    }
                    let node = before.clone();
                    self.sticky(root, &old, &node);
                }
                self.vacant(root, &key);
                if let Err(reason) = self.parent(root, &old) {
                    self.refuse(old, reason);
                }
                // A directory that this batch makes is not there yet.
                let made = key.path.parent().is_some_and(|dir| {
                    !matches!(root.look(&dir), Ok(Some(look)) if look.node.file_type == FileType::Dir)
                });
                if !made && let Err(reason) = self.parent(root, &key) {
                    self.refuse(key, reason);
                }
            }
            Action::Meta { before, after } => {
                let pieces = [Piece {
                    path: RelPath::root(),
                    node: before.clone(),
                }];
                if let Some(piece) = self.meta(root, &path, &pieces) {
                    follow(after, before, &piece.node);
                    *before = piece.node;
                    let me = nix::unistd::geteuid();
                    if !me.is_root() && before.uid != me.as_raw() {
                        self.refuse(key, "it belongs to another user, who alone may change this");
                    }
                }
            }
        }
    }

    /// Compares one entry, whatever lies below it.
    fn meta(&mut self, root: &Root, path: &RelPath, pieces: &[Piece]) -> Option<Piece> {
        let node = &pieces[0].node;
        if node.file_type != FileType::Dir {
            return self.tree(root, path, pieces, &BTreeSet::new())?.pop();
        }
        let found = root.look(path).and_then(|look| match look {
            Some(look) => Ok(match verify::entry(&root.at(path)?, &look, node, false)? {
                Some(conflict) => Err(conflict),
                None => Ok((verify::with_stat(node, &look.node), look.sealed)),
            }),
            None => Ok(Err(Conflict::HostDeleted)),
        });
        let key = LayerPath::new(root.layer.clone(), path.clone());
        match found {
            Ok(Ok((node, None))) => {
                return Some(Piece {
                    path: RelPath::root(),
                    node: Arc::new(node),
                });
            }
            Ok(Ok((_, Some(flag)))) => self.refuse(key, format!("it is {flag}")),
            Ok(Err(conflict)) => self.refuse(key, conflict.describe()),
            Err(e) => self.refuse(key, unreachable(&e)),
        }
        None
    }

    fn tree(
        &mut self,
        root: &Root,
        path: &RelPath,
        pieces: &[Piece],
        moved: &BTreeSet<RelPath>,
    ) -> Option<Vec<Piece>> {
        let expect = Expect {
            path,
            at: path,
            pieces,
            moved,
        };
        let key = |path| LayerPath::new(root.layer.clone(), path);
        match verify::tree(root, &expect) {
            Ok(Tree::Same(live)) if !live.is_empty() => return Some(live),
            Ok(Tree::Same(_)) => {
                self.refuse(key(path.clone()), Conflict::HostDeleted.describe());
            }
            Ok(Tree::Differs { path, conflict }) => self.refuse(key(path), conflict.describe()),
            Ok(Tree::Stuck { path, why }) => self.refuse(key(path), why),
            Err(e) => self.refuse(key(path.clone()), unreachable(&e)),
        }
        None
    }

    /// Nothing may lie where a new entry goes.
    fn vacant(&mut self, root: &Root, key: &LayerPath) {
        match root.look(&key.path) {
            Ok(None) => {}
            Ok(Some(_)) => self.refuse(key.clone(), Conflict::HostCreated.describe()),
            // Something else lies there that this batch replaces by a directory.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ELOOP | libc::ENOTDIR)) => {}
            Err(e) => self.refuse(key.clone(), unreachable(&e)),
        }
    }

    /// Nobody may have the file open for writing.
    fn idle(&mut self, root: &Root, path: &RelPath) {
        let opened = Lease::take(|| root.at(path)?.open(), &self.patience);
        if let Ok(None) = opened {
            let key = LayerPath::new(root.layer.clone(), path.clone());
            self.refuse(key, BUSY);
        }
        // A file that cannot even be read is compared by its stat alone.
    }

    /// In a sticky directory only an entry's owner, or the directory's, may move it.
    fn sticky(&mut self, root: &Root, key: &LayerPath, node: &Node) {
        let me = nix::unistd::geteuid();
        let Some(dir) = key.path.parent() else { return };
        if me.is_root() || node.uid == me.as_raw() {
            return;
        }
        if let Ok(Some(look)) = root.look(&dir)
            && look.node.mode & 0o1000 != 0
            && look.node.uid != me.as_raw()
        {
            self.refuse(
                key.clone(),
                "it belongs to another user and its directory is sticky",
            );
        }
    }

    /// Chooses the step's temporary name.
    fn place(&mut self, root: &Root, step: &mut Step) {
        let key = step.key();
        let parent = key.path.parent().unwrap_or_default();
        // Nothing is left beside a new entry that would have to go before its directory is shut;
        // and a directory that is made unwritable can only be renamed where it is.
        let alone = matches!(&step.action, Action::Swap { before, .. } if before.is_empty());
        let chosen = match self.parent(root, &key) {
            Ok(dir) if alone && dir != parent && root.writable(&parent).is_ok() => Ok(parent),
            chosen => chosen,
        };
        match chosen {
            Ok(dir) => {
                let name = self.names.next();
                step.aside = dir.join(name.as_bytes());
            }
            Err(reason) => self.refuse(key, reason),
        }
    }

    fn parent(&mut self, root: &Root, key: &LayerPath) -> Result<RelPath, String> {
        let dir = key.path.parent().unwrap_or_default();
        let dir = LayerPath::new(key.layer.clone(), dir);
        if let Some(known) = self.parents.get(&dir) {
            return known.clone();
        }
        let found = self.find_parent(root, &dir);
        self.parents.insert(dir, found.clone());
        found
    }

    fn find_parent(&self, root: &Root, dir: &LayerPath) -> Result<RelPath, String> {
        match root.look(&dir.path) {
            Ok(Some(look)) => {
                if let Some(flag) = look.sealed {
                    return Err(format!("its directory {dir} is {flag}"));
                }
            }
            Ok(None) => return Err(format!("its directory {dir} is no longer on the host")),
            Err(e) => return Err(unreachable(&e)),
        }
        let mut reason = "its directory loses its writability, and so does every one above it";
        let shut;
        match root.writable(&dir.path) {
            Ok(()) if !self.is_shut(dir) => return Ok(dir.path.clone()),
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::EROFS) => {
                return Err(format!(
                    "{dir} lies on a file system that is mounted read-only"
                ));
            }
            Err(e) => {
                shut = format!(
                    "its directory {dir} cannot be written: {}{}",
                    words(&e),
                    way_in(root, dir)
                );
                if !self.opened.contains(dir) {
                    return Err(shut);
                }
                reason = &shut;
            }
        }
        // Opened or shut on the way: the nearest directory that is open all the time serves.
        dir.path
            .ancestors()
            .find(|above| {
                let key = LayerPath::new(dir.layer.clone(), above.clone());
                !self.is_shut(&key) && root.writable(above).is_ok()
            })
            .ok_or_else(|| reason.to_owned())
    }

    /// Whether a directory, or one on the way to it, is shut by the batch.
    fn is_shut(&self, dir: &LayerPath) -> bool {
        let above = dir
            .path
            .ancestors()
            .map(|a| LayerPath::new(dir.layer.clone(), a));
        !self.shut.is_empty()
            && (self.shut.contains(dir) || above.into_iter().any(|a| self.shut.contains(&a)))
    }

    /// A file with further names on the host must be replaced under all of them.
    fn hard_links(&mut self, steps: &[Step], store: &Path, agent: &AgentSide<'_>) {
        let mut known: HashMap<(u64, u64), BTreeSet<LayerPath>> = HashMap::new();
        let pieces = |step: &Step| match &step.action {
            Action::Swap { before, .. } => before
                .iter()
                .map(|p| (p.path.under(&step.path), p.node.clone()))
                .collect(),
            _ => Vec::new(),
        };
        let linked = |node: &Node| node.file_type == FileType::File && node.nlink > 1;
        for step in steps {
            for (path, node) in pieces(step) {
                if linked(&node) {
                    let names = known.entry((node.dev, node.ino)).or_default();
                    names.insert(LayerPath::new(step.layer.clone(), path));
                }
            }
        }
        // Names that stay, or move, with the host's file: their file is another one than what replaces
        // this name.
        let own = steps.iter().filter_map(|step| match &step.action {
            Action::Move { from, .. } => Some(LayerPath::new(&step.layer, from.clone())),
            Action::Meta { .. } => Some(step.key()),
            Action::Swap { .. } => None,
        });
        let own: BTreeSet<LayerPath> = own.collect();
        let apart = |name: &LayerPath| own.contains(name) || !(agent.differs)(name);
        for step in steps {
            // Taking a name away, also for something else, and giving back what was there, leaves
            // the others alone.
            let Action::Swap { after, source, .. } = &step.action else {
                continue;
            };
            let file = after
                .first()
                .is_some_and(|p| p.node.file_type == FileType::File);
            if !file || *source != Source::Made {
                continue;
            }
            for (path, node) in pieces(step) {
                let inode = (node.dev, node.ino);
                let Some(in_batch) = known.get(&inode).filter(|_| path == step.path) else {
                    continue;
                };
                let others = node.nlink.saturating_sub(in_batch.len() as u32);
                let others = others.saturating_sub(names::kept(store, inode));
                // Where the agent saw all names and left the others alone, it has cut this one off.
                let cut_off = |root: &Root| {
                    let all = names::below(&root.path, inode);
                    let mut all = all.into_iter().map(|p| LayerPath::new(&step.layer, p));
                    root.keeps_groups
                        && all.len() >= in_batch.len() + others as usize
                        && all.all(|name| in_batch.contains(&name) || apart(&name))
                };
                if others == 0 || self.roots.get(&step.layer).is_some_and(cut_off) {
                    continue;
                }
                self.refuse(
                    step.key(),
                    format!(
                        "the host's file has {others} other name{} outside this batch, which replacing it would cut off; copy it over itself (`cp f f.new && mv f.new f`) or change all its names at once",
                        if others == 1 { "" } else { "s" }
                    ),
                );
            }
        }
    }
}

/// Whether this is a directory that cannot be moved below another one: its `..` would have to be
/// written (rename(2), `EACCES`).
fn is_fixed(piece: &Piece) -> bool {
    piece.node.file_type == FileType::Dir
        && piece.node.mode & 0o200 == 0
        && !nix::unistd::geteuid().is_root()
}

/// How the owner of a directory opens it, as a remark behind the reason.
fn way_in(root: &Root, dir: &LayerPath) -> String {
    let own = matches!(root.look(&dir.path), Ok(Some(look))
        if look.node.uid == nix::unistd::geteuid().as_raw() && look.node.mode & 0o200 == 0);
    if own {
        let path = shown(&root.path.join(dir.path.as_path()));
        format!(" (`chmod u+w {path}`)")
    } else {
        String::new()
    }
}

/// Said of a file that somebody writes.
pub(super) const BUSY: &str =
    "a program on the host has it open for writing; close it there and commit again";

fn unreachable(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ELOOP | libc::ENOTDIR) => {
            "a directory on its path was replaced by a link or a file on the host".into()
        }
        Some(libc::EXDEV) => "another file system is mounted on its path".into(),
        Some(libc::ENAMETOOLONG) => "its name is longer than the file system allows".into(),
        _ => format!("it cannot be examined: {}", words(error)),
    }
}

/// What a step leaves as it is, it leaves as it is `now`: a time or an owner that the host has given
/// since is no conflict, and is not taken back.
fn follow(after: &mut Arc<Node>, before: &Node, now: &Node) {
    let owner = |node: &Node| (node.uid, node.gid);
    let moved = (before.mtime, owner(before)) != (now.mtime, owner(now));
    if !moved {
        return;
    }
    let after = Arc::make_mut(after);
    if after.mtime == before.mtime {
        after.mtime = now.mtime;
    }
    if owner(after) == owner(before) {
        (after.uid, after.gid) = owner(now);
    }
}
