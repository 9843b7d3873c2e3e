//! The overlay file system over FUSE. Owns the transport: capabilities, cache lifetimes and the
//! translation of requests; what they mean is the overlay's business.
//!
//! Nothing is synced: a stage is volatile, its upper is synced as a whole by whoever owns it.
//! `fsync` is answered so that the kernel does not ask again and reports success.

mod filesystem;
mod translate;

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use fuser::{Config, Session, SessionACL};

use crate::overlay::Overlay;
use crate::sandbox::spec::CacheMode;
use filesystem::Server;

/// How a mount is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How long the kernel may believe what it was told.
    pub cache: CacheMode,
    /// Requests worked on at once. One that waits (for a person, for a large copy) holds up
    /// nobody as long as another is free.
    pub threads: usize,
}

/// Requests worked on at once where some may wait for a person.
const WAITING: usize = 24;
/// Requests worked on at once else. More threads take turns at being woken, each from a longer sleep:
/// that costs, and two are enough for one to be free while the other copies.
const AT_ONCE: usize = 2;

/// Threads that serve one layer, the one that waits for them among them; `waits` where a person may
/// be asked.
pub fn threads(waits: bool) -> u64 {
    1 + if waits { WAITING } else { AT_ONCE } as u64
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache: CacheMode::Default,
            threads: AT_ONCE,
        }
    }
}

/// What a new mount of type `fuse` is configured with, as fsconfig(2) takes it: names, and values
/// where they have one. `device` is an open `/dev/fuse`; user and group as the mount's own user
/// namespace numbers them.
pub fn mount_options(
    device: BorrowedFd<'_>,
    user: u32,
    group: u32,
) -> Vec<(&'static CStr, Option<CString>)> {
    let value = |text: String| Some(CString::new(text).unwrap_or_default());
    vec![
        (c"fd", value(device.as_raw_fd().to_string())),
        (c"rootmode", value("40000".to_owned())),
        (c"user_id", value(user.to_string())),
        (c"group_id", value(group.to_string())),
        (c"default_permissions", None),
        (c"allow_other", None),
    ]
}

/// Serves `overlay` on an open, mounted `/dev/fuse` until the mount is gone.
///
/// The file mode creation mask of the whole process is cleared: the overlay applies the callers'
/// own. Fails where the kernel's side cannot be agreed with, or the device breaks.
pub fn serve(device: OwnedFd, overlay: Overlay, options: Options) -> io::Result<()> {
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    let mut config = Config::default();
    config.acl = SessionACL::All;
    // Where a person may be asked, many requests may wait at once.
    let threads = if overlay.guard().waits() {
        options.threads.max(WAITING)
    } else {
        options.threads.max(1)
    };
    config.n_threads = Some(threads);
    config.clone_fd = threads > 1;
    let server = Server::new(overlay, options.cache);
    Session::from_fd(server, device, SessionACL::All, config)?.run()
}
