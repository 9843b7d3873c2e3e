//! Changes: the merged view against the baseline, and the host against the baseline. Owns what
//! counts as a change and how it is classed; never writes to a layer or to the host.

mod baseline;
pub mod companions;
mod compare;
mod conflict;
mod content;
mod entries;
mod git_index;
mod host;
mod ignored;
mod layer_tracker;
mod moved;
mod rename;
mod risk;
mod scan;
pub mod tracker;

pub use layer_tracker::merging::Sides;
pub use moved::came_along;
pub use tracker::{ChangeError, Moves, Tracker, Written};

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::LayerPath;
use crate::RelPath;
use crate::diff::{Item, ItemId};
use crate::layer::{Digest, FileType, Node};
use crate::merge::{Region, Standing};

/// What became of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeKind {
    /// Was not there.
    Added,
    /// Content (or a link's target) differs; the mode may differ too.
    Modified,
    /// Is gone.
    Deleted,
    /// Lies under a new name; its content may differ as well.
    Renamed {
        /// The old path, in the same layer.
        from: RelPath,
    },
    /// Only the permission bits differ.
    Mode,
    /// Another type of entry lies there.
    Type,
    /// Only xattrs, ACL, owner or times differ.
    Meta,
}

impl ChangeKind {
    /// The word used in listings.
    pub fn name(&self) -> &'static str {
        match self {
            ChangeKind::Added => "added",
            ChangeKind::Modified => "modified",
            ChangeKind::Deleted => "deleted",
            ChangeKind::Renamed { .. } => "renamed",
            ChangeKind::Mode => "mode",
            ChangeKind::Type => "type",
            ChangeKind::Meta => "meta",
        }
    }
}

/// How a change is folded in listings and whether `--all` takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Class {
    /// Shown and taken.
    Plain,
    /// Ignored by the workspace's git rules: folded, left out of `--all` unless `--ignored`.
    Ignored,
    /// A new object of a git repository: folded as "N objects", taken.
    GitObject,
}

impl Class {
    /// The word used in listings.
    pub fn name(self) -> &'static str {
        match self {
            Class::Plain => "plain",
            Class::Ignored => "ignored",
            Class::GitObject => "git-object",
        }
    }
}

/// Why a change deserves a second look. Ordered by weight, heaviest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Risk {
    /// A hook of a git repository.
    GitHook,
    /// A git repository's config, attributes or modules.
    GitConfig,
    /// Something else below a `.git`, objects apart.
    GitInternal,
    /// A link whose target is absolute or leaves the layer.
    OutsideLink,
    /// setuid, setgid or sticky bits.
    SpecialMode,
    /// Removes what the host has.
    Delete,
    /// Replaces one type of entry by another.
    TypeChange,
    /// Is or becomes executable.
    Executable,
    /// Changes permission bits.
    ModeChange,
    /// Configuration of a build service.
    Ci,
    /// A lock file of a package manager.
    Lockfile,
    /// Name begins with a dot.
    Dotfile,
    /// Not text.
    Binary,
    /// Holds control, bidi or zero-width characters, in its text or its name.
    HiddenText,
    /// A socket or device: listed, never committed.
    Uncommittable,
}

impl Risk {
    /// The word used in listings.
    pub fn name(self) -> &'static str {
        match self {
            Risk::GitHook => "git-hook",
            Risk::GitConfig => "git-config",
            Risk::GitInternal => "git-internal",
            Risk::OutsideLink => "outside-link",
            Risk::SpecialMode => "special-mode",
            Risk::Delete => "delete",
            Risk::TypeChange => "type-change",
            Risk::Executable => "executable",
            Risk::ModeChange => "mode-change",
            Risk::Ci => "ci",
            Risk::Lockfile => "lockfile",
            Risk::Dotfile => "dotfile",
            Risk::Binary => "binary",
            Risk::HiddenText => "hidden-text",
            Risk::Uncommittable => "uncommittable",
        }
    }
}

/// The host is not what the baseline says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Conflict {
    /// The host's content, target, mode or xattrs changed meanwhile.
    HostModified,
    /// The host has an entry where the baseline has none.
    HostCreated,
    /// The host's entry is gone.
    HostDeleted,
    /// The host's entry is of another type now.
    HostTypeChanged,
    /// A directory to be removed or replaced holds entries that the baseline does not know.
    HostAddedInside {
        /// The first such entry.
        path: RelPath,
    },
    /// The agent's file still holds the conflict markers that were put there.
    Markers,
    /// Of a rename: what stands against the entry under its old name.
    OldName {
        /// The old name.
        path: RelPath,
        /// What stands against it.
        conflict: Box<Conflict>,
    },
}

impl Conflict {
    /// One sentence without the path.
    pub fn describe(&self) -> String {
        match self {
            Conflict::HostModified => "the host's file was changed meanwhile".into(),
            Conflict::HostCreated => "the host has made an entry of this name meanwhile".into(),
            Conflict::HostDeleted => "the host's entry was removed meanwhile".into(),
            Conflict::HostTypeChanged => "the host's entry is of another type now".into(),
            Conflict::HostAddedInside { path } => {
                format!("the host has added {path} in this directory meanwhile")
            }
            Conflict::Markers => "conflict markers are left in the agent's file".into(),
            Conflict::OldName { path, conflict } => {
                format!("of the old name {path}: {}", conflict.describe())
            }
        }
    }
}

/// The change set, by path. Rows are never edited, only replaced: the tracker, the session's state and
/// whoever works on them share them.
pub type ChangeSet = BTreeMap<LayerPath, Arc<Change>>;
/// Whether what both sides made of a file goes together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Merges {
    /// All of the agent's edits and the host's stand side by side.
    Clean {
        /// How each hunk stands.
        hunks: Vec<(ItemId, Standing)>,
    },
    /// They do not.
    Conflicts {
        /// In how many places edits meet.
        places: u32,
        /// The first of them.
        regions: Vec<Region>,
        /// How each hunk stands.
        hunks: Vec<(ItemId, Standing)>,
    },
}

impl Merges {
    /// In a few words.
    pub fn describe(&self) -> String {
        match self {
            Merges::Clean { .. } => "merges cleanly".into(),
            Merges::Conflicts { places: 1, .. } => "conflicts in 1 place".into(),
            Merges::Conflicts { places, .. } => format!("conflicts in {places} places"),
        }
    }

    /// Whether all of it merges.
    pub fn is_clean(&self) -> bool {
        matches!(self, Merges::Clean { .. })
    }

    /// How a hunk of the review stands to the host's edits.
    pub fn standing(&self, item: &ItemId) -> Option<Standing> {
        let (Merges::Clean { hunks } | Merges::Conflicts { hunks, .. }) = self;
        let mut known = hunks.iter();
        known.find_map(|(id, standing)| (id == item).then_some(*standing))
    }

    /// Where edits meet, in words.
    pub fn places(places: usize, regions: &[Region]) -> String {
        let shown: Vec<String> = regions.iter().take(8).map(Region::describe).collect();
        let more = places - shown.len().min(places);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        format!("both sides changed {}{more}", shown.join(", "))
    }
}

/// One path that differs from its baseline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Where.
    pub key: LayerPath,
    /// What became of it.
    pub kind: ChangeKind,
    /// How it is folded.
    pub class: Class,
    /// The baseline's side (for a rename: of the old path).
    pub before: Option<Arc<Node>>,
    /// The agent's side.
    pub after: Option<Arc<Node>>,
    /// Either side is not text.
    pub binary: bool,
    /// Lines added, 0 when not text.
    pub added: u32,
    /// Lines removed, 0 when not text.
    pub removed: u32,
    /// Names exactly this change: kind, both paths, both sides' type, mode, content, target and
    /// xattrs. A decision carries it.
    pub digest: Digest,
    /// Heaviest first, without duplicates.
    pub risks: Vec<Risk>,
    /// Set when the host moved since the baseline was taken.
    pub conflict: Option<Conflict>,
    /// Of a conflict between two versions of a text file whose base is known: whether they merge.
    #[serde(default)]
    pub merges: Option<Merges>,
    /// What can be decided on, in file order.
    pub items: Vec<Item>,
}

impl Change {
    /// The type shown: the agent's side, or what was deleted.
    pub fn file_type(&self) -> FileType {
        self.after
            .as_ref()
            .or(self.before.as_ref())
            .map_or(FileType::File, |n| n.file_type)
    }

    /// The old path of a rename.
    pub fn from(&self) -> Option<&RelPath> {
        match &self.kind {
            ChangeKind::Renamed { from } => Some(from),
            _ => None,
        }
    }
}
