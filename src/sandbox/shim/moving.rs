//! Makes a directory of the lower one of the upper, in place, so that the kernel can rename it.
//! Owns the order of steps that loses nothing: copy first, then move every entry into a new
//! directory beside the old one, then put that one in its place in a single step.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, FlockArg, OFlag};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};

use super::mend;
use super::names::{merge_back, rename, rename_keeping};
use super::staged::{self, Staged};
use super::survey::{self, Left, Survey};
use super::{DEEPEST, TEMPORARY};
use crate::RelPath;
use crate::layer::read::{self, Side};
use crate::layer::{FileType, Node, carry_merged, origin, tree};

/// A directory into which somebody writes faster than it can be emptied is given up after this.
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes the directory at `path` pure. The thread holds its rights over files; one call at a time.
/// Afterwards nothing an agent can see is different, but the directory's inode number. An error
/// leaves everything under its old name.
pub fn make_pure(layer: &Staged, path: &RelPath, waits: &dyn Fn() -> bool) -> Result<(), Left> {
    let _quiet = staged::lock(layer.dir.as_fd(), FlockArg::LockExclusive)?;
    if !waits() {
        return Err(Left::Gone);
    }
    let (Some(name), Some(above)) = (path.file_name(), path.parent()) else {
        return Err(Errno::EBUSY.into());
    };
    let parent = tree::resolve(layer.merged.as_fd(), &above, OFlag::O_RDONLY)?;
    let old = read::open_dir(parent.as_fd(), name)?;
    let node = read::stat_fd(old.as_fd())?;
    if node.dev != layer.device {
        return Err(Left::Mounted);
    }
    let upper = || tree::resolve(layer.upper.as_fd(), path, OFlag::O_RDONLY).ok();
    let survey = survey::survey(old.as_fd(), upper())?;
    survey::copy_up(old.as_fd(), upper(), &survey, waits)?;

    let temporary = unguessable(TEMPORARY)?;
    mend::note(layer.dir.as_fd(), path, &temporary)?;
    let made = mkdirat(&parent, temporary.as_slice(), Mode::S_IRWXU)
        .and_then(|()| read::open_dir(parent.as_fd(), &temporary).map_err(errno_of));
    let new = match made {
        Ok(new) => new,
        Err(errno) => {
            let _ = unlinkat(&parent, temporary.as_slice(), UnlinkatFlags::RemoveDir);
            mend::forget(layer.dir.as_fd());
            return Err(errno.into());
        }
    };
    let mut moving = Moving {
        layer,
        path,
        survey: &survey,
        top: new.as_fd(),
        beside: above.join(&temporary),
        placed: HashMap::new(),
        until: Instant::now() + PATIENCE,
        waits,
    };
    let moved = moving.all(parent.as_fd(), name, old.as_fd(), &temporary, &node);
    if moved.is_err() {
        // Left behind, the note brings the next one here to try again.
        merge_back(new.as_fd(), old.as_fd(), Side::Plain)?;
        unlinkat(&parent, temporary.as_slice(), UnlinkatFlags::RemoveDir)?;
        let _ = carry_merged(old.as_fd(), old.as_fd(), &node);
    }
    mend::forget(layer.dir.as_fd());
    moved
}

/// A name nobody can have prepared anything for.
fn unguessable(prefix: &str) -> Result<Vec<u8>, Errno> {
    let mut random = [0_u8; 8];
    // SAFETY: the buffer is ours and as long as told; so few bytes come at once.
    Errno::result(unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) })?;
    Ok(format!("{prefix}{:016x}", u64::from_le_bytes(random)).into_bytes())
}

fn errno_of(error: io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

struct Moving<'a> {
    layer: &'a Staged,
    path: &'a RelPath,
    survey: &'a Survey,
    /// The new directory and its place in the layer while it is being filled.
    top: BorrowedFd<'a>,
    beside: RelPath,
    /// The first name of each group of linked files that has moved.
    placed: HashMap<usize, RelPath>,
    until: Instant,
    waits: &'a dyn Fn() -> bool,
}

impl Moving<'_> {
    /// Moves everything and puts the new directory in the old one's place.
    fn all(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        old: BorrowedFd<'_>,
        temporary: &[u8],
        node: &Node,
    ) -> Result<(), Left> {
        self.fill(old, self.top, &RelPath::root())?;
        self.finish(old, self.top, node, &RelPath::root())?;
        loop {
            match rename(parent, temporary, parent, name, 0) {
                // Somebody made another entry in it meanwhile.
                Err(Errno::ENOTEMPTY | Errno::EEXIST) => {
                    self.fill(old, self.top, &RelPath::root())?;
                }
                other => return Ok(other?),
            }
        }
    }

    fn in_time(&self) -> Result<(), Left> {
        if Instant::now() > self.until {
            return Err(Errno::ETIMEDOUT.into());
        }
        if (self.waits)() {
            Ok(())
        } else {
            Err(Left::Gone)
        }
    }

    /// Moves every entry of `old` into `new`; `path` is where they lie below the whole.
    fn fill(
        &mut self,
        old: BorrowedFd<'_>,
        new: BorrowedFd<'_>,
        path: &RelPath,
    ) -> Result<(), Left> {
        if path.depth() > DEEPEST {
            return Err(Left::TooMuch);
        }
        self.in_time()?;
        for name in read::list(old)? {
            self.one(old, new, &name, &path.join(&name))?;
        }
        Ok(())
    }

    fn one(
        &mut self,
        old: BorrowedFd<'_>,
        new: BorrowedFd<'_>,
        name: &[u8],
        path: &RelPath,
    ) -> Result<(), Left> {
        let group = self.survey.linked.get(path).copied();
        if let Some(group) = group
            && self.link(group, old, new, name, path)?
        {
            return Ok(());
        }
        match rename(old, name, new, name, libc::RENAME_NOREPLACE) {
            Ok(()) => {
                if let Some(group) = group {
                    self.placed.entry(group).or_insert_with(|| path.clone());
                }
                Ok(())
            }
            // Gone meanwhile.
            Err(Errno::ENOENT) => Ok(()),
            Err(Errno::EXDEV) => self.directory(old, new, name, path),
            Err(Errno::EEXIST) => {
                let is_dir = |dir| {
                    let node = read::stat(dir, name)?;
                    io::Result::Ok(node.is_some_and(|n| n.file_type == FileType::Dir))
                };
                if is_dir(old)? && is_dir(new)? {
                    self.directory(old, new, name, path)
                } else {
                    // Made anew while its directory was half empty: both are kept.
                    Ok(rename_keeping(old, new, name)?)
                }
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// A directory of the lower: a new one takes its entries.
    fn directory(
        &mut self,
        old: BorrowedFd<'_>,
        new: BorrowedFd<'_>,
        name: &[u8],
        path: &RelPath,
    ) -> Result<(), Left> {
        let source = match read::open_dir(old, name) {
            Err(e) if tree::is_absent(&e) => return Ok(()),
            other => other?,
        };
        let node = read::stat_fd(source.as_fd())?;
        let fresh = match mkdirat(new, name, Mode::S_IRWXU) {
            Ok(()) => true,
            Err(Errno::EEXIST) => false,
            Err(errno) => return Err(errno.into()),
        };
        let target = read::open_dir(new, name)?;
        self.fill(source.as_fd(), target.as_fd(), path)?;
        if fresh {
            self.finish(source.as_fd(), target.as_fd(), &node, path)?;
        }
        loop {
            match unlinkat(old, name, UnlinkatFlags::RemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => return Ok(()),
                Err(Errno::ENOTEMPTY | Errno::EEXIST) => {
                    self.fill(source.as_fd(), target.as_fd(), path)?;
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Gives a filled directory everything the old one had, and marks where it comes from.
    fn finish(
        &self,
        old: BorrowedFd<'_>,
        new: BorrowedFd<'_>,
        node: &Node,
        path: &RelPath,
    ) -> Result<(), Left> {
        carry_merged(old, new, node)?;
        let in_upper = path.under(&self.beside);
        let marked = tree::resolve(self.layer.upper.as_fd(), &in_upper, OFlag::O_RDONLY)
            .and_then(|dir| origin::mark(dir.as_fd(), &path.under(self.path)));
        // Without the mark the review recognises the files one by one.
        drop(marked);
        Ok(())
    }

    /// A further name of a file that has moved already becomes one again, instead of a copy.
    /// `false` where it is to be moved like any other.
    fn link(
        &self,
        group: usize,
        old: BorrowedFd<'_>,
        new: BorrowedFd<'_>,
        name: &[u8],
        path: &RelPath,
    ) -> Result<bool, Left> {
        let Some(first) = self.placed.get(&group) else {
            return Ok(false);
        };
        let above = path.under(self.path).parent().unwrap_or_default();
        let upper = tree::resolve(self.layer.upper.as_fd(), &above, OFlag::O_RDONLY).ok();
        if survey::is_copied(upper.as_ref(), name) {
            // Written to since: no longer the same file.
            return Ok(false);
        }
        let dir: OwnedFd = tree::resolve(
            self.top,
            &first.parent().unwrap_or_default(),
            OFlag::O_RDONLY,
        )?;
        let first = first.file_name().unwrap_or_default();
        match linkat(&dir, first, new, name, AtFlags::empty()) {
            Ok(()) => {}
            // The first one is gone, or the file system takes no further name.
            Err(_) => return Ok(false),
        }
        match unlinkat(old, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }
}
