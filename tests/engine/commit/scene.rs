//! A host directory, the agent's version of it, and what a session would know of both.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::dir::Dir;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use pvisor::change::{Change, ChangeKind, ChangeSet, Class};
use pvisor::commit::{self, Approved, Batch, CommitError, Outcome, Recovered, Selection};
use pvisor::diff::{self, ItemKind, ItemRef};
use pvisor::layer::{
    AccessError, Digest, Driver, FileType, Layer, Node, Overwrite, StageAccess, Timestamp,
    UpperEntry,
};
use pvisor::{LayerPath, RelPath};

/// What a person would compare: everything but the times of directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: FileType,
    pub mode: u32,
    pub bytes: Vec<u8>,
    pub mtime: Option<(i64, i64)>,
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

pub type Snapshot = BTreeMap<RelPath, Entry>;

pub struct Scene {
    _dir: tempfile::TempDir,
    /// The workspace on the host.
    pub host: PathBuf,
    /// The agent's version of it.
    pub agent: PathBuf,
    pub store: PathBuf,
    pub layers: Vec<Layer>,
    baseline: BTreeMap<RelPath, Node>,
    /// Baseline contents, for diffs.
    base: PathBuf,
}

impl Scene {
    /// The host's tree is made by a shell script run in it; the agent starts with a copy.
    pub fn new(host_script: &str) -> Self {
        Self::within(tempfile::tempdir().unwrap(), host_script)
    }

    /// The same in memory, where that can hold attributes: for tests that make many scenes.
    pub fn quick(host_script: &str) -> Self {
        let memory = tempfile::tempdir_in("/dev/shm")
            .ok()
            .filter(|dir| xattr::set(dir.path(), "user.probe", b"1").is_ok());
        Self::within(
            memory.unwrap_or_else(|| tempfile::tempdir().unwrap()),
            host_script,
        )
    }

    pub fn within(dir: tempfile::TempDir, host_script: &str) -> Self {
        let host = dir.path().join("host");
        let layer = dir.path().join("session/layers/workspace");
        let agent = layer.join("upper");
        let store = dir.path().join("session/commits");
        fs::create_dir(&host).unwrap();
        fs::create_dir_all(&layer).unwrap();
        sh(&host, host_script);
        let mut scene = Self {
            host: host.clone(),
            agent,
            store,
            layers: vec![Layer {
                name: "workspace".into(),
                root: host,
                dir: layer,
                driver: Driver::Overlayfs,
            }],
            baseline: BTreeMap::new(),
            base: dir.path().join("base"),
            _dir: dir,
        };
        copy(&scene.host, &scene.agent);
        scene.rebase();
        scene
    }

    /// The baseline is what the host has now.
    pub fn rebase(&mut self) {
        let _ = fs::remove_dir_all(&self.base);
        copy(&self.host, &self.base);
        self.baseline = nodes(&self.host);
    }

    /// The agent works.
    pub fn agent(&self, script: &str) {
        sh(&self.agent, script);
    }

    /// A person works on the host.
    pub fn person(&self, script: &str) {
        sh(&self.host, script);
    }

    /// The change set.
    pub fn changes(&self) -> ChangeSet {
        let now = nodes(&self.agent);
        let mut rows: Vec<(RelPath, ChangeKind, Option<Node>, Option<Node>)> = Vec::new();
        for (path, before) in &self.baseline {
            match now.get(path) {
                None => rows.push((
                    path.clone(),
                    ChangeKind::Deleted,
                    Some(before.clone()),
                    None,
                )),
                Some(after) => {
                    if let Some(kind) = kind(before, after) {
                        rows.push((
                            path.clone(),
                            kind,
                            Some(before.clone()),
                            Some(after.clone()),
                        ));
                    }
                }
            }
        }
        for (path, after) in &now {
            if !self.baseline.contains_key(path) {
                rows.push((path.clone(), ChangeKind::Added, None, Some(after.clone())));
            }
        }
        pair_renames(&mut rows);
        rows.into_iter()
            .map(|(path, kind, before, after)| {
                let change = self.row(path, kind, before, after);
                (change.key.clone(), Arc::new(change))
            })
            .collect()
    }

    fn row(
        &self,
        path: RelPath,
        kind: ChangeKind,
        before: Option<Node>,
        after: Option<Node>,
    ) -> Change {
        let old_path = match &kind {
            ChangeKind::Renamed { from } => from.clone(),
            _ => path.clone(),
        };
        let read = |root: &Path, path: &RelPath, node: &Option<Node>| match node {
            Some(node) if node.file_type == FileType::File => {
                fs::read(root.join(path.as_path())).unwrap()
            }
            _ => Vec::new(),
        };
        let old = read(&self.base, &old_path, &before);
        let new = read(&self.agent, &path, &after);
        let diff = diff::diff(&old, &new);
        Change {
            items: diff::items(&kind, before.as_ref(), after.as_ref(), Some(&diff)),
            digest: Digest::of(format!("{path:?} {kind:?} {before:?} {after:?}").as_bytes()),
            key: LayerPath::new("workspace", path),
            class: Class::Plain,
            binary: diff.binary,
            added: diff.added,
            removed: diff.removed,
            risks: Vec::new(),
            conflict: None,
            merges: None,
            kind,
            before: before.map(Arc::new),
            after: after.map(Arc::new),
        }
    }

    /// Approves these changes whole (a directory covers what lies below it).
    pub fn approve(&self, paths: &[&str]) -> Vec<Approved> {
        let changes = self.changes();
        let mut approved = Vec::new();
        for path in paths {
            let dir = RelPath::try_from(*path).unwrap();
            let found: Vec<_> = changes
                .values()
                .filter(|c| c.key.path.is_within(&dir))
                .collect();
            assert!(!found.is_empty(), "{path} is not in {:?}", changes.keys());
            approved.extend(found.into_iter().map(|change| Approved {
                change: change.clone(),
                selection: Selection::Whole,
            }));
        }
        approved
    }

    /// Approves some items of one change.
    pub fn approve_items(&self, path: &str, pick: impl Fn(usize, ItemKind) -> bool) -> Approved {
        let change = self.change(path);
        let items = change
            .items
            .iter()
            .enumerate()
            .filter(|(index, item)| pick(*index, item.kind))
            .map(|(_, item)| ItemRef::from(item.id.clone()))
            .collect();
        Approved {
            change: Arc::new(change),
            selection: Selection::Items(items),
        }
    }

    pub fn change(&self, path: &str) -> Change {
        let key = LayerPath::new("workspace", RelPath::try_from(path).unwrap());
        self.changes().remove(&key).map_or_else(
            || panic!("{path} is not in {:?}", self.changes().keys()),
            Arc::unwrap_or_clone,
        )
    }

    pub fn all(&self) -> Vec<Approved> {
        self.changes()
            .into_values()
            .map(|change| Approved {
                change,
                selection: Selection::Whole,
            })
            .collect()
    }

    pub fn commit(&self, number: u32, approved: Vec<Approved>) -> Result<Outcome, CommitError> {
        let changes = self.changes();
        self.run(number, approved, &changes, commit::commit)
    }

    pub fn plan(&self, approved: Vec<Approved>) -> Outcome {
        let changes = self.changes();
        self.run(1, approved, &changes, commit::plan).unwrap()
    }

    pub fn run(
        &self,
        number: u32,
        approved: Vec<Approved>,
        changes: &ChangeSet,
        verb: fn(&Batch<'_>) -> Result<Outcome, CommitError>,
    ) -> Result<Outcome, CommitError> {
        let access = Uppers(self.agent.clone());
        verb(&Batch {
            layers: &self.layers,
            changes,
            approved,
            merged: &BTreeMap::new(),
            access: &access,
            store: &self.store,
            number,
        })
    }

    /// Commits and expects success; returns the paths written.
    pub fn committed(&self, number: u32, approved: Vec<Approved>) -> Vec<String> {
        match self.commit(number, approved).unwrap() {
            Outcome::Committed { paths, .. } => paths.iter().map(ToString::to_string).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Commits and expects a refusal that leaves the host alone; returns `path: reason`.
    pub fn refused(&self, number: u32, approved: Vec<Approved>) -> Vec<String> {
        let before = snapshot(&self.host);
        let outcome = self.commit(number, approved).unwrap();
        assert_eq!(snapshot(&self.host), before);
        assert!(!self.store.join(number.to_string()).exists());
        refusals(outcome)
    }

    pub fn undo(&self, undoes: u32, number: u32) -> Result<Outcome, CommitError> {
        commit::undo(&self.layers, &self.store, undoes, number)
    }

    pub fn undone(&self, undoes: u32, number: u32) {
        let outcome = self.undo(undoes, number).unwrap();
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    }

    pub fn recover(&self) -> Vec<Recovered> {
        commit::recover(&self.layers, &self.store).unwrap()
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.host.join(path)).unwrap()
    }
}

pub fn refusals(outcome: Outcome) -> Vec<String> {
    match outcome {
        Outcome::Refused { refusals } => refusals
            .iter()
            .map(|r| format!("{}: {}", r.key, r.reason))
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn kind(before: &Node, after: &Node) -> Option<ChangeKind> {
    let dir = before.file_type == FileType::Dir;
    if before.file_type != after.file_type {
        Some(ChangeKind::Type)
    } else if before.digest != after.digest || before.target != after.target {
        Some(ChangeKind::Modified)
    } else if before.mode != after.mode {
        Some(ChangeKind::Mode)
    } else if before.xattrs != after.xattrs || (!dir && before.mtime != after.mtime) {
        Some(ChangeKind::Meta)
    } else {
        None
    }
}

type Row = (RelPath, ChangeKind, Option<Node>, Option<Node>);

/// Identical, not empty content under another name.
fn pair_renames(rows: &mut Vec<Row>) {
    let file = |node: &Option<Node>| {
        let node = node.as_ref()?;
        (node.file_type == FileType::File && node.size > 0).then_some(node.digest?)
    };
    let mut gone: BTreeMap<Digest, Vec<usize>> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate().rev() {
        if row.1 == ChangeKind::Deleted
            && let Some(digest) = file(&row.2)
        {
            gone.entry(digest).or_default().push(at);
        }
    }
    let mut taken = Vec::new();
    for at in 0..rows.len() {
        if rows[at].1 == ChangeKind::Added
            && let Some(old) = file(&rows[at].3).and_then(|digest| gone.get_mut(&digest)?.pop())
        {
            taken.push(old);
            let before = rows[old].2.clone();
            rows[at].1 = ChangeKind::Renamed {
                from: rows[old].0.clone(),
            };
            rows[at].2 = before;
        }
    }
    taken.sort_unstable();
    for index in taken.into_iter().rev() {
        rows.remove(index);
    }
}

/// The door to the upper: here a plain directory.
pub struct Uppers(pub PathBuf);

impl StageAccess for Uppers {
    fn walk(&self, _layer: &str) -> Result<Vec<UpperEntry>, AccessError> {
        Err(AccessError::HelperGone)
    }

    fn open(&self, _layer: &str, path: &RelPath) -> Result<OwnedFd, AccessError> {
        open_deep(&self.0, path).map_err(|e| AccessError::Io {
            doing: "reading".into(),
            path: self.0.join(path.as_path()),
            message: e.desc().to_owned(),
            errno: e as i32,
        })
    }

    fn restore(&self, _layer: &str, _path: &RelPath) -> Result<(), AccessError> {
        Err(AccessError::HelperGone)
    }

    fn overwrite(&self, _: &str, _: &RelPath, _: &Overwrite) -> Result<(), AccessError> {
        Err(AccessError::HelperGone)
    }

    fn sync(&self, _layer: &str) -> Result<(), AccessError> {
        Ok(())
    }
}

/// Opens by walking, since the path may be longer than the kernel takes at once.
fn open_deep(root: &Path, path: &RelPath) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let mut at = nix::fcntl::open(root, flags, Mode::empty())?;
    for name in path.components() {
        at = openat(&at, name, flags, Mode::empty())?;
    }
    Ok(at)
}

/// Rows of a new chain of directories with the file `f` at its end, however deep.
pub fn deep_rows(agent: &Path) -> Vec<Change> {
    let mut rows = Vec::new();
    let mut path = RelPath::root();
    loop {
        let dir = File::from(open_deep(agent, &path).unwrap());
        let names = Dir::from_fd(dir.into())
            .unwrap()
            .iter()
            .map(|e| e.unwrap().file_name().to_bytes().to_vec())
            .filter(|n| n != b"." && n != b"..")
            .collect::<Vec<_>>();
        let Some(name) = names.iter().find(|n| **n != b"f" || names.len() == 1) else {
            panic!("no chain");
        };
        path = path.join(name);
        let file = File::from(open_deep(agent, &path).unwrap());
        let meta = file.metadata().unwrap();
        let digest = meta
            .is_file()
            .then(|| Digest::of(&std::io::read_to_string(&file).unwrap().into_bytes()));
        rows.push(Change {
            key: LayerPath::new("workspace", path.clone()),
            kind: ChangeKind::Added,
            class: Class::Plain,
            before: None,
            after: Some(Arc::new(node(&meta, None, BTreeMap::new(), digest))),
            binary: false,
            added: 0,
            removed: 0,
            digest: Digest::of(path.as_bytes()),
            risks: Vec::new(),
            conflict: None,
            merges: None,
            items: Vec::new(),
        });
        if meta.is_file() {
            return rows;
        }
    }
}

fn node(
    meta: &fs::Metadata,
    target: Option<Vec<u8>>,
    xattrs: BTreeMap<String, Vec<u8>>,
    digest: Option<Digest>,
) -> Node {
    Node {
        file_type: FileType::from_mode(meta.mode()),
        mode: meta.mode() & 0o7777,
        uid: meta.uid(),
        gid: meta.gid(),
        size: meta.size(),
        mtime: time(meta.mtime(), meta.mtime_nsec()),
        ctime: time(meta.ctime(), meta.ctime_nsec()),
        dev: meta.dev(),
        ino: meta.ino(),
        nlink: u32::try_from(meta.nlink()).unwrap(),
        rdev: meta.rdev(),
        target,
        xattrs,
        digest,
    }
}

pub fn sh(dir: &Path, script: &str) {
    let output = Command::new("bash")
        .args(["-euc", script])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{script}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp")
        .arg("-a")
        .args([from, to])
        .status()
        .unwrap();
    assert!(status.success());
}

fn xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    xattr::list(path)
        .unwrap()
        .filter_map(|name| name.into_string().ok())
        .filter(|n| n.starts_with("user.") || n.starts_with("system.posix_acl"))
        .map(|name| {
            let value = xattr::get(path, &name).unwrap().unwrap();
            (name, value)
        })
        .collect()
}

fn walk(root: &Path, path: &RelPath, visit: &mut dyn FnMut(&RelPath, &Path)) {
    let full = root.join(path.as_path());
    visit(path, &full);
    if full.symlink_metadata().unwrap().is_dir() {
        let mut names: Vec<_> = fs::read_dir(&full)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        for name in names {
            walk(root, &path.join(name.as_bytes()), visit);
        }
    }
}

fn nodes(root: &Path) -> BTreeMap<RelPath, Node> {
    let mut found = BTreeMap::new();
    walk(root, &RelPath::root(), &mut |path, full| {
        let meta = full.symlink_metadata().unwrap();
        let file_type = FileType::from_mode(meta.mode());
        let target = (file_type == FileType::Symlink).then(|| {
            fs::read_link(full)
                .unwrap()
                .into_os_string()
                .into_encoded_bytes()
        });
        let digest = match file_type {
            FileType::File => Some(Digest::of(&fs::read(full).unwrap())),
            FileType::Symlink => target.as_deref().map(Digest::of),
            _ => None,
        };
        found.insert(path.clone(), node(&meta, target, xattrs(full), digest));
    });
    found
}

fn time(sec: i64, nsec: i64) -> Timestamp {
    Timestamp {
        sec,
        nsec: u32::try_from(nsec).unwrap(),
    }
}

/// Everything below a directory.
pub fn snapshot(root: &Path) -> Snapshot {
    let mut found = BTreeMap::new();
    walk(root, &RelPath::root(), &mut |path, full| {
        let meta = full.symlink_metadata().unwrap();
        let kind = FileType::from_mode(meta.mode());
        let bytes = match kind {
            FileType::File => fs::read(full).unwrap(),
            FileType::Symlink => fs::read_link(full)
                .unwrap()
                .into_os_string()
                .into_encoded_bytes(),
            _ => Vec::new(),
        };
        found.insert(
            path.clone(),
            Entry {
                kind,
                mode: meta.permissions().mode() & 0o7777,
                bytes,
                mtime: (kind != FileType::Dir).then(|| (meta.mtime(), meta.mtime_nsec())),
                xattrs: xattrs(full),
            },
        );
    });
    found
}

/// A mixture of everything that can happen to a tree.
pub const HOST: &str = "
    printf 'one\\ntwo\\nthree\\nfour\\nfive\\n' > text; printf 'a\\0b' > binary; echo same > same
    echo old > gone; echo moved > old-name; mkdir dir; echo 1 > dir/1; echo 2 > dir/2
    mkdir -p tree/sub/deep; echo a > tree/a; echo b > tree/sub/b; echo c > tree/sub/deep/c
    echo file > f2d; mkdir d2f; echo 1 > d2f/1; mkdir d2f/in; echo 2 > d2f/in/2
    ln -s text link; ln -s dir to-dir; echo x > script; mkdir modes; echo m > modes/m
    echo attr > attr; setfattr -n user.k -v 1 attr; touch -d 2020-01-01T00:00:00.123456789 gone text";

/// What the agent makes of [`HOST`].
pub const AGENT: &str = "
    printf 'one\\nTWO\\nthree\\nfour\\nFIVE\\n' > text; printf 'a\\0c' > binary; rm gone
    mv old-name new-name; rm -r tree; mkdir -p new/sub; echo n > new/n; echo s > new/sub/s
    chmod 750 new/sub; rm f2d; mkdir f2d; echo k > f2d/k; rm -r d2f; echo now-a-file > d2f
    ln -sfn binary link; rm to-dir; mkdir to-dir; echo t > to-dir/t; chmod +x script
    chmod 700 modes; echo more > modes/n; setfattr -n user.k -v 2 attr; setfattr -n user.n -v 3 attr
    echo added > added; mkfifo pipe; mv dir/1 dir/one; ln -s ../outside out";

/// A count that a hook and its test have in common; the hook may be asked by several threads.
#[derive(Clone, Default)]
pub struct Count(Arc<AtomicUsize>);

impl Count {
    /// Counts one more; how many there are with it.
    pub fn up(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// How many there were.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}
