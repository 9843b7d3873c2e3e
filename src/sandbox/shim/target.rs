//! What a reported call means to the thread that made it: its path, read from its memory, resolved
//! from its own root and directories. Owns that resolution; changes nothing.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::{Mode, SFlag, fstatat};

use super::notify::Call;
use super::staged::Staged;
use crate::RelPath;
use crate::layer::read;

/// `PATH_MAX`, the NUL included.
const LONGEST: usize = 4096;

/// The machine's `/proc` as the server's own PID namespace sees it, and the server's own root.
pub struct Outlook {
    /// `/proc`.
    pub proc: OwnedFd,
    /// The root that this thread goes back to.
    pub root: OwnedFd,
}

/// One name of a rename: a directory descriptor's number and the address of a path.
#[derive(Debug, Clone, Copy)]
pub struct Name {
    dir: i32,
    address: u64,
}

impl Name {
    /// Where its path lies in the thread's memory.
    pub fn address(self) -> u64 {
        self.address
    }
}

/// A rename as it was called.
#[derive(Debug, Clone, Copy)]
pub struct Rename {
    pub old: Name,
    pub new: Name,
    pub flags: u32,
}

impl Rename {
    /// Reads the registers.
    pub fn of(call: &Call) -> Option<Self> {
        let [first, second, third, fourth, fifth, _] = call.arguments;
        let name = |dir: u64, address| Name {
            dir: dir as i32,
            address,
        };
        #[cfg(target_arch = "x86_64")]
        if i64::from(call.number) == libc::SYS_rename {
            let here = AT_FDCWD.as_raw_fd() as u64;
            return Some(Self {
                old: name(here, first),
                new: name(here, second),
                flags: 0,
            });
        }
        let flags = match libc::c_long::from(call.number) {
            libc::SYS_renameat => 0,
            libc::SYS_renameat2 => fifth as u32,
            _ => return None,
        };
        Some(Self {
            old: name(first, second),
            new: name(third, fourth),
            flags,
        })
    }
}

/// The path at an address of a thread's memory; `None` where there is none or it is too long, which
/// the kernel finds out as well.
pub fn read_path(thread: u32, address: u64) -> Option<Vec<u8>> {
    const PAGE: usize = 4096;
    let mut path = Vec::new();
    while path.len() < LONGEST {
        let at = address.checked_add(path.len() as u64)?;
        // Never across a page: the next one may not be there.
        let most = (PAGE - at as usize % PAGE).min(LONGEST - path.len());
        let start = path.len();
        path.resize(start + most, 0);
        let local = libc::iovec {
            iov_base: path[start..].as_mut_ptr().cast(),
            iov_len: most,
        };
        let remote = libc::iovec {
            iov_base: at as usize as *mut libc::c_void,
            iov_len: most,
        };
        // SAFETY: the local buffer is ours and as long as told; the remote address is not touched
        // by this process.
        let read = unsafe {
            libc::process_vm_readv(thread as i32, &raw const local, 1, &raw const remote, 1, 0)
        };
        let read = usize::try_from(read).ok().filter(|n| *n > 0)?;
        path.truncate(start + read);
        if let Some(end) = path[start..].iter().position(|b| *b == 0) {
            path.truncate(start + end);
            return Some(path);
        }
    }
    None
}

/// Whether the name means a directory; `None` where it cannot be told so quickly.
pub fn is_directory(outlook: &Outlook, thread: u32, name: Name, path: &[u8]) -> Option<bool> {
    let from = match path.first()? {
        b'/' => format!("{thread}/root"),
        _ => base(thread, name),
    };
    let through = [from.as_bytes(), b"/", path].concat();
    match fstatat(
        &outlook.proc,
        through.as_slice(),
        AtFlags::AT_SYMLINK_NOFOLLOW,
    ) {
        Ok(stat) => {
            let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
            Some(kind == SFlag::S_IFDIR)
        }
        // The prefix took the room that the path needs.
        Err(Errno::ENAMETOOLONG) => None,
        Err(_) => Some(false),
    }
}

fn base(thread: u32, name: Name) -> String {
    if name.dir == AT_FDCWD.as_raw_fd() {
        format!("{thread}/cwd")
    } else {
        format!("{thread}/fd/{}", name.dir)
    }
}

/// A name found in a layer.
pub struct Found<'a> {
    pub layer: &'a Staged,
    /// The directory that holds it, as the thread reaches it.
    pub parent: OwnedFd,
    /// Its last component.
    pub name: Vec<u8>,
    /// Where it lies in the layer.
    pub path: RelPath,
}

/// Resolves a name exactly as the kernel does for the thread, links in its directories included;
/// `None` where it does not lie in a layer, or means no entry that can be renamed.
pub fn find<'a>(
    outlook: &Outlook,
    layers: &'a [Staged],
    thread: u32,
    name: Name,
    path: &[u8],
) -> io::Result<Option<Found<'a>>> {
    let Some((directory, last)) = split(path) else {
        return Ok(None);
    };
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let link = |path: String| openat(&outlook.proc, path.as_str(), flags, Mode::empty());
    let root = link(format!("{thread}/root"))?;
    let start = if path.first() == Some(&b'/') {
        root.try_clone()?
    } else {
        link(base(thread, name))?
    };
    let parent = if same_place(root.as_fd(), outlook.root.as_fd())? {
        open_from(start.as_fd(), directory)?
    } else {
        // Only where the command may make namespaces of its own.
        enter(root.as_fd())?;
        let parent = open_from(start.as_fd(), directory);
        enter(outlook.root.as_fd())?;
        parent?
    };
    let device = read::stat_fd(parent.as_fd())?.dev;
    let Some(layer) = layers.iter().find(|layer| layer.device == device) else {
        return Ok(None);
    };
    let Some(within) = place_of(outlook, layer, parent.as_fd())? else {
        return Ok(None);
    };
    Ok(Some(Found {
        layer,
        parent,
        name: last.to_vec(),
        path: within.join(last),
    }))
}

/// Directory and last component; `None` where the last one names no entry of its own.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = path.iter().rposition(|b| *b != b'/')? + 1;
    let path = &path[..end];
    let (directory, last) = match path.iter().rposition(|b| *b == b'/') {
        Some(0) => (&path[..1], &path[1..]),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&b"."[..], path),
    };
    (last != b"." && last != b"..").then_some((directory, last))
}

fn open_from(start: BorrowedFd<'_>, directory: &[u8]) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        // A link of /proc means another thing to this process than to the one that called.
        .resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    loop {
        match openat2(start, directory, how) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Whether two descriptors stand for the same directory of the same mount.
fn same_place(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> io::Result<bool> {
    let (a, b) = (identity(a, c"")?, identity(b, c"")?);
    Ok(a.is_some() && a == b)
}

/// Mount, device and inode.
fn identity(dir: BorrowedFd<'_>, name: &std::ffi::CStr) -> io::Result<Option<(u64, u64, u64)>> {
    let Some(stat) = read::statx(dir, name)? else {
        return Ok(None);
    };
    let node = read::node_of(&stat);
    Ok(Some((stat.stx_mnt_id, node.dev, node.ino)))
}

/// Makes a directory this thread's root.
fn enter(root: BorrowedFd<'_>) -> io::Result<()> {
    nix::unistd::fchdir(root)?;
    Ok(nix::unistd::chroot(".")?)
}

/// Where a directory lies in a layer; `None` where it is reached in a way that does not tell.
fn place_of(outlook: &Outlook, layer: &Staged, dir: BorrowedFd<'_>) -> io::Result<Option<RelPath>> {
    let link = CString::new(format!("self/fd/{}", dir.as_raw_fd()))?;
    let path = match readlinkat(&outlook.proc, link.as_c_str()) {
        Ok(path) => path,
        // Deeper than the kernel tells at once.
        Err(Errno::ENAMETOOLONG) => return climb(layer, dir),
        Err(errno) => return Err(errno.into()),
    };
    let Some(path) = layer.relative(path.as_encoded_bytes()) else {
        return Ok(None);
    };
    let Ok(seen) = crate::layer::tree::resolve(layer.merged.as_fd(), &path, OFlag::O_PATH) else {
        return Ok(None);
    };
    let (there, here) = (read::stat_fd(seen.as_fd())?, read::stat_fd(dir)?);
    Ok(((there.dev, there.ino) == (here.dev, here.ino)).then_some(path))
}

/// The same, by looking for each directory's name in the one above.
fn climb(layer: &Staged, dir: BorrowedFd<'_>) -> io::Result<Option<RelPath>> {
    let top = read::stat_fd(layer.merged.as_fd())?;
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut at = dir.try_clone_to_owned()?;
    let mut here = read::stat_fd(at.as_fd())?;
    while (here.dev, here.ino) != (top.dev, top.ino) {
        let above = openat(&at, "..", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
        let node = read::stat_fd(above.as_fd())?;
        if node.dev != layer.device {
            return Ok(None);
        }
        let mut found = None;
        for name in read::list(above.as_fd())? {
            let entry = read::stat(above.as_fd(), &name)?;
            if entry.is_some_and(|e| (e.dev, e.ino) == (here.dev, here.ino)) {
                found = Some(name);
                break;
            }
        }
        let Some(name) = found else { return Ok(None) };
        names.push(name);
        (at, here) = (above, node);
    }
    names.reverse();
    Ok(RelPath::new(names.join(&b'/')).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_component_is_what_is_renamed() {
        let whole = |path: &'static str| {
            split(path.as_bytes()).map(|(dir, last)| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                (text(dir), text(last))
            })
        };
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        assert_eq!(whole("a"), pair(".", "a"));
        assert_eq!(whole("a//"), pair(".", "a"));
        assert_eq!(whole("/a"), pair("/", "a"));
        assert_eq!(whole("../b/a/"), pair("../b", "a"));
        for none in ["", "/", ".", "a/..", "./"] {
            assert_eq!(whole(none), None, "{none}");
        }
    }

    #[test]
    fn a_path_is_read_up_to_its_end_and_no_further() {
        let me = std::process::id();
        let text = std::ffi::CString::new("x".repeat(3_000)).expect("text");
        let read = read_path(me, text.as_ptr() as u64).expect("readable");
        assert_eq!(read, text.as_bytes());
        assert_eq!(read_path(me, 8), None);
        let long = std::ffi::CString::new("x".repeat(5_000)).expect("text");
        assert_eq!(read_path(me, long.as_ptr() as u64), None);
    }
}
