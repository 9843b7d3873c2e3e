//! Directories that somebody moves or removes while a commit works in them. Owns which directory each
//! step belongs to: what was begun in one is settled there, or it is not settled. Only reads.
//!
//! A path that leads nowhere is no proof that nothing is left to do: what was made, and what was
//! displaced, lies wherever its directory went.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};

use super::ledger::{Action, Step};
use super::names;
use super::place::{Root, look_fd};
use crate::layer::FileType;
use crate::{LayerPath, RelPath};

/// A directory in which steps work, as it was when they were planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Directory {
    pub at: LayerPath,
    /// Its device is left out: it may be another one after a restart.
    pub ino: u64,
}

/// The directories of a batch.
#[derive(Default)]
pub(super) struct Directories {
    known: BTreeMap<LayerPath, u64>,
    /// Found nowhere: what was to be done in them is left.
    gone: BTreeSet<LayerPath>,
}

/// Why a step cannot be settled: its directory is not where it was.
#[derive(Debug)]
struct Astray(LayerPath);

impl fmt::Display for Astray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the directory {} is not there any more", self.0)
    }
}

impl std::error::Error for Astray {}

/// The directory that an error says is not where it was.
pub(super) fn of(error: &io::Error) -> Option<&LayerPath> {
    Some(&error.get_ref()?.downcast_ref::<Astray>()?.0)
}

impl Directories {
    /// Those in which `steps` work and that are on the host now. A directory that the batch itself
    /// takes away, or puts there, is none.
    pub fn of(steps: &[Step], roots: &BTreeMap<String, Root>) -> Self {
        let is_dir = |step: &&Step| {
            matches!(&step.action, Action::Swap { before, .. }
                if before.first().is_some_and(|piece| piece.node.file_type == FileType::Dir))
        };
        let displaced: BTreeSet<LayerPath> = steps.iter().filter(is_dir).map(Step::key).collect();
        let mut known = BTreeMap::new();
        for at in steps.iter().flat_map(parents) {
            let above = at.path.ancestors().chain([at.path.clone()]);
            let mut above = above.map(|path| LayerPath::new(at.layer.clone(), path));
            if known.contains_key(&at) || above.any(|dir| displaced.contains(&dir)) {
                continue;
            }
            let look = roots.get(&at.layer).map(|root| root.look(&at.path));
            if let Some(Ok(Some(look))) = look
                && look.node.file_type == FileType::Dir
            {
                known.insert(at.clone(), look.node.ino);
            }
        }
        Self {
            known,
            gone: BTreeSet::new(),
        }
    }

    /// As a ledger has them.
    pub fn from_record(record: Vec<Directory>) -> Self {
        Self {
            known: record.into_iter().map(|dir| (dir.at, dir.ino)).collect(),
            gone: BTreeSet::new(),
        }
    }

    /// For the ledger.
    pub fn to_record(&self) -> Vec<Directory> {
        let known = self.known.iter();
        known
            .map(|(at, &ino)| Directory {
                at: at.clone(),
                ino,
            })
            .collect()
    }

    /// What was to be done in this one is left.
    pub fn give_up(&mut self, dir: LayerPath) {
        self.gone.insert(dir);
    }

    /// Whether what is left of a step can be done: `false` where its directory was given up. Errors:
    /// it is not where it was (see [`of`]). The directory found stays open in `root` until another one
    /// is asked for, so that what follows happens in it.
    pub fn stand(&self, root: &Root, step: &Step) -> io::Result<bool> {
        for at in parents(step) {
            let Some(ino) = self.known.get(&at) else {
                continue;
            };
            if self.gone.contains(&at) {
                return Ok(false);
            }
            let found = match root.directory(&at.path) {
                Ok(dir) => look_fd(dir.as_fd())?.node.ino,
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => 0,
                // Said by what is to be done there.
                Err(_) => continue,
            };
            let has_ours = || matches!(root.look(&step.aside), Ok(Some(_)));
            if found != *ino && !(found != 0 && has_ours()) {
                return Err(io::Error::new(io::ErrorKind::NotFound, Astray(at)));
            }
        }
        Ok(true)
    }

    /// Where in its layer a directory lies now, if it can be found in time.
    pub fn find(&self, root: &Root, dir: &LayerPath) -> Option<RelPath> {
        names::directory(&root.path, *self.known.get(dir)?)
    }
}

/// The directories that a step works in, the layer's root left out.
fn parents(step: &Step) -> Vec<LayerPath> {
    let from = match &step.action {
        Action::Move { from, .. } => from.parent(),
        Action::Swap { .. } | Action::Meta { .. } => None,
    };
    let all = step.path.parent().into_iter().chain(from);
    all.filter(|dir| !dir.is_root())
        .map(|dir| LayerPath::new(step.layer.clone(), dir))
        .collect()
}
