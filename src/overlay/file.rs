//! Open files. Owns handles and what is done through them; a file that was opened before it was
//! copied up is read in the upper from then on, and a removed one goes on as long as it is open.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::by_node::NO_HANDLE;
use super::calls::{self, Result, Stat, errno};
use super::change::New;
use super::guard::Access;
use super::inode::{Node, Stamp};
use super::{Attr, Caller, Overlay, held};

/// The flag with which execve(2) opens a program; the kernel passes it on (`__FMODE_EXEC` in
/// include/linux/fs.h, no name of it for user space). Until the program ends, that handle is held.
const TO_RUN: i32 = 0x20;

/// A file was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// Stands for it in later calls.
    pub handle: u64,
    /// What was cached of its content when it was opened before still holds.
    pub unchanged: bool,
    /// Its content lies in the lower, which nobody may change through us.
    pub lower: bool,
}

/// What is looked for in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next byte of data.
    Data,
    /// The next hole.
    Hole,
}

/// An open file of the overlay.
pub(super) struct Handle {
    node: Arc<Node>,
    writable: bool,
    /// The kernel opened it to run it.
    program: bool,
    file: Mutex<Backing>,
}

#[derive(Clone)]
struct Backing {
    file: Arc<File>,
    is_upper: bool,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.program {
            self.node.programs.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Overlay {
    /// Opens a regular file; `flags` as in open(2), those of creation apart.
    pub fn open(&self, caller: &Caller, id: u64, flags: i32) -> Result<Opened> {
        let node = self.node(id)?;
        if !node.is_file() {
            return Err(if node.is_dir() {
                Errno::EISDIR
            } else {
                Errno::ENXIO
            });
        }
        let writable = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let cut = flags & libc::O_TRUNC != 0;
        let access = if writable || cut {
            Access::Write
        } else {
            Access::Read
        };
        let unasked = if writable || cut {
            None
        } else {
            self.open_unasked(&node)?
        };
        if unasked.is_none() {
            self.permit_node(caller, &node, access)?;
        }
        if cut && node.programs.load(Ordering::Acquire) > 0 {
            // The kernel refuses this as well, but with an open for reading only after we have cut.
            return Err(Errno::ETXTBSY);
        }
        if writable || cut {
            self.copy_up(&node, if cut { 0 } else { u64::MAX })?;
        }
        let (file, stat, is_upper) = match unasked {
            Some(opened) => opened,
            None => self.open_backing(&node, writable, cut)?,
        };
        let stamp = stamp(&stat);
        let before = node.state().stamp.replace(stamp);
        let unchanged = match before {
            // Nobody but us writes to the upper, and what is written through us the kernel knows.
            Some(before) if is_upper => before.3 == stamp.3 || before == stamp,
            Some(before) => before == stamp,
            None => false,
        };
        let program = flags & TO_RUN != 0;
        if program {
            node.programs.fetch_add(1, Ordering::AcqRel);
        }
        let handle = self.keep(Handle {
            node: node.clone(),
            writable,
            program,
            file: Mutex::new(Backing {
                file: Arc::new(file),
                is_upper,
            }),
        });
        self.saw_node(&node, access, 0);
        Ok(Opened {
            handle,
            unchanged,
            lower: !is_upper,
        })
    }

    /// Opens for reading what no rule speaks of, at the first look; `None` where the guard must be
    /// asked before.
    fn open_unasked(&self, node: &Arc<Node>) -> Result<Option<(File, Stat, bool)>> {
        let _tree = self.reading();
        let (place, stat) = self.located(node)?;
        if self.guard.decides() {
            let names = node.state().names.len();
            if names != 1 || Self::alias_by(node, &stat).is_some() || self.is_spoken_of(node) {
                return Ok(None);
            }
        }
        let is_upper = place.side == super::inode::Side::Upper;
        let file = File::from(Self::open_place(&place, OFlag::O_RDONLY)?);
        if is_upper {
            self.budget.note(node, &stat);
        }
        Ok(Some((file, stat, is_upper)))
    }

    fn open_backing(
        &self,
        node: &Arc<Node>,
        writable: bool,
        cut: bool,
    ) -> Result<(File, Stat, bool)> {
        let _tree = self.reading();
        let (place, stat) = if writable || cut {
            self.located_above(node)?
        } else {
            self.located(node)?
        };
        let is_upper = place.side == super::inode::Side::Upper;
        let flags = if writable || cut {
            OFlag::O_RDWR
        } else {
            OFlag::O_RDONLY
        };
        let file = File::from(Self::open_place(&place, flags)?);
        if is_upper {
            self.budget.note(node, &stat);
        }
        if cut {
            file.set_len(0).map_err(|e| errno(&e))?;
            Self::strip_special((file.as_fd(), c""), &stat)?;
            let stat = calls::stat_fd(file.as_fd())?;
            self.budget.settle(node, Some(&stat));
            return Ok((file, stat, is_upper));
        }
        Ok((file, stat, is_upper))
    }

    /// Takes the special bits away, as a change of content by an ordinary process does.
    pub(super) fn strip_special((dir, name): (BorrowedFd<'_>, &CStr), stat: &Stat) -> Result<()> {
        let group = stat.mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP;
        let gone = stat.mode & libc::S_ISUID | if group { libc::S_ISGID } else { 0 };
        if gone == 0 {
            return Ok(());
        }
        calls::chmod(dir, name, stat.mode & !gone)
    }

    fn keep(&self, handle: Handle) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.files
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(number, Arc::new(handle));
        number
    }

    /// Makes a regular file and opens it, whatever its mode says. It counts as one reference.
    pub fn create(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        flags: i32,
    ) -> Result<(Attr, Opened)> {
        let (attr, node, file) = self.make(caller, parent, name, &New::File { mode })?;
        let file = File::from(file.ok_or(Errno::EIO)?);
        let handle = self.keep(Handle {
            node,
            writable: flags & libc::O_ACCMODE != libc::O_RDONLY,
            program: false,
            file: Mutex::new(Backing {
                file: Arc::new(file),
                is_upper: true,
            }),
        });
        let opened = Opened {
            handle,
            unchanged: true,
            lower: false,
        };
        Ok((attr, opened))
    }

    /// Closes a file.
    pub fn release(&self, handle: u64) {
        let gone = self
            .files
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&handle);
        drop(gone);
    }

    fn handle(&self, handle: u64) -> Result<Arc<Handle>> {
        self.files
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&handle)
            .cloned()
            .ok_or(Errno::EBADF)
    }

    /// The file behind a handle, in the upper as soon as it is there.
    fn backing(&self, handle: &Handle) -> Result<Arc<File>> {
        let mut backing = held(&handle.file).clone();
        if !backing.is_upper && handle.node.raised.load(Ordering::Acquire) {
            let _tree = self.reading();
            let (place, _) = self.located(&handle.node)?;
            backing = Backing {
                file: Arc::new(File::from(Self::open_place(&place, OFlag::O_RDONLY)?)),
                is_upper: true,
            };
            *held(&handle.file) = backing.clone();
        }
        Ok(backing.file)
    }

    /// What `stat` says of an open file, where that is the better source: its name may be gone.
    pub(super) fn handle_stat(&self, handle: u64) -> Option<Result<Stat>> {
        let handle = self.handle(handle).ok()?;
        let file = match self.backing(&handle) {
            Ok(file) => file,
            Err(e) => return Some(Err(e)),
        };
        super::counters::count(&self.counters.physical_stats);
        Some(calls::stat_fd(file.as_fd()))
    }

    /// The file of a handle that may be written.
    pub(super) fn writable_file(&self, handle: u64) -> Option<Arc<File>> {
        let handle = self.handle(handle).ok()?;
        if !handle.writable {
            return None;
        }
        self.backing(&handle).ok()
    }

    /// What is read from: behind a handle, or an inode's own file for [`NO_HANDLE`].
    fn source(&self, caller: &Caller, id: u64, handle: u64) -> Result<(Arc<Node>, Arc<File>)> {
        if handle == NO_HANDLE {
            let node = self.file_node(id)?;
            let file = self.file_to_read(caller, &node)?;
            return Ok((node, file));
        }
        let handle = self.handle(handle)?;
        let file = self.backing(&handle)?;
        Ok((handle.node.clone(), file))
    }

    /// What is written to, likewise.
    fn target(&self, caller: &Caller, id: u64, handle: u64) -> Result<(Arc<Node>, Arc<File>)> {
        if handle == NO_HANDLE {
            let node = self.file_node(id)?;
            let file = self.file_to_write(caller, &node)?;
            return Ok((node, file));
        }
        let handle = self.handle(handle)?;
        if !handle.writable {
            return Err(Errno::EBADF);
        }
        let file = self.backing(&handle)?;
        Ok((handle.node.clone(), file))
    }

    /// Reads at `offset` into `buffer`; short at the end of the file only.
    pub fn read(
        &self,
        caller: &Caller,
        id: u64,
        handle: u64,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let (node, file) = self.source(caller, id, handle)?;
        // Of a regular file less than asked for is all there is.
        let done = loop {
            match file.read_at(buffer, offset) {
                Ok(n) => break n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(errno(&e)),
            }
        };
        self.saw_node(&node, Access::Read, done as u64);
        Ok(done)
    }

    /// Writes all of `data` at `offset`, or what there is room for. `strip`: the special bits go.
    pub fn write(
        &self,
        caller: &Caller,
        (id, handle): (u64, u64),
        offset: u64,
        data: &[u8],
        strip: bool,
    ) -> Result<usize> {
        let (node, file) = self.target(caller, id, handle)?;
        let mut special = None;
        if !node.plain.load(Ordering::Acquire) {
            let stat = calls::stat_fd(file.as_fd())?;
            if strip {
                Self::strip_special((file.as_fd(), c""), &stat)?;
            } else if stat.mode & (libc::S_ISUID | libc::S_ISGID) != 0 {
                special = Some(stat.mode);
            }
            node.plain.store(special.is_none(), Ordering::Release);
        }
        self.room_to_write(&file, offset, data.len() as u64)?;
        let mut done = 0;
        while done < data.len() {
            match file.write_at(&data[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) if done > 0 => break,
                Err(e) => return Err(errno(&e)),
            }
        }
        if let Some(mode) = special {
            // A store through a map takes nothing away, but this write of ours does (file_remove_privs()
            // asks for a capability in the first user namespace).
            calls::chmod(file.as_fd(), c"", mode)?;
        }
        self.settle(&node, &file)?;
        self.saw_node(&node, Access::Write, done as u64);
        Ok(done)
    }

    fn settle(&self, node: &Node, file: &File) -> Result<()> {
        if self.budget.limits() {
            self.budget
                .settle(node, Some(&calls::stat_fd(file.as_fd())?));
        }
        Ok(())
    }

    /// `ENOSPC` where the budget has no room; overwriting what is there needs none.
    fn room_to_write(&self, file: &File, offset: u64, length: u64) -> Result<()> {
        if !self.budget.limits() || self.budget.room_for(length).is_ok() {
            return Ok(());
        }
        let stat = calls::stat_fd(file.as_fd())?;
        let overwrites = offset + length <= stat.size && stat.allocated() >= stat.size;
        if overwrites {
            Ok(())
        } else {
            Err(Errno::ENOSPC)
        }
    }

    /// Allocates, punches, zeroes, collapses or inserts, as far as the upper's file system can.
    pub fn fallocate(
        &self,
        caller: &Caller,
        (id, handle): (u64, u64),
        mode: i32,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let (node, file) = self.target(caller, id, handle)?;
        if mode & libc::FALLOC_FL_PUNCH_HOLE == 0 && mode & libc::FALLOC_FL_COLLAPSE_RANGE == 0 {
            self.room_to_write(&file, offset, length)?;
        }
        calls::fallocate(&*file, mode, offset, length)?;
        self.settle(&node, &file)?;
        self.saw_node(&node, Access::Write, 0);
        Ok(())
    }

    /// Where data or a hole begins, from `offset` on.
    pub fn seek(
        &self,
        caller: &Caller,
        id: u64,
        handle: u64,
        offset: i64,
        what: Seek,
    ) -> Result<i64> {
        let (_, file) = self.source(caller, id, handle)?;
        let whence = match what {
            Seek::Data => nix::unistd::Whence::SeekData,
            Seek::Hole => nix::unistd::Whence::SeekHole,
        };
        nix::unistd::lseek(&*file, offset, whence)
    }

    /// Copies a range between two files within the file system beneath; each as its inode, its
    /// handle and the offset.
    pub fn copy_range(
        &self,
        caller: &Caller,
        from: (u64, u64, u64),
        to: (u64, u64, u64),
        length: u64,
    ) -> Result<usize> {
        let (target, to_file) = self.target(caller, to.0, to.1)?;
        // Both may be one file, which has moved to the upper by now.
        let (source, from_file) = self.source(caller, from.0, from.1)?;
        self.room_to_write(&to_file, to.2, length)?;
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(1 << 30);
        let copied = calls::copy_range((&*from_file, from.2), (&*to_file, to.2), length)?;
        self.settle(&target, &to_file)?;
        self.saw_node(&source, Access::Read, copied as u64);
        self.saw_node(&target, Access::Write, copied as u64);
        Ok(copied)
    }
}

pub(super) fn stamp(stat: &Stat) -> Stamp {
    (stat.mtime, stat.ctime, stat.size, stat.ino)
}
