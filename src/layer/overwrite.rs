//! New content for a file of the stage, written by us and not by the agent. Owns the in-place order
//! of steps that keeps whoever has the file open on the file that is seen; the same for a mounted
//! view and for an upper that is not mounted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Uid, fchown};
use serde::{Deserialize, Serialize};

use super::copy::{self, Into};
use super::read;
use super::tree::dir_beneath;
use super::{AccessError, Digest, FileType, Node, Timestamp};
use crate::RelPath;

/// What a file of the stage is to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overwrite {
    /// What it holds now: anything else is left alone.
    pub expect: Digest,
    /// Its new bytes.
    #[serde(with = "crate::path::exact_bytes")]
    pub bytes: Vec<u8>,
    /// Its permission bits.
    pub mode: u32,
    /// Its owner and group, where they can be given.
    pub owner: (u32, u32),
    /// Its `user.*` attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// Its modification time; `None`: that of the write.
    pub mtime: Option<Timestamp>,
}

impl Overwrite {
    /// These bytes with the mode, the owner, the attributes and the time of `node`, instead of
    /// `expect`.
    pub fn new(expect: Digest, bytes: Vec<u8>, node: &Node) -> Self {
        let own = |(name, _): &(&String, &Vec<u8>)| name.starts_with("user.");
        Self {
            expect,
            bytes,
            mode: node.mode,
            owner: (node.uid, node.gid),
            xattrs: node
                .xattrs
                .iter()
                .filter(own)
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            mtime: Some(node.mtime),
        }
    }
}

/// In the merged view of a layer that is mounted.
pub fn overwrite_live(
    merged: BorrowedFd<'_>,
    path: &RelPath,
    new: &Overwrite,
) -> Result<(), AccessError> {
    overwrite(merged, path, new, Into::Merged).map_err(|e| AccessError::io("writing", path, &e))
}

/// In the upper of a layer that is not mounted, which has the file.
pub fn overwrite_unmounted(
    upper: BorrowedFd<'_>,
    path: &RelPath,
    new: &Overwrite,
) -> Result<(), AccessError> {
    overwrite(upper, path, new, Into::Upper).map_err(|e| AccessError::io("writing", path, &e))
}

/// Makes these all of the file's bytes. Shortened last: whatever ends this in between leaves more of
/// them, not fewer.
fn fill(file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, 0)?;
    file.set_len(bytes.len() as u64)
}

fn moved() -> io::Error {
    io::Error::other("the agent has written it since it was looked at; look at it again")
}

fn overwrite(root: BorrowedFd<'_>, path: &RelPath, new: &Overwrite, into: Into) -> io::Result<()> {
    let dir = dir_beneath(root, &path.parent().unwrap_or_default())?;
    let name = path.file_name().unwrap_or_default();
    let found = read::read_node(dir.as_fd(), name)?
        .filter(|node| node.file_type == FileType::File && node.nlink == 1)
        .ok_or_else(moved)?;
    let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let target = File::from(openat(&dir, name, flags, Mode::empty())?);
    let mut old = Vec::new();
    read::open_file(dir.as_fd(), name)?.read_to_end(&mut old)?;
    if Digest::of(&old) != new.expect {
        return Err(moved());
    }
    if let Err(error) = fill(&target, &new.bytes) {
        // A full disk has room for what was there.
        fill(&target, &old)?;
        return Err(error);
    }
    if (found.uid, found.gid) != new.owner {
        // Who may not give a file away leaves it to the review, which shows the difference.
        let (uid, gid) = (Uid::from_raw(new.owner.0), Gid::from_raw(new.owner.1));
        let _ = fchown(&target, Some(uid), Some(gid));
    }
    let stored = |name: &str| copy::stored_name(name.as_bytes().to_vec(), into);
    for name in found.xattrs.keys().filter(|n| n.starts_with("user.")) {
        if !new.xattrs.contains_key(name) {
            copy::remove_xattr(target.as_fd(), &stored(name))?;
        }
    }
    for (name, value) in &new.xattrs {
        if found.xattrs.get(name) != Some(value) {
            copy::set_xattr(target.as_fd(), &stored(name), value)?;
        }
    }
    // Last: a write or a new owner takes the set-user-ID bit away.
    if found.mode != new.mode || read::stat_fd(target.as_fd())?.mode != new.mode {
        fchmod(&target, Mode::from_bits_truncate(new.mode))?;
    }
    if let Some(mtime) = new.mtime {
        copy::set_mtime(target.as_fd(), mtime)?;
    }
    Ok(())
}
