//! Answers the kernel's requests. Owns the capabilities asked for, the lifetimes sent along and
//! nothing else: each request is one call of the overlay.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::translate::{attributes, caller, errno, kind, nothing, parts, set_time};
use crate::overlay::{
    Attr, Caller, Changes, EXTENDED_SIZE, FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR, NO_HANDLE, Opened,
    Overlay, Result, Seek,
};
use crate::sandbox::spec::CacheMode;

/// How long the kernel may believe what it was told, where the lower may be edited meanwhile.
const BRIEFLY: Duration = Duration::from_secs(1);

/// The same for the mount's whole life.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Bytes of a request at most; the kernel's own limit is 256 pages.
const LARGEST: u32 = 1 << 20;

/// As the kernel sends them, in 32 bits.
const GET_FLAGS: u32 = libc::FS_IOC_GETFLAGS as u32;
const SET_FLAGS: u32 = libc::FS_IOC_SETFLAGS as u32;

thread_local! {
    /// What was read goes from here into the answer.
    static READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The overlay behind one mount.
pub(super) struct Server {
    overlay: Overlay,
    /// For what the lower's owner may change.
    lifetime: Duration,
    /// For what only the overlay changes.
    stable: Duration,
    counts: bool,
    /// Nothing changes but through the kernel: it may keep what it knows.
    extended: bool,
    /// The kernel opens files by itself and speaks of them by their inode.
    by_node: bool,
}

impl Server {
    pub fn new(overlay: Overlay, cache: CacheMode) -> Self {
        // A lookup that the kernel answers itself is seen by nobody.
        let observes = overlay.guard().observes();
        let lasting = cache == CacheMode::Extended && !observes;
        // The built-in rules refuse the name already; others are asked when a file is opened.
        let extended = lasting && overlay.guard().settles_by_lookup();
        Self {
            overlay,
            lifetime: if lasting { FOR_EVER } else { BRIEFLY },
            stable: if observes { BRIEFLY } else { FOR_EVER },
            counts: observes,
            extended,
            by_node: false,
        }
    }

    fn lifetime(&self, attr: &Attr) -> Duration {
        if attr.guarded && self.by_node {
            // Found by a helper of ours alone, and nothing would be asked of who finds it kept.
            Duration::ZERO
        } else if attr.guarded {
            BRIEFLY
        } else if attr.stable {
            self.stable
        } else {
            self.lifetime
        }
    }

    fn entry(&self, reply: ReplyEntry, result: Result<Attr>) {
        match result {
            Ok(attr) => reply.entry(
                &self.lifetime(&attr),
                &attributes(&attr),
                Generation(attr.generation),
            ),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn attr(&self, reply: ReplyAttr, result: Result<Attr>) {
        match result {
            Ok(attr) => reply.attr(&self.lifetime(&attr), &attributes(&attr)),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn flags(opened: &Opened) -> FopenFlags {
        // Nothing is kept back for a flush: the kernel need not ask for one.
        let mut flags = FopenFlags::FOPEN_NOFLUSH;
        if opened.unchanged {
            flags |= FopenFlags::FOPEN_KEEP_CACHE;
        }
        flags
    }
}

fn empty(reply: ReplyEmpty, result: Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(errno(e)),
    }
}

fn sized(reply: ReplyXattr, size: u32, result: Result<Vec<u8>>) {
    match result {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(e) => reply.error(errno(e)),
    }
}

/// What an ioctl about inode flags comes to: the bytes of its answer.
fn inode_flags(
    overlay: &Overlay,
    caller: &Caller,
    id: u64,
    cmd: u32,
    given: &[u8],
) -> Result<Vec<u8>> {
    let invalid = crate::overlay::Errno::EINVAL;
    match cmd {
        GET_FLAGS => Ok(overlay.flags(id)?.to_ne_bytes().to_vec()),
        SET_FLAGS => {
            let word = given.first_chunk().ok_or(invalid)?;
            overlay.set_flags(caller, id, u32::from_ne_bytes(*word))?;
            Ok(Vec::new())
        }
        FS_IOC_FSGETXATTR => Ok(overlay.extended_flags(id)?.to_vec()),
        FS_IOC_FSSETXATTR if given.len() >= EXTENDED_SIZE => {
            overlay.set_extended_flags(id, given)?;
            Ok(Vec::new())
        }
        _ => Err(crate::overlay::Errno::ENOTTY),
    }
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wishes = vec![
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_POSIX_ACL,
            // The mask is applied here: a default ACL takes its place.
            InitFlags::FUSE_DONT_MASK,
            // Special bits are taken away here on writes, which spares the kernel a question about
            // capabilities before each of them.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_MAX_PAGES,
        ];
        if !self.counts {
            wishes.push(InitFlags::FUSE_DO_READDIRPLUS);
            wishes.push(InitFlags::FUSE_READDIRPLUS_AUTO);
        }
        let offered = |flag| config.capabilities().contains(flag);
        self.by_node = self.extended && offered(InitFlags::FUSE_NO_OPEN_SUPPORT);
        if self.by_node {
            self.overlay.serve_by_node();
        } else {
            // Where no open is sent, none can truncate: that comes as a change of size.
            wishes.push(InitFlags::FUSE_ATOMIC_O_TRUNC);
        }
        for wish in wishes {
            if config.add_capabilities(wish).is_err() {
                tracing::debug!(?wish, "the kernel does not offer this");
            }
        }
        let _ = config.set_max_write(LARGEST);
        let _ = config.set_max_readahead(LARGEST);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.overlay.requested("lookup");
        match self
            .overlay
            .lookup(&caller(req, 0), parent.0, name.as_bytes())
        {
            Ok(Some(attr)) => self.entry(reply, Ok(attr)),
            Ok(None) => reply.entry(&self.lifetime, &nothing(), Generation(0)),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        self.overlay.requested("forget");
        self.overlay.forget(ino.0, nlookup);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        self.overlay.requested("getattr");
        self.attr(reply, self.overlay.getattr(ino.0, fh.map(|f| f.0)));
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        fh: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.overlay.requested("setattr");
        let changes = Changes {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
        };
        let handle = fh.map(|f| f.0);
        let result = self
            .overlay
            .setattr(&caller(req, 0), ino.0, handle, &changes);
        self.attr(reply, result);
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        self.overlay.requested("readlink");
        match self.overlay.readlink(&caller(req, 0), ino.0) {
            Ok(target) => reply.data(&target),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.overlay.requested("mknod");
        let result = self.overlay.mknod(
            &caller(req, umask),
            parent.0,
            name.as_bytes(),
            mode,
            parts(rdev),
        );
        self.entry(reply, result);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.overlay.requested("mkdir");
        let result = self
            .overlay
            .mkdir(&caller(req, umask), parent.0, name.as_bytes(), mode);
        self.entry(reply, result);
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.overlay.requested("unlink");
        let result = self
            .overlay
            .unlink(&caller(req, 0), parent.0, name.as_bytes());
        empty(reply, result);
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.overlay.requested("rmdir");
        let result = self
            .overlay
            .rmdir(&caller(req, 0), parent.0, name.as_bytes());
        empty(reply, result);
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        self.overlay.requested("symlink");
        let result = self.overlay.symlink(
            &caller(req, 0),
            parent.0,
            link_name.as_bytes(),
            target.as_os_str().as_bytes(),
        );
        self.entry(reply, result);
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.overlay.requested("rename");
        let result = self.overlay.rename(
            &caller(req, 0),
            (parent.0, name.as_bytes()),
            (newparent.0, newname.as_bytes()),
            flags.bits(),
        );
        empty(reply, result);
    }

    fn link(
        &self,
        req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        self.overlay.requested("link");
        let result = self
            .overlay
            .link(&caller(req, 0), ino.0, newparent.0, newname.as_bytes());
        self.entry(reply, result);
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.overlay.requested("open");
        if self.by_node {
            // This is how the kernel is told that it need not ask, nor say when a file is closed.
            return reply.error(Errno::ENOSYS);
        }
        match self.overlay.open(&caller(req, 0), ino.0, flags.0) {
            Ok(opened) => reply.opened(FileHandle(opened.handle), Self::flags(&opened)),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.overlay.requested("read");
        READ.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self
                .overlay
                .read(&caller(req, 0), ino.0, fh.0, offset, &mut buffer[..size])
            {
                Ok(length) => reply.data(&buffer[..length]),
                Err(e) => reply.error(errno(e)),
            }
        });
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.overlay.requested("write");
        let strip = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        match self
            .overlay
            .write(&caller(req, 0), (ino.0, fh.0), offset, data, strip)
        {
            Ok(length) => reply.written(length as u32),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn release(
        &self,
        _: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.overlay.requested("release");
        self.overlay.release(fh.0);
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, req: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.overlay.requested("opendir");
        match self.overlay.opendir(&caller(req, 0), ino.0) {
            Ok(listing) => {
                let mut flags = FopenFlags::empty();
                // A listing that the kernel keeps brings no attributes along: it serves as long as
                // those of the last one do.
                if !self.counts {
                    flags |= FopenFlags::FOPEN_CACHE_DIR;
                    if listing.unchanged.is_some_and(|age| age < self.lifetime) {
                        flags |= FopenFlags::FOPEN_KEEP_CACHE;
                    }
                }
                reply.opened(FileHandle(listing.handle), flags);
            }
            Err(e) => reply.error(errno(e)),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.overlay.requested("readdir");
        let result = self.overlay.readdir(fh.0, offset, |entry, next| {
            reply.add(
                INodeNo(entry.id),
                next,
                kind(entry.kind),
                OsStr::from_bytes(&entry.name),
            )
        });
        match result {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.overlay.requested("readdirplus");
        let result = self.overlay.readdirplus(fh.0, offset, |entry, attr, next| {
            let name = OsStr::from_bytes(&entry.name);
            let Some(attr) = attr else {
                // The kernel takes no reference to these two, whatever comes along.
                let mut attr = nothing();
                attr.ino = INodeNo(entry.id);
                attr.kind = kind(entry.kind);
                return reply.add(attr.ino, next, name, &BRIEFLY, &attr, Generation(0));
            };
            // What is guarded has to be looked up for itself.
            let lifetime = if attr.guarded {
                Duration::ZERO
            } else {
                self.lifetime(attr)
            };
            reply.add(
                INodeNo(attr.id),
                next,
                name,
                &lifetime,
                &attributes(attr),
                Generation(attr.generation),
            )
        });
        match result {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn releasedir(
        &self,
        _: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.overlay.requested("releasedir");
        self.overlay.releasedir(fh.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.overlay.requested("statfs");
        match self.overlay.space() {
            Ok(space) => reply.statfs(
                space.blocks,
                space.free,
                space.available,
                space.files,
                space.files_free,
                space.block as u32,
                space.name as u32,
                space.fragment as u32,
            ),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        self.overlay.requested("setxattr");
        let result = self
            .overlay
            .setxattr(&caller(req, 0), ino.0, name.as_bytes(), value, flags);
        empty(reply, result);
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.overlay.requested("getxattr");
        let result = self
            .overlay
            .getxattr(&caller(req, 0), ino.0, name.as_bytes());
        sized(reply, size, result);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.overlay.requested("listxattr");
        let result = self.overlay.listxattr(&caller(req, 0), ino.0).map(|names| {
            let mut list = Vec::new();
            for name in names {
                list.extend_from_slice(name.as_bytes_with_nul());
            }
            list
        });
        sized(reply, size, result);
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.overlay.requested("removexattr");
        let result = self
            .overlay
            .removexattr(&caller(req, 0), ino.0, name.as_bytes());
        empty(reply, result);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.overlay.requested("create");
        if self.by_node {
            let mode = libc::S_IFREG | mode;
            let caller = caller(req, umask);
            let made = self
                .overlay
                .mknod(&caller, parent.0, name.as_bytes(), mode, (0, 0));
            return match made {
                Ok(attr) => reply.created(
                    &self.lifetime(&attr),
                    &attributes(&attr),
                    Generation(attr.generation),
                    FileHandle(NO_HANDLE),
                    FopenFlags::FOPEN_NOFLUSH | FopenFlags::FOPEN_KEEP_CACHE,
                ),
                Err(e) => reply.error(errno(e)),
            };
        }
        let result =
            self.overlay
                .create(&caller(req, umask), parent.0, name.as_bytes(), mode, flags);
        match result {
            Ok((attr, opened)) => reply.created(
                &self.lifetime(&attr),
                &attributes(&attr),
                Generation(attr.generation),
                FileHandle(opened.handle),
                Self::flags(&opened),
            ),
            Err(e) => reply.error(errno(e)),
        }
    }

    /// Inode flags only; their numbers are those of a 64-bit caller whoever asks.
    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        self.overlay.requested("ioctl");
        let result = inode_flags(&self.overlay, &caller(req, 0), ino.0, cmd, in_data);
        match result {
            Ok(told) => reply.ioctl(0, &told[..told.len().min(out_size as usize)]),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.overlay.requested("fallocate");
        let file = (ino.0, fh.0);
        empty(
            reply,
            self.overlay
                .fallocate(&caller(req, 0), file, mode, offset, length),
        );
    }

    fn lseek(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.overlay.requested("lseek");
        let what = match whence {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        match self
            .overlay
            .seek(&caller(req, 0), ino.0, fh.0, offset, what)
        {
            Ok(found) => reply.offset(found),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.overlay.requested("copy_file_range");
        let from = (ino_in.0, fh_in.0, offset_in);
        let to = (ino_out.0, fh_out.0, offset_out);
        match self.overlay.copy_range(&caller(req, 0), from, to, len) {
            Ok(copied) => reply.written(copied as u32),
            Err(e) => reply.error(errno(e)),
        }
    }
}
