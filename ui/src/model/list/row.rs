//! What the change list is made of: its rows, and the changes that they stand for.

use std::ops::Range;

use pvisor::LayerPath;
use pvisor::layer::Digest;
use pvisor::review::Summary;

/// A change of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Which change.
    pub key: LayerPath,
    /// Its digest when the rows were made.
    pub digest: Digest,
    /// What was decided by then.
    pub summary: Summary,
}

/// Changes that are folded to one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fold {
    /// Nothing but times differs.
    Touched,
    /// New git objects.
    GitObjects,
    /// Ignored by git.
    Ignored,
}

/// One row. Numbers are indices of members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// A layer's head.
    Layer {
        /// Its name.
        layer: String,
        /// Its changes, ignored ones apart.
        members: Range<usize>,
        /// Those of them that are not folded: what is to be decided one by one.
        plain: Range<usize>,
        /// Whether its rows follow.
        open: bool,
    },
    /// A directory, or a chain of directories with nothing else in them.
    Dir {
        /// The directory.
        dir: LayerPath,
        /// Bytes of the path that the rows above already show.
        skip: usize,
        /// Depth of indentation.
        depth: usize,
        /// The directory's own change, if it is one.
        own: Option<usize>,
        /// The changes below it.
        members: Range<usize>,
        /// Whether its rows follow.
        open: bool,
    },
    /// Folded changes.
    Fold {
        /// Why.
        fold: Fold,
        /// In which layer.
        layer: String,
        /// Which.
        members: Range<usize>,
        /// Whether its rows follow.
        open: bool,
    },
    /// A change.
    Change {
        /// Which.
        member: usize,
        /// Bytes of the path that the rows above already show.
        skip: usize,
        /// Depth of indentation.
        depth: usize,
    },
}

/// What a row is, whatever its place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RowId {
    /// A layer.
    Layer(String),
    /// A directory.
    Dir(LayerPath),
    /// Folded changes of a layer.
    Fold(String, Fold),
    /// A change.
    Change(LayerPath),
}
