//! What the overlay asks before it does something, and what it tells afterwards. Owns the contract
//! between the file system and whoever holds the rules and the observation log.

use serde::{Deserialize, Serialize};

use crate::RelPath;

/// A kind of access, as rules and the observation log count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// A name was looked up or its attributes were read.
    Lookup,
    /// A directory was listed.
    List,
    /// Opened for reading, a link's target or an attribute read.
    Read,
    /// Opened for writing, truncated, its mode, times or attributes set.
    Write,
    /// Made: file, directory, link, node; also the new name of a rename or a link.
    Create,
    /// Removed; also the old name of a rename.
    Remove,
}

/// An access that is about to happen.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// Name of the layer.
    pub layer: &'a str,
    /// Where, below the layer's root.
    pub path: &'a RelPath,
    /// What.
    pub access: Access,
    /// The calling process, as the file system's own pid namespace numbers it; 0 when unknown.
    pub pid: u32,
    /// Device and inode of the lower file when it has more than one name: any of them may be
    /// protected.
    pub alias: Option<(u64, u64)>,
}

/// How an access is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// As if there were nothing of this name (`ENOENT`).
    Absent,
    /// `EACCES`.
    Denied,
}

/// Holds the rules. May block ([`Guard::permit`] waits for a person): the overlay calls it without
/// holding a lock.
pub trait Guard: Send + Sync {
    /// Whether the access may happen. Called before anything is looked at or changed.
    fn permit(&self, attempt: &Attempt<'_>) -> Result<(), Refusal>;

    /// Whether a listing shows the path.
    fn lists(&self, layer: &str, path: &RelPath) -> bool;

    /// Whether something at or below the directory is protected: then it is neither moved nor
    /// removed as a whole.
    fn protects_below(&self, layer: &str, directory: &RelPath) -> bool;

    /// An access has happened; `bytes` for reads and writes of content.
    fn observed(&self, layer: &str, path: &RelPath, access: Access, bytes: u64);

    /// Whether there is a rule at all: otherwise nothing need be asked.
    fn decides(&self) -> bool {
        true
    }

    /// Whether [`Guard::permit`] may wait for a person: then many requests may wait at once.
    fn waits(&self) -> bool {
        self.decides()
    }

    /// Whether a rule speaks of this path: then each look at it is asked about, and a listing does
    /// not stand for one. Never waits, and says the same of a path as long as the guard lives; what
    /// no rule speaks of is permitted and listed, unless it is an alias.
    fn concerns(&self, layer: &str, path: &RelPath) -> bool {
        let _ = (layer, path);
        self.decides()
    }

    /// Whether what is refused is refused to everybody from the moment its name is looked up (with
    /// [`Attempt::alias`], by another name as well), and nothing waits for an answer later: then
    /// files may be opened without being asked about. Remarks come with the first content.
    fn settles_by_lookup(&self) -> bool {
        !self.decides()
    }

    /// Whether [`Guard::observed`] is listened to: otherwise it need not be called.
    fn observes(&self) -> bool;
}

/// No rules, nobody listens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unguarded;

impl Guard for Unguarded {
    fn permit(&self, _: &Attempt<'_>) -> Result<(), Refusal> {
        Ok(())
    }

    fn lists(&self, _: &str, _: &RelPath) -> bool {
        true
    }

    fn protects_below(&self, _: &str, _: &RelPath) -> bool {
        false
    }

    fn observed(&self, _: &str, _: &RelPath, _: Access, _: u64) {}

    fn observes(&self) -> bool {
        false
    }

    fn decides(&self) -> bool {
        false
    }

    fn waits(&self) -> bool {
        false
    }
}
