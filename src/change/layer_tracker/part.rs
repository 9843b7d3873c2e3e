//! Scans of what has moved only. Owns which paths an entry's move concerns, and the difference that
//! comes of it; what it finds is what a whole scan would have found there.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::LayerTracker;
use crate::RelPath;
use crate::change::entries::{Entries, InTreeOrder};
use crate::change::{Change, ChangeError, scan};
use crate::layer::{FileType, StageAccess, UpperEntry, points};

/// What became of a layer's change set.
pub(in crate::change) enum Look {
    /// All of it.
    Whole(Vec<Arc<Change>>),
    /// Only this differs from the last one.
    Part {
        /// New or different rows.
        changed: Vec<Arc<Change>>,
        /// Rows that are no more.
        gone: Vec<RelPath>,
    },
}

/// What of an entry decides about those below it.
fn bearing(entry: Option<&UpperEntry>) -> Option<(bool, bool, bool)> {
    entry.map(|e| (e.node.file_type == FileType::Dir, e.opaque, e.whiteout))
}

impl LayerTracker {
    /// Looks at these paths of the upper, those marked `true` with everything below.
    pub fn look(
        &mut self,
        mut paths: Vec<(RelPath, bool)>,
        access: &dyn StageAccess,
    ) -> Result<Look, ChangeError> {
        let Some(mut entries) = self.entries.take() else {
            return self.scan(access, false).map(Look::Whole);
        };
        let named: HashMap<&RelPath, bool> = paths.iter().map(|(p, deep)| (p, *deep)).collect();
        if paths
            .iter()
            .any(|(path, _)| !is_placed(path, &entries, &named))
        {
            return self.scan(access, false).map(Look::Whole);
        }
        for (path, deep) in &mut paths {
            *deep |= bearing(entries.get(path)).is_none_or(|(is_dir, ..)| !is_dir);
        }
        paths.sort_by(|a, b| a.0.cmp(&b.0));
        self.closely = false;
        let mut seen = access.look(&self.layer.name, &paths)?;
        points::leave_out(&self.layer.dir, &mut seen);
        self.read_acls(&mut seen);
        let (told, concerned) = self.concerned(&mut entries, &paths, seen);
        let look = self.reconsider(&entries, &told, &concerned, access)?;
        self.entries = Some(entries);
        Ok(look)
    }

    /// Takes note of what was seen at these paths: which of them have moved, and every path whose
    /// change may be another one now.
    fn concerned(
        &self,
        entries: &mut Entries,
        paths: &[(RelPath, bool)],
        seen: Vec<UpperEntry>,
    ) -> (BTreeSet<RelPath>, BTreeSet<InTreeOrder>) {
        let mut told: BTreeSet<RelPath> = paths.iter().map(|(path, _)| path.clone()).collect();
        let mut concerned: BTreeSet<InTreeOrder> = BTreeSet::new();
        let found: BTreeSet<&RelPath> = seen.iter().map(|e| &e.path).collect();
        let is_dir = |e: &&UpperEntry| e.node.file_type == FileType::Dir;
        let dirs: BTreeSet<&RelPath> = seen.iter().filter(is_dir).map(|e| &e.path).collect();
        let mut turned = Vec::new();
        for (path, deep) in paths {
            concerned.insert(InTreeOrder(path.clone()));
            let now = found.contains(path);
            if *deep || !dirs.contains(path) {
                // What was below and was not seen again is gone.
                let gone: Vec<RelPath> = entries
                    .below(path)
                    .filter(|p| !found.contains(p))
                    .cloned()
                    .collect();
                for path in gone {
                    entries.remove(&path);
                    concerned.insert(InTreeOrder(path));
                }
            }
            if !now {
                if entries.has(path) {
                    turned.push(path.clone());
                }
                entries.remove(path);
            }
        }
        for entry in seen {
            if bearing(entries.get(&entry.path)) != bearing(Some(&entry)) {
                turned.push(entry.path.clone());
            }
            told.insert(entry.path.clone());
            concerned.insert(InTreeOrder(entry.path.clone()));
            entries.put(entry);
        }
        // What lies below one that turned is concerned once, however many on the way turned as well.
        let turned: BTreeSet<InTreeOrder> = turned.into_iter().map(InTreeOrder).collect();
        let mut covered: Option<RelPath> = None;
        for InTreeOrder(path) in turned {
            if covered.as_ref().is_some_and(|top| path.is_within(top)) {
                continue;
            }
            covered = Some(path.clone());
            concerned.extend(entries.below(&path).cloned().map(InTreeOrder));
            let recorded = self.baseline.below(&path);
            concerned.extend(recorded.map(|(path, _)| InTreeOrder(path.clone())));
        }
        (told, concerned)
    }

    /// Finds out anew what became of these paths.
    fn reconsider(
        &mut self,
        entries: &Entries,
        told: &BTreeSet<RelPath>,
        concerned: &BTreeSet<InTreeOrder>,
        access: &dyn StageAccess,
    ) -> Result<Look, ChangeError> {
        self.begin();
        self.keep_index(entries)?;
        let paths = concerned.iter().map(|path| &path.0);
        let mut candidates =
            scan::candidates_at(paths, entries, &mut self.host, &mut self.baseline)
                .map_err(self.io("taking the baseline in"))?;
        self.recall_index(&mut candidates)?;
        // A directory's move brings along what it hides.
        let mut touched: BTreeSet<RelPath> = concerned.iter().map(|p| p.0.clone()).collect();
        touched.extend(candidates.iter().map(|c| c.path.clone()));
        let mut had = Vec::new();
        let mut old = HashMap::new();
        for path in &touched {
            if self.withdraw(path) {
                had.push(path.clone());
            }
            if let Some(known) = self.known.remove(path) {
                old.insert(path.clone(), known);
            }
        }
        for candidate in candidates {
            let known = old.remove(&candidate.path);
            let told = told.contains(&candidate.path);
            self.weigh(candidate, known, told, access)?;
        }
        self.baseline
            .flush()
            .map_err(self.io("writing the baseline in"))?;
        if self.entangled || self.tally.is_entangled() {
            return self.assemble(entries, access).map(Look::Whole);
        }
        let mut changed = Vec::new();
        for path in &touched {
            if let Some((change, _)) = self.row(path) {
                changed.push(change);
            }
        }
        let gone = had
            .into_iter()
            .filter(|path| !self.verdicts.contains_key(path))
            .collect();
        Ok(Look::Part { changed, gone })
    }
}

/// Whether what is known, or what is looked at along with it, leads to a path. The root's own
/// attributes are a matter of the whole.
fn is_placed(path: &RelPath, entries: &Entries, named: &HashMap<&RelPath, bool>) -> bool {
    for (level, dir) in path.ancestors().enumerate() {
        if entries.has(&dir) {
            return level == 0 || named.get(&dir).is_some_and(|deep| *deep);
        }
        if named.contains_key(&dir) {
            return true;
        }
    }
    false
}
