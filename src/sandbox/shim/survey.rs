//! Looks through a directory before it is made ready for a rename. Owns what is left alone (too
//! large, too deep, not the session's own, with a mount inside) and the copying of its files ahead
//! of the move; nothing that an agent can see changes.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{getegid, geteuid};

use super::{BYTES_AT_MOST, DEEPEST, ENTRIES_AT_MOST};
use crate::RelPath;
use crate::layer::FileType;
use crate::layer::read;

/// Why a directory is left to the kernel's own answer, `EXDEV`.
#[derive(Debug, thiserror::Error)]
pub enum Left {
    /// More than is copied for one rename.
    #[error("it holds too much")]
    TooMuch,
    /// Entries of other owners cannot be copied.
    #[error("something in it belongs to somebody else")]
    Foreign,
    /// A mount cannot be moved along.
    #[error("something is mounted inside it")]
    Mounted,
    /// The call's thread is gone.
    #[error("nobody waits any more")]
    Gone,
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Errno> for Left {
    fn from(errno: Errno) -> Self {
        Left::Io(errno.into())
    }
}

/// What was found.
#[derive(Default)]
pub struct Survey {
    entries: usize,
    bytes: u64,
    names: HashMap<(u64, u64), Vec<RelPath>>,
    /// Files of the lower that are one file under several names here: the group, by path below the
    /// directory looked through.
    pub linked: HashMap<RelPath, usize>,
}

/// Looks through `dir` of a merged view; `upper` is the same directory of the upper, if it has one.
pub fn survey(dir: BorrowedFd<'_>, upper: Option<OwnedFd>) -> Result<Survey, Left> {
    let mut survey = Survey::default();
    survey.mine(&read::stat_fd(dir)?)?;
    survey.look(dir, upper.as_ref(), &RelPath::root(), 0)?;
    let groups = std::mem::take(&mut survey.names);
    for (group, names) in groups.into_values().filter(|n| n.len() > 1).enumerate() {
        survey.linked.extend(names.into_iter().map(|n| (n, group)));
    }
    Ok(survey)
}

impl Survey {
    fn mine(&mut self, node: &crate::layer::Node) -> Result<(), Left> {
        self.entries += 1;
        if self.entries > ENTRIES_AT_MOST {
            return Err(Left::TooMuch);
        }
        if (node.uid, node.gid) != (geteuid().as_raw(), getegid().as_raw()) {
            return Err(Left::Foreign);
        }
        Ok(())
    }

    fn look(
        &mut self,
        dir: BorrowedFd<'_>,
        upper: Option<&OwnedFd>,
        path: &RelPath,
        depth: usize,
    ) -> Result<(), Left> {
        if depth > DEEPEST {
            return Err(Left::TooMuch);
        }
        for name in read::list(dir)? {
            let path = path.join(&name);
            let c_name = std::ffi::CString::new(name.clone()).map_err(io::Error::other)?;
            let Some(stat) = read::statx(dir, &c_name)? else {
                continue;
            };
            if stat.stx_attributes & libc::STATX_ATTR_MOUNT_ROOT as u64 != 0 {
                return Err(Left::Mounted);
            }
            let node = read::node_of(&stat);
            self.mine(&node)?;
            match node.file_type {
                FileType::Dir => {
                    let child = read::open_dir(dir, &name)?;
                    let upper = open_upper(upper, &name);
                    self.look(child.as_fd(), upper.as_ref(), &path, depth + 1)?;
                }
                FileType::File if !is_copied(upper, &name) => {
                    self.bytes += node.size.min(stat.stx_blocks.saturating_mul(512));
                    if self.bytes > BYTES_AT_MOST {
                        return Err(Left::TooMuch);
                    }
                    if node.nlink > 1 {
                        let names = self.names.entry((node.dev, node.ino)).or_default();
                        names.push(path);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Copies every regular file of `dir` up, by opening it for writing: afterwards the move is a matter
/// of names. Of files with several names here only the first one found is copied.
pub fn copy_up(
    dir: BorrowedFd<'_>,
    upper: Option<OwnedFd>,
    survey: &Survey,
    waits: &dyn Fn() -> bool,
) -> Result<(), Left> {
    let mut done = std::collections::HashSet::new();
    copy_below(
        dir,
        upper.as_ref(),
        &RelPath::root(),
        survey,
        &mut done,
        waits,
    )
}

fn copy_below(
    dir: BorrowedFd<'_>,
    upper: Option<&OwnedFd>,
    path: &RelPath,
    survey: &Survey,
    done: &mut std::collections::HashSet<usize>,
    waits: &dyn Fn() -> bool,
) -> Result<(), Left> {
    if path.depth() > DEEPEST {
        return Err(Left::TooMuch);
    }
    if !waits() {
        return Err(Left::Gone);
    }
    for name in read::list(dir)? {
        let path = path.join(&name);
        let Some(node) = read::stat(dir, &name)? else {
            continue;
        };
        match node.file_type {
            FileType::Dir => {
                let Ok(child) = read::open_dir(dir, &name) else {
                    continue;
                };
                let upper = open_upper(upper, &name);
                copy_below(child.as_fd(), upper.as_ref(), &path, survey, done, waits)?;
            }
            FileType::File if !is_copied(upper, &name) => {
                let group = survey.linked.get(&path);
                if group.is_none_or(|group| done.insert(*group)) {
                    copy_file(dir, &name)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn copy_file(dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), Left> {
    let flags = OFlag::O_WRONLY
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_NOCTTY
        | OFlag::O_CLOEXEC;
    match openat(dir, name, flags, Mode::empty()) {
        // Replaced or gone meanwhile, or a program that runs: the move itself copies that one.
        Ok(_)
        | Err(Errno::ENOENT | Errno::ELOOP | Errno::EISDIR | Errno::ENXIO | Errno::ETXTBSY) => {
            Ok(())
        }
        Err(errno) => Err(errno.into()),
    }
}

/// The upper's directory of this name.
pub fn open_upper(upper: Option<&OwnedFd>, name: &[u8]) -> Option<OwnedFd> {
    read::open_dir(upper?.as_fd(), name).ok()
}

/// Whether the upper has an entry of this name.
pub fn is_copied(upper: Option<&OwnedFd>, name: &[u8]) -> bool {
    upper.is_some_and(|dir| matches!(read::stat(dir.as_fd(), name), Ok(Some(_))))
}
