//! A layer as the gate knows it: its root and upper, held open since before anything was mounted
//! over them. Owns what lies below a directory and whether names there tell upper from lower case.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};

use nix::dir::Type;
use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;

use crate::RelPath;
use crate::layer::read::{self, Side};
use crate::layer::tree::is_absent;
use crate::layer::{FileType, Layer, Tree};
use crate::policy::{Level, Matcher, Place};

/// Directories of a lower known to hold nothing protected; beyond, all are forgotten.
const CLEAN: usize = 100_000;
/// Names looked at to find out about upper and lower case.
const PROBED: usize = 64;

/// See the module.
pub struct Room {
    /// The layer's name.
    pub name: String,
    root: Vec<u8>,
    folds_case: bool,
    /// The host's side.
    pub lower: Tree,
    upper: Option<Tree>,
    /// Where sessions keep their records, when that lies below: nobody reaches it.
    pub records: Option<RelPath>,
    clean: Mutex<HashSet<RelPath>>,
}

/// An entry of a directory.
pub struct Entry {
    /// Where.
    pub path: RelPath,
    /// Whether it is a directory.
    pub is_dir: bool,
}

impl Room {
    /// Opens a layer.
    pub fn open(layer: &Layer) -> io::Result<Self> {
        let lower = Tree::open(&layer.root)?;
        // <sessions>/<id>/layers/<name>
        let records = layer.dir.ancestors().nth(3);
        Ok(Self {
            name: layer.name.clone(),
            root: layer.root.as_os_str().as_bytes().to_vec(),
            folds_case: folds_case(lower.root()),
            lower,
            upper: Tree::open(&layer.upper()).ok(),
            records: records
                .and_then(|dir| layer.relative(dir))
                .filter(|dir| !dir.is_root()),
            clean: Mutex::default(),
        })
    }

    /// The layer as rules see it.
    pub fn place(&self) -> Place<'_> {
        Place {
            root: &self.root,
            folds_case: self.folds_case,
        }
    }

    /// What is denied or asked about below a directory, at most `most`, in either side of the
    /// layer; `None` when there is more, or something cannot be looked at.
    pub fn protected_below(
        &self,
        directory: &RelPath,
        matcher: &Matcher,
        most: usize,
    ) -> Option<Vec<RelPath>> {
        let mut found = self.walk(&self.lower, directory, matcher, most, true)?;
        found.retain(|path| !self.is_hidden(path));
        if let Some(upper) = &self.upper {
            for path in self.walk(upper, directory, matcher, most, false)? {
                if !found.contains(&path) && !self.is_hidden(&path) {
                    found.push(path);
                }
            }
        }
        (found.len() <= most).then_some(found)
    }

    fn walk(
        &self,
        tree: &Tree,
        directory: &RelPath,
        matcher: &Matcher,
        most: usize,
        is_lower: bool,
    ) -> Option<Vec<RelPath>> {
        let clean = || self.clean.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut found, mut visited) = (Vec::new(), Vec::new());
        let mut todo = vec![directory.clone()];
        while let Some(dir) = todo.pop() {
            if is_lower && clean().contains(&dir) {
                continue;
            }
            let entries = match entries(tree, &dir) {
                Ok(entries) => entries,
                Err(error) if is_absent(&error) => continue,
                Err(_) => return None,
            };
            for entry in entries {
                let protected = matcher
                    .verdict(self.place(), &entry.path, Level::Ask)
                    .is_some();
                if protected {
                    found.push(entry.path);
                    if found.len() > most {
                        return None;
                    }
                } else if entry.is_dir {
                    todo.push(entry.path);
                }
            }
            visited.push(dir);
        }
        if is_lower && found.is_empty() {
            let mut clean = clean();
            if clean.len() + visited.len() > CLEAN {
                clean.clear();
            }
            clean.extend(visited.into_iter().take(CLEAN));
        }
        Some(found)
    }

    /// Whether the upper hides what the lower has at a path, or itself says that nothing is there.
    fn is_hidden(&self, path: &RelPath) -> bool {
        let Some(upper) = &self.upper else {
            return false;
        };
        let mut above = path.ancestors().collect::<Vec<_>>();
        above.reverse();
        for at in above.iter().skip(1).chain([path]) {
            let seen = upper.parent(at).and_then(|dir| {
                let name = at.file_name().unwrap_or_default();
                read::read_entry(dir.as_fd(), name, Side::Upper)
            });
            let Ok(Some(seen)) = seen else {
                return false;
            };
            if seen.char_device && seen.node.rdev == 0 {
                return true;
            }
            if at == path {
                return false;
            }
            if seen.node.file_type != FileType::Dir {
                return true;
            }
            if seen.marks.opaque {
                // Only what the upper itself has there.
                return !matches!(upper.node(path), Ok(Some(_)));
            }
        }
        false
    }
}

/// The entries of a directory, `.` and `..` apart.
pub fn entries(tree: &Tree, dir: &RelPath) -> io::Result<Vec<Entry>> {
    let mut open = nix::dir::Dir::from_fd(tree.dir(dir)?)?;
    let mut found = Vec::new();
    for entry in open.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let is_dir = match entry.file_type() {
            Some(kind) => kind == Type::Directory,
            None => is_dir(tree, dir, name),
        };
        found.push(Entry {
            path: dir.join(name),
            is_dir,
        });
    }
    Ok(found)
}

/// For file systems whose listings do not say.
fn is_dir(tree: &Tree, dir: &RelPath, name: &[u8]) -> bool {
    let dir = tree.dir(dir);
    dir.is_ok_and(|dir| {
        read::stat(dir.as_fd(), name)
            .is_ok_and(|node| node.is_some_and(|node| node.file_type == FileType::Dir))
    })
}

/// Whether names below this directory are the same in upper and lower case: some entry is found
/// under a spelling that is not listed.
fn folds_case(root: BorrowedFd<'_>) -> bool {
    let Ok(copy) = read::open_dir(root, b".") else {
        return false;
    };
    let names = read::list(copy.as_fd()).unwrap_or_default();
    names.iter().take(PROBED).any(|name| {
        let swapped: Vec<u8> = name
            .iter()
            .map(|b| match b {
                b if b.is_ascii_lowercase() => b.to_ascii_uppercase(),
                b => b.to_ascii_lowercase(),
            })
            .collect();
        let stat = |name: &[u8]| fstatat(root, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok();
        swapped != *name
            && !names.contains(&swapped)
            && match (stat(name), stat(&swapped)) {
                (Some(a), Some(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
                _ => false,
            }
    })
}
