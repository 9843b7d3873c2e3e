//! The baseline of one layer: what the host had when a path was first seen, replaced by what was
//! committed since. Owns `layers/<name>/base`: an append-only index and the bytes kept of files
//! that the agent modified. Cut at any byte the index loads to a prefix of itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::RelPath;
use crate::layer::{Digest, Node, Timestamp, content};
use crate::reserve::{AppendFile, is_full};

/// Largest file whose bytes are copied; larger ones are kept only where the file system can share
/// their blocks.
const LARGEST_COPY: u64 = 32 << 20;

/// Bytes copied per layer before no more are kept.
const COPIED_AT_MOST: u64 = 2 << 30;

/// Bytes of the index that wait for a flush at most, where one is possible.
const GATHERED: usize = 1 << 16;

/// Name of what is not kept yet.
const PARTIAL: &str = ".partial";

/// What is known of a path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Record {
    /// What the host had; `None`: nothing.
    pub node: Option<Arc<Node>>,
    /// The host had moved by the time it was looked at: what the agent started from is unknown.
    pub unsure: bool,
    /// A directory that the agent made where the host had none: the overlay shows nothing of a
    /// directory that the host gets there later.
    pub pure: bool,
    /// Every entry that the host had below is on record.
    pub tree: bool,
    /// Earlier baselines, each with the number of the commit that merged the host's edits with the
    /// agent's: since then this record is the agent's side of that merge, and the host has more.
    #[serde(default)]
    pub apart: Vec<(u32, Arc<Node>)>,
    /// Conflict markers of this length were put into the agent's file: while it holds them it is
    /// not committed.
    #[serde(default)]
    pub marked: Option<u32>,
    /// The host's file was only touched since the agent took it over: the time that it had then.
    #[serde(default)]
    pub touched: Option<Box<Timestamp>>,
}

#[derive(Serialize, Deserialize)]
enum Line {
    Set(RelPath, Record),
    Forget(RelPath),
    /// The upper's own root as it was made.
    Root(Node),
}

struct Slot {
    record: Record,
    /// Number of the scan that last needed it.
    seen: u64,
}

/// See the module.
pub(super) struct Baseline {
    dir: PathBuf,
    slots: BTreeMap<RelPath, Slot>,
    /// Of the records: those with conflict markers.
    marked: BTreeMap<RelPath, u32>,
    root: Option<Node>,
    index: AppendFile,
    copied: u64,
    scan: u64,
}

impl Baseline {
    /// Opens the baseline under `dir`, an empty one if there is none.
    pub fn open(dir: PathBuf) -> io::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)?;
        let path = dir.join("index.jsonl");
        let bytes = match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let whole = bytes
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |at| at + 1);
        let mut slots = BTreeMap::new();
        let mut root = None;
        let mut lines = 0usize;
        for line in bytes[..whole].split(|b| *b == b'\n') {
            lines += 1;
            // A line that does not parse was torn by a crash: the path counts as never seen.
            match serde_json::from_slice(line) {
                Ok(Line::Set(path, record)) => {
                    slots.insert(path, Slot { record, seen: 0 });
                }
                Ok(Line::Forget(path)) => {
                    slots.remove(&path);
                }
                Ok(Line::Root(node)) => root = Some(node),
                Err(_) => {}
            }
        }
        let marked = slots
            .iter()
            .filter_map(|(path, slot)| Some((path.clone(), slot.record.marked?)));
        let marked = marked.collect();
        let index = OpenOptions::new().create(true).append(true).open(&path)?;
        if whole < bytes.len() {
            index.set_len(whole as u64)?;
        }
        let mut copied = 0;
        match fs::read_dir(dir.join("blobs")) {
            Ok(entries) => {
                for entry in entries {
                    copied += entry?.metadata().map_or(0, |m| m.len());
                }
            }
            // Made with the first that is kept.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let mut baseline = Self {
            dir,
            slots,
            marked,
            root,
            index: AppendFile::new(index, whole as u64),
            copied,
            scan: 0,
        };
        if lines > 2 * baseline.slots.len() + 4_096 {
            baseline.rewrite()?;
        }
        Ok(baseline)
    }

    /// Writes the index anew with what still holds.
    fn rewrite(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        if let Some(root) = &self.root {
            push(&mut bytes, &Line::Root(root.clone()))?;
        }
        for (path, slot) in &self.slots {
            push(&mut bytes, &Line::Set(path.clone(), slot.record.clone()))?;
        }
        let path = self.dir.join("index.jsonl");
        let fresh = self.dir.join("index.new");
        fs::write(&fresh, &bytes)?;
        fs::rename(&fresh, &path)?;
        let index = OpenOptions::new().append(true).open(&path)?;
        self.index = AppendFile::new(index, bytes.len() as u64);
        Ok(())
    }

    /// Begins a scan: what it does not touch can be forgotten at its end.
    pub fn begin(&mut self) {
        self.scan += 1;
    }

    /// Ends a scan: forgets what it did not need, and writes what is new to the index.
    pub fn end(&mut self) -> io::Result<()> {
        let scan = self.scan;
        let idle: Vec<RelPath> = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.seen != scan)
            .map(|(path, _)| path.clone())
            .collect();
        for path in idle {
            self.forget(&path)?;
        }
        self.flush()
    }

    /// Writes what is new to the index.
    pub fn flush(&mut self) -> io::Result<()> {
        match self.index.flush() {
            // It waits in memory until there is room: what is known does not depend on it.
            Err(error) if is_full(&error) => Ok(()),
            other => other,
        }
    }

    /// The record of a path, marked as needed.
    pub fn touch(&mut self, path: &RelPath) -> Option<&Record> {
        let slot = self.slots.get_mut(path)?;
        slot.seen = self.scan;
        Some(&slot.record)
    }

    /// The record of a path.
    pub fn get(&self, path: &RelPath) -> Option<&Record> {
        self.slots.get(path).map(|slot| &slot.record)
    }

    /// Sets the record of a path.
    pub fn set(&mut self, path: &RelPath, record: Record) -> io::Result<()> {
        if self.get(path) != Some(&record) {
            self.push(&Line::Set(path.clone(), record.clone()))?;
        }
        match record.marked {
            Some(length) => self.marked.insert(path.clone(), length),
            None => self.marked.remove(path),
        };
        let seen = self.scan;
        self.slots.insert(path.clone(), Slot { record, seen });
        Ok(())
    }

    /// Lengths of the conflict markers that were put into files.
    pub fn marks(&self) -> BTreeSet<u32> {
        self.marked.values().copied().collect()
    }

    /// Paths whose baseline is the agent's side of a merge, each with the commit that made it.
    pub fn parted(&self) -> Vec<(RelPath, u32)> {
        let last = |(path, slot): (&RelPath, &Slot)| {
            let (number, _) = slot.record.apart.last()?;
            Some((path.clone(), *number))
        };
        self.slots.iter().filter_map(last).collect()
    }

    /// Forgets a path.
    pub fn forget(&mut self, path: &RelPath) -> io::Result<()> {
        self.marked.remove(path);
        if self.slots.remove(path).is_some() {
            self.push(&Line::Forget(path.clone()))?;
        }
        Ok(())
    }

    /// Everything on record below a directory, in byte order.
    pub fn below(&self, dir: &RelPath) -> impl Iterator<Item = (&RelPath, &Record)> {
        let (from, to) = bounds(dir);
        self.slots
            .range((from, to))
            .map(|(path, slot)| (path, &slot.record))
    }

    /// Marks everything below a directory as needed.
    pub fn touch_below(&mut self, dir: &RelPath) {
        let scan = self.scan;
        for (_, slot) in self.slots.range_mut(bounds(dir)) {
            slot.seen = scan;
        }
    }

    /// Forgets everything below a directory.
    pub fn forget_below(&mut self, dir: &RelPath) -> io::Result<()> {
        let paths: Vec<RelPath> = self.below(dir).map(|(path, _)| path.clone()).collect();
        for path in paths {
            self.forget(&path)?;
        }
        Ok(())
    }

    /// The upper's own root as it was first seen.
    pub fn root(&self) -> Option<&Node> {
        self.root.as_ref()
    }

    /// Remembers the upper's own root.
    pub fn set_root(&mut self, node: Node) -> io::Result<()> {
        self.push(&Line::Root(node.clone()))?;
        self.root = Some(node);
        Ok(())
    }

    fn push(&mut self, line: &Line) -> io::Result<()> {
        let mut bytes = Vec::new();
        push(&mut bytes, line)?;
        self.index.push(&bytes);
        if self.index.pending() < GATHERED {
            return Ok(());
        }
        self.flush()
    }

    fn blob(&self, digest: Digest) -> PathBuf {
        self.dir.join("blobs").join(digest.to_string())
    }

    /// Keeps the bytes of `file`, which hash to `digest`. Too large a file is left out, and so is
    /// one that turns out to hold something else by now, or for which the disk has no room.
    pub fn keep(&mut self, digest: Digest, file: &File, size: u64) -> io::Result<()> {
        match self.copy_in(digest, file, size) {
            Err(error) if is_full(&error) => {
                let _ = fs::remove_file(self.dir.join("blobs").join(PARTIAL));
                Ok(())
            }
            other => other,
        }
    }

    fn copy_in(&mut self, digest: Digest, file: &File, size: u64) -> io::Result<()> {
        let path = self.blob(digest);
        if path.exists() {
            return Ok(());
        }
        let blobs = self.dir.join("blobs");
        fs::create_dir_all(&blobs)?;
        let partial = blobs.join(PARTIAL);
        let target = File::create(&partial)?;
        if content::share_blocks(file, &target).is_err() {
            if size > LARGEST_COPY || self.copied + size > COPIED_AT_MOST {
                return fs::remove_file(&partial);
            }
            content::copy_bytes(file, &target, size)?;
            self.copied += size;
        }
        if content::hash(&File::open(&partial)?)? == digest {
            fs::rename(&partial, &path)
        } else {
            fs::remove_file(&partial)
        }
    }

    /// Keeps these bytes.
    pub fn keep_bytes(&mut self, digest: Digest, bytes: &[u8]) -> io::Result<()> {
        let path = self.blob(digest);
        if path.exists() {
            return Ok(());
        }
        let blobs = self.dir.join("blobs");
        fs::create_dir_all(&blobs)?;
        let partial = blobs.join(PARTIAL);
        if let Err(error) = fs::write(&partial, bytes) {
            let _ = fs::remove_file(&partial);
            return Err(error);
        }
        self.copied += bytes.len() as u64;
        fs::rename(&partial, &path)
    }

    /// Lets bytes go that were kept ahead of time, unless a record is about the same ones.
    pub fn let_go(&mut self, digest: Digest, size: u64) {
        let needed = |slot: &Slot| {
            let apart = slot.record.apart.iter().map(|(_, node)| node);
            let mut nodes = slot.record.node.iter().chain(apart);
            nodes.any(|node| node.digest == Some(digest))
        };
        if !self.slots.values().any(needed) && fs::remove_file(self.blob(digest)).is_ok() {
            self.copied = self.copied.saturating_sub(size);
        }
    }

    /// The kept bytes of this digest.
    pub fn kept(&self, digest: Digest) -> Option<File> {
        File::open(self.blob(digest)).ok()
    }

    /// Where it lies, for error messages.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// The range of all paths strictly below `dir`.
fn bounds(dir: &RelPath) -> (Bound<RelPath>, Bound<RelPath>) {
    if dir.is_root() {
        return (Bound::Excluded(RelPath::root()), Bound::Unbounded);
    }
    // '0' follows '/' in byte order, and no path equals either bound.
    let lowest = dir.join(b"\x01");
    let parent = dir.parent().unwrap_or_default();
    let above = [dir.file_name().unwrap_or_default(), b"0"].concat();
    (
        Bound::Included(lowest),
        Bound::Excluded(parent.join(&above)),
    )
}

fn push(out: &mut Vec<u8>, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line).map_err(io::Error::other)?;
    out.push(b'\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rel(path: &str) -> RelPath {
        RelPath::try_from(path).expect("path")
    }

    #[test]
    fn cut_at_any_byte_a_prefix_loads() {
        let dir = tempfile::tempdir().expect("tempdir");
        let mut baseline = Baseline::open(dir.path().to_owned()).expect("open");
        baseline.begin();
        for path in ["a", "a/b", "c"] {
            baseline.set(&rel(path), Record::default()).expect("set");
        }
        baseline.forget(&rel("a/b")).expect("forget");
        baseline.end().expect("end");
        let index = dir.path().join("index.jsonl");
        let bytes = fs::read(&index).expect("read");
        for cut in 0..=bytes.len() {
            fs::write(&index, &bytes[..cut]).expect("write");
            let again = Baseline::open(dir.path().to_owned()).expect("open");
            let known: Vec<String> = again.slots.keys().map(ToString::to_string).collect();
            let prefixes = [
                vec![],
                vec!["a"],
                vec!["a", "a/b"],
                vec!["a", "a/b", "c"],
                vec!["a", "c"],
            ];
            assert!(prefixes.iter().any(|p| *p == known), "{cut}: {known:?}");
        }
    }

    #[test]
    fn below_means_strictly_below() {
        let dir = tempfile::tempdir().expect("tempdir");
        let mut baseline = Baseline::open(dir.path().to_owned()).expect("open");
        for path in ["a", "a.b", "a/x", "a/x/y", "a0", "b"] {
            baseline.set(&rel(path), Record::default()).expect("set");
        }
        let found: Vec<String> = baseline
            .below(&rel("a"))
            .map(|(p, _)| p.to_string())
            .collect();
        assert_eq!(found, ["a/x", "a/x/y"]);
        assert_eq!(baseline.below(&RelPath::root()).count(), 6);
    }
}
