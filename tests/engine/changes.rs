//! Change sets of real overlays: what is listed, what is not, and when the host stands in the way.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pvisor::LayerPath;
use pvisor::change::{Change, ChangeKind, Conflict, Tracker};

use crate::layers::{Stage, rel};

mod baseline;
mod classes;
mod extremes;
mod followed;
mod kinds;
mod random;

/// The session's worker owns the tracker on a thread of its own.
const _: fn() = || {
    fn sendable<T: Send>() {}
    sendable::<Tracker>();
};

/// A tracker over one stage.
struct Review {
    stage: Stage,
    tracker: Tracker,
}

impl Review {
    /// Prepares the host, mounts, and opens the tracker; `None` where no overlay can be mounted.
    fn new(host: &str) -> Option<Self> {
        let mut stage = Stage::new();
        stage.host(host);
        let tracker = Tracker::open(std::slice::from_ref(&stage.layer)).expect("open");
        stage.mount().then_some(Self { stage, tracker })
    }

    fn scan(&mut self) -> Vec<Arc<Change>> {
        let access = self.stage.access();
        self.tracker.scan(&access).expect("scan")
    }

    fn rows(&mut self) -> Vec<String> {
        rows(&self.scan())
    }

    /// One change by its path.
    fn change(&mut self, path: &str) -> Arc<Change> {
        let changes = self.scan();
        changes
            .iter()
            .find(|c| c.key.path == rel(path))
            .cloned()
            .unwrap_or_else(|| panic!("{path} is not in {:?}", rows(&changes)))
    }

    fn conflict(&mut self, path: &str) -> Option<Conflict> {
        self.change(path).conflict.clone()
    }

    /// Writes these changes to the host as a commit would, and rebases.
    fn commit(&mut self, changes: &[Arc<Change>]) {
        apply(&self.stage.layer.upper(), &self.stage.layer.root, changes);
        let paths: Vec<LayerPath> = changes.iter().map(|c| c.key.clone()).collect();
        self.tracker.rebase(&paths).expect("rebase");
    }

    fn commit_all(&mut self) {
        let changes = self.scan();
        self.commit(&changes);
    }
}

fn rows(changes: &[Arc<Change>]) -> Vec<String> {
    changes
        .iter()
        .map(|c| match &c.kind {
            ChangeKind::Renamed { from } => format!("renamed {from} -> {}", c.key.path),
            kind => format!("{} {}", kind.name(), c.key.path),
        })
        .collect()
}

/// A commit in a few lines: deletions deepest first, then the rest parents first.
fn apply(upper: &Path, host: &Path, changes: &[Arc<Change>]) {
    let remove = |path: &Path| {
        let Ok(meta) = path.symlink_metadata() else {
            return;
        };
        if meta.is_dir() {
            fs::remove_dir_all(path).expect("rmdir");
        } else {
            fs::remove_file(path).expect("unlink");
        }
    };
    for change in changes.iter().rev() {
        if let ChangeKind::Renamed { from } = &change.kind {
            remove(&host.join(from.as_path()));
        }
        if matches!(change.kind, ChangeKind::Deleted | ChangeKind::Type) {
            remove(&host.join(change.key.path.as_path()));
        }
    }
    let mut modes = Vec::new();
    for change in changes {
        let Some(after) = &change.after else {
            continue;
        };
        let from = upper.join(change.key.path.as_path());
        let to = host.join(change.key.path.as_path());
        let meta = from.symlink_metadata().expect("stat");
        if meta.is_dir() {
            let _ = fs::create_dir(&to);
            modes.push((to, meta.permissions()));
        } else {
            let _ = fs::remove_file(&to);
            let done = std::process::Command::new("cp")
                .arg("-a")
                .args([&from, &to])
                .status()
                .expect("cp");
            assert!(done.success());
            if after.file_type == pvisor::layer::FileType::File {
                let _ = xattr::remove(&to, "user.overlay.origin");
            }
        }
    }
    for (dir, mode) in modes {
        fs::set_permissions(dir, mode).expect("chmod");
    }
}
