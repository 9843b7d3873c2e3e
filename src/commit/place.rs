//! Where an entry lies on the host, and what lies there. Owns resolving paths beneath a layer's
//! root without following a link or crossing a mount; only reads.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::Mode;
use nix::unistd::AccessFlags;

use crate::RelPath;
use crate::layer::read::{self, ACL_ACCESS, ACL_DEFAULT, node_of, statx};
use crate::layer::tree::resolve;
use crate::layer::{Driver, Layer, Node};

/// Directory descriptors kept open per root.
const CACHED: usize = 64;

/// A name in an open directory.
#[derive(Clone)]
pub(super) struct Place {
    pub dir: Arc<OwnedFd>,
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
    /// The agent saw the host's files with all their names: one it has for itself was cut off.
    pub keeps_groups: bool,
    dir: Arc<OwnedFd>,
    cache: RefCell<VecDeque<(RelPath, Arc<OwnedFd>)>>,
}

impl Root {
    /// Opens the root; it must be a directory itself, not a link to one.
    pub fn open(layer: &Layer) -> io::Result<Self> {
        crate::layer::root::check(layer)?;
        Ok(Self {
            keeps_groups: layer.driver == Driver::Fuse,
            ..Self::at_path(layer.name.clone(), &layer.root)?
        })
    }

    /// Opens any directory the same way; used for the store.
    pub fn at_path(layer: String, path: &Path) -> io::Result<Self> {
        let dir = nix::fcntl::open(path, read::DIR_FLAGS, Mode::empty())?;
        Ok(Self {
            layer,
            path: path.to_owned(),
            keeps_groups: false,
            dir: Arc::new(dir),
            cache: RefCell::default(),
        })
    }

    /// The same root for another thread; each has directories of its own open.
    pub fn twin(&self) -> Self {
        Self {
            layer: self.layer.clone(),
            path: self.path.clone(),
            keeps_groups: self.keeps_groups,
            dir: Arc::clone(&self.dir),
            cache: RefCell::default(),
        }
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
    pub fn directory(&self, path: &RelPath) -> io::Result<Arc<OwnedFd>> {
        if path.is_root() {
            return Ok(Arc::clone(&self.dir));
        }
        let mut cache = self.cache.borrow_mut();
        if let Some(at) = cache.iter().position(|(known, _)| known == path)
            && let Some(hit) = cache.remove(at)
        {
            let fd = Arc::clone(&hit.1);
            cache.push_front(hit);
            return Ok(fd);
        }
        let fd = Arc::new(resolve(self.fd(), path, OFlag::O_PATH)?);
        cache.push_front((path.clone(), Arc::clone(&fd)));
        cache.truncate(CACHED);
        Ok(fd)
    }

    /// The place of `path`; its directory is resolved, the entry itself need not exist. The root
    /// itself is `.`, which can be read and given a mode but neither renamed nor removed.
    pub fn at(&self, path: &RelPath) -> io::Result<Place> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(Place {
                dir: Arc::clone(&self.dir),
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

impl Place {
    /// What lies here.
    pub fn look(&self) -> io::Result<Option<Look>> {
        Ok(statx(self.dir.as_fd(), &self.name)?.map(|raw| look_of(&raw)))
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

    /// The names in the directory that lies here, in byte order.
    pub fn names(&self) -> io::Result<Vec<Vec<u8>>> {
        let dir = read::open_dir(self.dir.as_fd(), self.name.as_bytes())?;
        read::list(dir.as_fd())
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
    let raw = statx(fd, c"")?.ok_or(io::ErrorKind::NotFound)?;
    Ok(look_of(&raw))
}

/// What `statx` told, as a place is looked at.
fn look_of(raw: &libc::statx) -> Look {
    let attributes = raw.stx_attributes & raw.stx_attributes_mask;
    let has = |bit: libc::c_int| attributes & u64::from(bit.unsigned_abs()) != 0;
    Look {
        sealed: if has(libc::STATX_ATTR_IMMUTABLE) {
            Some("immutable")
        } else if has(libc::STATX_ATTR_APPEND) {
            Some("append-only")
        } else {
            None
        },
        mount: has(libc::STATX_ATTR_MOUNT_ROOT),
        node: node_of(raw),
    }
}

/// The path by which calls that know no `O_PATH` descriptor reach one.
pub(super) fn proc_path(fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Whether an attribute is among those a commit carries.
pub(super) fn carried(name: &str) -> bool {
    name.starts_with("user.") || name == ACL_ACCESS || name == ACL_DEFAULT
}

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

/// A path as it may be shown.
pub(super) fn shown(path: &Path) -> String {
    crate::text::visible_path(path).into_owned()
}
