//! The tracker: baseline, scan and conflict check of a session's layers. Owns the baseline's files
//! under `layers/<name>/base`; writes nowhere else, but for the opaque marks of [`Tracker::seal`].

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use super::layer_tracker::{LayerTracker, Look};
use super::{Change, Conflict, Sides};
use crate::LayerPath;
use crate::commit::{Recovered, Settled};
use crate::layer::{AccessError, Digest, Dirt, Layer, Node, StageAccess};
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

/// What a commit has written, as far as it is known without reading it.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// Digests of the files that were written whole, which were compared while they were.
    pub whole: HashMap<LayerPath, Digest>,
    /// The files of which some items were written only.
    pub parts: BTreeSet<LayerPath>,
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

    /// Who merges each layer by now: that is known only once the command is started, and decides
    /// what the agent can have seen of the host.
    pub fn merged_by(&mut self, layers: &[Layer]) {
        for tracker in &mut self.layers {
            if let Some(layer) = layers.iter().find(|layer| layer.name == tracker.name()) {
                tracker.merged_by(layer.driver);
            }
        }
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
        self.rebase_on(paths, &Written::default())
    }

    /// As [`Tracker::rebase`], with what is known of the commit: a file that was written whole and
    /// still has the agent's size, mode and time is not read again.
    pub fn rebase_on(&mut self, paths: &[LayerPath], written: &Written) -> Result<(), ChangeError> {
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

    /// The three sides of a file that the host and the agent changed, as they are now; or why
    /// there is nothing to merge, in words without the path.
    pub fn sides(&mut self, change: &Change, access: &dyn StageAccess) -> Result<Sides, String> {
        let mut layers = self.layers.iter_mut();
        match layers.find(|l| l.name() == change.key.layer) {
            Some(layer) => layer.sides_now(change, access),
            None => Err("its layer is not one of the session's".into()),
        }
    }

    /// After commit `number` wrote a merge of `key`: the baseline is the agent's side of it, so
    /// that the host's edits in it never count as something that the agent has taken away.
    pub fn part(
        &mut self,
        key: &LayerPath,
        number: u32,
        agreed: &Node,
        bytes: &[u8],
    ) -> Result<(), ChangeError> {
        match self.layers.iter_mut().find(|l| l.name() == key.layer) {
            Some(layer) => layer.part(&key.path, number, agreed, bytes),
            None => Ok(()),
        }
    }

    /// After commit `number` was undone and its paths rebased: those it had merged have the
    /// baseline from before it.
    pub fn rejoin(&mut self, paths: &[LayerPath], number: u32) -> Result<(), ChangeError> {
        for key in paths {
            if let Some(layer) = self.layers.iter_mut().find(|l| l.name() == key.layer) {
                layer.rejoin(&key.path, number)?;
            }
        }
        Ok(())
    }

    /// Baselines that were written for the merges of commits that never came to be (their numbers
    /// are not known) are taken back.
    pub fn rejoin_unwritten(&mut self, is_known: &dyn Fn(u32) -> bool) -> Result<(), ChangeError> {
        let mut layers = self.layers.iter_mut();
        layers.try_for_each(|layer| layer.rejoin_unwritten(is_known))
    }

    /// Keeps the host's side of a file, before [`Tracker::agree_on_host`] depends on it.
    pub fn keep_host(
        &mut self,
        key: &LayerPath,
        host: &(Node, Vec<u8>),
    ) -> Result<(), ChangeError> {
        match self.layer_of(key) {
            Some(layer) => layer.keep_host(host),
            None => Ok(()),
        }
    }

    /// What both sides made of a file was put together in the agent's file: the baseline is the
    /// host's side that went into it. `marked`: with conflict markers of this length.
    pub fn agree_on_host(
        &mut self,
        key: &LayerPath,
        host: &Node,
        marked: Option<u32>,
    ) -> Result<(), ChangeError> {
        match self.layer_of(key) {
            Some(layer) => layer.agree_on_host(&key.path, host, marked),
            None => Ok(()),
        }
    }

    /// A person has decided between two entries as wholes: the baseline is what the host has now.
    /// The reason why not, in words without the path, where that is a directory.
    pub fn take_host(&mut self, key: &LayerPath) -> Result<Result<(), String>, ChangeError> {
        match self.layer_of(key) {
            Some(layer) => layer.take_host(&key.path),
            None => Ok(Ok(())),
        }
    }

    /// The agent's bytes of a change whose file holds conflict markers, and the markers' length;
    /// or why they cannot be had.
    pub fn marked(
        &mut self,
        change: &Change,
        access: &dyn StageAccess,
    ) -> Result<(Vec<u8>, u32), String> {
        let gone = || "it holds no conflict markers".to_owned();
        let layer = self.layer_of(&change.key).ok_or_else(gone)?;
        let text = layer.agents_bytes(change, access)?;
        let length = layer.markers_of(&text).ok_or_else(gone)?;
        Ok((text, length))
    }

    /// The agent's file of this name holds no conflict markers any more.
    pub fn unmark(&mut self, key: &LayerPath) -> Result<(), ChangeError> {
        match self.layer_of(key) {
            Some(layer) => layer.unmark(&key.path),
            None => Ok(()),
        }
    }

    fn layer_of(&mut self, key: &LayerPath) -> Option<&mut LayerTracker> {
        self.layers.iter_mut().find(|l| l.name() == key.layer)
    }

    /// After an unfinished commit or undo was settled: the baselines are what that left.
    pub fn settled(&mut self, one: &Recovered) -> Result<(), ChangeError> {
        if one.outcome == Settled::RolledBack {
            return self.rejoin(&one.paths, one.number);
        }
        let parted = |key: &&LayerPath| {
            let mut layers = self.layers.iter();
            let layer = layers.find(|l| l.name() == key.layer);
            layer.is_some_and(|l| l.is_parted(&key.path, one.number))
        };
        let plain: Vec<LayerPath> = one.touched.iter().filter(|k| !parted(k)).cloned().collect();
        self.rebase(&plain)?;
        match one.undoes {
            Some(undone) => self.rejoin(&one.touched, undone),
            None => Ok(()),
        }
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
