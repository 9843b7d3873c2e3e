//! Commit: the only writer to the host's files. Owns plan, pre-flight, preparation, publication,
//! ledger, undo and recovery. A batch is all or nothing; nothing outside a layer's root is ever
//! written; every path is resolved beneath that root without following a link.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::LayerPath;
use crate::change::Change;
use crate::diff::ItemRef;

/// What of one change is to be committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All of it.
    Whole,
    /// These items only: the result is the host's bytes with exactly these edits.
    Items(Vec<ItemRef>),
}

/// One approved change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approved {
    /// The change as it was approved; its digest is re-verified against what is read now.
    pub change: Change,
    /// What of it.
    pub selection: Selection,
}

/// A path and why it was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Where.
    pub key: LayerPath,
    /// One sentence, sanitised, without the path.
    pub reason: String,
}

/// How a commit or an undo ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Everything was written.
    Committed {
        /// Its number within the session, from 1.
        number: u32,
        /// What was written, in order.
        paths: Vec<LayerPath>,
    },
    /// Nothing was written, or all of it was rolled back.
    Refused {
        /// Every path that stood in the way.
        refusals: Vec<Refusal>,
    },
    /// A dry run: this would be written, nothing stands in the way.
    Planned {
        /// What would be written, in order.
        paths: Vec<LayerPath>,
    },
    /// There was nothing to do.
    Nothing,
    /// A crash or an I/O error left the batch unfinished; `recover` settles it.
    Unsettled {
        /// The commit that needs recovery.
        number: u32,
        /// What happened.
        reason: String,
        /// Where its ledger lies.
        #[serde(with = "crate::path::exact_path")]
        ledger: PathBuf,
    },
}
