//! A mount and the path it goes to. Owns how a mount point is found, and made where there is none;
//! what is mounted is decided elsewhere.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};

use super::failure::{Doing, Failure, shown};
use super::mount_api::{attach, clone_mount, here, restrict};
use crate::layer::points;

/// Whether directories may be made inside a place to hold further mounts.
#[derive(Debug, Clone)]
pub(super) enum Inside {
    /// The session's own: nobody else sees them.
    Ours,
    /// A directory that lives on across sessions: as the session's own.
    Kept,
    /// A staged layer, whose directory this is: they lie in its upper and are noted, so that
    /// nobody takes them for the agent's.
    Staged(Rc<OwnedFd>),
    /// The host's: they would be changes.
    Foreign,
}

/// One mount and where it goes.
pub(super) struct Place {
    /// Where, as it is called inside.
    pub target: PathBuf,
    /// The detached mount.
    pub mount: OwnedFd,
    /// What may be made in it.
    pub inside: Inside,
}

impl Place {
    /// A bind of a host path with everything below it.
    pub fn bind(
        source: &Path,
        target: PathBuf,
        attributes: u64,
        inside: Inside,
    ) -> Result<Self, Failure> {
        let mount = clone_mount(here(), source, true).doing_at("binding", source)?;
        restrict(mount.as_fd(), attributes, true, true).doing_at("restricting", source)?;
        Ok(Self {
            target,
            mount,
            inside,
        })
    }

    /// Attaches it, making its mount point where that is nobody's change.
    pub fn put(&self, earlier: &[Place]) -> Result<(), Failure> {
        let target = match resolve(&self.target) {
            Err(Errno::ENOENT) => {
                let around = earlier
                    .iter()
                    .rev()
                    .find(|e| self.target.starts_with(&e.target) && e.target != self.target);
                let Some(around) = around.filter(|e| !matches!(e.inside, Inside::Foreign)) else {
                    return Err(Failure::new(
                        format!("mounting {}", shown(&self.target)),
                        "there is nothing of this name to mount it on",
                    )
                    .hint(
                        "outside of staged directories a mount needs an existing directory or file \
                         of the same name on the host",
                    ));
                };
                self.make_point(around)?;
                resolve(&self.target)
            }
            other => other,
        };
        let target = target.doing_at("opening", &self.target)?;
        attach(self.mount.as_fd(), target.as_fd()).doing_at("mounting", &self.target)
    }

    /// Makes the missing directories of the target below `around`, and a file at its end for a file.
    fn make_point(&self, around: &Place) -> Result<(), Failure> {
        let doing = "making a mount point at";
        let tail = self.target.strip_prefix(&around.target);
        let names: Vec<_> = tail
            .into_iter()
            .flat_map(Path::components)
            .filter_map(|component| match component {
                Component::Normal(name) => Some(name),
                _ => None,
            })
            .collect();
        let is_dir = is_directory(&self.mount).doing_at(doing, &self.target)?;
        let mut dir = resolve(&around.target).doing_at(doing, &self.target)?;
        let mut path = PathBuf::new();
        let mut made = Vec::new();
        for (index, name) in names.iter().enumerate() {
            path.push(name);
            if index + 1 == names.len() && !is_dir {
                let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
                nix::fcntl::openat(&dir, *name, flags, Mode::from_bits_truncate(0o644))
                    .doing_at(doing, &self.target)?;
                made.push(path.clone());
                break;
            }
            match mkdirat(&dir, *name, Mode::from_bits_truncate(0o755)) {
                Ok(()) => made.push(path.clone()),
                Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno).doing_at(doing, &self.target),
            }
            let how = OpenHow::new()
                .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
                .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
            dir = openat2(&dir, *name, how).doing_at(doing, &self.target)?;
        }
        match &around.inside {
            Inside::Staged(dir) => {
                points::note(dir.as_fd(), &made).doing_at("noting a mount point at", &self.target)
            }
            _ => Ok(()),
        }
    }
}

/// The place a canonical path names in the view. A link on the way would lead elsewhere than the
/// person meant.
pub(super) fn resolve(path: &Path) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(here(), path, how)
}

/// Whether a descriptor is a directory's.
pub(super) fn is_directory(fd: &OwnedFd) -> Result<bool, Errno> {
    Ok(SFlag::from_bits_truncate(fstat(fd)?.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR)
}
