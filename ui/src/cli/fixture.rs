//! Made-up layers and changes for the tests of this directory.

use std::sync::Arc;

use pvisor::change::{Change, ChangeKind, Class};
use pvisor::diff::{Item, ItemId, ItemKind, Span};
use pvisor::layer::{Digest, Driver, FileType, HOME, Layer, Node, Timestamp, WORKSPACE};
use pvisor::{LayerPath, RelPath};

pub fn layers() -> Vec<Layer> {
    [(HOME, "/home/ada"), (WORKSPACE, "/home/ada/work")]
        .into_iter()
        .map(|(name, root)| Layer {
            name: name.into(),
            root: root.into(),
            dir: format!("/state/{name}").into(),
            driver: Driver::Overlayfs,
        })
        .collect()
}

pub fn node(file_type: FileType, mode: u32, size: u64) -> Node {
    Node {
        file_type,
        mode,
        uid: 1000,
        gid: 1000,
        size,
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        dev: 1,
        ino: 1,
        nlink: 1,
        rdev: 0,
        target: None,
        xattrs: std::collections::BTreeMap::new(),
        digest: None,
    }
}

/// A modified file with these items, hunks all of them.
pub fn change(layer: &str, path: &[u8], items: &[&str]) -> Change {
    Change {
        key: LayerPath::new(layer, RelPath::new(path).expect("path")),
        kind: ChangeKind::Modified,
        class: Class::Plain,
        before: Some(Arc::new(node(FileType::File, 0o644, 1))),
        after: Some(Arc::new(node(FileType::File, 0o644, 2))),
        binary: false,
        added: 1,
        removed: 1,
        digest: Digest([7; 32]),
        risks: Vec::new(),
        conflict: None,
        merges: None,
        items: items
            .iter()
            .map(|id| Item {
                id: ItemId((*id).into()),
                kind: ItemKind::Hunk,
                old: Span { start: 3, len: 1 },
                new: Span { start: 3, len: 2 },
            })
            .collect(),
    }
}

/// A rename within one layer.
pub fn renamed(layer: &str, from: &[u8], to: &[u8], items: &[&str]) -> Change {
    Change {
        kind: ChangeKind::Renamed {
            from: RelPath::new(from).expect("path"),
        },
        ..change(layer, to, items)
    }
}
