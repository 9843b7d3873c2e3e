//! The tracker: baseline, scan and conflict check of a session's layers. Owns the baseline's files
//! under `layers/<name>/base`; writes nowhere else, but for the opaque marks of [`Tracker::seal`].

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use super::layer_tracker::{LayerTracker, Look};
use super::{Change, Conflict};
use crate::LayerPath;
use crate::layer::{AccessError, Digest, Dirt, Layer, StageAccess};
use crate::protocol::Contents;

/// Why the change set could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The uppers could not be read.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The baseline could not be read or written.
    #[error("{doing} {}: {source}", crate::text::visible_path(path))]
    Baseline {
        /// What was attempted.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The host's file moved and its earlier bytes were not kept.
    #[error("the host's version of {0} has changed and its earlier content was not kept")]
    NotKept(LayerPath),
}

/// What became of a change set since it was last told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moves {
    /// Rows, new, different or as before.
    pub changes: Vec<Arc<Change>>,
    /// Layers of which `changes` has every row.
    pub whole: Vec<String>,
    /// It has every row of every layer.
    pub all: bool,
    /// Rows that are no more, in the other layers.
    pub gone: Vec<LayerPath>,
}

impl Moves {
    /// A change set that was made anew.
    pub fn everything(changes: Vec<Arc<Change>>) -> Self {
        Self {
            changes,
            all: true,
            ..Self::default()
        }
    }
}

/// Computes the change set; keeps what it learnt (digests, diffs) between scans.
pub struct Tracker {
    layers: Vec<LayerTracker>,
}

impl Tracker {
    /// Opens the baselines of these layers, empty ones if the session is new.
    pub fn open(layers: &[Layer]) -> Result<Self, ChangeError> {
        let layers = layers
            .iter()
            .map(|layer| LayerTracker::open(layer.clone()))
            .collect::<Result<_, _>>()?;
        Ok(Self { layers })
    }

    /// The whole change set as it is now, sorted by key. Takes the baseline of paths that appear
    /// for the first time, and checks the host's side of every change.
    pub fn scan(&mut self, access: &dyn StageAccess) -> Result<Vec<Arc<Change>>, ChangeError> {
        self.scan_layers(access, false)
    }

    /// As [`Tracker::scan`], for somebody who decides on the result: a file that was read a moment
    /// ago is read again as well, since a store through a memory map need not move its times.
    pub fn scan_closely(
        &mut self,
        access: &dyn StageAccess,
    ) -> Result<Vec<Arc<Change>>, ChangeError> {
        self.scan_layers(access, true)
    }

    fn scan_layers(
        &mut self,
        access: &dyn StageAccess,
        closely: bool,
    ) -> Result<Vec<Arc<Change>>, ChangeError> {
        let mut changes = Vec::new();
        for layer in &mut self.layers {
            changes.extend(layer.scan(access, closely)?);
        }
        changes.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(changes)
    }

    /// What became of the change set through moves at these paths. Costs what moved, not what there
    /// is; what makes no event (stores through memory maps, the host's own moves) is found by
    /// [`Tracker::scan`] only.
    pub fn look(&mut self, dirt: &Dirt, access: &dyn StageAccess) -> Result<Moves, ChangeError> {
        let mut moves = Moves::default();
        for (number, layer) in self.layers.iter_mut().enumerate() {
            let look = match dirt.paths(number) {
                Some(paths) if paths.is_empty() => continue,
                Some(paths) => layer.look(paths, access)?,
                None => Look::Whole(layer.scan(access, false)?),
            };
            match look {
                Look::Whole(changes) => {
                    moves.whole.push(layer.name().to_owned());
                    moves.changes.extend(changes);
                }
                Look::Part { changed, gone } => {
                    moves.changes.extend(changed);
                    let key = |path| LayerPath::new(layer.name().to_owned(), path);
                    moves.gone.extend(gone.into_iter().map(key));
                }
            }
        }
        Ok(moves)
    }

    /// After a commit or an undo: the baseline of these paths is what the host has now. A rename
    /// takes its old path along.
    pub fn rebase(&mut self, paths: &[LayerPath]) -> Result<(), ChangeError> {
        self.rebase_on(paths, &HashMap::new())
    }

    /// As [`Tracker::rebase`]. `written`: digests of the files that were written whole, which were
    /// compared while they were; one that still has the agent's size, mode and time is not read
    /// again.
    pub fn rebase_on(
        &mut self,
        paths: &[LayerPath],
        written: &HashMap<LayerPath, Digest>,
    ) -> Result<(), ChangeError> {
        for layer in &mut self.layers {
            let own: BTreeSet<_> = paths
                .iter()
                .filter(|p| p.layer == layer.name())
                .map(|p| p.path.clone())
                .collect();
            if !own.is_empty() {
                layer.rebase(own, written)?;
            }
        }
        Ok(())
    }

    /// Reads these paths anew at the next scan whatever their times say: for a commit that found
    /// other bytes than the scan did (stores through a memory map may leave the times alone).
    pub fn distrust(&mut self, paths: &[LayerPath]) {
        for layer in &mut self.layers {
            for path in paths {
                if path.layer == layer.name() {
                    layer.distrust(&path.path);
                }
            }
        }
    }

    /// Before the layers are mounted again: makes directories that the agent made itself opaque
    /// where the host has one of that name by now, so that the next command sees what the last
    /// one left.
    pub fn seal(&mut self, access: &dyn StageAccess) -> Result<(), ChangeError> {
        for layer in &mut self.layers {
            layer.seal(access)?;
        }
        Ok(())
    }

    /// Both sides of a change. Fails with [`ChangeError::NotKept`] where the host's side moved and
    /// its earlier bytes are gone.
    pub fn contents(
        &self,
        change: &Change,
        access: &dyn StageAccess,
    ) -> Result<Contents, ChangeError> {
        match self.layers.iter().find(|l| l.name() == change.key.layer) {
            Some(layer) => layer.contents(change, access),
            None => Err(AccessError::NoLayer(change.key.layer.clone()).into()),
        }
    }
}

/// Whether a conflict is about names inside a directory.
pub(super) fn is_inside(conflict: Option<&Conflict>) -> bool {
    matches!(conflict, Some(Conflict::HostAddedInside { .. }))
}
