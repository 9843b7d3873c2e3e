//! Where further names of a file lie, for the moment in which a replacement would be refused for
//! their sake. Only reads; follows no link.

use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::RelPath;

/// How long names are looked for below a layer's root.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many names of an inode lie in the stores of this session and of those beside it: what undo
/// keeps of a file with several names is still one of them.
pub(super) fn kept(store: &Path, inode: (u64, u64)) -> u32 {
    let sessions = store.parent().and_then(Path::parent);
    let stores = sessions
        .map(list)
        .unwrap_or_default()
        .iter()
        .flat_map(|session| list(&session.join("commits")))
        .map(|commit| commit.join("pre"))
        .collect();
    find(stores, inode).len() as u32
}

/// The names of an inode below a layer's root, as seen from there, as far as they can be found in
/// time.
pub(super) fn below(root: &Path, inode: (u64, u64)) -> Vec<RelPath> {
    let found = find(vec![root.to_owned()], inode).into_iter();
    found
        .filter_map(|path| RelPath::new(path.strip_prefix(root).ok()?.as_os_str().as_bytes()).ok())
        .collect()
}

/// The directory of this inode below a layer's root, as seen from there, if it can be found in time.
pub(super) fn directory(root: &Path, ino: u64) -> Option<RelPath> {
    let found = walk(vec![root.to_owned()], |meta| {
        meta.is_dir() && meta.ino() == ino
    });
    let path = found.first()?.strip_prefix(root).ok()?;
    RelPath::new(path.as_os_str().as_bytes()).ok()
}

fn list(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

fn find(open: Vec<PathBuf>, inode: (u64, u64)) -> Vec<PathBuf> {
    walk(open, |meta| {
        !meta.is_dir() && (meta.dev(), meta.ino()) == inode
    })
}

fn walk(mut open: Vec<PathBuf>, is_wanted: impl Fn(&Metadata) -> bool) -> Vec<PathBuf> {
    let begun = Instant::now();
    let mut names = Vec::new();
    while let Some(dir) = open.pop() {
        if begun.elapsed() > PATIENCE {
            break;
        }
        for path in list(&dir) {
            let Ok(meta) = path.symlink_metadata() else {
                continue;
            };
            if is_wanted(&meta) {
                names.push(path.clone());
            }
            if meta.is_dir() {
                open.push(path);
            }
        }
    }
    names
}
