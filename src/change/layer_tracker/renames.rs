//! Joins the rows of a rename. Which rows belong together is decided in [`rename`].

use std::sync::Arc;

use super::{LayerTracker, risks};
use crate::RelPath;
use crate::change::content::LARGEST_IN_MEMORY;
use crate::change::rename::{self, Fingerprint};
use crate::change::risk::Looks;
use crate::change::{Change, ChangeKind, Class, Conflict, moved};
use crate::diff;
use crate::layer::StageAccess;

/// Fingerprints and rename diffs kept between scans.
const KEPT_FOR_RENAMES: usize = 20_000;

impl LayerTracker {
    /// Joins deleted and added rows that are one entry under two names: first the directories of
    /// which the upper tells where they come from, then files.
    pub(super) fn pair_renames(
        &mut self,
        found: Vec<(Arc<Change>, Looks)>,
        origins: &[(RelPath, RelPath)],
        access: &dyn StageAccess,
    ) -> Vec<(Arc<Change>, Looks)> {
        self.renamed.clear();
        if self.prints.len() > KEPT_FOR_RENAMES || self.rename_diffs.len() > KEPT_FOR_RENAMES {
            self.prints.clear();
            self.rename_diffs.clear();
        }
        let (rows, looks): (Vec<Arc<Change>>, Vec<Looks>) = found.into_iter().unzip();
        let pairs = moved::pairs(&rows, origins);
        let found = self.join(rows, looks, pairs, access);
        let (rows, looks): (Vec<Arc<Change>>, Vec<Looks>) = found.into_iter().unzip();
        let pairs = rename::pairs(&rows, |change| self.fingerprint(change, access));
        self.join(rows, looks, pairs, access)
    }

    /// Joins the rows of each pair.
    fn join(
        &mut self,
        rows: Vec<Arc<Change>>,
        looks: Vec<Looks>,
        pairs: Vec<(usize, usize)>,
        access: &dyn StageAccess,
    ) -> Vec<(Arc<Change>, Looks)> {
        let mut rows: Vec<Option<(Arc<Change>, Looks)>> =
            rows.into_iter().zip(looks).map(Some).collect();
        for (old, new) in pairs {
            let (Some((gone, _)), Some((come, looks))) = (rows[old].take(), rows[new].take())
            else {
                continue;
            };
            self.renamed
                .insert(come.key.path.clone(), gone.key.path.clone());
            rows[new] = Some(self.joined(&gone, &come, looks, access));
        }
        rows.into_iter().flatten().collect()
    }

    pub(super) fn joined(
        &mut self,
        gone: &Change,
        come: &Change,
        looks: Looks,
        access: &dyn StageAccess,
    ) -> (Arc<Change>, Looks) {
        let digests = |c: &Change| {
            c.after
                .as_ref()
                .or(c.before.as_ref())
                .and_then(|n| n.digest)
        };
        let mut compared = None;
        let mut looks = looks;
        if let (Some(a), Some(b)) = (digests(gone), digests(come))
            && a != b
        {
            if let Some((known, seen)) = self.rename_diffs.get(&(a, b)) {
                compared = Some(known.clone());
                looks = *seen;
            } else {
                let old = self.bytes_before(&gone.key.path, gone.before.as_deref());
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
            gone.before.clone(),
            come.after.clone(),
            compared.as_ref(),
            looks.binary,
        );
        change.class = match come.class {
            // It is not new, it lies elsewhere.
            Class::GitObject => gone.class,
            class => class,
        };
        // The old name is where the host stands in the way, and where a person has to look.
        change.conflict = come.conflict.clone().or_else(|| {
            let conflict = Box::new(gone.conflict.clone()?);
            let path = gone.key.path.clone();
            Some(Conflict::OldName { path, conflict })
        });
        change.risks = risks(&change, change.class, looks);
        (Arc::new(change), looks)
    }

    pub(super) fn fingerprint(
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
            ChangeKind::Deleted => self.bytes_before(path, change.before.as_deref()),
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
}
