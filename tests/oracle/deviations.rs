//! What a driver cannot do, in one table. Whatever is not in it and differs is a bug. The README's
//! table of deviations says the same in a reader's words.

use super::generate::Allowed;
use super::script::{Answer, Bytes, Op, Over, Script};
use super::snapshot::Snapshot;

/// One thing that differs from a plain directory.
pub struct Deviation {
    /// Whose.
    pub driver: &'static str,
    /// The row of the README's table that tells of it.
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
        condition: "hard links among the host's files",
        why: "without an index the kernel copies up each name by itself",
        handled: "trees have no such files; a test of its own pins what happens",
    },
    Deviation {
        driver: "overlayfs",
        condition: "a file of the host's that is mapped",
        why: "the map stays with the lower's file",
        handled: "scripts hold descriptors, not maps",
    },
    Deviation {
        driver: "overlayfs",
        condition: "a further name for a file of the host's",
        why: "the two names have an inode each in the overlay: a mode or size set under one is shown, but not always heeded, under the other (set-user-id stays where writing takes it away), and a rename of one over the other is ESTALE",
        handled: "after such a link an operation that is, or is not, let in (EACCES), or copies another stretch, or answers ESTALE, is taken out, and files may keep those bits",
    },
    Deviation {
        driver: "overlayfs",
        condition: "something of the host's that is removed while it is open for reading",
        why: "there is no name any more by which it could be copied up: ENOENT or EEXIST, and a pipe is there again",
        handled: "scripts change by descriptors that may write; a test of its own pins it",
    },
    Deviation {
        driver: "overlayfs",
        condition: "something of the host's that is removed while it is open for reading",
        why: "the lower's file has its name still: one link instead of none",
        handled: "exactly that answer is taken out",
    },
    Deviation {
        driver: "overlayfs without the rename shim",
        condition: "renaming a directory of the host's",
        why: "redirects are off in a user namespace: EXDEV",
        handled: "such an operation is taken out of the script, once it has answered exactly so",
    },
    Deviation {
        driver: "overlayfs",
        condition: "a file of the host's with holes behind its first data, once it is changed",
        why: "the kernel copies up in stretches of up to 1 MiB and fills what holes lie in one",
        handled: "trees have files with a hole at their beginning only; a test of its own pins it",
    },
    Deviation {
        driver: "overlayfs",
        condition: "attributes named `user.overlay.*` on the host",
        why: "the kernel takes them for its own marks and does not show them",
        handled: "trees have none; scripts set them; a test of its own pins it",
    },
    Deviation {
        driver: "fuse",
        condition: "`O_TMPFILE`, `fallocate` that collapses or inserts a range",
        why: "the protocol of a file server has no such request: EOPNOTSUPP",
        handled: "scripts do not; a test of its own pins it",
    },
    Deviation {
        driver: "fuse",
        condition: "hard links among the host's files",
        why: "how many names are gone is forgotten with the kernel's last reference",
        handled: "a count that is too high for a file of the tree, after a removal, is taken out; such a change by a descriptor is not made",
    },
    Deviation {
        driver: "commit",
        condition: "commit, where a directory in which something changed, or the workspace's own, may not be written by its owner",
        why: "what a commit replaces could neither come in nor go out; refused, naming the paths, until the person has opened it",
        handled: "such a refusal ends the comparison, for an ordinary user",
    },
    Deviation {
        driver: "commit",
        condition: "commit, where a socket took one of several names of a file of the host's",
        why: "a socket is never committed, so that name stays, and another mode or content under the other names would be half of the file: refused, naming the paths",
        handled: "such a refusal ends the comparison",
    },
    Deviation {
        driver: "overlayfs and fuse",
        condition: "the time of a named pipe that is written to",
        why: "the pipe of the merged view has it, and forgets it",
        handled: "a time that is not set by the script is not compared",
    },
    Deviation {
        driver: "undo",
        condition: "undo, where the commit left a directory that its owner may not enter or list",
        why: "what lies below cannot be looked at; refused, naming the paths, until the person has opened it",
        handled: "such a refusal ends the comparison, for an ordinary user",
    },
    Deviation {
        driver: "changes",
        condition: "what differs below a directory that its owner may no longer list, once that mode alone was committed",
        why: "the host's side cannot be looked at; it is not listed until the person has opened it",
        handled: "such a difference between two commits ends the comparison, for an ordinary user",
    },
    Deviation {
        driver: "changes",
        condition: "another mode, other attributes or a further name for a file that its owner may not read",
        why: "its bytes cannot be compared, so it counts as modified",
        handled: "either word will do, for an ordinary user",
    },
    Deviation {
        driver: "revert",
        condition: "`revert` of a file that its owner may not read",
        why: "its bytes cannot be compared from outside, so it stays in the list",
        handled: "such a row may be left, for an ordinary user",
    },
];

/// Whether a commit or an undo may be refused because its owner has not all of these rights to a
/// directory.
pub fn is_shut(setting: &super::twin::Setting, trees: &[&Snapshot], bits: u32) -> bool {
    let shut = |e: &super::snapshot::Entry| e.letter == 'd' && e.mode & bits != bits;
    !setting.user.is_root() && trees.iter().any(|t| t.entries.values().any(shut))
}

/// Whether a file with several names lost one to a socket: the socket is not committed, so the host
/// keeps that name, and what became of the others cannot be all of the file.
pub fn is_half_a_group(before: &Snapshot, after: &Snapshot) -> bool {
    after.sockets.iter().any(|path| {
        let old = before.entries.get(path);
        old.is_some_and(|e| e.letter == 'f' && e.same_as.is_some())
            || before
                .entries
                .values()
                .any(|e| e.same_as.as_ref() == Some(path))
    })
}

/// Whether a path may still be listed after it was put back.
pub fn is_unreadable(setting: &super::twin::Setting, path: &Bytes, before: &Snapshot) -> bool {
    let entry = before.entries.get(path);
    !setting.user.is_root() && entry.is_some_and(|e| e.letter == 'f' && e.mode & 0o400 == 0)
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
                dir_renames: shim,
                inner_holes: false,
                lower_marks: false,
                change_removed: false,
                tmpfile_and_collapse: true,
            },
            Driver::Fuse => Allowed {
                lower_links: true,
                dir_renames: true,
                inner_holes: true,
                lower_marks: true,
                change_removed: false,
                tmpfile_and_collapse: false,
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

/// Whether the count of names of a file of the tree is too high after one of them was removed.
pub fn is_count(ops: &[Op], index: usize, answers: (&Answer, &Answer)) -> bool {
    let count = |answer: &Answer| {
        let mut words = answer
            .saw
            .split(' ')
            .skip_while(|word| *word != "names")
            .skip(1);
        words.next().and_then(|n| n.parse::<u32>().ok())
    };
    let rest = |answer: &Answer| {
        let number = count(answer).map_or(String::new(), |n| format!(" names {n}"));
        answer.saw.replacen(&number, "", 1)
    };
    let (native, staged) = answers;
    let gone = ops[..index].iter().any(|op| {
        matches!(
            op,
            Op::Unlink { .. } | Op::RemoveTree { .. } | Op::Rename { .. }
        )
    });
    gone && matches!(ops[index], Op::Stat { .. } | Op::FdStat { .. })
        && count(staged) > count(native)
        && rest(staged) == rest(native)
}

/// Whether a removed file of the tree only still counts its name.
pub fn is_removed(op: &Op, native: &Answer, staged: &Answer) -> bool {
    matches!(op, Op::FdStat { .. }) && native.saw.replace(" names 0", " names 1") == staged.saw
}

/// Whether the operation was let in on one side only, or copied another stretch, and a file of the
/// tree has got a further name before.
pub fn is_stale(ops: &[Op], index: usize, answers: (&str, &str), before: &Snapshot) -> bool {
    // Within one file it depends on the size whether the stretches overlap (EINVAL).
    let copied = matches!(ops[index], Op::CopyRange { .. })
        && (answers.0 == answers.1 || answers.1 == "EINVAL");
    has_further_name(&ops[..index], before)
        && (copied || answers.1 == "ESTALE" || (answers.0 == "EACCES") != (answers.1 == "EACCES"))
}

/// Whether a file of the tree has got a further name.
pub fn has_further_name(ops: &[Op], before: &Snapshot) -> bool {
    let tree_file = |path| before.entries.get(path).is_some_and(|e| e.letter == 'f');
    // Also under a name that it, or a directory above it, has come to.
    let at_or_below = |name: &Bytes, above: &Bytes| {
        let rest = name.0.strip_prefix(above.0.as_slice());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    let moved = |name: &Bytes, until: usize| {
        ops[..until].iter().any(|op| {
            matches!(op, Op::Rename { from, to, .. }
                if at_or_below(name, from) || at_or_below(name, to))
        })
    };
    ops.iter()
        .enumerate()
        .any(|(at, op)| matches!(op, Op::Link { from, .. } if tree_file(from) || moved(from, at)))
}

/// The script without one operation.
pub fn without(script: &Script, index: usize) -> Script {
    let mut shorter = script.clone();
    shorter.ops.remove(index);
    shorter
}
