//! A directory tree that is only looked at beneath its root. Owns path resolution that follows no
//! link, crosses no mount and copes with paths longer than the kernel takes at once.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::Node;
use super::read;
use crate::RelPath;

/// Bytes of path handed to the kernel at once; its own limit is 4,096 with the NUL.
const AT_ONCE: usize = 3_800;

/// An open root.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
}

impl Tree {
    /// Opens the directory at `path`, whose last component must not be a link.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root = nix::fcntl::open(path, read::DIR_FLAGS, nix::sys::stat::Mode::empty())?;
        Ok(Self { root })
    }

    /// A tree over an open directory.
    pub fn new(root: OwnedFd) -> Self {
        Self { root }
    }

    /// The root's descriptor.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens the directory at `path`.
    pub fn dir(&self, path: &RelPath) -> io::Result<OwnedFd> {
        dir_beneath(self.root(), path)
    }

    /// The directory that holds `path` (the root for the root itself) as a place to look names up
    /// in, which takes no right to list it. The root itself is opened: it is looked at.
    pub fn parent(&self, path: &RelPath) -> io::Result<OwnedFd> {
        if path.is_root() {
            return self.dir(path);
        }
        resolve(
            self.root(),
            &path.parent().unwrap_or_default(),
            OFlag::O_PATH,
        )
    }

    /// The entry at `path` as the host has it; `None` when it or a parent is missing, or a parent
    /// is no directory of this tree.
    pub fn node(&self, path: &RelPath) -> io::Result<Option<Node>> {
        match self.parent(path) {
            Ok(dir) => read::read_node(dir.as_fd(), path.file_name().unwrap_or_default()),
            Err(e) if is_absent(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Opens the regular file at `path` for reading.
    pub fn file(&self, path: &RelPath) -> io::Result<File> {
        let dir = self.parent(path)?;
        read::open_file(dir.as_fd(), path.file_name().unwrap_or_default())
    }
}

/// Opens the directory at `path` beneath `root` for listing: no link is followed, no mount is
/// crossed.
pub fn dir_beneath(root: BorrowedFd<'_>, path: &RelPath) -> io::Result<OwnedFd> {
    resolve(root, path, OFlag::O_RDONLY)
}

/// As [`dir_beneath`], opened as `access` says: `O_PATH` needs no right to read the directory.
pub(crate) fn resolve(root: BorrowedFd<'_>, path: &RelPath, access: OFlag) -> io::Result<OwnedFd> {
    let mut at = None::<OwnedFd>;
    let mut rest = path.as_bytes();
    loop {
        let (head, tail) = split(rest);
        let from = at.as_ref().map_or(root, AsFd::as_fd);
        let head = if head.is_empty() { b"." } else { head };
        let last = tail.is_empty();
        let next = step(from, head, if last { access } else { OFlag::O_PATH })?;
        if last {
            return Ok(next);
        }
        at = Some(next);
        rest = tail;
    }
}

/// Cuts a path at a slash so that the first part fits a system call.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    if path.len() <= AT_ONCE {
        return (path, b"");
    }
    match path[..AT_ONCE].iter().rposition(|b| *b == b'/') {
        Some(cut) => (&path[..cut], &path[cut + 1..]),
        // A component longer than any file system takes: the kernel says so.
        None => (path, b""),
    }
}

/// One step of [`dir_beneath`]; `path` must fit a system call.
pub(super) fn open_beneath(from: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    step(from, path, OFlag::O_RDONLY)
}

fn step(from: BorrowedFd<'_>, path: &[u8], access: OFlag) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(access | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(
            ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_MAGICLINKS
                | ResolveFlag::RESOLVE_NO_XDEV,
        );
    loop {
        match openat2(from, path, how) {
            // A rename elsewhere raced with the resolution: the kernel asks for another try.
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Whether an error says that a path does not exist in this tree.
pub fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::EXDEV | libc::ENAMETOOLONG)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_beyond_the_kernels_limit_are_resolved_and_links_are_not() {
        let dir = tempfile::tempdir().expect("tempdir");
        let tree = Tree::open(dir.path()).expect("open");
        let mut path = RelPath::root();
        let mut at = tree.dir(&path).expect("root");
        for _ in 0..120 {
            let name = [b'd'; 50];
            nix::sys::stat::mkdirat(&at, &name[..], nix::sys::stat::Mode::S_IRWXU).expect("mkdir");
            at = read::open_dir(at.as_fd(), &name).expect("open");
            path = path.join(&name);
        }
        assert!(path.as_bytes().len() > 4_096);
        assert!(tree.dir(&path).is_ok());
        assert!(tree.node(&path).expect("node").is_some());

        std::os::unix::fs::symlink("/", dir.path().join("out")).expect("link");
        let through = RelPath::try_from("out/etc").expect("path");
        assert!(is_absent(
            &tree.dir(&through).expect_err("a link is not followed")
        ));
        assert_eq!(tree.node(&through).expect("absent"), None);
    }
}
