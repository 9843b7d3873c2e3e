//! One layer's share of the tracker. Owns its baseline and what was learnt of contents; puts scan,
//! comparison, conflict, class and renames together.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::baseline::{Baseline, Record};
use super::conflict::{self, HostDigests, Judgement};
use super::content::{self, Content, LARGEST_IN_MEMORY};
use super::host::Host;
use super::ignored::Rules;
use super::rename::{self, Fingerprint};
use super::risk::{self, Looks};
use super::scan::{self, Candidate};
use super::tracker::is_inside;
use super::{Change, ChangeError, ChangeKind, Class, Conflict, compare, git_index};
use crate::diff::{self, FileDiff};
use crate::layer::{
    AccessError, Digest, FileType, HOME, Layer, Node, StageAccess, Tree, UpperEntry, mark_opaque,
    read,
};
use crate::protocol::Contents;
use crate::{LayerPath, RelPath};

/// Largest deleted file that is read (for its digest, its lines and renames).
const LARGEST_DELETED: u64 = 16 << 20;

/// Bytes of deleted files read per tracker at most; beyond, size and times have to do.
const DELETED_AT_MOST: u64 = 512 << 20;

/// A store through a memory map moves the times only at the first one to a clean page, and pages
/// are cleaned within about half a minute: a digest of a file that is younger is looked at again.
const SETTLED: Duration = Duration::from_secs(60);

/// Files and bytes looked at again per scan for that reason.
const RECHECKED_AT_MOST: (u32, u64) = (256, 8 << 20);

/// Fingerprints and rename diffs kept between scans.
const KEPT_FOR_RENAMES: usize = 20_000;

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
    watched: BTreeSet<RelPath>,
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
        Ok(Self {
            layer,
            host: Host::new(host),
            baseline,
            rules,
            known: HashMap::new(),
            host_digests: HostDigests::default(),
            prints: HashMap::new(),
            rename_diffs: HashMap::new(),
            renamed: HashMap::new(),
            watched: BTreeSet::new(),
            deleted_budget: DELETED_AT_MOST,
            recheck_budget: RECHECKED_AT_MOST,
        })
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
        let candidates = scan::candidates(&entries, &mut self.host, &mut self.baseline)
            .map_err(self.io("taking the baseline in"))?;
        self.watched.clear();
        let mut known = std::mem::take(&mut self.known);
        let mut fresh = HashMap::with_capacity(candidates.len());
        let mut found: Vec<(Change, Looks)> = Vec::new();
        for candidate in candidates {
            let path = candidate.path.clone();
            let old = known.remove(&path);
            let Some((entry, record)) = self.learn(candidate, old, access)? else {
                continue;
            };
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
        let mut changes = self.pair_renames(found, access);
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

    /// What became of a candidate, from memory where nothing moved. `None` when its entry vanished
    /// since the walk.
    fn learn(
        &mut self,
        candidate: Candidate,
        old: Option<Known>,
        access: &dyn StageAccess,
    ) -> Result<Option<(Known, Record)>, ChangeError> {
        if let Some(mut old) = old
            && old.after == candidate.after
            && same_before(old.before.as_ref(), candidate.record.node.as_ref())
        {
            if let Some(read_at) = self.still_holds(&candidate.path, &old, access)? {
                old.read_at = read_at;
                return Ok(Some((old, candidate.record)));
            }
        }
        self.compare(candidate, access)
    }

    /// Whether a digest taken before can still be believed, and since when.
    fn still_holds(
        &mut self,
        path: &RelPath,
        old: &Known,
        access: &dyn StageAccess,
    ) -> Result<Option<SystemTime>, ChangeError> {
        let Some(node) = old.after.as_ref().filter(|n| n.file_type == FileType::File) else {
            return Ok(Some(old.read_at));
        };
        let moved = node.mtime.max(node.ctime);
        let moved = SystemTime::UNIX_EPOCH
            + Duration::new(u64::try_from(moved.sec).unwrap_or(0), moved.nsec);
        let age = old.read_at.duration_since(moved).unwrap_or_default();
        if age >= SETTLED {
            return Ok(Some(old.read_at));
        }
        // Read within the clock tick of the write: the times may not tell a second write apart.
        let racy = age < Duration::from_millis(20);
        let recent = old.read_at.elapsed().unwrap_or_default() < Duration::from_secs(2);
        let (files, bytes) = self.recheck_budget;
        if !racy && (recent || files == 0 || bytes < node.size) {
            return Ok(Some(old.read_at));
        }
        self.recheck_budget = (files.saturating_sub(1), bytes.saturating_sub(node.size));
        let digest = match &old.found {
            Some((change, _)) => change.after.as_ref().and_then(|n| n.digest),
            None => old.before.as_ref().and_then(|n| n.digest),
        };
        let now = SystemTime::now();
        let content = self.read_upper(path, 0, access)?;
        Ok(content.filter(|c| Some(c.digest) == digest).map(|_| now))
    }

    /// Content of the upper's file; `None` when it cannot be read with the rights we have.
    fn read_upper(
        &self,
        path: &RelPath,
        cap: u64,
        access: &dyn StageAccess,
    ) -> Result<Option<Content>, ChangeError> {
        match access.open(&self.layer.name, path) {
            Ok(fd) => content::read(&fd.into(), cap)
                .map(Some)
                .map_err(|e| AccessError::io("reading", path, &e).into()),
            Err(AccessError::Io {
                errno: libc::EACCES | libc::EPERM,
                ..
            }) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Compares both sides of a candidate.
    fn compare(
        &mut self,
        candidate: Candidate,
        access: &dyn StageAccess,
    ) -> Result<Option<(Known, Record)>, ChangeError> {
        let Candidate {
            path,
            mut record,
            after: walked,
        } = candidate;
        let read_at = SystemTime::now();
        let mut after = walked.clone();
        let mut new_bytes = None;
        if let Some(node) = after.as_mut() {
            match node.file_type {
                FileType::File => match self.read_upper(&path, LARGEST_IN_MEMORY, access) {
                    Ok(content) => {
                        let content = content.map(|c| (c.digest, c.bytes));
                        node.digest = content.as_ref().map(|c| c.0);
                        new_bytes = content.and_then(|c| c.1);
                    }
                    Err(ChangeError::Access(e)) if e.is_absent() => return Ok(None),
                    // It was replaced by something else since: the next scan sees what.
                    Err(ChangeError::Access(AccessError::Io {
                        errno: 0 | libc::EINVAL | libc::ENXIO,
                        ..
                    })) => {
                        return Ok(None);
                    }
                    Err(e) => return Err(e),
                },
                FileType::Symlink => node.digest = node.target.as_deref().map(Digest::of),
                _ => {}
            }
        }
        let old_bytes = self.read_before(&path, &mut record, after.as_ref())?;
        let mut before = record.node.clone();
        if let Some(node) = before.as_mut()
            && node.file_type == FileType::Symlink
        {
            node.digest = node.target.as_deref().map(Digest::of);
        }
        let found = self.difference(
            &path,
            before,
            after,
            old_bytes.as_deref(),
            new_bytes.as_deref(),
        )?;
        let known = Known {
            after: walked,
            before: record.node.clone(),
            read_at,
            found,
        };
        Ok(Some((known, record)))
    }

    /// The baseline's bytes, as far as a comparison with `after` needs them; fills in the record's
    /// digest on the way.
    fn read_before(
        &mut self,
        path: &RelPath,
        record: &mut Record,
        after: Option<&Node>,
    ) -> Result<Option<Vec<u8>>, ChangeError> {
        let Some(node) = record
            .node
            .as_ref()
            .filter(|n| n.file_type == FileType::File)
        else {
            return Ok(None);
        };
        let both = after.is_some_and(|n| n.file_type == FileType::File);
        if !both {
            if node.size > LARGEST_DELETED || node.size > self.deleted_budget {
                return Ok(None);
            }
            self.deleted_budget -= node.size;
        }
        let content = match self.host.content(path, node, LARGEST_IN_MEMORY) {
            Some(content) => Some(content),
            None => node
                .digest
                .and_then(|digest| self.baseline.kept(digest))
                .and_then(|file| content::read(&file, LARGEST_IN_MEMORY).ok()),
        };
        let Some(content) = content else {
            return Ok(None);
        };
        if node.digest != Some(content.digest) {
            let node = Node {
                digest: Some(content.digest),
                ..node.clone()
            };
            record.node = Some(node);
            self.baseline
                .set(path, record.clone())
                .map_err(self.io("writing the baseline in"))?;
        }
        Ok(content.bytes)
    }

    /// The change between two sides, without class, risks and conflict.
    fn difference(
        &mut self,
        path: &RelPath,
        before: Option<Node>,
        after: Option<Node>,
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Option<(Change, Looks)>, ChangeError> {
        let Some(kind) = compare::kind(before.as_ref(), after.as_ref()) else {
            return Ok(None);
        };
        if kind == ChangeKind::Modified
            && git_index::is_index(path)
            && let (Some(old), Some(new)) = (old, new)
            && git_index::same_but_stat(old, new)
        {
            return Ok(None);
        }
        let is_file = |n: &Option<Node>| n.as_ref().is_some_and(|n| n.file_type == FileType::File);
        let too_large = |n: &Option<Node>| {
            n.as_ref()
                .is_some_and(|n| n.file_type == FileType::File && n.size > LARGEST_IN_MEMORY)
        };
        let compared = match kind {
            ChangeKind::Modified if is_file(&after) => {
                old.zip(new).map(|(old, new)| diff::diff(old, new))
            }
            ChangeKind::Added if is_file(&after) => new.map(|new| diff::diff(b"", new)),
            ChangeKind::Deleted if is_file(&before) => old.map(|old| diff::diff(old, b"")),
            _ => None,
        };
        let looks = Looks {
            binary: compared.as_ref().is_some_and(|d| d.binary)
                || too_large(&before)
                || too_large(&after)
                || old.is_some_and(diff::is_binary)
                || new.is_some_and(diff::is_binary),
            hidden: new.is_some_and(|new| !diff::is_binary(new) && crate::text::has_hidden(new)),
        };
        if kind == ChangeKind::Modified
            && let Some(node) = before.as_ref()
            && let Some(digest) = node.digest
            && let Some(file) = self.host.file(path, node)
        {
            self.baseline
                .keep(digest, &file, node.size)
                .map_err(self.io("keeping the host's version in"))?;
        }
        let change = self.change(path, kind, before, after, compared.as_ref(), looks.binary);
        Ok(Some((change, looks)))
    }

    fn change(
        &self,
        path: &RelPath,
        kind: ChangeKind,
        before: Option<Node>,
        after: Option<Node>,
        compared: Option<&FileDiff>,
        binary: bool,
    ) -> Change {
        Change {
            key: LayerPath::new(self.layer.name.clone(), path.clone()),
            class: Class::Plain,
            binary,
            added: compared.map_or(0, |d| d.added),
            removed: compared.map_or(0, |d| d.removed),
            digest: compare::change_digest(
                &self.layer.name,
                path,
                &kind,
                before.as_ref(),
                after.as_ref(),
            ),
            risks: Vec::new(),
            conflict: None,
            items: diff::items(&kind, before.as_ref(), after.as_ref(), compared),
            kind,
            before,
            after,
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
        if self.host.has_parent(path).unwrap_or(false) {
            self.watched.insert(path.parent().unwrap_or_default());
        }
        if record.tree {
            self.watched.insert(path.clone());
        }
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
        let tree = self.host.tree();
        let ignored = self
            .rules
            .as_mut()
            .is_some_and(|rules| rules.is_ignored(tree, path, is_dir));
        if ignored {
            Class::Ignored
        } else {
            Class::Plain
        }
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

    /// Joins deleted and added rows that are one file under two names.
    fn pair_renames(
        &mut self,
        found: Vec<(Change, Looks)>,
        access: &dyn StageAccess,
    ) -> Vec<(Change, Looks)> {
        self.renamed.clear();
        if self.prints.len() > KEPT_FOR_RENAMES || self.rename_diffs.len() > KEPT_FOR_RENAMES {
            self.prints.clear();
            self.rename_diffs.clear();
        }
        let (rows, looks): (Vec<Change>, Vec<Looks>) = found.into_iter().unzip();
        let pairs = rename::pairs(&rows, |change| self.fingerprint(change, access));
        let mut rows: Vec<Option<(Change, Looks)>> =
            rows.into_iter().zip(looks).map(Some).collect();
        for (old, new) in pairs {
            let (Some((gone, _)), Some((come, looks))) = (rows[old].take(), rows[new].take())
            else {
                continue;
            };
            self.renamed
                .insert(come.key.path.clone(), gone.key.path.clone());
            rows[new] = Some(self.joined(gone, come, looks, access));
        }
        rows.into_iter().flatten().collect()
    }

    fn joined(
        &mut self,
        gone: Change,
        come: Change,
        looks: Looks,
        access: &dyn StageAccess,
    ) -> (Change, Looks) {
        let digests = |c: &Change| {
            c.after
                .as_ref()
                .or(c.before.as_ref())
                .and_then(|n| n.digest)
        };
        let mut compared = None;
        let mut looks = looks;
        if let (Some(a), Some(b)) = (digests(&gone), digests(&come))
            && a != b
        {
            if let Some((known, seen)) = self.rename_diffs.get(&(a, b)) {
                compared = Some(known.clone());
                looks = *seen;
            } else {
                let old = self.bytes_before(&gone.key.path, gone.before.as_ref());
                let new = self
                    .read_upper(&come.key.path, LARGEST_IN_MEMORY, access)
                    .ok()
                    .flatten()
                    .and_then(|c| c.bytes);
                if let Some((old, new)) = old.zip(new) {
                    let fresh = diff::diff(&old, &new);
                    looks.binary |= fresh.binary;
                    self.rename_diffs.insert((a, b), (fresh.clone(), looks));
                    compared = Some(fresh);
                }
            }
        }
        let kind = ChangeKind::Renamed {
            from: gone.key.path.clone(),
        };
        let mut change = self.change(
            &come.key.path,
            kind,
            gone.before,
            come.after,
            compared.as_ref(),
            looks.binary,
        );
        change.class = come.class;
        change.conflict = come.conflict.or(gone.conflict);
        (change, looks)
    }

    fn fingerprint(
        &mut self,
        change: &Change,
        access: &dyn StageAccess,
    ) -> Option<Arc<Fingerprint>> {
        let digest = change.after.as_ref().or(change.before.as_ref())?.digest?;
        if let Some(known) = self.prints.get(&digest) {
            return known.clone();
        }
        let path = &change.key.path;
        let bytes = match change.kind {
            ChangeKind::Deleted => self.bytes_before(path, change.before.as_ref()),
            _ => self
                .read_upper(path, rename::LARGEST_TEXT, access)
                .ok()
                .flatten()
                .and_then(|c| c.bytes),
        };
        let print = bytes
            .filter(|b| !diff::is_binary(b))
            .map(|b| Arc::new(rename::fingerprint(&b)));
        self.prints.insert(digest, print.clone());
        print
    }

    /// The baseline's bytes, from the host while it has not moved, else as kept.
    fn bytes_before(&self, path: &RelPath, node: Option<&Node>) -> Option<Vec<u8>> {
        let node = node?;
        let from_host = || {
            let file = self.host.tree().file(path).ok()?;
            let content = content::read(&file, LARGEST_IN_MEMORY).ok()?;
            match node.digest {
                Some(digest) => digest == content.digest,
                None => read::stat_fd(file.as_fd()).is_ok_and(|now| now.same_stat(node)),
            }
            .then_some(content.bytes?)
        };
        let from_kept = || {
            let file = self.baseline.kept(node.digest?)?;
            content::read(&file, LARGEST_IN_MEMORY).ok()?.bytes
        };
        from_host().or_else(from_kept)
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
            self.known.remove(&path);
            let node = self
                .host
                .node(&path)
                .map_err(|e| failed("looking at", self.layer.root.join(path.as_path()), e))?;
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

    /// See [`super::Tracker::distrust`].
    pub fn distrust(&mut self, path: &RelPath) {
        self.known.remove(path);
    }

    /// See [`super::Tracker::seal`].
    pub fn seal(&mut self, access: &dyn StageAccess) -> Result<(), ChangeError> {
        let entries = access.walk(&self.layer.name)?;
        let upper = Tree::open(&self.layer.upper())
            .map_err(|e| failed("opening", self.layer.upper(), e))?;
        self.host.begin();
        let mut sealed: Option<RelPath> = None;
        for entry in &entries {
            if sealed.as_ref().is_some_and(|top| entry.path.is_within(top)) {
                continue;
            }
            let pure = self.baseline.get(&entry.path).is_some_and(|r| r.pure);
            if entry.node.file_type != FileType::Dir || !pure && !entry.opaque {
                continue;
            }
            // Below an opaque directory nothing of the host can show.
            if entry.opaque {
                sealed = Some(entry.path.clone());
                continue;
            }
            let at = || self.layer.upper().join(entry.path.as_path());
            let host = self
                .host
                .stat(&entry.path)
                .map_err(|e| failed("looking at", at(), e))?;
            if host.is_some_and(|n| n.file_type == FileType::Dir) {
                seal_dir(&upper, &entry.path).map_err(|e| failed("sealing", at(), e))?;
                sealed = Some(entry.path.clone());
            }
        }
        Ok(())
    }

    /// See [`super::Tracker::contents`].
    pub fn contents(
        &self,
        change: &Change,
        access: &dyn StageAccess,
    ) -> Result<Contents, ChangeError> {
        let size = |node: &Option<Node>| {
            node.as_ref()
                .filter(|n| n.file_type == FileType::File)
                .map_or(0, |n| n.size)
        };
        let mut contents = Contents {
            digest: change.digest,
            before: None,
            after: None,
            too_large: size(&change.before) + size(&change.after) > LARGEST_IN_MEMORY,
        };
        if contents.too_large {
            return Ok(contents);
        }
        let old_path = change.from().unwrap_or(&change.key.path);
        contents.before = match &change.before {
            Some(node) if node.file_type == FileType::File => {
                let old = LayerPath::new(self.layer.name.clone(), old_path.clone());
                let bytes = self
                    .bytes_before(old_path, Some(node))
                    .ok_or(ChangeError::NotKept(old))?;
                Some(bytes)
            }
            Some(node) => node.target.clone(),
            None => None,
        };
        contents.after = match &change.after {
            Some(node) if node.file_type == FileType::File => {
                let fd = access.open(&self.layer.name, &change.key.path)?;
                let content = content::read(&fd.into(), LARGEST_IN_MEMORY)
                    .map_err(|e| AccessError::io("reading", &change.key.path, &e))?;
                if content.bytes.is_none() {
                    contents.before = None;
                    contents.too_large = true;
                }
                content.bytes
            }
            Some(node) => node.target.clone(),
            None => None,
        };
        Ok(contents)
    }

    /// Host directories that decide about this layer's conflicts.
    pub fn host_directories(&self) -> impl Iterator<Item = PathBuf> {
        self.watched
            .iter()
            .map(|path| self.layer.root.join(path.as_path()))
    }
}

fn failed(doing: &'static str, path: PathBuf, source: std::io::Error) -> ChangeError {
    ChangeError::Baseline {
        doing,
        path,
        source,
    }
}

/// Whether what was known of the baseline's side is what is on record: a digest that was found in
/// between changes nothing.
fn same_before(known: Option<&Node>, record: Option<&Node>) -> bool {
    match (known, record) {
        (None, None) => true,
        (Some(known), Some(record)) => known == record,
        _ => false,
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

/// Marks a directory of the upper as opaque, whatever its mode and its parents' say.
fn seal_dir(upper: &Tree, path: &RelPath) -> std::io::Result<()> {
    use nix::sys::stat::{Mode, fchmod};
    let Some(name) = path.file_name() else {
        return Ok(());
    };
    let parent = upper.parent(path)?;
    let mode = read::stat(parent.as_fd(), name)?.map_or(0o700, |n| n.mode);
    let dir = read::open_dir(parent.as_fd(), name).or_else(|e| {
        if e.raw_os_error() != Some(libc::EACCES) {
            return Err(e);
        }
        nix::sys::stat::fchmodat(
            &parent,
            name,
            Mode::S_IRWXU,
            nix::sys::stat::FchmodatFlags::NoFollowSymlink,
        )?;
        read::open_dir(parent.as_fd(), name)
    })?;
    let closed = mode & 0o300 != 0o300;
    if closed {
        fchmod(&dir, Mode::S_IRWXU)?;
    }
    let marked = mark_opaque(dir.as_fd());
    if closed {
        fchmod(&dir, Mode::from_bits_truncate(mode))?;
    }
    marked
}
