//! Saves that came too late: a program that had opened a file before it was replaced, and wrote
//! afterwards, wrote into the inode that was displaced, and that is kept for undo. Owns finding
//! them; only reads. While one is there its commit's pre-images are not given up, and undo brings
//! the save back.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::ledger::{self, Action, Piece, Standing, Step};
use super::place::{Root, below};
use super::{CommitError, verify};
use crate::layer::FileType;
use crate::layer::content::hash;
use crate::{LayerPath, RelPath};

/// A save that lies in a displaced inode.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LateSave {
    /// The commit that had displaced it.
    pub number: u32,
    /// What was saved.
    pub key: LayerPath,
    /// Where the save lies.
    #[serde(with = "crate::path::exact_path")]
    pub kept: std::path::PathBuf,
}

impl LateSave {
    /// What a person is told, sanitised.
    pub fn describe(&self) -> String {
        format!(
            "{} was saved by another program while commit {} replaced it: the save is kept as {}, \
             undoing that commit brings it back.",
            self.key,
            self.number,
            super::place::shown(&self.kept)
        )
    }
}

/// The late saves in what the commits of the store displaced, as far as it is kept.
pub fn late_saves(store: &Path) -> Result<Vec<LateSave>, CommitError> {
    let numbers = ledger::standing_so(store, Standing::Done)
        .map_err(|e| CommitError::store("reading the commits in", store, e))?;
    let mut found = Vec::new();
    for number in numbers {
        found.extend(late_saves_of(store, number)?);
    }
    Ok(found)
}

/// The late saves in what one commit displaced.
pub fn late_saves_of(store: &Path, number: u32) -> Result<Vec<LateSave>, CommitError> {
    if ledger::standing(store, number) != Standing::Done {
        return Ok(Vec::new());
    }
    let dir = ledger::directory(store, number);
    let broken = |e| CommitError::store("looking at what was replaced in", &dir, e);
    let root = Root::at_path(String::new(), &dir).map_err(broken)?;
    let mut found = Vec::new();
    for (index, step) in ledger::load(store, number)?.steps.iter().enumerate() {
        let Action::Swap { before, .. } = &step.action else {
            continue;
        };
        let home = below(&format!("pre/{index}"));
        for piece in before {
            let path = piece.path.under(&home);
            if is_late(&root, &path, piece) {
                found.push(LateSave {
                    number,
                    key: key(step, &piece.path),
                    kept: dir.join(path.as_path()),
                });
            }
        }
    }
    Ok(found)
}

fn key(step: &Step, path: &RelPath) -> LayerPath {
    LayerPath::new(step.layer.clone(), path.under(&step.path))
}

/// Whether a displaced file's bytes are no longer those that were replaced. One that cannot be
/// looked at is none.
fn is_late(root: &Root, path: &RelPath, piece: &Piece) -> bool {
    let known = &piece.node;
    if known.file_type != FileType::File {
        return false;
    }
    let Ok(Some(look)) = root.look(path) else {
        return false;
    };
    let now = &look.node;
    if now.file_type != FileType::File || (now.size, now.mtime) == (known.size, known.mtime) {
        return false;
    }
    let bytes = root
        .at(path)
        .and_then(|place| place.open())
        .map(|file| hash(&file));
    match (bytes, known.digest) {
        (Ok(Ok(bytes)), Some(digest)) => bytes != digest,
        // What its owner may not read is known by its stat only.
        _ => verify::is_shut(now) || known.digest.is_none(),
    }
}
