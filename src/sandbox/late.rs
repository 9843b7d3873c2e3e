//! Keys that appear on the host while a session runs: a place of the built-in list that did not exist
//! at the start is hidden as soon as it is made. Owns the watch for that, in the helper, which shares
//! the agent's mount namespace and still may mount there.
//!
//! Between the host's making and the mask lies about a millisecond. A name that the agent had looked
//! up before stays absent to it for a while (the kernel remembers, for a second of a file server's
//! layer); it is tried again until it can be hidden, and may be seen for some 20 milliseconds then.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::stat::{SFlag, fstatat};

use super::{SandboxSpec, hidden, overlay, view};

/// Milliseconds until a place that exists but is not seen yet is looked at again: often while a file
/// server's answers are still believed (a second), later now and then.
const SOON: u16 = 20;
const LATER: u16 = 500;
/// How long it is looked at often.
const OFTEN: Duration = Duration::from_secs(3);

/// What is waited for.
pub(super) struct LateKeys {
    events: Inotify,
    /// The host's home directory.
    home: OwnedFd,
    /// As it is called inside.
    path: PathBuf,
    /// What the agent wrote over it.
    upper: Option<OwnedFd>,
    /// What is mounted over a place.
    masks: OwnedFd,
    /// Below the home directory; those that exist already are masked and not listed.
    missing: Vec<PathBuf>,
    /// Since when some of them exist on the host that could not be hidden yet.
    unsettled: Option<Instant>,
}

impl LateKeys {
    /// Opens the host's home and lists what is missing there; to be called before the view is made.
    pub fn missing(spec: &SandboxSpec) -> Option<(OwnedFd, Vec<PathBuf>)> {
        let home = overlay::open_dir(&spec.home).ok()?;
        Some((home, hidden::missing(&spec.home, &view::given_back(spec))))
    }

    /// Begins to wait. `None` where nothing can be watched: the session then is as safe as the list
    /// was at its start. Makes the host's home directory the current one of this process.
    pub fn watch(
        spec: &SandboxSpec,
        (home, missing): (OwnedFd, Vec<PathBuf>),
        upper: Option<BorrowedFd<'_>>,
        masks: OwnedFd,
    ) -> Option<Self> {
        // Watches are set by path, and inside there is none that leads to the host's directory.
        nix::unistd::fchdir(&home).ok()?;
        let mut late = Self {
            events: Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok()?,
            home,
            path: spec.home.clone(),
            upper: upper.and_then(|fd| fd.try_clone_to_owned().ok()),
            masks,
            missing,
            unsettled: None,
        };
        late.arm();
        // What was made between listing and arming.
        late.settle();
        Some(late)
    }

    /// Becomes readable when something was made.
    pub fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// After how many milliseconds [`LateKeys::settle`] should be called again, if at all.
    pub fn again(&self) -> Option<u16> {
        let often = self.unsettled?.elapsed() < OFTEN;
        Some(if often { SOON } else { LATER })
    }

    /// Hides what has appeared.
    pub fn settle(&mut self) {
        let mut news = false;
        while self
            .events
            .read_events()
            .is_ok_and(|events| !events.is_empty())
        {
            news = true;
        }
        let since = self.unsettled.take().filter(|_| !news);
        let missing = std::mem::take(&mut self.missing);
        for key in missing {
            // A dangling link shows nothing yet.
            if fstatat(&self.home, &key, AtFlags::empty()).is_err() {
                self.missing.push(key);
            } else if self.is_covered(&key) {
                // The agent's own file is what is seen there, and may be taken away again.
                self.missing.push(key);
            } else if !view::mask(&self.path.join(&key), &self.masks).unwrap_or(false) {
                self.missing.push(key);
                self.unsettled = Some(since.unwrap_or_else(Instant::now));
            }
        }
        // Directories on the way to others may be new.
        self.arm();
    }

    /// Whether something of the agent's lies over it, or over a directory on the way.
    fn is_covered(&self, key: &Path) -> bool {
        let Some(upper) = &self.upper else {
            return false;
        };
        key.ancestors()
            .filter(|part| !part.as_os_str().is_empty())
            .any(|part| {
                fstatat(upper, part, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(|stat| {
                    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFDIR
                })
            })
    }

    /// Watches the nearest directory that exists of each missing place.
    fn arm(&mut self) {
        let flags = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_ONLYDIR
            | AddWatchFlags::IN_DONT_FOLLOW;
        for key in &self.missing {
            for dir in key.ancestors().skip(1) {
                let dir = if dir.as_os_str().as_bytes().is_empty() {
                    Path::new(".")
                } else {
                    dir
                };
                // Twice the same directory is the same watch.
                match self.events.add_watch(dir, flags) {
                    Err(Errno::ENOENT | Errno::ENOTDIR) => {}
                    _ => break,
                }
            }
        }
    }
}
