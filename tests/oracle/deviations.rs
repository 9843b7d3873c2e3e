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
        driver: "overlayfs",
        condition: "a file of the tree gets a further name",
        why: "the two names have an inode each in the overlay: a mode set under one is shown, but not heeded, under the other",
        handled: "after such a link an operation that is, or is not, let in (EACCES) is taken out",
    },
    Deviation {
        driver: "overlayfs without the rename shim",
        condition: "a directory of the tree is renamed",
        why: "redirects are off in a user namespace: EXDEV",
        handled: "such an operation is taken out of the script, once it has answered exactly so",
    },
    Deviation {
        driver: "overlayfs",
        condition: "a file of the tree with holes behind its first data is changed",
        why: "the kernel copies up in stretches of up to 1 MiB and fills what holes lie in one",
        handled: "trees have files with a hole at their beginning only; a test of its own pins it",
    },
    Deviation {
        driver: "overlayfs",
        condition: "an entry of the tree has attributes named `user.overlay.*`",
        why: "the kernel takes them for its own marks and does not show them",
        handled: "trees have none; scripts set them; a test of its own pins it",
    },
    Deviation {
        driver: "commit",
        condition: "the agent made the workspace's own directory unwritable to its owner",
        why: "what a commit displaces could not leave it any more; refused, naming the paths",
        handled: "such a refusal ends the comparison, for an ordinary user",
    },
];

/// Whether a commit may be refused because the root has lost its writability.
pub fn is_shut_root(setting: &super::twin::Setting, after: &Snapshot) -> bool {
    let root = after.entries.get(&super::script::Bytes::default());
    !setting.user.is_root() && root.is_some_and(|root| root.mode & 0o300 != 0o300)
}

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
                inner_holes: false,
                lower_marks: false,
            },
            Driver::Fuse => Allowed {
                lower_links: true,
                early_readers: true,
                dir_renames: true,
                inner_holes: true,
                lower_marks: true,
            },
        }
    }
}

/// Whether the operation answered `EXDEV` because it renames a directory that the tree began with.
pub fn is_lower_rename(op: &Op, answers: (&str, &str), before: &Snapshot) -> bool {
    let Op::Rename { from, to, over } = op else {
        return false;
    };
    let lower = before.is_dir(from) || *over == Over::Exchange && before.is_dir(to);
    answers.1 == "EXDEV" && lower
}

/// Whether the operation was let in on one side only, and a file of the tree has got a further name
/// before.
pub fn is_stale_mode(ops: &[Op], index: usize, answers: (&str, &str), before: &Snapshot) -> bool {
    let tree_file = |path| before.entries.get(path).is_some_and(|e| e.letter == 'f');
    let linked = ops[..index]
        .iter()
        .any(|op| matches!(op, Op::Link { from, .. } if tree_file(from)));
    linked && (answers.0 == "EACCES") != (answers.1 == "EACCES")
}

/// The script without one operation.
pub fn without(script: &Script, index: usize) -> Script {
    let mut shorter = script.clone();
    shorter.ops.remove(index);
    shorter
}
