//! One layer's share of the tracker. Owns its baseline and what was learnt of contents; puts scan,
//! comparison, conflict, class and renames together.

mod index;
mod learn;
mod renames;
mod seal;
mod sides;

use std::collections::{BTreeSet, HashMap};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::baseline::{Baseline, Record};
use super::conflict::{self, HostDigests, Judgement};
use super::host::Host;
use super::ignored::Rules;
use super::rename::Fingerprint;
use super::risk::{self, Looks};
use super::scan;
use super::tracker::is_inside;
use super::{Change, ChangeError, ChangeKind, Class, Conflict, compare};
use crate::RelPath;
use crate::diff::FileDiff;
use crate::layer::{Digest, FileType, HOME, Layer, Node, StageAccess, Tree, UpperEntry, read};

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
    after: Option<Node>,
    /// The baseline's side.
    before: Option<Node>,
    read_at: SystemTime,
    /// The change without class, risks and conflict; `None`: no difference.
    found: Option<(Change, Looks)>,
}

/// See the module.
pub(super) struct LayerTracker {
    layer: Layer,
    host: Host,
    baseline: Baseline,
    rules: Option<Rules>,
    known: HashMap<RelPath, Known>,
    host_digests: HostDigests,
    prints: HashMap<Digest, Option<Arc<Fingerprint>>>,
    rename_diffs: HashMap<(Digest, Digest), (FileDiff, Looks)>,
    /// Old path by new path, of the last scan.
    renamed: HashMap<RelPath, RelPath>,
    /// The host's git index before the agent had one of its own, see `index`.
    index: Option<Node>,
    deleted_budget: u64,
    recheck_budget: (u32, u64),
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
        let rules = (layer.name != HOME).then(|| Rules::new(&layer.root));
        let mut tracker = Self {
            layer,
            host: Host::new(host),
            baseline,
            rules,
            known: HashMap::new(),
            host_digests: HostDigests::default(),
            prints: HashMap::new(),
            rename_diffs: HashMap::new(),
            renamed: HashMap::new(),
            index: None,
            deleted_budget: DELETED_AT_MOST,
            recheck_budget: RECHECKED_AT_MOST,
        };
        tracker.keep_first_index()?;
        Ok(tracker)
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
    pub fn scan(&mut self, access: &dyn StageAccess) -> Result<Vec<Change>, ChangeError> {
        let mut entries = access.walk(&self.layer.name)?;
        self.read_acls(&mut entries);
        self.host.begin();
        self.baseline.begin();
        self.recheck_budget = RECHECKED_AT_MOST;
        if let Some(rules) = &mut self.rules {
            rules.begin();
        }
        self.keep_index(&entries)?;
        let mut candidates = scan::candidates(&entries, &mut self.host, &mut self.baseline)
            .map_err(self.io("taking the baseline in"))?;
        self.recall_index(&mut candidates)?;
        let mut known = std::mem::take(&mut self.known);
        let mut fresh = HashMap::with_capacity(candidates.len());
        let mut found: Vec<(Change, Looks)> = Vec::new();
        for candidate in candidates {
            let path = candidate.path.clone();
            let old = known.remove(&path);
            let Some((entry, record)) = self.learn(candidate, old, access)? else {
                continue;
            };
            let (entry, record) = self.follow_index(&path, entry, record, access)?;
            let change = entry.found.clone();
            fresh.insert(path, entry);
            if let Some((mut change, looks)) = change
                && self.check_host(&mut change, record)?
            {
                change.class = self.class(&change);
                found.push((change, looks));
            }
        }
        self.known = fresh;
        found.extend(self.root_change(&entries)?);
        found.sort_by(|a, b| a.0.key.cmp(&b.0.key));
        spread_inside(&mut found);
        let origins: Vec<_> = entries
            .into_iter()
            .filter_map(|entry| Some((entry.path, entry.origin?)))
            .collect();
        let mut changes = self.pair_renames(found, &origins, access);
        for (change, looks) in &mut changes {
            change.risks = risk::risks(
                &change.key.path,
                &change.kind,
                change.class,
                change.before.as_ref(),
                change.after.as_ref(),
                *looks,
            );
        }
        self.baseline
            .end()
            .map_err(self.io("writing the baseline in"))?;
        Ok(changes.into_iter().map(|(change, _)| change).collect())
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
                for name in named {
                    if let Some(value) = node.xattrs.get(name) {
                        entry.node.xattrs.insert(name.to_owned(), value.clone());
                    }
                }
            }
        }
    }

    /// Looks at the host's side; `false` when it has what the agent has.
    fn check_host(&mut self, change: &mut Change, mut record: Record) -> Result<bool, ChangeError> {
        let path = &change.key.path;
        let judged = conflict::judge(
            path,
            &mut record,
            change.after.as_ref(),
            &mut self.host,
            &mut self.host_digests,
            &mut self.baseline,
        )
        .map_err(|e| failed("looking at", self.layer.root.join(path.as_path()), e))?;
        match judged {
            Judgement::Agreed => return Ok(false),
            Judgement::Unmoved => {}
            // New names matter only where the directory itself is to go.
            Judgement::Moved(Conflict::HostAddedInside { .. })
                if !matches!(change.kind, ChangeKind::Deleted | ChangeKind::Type) => {}
            Judgement::Moved(conflict) => change.conflict = Some(conflict),
        }
        Ok(true)
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
        entries: &[UpperEntry],
    ) -> Result<Option<(Change, Looks)>, ChangeError> {
        let Some(root) = entries.first().filter(|e| e.path.is_root()) else {
            return Ok(None);
        };
        let Some(made) = self.baseline.root() else {
            self.baseline
                .set_root(root.node.clone())
                .map_err(self.io("writing the baseline in"))?;
            return Ok(None);
        };
        if made.mode == root.node.mode && made.xattrs == root.node.xattrs {
            return Ok(None);
        }
        let before = read::read_node(self.host.tree().root(), b"")
            .map_err(|e| failed("looking at", self.layer.root.clone(), e))?;
        let after = Some(root.node.clone());
        Ok(compare::kind(before.as_ref(), after.as_ref()).map(|kind| {
            let change = self.change(&root.path, kind, before, after, None, false);
            (change, Looks::default())
        }))
    }

    /// See [`super::Tracker::rebase`].
    pub fn rebase(&mut self, mut paths: BTreeSet<RelPath>) -> Result<(), ChangeError> {
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
        for path in paths {
            let known = self.known.remove(&path);
            let node = self
                .host
                .node(&path)
                .map_err(|e| failed("looking at", self.layer.root.join(path.as_path()), e))?;
            let node = self.as_committed(&path, node, known.as_ref());
            let is_dir = node.as_ref().is_some_and(|n| n.file_type == FileType::Dir);
            // A directory without a record lies in one that hides the lower: it is the agent's own.
            let old = self.baseline.get(&path).cloned().unwrap_or(Record {
                pure: is_dir,
                ..Record::default()
            });
            let record = Record {
                unsure: false,
                pure: old.pure,
                tree: old.tree && is_dir,
                node,
            };
            let write = self.io("writing the baseline in");
            if !is_dir {
                self.baseline.forget_below(&path).map_err(&write)?;
            }
            self.baseline.set(&path, record).map_err(&write)?;
        }
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
    ) -> Option<Node> {
        let agents = known
            .and_then(|known| known.found.as_ref())
            .and_then(|(change, _)| change.after.as_ref());
        let Some(agents) = agents else {
            return found;
        };
        match found {
            None if self.host.is_closed_above(path) => Some(agents.clone()),
            Some(mut node) if node.file_type == FileType::File && self.host.is_shut(path) => {
                let shape = |node: &Node| (node.file_type, node.size, node.mode, node.mtime);
                if shape(&node) == shape(agents) {
                    node.digest = agents.digest;
                }
                Some(node)
            }
            found => found,
        }
    }

    /// See [`super::Tracker::distrust`].
    pub fn distrust(&mut self, path: &RelPath) {
        self.known.remove(path);
    }
}

fn failed(doing: &'static str, path: PathBuf, source: std::io::Error) -> ChangeError {
    ChangeError::Baseline {
        doing,
        path,
        source,
    }
}

/// A directory that is to go cannot go while one below it holds names of the host's own.
fn spread_inside(found: &mut [(Change, Looks)]) {
    let inside: Vec<(RelPath, Conflict)> = found
        .iter()
        .filter(|(change, _)| is_inside(change.conflict.as_ref()))
        .filter_map(|(change, _)| Some((change.key.path.clone(), change.conflict.clone()?)))
        .collect();
    if inside.is_empty() {
        return;
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
                change.conflict = Some(conflict.clone());
            }
        }
    }
}
