//! Mount points that were made in an upper because the host has nothing of that name. Owns the
//! note of them in the layer's directory: they are nobody's change as long as they are empty.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::{FileType, UpperEntry};
use crate::RelPath;

/// File in a layer's directory: paths below the layer's root, each ended by a NUL byte.
const NOTE: &str = "points";

/// Notes paths that were made, relative to the layer's root, in the layer's open directory.
pub fn note(layer_dir: BorrowedFd<'_>, made: &[PathBuf]) -> io::Result<()> {
    if made.is_empty() {
        return Ok(());
    }
    let mut bytes = Vec::new();
    for path in made {
        bytes.extend_from_slice(path.as_os_str().as_bytes());
        bytes.push(0);
    }
    let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT | OFlag::O_NOFOLLOW;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let file = openat(layer_dir, NOTE, flags | OFlag::O_CLOEXEC, mode)?;
    File::from(file).write_all(&bytes)
}

/// Takes the noted mount points out of a walk's entries, unless something of the agent's lies in
/// them.
pub fn leave_out(layer_dir: &Path, entries: &mut Vec<UpperEntry>) {
    let Ok(bytes) = std::fs::read(layer_dir.join(NOTE)) else {
        return;
    };
    let made: HashSet<RelPath> = bytes
        .split(|b| *b == 0)
        .filter_map(|path| RelPath::new(path).ok())
        .filter(|path| !path.is_root())
        .collect();
    let is_empty_point = |entry: &UpperEntry| {
        made.contains(&entry.path)
            && match entry.node.file_type {
                FileType::Dir => true,
                FileType::File => entry.node.size == 0,
                _ => false,
            }
    };
    // Children stand behind their parents: backwards, what is kept keeps its parents.
    let mut kept: HashSet<RelPath> = HashSet::new();
    let mut out = Vec::with_capacity(entries.len());
    for entry in entries.drain(..).rev() {
        if is_empty_point(&entry) && !kept.contains(&entry.path) {
            continue;
        }
        kept.extend(entry.path.parent());
        out.push(entry);
    }
    out.reverse();
    *entries = out;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::walk::walk_upper;
    use std::os::fd::AsFd;

    #[test]
    fn empty_points_are_left_out_and_what_lies_in_them_is_not() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let upper = dir.path().join("upper");
        for made in ["a/b", "c/d", "e"] {
            std::fs::create_dir_all(upper.join(made)).expect("directory");
        }
        std::fs::write(upper.join("c/own"), "").expect("file");
        std::fs::write(upper.join("f"), "").expect("file");
        let made = ["a", "a/b", "c", "c/d", "f"].map(PathBuf::from);
        let layer = File::open(dir.path()).expect("layer");
        note(layer.as_fd(), &made).expect("noted");
        let root = std::fs::File::open(&upper).expect("upper");
        let mut entries = walk_upper(root.as_fd()).expect("walk");
        leave_out(dir.path(), &mut entries);
        let left: Vec<_> = entries
            .iter()
            .map(|e| e.path.as_path().to_owned())
            .collect();
        assert_eq!(left, ["", "c", "c/own", "e"].map(PathBuf::from));
    }
}
