//! Whether the host still has what is expected of it. Owns the rule of sameness (the same stat, or
//! the same type, mode, bytes and attributes); only reads.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::ledger::Piece;
use super::place::{Look, Place, Root, xattrs};
use crate::RelPath;
use crate::change::Conflict;
use crate::layer::content::hash;
use crate::layer::{FileType, Node};

/// Result of comparing a tree.
pub(super) enum Tree {
    /// It is the expected one; the expected nodes with what `stat` says of them now.
    Same(Vec<Piece>),
    /// It is not.
    Differs {
        /// Where, below the layer's root.
        path: RelPath,
        conflict: Conflict,
    },
    /// It is, but something in it can be neither moved nor changed.
    Stuck { path: RelPath, why: String },
}

/// How a tree is compared.
pub(super) struct Expect<'a> {
    /// The tree's path as people know it.
    pub path: &'a RelPath,
    /// Where it lies now (the same, or the step's other name).
    pub at: &'a RelPath,
    pub pieces: &'a [Piece],
    /// Paths that other steps of the same commit move in or out.
    pub moved: &'a BTreeSet<RelPath>,
}

/// Compares the tree at `expect.at` with the expected one, entry by entry.
pub(super) fn tree(root: &Root, expect: &Expect<'_>) -> io::Result<Tree> {
    let renamed = expect.at != expect.path;
    let known: BTreeSet<&RelPath> = expect.pieces.iter().map(|p| &p.path).collect();
    let mut live = Vec::with_capacity(expect.pieces.len());
    // Directories that nobody, their owner included, has been able to look into since.
    let mut shut: Vec<&RelPath> = Vec::new();
    for piece in expect.pieces {
        if shut.iter().any(|dir| piece.path.is_within(dir)) {
            live.push(piece.clone());
            continue;
        }
        let path = piece.path.under(expect.path);
        let differs = |conflict| Tree::Differs {
            path: path.clone(),
            conflict,
        };
        let at = piece.path.under(expect.at);
        let Some(look) = root.look(&at)? else {
            if expect.moved.contains(&path) {
                continue;
            }
            return Ok(differs(Conflict::HostDeleted));
        };
        if look.mount {
            let why = "another file system is mounted there".into();
            return Ok(Tree::Stuck { path, why });
        }
        let top = piece.path.is_root() && renamed;
        if let Some(conflict) = entry(&root.at(&at)?, &look, &piece.node, top)? {
            return Ok(differs(conflict));
        }
        if look.node.file_type == FileType::Dir
            && is_shut(&look.node)
            // Its ctime moved with it, if this commit made it.
            && same(&look.node, &piece.node, true)
            && !root.at(&at)?.is_open_to_us()
        {
            shut.push(&piece.path);
        }
        if let Some(flag) = look.sealed {
            let why = format!("it is {flag} (`lsattr` shows it, `chattr` takes it off)");
            return Ok(Tree::Stuck { path, why });
        }
        live.push(Piece {
            path: piece.path.clone(),
            node: Arc::new(with_stat(&piece.node, &look.node)),
        });
    }
    for piece in expect.pieces {
        if piece.node.file_type != FileType::Dir || shut.iter().any(|dir| piece.path.is_within(dir))
        {
            continue;
        }
        let at = piece.path.under(expect.at);
        for name in root.at(&at)?.names()? {
            let child = piece.path.join(&name);
            let path = child.under(expect.path);
            if !known.contains(&child) && !expect.moved.contains(&path) {
                return Ok(Tree::Differs {
                    path: expect.path.clone(),
                    conflict: Conflict::HostAddedInside { path },
                });
            }
        }
    }
    Ok(Tree::Same(live))
}

/// Whether an entry denies its own owner to read it (a directory: to look into it).
pub(super) fn is_shut(node: &Node) -> bool {
    match node.file_type {
        FileType::Dir => node.mode & 0o500 != 0o500,
        FileType::File => node.mode & 0o400 == 0,
        _ => false,
    }
}

/// `node` with identity, size, owner and times of `stat`.
pub(super) fn with_stat(node: &Node, stat: &Node) -> Node {
    Node {
        target: node.target.clone(),
        xattrs: node.xattrs.clone(),
        digest: node.digest,
        ..stat.clone()
    }
}

/// Compares one entry. `renamed`: it was moved by this commit, so its ctime is of no account.
pub(super) fn entry(
    place: &Place,
    look: &Look,
    expect: &Node,
    renamed: bool,
) -> io::Result<Option<Conflict>> {
    let found = &look.node;
    if found.file_type != expect.file_type {
        return Ok(Some(Conflict::HostTypeChanged));
    }
    // A file whose bytes cannot be read, or were not, is known by its stat; its ctime moves with
    // every step of this commit that is about one of its names.
    let blind = is_shut(found) && !nix::unistd::geteuid().is_root()
        || expect.digest.is_none() && found.nlink.max(expect.nlink) > 1;
    if same(found, expect, renamed || blind) {
        return Ok(None);
    }
    let moded = found.mode != expect.mode && !was_opened(found, expect);
    if moded && found.file_type != FileType::Symlink {
        return Ok(Some(Conflict::HostModified));
    }
    let same = match found.file_type {
        FileType::Symlink => return Ok(differing(Some(place.read_link()?) == expect.target)),
        FileType::File => {
            found.size == expect.size
                && match expect.digest {
                    Some(digest) => hash(&place.open()?)? == digest,
                    None => false,
                }
        }
        FileType::Device => found.rdev == expect.rdev,
        FileType::Dir | FileType::Fifo | FileType::Socket => true,
    };
    Ok(differing(same && same_xattrs(place, expect)?))
}

/// Whether this is a directory that was shut to its owner, who has opened it since, as a refusal
/// advises: all else of its mode is what it was.
fn was_opened(found: &Node, expect: &Node) -> bool {
    let gained = found.mode & !expect.mode;
    found.file_type == FileType::Dir
        && expect.mode & 0o700 != 0o700
        && gained & !0o700 == 0
        && found.mode == expect.mode | gained
}

fn differing(same: bool) -> Option<Conflict> {
    (!same).then_some(Conflict::HostModified)
}

/// The same inode, untouched as far as `stat` tells.
pub(super) fn same(found: &Node, expect: &Node, renamed: bool) -> bool {
    if renamed {
        let ctime = expect.ctime;
        let found = Node {
            ctime,
            ..found.clone()
        };
        return found.same_stat(expect);
    }
    found.same_stat(expect)
}

fn same_xattrs(place: &Place, expect: &Node) -> io::Result<bool> {
    // Overlay marks of a host's own are not part of a baseline.
    let relevant = |name: &&String| !name.starts_with("user.overlay.");
    let found = xattrs(place.handle()?.as_fd())?;
    let found = found.iter().filter(|(name, _)| relevant(name));
    let wanted = expect.xattrs.iter().filter(|(name, _)| relevant(name));
    Ok(found.eq(wanted))
}
