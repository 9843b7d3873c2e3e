//! Removes a layer's directory for good. Owns the one recursive removal of the engine: it never
//! follows a link, never crosses a mount, and opens up directories that the agent closed.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

/// Removes `path` and everything below it on the same file system. A path that is not there is
/// fine; a mount point inside is left alone and reported as an error.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a directory to remove",
        ));
    };
    let parent = match open(parent, DIRECTORY, Mode::empty()) {
        Err(Errno::ENOENT) => return Ok(()),
        other => other?,
    };
    let device = fstat(&parent)?.st_dev;
    let name = std::ffi::CString::new(name.as_encoded_bytes())?;
    remove_entry(parent.as_fd(), &name, device)
}

fn remove_entry(parent: BorrowedFd<'_>, name: &CStr, device: libc::dev_t) -> io::Result<()> {
    let stat = match fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Err(Errno::ENOENT) => return Ok(()),
        other => other?,
    };
    if stat.st_mode & libc::S_IFMT != libc::S_IFDIR {
        unlinkat(parent, name, UnlinkatFlags::NoRemoveDir)?;
        return Ok(());
    }
    if stat.st_dev != device {
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "a mount lies in the way",
        ));
    }
    let directory = open_directory(parent, name)?;
    let mut names = Vec::new();
    for entry in Dir::from_fd(directory.try_clone()?)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    for child in names {
        remove_entry(directory.as_fd(), &child, device)?;
    }
    unlinkat(parent, name, UnlinkatFlags::RemoveDir)?;
    Ok(())
}

/// Opens a directory of ours, and gives us the right to empty it where the agent took it away.
fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let owner = Mode::S_IRWXU;
    match openat(parent, name, DIRECTORY, Mode::empty()) {
        Ok(directory) => {
            if Mode::from_bits_truncate(fstat(&directory)?.st_mode) & owner != owner {
                nix::sys::stat::fchmod(&directory, owner)?;
            }
            Ok(directory)
        }
        Err(Errno::EACCES) => {
            fchmodat(parent, name, owner, FchmodatFlags::FollowSymlink)?;
            Ok(openat(parent, name, DIRECTORY, Mode::empty())?)
        }
        Err(errno) => Err(errno.into()),
    }
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
