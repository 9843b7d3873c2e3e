//! A directory tree as it lies on disk: what two snapshots must have in common when nothing, or
//! exactly something, was to change.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// One entry, as far as a person could tell a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    kind: &'static str,
    mode: u32,
    owner: (u32, u32),
    /// Of files only: a directory's moves with what lies in it.
    mtime: Option<(i64, i64)>,
    /// Content of a file, target of a link.
    bytes: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path of its hard-link group, when there is another.
    same_inode_as: Option<PathBuf>,
}

/// Every entry below a directory, the directory itself as the empty path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tree {
    entries: BTreeMap<PathBuf, Entry>,
}

impl Tree {
    /// Reads `root` without following links.
    #[track_caller]
    pub fn of(root: &Path) -> Self {
        let mut tree = Self::default();
        let mut inodes = BTreeMap::new();
        tree.read(root, &mut inodes, Path::new(""));
        tree
    }

    fn read(&mut self, root: &Path, inodes: &mut BTreeMap<u64, PathBuf>, path: &Path) {
        let full = root.join(path);
        let meta = fs::symlink_metadata(&full)
            .unwrap_or_else(|e| panic!("snapshot of {}: {e}", full.display()));
        let kind = kind_of(&meta);
        let bytes = match kind {
            "file" => fs::read(&full).unwrap_or_else(|e| panic!("{}: {e}", full.display())),
            "link" => {
                fs::read_link(&full).map_or_else(|_| Vec::new(), |t| t.into_os_string().into_vec())
            }
            _ => Vec::new(),
        };
        let mut same_inode_as = None;
        if kind != "dir" && meta.nlink() > 1 {
            let first = inodes.entry(meta.ino()).or_insert_with(|| path.into());
            same_inode_as = (first != path).then(|| first.clone());
        }
        let entry = Entry {
            kind,
            mode: meta.mode() & 0o7777,
            owner: (meta.uid(), meta.gid()),
            mtime: (kind == "file").then(|| (meta.mtime(), meta.mtime_nsec())),
            bytes,
            xattrs: xattrs(&full),
            same_inode_as,
        };
        self.entries.insert(path.into(), entry);
        if kind == "dir" {
            let mut names: Vec<_> = fs::read_dir(&full)
                .unwrap_or_else(|e| panic!("{}: {e}", full.display()))
                .map(|entry| entry.expect("a readable entry").file_name())
                .collect();
            names.sort();
            for name in names {
                self.read(root, inodes, &path.join(name));
            }
        }
    }

    /// The tree without the times of its files.
    pub fn timeless(mut self) -> Self {
        for entry in self.entries.values_mut() {
            entry.mtime = None;
        }
        self
    }

    /// One line per difference; empty when there is none.
    pub fn differences(&self, later: &Tree) -> Vec<String> {
        let mut lines = Vec::new();
        for (path, before) in &self.entries {
            match later.entries.get(path) {
                None => lines.push(format!("gone: {}", name(path))),
                Some(after) => lines.extend(
                    before
                        .compare(after)
                        .into_iter()
                        .map(|what| format!("{}: {what}", name(path))),
                ),
            }
        }
        for (path, entry) in &later.entries {
            if !self.entries.contains_key(path) {
                lines.push(format!("new {}: {}", entry.kind, name(path)));
            }
        }
        lines
    }

    /// Demands that `later` is the same tree.
    #[track_caller]
    pub fn assert_same(&self, later: &Tree, what: &str) {
        let lines = self.differences(later);
        assert!(lines.is_empty(), "{what}:\n  {}", lines.join("\n  "));
    }

    /// Demands exactly these lines, in any order.
    #[track_caller]
    pub fn assert_differs(&self, later: &Tree, expected: &[&str]) {
        let mut lines = self.differences(later);
        let mut expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
        lines.sort();
        expected.sort();
        assert_eq!(lines, expected, "differences of the tree");
    }
}

impl Entry {
    fn compare(&self, after: &Entry) -> Vec<String> {
        let mut lines = Vec::new();
        if self.kind != after.kind {
            lines.push(format!("{} became {}", self.kind, after.kind));
            return lines;
        }
        if self.mode != after.mode {
            lines.push(format!("mode {:o} became {:o}", self.mode, after.mode));
        }
        if self.owner != after.owner {
            lines.push(format!("owner {:?} became {:?}", self.owner, after.owner));
        }
        if self.bytes != after.bytes {
            lines.push(format!(
                "bytes {:?} became {:?}",
                excerpt(&self.bytes),
                excerpt(&after.bytes)
            ));
        }
        if self.mtime != after.mtime && self.bytes == after.bytes {
            lines.push(format!("mtime {:?} became {:?}", self.mtime, after.mtime));
        }
        if self.xattrs != after.xattrs {
            lines.push(format!(
                "xattrs {:?} became {:?}",
                self.xattrs, after.xattrs
            ));
        }
        if self.same_inode_as != after.same_inode_as {
            lines.push(format!(
                "link group {:?} became {:?}",
                self.same_inode_as, after.same_inode_as
            ));
        }
        lines
    }
}

fn kind_of(meta: &fs::Metadata) -> &'static str {
    let kind = meta.file_type();
    if kind.is_dir() {
        "dir"
    } else if kind.is_symlink() {
        "link"
    } else if kind.is_fifo() {
        "fifo"
    } else if kind.is_socket() {
        "socket"
    } else if kind.is_file() {
        "file"
    } else {
        "device"
    }
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    // File systems without attributes have none to compare.
    let Ok(names) = xattr::list(path) else {
        return BTreeMap::new();
    };
    names
        .filter_map(|name| {
            let value = xattr::get(path, &name).ok()??;
            Some((name.into_vec(), value))
        })
        .collect()
}

fn excerpt(bytes: &[u8]) -> String {
    let mut text = bytes[..bytes.len().min(60)].escape_ascii().to_string();
    if bytes.len() > 60 {
        let _ = write!(text, "... ({} bytes)", bytes.len());
    }
    text
}

fn name(path: &Path) -> String {
    if path.as_os_str().is_empty() {
        return ".".into();
    }
    path.as_os_str().as_bytes().escape_ascii().to_string()
}
