//! Preparation: the new entries are made beside their destinations, complete to the last
//! attribute, before anything of the host changes. Owns copying with its digest, and metadata.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::RelPath;
use crate::diff;
use crate::layer::content::{extent, hash};
use crate::layer::hasher::ContentHasher;
use crate::layer::{AccessError, Digest, FileType, Node, StageAccess};

use super::anchor::Anchors;
use super::dress::{dress, own};
use super::effect::{Content, Picked};
use super::foreign::{Attributes, Origins, give};
use super::lease::{Lease, Patience};
use super::ledger::{Action, Piece, Step};
use super::place::{Place, Root, look_fd, words, xattrs};
use super::transaction::Failure;
use super::{Refusal, host, verify};

/// From this size on sharing blocks with the upper is tried before copying.
const CLONE_FROM: u64 = 256 * 1024;
const CHUNK: usize = 128 * 1024;

/// Why an entry could not be made.
pub(super) enum StageError {
    /// Said to the person, about the path.
    Refused(String),
    /// The stage cannot be read at all.
    Access(AccessError),
}

impl From<io::Error> for StageError {
    fn from(error: io::Error) -> Self {
        Self::Refused(format!("it could not be prepared: {}", words(&error)))
    }
}

/// Makes new entries.
pub(super) struct Stager<'a> {
    access: &'a dyn StageAccess,
    patience: Patience,
    buffer: Vec<u8>,
    clones: bool,
    /// Files made so far that further names may be linked to.
    made: HashMap<(String, Inode), Vec<Made>>,
    /// Files that the host has and keeps.
    anchors: Anchors,
    /// Whose attributes the new entries get.
    origins: &'a Origins,
}

/// An inode that several names share: of the upper, or of the host.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Inode {
    Upper(u64, u64),
    Host(u64, u64),
}

/// What is to be made in one place.
struct Entry<'a> {
    node: &'a Node,
    content: &'a Content,
    /// What the host has there.
    replaced: Option<&'a Node>,
    foreign: &'a Attributes,
    /// It lies below a new directory that its owner may not enter.
    will_be_shut: bool,
}

struct Made {
    at: RelPath,
    node: Node,
    /// Held where a directory above it may not be entered any more once its step is made.
    held: Option<OwnedFd>,
}

impl<'a> Stager<'a> {
    /// Reads the uppers through `access`; new names of files in `anchors` are linked to those.
    pub fn new(access: &'a dyn StageAccess, anchors: Anchors, origins: &'a Origins) -> Self {
        Self {
            access,
            patience: Patience::new(),
            buffer: Vec::new(),
            clones: true,
            made: HashMap::new(),
            anchors,
            origins,
        }
    }

    /// Makes every new entry of a swap under its temporary name; the pieces become what was made.
    pub fn step(
        &mut self,
        root: &Root,
        step: &Step,
        contents: &[Content],
    ) -> Result<Vec<Piece>, StageErrorAt> {
        let Action::Swap { after, .. } = &step.action else {
            return Ok(Vec::new());
        };
        let shut = after.iter().filter(|piece| is_shut(&piece.node));
        let shut: Vec<RelPath> = shut.map(|piece| piece.path.clone()).collect();
        let mut made = Vec::with_capacity(after.len());
        for (piece, content) in after.iter().zip(contents) {
            let will_be_shut = shut.iter().any(|dir| piece.path.is_within(dir));
            made.push(self.piece(root, step, piece, content, will_be_shut)?);
        }
        self.finish(root, step, &mut made)?;
        Ok(made)
    }

    /// Makes one entry of a step; of a directory, which is finished when all is made in it, only so
    /// much that this can begin. `will_be_shut`: it lies below one that its owner may not enter.
    pub fn piece(
        &mut self,
        root: &Root,
        step: &Step,
        piece: &Piece,
        content: &Content,
        will_be_shut: bool,
    ) -> Result<Piece, StageErrorAt> {
        let replaced = match &step.action {
            Action::Swap { before, .. } if piece.path.is_root() => before.first(),
            _ => None,
        };
        let at = |error| StageErrorAt {
            path: piece.path.under(&step.path),
            error,
        };
        let foreign = self.origins.attributes(root, step, piece);
        let foreign = foreign.map_err(|error| at(error.into()))?;
        let entry = Entry {
            node: &piece.node,
            content,
            replaced: replaced.map(|piece| &*piece.node),
            foreign: &foreign,
            will_be_shut,
        };
        let path = piece.path.under(&step.aside);
        let node = self.entry(root, &path, &entry).map_err(at)?;
        Ok(Piece {
            path: piece.path.clone(),
            node: Arc::new(node),
        })
    }

    /// Directories get their final mode and time when nothing more is made in them.
    pub fn finish(&self, root: &Root, step: &Step, made: &mut [Piece]) -> Result<(), StageErrorAt> {
        for piece in made.iter_mut().rev() {
            if piece.node.file_type != FileType::Dir {
                continue;
            }
            let path = piece.path.under(&step.aside);
            let foreign = self.origins.attributes(root, step, piece);
            let node = foreign
                .map_err(StageError::from)
                .and_then(|foreign| finish_dir(root, &path, &piece.node, &foreign))
                .map_err(|error| StageErrorAt {
                    path: piece.path.under(&step.path),
                    error,
                })?;
            piece.node = Arc::new(node);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        root: &Root,
        path: &RelPath,
        entry: &Entry<'_>,
    ) -> Result<Node, StageError> {
        let place = root.at(path)?;
        let inodes = shared(root, entry);
        if let Some(linked) = self.linked(root, &place, &inodes, entry.node)? {
            return Ok(linked);
        }
        let made = self.new_entry(root, &place, entry.node, entry.content, entry.foreign)?;
        for inode in inodes {
            let held = entry.will_be_shut.then(|| place.handle()).transpose()?;
            let names = self.made.entry((root.layer.clone(), inode)).or_default();
            names.push(Made {
                at: path.clone(),
                node: made.clone(),
                held,
            });
        }
        Ok(made)
    }

    fn new_entry(
        &mut self,
        root: &Root,
        place: &Place,
        node: &Node,
        content: &Content,
        foreign: &Attributes,
    ) -> Result<Node, StageError> {
        match node.file_type {
            FileType::Dir => {
                host::create_dir(place)?;
                return Ok(node.clone());
            }
            FileType::Symlink => {
                let target = node.target.as_deref().unwrap_or_default();
                host::create_link(place, target)?;
                own(place, node)?;
                host::set_mtime(place, node.mtime)?;
            }
            FileType::Fifo => {
                host::create_fifo(place)?;
                own(place, node)?;
                dress(place.handle()?.as_fd(), node)?;
                give(place.handle()?.as_fd(), foreign).map_err(StageError::Refused)?;
                host::set_mtime(place, node.mtime)?;
            }
            FileType::File => return self.file(root, place, node, content, foreign),
            FileType::Socket | FileType::Device => {
                let name = node.file_type.name();
                return Err(StageError::Refused(format!("a {name} is never committed")));
            }
        }
        let made = place
            .look()?
            .map(|look| verify::with_stat(node, &look.node));
        Ok(made.unwrap_or_else(|| node.clone()))
    }

    fn file(
        &mut self,
        root: &Root,
        place: &Place,
        node: &Node,
        content: &Content,
        foreign: &Attributes,
    ) -> Result<Node, StageError> {
        let file = host::create_file(place)?;
        let digest = self.fill(root, &file, node, content)?;
        own(place, node)?;
        dress(file.as_fd(), node)?;
        give(file.as_fd(), foreign).map_err(StageError::Refused)?;
        host::set_mtime_fd(file.as_fd(), node.mtime)?;
        let mut made = verify::with_stat(node, &look_fd(file.as_fd())?.node);
        made.digest = Some(digest);
        Ok(made)
    }

    /// Makes the entry another name of what was made before, or of what the host keeps.
    fn linked(
        &self,
        root: &Root,
        place: &Place,
        inodes: &[Inode],
        node: &Node,
    ) -> Result<Option<Node>, StageError> {
        for inode in inodes {
            let made = self.made.get(&(root.layer.clone(), *inode));
            let mut made = made.into_iter().flatten();
            if let Some(made) = made.find(|made| alike(&made.node, node)) {
                match &made.held {
                    Some(held) => host::hard_link_held(held.as_fd(), place)?,
                    None => host::hard_link(&root.at(&made.at)?, place)?,
                }
                let now = place.look()?.map(|look| look.node);
                return Ok(Some(verify::with_stat(
                    &made.node,
                    &now.unwrap_or_else(|| made.node.clone()),
                )));
            }
        }
        for inode in inodes {
            if let Some(node) = self.anchored(root, place, *inode, node)? {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    /// Links the new name to the file that the host has of it. What is not that file any more, or
    /// cannot be linked, is made anew.
    fn anchored(
        &self,
        root: &Root,
        place: &Place,
        inode: Inode,
        node: &Node,
    ) -> Result<Option<Node>, StageError> {
        let Inode::Upper(dev, ino) = inode else {
            return Ok(None);
        };
        let Some(at) = self.anchors.get(&(root.layer.clone(), dev, ino)) else {
            return Ok(None);
        };
        let at = root.at(at)?;
        let Some(look) = at.look()? else {
            return Ok(None);
        };
        let found = &look.node;
        if (found.file_type, found.size, found.mode) != (node.file_type, node.size, node.mode) {
            return Ok(None);
        }
        let same = match node.file_type {
            // Attributes that were not approved with it would come along.
            FileType::File if xattrs(at.handle()?.as_fd())? != node.xattrs => false,
            FileType::File => match at.open() {
                Ok(file) => node.digest == Some(hash(&file)?),
                // Not even its owner may read it; the scan found it unchanged.
                Err(e) => e.raw_os_error() == Some(libc::EACCES),
            },
            FileType::Symlink => Some(at.read_link()?) == node.target,
            _ => true,
        };
        if !same {
            return Ok(None);
        }
        match host::hard_link(&at, place) {
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::EPERM | libc::EMLINK | libc::EXDEV)
                ) =>
            {
                Ok(None)
            }
            Err(e) => Err(e.into()),
            Ok(()) => {
                let now = place
                    .look()?
                    .map_or_else(|| found.clone(), |look| look.node);
                Ok(Some(verify::with_stat(node, &now)))
            }
        }
    }

    fn fill(
        &mut self,
        root: &Root,
        file: &File,
        node: &Node,
        content: &Content,
    ) -> Result<Digest, StageError> {
        match content {
            Content::Upper { path, .. } => {
                let Some(approved) = node.digest else {
                    return Err(changed());
                };
                let lease = self.open_upper(&root.layer, path)?;
                let digest = self.copy(lease.file(), file)?;
                if digest != approved {
                    return Err(changed());
                }
                Ok(digest)
            }
            Content::Picked(picked) => {
                let Picked { old, new, chosen } = &**picked;
                let old = match old {
                    Some((path, node)) => {
                        let bytes = read_all(&root.at(path)?.open()?)?;
                        if node
                            .digest
                            .is_some_and(|digest| digest != Digest::of(&bytes))
                        {
                            let reason = crate::change::Conflict::HostModified.describe();
                            return Err(StageError::Refused(reason));
                        }
                        bytes
                    }
                    None => Vec::new(),
                };
                let new = match new {
                    Some((path, node)) => {
                        let lease = self.open_upper(&root.layer, path)?;
                        let bytes = read_all(lease.file())?;
                        if node.digest != Some(Digest::of(&bytes)) {
                            return Err(changed());
                        }
                        bytes
                    }
                    None => Vec::new(),
                };
                let bytes = diff::select(&old, &new, &diff::diff(&old, &new), chosen)
                    .map_err(|e| StageError::Refused(e.to_string()))?;
                if !bytes.is_empty() {
                    host::write_at(file, &bytes, 0)?;
                }
                Ok(Digest::of(&bytes))
            }
            Content::Bytes(bytes) => {
                if !bytes.is_empty() {
                    host::write_at(file, bytes, 0)?;
                }
                Ok(Digest::of(bytes))
            }
            Content::None => Ok(Digest::of(b"")),
        }
    }

    /// Opens a file of the upper that the agent is not writing at this moment.
    fn open_upper(&self, layer: &str, path: &RelPath) -> Result<Lease, StageError> {
        loop {
            let file = match self.access.open(layer, path) {
                Ok(fd) => File::from(fd),
                Err(AccessError::Io { errno, message, .. }) => {
                    return Err(match errno {
                        libc::ENOENT
                        | libc::ENOTDIR
                        | libc::ELOOP
                        | libc::ENXIO
                        | libc::EISDIR
                        | libc::EINVAL => changed(),
                        _ => StageError::Refused(format!(
                            "the agent's file cannot be read: {}",
                            crate::text::visible(message.as_bytes())
                        )),
                    });
                }
                Err(e) => return Err(StageError::Access(e)),
            };
            if let Some(lease) = Lease::try_take(file) {
                return Ok(lease);
            }
            if !self.patience.wait() {
                return Err(StageError::Refused(
                    "the agent has it open for writing; commit when it is done".into(),
                ));
            }
        }
    }

    /// Copies content, keeping holes, and hashes what was copied.
    fn copy(&mut self, from: &File, to: &File) -> io::Result<Digest> {
        let len = from.metadata()?.len();
        if self.clones && len >= CLONE_FROM {
            if host::clone_file(from.as_fd(), to.as_fd()).is_ok() {
                return hash(to);
            }
            self.clones = false;
        }
        copy_sparse(from, to, len, &mut self.buffer)
    }
}

/// An error and the path it is about, below the layer's root.
pub(super) struct StageErrorAt {
    pub path: RelPath,
    pub error: StageError,
}

fn changed() -> StageError {
    StageError::Refused("the agent changed it since it was approved; look at it again".into())
}

/// The inodes that a new entry may have in common with others.
fn shared(root: &Root, entry: &Entry<'_>) -> Vec<Inode> {
    let mut inodes = Vec::new();
    // An agent that saw the host's files with all their names has one for itself on purpose.
    let mut parted = entry.node.file_type != FileType::File;
    if let Content::Upper { shared, .. } = entry.content {
        inodes.extend(shared.map(|(dev, ino)| Inode::Upper(dev, ino)));
        parted |= root.keeps_groups && shared.is_none();
    }
    let host = entry.replaced.filter(|_| !parted);
    if let Some(host) = host.filter(|h| h.nlink > 1 && h.file_type == FileType::File) {
        inodes.push(Inode::Host(host.dev, host.ino));
    }
    inodes
}

/// Whether this is a directory whose owner may not enter it.
fn is_shut(node: &Node) -> bool {
    node.file_type == FileType::Dir && node.mode & 0o100 == 0
}

/// Whether two new entries may be one.
fn alike(a: &Node, b: &Node) -> bool {
    let same = match a.file_type {
        FileType::File => a.digest.is_some() && a.digest == b.digest,
        FileType::Symlink => a.target == b.target,
        FileType::Fifo => true,
        FileType::Dir | FileType::Socket | FileType::Device => false,
    };
    a.file_type == b.file_type && same && a.mode == b.mode && a.xattrs == b.xattrs
}

fn read_all(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Copies `len` bytes with their holes; the digest is that of the bytes, holes as zeros.
pub(super) fn copy_sparse(
    from: &File,
    to: &File,
    len: u64,
    buffer: &mut Vec<u8>,
) -> io::Result<Digest> {
    buffer.resize(CHUNK, 0);
    let mut hasher = ContentHasher::new();
    let mut at = 0;
    let mut written = 0;
    while at < len {
        let (data, end) = extent(from, at, len)?;
        hasher.skip(data - at);
        at = data;
        while at < end {
            let room = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            match from.read_at(&mut buffer[..room], at) {
                Ok(0) => return Ok(hasher.finish()),
                Ok(n) => {
                    hasher.update(&buffer[..n]);
                    host::write_at(to, &buffer[..n], at)?;
                    at += n as u64;
                    written = at;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
    if written < len {
        host::set_len(to, len)?;
    }
    Ok(hasher.finish())
}

fn finish_dir(
    root: &Root,
    path: &RelPath,
    node: &Node,
    foreign: &Attributes,
) -> Result<Node, StageError> {
    let place = root.at(path)?;
    own(&place, node)?;
    dress(place.handle()?.as_fd(), node)?;
    give(place.handle()?.as_fd(), foreign).map_err(StageError::Refused)?;
    host::set_mtime(&place, node.mtime)?;
    let look = place.look()?;
    Ok(look.map_or_else(|| node.clone(), |look| verify::with_stat(node, &look.node)))
}

/// A staging error as the transaction needs it.
pub(super) fn refused(step: &Step, at: StageErrorAt) -> Failure {
    match at.error {
        StageError::Refused(reason) => Failure::Refused(Refusal {
            key: crate::LayerPath::new(step.layer.clone(), at.path),
            reason,
        }),
        StageError::Access(error) => Failure::Broken(error.into()),
    }
}
