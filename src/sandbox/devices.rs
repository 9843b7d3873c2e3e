//! A minimal `/dev`. Owns which nodes an agent gets: the harmless ones, bound from the host, and a
//! devpts of its own.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::symlinkat;

use super::failure::{Doing, Failure};
use super::mount_api::{
    MountFailure, MountOption, NO_EXEC, NO_SETUID, READ_ONLY, TAME, attach, clone_mount, here,
    new_mount, restrict,
};

/// Bound from the host.
const NODES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Symbolic links, as every Unix program expects them.
const LINKS: [(&str, &str); 5] = [
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// Everything `/dev` is made of, not yet in place.
pub(super) struct Devices {
    dev: OwnedFd,
    pts: OwnedFd,
    shm: OwnedFd,
    nodes: Vec<(&'static str, OwnedFd)>,
}

/// A private tmpfs whose root has `mode` (octal digits).
pub(super) fn tmpfs(mode: &str) -> Result<OwnedFd, MountFailure> {
    let mode = CString::new(mode).unwrap_or_default();
    new_mount(c"tmpfs", &[MountOption::Value(c"mode", mode)], TAME)
}

impl From<MountFailure> for super::failure::RawErrno {
    fn from(failure: MountFailure) -> Self {
        Self(failure.errno)
    }
}

impl Devices {
    /// Takes the nodes while the host's `/dev` can still be seen.
    pub fn collect() -> Result<Self, Failure> {
        let mut nodes = Vec::with_capacity(NODES.len());
        for name in NODES {
            let path = Path::new("/dev").join(name);
            match clone_mount(here(), &path, false) {
                Ok(node) => {
                    // Device nodes stay devices here; everywhere else they are dead.
                    restrict(node.as_fd(), NO_SETUID | NO_EXEC, false, true)
                        .doing_at("restricting", &path)?;
                    nodes.push((name, node));
                }
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno).doing_at("binding", &path),
            }
        }
        let pts = new_mount(
            c"devpts",
            &[
                MountOption::Flag(c"newinstance"),
                MountOption::Value(c"ptmxmode", c"0666".into()),
                MountOption::Value(c"mode", c"620".into()),
            ],
            NO_SETUID | NO_EXEC,
        )
        .doing("mounting a devpts")?;
        Ok(Self {
            dev: tmpfs("0755").doing("mounting a tmpfs for /dev")?,
            pts,
            shm: tmpfs("1777").doing("mounting a tmpfs for /dev/shm")?,
            nodes,
        })
    }

    /// Puts it over the view's `/dev`.
    pub fn place(self) -> Result<(), Failure> {
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        let target = open("/dev", flags, Mode::empty()).doing("opening /dev")?;
        attach(self.dev.as_fd(), target.as_fd()).doing("placing /dev")?;
        self.fill().doing("filling /dev")
    }

    fn fill(self) -> Result<(), Errno> {
        for (name, mount) in [("pts", self.pts), ("shm", self.shm)] {
            mkdirat(&self.dev, name, Mode::from_bits_truncate(0o755))?;
            place_at(&self.dev, name, &mount, OFlag::O_DIRECTORY)?;
        }
        for (name, target) in LINKS {
            symlinkat(target, &self.dev, name)?;
        }
        for (name, node) in &self.nodes {
            openat(
                &self.dev,
                *name,
                OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC,
                Mode::from_bits_truncate(0o444),
            )?;
            place_at(&self.dev, name, node, OFlag::empty())?;
        }
        restrict(self.dev.as_fd(), READ_ONLY, false, false)
    }
}

fn place_at(dir: &OwnedFd, name: &str, mount: &OwnedFd, flags: OFlag) -> Result<(), Errno> {
    let flags = flags | OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let target = openat(dir, name, flags, Mode::empty())?;
    attach(mount.as_fd(), target.as_fd())
}
