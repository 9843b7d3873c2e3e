//! Where an entry lies on the host, and what lies there. Owns resolving paths beneath a layer's
//! root without following a link or crossing a mount; only reads.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CStr, CString, OsString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::Mode;
use nix::unistd::AccessFlags;

use crate::RelPath;
use crate::layer::{Digest, FileType, Layer, Node, Timestamp};

/// Longest piece of a path that is handed to the kernel at once; deeper ones are walked.
const LONGEST: usize = 3000;
/// Directory descriptors kept open per root.
const CACHED: usize = 64;

/// A name in an open directory.
#[derive(Clone)]
pub(super) struct Place {
    pub dir: Rc<OwnedFd>,
    pub name: CString,
}

/// What `statx` says of a place. The node has no xattrs, target or digest.
pub(super) struct Look {
    pub node: Node,
    /// Immutable or append-only.
    pub sealed: Option<&'static str>,
    /// Something is mounted here.
    pub mount: bool,
}

/// A layer's root on the host.
pub(super) struct Root {
    pub layer: String,
    pub path: PathBuf,
    dir: Rc<OwnedFd>,
    cache: RefCell<VecDeque<(RelPath, Rc<OwnedFd>)>>,
}

impl Root {
    /// Opens the root; it must be a directory itself, not a link to one.
    pub fn open(layer: &Layer) -> io::Result<Self> {
        Self::at_path(layer.name.clone(), &layer.root)
    }

    /// Opens any directory the same way; used for the store.
    pub fn at_path(layer: String, path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let dir = nix::fcntl::open(path, flags, Mode::empty())?;
        Ok(Self {
            layer,
            path: path.to_owned(),
            dir: Rc::new(dir),
            cache: RefCell::default(),
        })
    }

    /// The root's descriptor, good for `flock`, `syncfs` and `fstatvfs`.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Drops the directories kept open, so that the next phase resolves every path again.
    pub fn forget(&self) {
        self.cache.borrow_mut().clear();
    }

    /// The directory `path`, as an `O_PATH` descriptor.
    pub fn directory(&self, path: &RelPath) -> io::Result<Rc<OwnedFd>> {
        if path.is_root() {
            return Ok(Rc::clone(&self.dir));
        }
        let mut cache = self.cache.borrow_mut();
        if let Some(at) = cache.iter().position(|(known, _)| known == path)
            && let Some(hit) = cache.remove(at)
        {
            let fd = Rc::clone(&hit.1);
            cache.push_front(hit);
            return Ok(fd);
        }
        let fd = Rc::new(self.resolve(path)?);
        cache.push_front((path.clone(), Rc::clone(&fd)));
        cache.truncate(CACHED);
        Ok(fd)
    }

    fn resolve(&self, path: &RelPath) -> io::Result<OwnedFd> {
        let mut at: Option<OwnedFd> = None;
        let mut piece: Vec<u8> = Vec::new();
        for name in path.components() {
            if !piece.is_empty() && piece.len() + name.len() > LONGEST {
                at = Some(beneath(at.as_ref().unwrap_or(&self.dir).as_fd(), &piece)?);
                piece.clear();
            }
            if !piece.is_empty() {
                piece.push(b'/');
            }
            piece.extend_from_slice(name);
        }
        beneath(at.as_ref().unwrap_or(&self.dir).as_fd(), &piece)
    }

    /// The place of `path`; its directory is resolved, the entry itself need not exist. The root
    /// itself is `.`, which can be read and given a mode but neither renamed nor removed.
    pub fn at(&self, path: &RelPath) -> io::Result<Place> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(Place {
                dir: Rc::clone(&self.dir),
                name: c".".to_owned(),
            });
        };
        Ok(Place {
            dir: self.directory(&parent)?,
            name: CString::new(name)?,
        })
    }

    /// What lies at `path`; `None` when nothing does or its directory is gone.
    pub fn look(&self, path: &RelPath) -> io::Result<Option<Look>> {
        if path.is_root() {
            // A workspace may well be a mount point itself.
            let look = look_fd(self.fd())?;
            return Ok(Some(Look {
                mount: false,
                ..look
            }));
        }
        match self.at(path) {
            Ok(place) => place.look(),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Whether this process may make and remove names in the directory `path`.
    pub fn writable(&self, path: &RelPath) -> io::Result<()> {
        let dir = self.directory(path)?;
        nix::unistd::faccessat(
            &*dir,
            c".",
            AccessFlags::W_OK | AccessFlags::X_OK,
            AtFlags::AT_EACCESS,
        )?;
        Ok(())
    }
}

fn beneath(dir: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(
            ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_MAGICLINKS
                | ResolveFlag::RESOLVE_NO_XDEV,
        );
    let path = CString::new(path)?;
    let mut tries = 0;
    loop {
        match openat2(dir, path.as_c_str(), how) {
            Ok(fd) => return Ok(fd),
            // A rename somewhere raced with the walk; the kernel asks to try again.
            Err(nix::Error::EAGAIN | nix::Error::EINTR) if tries < 64 => tries += 1,
            Err(e) => return Err(e.into()),
        }
    }
}

impl Place {
    /// What lies here.
    pub fn look(&self) -> io::Result<Option<Look>> {
        match statx(self.dir.as_raw_fd(), &self.name, libc::AT_SYMLINK_NOFOLLOW) {
            Ok(look) => Ok(Some(look)),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Opens a regular file for reading; never waits for a writer of a pipe.
    pub fn open(&self) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        Ok(File::from(openat(
            &*self.dir,
            self.name.as_c_str(),
            flags,
            Mode::empty(),
        )?))
    }

    /// Opens a directory for listing.
    pub fn open_dir(&self) -> io::Result<OwnedFd> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(openat(
            &*self.dir,
            self.name.as_c_str(),
            flags,
            Mode::empty(),
        )?)
    }

    /// Whether this process may list the directory here and look into it.
    pub fn is_open_to_us(&self) -> bool {
        nix::unistd::faccessat(
            &*self.dir,
            self.name.as_c_str(),
            AccessFlags::R_OK | AccessFlags::X_OK,
            AtFlags::AT_EACCESS | AtFlags::AT_SYMLINK_NOFOLLOW,
        )
        .is_ok()
    }

    /// A handle on whatever lies here, even when it cannot be read.
    pub fn handle(&self) -> io::Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(
            &*self.dir,
            self.name.as_c_str(),
            flags,
            Mode::empty(),
        )?)
    }

    /// The target of a symbolic link.
    pub fn read_link(&self) -> io::Result<Vec<u8>> {
        Ok(readlinkat(&*self.dir, self.name.as_c_str())?.into_vec())
    }
}

/// What an open descriptor is of.
pub(super) fn look_fd(fd: BorrowedFd<'_>) -> io::Result<Look> {
    statx(fd.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

fn statx(dir: libc::c_int, name: &CStr, flags: libc::c_int) -> io::Result<Look> {
    let mut buf = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: `name` is NUL-terminated and `buf` is a writable statx buffer; both outlive the
    // call. All-zero bytes are a valid `statx`, so `assume_init` holds whatever was filled in.
    let raw = unsafe {
        if libc::statx(
            dir,
            name.as_ptr(),
            flags,
            libc::STATX_BASIC_STATS,
            buf.as_mut_ptr(),
        ) != 0
        {
            return Err(io::Error::last_os_error());
        }
        buf.assume_init()
    };
    let attributes = raw.stx_attributes & raw.stx_attributes_mask;
    let has = |bit: libc::c_int| attributes & u64::from(bit.unsigned_abs()) != 0;
    let time = |t: libc::statx_timestamp| Timestamp {
        sec: t.tv_sec,
        nsec: t.tv_nsec,
    };
    let full = u32::from(raw.stx_mode);
    let file_type = FileType::from_mode(full);
    Ok(Look {
        sealed: if has(libc::STATX_ATTR_IMMUTABLE) {
            Some("immutable")
        } else if has(libc::STATX_ATTR_APPEND) {
            Some("append-only")
        } else {
            None
        },
        mount: has(libc::STATX_ATTR_MOUNT_ROOT),
        node: Node {
            file_type,
            mode: full & 0o7777,
            uid: raw.stx_uid,
            gid: raw.stx_gid,
            size: raw.stx_size,
            mtime: time(raw.stx_mtime),
            ctime: time(raw.stx_ctime),
            dev: libc::makedev(raw.stx_dev_major, raw.stx_dev_minor),
            ino: raw.stx_ino,
            nlink: raw.stx_nlink,
            rdev: if file_type == FileType::Device {
                libc::makedev(raw.stx_rdev_major, raw.stx_rdev_minor)
            } else {
                0
            },
            target: None,
            xattrs: BTreeMap::new(),
            digest: None,
        },
    })
}

/// The names in an open directory, in byte order.
pub(super) fn names(dir: OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut dir = nix::dir::Dir::from_fd(dir)?;
    let mut found = Vec::new();
    for entry in dir.iter() {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            found.push(name);
        }
    }
    found.sort();
    Ok(found)
}

/// The path by which calls that know no `O_PATH` descriptor reach one.
pub(super) fn proc_path(fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Whether an attribute is among those a commit carries.
pub(super) fn carried(name: &str) -> bool {
    name.starts_with("user.") || name == ACL_ACCESS || name == ACL_DEFAULT
}

/// POSIX ACL of an entry.
pub(super) const ACL_ACCESS: &str = "system.posix_acl_access";
/// POSIX ACL that new entries of a directory inherit.
pub(super) const ACL_DEFAULT: &str = "system.posix_acl_default";

/// The carried attributes of whatever `fd` stands for (an `O_PATH` descriptor will do).
pub(super) fn xattrs(fd: BorrowedFd<'_>) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let path = proc_path(fd);
    let listed = match xattr::list_deref(&path) {
        Ok(listed) => listed,
        Err(e) if e.raw_os_error() == Some(libc::ENOTSUP) => return Ok(BTreeMap::new()),
        Err(e) => return Err(e),
    };
    let mut found = BTreeMap::new();
    for name in listed {
        let Ok(name) = OsString::into_string(name) else {
            continue;
        };
        if carried(&name)
            && let Some(value) = xattr::get_deref(&path, &name)?
        {
            found.insert(name, value);
        }
    }
    Ok(found)
}

/// Hash of a file's content from its beginning; holes count as zeros.
pub(super) fn hash(file: &File) -> io::Result<Digest> {
    use std::os::unix::fs::FileExt;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 128 * 1024];
    let mut offset = 0;
    loop {
        match file.read_at(&mut buffer, offset) {
            Ok(0) => return Ok(Digest(*hasher.finalize().as_bytes())),
            Ok(n) => {
                hasher.update(&buffer[..n]);
                offset += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// The system's words for an error, without the number.
pub(super) fn words(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => nix::Error::from_raw(code).desc().to_owned(),
        None => crate::text::visible(error.to_string().as_bytes()).into_owned(),
    }
}

/// A path below the store, as [`Root::at`] takes it.
pub(super) fn below(text: &str) -> RelPath {
    // Only fixed words and numbers are put together here; a wrong one would be the store's root,
    // at which nothing can be made or removed.
    RelPath::new(text.as_bytes()).unwrap_or_default()
}

/// Bytes of an `OsStr` path for [`crate::text`].
pub(super) fn shown(path: &Path) -> String {
    crate::text::visible(path.as_os_str().as_bytes()).into_owned()
}
