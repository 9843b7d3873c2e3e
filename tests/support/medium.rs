//! Disks whose power can be cut. Owns files served by a FUSE server of the test itself, on which
//! loop devices and file systems lie: every write and every flush that reaches them is logged in
//! order, so that what the medium would hold after a power loss at any point can be made up later:
//! what was written before the last flush, and of the rest all, nothing or any part.
//!
//! Only root can make loop devices. The log is one for all disks: a point of it is an instant.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use nix::mount::{MntFlags, umount2};

use super::wait;
use super::world::World;

/// Size of each disk in bytes.
const SIZE: usize = 40 << 20;
/// What a device writes whole or not at all.
const BLOCK: usize = 4096;
/// Inode of the first disk.
const FIRST: u64 = 2;

/// What reached a disk.
enum Event {
    Write {
        disk: usize,
        at: usize,
        bytes: Vec<u8>,
    },
    Flush {
        disk: usize,
    },
}

struct Log {
    now: Vec<Vec<u8>>,
    events: Vec<Event>,
}

/// The disks of a test.
pub struct Medium {
    /// As they were before the first write.
    made: Vec<Vec<u8>>,
    log: Arc<Mutex<Log>>,
    /// Where the files lie that loop devices use.
    dir: PathBuf,
    /// Where disks after a cut are put.
    cuts: tempfile::TempDir,
    /// Cuts so far.
    count: AtomicUsize,
    server: Option<BackgroundSession>,
}

/// A mounted disk; unmounted when dropped.
pub struct Mounted {
    path: PathBuf,
}

impl Medium {
    /// So many disks, each with an empty ext4 that has a journal.
    pub fn make(world: &World, disks: usize) -> Result<Self, String> {
        if !nix::unistd::geteuid().is_root() {
            return Err("only root can make loop devices".into());
        }
        let text = |e: std::io::Error| e.to_string();
        let cuts = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir_in(&world.root))
            .map_err(text)?;
        let image = cuts.path().join("made");
        fs::write(&image, []).map_err(text)?;
        let mut made = Vec::new();
        for _ in 0..disks {
            fs::OpenOptions::new()
                .write(true)
                .open(&image)
                .and_then(|file| file.set_len(0).and_then(|()| file.set_len(SIZE as u64)))
                .map_err(text)?;
            let at = image.to_str().ok_or("a path that is not text")?;
            let features = "has_journal";
            let early = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
            run(
                "mkfs.ext4",
                &["-q", "-F", "-m", "0", "-O", features, "-E", early, at],
            )?;
            made.push(fs::read(&image).map_err(text)?);
        }
        fs::remove_file(&image).map_err(text)?;
        let log = Arc::new(Mutex::new(Log {
            now: made.clone(),
            events: Vec::new(),
        }));
        let dir = world.root.join("medium");
        fs::create_dir(&dir).map_err(text)?;
        let server = fuser::spawn_mount(Server(Arc::clone(&log)), &dir, &Config::default())
            .map_err(|e| format!("no FUSE: {e}"))?;
        Ok(Self {
            made,
            log,
            dir,
            cuts,
            count: AtomicUsize::new(0),
            server: Some(server),
        })
    }

    /// Mounts a disk; what is written to it from now on is logged.
    pub fn mount(&self, disk: usize, at: &Path) -> Result<Mounted, String> {
        mount(&self.dir.join(disk.to_string()), at)
    }

    /// How much has reached the disks: an instant of the log.
    pub fn instant(&self) -> usize {
        self.locked().events.len()
    }

    /// The instants right after each write between two others, and how many flushes there were.
    pub fn writes(&self, from: usize, to: usize) -> (Vec<usize>, usize) {
        let log = self.locked();
        let (writes, flushes): (Vec<usize>, Vec<usize>) =
            (from..to).partition(|index| matches!(log.events[*index], Event::Write { .. }));
        (
            writes.iter().map(|index| index + 1).collect(),
            flushes.len(),
        )
    }

    /// Puts the disks together as a power loss at an instant leaves them, `keep` asked for every
    /// block that was not flushed.
    pub fn cut(&self, instant: usize, mut keep: impl FnMut() -> bool) {
        let log = self.locked();
        self.count.fetch_add(1, Ordering::Relaxed);
        for (disk, made) in self.made.iter().enumerate() {
            let events = &log.events[..instant];
            let flushed = events
                .iter()
                .rposition(|event| matches!(event, Event::Flush { disk: at } if *at == disk))
                .unwrap_or(0);
            let mut image = made.clone();
            for (index, event) in events.iter().enumerate() {
                let Event::Write {
                    disk: on,
                    at,
                    bytes,
                } = event
                else {
                    continue;
                };
                if *on != disk {
                    continue;
                }
                for (block, part) in bytes.chunks(BLOCK).enumerate() {
                    if index < flushed || keep() {
                        let at = at + block * BLOCK;
                        image[at..at + part.len()].copy_from_slice(part);
                    }
                }
            }
            fs::write(self.cut_file(disk), image).expect("room for the disk");
            // The last one may still be in use for a moment, by a namespace that is going: a
            // file of its own, lest the loop device that lies on it be taken again.
            let _ = fs::remove_file(self.earlier(disk));
        }
    }

    /// Mounts a disk as the last [`Medium::cut`] left it; the file system replays its journal.
    pub fn mount_cut(&self, disk: usize, at: &Path) -> Mounted {
        mount(&self.cut_file(disk), at).expect("a disk that lost its power can be mounted")
    }

    fn cut_file(&self, disk: usize) -> PathBuf {
        let number = self.count.load(Ordering::Relaxed);
        self.cuts.path().join(format!("{disk}-{number}"))
    }

    fn earlier(&self, disk: usize) -> PathBuf {
        let number = self.count.load(Ordering::Relaxed).saturating_sub(1);
        self.cuts.path().join(format!("{disk}-{number}"))
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Medium {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            // A loop device that still lies on it keeps it for a moment.
            let _ = umount2(&self.dir, MntFlags::MNT_DETACH);
            drop(server);
        }
    }
}

impl Mounted {
    /// Unmounts it, when whoever uses it has ended.
    pub fn unmount(self) {
        let path = self.path.clone();
        let gone = wait::attempt(wait::PATIENCE, || {
            umount2(&path, MntFlags::empty()).is_ok().then_some(())
        });
        assert!(gone.is_some(), "{} stays in use", path.display());
        std::mem::forget(self);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
    }
}

fn mount(image: &Path, at: &Path) -> Result<Mounted, String> {
    let text = |path: &Path| path.to_str().map(str::to_owned).ok_or("no text");
    run("mount", &["-o", "loop", &text(image)?, &text(at)?])?;
    let mounted = Mounted { path: at.into() };
    let _ = fs::remove_dir(at.join("lost+found"));
    Ok(mounted)
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let done = Command::new(program)
        .args(args)
        .env("PATH", path)
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    done.status
        .success()
        .then_some(())
        .ok_or(format!("{program}: {said}"))
}

/// The files `0`, `1` and so on in one directory.
struct Server(Arc<Mutex<Log>>);

const LASTING: Duration = Duration::from_secs(3600);

impl Server {
    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attr(ino: INodeNo) -> FileAttr {
        let is_dir = ino == INodeNo::ROOT;
        let size = if is_dir { 0 } else { SIZE as u64 };
        FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind: if is_dir {
                FileType::Directory
            } else {
                FileType::RegularFile
            },
            perm: if is_dir { 0o700 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

fn disk(ino: INodeNo) -> usize {
    (ino.0 - FIRST) as usize
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let number = name.to_str().and_then(|name| name.parse::<u64>().ok());
        match number.filter(|n| *n < self.log().now.len() as u64) {
            Some(number) => {
                let attr = Self::attr(INodeNo(FIRST + number));
                reply.entry(&LASTING, &attr, Generation(0));
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&LASTING, &Self::attr(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let log = self.log();
        let start = (offset as usize).min(SIZE);
        let end = (start + size as usize).min(SIZE);
        reply.data(&log.now[disk(ino)][start..end]);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let at = offset as usize;
        let Some(end) = at.checked_add(data.len()).filter(|end| *end <= SIZE) else {
            return reply.error(Errno::ENOSPC);
        };
        let mut log = self.log();
        log.now[disk(ino)][at..end].copy_from_slice(data);
        log.events.push(Event::Write {
            disk: disk(ino),
            at,
            bytes: data.to_vec(),
        });
        reply.written(data.len() as u32);
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let mut log = self.log();
        log.events.push(Event::Flush { disk: disk(ino) });
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}
