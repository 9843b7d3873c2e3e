//! The tracker: baseline, scan and conflict check of a session's layers. Owns the baseline's files
//! under `layers/<name>/base`; writes nowhere else.

use std::path::PathBuf;

use super::Change;
use crate::LayerPath;
use crate::layer::{AccessError, Layer, StageAccess};
use crate::protocol::Contents;

/// Why the change set could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The uppers could not be read.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The baseline could not be read or written.
    #[error("{doing} {}: {source}", path.display())]
    Baseline {
        /// What was attempted.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// Computes the change set; keeps what it learnt (digests, diffs) between scans.
pub struct Tracker {}

impl Tracker {
    /// Opens the baselines of these layers, empty ones if the session is new.
    pub fn open(_layers: &[Layer]) -> Result<Self, ChangeError> {
        Ok(Self {})
    }

    /// The whole change set as it is now, sorted by key. Takes the baseline of paths that appear
    /// for the first time, and checks the host's side of every change.
    pub fn scan(&mut self, _access: &dyn StageAccess) -> Result<Vec<Change>, ChangeError> {
        Ok(Vec::new())
    }

    /// After a commit or an undo: the baseline of these paths is what the host has now.
    pub fn rebase(&mut self, _paths: &[LayerPath]) -> Result<(), ChangeError> {
        Ok(())
    }

    /// Before the layers are mounted again: makes directories that the agent made itself opaque
    /// where the host has one of that name by now, so that the next command sees what the last
    /// one left.
    pub fn seal(&mut self, _access: &dyn StageAccess) -> Result<(), ChangeError> {
        Ok(())
    }

    /// Both sides of a change.
    pub fn contents(
        &self,
        _change: &Change,
        _access: &dyn StageAccess,
    ) -> Result<Contents, ChangeError> {
        Err(AccessError::HelperGone.into())
    }

    /// Host directories whose entries decide about conflicts, to be watched.
    pub fn host_directories(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}
