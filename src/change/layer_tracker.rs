//! One layer's share of the tracker. Owns its baseline and what was learnt of contents; puts scan,
//! comparison, conflict, class and renames together.

mod index;
mod learn;
pub(super) mod merging;
mod names;
mod part;
mod renames;
mod resolving;
mod seal;
mod sides;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(super) use part::Look;

use super::baseline::{Baseline, Record};
use super::conflict::{self, HostDigests, Judgement};
use super::entries::Entries;
use super::host::Host;
use super::ignored::Rules;
use super::rename::Fingerprint;
use super::risk::{self, Looks};
use super::scan::{self, Candidate};
use super::tracker::{Written, is_inside};
use super::{Change, ChangeError, ChangeKind, Class, Conflict, Merges, Risk, compare};
use crate::diff::FileDiff;
use crate::layer::{
    Digest, Driver, FileType, Layer, Node, StageAccess, Timestamp, Tree, UpperEntry, is_of_home,
    points, read,
};
use crate::{LayerPath, RelPath};

/// Largest deleted file that is read (for its digest, its lines and renames).
const LARGEST_DELETED: u64 = 16 << 20;

/// Bytes of deleted files read per tracker at most; beyond, size and times have to do.
const DELETED_AT_MOST: u64 = 256 << 20;

/// A store through a memory map moves the times only at the first one to a clean page, and pages
/// are cleaned within about half a minute: a digest of a file that is younger is looked at again.
const SETTLED: Duration = Duration::from_secs(60);

/// Files and bytes looked at again per scan for that reason.
const RECHECKED_AT_MOST: (u32, u64) = (256, 8 << 20);

/// What is known of a path since the last scan.
struct Known {
    /// The upper's entry as the walk reported it.
    after: Option<Arc<Node>>,
    /// The baseline's side.
    before: Option<Arc<Node>>,
    read_at: SystemTime,
    /// The change by itself, with what the host and the rules said of it last; `None`: no
    /// difference.
    found: Option<(Arc<Change>, Looks)>,
}

/// How the host stands to a difference.
enum Stands {
    /// It has what the agent has.
    Alike,
    /// It has not, and this stands against the change there.
    Different(Option<Conflict>),
}

/// What a difference may have to do with others.
struct Verdict {
    /// May be one end of a rename.
    came: bool,
    went: bool,
    /// The host has names in a directory that is to go.
    inside: bool,
}

/// How many verdicts may make rows depend on one another.
#[derive(Default)]
struct Tally {
    came: usize,
    went: usize,
    inside: usize,
}

impl Tally {
    fn count(&mut self, verdict: &Verdict, up: bool) {
        let step = |number: &mut usize, counts: bool| {
            *number = match (counts, up) {
                (false, _) => *number,
                (true, true) => *number + 1,
                (true, false) => number.saturating_sub(1),
            }
        };
        step(&mut self.came, verdict.came);
        step(&mut self.went, verdict.went);
        step(&mut self.inside, verdict.inside);
    }

    /// Where something went and something came there may be a rename, and what the host added in a
    /// directory stands against those above it.
    fn is_entangled(&self) -> bool {
        self.came > 0 && self.went > 0 || self.inside > 0
    }
}

/// See the module.
pub(super) struct LayerTracker {
    layer: Layer,
    /// The upper as it was last seen; `None` when it has to be walked.
    entries: Option<Entries>,
    /// The differences of `known` that are changes: the host does not have the same.
    verdicts: BTreeMap<RelPath, Verdict>,
    tally: Tally,
    /// The last change set had rows that depend on other rows.
    entangled: bool,
    host: Host,
    baseline: Baseline,
    rules: Option<Rules>,
    known: HashMap<RelPath, Known>,
    host_digests: HostDigests,
    /// Whether a content holds conflict markers of a length, while there are any in the layer.
    marks: HashMap<(Digest, u32), bool>,
    /// What was found out of conflicts, with the nodes of the three sides.
    merged: HashMap<RelPath, merging::Found>,
    prints: HashMap<Digest, Option<Arc<Fingerprint>>>,
    rename_diffs: HashMap<(Digest, Digest), (FileDiff, Looks)>,
    /// Old path by new path, of the last scan.
    renamed: HashMap<RelPath, RelPath>,
    /// The host's git index before the agent had one of its own, see `index`.
    index: Option<Node>,
    deleted_budget: u64,
    recheck_budget: (u32, u64),
    /// See [`super::Tracker::scan_closely`].
    closely: bool,
}

impl LayerTracker {
    /// Opens the baseline of a layer.
    pub fn open(layer: Layer) -> Result<Self, ChangeError> {
        let host = Tree::open(&layer.root).map_err(|e| failed("opening", layer.root.clone(), e))?;
        let base = layer.base();
        let mut baseline =
            Baseline::open(base.clone()).map_err(|e| failed("opening the baseline", base, e))?;
        if baseline.root().is_none()
            && let Ok(upper) = Tree::open(&layer.upper())
            && let Ok(Some(seen)) = read::read_entry(upper.root(), b"", read::Side::Upper)
        {
            let dir = baseline.dir().to_owned();
            baseline
                .set_root(seen.node)
                .and_then(|()| baseline.flush())
                .map_err(|e| failed("writing the baseline", dir, e))?;
        }
        let rules = (!is_of_home(&layer.name)).then(|| Rules::new(&layer.root));
        let mut tracker = Self {
            layer,
            entries: None,
            verdicts: BTreeMap::new(),
            tally: Tally::default(),
            entangled: false,
            host: Host::new(host),
            baseline,
            rules,
            known: HashMap::new(),
            host_digests: HostDigests::default(),
            marks: HashMap::new(),
            merged: HashMap::new(),
            prints: HashMap::new(),
            rename_diffs: HashMap::new(),
            renamed: HashMap::new(),
            index: None,
            deleted_budget: DELETED_AT_MOST,
            recheck_budget: RECHECKED_AT_MOST,
            closely: false,
        };
        tracker.keep_first_index()?;
        Ok(tracker)
    }

    /// See [`super::Tracker::merged_by`].
    pub fn merged_by(&mut self, driver: Driver) {
        self.layer.driver = driver;
    }

    /// The layer's name.
    pub fn name(&self) -> &str {
        &self.layer.name
    }

    fn io(&self, doing: &'static str) -> impl Fn(std::io::Error) -> ChangeError + use<> {
        let path = self.layer.base();
        move |source| failed(doing, path.clone(), source)
    }

    /// The layer's changes, in byte order of their paths.
    pub fn scan(
        &mut self,
        access: &dyn StageAccess,
        closely: bool,
    ) -> Result<Vec<Arc<Change>>, ChangeError> {
        self.closely = closely;
        // Until this one is through, nothing that was seen before may be built on.
        self.entries = None;
        let mut walked = access.walk(&self.layer.name)?;
        points::leave_out(&self.layer.dir, &mut walked);
        self.read_acls(&mut walked);
        let entries = Entries::new(walked);
        self.begin();
        self.baseline.begin();
        self.keep_index(&entries)?;
        let mut candidates = scan::candidates(&entries, &mut self.host, &mut self.baseline)
            .map_err(self.io("taking the baseline in"))?;
        self.recall_index(&mut candidates)?;
        let mut known = std::mem::take(&mut self.known);
        self.known.reserve(candidates.len());
        self.verdicts.clear();
        self.tally = Tally::default();
        for candidate in candidates {
            let old = known.remove(&candidate.path);
            self.weigh(candidate, old, false, access)?;
        }
        let changes = self.assemble(&entries, access)?;
        self.baseline
            .end()
            .map_err(self.io("writing the baseline in"))?;
        self.entries = Some(entries);
        Ok(changes)
    }

    /// Begins a scan of either kind.
    fn begin(&mut self) {
        self.host.begin();
        self.host.mounted(self.layer.merged_by_kernel_since());
        self.recheck_budget = RECHECKED_AT_MOST;
        if let Some(rules) = &mut self.rules {
            rules.begin();
        }
    }

    /// Finds out what became of one candidate and remembers it, or forgets what was known. `told`:
    /// an event has named it.
    fn weigh(
        &mut self,
        candidate: Candidate,
        old: Option<Known>,
        told: bool,
        access: &dyn StageAccess,
    ) -> Result<(), ChangeError> {
        let path = candidate.path.clone();
        self.withdraw(&path);
        let Some((entry, record)) = self.learn(candidate, old, told, access)? else {
            return Ok(());
        };
        let (mut entry, record) = self.follow_index(&path, entry, record, access)?;
        if let Some((change, looks)) = &mut entry.found {
            let (kind, after) = (&change.kind, change.after.as_deref());
            if let Stands::Different(conflict) = self.check_host(&path, kind, after, record)? {
                let conflict = conflict.or_else(|| self.marks_left(change, access));
                let class = self.class(change);
                let merges = match conflict {
                    Some(Conflict::HostModified) => self.merges(change, access),
                    _ => None,
                };
                let pairs = matches!(
                    change.file_type(),
                    FileType::File | FileType::Symlink | FileType::Dir
                );
                let verdict = Verdict {
                    came: pairs && *kind == ChangeKind::Added && class != Class::GitObject,
                    went: pairs && *kind == ChangeKind::Deleted,
                    inside: is_inside(conflict.as_ref()),
                };
                say(change, (class, conflict, merges), *looks);
                self.tally.count(&verdict, true);
                self.verdicts.insert(path.clone(), verdict);
            }
        }
        self.known.insert(path, entry);
        Ok(())
    }

    /// Forgets what was said of a path; whether anything was.
    fn withdraw(&mut self, path: &RelPath) -> bool {
        let verdict = self.verdicts.remove(path);
        if let Some(verdict) = &verdict {
            self.tally.count(verdict, false);
        }
        verdict.is_some()
    }

    /// The change set from what is known of each path.
    fn assemble(
        &mut self,
        entries: &Entries,
        access: &dyn StageAccess,
    ) -> Result<Vec<Arc<Change>>, ChangeError> {
        let mut found: Vec<(Arc<Change>, Looks)> = Vec::with_capacity(self.verdicts.len());
        found.extend(self.verdicts.keys().filter_map(|path| self.row(path)));
        if let Some(root) = self.root_change(entries)? {
            found.insert(0, root);
        }
        let spread = spread_inside(&mut found);
        let origins: Vec<_> = entries
            .iter()
            .filter_map(|entry| Some((entry.path.clone(), entry.origin.clone()?)))
            .collect();
        let changes = self.pair_renames(found, &origins, access);
        self.entangled = spread || !self.renamed.is_empty();
        Ok(changes.into_iter().map(|(change, _)| change).collect())
    }

    /// The row of one path by itself.
    fn row(&self, path: &RelPath) -> Option<(Arc<Change>, Looks)> {
        let _stands = self.verdicts.get(path)?;
        self.known.get(path)?.found.clone()
    }

    /// ACLs name people as the reader's user namespace numbers them: those that were read inside
    /// the session's are read again from here.
    fn read_acls(&self, entries: &mut [UpperEntry]) {
        let mut upper = None;
        for entry in entries {
            let named = [read::ACL_ACCESS, read::ACL_DEFAULT];
            if !named.iter().any(|a| entry.node.xattrs.contains_key(*a)) {
                continue;
            }
            let upper = upper.get_or_insert_with(|| Tree::open(&self.layer.upper()).ok());
            let node = upper.as_ref().and_then(|upper| {
                let dir = upper.parent(&entry.path).ok()?;
                let name = entry.path.file_name()?;
                let seen = read::read_entry(dir.as_fd(), name, read::Side::Upper).ok()??;
                Some(seen.node)
            });
            if let Some(node) = node {
                let xattrs = &mut Arc::make_mut(&mut entry.node).xattrs;
                for name in named {
                    if let Some(value) = node.xattrs.get(name) {
                        xattrs.insert(name.to_owned(), value.clone());
                    }
                }
            }
        }
    }

    /// Looks at the host's side.
    fn check_host(
        &mut self,
        path: &RelPath,
        kind: &ChangeKind,
        after: Option<&Node>,
        mut record: Record,
    ) -> Result<Stands, ChangeError> {
        let judged = conflict::judge(
            path,
            &mut record,
            after,
            &mut self.host,
            &mut self.host_digests,
            &mut self.baseline,
        )
        .map_err(|e| failed("looking at", self.layer.root.join(path.as_path()), e))?;
        Ok(match judged {
            Judgement::Agreed => Stands::Alike,
            Judgement::Unmoved => Stands::Different(None),
            // New names matter only where the directory itself is to go.
            Judgement::Moved(Conflict::HostAddedInside { .. })
                if !matches!(kind, ChangeKind::Deleted | ChangeKind::Type) =>
            {
                Stands::Different(None)
            }
            Judgement::Moved(conflict) => Stands::Different(Some(conflict)),
        })
    }

    fn class(&mut self, change: &Change) -> Class {
        let path = &change.key.path;
        let is_dir = change.file_type() == FileType::Dir;
        if change.kind == ChangeKind::Added && risk::is_git_object(path, is_dir) {
            return Class::GitObject;
        }
        if self.is_ignored(path, is_dir) {
            Class::Ignored
        } else {
            Class::Plain
        }
    }

    fn is_ignored(&mut self, path: &RelPath, is_dir: bool) -> bool {
        let tree = self.host.tree();
        self.rules
            .as_mut()
            .is_some_and(|rules| rules.is_ignored(tree, path, is_dir))
    }

    /// The change of the layer's root itself: its mode and attributes against the upper's root as
    /// it was made.
    fn root_change(
        &mut self,
        entries: &Entries,
    ) -> Result<Option<(Arc<Change>, Looks)>, ChangeError> {
        let Some(root) = entries.root() else {
            return Ok(None);
        };
        let Some(made) = self.baseline.root() else {
            self.baseline
                .set_root((*root.node).clone())
                .map_err(self.io("writing the baseline in"))?;
            return Ok(None);
        };
        if made.mode == root.node.mode && made.xattrs == root.node.xattrs {
            return Ok(None);
        }
        let before = read::read_node(self.host.tree().root(), b"")
            .map_err(|e| failed("looking at", self.layer.root.clone(), e))?;
        let after = Some(root.node.clone());
        let before = before.map(Arc::new);
        Ok(
            compare::kind(before.as_deref(), after.as_deref()).map(|kind| {
                let looks = Looks::default();
                let mut change = self.change(&root.path, kind, before, after, None, false);
                change.risks = risks(&change, change.class, looks);
                (Arc::new(change), looks)
            }),
        )
    }

    /// See [`super::Tracker::rebase_on`].
    pub fn rebase(
        &mut self,
        mut paths: BTreeSet<RelPath>,
        written: &Written,
    ) -> Result<(), ChangeError> {
        self.entries = None;
        let from: Vec<RelPath> = paths
            .iter()
            .filter_map(|p| self.renamed.get(p).cloned())
            .collect();
        paths.extend(from);
        // Parents that came along without a row of their own.
        let parents: BTreeSet<RelPath> = paths
            .iter()
            .flat_map(RelPath::ancestors)
            .filter(|p| {
                self.baseline
                    .get(p)
                    .is_some_and(|r| r.node.as_ref().is_none_or(|n| n.file_type != FileType::Dir))
            })
            .collect();
        paths.extend(parents);
        self.host.begin();
        let mut shared = names::Shared::of(&paths, &self.baseline);
        for path in &paths {
            let path = path.clone();
            let known = self.known.remove(&path);
            let node = self
                .host
                .node(&path)
                .map_err(|e| failed("looking at", self.layer.root.join(path.as_path()), e))?;
            let key = LayerPath::new(self.layer.name.clone(), path.clone());
            let is_whole = !written.parts.contains(&key);
            let mut node = self.as_committed(&path, node, known.as_ref(), is_whole);
            let alike = written
                .whole
                .get(&key)
                .is_some_and(|digest| is_as_written(node.as_mut(), known.as_ref(), *digest));
            let is_dir = node.as_ref().is_some_and(|n| n.file_type == FileType::Dir);
            // A directory without a record lies in one that hides the lower: it is the agent's own.
            let old = self.baseline.get(&path).cloned().unwrap_or(Record {
                pure: is_dir,
                ..Record::default()
            });
            let is_written = !is_whole || written.whole.contains_key(&key);
            let touched = touched(&old, known.as_ref(), node.as_ref(), is_written);
            let record = Record {
                unsure: false,
                pure: old.pure,
                tree: old.tree && is_dir,
                node: node.map(Arc::new),
                apart: old.apart,
                marked: None,
                touched,
            };
            let write = self.io("writing the baseline in");
            if !is_dir {
                self.baseline.forget_below(&path).map_err(&write)?;
            }
            if alike && let Some(known) = known {
                let known = Known {
                    before: record.node.clone(),
                    found: None,
                    ..known
                };
                self.known.insert(path.clone(), known);
            }
            shared.add(record.node.as_deref());
            self.baseline.set(&path, record).map_err(&write)?;
        }
        self.follow_names(&shared, &paths)?;
        self.baseline
            .flush()
            .map_err(self.io("writing the baseline in"))
    }

    /// What was committed where the host's side cannot be read: a file without the owner's right to
    /// read, or whatever lies in a directory without the right to search it.
    fn as_committed(
        &self,
        path: &RelPath,
        found: Option<Node>,
        known: Option<&Known>,
        is_whole: bool,
    ) -> Option<Node> {
        let change = known
            .and_then(|known| known.found.as_ref())
            .map(|(change, _)| change);
        let Some(agents) = change.and_then(|change| change.after.clone()) else {
            return found;
        };
        // No item speaks of attributes alone: they come with the whole only.
        let before = change.and_then(|change| change.before.as_deref());
        let attributes = if is_whole { Some(&*agents) } else { before };
        let same_bytes = is_whole || before.is_some_and(|node| node.digest == agents.digest);
        match found {
            None if self.host.is_closed_above(path) => Some((*agents).clone()),
            Some(mut node)
                if node.file_type == FileType::File
                    && may_be_shut(&node)
                    && self.host.is_shut(path) =>
            {
                let shape = |node: &Node| (node.file_type, node.size, node.mode, node.mtime);
                if shape(&node) == shape(&agents)
                    && let Some(attributes) = attributes
                {
                    node.digest = agents.digest.filter(|_| same_bytes);
                    node.xattrs.clone_from(&attributes.xattrs);
                }
                Some(node)
            }
            // What its owner may not read has attributes that cannot be read either.
            Some(mut node)
                if node.file_type == FileType::Dir
                    && node.mode & 0o400 == 0
                    && node.mode == agents.mode
                    && !nix::unistd::geteuid().is_root() =>
            {
                if let Some(attributes) = attributes {
                    node.xattrs.clone_from(&attributes.xattrs);
                }
                Some(node)
            }
            found => found,
        }
    }

    /// See [`super::Tracker::distrust`].
    pub fn distrust(&mut self, path: &RelPath) {
        self.known.remove(path);
        self.entries = None;
    }
}

/// Whether a file may turn out unreadable: its owner's mode says at once that it is not.
fn may_be_shut(node: &Node) -> bool {
    node.mode & 0o400 == 0 || node.uid != nix::unistd::geteuid().as_raw()
}

/// The time that the agent's file has from the host, where the host has given its own another one.
/// Only what a commit has left of it is news: an undo gives back a time of before.
fn touched(
    old: &Record,
    known: Option<&Known>,
    now: Option<&Node>,
    is_written: bool,
) -> Option<Box<Timestamp>> {
    let of_agent = known.and_then(|known| known.after.as_ref())?.mtime;
    let was = match &old.touched {
        Some(was) => **was,
        None if is_written => old.node.as_ref()?.mtime,
        None => return None,
    };
    (was == of_agent && now?.mtime != was).then(|| Box::new(was))
}

/// Whether the host's file is the agent's by now, which was written with this digest: then it gets
/// the digest, and nothing differs any more.
fn is_as_written(node: Option<&mut Node>, known: Option<&Known>, written: Digest) -> bool {
    let agents = known
        .and_then(|known| known.found.as_ref())
        .and_then(|(change, _)| change.after.as_deref());
    let (Some(node), Some(agents)) = (node, agents) else {
        return false;
    };
    if node.file_type != FileType::File || agents.digest != Some(written) {
        return false;
    }
    let had = node.digest.replace(written);
    let alike = compare::kind(Some(node), Some(agents)).is_none();
    if !alike {
        node.digest = had;
    }
    alike
}

fn failed(doing: &'static str, path: PathBuf, source: std::io::Error) -> ChangeError {
    ChangeError::Baseline {
        doing,
        path,
        source,
    }
}

/// Notes on a row what the rules and the host say of it, and the risks that follow. A row of which
/// nothing else is said stays the same one.
fn say(
    change: &mut Arc<Change>,
    (class, conflict, merges): (Class, Option<Conflict>, Option<Merges>),
    looks: Looks,
) {
    let risks = risks(change, class, looks);
    let said = (
        change.class,
        &change.conflict,
        &change.merges,
        &change.risks,
    );
    if said != (class, &conflict, &merges, &risks) {
        let change = Arc::make_mut(change);
        change.class = class;
        change.conflict = conflict;
        change.merges = merges;
        change.risks = risks;
    }
}

fn risks(change: &Change, class: Class, looks: Looks) -> Vec<Risk> {
    risk::risks(
        &change.key.path,
        &change.kind,
        class,
        change.before.as_deref(),
        change.after.as_deref(),
        looks,
    )
}

/// A directory that is to go cannot go while one below it holds names of the host's own. Tells
/// whether there is one.
fn spread_inside(found: &mut [(Arc<Change>, Looks)]) -> bool {
    let inside: Vec<(RelPath, Conflict)> = found
        .iter()
        .filter(|(change, _)| is_inside(change.conflict.as_ref()))
        .filter_map(|(change, _)| Some((change.key.path.clone(), change.conflict.clone()?)))
        .collect();
    if inside.is_empty() {
        return false;
    }
    let rows: HashMap<RelPath, usize> = found
        .iter()
        .enumerate()
        .map(|(index, (change, _))| (change.key.path.clone(), index))
        .collect();
    for (path, conflict) in inside {
        for parent in path.ancestors() {
            let Some(index) = rows.get(&parent) else {
                continue;
            };
            let change = &mut found[*index].0;
            let goes = matches!(change.kind, ChangeKind::Deleted | ChangeKind::Type);
            if goes && change.conflict.is_none() {
                Arc::make_mut(change).conflict = Some(conflict.clone());
            }
        }
    }
    true
}
