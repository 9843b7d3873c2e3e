//! The ledger of one commit: what it is about to do, written down before it is done. Owns the
//! format and its durability; decides nothing.
//!
//! `<store>/<n>/ledger` holds one record a line: sixteen hex digits of a BLAKE3 hash, a space and
//! JSON. It is only ever appended to; a line that is torn or does not hash right ends it. While a
//! commit is unfinished the file is named `ledger`; a finished one is renamed to `record` and is,
//! with `pre/` beside it, what undo needs; once undone it is `undone`, and once what undo needs was
//! given up it is `kept-no-more`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::astray::{Directories, Directory};
use super::{CommitError, host};
use crate::layer::{Digest, Node};
use crate::{LayerPath, RelPath};

/// One entry of a tree: its path below the tree's top (empty for the top) and what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Piece {
    pub path: RelPath,
    pub node: Arc<Node>,
}

/// Where the new entry of a swap comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Source {
    /// It is made, and thrown away on the way back.
    Made,
    /// It is the pre-image that this step of that commit left in the store.
    Kept { number: u32, step: usize },
}

/// What a step does to its path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Action {
    /// The entry before (none: nothing lies there) gives way to the entry after (none: nothing
    /// shall lie there), trees whole. The entry before ends under the step's other name.
    Swap {
        before: Vec<Piece>,
        after: Vec<Piece>,
        source: Source,
    },
    /// The inode itself moves here from another path of the layer.
    Move {
        from: RelPath,
        before: Arc<Node>,
        after: Arc<Node>,
    },
    /// Permission bits, xattrs, owner and times are changed in place.
    Meta { before: Arc<Node>, after: Arc<Node> },
}

/// One step of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    pub layer: String,
    pub path: RelPath,
    /// The unguessable name at which the new entry is made and the old one ends.
    pub aside: RelPath,
    pub action: Action,
}

impl Step {
    /// Its path with the layer.
    pub fn key(&self) -> LayerPath {
        LayerPath::new(self.layer.clone(), self.path.clone())
    }

    /// The entries that it puts on the host, its own first; none unless it is a swap.
    pub fn entries(&self) -> &[Piece] {
        match &self.action {
            Action::Swap { after, .. } => after,
            Action::Move { .. } | Action::Meta { .. } => &[],
        }
    }

    /// The name used while a file system without exchange is served.
    pub fn second_aside(&self) -> RelPath {
        let mut bytes = self.aside.as_bytes().to_vec();
        bytes.extend_from_slice(b"-old");
        RelPath::new(bytes).unwrap_or_else(|_| self.aside.clone())
    }
}

/// A record of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Record {
    /// The first one.
    Begun {
        format: u32,
        number: u32,
        undoes: Option<u32>,
        paths: Vec<LayerPath>,
    },
    /// A step that is going to be prepared. Steps are numbered from 0 in this order.
    Step(Box<Step>),
    /// The host's directories that the steps work in.
    Directories(Vec<Directory>),
    /// Every step is written down; from now on temporaries may exist.
    Planned,
    /// The new entries of a step as they were made (inode and digest known).
    Staged { step: usize, after: Vec<Piece> },
    /// Every new entry lies on the device; from now on the host may be changed.
    Prepared,
    /// What a move or a change in place has left.
    Changed { step: usize, after: Arc<Node> },
    /// Every change lies on the device; from now on there is no way back but undo.
    Committed,
}

const FORMAT: u32 = 2;
/// Without [`Record::Directories`].
const OLD_FORMAT: u32 = 1;
const OPEN: &str = "ledger";
const DONE: &str = "record";
const UNDONE: &str = "undone";
const FORGOTTEN: &str = "kept-no-more";

/// What a ledger says when it is read again.
pub(super) struct Loaded {
    pub undoes: Option<u32>,
    pub paths: Vec<LayerPath>,
    pub steps: Vec<Step>,
    pub directories: Directories,
    pub planned: bool,
    pub committed: bool,
}

/// Which file of a commit's directory there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Open,
    Done,
    Undone,
    Forgotten,
    Missing,
}

/// Directory of a commit in the store.
pub(super) fn directory(store: &Path, number: u32) -> PathBuf {
    store.join(number.to_string())
}

/// The open ledger's path.
pub(super) fn path(store: &Path, number: u32) -> PathBuf {
    directory(store, number).join(OPEN)
}

/// How a commit stands.
pub(super) fn standing(store: &Path, number: u32) -> Standing {
    let dir = directory(store, number);
    if dir.join(OPEN).exists() {
        Standing::Open
    } else if dir.join(DONE).exists() {
        Standing::Done
    } else if dir.join(UNDONE).exists() {
        Standing::Undone
    } else if dir.join(FORGOTTEN).exists() {
        Standing::Forgotten
    } else {
        Standing::Missing
    }
}

/// Numbers of the commits that stand like this, in order.
pub(super) fn standing_so(store: &Path, wanted: Standing) -> io::Result<Vec<u32>> {
    let entries = match fs::read_dir(store) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        if let Some(number) = name.to_str().and_then(|n| n.parse().ok())
            && standing(store, number) == wanted
        {
            found.push(number);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// A ledger being written.
pub(super) struct Ledger {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
    /// The store was made for it.
    is_first: bool,
}

impl Ledger {
    /// Makes the commit's directory and its ledger.
    pub fn create(
        store: &Path,
        number: u32,
        undoes: Option<u32>,
        paths: &[LayerPath],
    ) -> Result<Self, CommitError> {
        let dir = directory(store, number);
        let is_first = !store.exists();
        let failed = |source| CommitError::store("making the ledger in", &dir, source);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir.join("pre"))
            .map_err(failed)?;
        let path = dir.join(OPEN);
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        let mut ledger = Self {
            file,
            path,
            buffer: Vec::new(),
            is_first,
        };
        ledger.write(&Record::Begun {
            format: FORMAT,
            number,
            undoes,
            paths: paths.to_vec(),
        })?;
        Ok(ledger)
    }

    /// Appends a record; it reaches the file at the next [`Ledger::sync`] at the latest.
    pub fn write(&mut self, record: &Record) -> Result<(), CommitError> {
        let json = serde_json::to_vec(record)
            .map_err(|e| CommitError::store("writing the ledger", &self.path, e.into()))?;
        self.buffer.extend_from_slice(checksum(&json).as_bytes());
        self.buffer.push(b' ');
        self.buffer.extend_from_slice(&json);
        self.buffer.push(b'\n');
        if self.buffer.len() > 256 * 1024 {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CommitError> {
        host::append(&mut self.file, &self.buffer)
            .map_err(|e| CommitError::store("writing the ledger", &self.path, e))?;
        self.buffer.clear();
        Ok(())
    }

    /// Everything written so far is on the device when this returns.
    pub fn sync(&mut self) -> Result<(), CommitError> {
        self.flush()?;
        host::sync_file(&self.file)
            .map_err(|e| CommitError::store("writing the ledger", &self.path, e))
    }

    /// The names of the ledger, of its directory and of a new store are on the device when this
    /// returns.
    pub fn sync_names(&self) -> Result<(), CommitError> {
        let dirs = if self.is_first { 3 } else { 2 };
        for dir in self.path.ancestors().skip(1).take(dirs) {
            File::open(dir)
                .and_then(|dir| host::sync_file(&dir))
                .map_err(|e| CommitError::store("writing the ledger", dir, e))?;
        }
        Ok(())
    }
}

/// The commit is finished: its ledger becomes a record.
pub(super) fn finish(store: &Path, number: u32) -> Result<(), CommitError> {
    rename(store, number, OPEN, DONE)
}

/// The commit was undone: its record is kept but no longer undoable.
pub(super) fn mark_undone(store: &Path, number: u32) -> Result<(), CommitError> {
    if standing(store, number) == Standing::Done {
        rename(store, number, DONE, UNDONE)?;
    }
    Ok(())
}

/// What undo would need of the commit is given up; its record stays.
pub(super) fn give_up(store: &Path, number: u32) -> Result<(), CommitError> {
    // In this order: a commit that still counts as undoable has all its pre-images.
    if standing(store, number) == Standing::Done {
        rename(store, number, DONE, FORGOTTEN)?;
    }
    let kept = directory(store, number).join("pre");
    crate::layer::remove::remove_tree(&kept)
        .map_err(|e| CommitError::store("removing what undo kept in", &kept, e))
}

fn rename(store: &Path, number: u32, from: &str, to: &str) -> Result<(), CommitError> {
    let dir = directory(store, number);
    super::seam::pass("ledger-rename")
        .and_then(|()| fs::rename(dir.join(from), dir.join(to)))
        .map_err(|e| CommitError::store("closing the ledger in", &dir, e))
}

/// The commit never happened: its directory goes, but for what was kept for a person in `kept/`.
pub(super) fn forget(store: &Path, number: u32) -> Result<(), CommitError> {
    let dir = directory(store, number);
    let failed = |e| CommitError::store("removing the ledger in", &dir, e);
    super::seam::pass("ledger-forget").map_err(failed)?;
    let ignore_missing = |outcome: io::Result<()>| match outcome {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(e)),
        _ => Ok(()),
    };
    // The pre-images' directory is empty by now; were it not, this refuses to lose them.
    ignore_missing(fs::remove_dir(dir.join("pre")))?;
    ignore_missing(fs::remove_file(dir.join(OPEN)))?;
    if !dir.join("kept").exists() {
        ignore_missing(fs::remove_dir(&dir))?;
    }
    Ok(())
}

/// Reads a commit's ledger or record.
pub(super) fn load(store: &Path, number: u32) -> Result<Loaded, CommitError> {
    let dir = directory(store, number);
    let path = match standing(store, number) {
        Standing::Open => dir.join(OPEN),
        Standing::Done => dir.join(DONE),
        Standing::Undone => dir.join(UNDONE),
        Standing::Forgotten => dir.join(FORGOTTEN),
        Standing::Missing => return Err(CommitError::NoSuchCommit(number)),
    };
    let failed = |e| CommitError::store("reading the ledger", &path, e);
    let mut reader = BufReader::new(File::open(&path).map_err(failed)?);
    let mut loaded = Loaded {
        undoes: None,
        paths: Vec::new(),
        steps: Vec::new(),
        directories: Directories::default(),
        planned: false,
        committed: false,
    };
    let mut line = Vec::new();
    loop {
        line.clear();
        reader.read_until(b'\n', &mut line).map_err(failed)?;
        let Some(record) = parse(&line) else {
            return Ok(loaded);
        };
        match record {
            Record::Begun {
                format,
                undoes,
                paths,
                ..
            } => {
                if ![FORMAT, OLD_FORMAT].contains(&format) {
                    return Err(CommitError::Ledger {
                        path,
                        cause: format!("it has format {format}, this program knows {FORMAT}"),
                    });
                }
                loaded.undoes = undoes;
                loaded.paths = paths;
            }
            Record::Step(step) => loaded.steps.push(*step),
            Record::Staged { step, after: made } => {
                if let Some(Step {
                    action: Action::Swap { after, .. },
                    ..
                }) = loaded.steps.get_mut(step)
                {
                    *after = made;
                }
            }
            Record::Changed { step, after: left } => {
                if let Some(Step {
                    action: Action::Meta { after, .. } | Action::Move { after, .. },
                    ..
                }) = loaded.steps.get_mut(step)
                {
                    *after = left;
                }
            }
            Record::Directories(known) => loaded.directories = Directories::from_record(known),
            Record::Planned => loaded.planned = true,
            Record::Prepared => {}
            Record::Committed => loaded.committed = true,
        }
    }
}

fn parse(line: &[u8]) -> Option<Record> {
    let line = line.strip_suffix(b"\n")?;
    let (sum, json) = line.split_at_checked(16)?;
    let json = json.strip_prefix(b" ")?;
    if checksum(json).as_bytes() != sum {
        return None;
    }
    serde_json::from_slice(json).ok()
}

fn checksum(json: &[u8]) -> String {
    let mut hex = Digest::of(json).to_string();
    hex.truncate(16);
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_cut_anywhere_reads_as_a_prefix() {
        let store = tempfile::tempdir().expect("temporary directory");
        let paths = vec![LayerPath::new(
            "workspace",
            RelPath::try_from("a").expect("valid"),
        )];
        let mut ledger = Ledger::create(store.path(), 1, Some(7), &paths).expect("created");
        ledger.write(&Record::Planned).expect("written");
        ledger.write(&Record::Committed).expect("written");
        ledger.sync().expect("synced");
        let file = path(store.path(), 1);
        let whole = fs::read(&file).expect("read");
        for cut in 0..=whole.len() {
            fs::write(&file, &whole[..cut]).expect("cut");
            let loaded = load(store.path(), 1).expect("loads");
            assert!(loaded.planned || !loaded.committed, "cut at {cut}");
            assert_eq!(loaded.committed, cut == whole.len(), "cut at {cut}");
        }
        let mut torn = whole.clone();
        let last = torn.len() - 3;
        torn[last] ^= 1;
        fs::write(&file, &torn).expect("written");
        assert!(!load(store.path(), 1).expect("loads").committed);
    }
}
