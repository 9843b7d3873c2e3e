//! The process that serves reported renames. Owns its life, its threads and the decision on each
//! call; renames nothing by itself. It is forked by the helper, outside of the session's PID
//! namespace and closed to tracing: nobody inside can signal it or look into it.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use super::super::namespace;
use super::super::wire::receive_fds;
use super::moving::make_pure;
use super::notify::{self, Call};
use super::rights::{self, OverFiles};
use super::staged::Staged;
use super::target::{self, Found, Outlook, Rename};
use crate::RelPath;
use crate::layer::FileType;
use crate::layer::read;

/// Threads that serve calls.
const THREADS: usize = 2;

/// What every thread works with.
struct Server {
    layers: Vec<Staged>,
    proc: OwnedFd,
    root: OwnedFd,
    listener: OwnedFd,
    /// One directory at a time: entries wander between two places meanwhile.
    moving: Mutex<()>,
}

/// The life of the process; the caller was just forked. `socket` brings the descriptor on which the
/// renames are reported, and ends with the namespace's first process.
pub fn run(layers: Vec<Staged>, proc: OwnedFd, socket: &UnixStream, helper: Pid) -> ! {
    // Only for people who look at a process list.
    let _ = nix::sys::prctl::set_name(c"pvisor-renamer");
    let ready = rights::reduce().is_ok()
        && namespace::die_with_parent().is_ok()
        && nix::sys::prctl::set_no_new_privs().is_ok();
    namespace::check_parent(helper);
    if !ready {
        namespace::leave(125);
    }
    raise_descriptors();
    let listener = receive_fds(socket)
        .ok()
        .and_then(|fds| fds.into_iter().next());
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let root = nix::fcntl::open("/", flags, Mode::empty());
    // Without a listener the command was never started.
    let (Some(listener), Ok(root)) = (listener, root) else {
        namespace::leave(0);
    };
    notify::hurry(listener.as_fd());
    let server = Arc::new(Server {
        layers,
        proc,
        root,
        listener,
        moving: Mutex::new(()),
    });
    let mut started = 0;
    for _ in 0..THREADS {
        let server = Arc::clone(&server);
        let thread = std::thread::Builder::new().name("renames".into());
        started += usize::from(thread.spawn(move || server.work()).is_ok());
    }
    if started == 0 {
        // Ending here ends the command as well: no rename of it would ever return.
        namespace::leave(125);
    }
    let mut polled = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    while poll(&mut polled, PollTimeout::NONE) == Err(Errno::EINTR) {}
    // What is half way is brought to an end: everybody it was for is gone, so that is soon.
    let _last = server.moving.lock().unwrap_or_else(PoisonError::into_inner);
    namespace::leave(0)
}

/// A deep tree holds some descriptors a level.
fn raise_descriptors() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls are about the one structure, which lives through them.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

impl Server {
    /// Serves calls until no process is left that could make one.
    fn work(&self) {
        // Root and current directory of a thread of its own.
        let own = unshare(CloneFlags::CLONE_FS).is_ok();
        let outlook = self.outlook().ok().filter(|_| own);
        loop {
            let call = match notify::receive(self.listener.as_fd()) {
                Ok(call) => call,
                Err(Errno::EINTR) => continue,
                Err(Errno::ENOENT) if !self.is_over() => continue,
                Err(_) => return,
            };
            // Whatever goes wrong here, the kernel's own answer is a right one.
            let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let outlook = outlook.as_ref()?;
                self.judge(outlook, &call).ok().flatten()
            }));
            match judged {
                Ok(Some(errno)) => notify::refuse(self.listener.as_fd(), call.id, errno),
                _ => notify::go_on(self.listener.as_fd(), call.id),
            }
        }
    }

    fn outlook(&self) -> io::Result<Outlook> {
        Ok(Outlook {
            proc: self.proc.try_clone()?,
            root: self.root.try_clone()?,
        })
    }

    fn is_over(&self) -> bool {
        let mut polled = [PollFd::new(self.listener.as_fd(), PollFlags::empty())];
        poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// The error a call is to fail with; `None`: the kernel carries it out, with the caller's own
    /// rights and on whatever its paths mean by then.
    fn judge(&self, outlook: &Outlook, call: &Call) -> io::Result<Option<Errno>> {
        let Some(rename) = Rename::of(call) else {
            return Ok(None);
        };
        let exchange = rename.flags & libc::RENAME_EXCHANGE != 0;
        if rename.flags & !(libc::RENAME_EXCHANGE | libc::RENAME_NOREPLACE) != 0 {
            return Ok(None);
        }
        let thread = call.thread;
        let waits = || notify::still_waits(self.listener.as_fd(), call.id);
        let Some(old_path) = target::read_path(thread, rename.old.address()) else {
            return Ok(None);
        };
        let directory = |name, path: &[u8]| target::is_directory(outlook, thread, name, path);
        let old_is_file = directory(rename.old, &old_path) == Some(false);
        if old_is_file && !exchange {
            return Ok(None);
        }
        let Some(new_path) = target::read_path(thread, rename.new.address()) else {
            return Ok(None);
        };
        if old_is_file && directory(rename.new, &new_path) == Some(false) {
            return Ok(None);
        }
        let find = |name, path: &[u8]| target::find(outlook, &self.layers, thread, name, path);
        let Some(old) = find(rename.old, &old_path)? else {
            return Ok(None);
        };
        let Some(new) = find(rename.new, &new_path)? else {
            return Ok(None);
        };
        // A number may have been given to another thread while we looked.
        if !waits() || !std::ptr::eq(old.layer, new.layer) {
            return Ok(None);
        }
        self.prepare(&old, &new, rename.flags, &waits)
    }

    /// Makes what is to be renamed pure, unless the kernel would refuse the rename anyway.
    fn prepare(
        &self,
        old: &Found<'_>,
        new: &Found<'_>,
        flags: u32,
        waits: &dyn Fn() -> bool,
    ) -> io::Result<Option<Errno>> {
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        let kind = |found: &Found<'_>| {
            let node = read::stat(found.parent.as_fd(), &found.name)?;
            io::Result::Ok(node.map(|n| n.file_type))
        };
        let (Some(old_kind), new_kind) = (kind(old)?, kind(new)?) else {
            return Ok(None);
        };
        // Into itself or over what it lies in, the same entry.
        if new.path.is_within(&old.path) || old.path.is_within(&new.path) {
            return Ok(None);
        }
        let hopeless = match new_kind {
            None => exchange,
            Some(_) if exchange => false,
            Some(FileType::Dir) => flags & libc::RENAME_NOREPLACE != 0,
            Some(_) => true,
        };
        if hopeless || !exchange && old_kind != FileType::Dir {
            return Ok(None);
        }
        let elsewhere = old.path.parent() != new.path.parent();
        let writable = may_write(old.parent.as_fd(), c"")
            && may_write(new.parent.as_fd(), c"")
            && (!elsewhere || may_move(old) && (!exchange || may_move(new)));
        if !writable {
            return Ok(None);
        }
        let _rights = OverFiles::raise()?;
        let layer = old.layer;
        let shows = |kind, path: &RelPath| {
            io::Result::Ok(kind == Some(FileType::Dir) && layer.shows_lower(path)?)
        };
        let needed = [
            shows(Some(old_kind), &old.path)?.then_some(&old.path),
            (exchange && shows(new_kind, &new.path)?).then_some(&new.path),
        ];
        if needed[0].is_some() && !exchange && new_kind.is_some() {
            let there = read::open_dir(new.parent.as_fd(), &new.name)?;
            if !read::list(there.as_fd())?.is_empty() {
                return Ok(Some(Errno::ENOTEMPTY));
            }
        }
        let _turn = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        for path in needed.into_iter().flatten() {
            // While it waited for its turn, another call may have done the same.
            if layer.shows_lower(path)? && make_pure(layer, path, waits).is_err() {
                break;
            }
        }
        Ok(None)
    }
}

/// Whether a directory may be moved to another one: its `..` changes.
fn may_move(found: &Found<'_>) -> bool {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let Ok(entry) = openat(&found.parent, found.name.as_slice(), flags, Mode::empty()) else {
        return false;
    };
    read::stat_fd(entry.as_fd()).is_ok_and(|node| node.file_type != FileType::Dir)
        || access(entry.as_fd(), c"", libc::W_OK)
}

fn may_write(dir: BorrowedFd<'_>, name: &CStr) -> bool {
    access(dir, name, libc::W_OK | libc::X_OK)
}

/// `faccessat2` with the rights this thread has now.
fn access(dir: BorrowedFd<'_>, name: &CStr, mode: libc::c_int) -> bool {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is borrowed and the name lives through the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            dir.as_raw_fd(),
            name.as_ptr(),
            mode,
            libc::AT_EACCESS | libc::AT_EMPTY_PATH,
        )
    };
    result == 0
}
