//! Preparation of an undo: what a commit displaced is brought back beside its place. Owns the way
//! out of the store.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::ledger::{Action, Piece, Source, Step};
use super::place::Root;
use super::stage::{StageErrorAt, refused};
use super::transaction::{Failure, Make};
use super::{CommitError, verify};
use crate::RelPath;
use crate::layer::content::hash;
use crate::layer::{FileType, Node};

/// The stores of the commits that an undo takes from, by number.
pub(super) struct Keeper {
    pub stores: BTreeMap<u32, Root>,
}

impl Make for Keeper {
    fn make(
        &mut self,
        steps: &[Step],
        roots: &BTreeMap<String, Root>,
        done: &mut dyn FnMut(usize, Vec<Piece>) -> Result<(), CommitError>,
    ) -> Result<(), Failure> {
        for (index, step) in steps.iter().enumerate() {
            let Some(root) = roots
                .get(&step.layer)
                .filter(|_| !step.entries().is_empty())
            else {
                continue;
            };
            let made = bring_back(root, step, &self.stores);
            done(index, made.map_err(|at| refused(step, at))?)?;
        }
        Ok(())
    }
}

/// Brings a kept pre-image from the store to the step's temporary name and says what it is.
fn bring_back(
    root: &Root,
    step: &Step,
    stores: &BTreeMap<u32, Root>,
) -> Result<Vec<Piece>, StageErrorAt> {
    let at = |error: io::Error| StageErrorAt {
        path: step.path.clone(),
        error: error.into(),
    };
    let Action::Swap {
        after,
        source: Source::Kept {
            number,
            step: index,
        },
        ..
    } = &step.action
    else {
        return Ok(Vec::new());
    };
    let missing = || at(io::Error::from_raw_os_error(libc::ENOENT));
    let store = stores.get(number).ok_or_else(missing)?;
    let kept = store
        .at(&super::place::below(&format!("pre/{index}")))
        .map_err(at)?;
    let aside = root.at(&step.aside).map_err(at)?;
    // What has to be copied stays in the store until the undo is through: on the way back the copy
    // is thrown away.
    super::settle::fetch(&kept, &aside).map_err(at)?;
    let mut pieces = Vec::with_capacity(after.len());
    for piece in after {
        let path = piece.path.under(&step.aside);
        let node = described(root, &path, &piece.node).map_err(|error| StageErrorAt {
            path: piece.path.under(&step.path),
            error: error.into(),
        })?;
        if let Some(node) = node {
            pieces.push(Piece {
                path: piece.path.clone(),
                node: Arc::new(node),
            });
        }
    }
    Ok(pieces)
}

/// What lies at `path` now; content that looks untouched keeps its known digest.
fn described(root: &Root, path: &RelPath, known: &Node) -> io::Result<Option<Node>> {
    let Some(look) = root.look(path)? else {
        return Ok(None);
    };
    let mut node = verify::with_stat(known, &look.node);
    let untouched = (node.size, node.mtime) == (known.size, known.mtime);
    if node.file_type == FileType::File && (!untouched || node.digest.is_none()) {
        node.digest = match root.at(path)?.open() {
            Ok(file) => Some(hash(&file)?),
            // Its owner may not read it, so its stat is all there is to know of it.
            Err(_) if verify::is_shut(&node) => None,
            Err(e) => return Err(e),
        };
    }
    Ok(Some(node))
}
