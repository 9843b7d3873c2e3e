//! The host's side of a layer, looked at path by path. Owns the one directory it keeps open, since
//! paths come in tree order; never writes.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::content::{self, Content};
use crate::RelPath;
use crate::layer::tree::is_absent;
use crate::layer::{Node, Timestamp, Tree, read};

/// See the module.
pub(super) struct Host {
    tree: Tree,
    /// See [`Host::mounted`].
    mounted: Option<Timestamp>,
    at: Option<(RelPath, Option<OwnedFd>)>,
}

impl Host {
    /// The host's tree.
    pub fn new(tree: Tree) -> Self {
        Self {
            tree,
            mounted: None,
            at: None,
        }
    }

    /// The tree itself.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Forgets the open directory: a scan must not see one that was moved away since.
    pub fn begin(&mut self) {
        self.at = None;
    }

    /// The directory that holds `path`, if the host has it and lets us in.
    fn parent(&mut self, path: &RelPath) -> io::Result<Option<&OwnedFd>> {
        let parent = path.parent().unwrap_or_default();
        if self.at.as_ref().is_none_or(|(at, _)| *at != parent) {
            let fd = match self.tree.parent(path) {
                Ok(fd) => Some(fd),
                Err(e) if is_absent(&e) || is_closed(&e) => None,
                Err(e) => return Err(e),
            };
            self.at = Some((parent, fd));
        }
        Ok(self.at.as_ref().and_then(|(_, fd)| fd.as_ref()))
    }

    /// Whether the host has the directory that holds `path`.
    pub fn has_parent(&mut self, path: &RelPath) -> io::Result<bool> {
        Ok(self.parent(path)?.is_some())
    }

    /// What `stat` tells of the host's entry; `None` when there is none.
    pub fn stat(&mut self, path: &RelPath) -> io::Result<Option<Node>> {
        let name = path.file_name().unwrap_or_default();
        match self.parent(path)? {
            Some(dir) => tolerate(read::stat(dir.as_fd(), name)),
            None => Ok(None),
        }
    }

    /// From when on a kernel's overlay has been merging this tree: it keeps what it once looked up,
    /// whatever is put in its place meanwhile.
    pub fn mounted(&mut self, at: Option<Timestamp>) {
        self.mounted = at;
    }

    /// Whether what the host has at `path` came there while an overlay was mounted, so that an agent
    /// that had looked before still sees, and copies up, what was there then. What is written in place
    /// is seen at once, and is no such case.
    pub fn was_replaced(&mut self, path: &RelPath, node: &Node) -> io::Result<bool> {
        let Some(mounted) = self.mounted else {
            return Ok(false);
        };
        // The clock of files ticks every few milliseconds: what has the mount's own tick was there.
        if node.ctime <= mounted {
            return Ok(false);
        }
        let name = path.file_name().unwrap_or_default();
        let born = match self.parent(path)? {
            Some(dir) => read::born(dir.as_fd(), name)?,
            None => None,
        };
        let made = born.is_none_or(|born| born > mounted);
        // Moved here from elsewhere; a further name alone (a backup by links) moves this time too.
        let moved = node.mtime <= mounted && node.nlink == 1;
        Ok(made || moved)
    }

    /// The host's entry with target and attributes; `None` when there is none.
    pub fn node(&mut self, path: &RelPath) -> io::Result<Option<Node>> {
        let name = path.file_name().unwrap_or_default();
        match self.parent(path)? {
            Some(dir) => tolerate(read::read_node(dir.as_fd(), name)),
            None => Ok(None),
        }
    }

    /// The host's file, if it still is the one that `node` describes.
    pub fn file(&mut self, path: &RelPath, node: &Node) -> Option<File> {
        let name = path.file_name()?;
        let dir = self.parent(path).ok()??;
        let file = read::open_file(dir.as_fd(), name).ok()?;
        unmoved(&file, node).then_some(file)
    }

    /// Content of the host's file, if it is the one that `node` describes before and after it was
    /// read.
    pub fn content(&mut self, path: &RelPath, node: &Node, cap: u64) -> Option<Content> {
        let file = self.file(path, node)?;
        let content = content::read(&file, cap).ok()?;
        unmoved(&file, node).then_some(content)
    }

    /// Whether the host has a file there that this process may not read.
    pub fn is_shut(&self, path: &RelPath) -> bool {
        matches!(self.tree.file(path), Err(e) if is_closed(&e))
    }

    /// Whether this process may not look into the directory that holds `path`.
    pub fn is_closed_above(&self, path: &RelPath) -> bool {
        let name = path.file_name().unwrap_or_default();
        self.tree
            .parent(path)
            .and_then(|dir| read::stat(dir.as_fd(), name))
            .is_err_and(|e| is_closed(&e))
    }

    /// Names in the host's directory; empty when it cannot be read.
    pub fn list(&mut self, path: &RelPath) -> Vec<Vec<u8>> {
        self.tree
            .dir(path)
            .and_then(|dir| read::list(dir.as_fd()))
            .unwrap_or_default()
    }
}

fn unmoved(file: &File, node: &Node) -> bool {
    read::stat_fd(file.as_fd()).is_ok_and(|now| now.same_stat(node))
}

fn is_closed(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EACCES)
}

fn tolerate(result: io::Result<Option<Node>>) -> io::Result<Option<Node>> {
    match result {
        Err(e) if is_closed(&e) || is_absent(&e) => Ok(None),
        other => other,
    }
}
