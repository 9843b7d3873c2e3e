//! What a driver cannot do, in one table. Whatever is not in it and differs is a bug. The README's
//! table of deviations says the same in a reader's words.

use super::generate::Allowed;
use super::script::{Op, Over, Script};
use super::snapshot::Snapshot;

/// One thing that differs from a plain directory.
pub struct Deviation {
    /// Whose.
    pub driver: &'static str,
    /// When it shows.
    pub condition: &'static str,
    /// Where it comes from.
    pub why: &'static str,
    /// How the comparison deals with it.
    pub handled: &'static str,
}

/// The table.
pub const TABLE: &[Deviation] = &[
    Deviation {
        driver: "overlayfs",
        condition: "a file of the tree has several names and one of them is changed",
        why: "without an index the kernel copies up each name by itself",
        handled: "trees have no such files; a test of its own pins what happens",
    },
    Deviation {
        driver: "overlayfs",
        condition: "a file of the tree is read through a descriptor that was opened for reading before it was changed",
        why: "the descriptor stays with the lower's file",
        handled: "scripts hold descriptors open for reading and writing only; a test of its own pins it",
    },
    Deviation {
        driver: "overlayfs without the rename shim",
        condition: "a directory of the tree is renamed",
        why: "redirects are off in a user namespace: EXDEV",
        handled: "such an operation is taken out of the script, once it has answered exactly so",
    },
];

/// The drivers a script can be tried on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    Overlayfs,
    Fuse,
}

impl Driver {
    pub const ALL: [Driver; 2] = [Driver::Overlayfs, Driver::Fuse];

    pub fn name(self) -> &'static str {
        match self {
            Driver::Overlayfs => "overlayfs",
            Driver::Fuse => "fuse",
        }
    }

    /// What scripts for it may hold. `shim`: directories are renamed with the kernel's overlay too.
    pub fn allowed(self, shim: bool) -> Allowed {
        match self {
            Driver::Overlayfs => Allowed {
                lower_links: false,
                early_readers: false,
                dir_renames: shim,
            },
            Driver::Fuse => Allowed {
                lower_links: true,
                early_readers: true,
                dir_renames: true,
            },
        }
    }
}

/// Whether the operation answered `EXDEV` because it renames a directory that the tree began with.
pub fn is_lower_rename(op: &Op, native: &str, staged: &str, before: &Snapshot) -> bool {
    let Op::Rename { from, to, over } = op else {
        return false;
    };
    let _ = native;
    let lower = before.is_dir(from) || *over == Over::Exchange && before.is_dir(to);
    staged == "EXDEV" && lower
}

/// The script without one operation.
pub fn without(script: &Script, index: usize) -> Script {
    let mut shorter = script.clone();
    shorter.ops.remove(index);
    shorter
}
