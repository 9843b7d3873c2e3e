//! Removes entries with everything below them. Owns the recursive removal of what is ours (uppers,
//! merged views, session directories): it never follows a link, never crosses a mount, goes however
//! deep, and opens up directories that the agent closed. Never used on a host's tree.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::Mode;
use nix::unistd::UnlinkatFlags;

use super::read;
use super::tree::{dir_beneath, open_beneath};
use crate::RelPath;

/// Removes `path` and everything below it on the same file system. A path that is not there is
/// fine; a mount point inside is left alone and reported as an error.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a directory to remove",
        ));
    };
    match nix::fcntl::open(parent, read::DIR_FLAGS, Mode::empty()) {
        Err(Errno::ENOENT) => Ok(()),
        parent => remove_entry(parent?.as_fd(), name.as_encoded_bytes()),
    }
}

/// Descriptors a removal holds on the way down.
const OPEN_AT_ONCE: usize = 64;

/// A directory being emptied.
struct Emptied {
    path: RelPath,
    fd: Option<OwnedFd>,
    names: Vec<Vec<u8>>,
}

/// Removes the entry `name` of `dir`, subtree included, however deep; nothing there is fine. Links
/// are removed, not followed; a mount in the way is an error.
pub(super) fn remove_entry(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    match unlink(dir, name, UnlinkatFlags::NoRemoveDir) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EISDIR | libc::EPERM)) => {}
        other => return other,
    }
    let mut stack = vec![emptied(dir, name, RelPath::root())?];
    while let Some(current) = stack.last_mut() {
        let Some(child) = current.names.pop() else {
            let path = current.path.clone();
            stack.pop();
            if let (Some(parent), Some(last)) = (stack.last_mut(), path.file_name()) {
                let fd = descriptor(dir, name, parent)?;
                unlink(fd, last, UnlinkatFlags::RemoveDir)?;
            }
            continue;
        };
        let path = current.path.join(&child);
        let fd = descriptor(dir, name, current)?;
        match unlink(fd, &child, UnlinkatFlags::NoRemoveDir) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EISDIR | libc::EPERM)) => {
                let next = emptied(fd, &child, path)?;
                if stack.len() >= OPEN_AT_ONCE {
                    let oldest = stack.len() - OPEN_AT_ONCE;
                    stack[oldest].fd = None;
                }
                stack.push(next);
            }
            other => other?,
        }
    }
    unlink(dir, name, UnlinkatFlags::RemoveDir)
}

fn unlink(dir: BorrowedFd<'_>, name: &[u8], flag: UnlinkatFlags) -> io::Result<()> {
    match nix::unistd::unlinkat(dir, name, flag) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn emptied(dir: BorrowedFd<'_>, name: &[u8], path: RelPath) -> io::Result<Emptied> {
    let fd = match open_beneath(dir, name) {
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
            // A directory its maker locked: ours to unlock, it is about to go.
            super::copy::set_mode_at(dir, name, 0o700)?;
            open_beneath(dir, name)?
        }
        other => other?,
    };
    let node = read::stat_fd(fd.as_fd())?;
    if node.mode & 0o300 != 0o300 {
        // Without the right to write and search nothing in it can be removed.
        let _ = nix::sys::stat::fchmod(&fd, Mode::S_IRWXU);
    }
    let names = read::list(fd.as_fd())?;
    Ok(Emptied {
        path,
        fd: Some(fd),
        names,
    })
}

fn descriptor<'a>(
    top: BorrowedFd<'_>,
    name: &[u8],
    emptied: &'a mut Emptied,
) -> io::Result<BorrowedFd<'a>> {
    if emptied.fd.is_none() {
        let root = open_beneath(top, name)?;
        emptied.fd = Some(dir_beneath(root.as_fd(), &emptied.path)?);
    }
    emptied
        .fd
        .as_ref()
        .map(AsFd::as_fd)
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn closed_directories_go_and_link_targets_stay() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let outside = dir.path().join("outside");
        std::fs::write(&outside, "kept").expect("writes");
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("a/b")).expect("makes");
        symlink(&outside, tree.join("a/link")).expect("links");
        symlink(dir.path(), tree.join("a/dirlink")).expect("links");
        std::fs::set_permissions(tree.join("a/b"), std::fs::Permissions::from_mode(0o0))
            .expect("chmod");
        remove_tree(&tree).expect("removes");
        assert!(!tree.exists());
        assert_eq!(std::fs::read_to_string(&outside).expect("reads"), "kept");
        remove_tree(&tree).expect("again is fine");
    }
}
