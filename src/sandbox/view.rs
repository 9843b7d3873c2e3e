//! What the agent sees of the machine. Owns the table of mounts: its order, its sources and where
//! each goes. Runs in the session's own user and mount namespace, before anything of the agent
//! exists.
//!
//! Everything that comes from the host is opened or cloned first; then the host's tree, read-only,
//! becomes the root; then the places are put on it, outermost first; then the masks.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, readlink};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, mkdirat};
use nix::unistd::symlinkat;

use super::boundary::LayerBoundary;
use super::devices::{Devices, tmpfs};
use super::failure::{Doing, Failure, shown};
use super::file_server::{self, FileServer};
use super::mount_api::{READ_ONLY, TAME, attach, clone_mount, here, pivot_into, restrict};
use super::place::{Inside, Place, is_directory};
use super::spec::{MountAccess, MountSpec};
use super::staging::Staging;
use super::{SandboxSpec, hidden};
use crate::layer::Driver;

/// The finished view.
#[derive(Default)]
pub(super) struct View {
    /// The layers, for whoever reads and restores their uppers.
    pub layers: Vec<MountedLayer>,
    /// For the boundary.
    pub reasons: Vec<LayerBoundary>,
    /// Masked places.
    pub hidden: Vec<String>,
    /// Places written directly.
    pub writable: Vec<String>,
    /// Private places that live on, with their names.
    pub kept: Vec<String>,
    /// What could not be had.
    pub notes: Vec<String>,
    /// Holds what lies over masked places; for [`mask`].
    pub masks: Option<OwnedFd>,
    /// Whoever serves the layers that the kernel does not merge.
    pub file_server: Option<FileServer>,
}

/// The directories of one layer, held open from before the view was made.
pub(super) struct MountedLayer {
    /// Its name.
    pub name: String,
    /// The host's side; `None` when it could not be opened.
    pub lower: Option<OwnedFd>,
    /// The agent's changes.
    pub upper: OwnedFd,
    /// What the agent sees; `None` when the layer is not mounted.
    pub merged: Option<OwnedFd>,
    /// Who merges it.
    pub driver: Driver,
}

/// Builds the view and makes it the root of this mount namespace.
pub(super) fn build(spec: &SandboxSpec, lines: file_server::Lines) -> Result<View, Failure> {
    let mut view = View {
        notes: spec.notes.clone(),
        ..View::default()
    };
    let masks = wanted_masks(spec);
    refuse_hidden_layers(spec, &masks)?;

    let devices = Devices::collect()?;
    let mut places = private_places(&spec.private)?;
    runtime_places(&mut places)?;
    let mut staging = Staging::prepare(spec, &masks, &mut view, &mut places)?;
    for mount in &spec.mounts {
        bind(mount, spec, &mut view, &mut places)?;
    }
    view.file_server = staging.serve(spec, lines)?;

    let root = clone_mount(here(), Path::new("/"), true).doing("copying the mount table")?;
    restrict(root.as_fd(), READ_ONLY | TAME, true, true).doing("making / read-only")?;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let slash = open("/", flags, Mode::empty()).doing("opening /")?;
    attach(root.as_fd(), slash.as_fd()).doing("placing the new root")?;
    pivot_into(&root).doing("changing the root")?;

    // Seen through the new root, read-only, and only as long as nothing lies on top of it.
    let store = open(&spec.private, flags, Mode::empty()).doing_at("opening", &spec.private)?;
    devices.place()?;
    // Outermost first, so that a place inside another one lies on top of it.
    places.sort_by_key(|place| place.target.components().count());
    for index in 0..places.len() {
        let (earlier, rest) = places.split_at(index);
        let place = &rest[0];
        match place.put(earlier) {
            Ok(()) => {
                if matches!(place.inside, Inside::Kept) {
                    view.kept.push(shown(&place.target));
                }
            }
            // The command does without what it may keep, and everybody is told.
            Err(failure) if matches!(place.inside, Inside::Kept) => view.notes.push(format!(
                "{} is not kept across sessions: {}: {}",
                shown(&place.target),
                failure.doing,
                failure.cause
            )),
            Err(failure) => return Err(failure),
        }
    }
    for path in masks {
        if mask(&path, &store)? {
            view.hidden.push(shown(&path));
        }
    }
    view.masks = Some(store);
    staging.finish(&mut view)?;
    Ok(view)
}

/// Places of the built-in list that the person gave back.
pub(super) fn given_back(spec: &SandboxSpec) -> Vec<PathBuf> {
    let mut given_back = spec.unhide.clone();
    for mount in &spec.mounts {
        if mount.access != MountAccess::Hide {
            given_back.push(mount.target.clone());
        }
    }
    given_back
}

/// Every path to mask that exists on the host.
fn wanted_masks(spec: &SandboxSpec) -> Vec<PathBuf> {
    let given_back = given_back(spec);
    let mut masks = hidden::existing(&spec.home, &given_back);
    let asked = spec
        .mounts
        .iter()
        .filter(|mount| mount.access == MountAccess::Hide)
        .map(|mount| &mount.target);
    masks.extend(spec.hide.iter().chain(asked).cloned());
    // The stage itself, wherever it lies: reading an upper through a lower is undefined.
    masks.extend(spec.layers.iter().map(|layer| layer.dir.clone()));
    masks.push(spec.private.clone());
    masks.sort();
    // Sorted, a directory stands right before what lies in it.
    masks.dedup_by(|inner, outer| inner.starts_with(outer));
    masks
}

/// A layer inside a hidden place would be hidden with it.
fn refuse_hidden_layers(spec: &SandboxSpec, masks: &[PathBuf]) -> Result<(), Failure> {
    for path in masks {
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        if let Some(layer) = spec.layers.iter().find(|l| l.root.starts_with(&real)) {
            return Err(Failure::new(
                format!("staging {}", shown(&layer.root)),
                format!("it lies in {}, which is hidden from agents", shown(path)),
            )
            .hint(format!(
                "choose another directory; if {} is your own, give it back with `--mount {}:read`",
                shown(path),
                shown(path)
            )));
        }
    }
    Ok(())
}

/// `/tmp` and `/var/tmp`, on disk in the session's directory, and the two masks' sources.
fn private_places(private: &Path) -> Result<Vec<Place>, Failure> {
    let mut places = Vec::new();
    for (target, name) in [("/tmp", "tmp"), ("/var/tmp", "var-tmp")] {
        let dir = private.join(name);
        make_dir(&dir, 0o1777).doing_at("making", &dir)?;
        let Ok(target) = std::fs::canonicalize(target) else {
            continue;
        };
        places.push(Place::bind(&dir, target, TAME, Inside::Ours)?);
    }
    let (dir, file) = (private.join(MASK_DIR), private.join(MASK_FILE));
    make_dir(&dir, 0).doing_at("making", &dir)?;
    let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    open(&file, flags, Mode::empty()).doing_at("making", &file)?;
    Ok(places)
}

/// An empty directory and an empty file without any permission, in the session's directory.
const MASK_DIR: &str = "hidden-dir";
const MASK_FILE: &str = "hidden-file";

fn make_dir(path: &Path, mode: u32) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(path)?;
    // Not left to the umask.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// `/run` anew, with what name resolution needs of it.
fn runtime_places(places: &mut Vec<Place>) -> Result<(), Failure> {
    let Ok(run) = std::fs::canonicalize("/run") else {
        return Ok(());
    };
    let mount = tmpfs("0755").doing("mounting a tmpfs for /run")?;
    fill_runtime(&mount, &run).doing("filling /run")?;
    if let Ok(real) = std::fs::canonicalize("/etc/resolv.conf")
        && real.starts_with(&run)
    {
        // systemd-resolved answers on a socket beside its file; of others the file is enough.
        let resolved = run.join("systemd/resolve");
        let source = if real.starts_with(&resolved) {
            resolved
        } else {
            real
        };
        let attributes = READ_ONLY | TAME;
        places.push(Place::bind(
            &source,
            source.clone(),
            attributes,
            Inside::Foreign,
        )?);
    }
    places.push(Place {
        target: run,
        mount,
        inside: Inside::Ours,
    });
    Ok(())
}

/// What programs expect to find in `/run`: their user's directory, a place for locks, and the
/// links through which some distributions reach all their programs.
fn fill_runtime(run: &OwnedFd, host: &Path) -> Result<(), Errno> {
    let user = format!("user/{}", nix::unistd::geteuid());
    for (name, mode) in [("user", 0o755), (user.as_str(), 0o700), ("lock", 0o1777)] {
        let mode = Mode::from_bits_truncate(mode);
        mkdirat(run, name, mode)?;
        // Not left to the umask.
        fchmodat(run, name, mode, FchmodatFlags::FollowSymlink)?;
    }
    for name in ["current-system", "booted-system", "opengl-driver"] {
        if let Ok(target) = readlink(&host.join(name)) {
            symlinkat(target.as_os_str(), run, name)?;
        }
    }
    Ok(())
}

/// One mount asked for by the person.
fn bind(
    mount: &MountSpec,
    spec: &SandboxSpec,
    view: &mut View,
    places: &mut Vec<Place>,
) -> Result<(), Failure> {
    let target = mount.target.clone();
    if target.parent().is_none() && mount.access != MountAccess::Hide {
        return Err(Failure::new(
            "mounting /",
            "the whole machine cannot be given at once",
        ));
    }
    let place = match mount.access {
        // Layers stand in the specification by themselves, masks come last.
        MountAccess::Stage | MountAccess::Hide => return Ok(()),
        MountAccess::Read => Place::bind(&mount.source, target, READ_ONLY | TAME, Inside::Foreign)?,
        MountAccess::Write => {
            view.writable.push(shown(&mount.target));
            Place::bind(&mount.source, target, TAME, Inside::Foreign)?
        }
        MountAccess::Keep => Place::bind(&mount.source, target, TAME, Inside::Kept)?,
        MountAccess::Private => {
            // Named by what it stands for: the same place again when the session goes on.
            let name = blake3::hash(target.as_os_str().as_encoded_bytes()).to_hex();
            let dir = spec.private.join("mounts").join(&name.as_str()[..16]);
            make_dir(&dir, 0o755).doing_at("making", &dir)?;
            Place::bind(&dir, target, TAME, Inside::Ours)?
        }
    };
    places.push(place);
    Ok(())
}

/// Puts an empty, unreadable thing over `path` and over whatever it links to. `false` when the
/// view has no such path.
pub(super) fn mask(path: &Path, store: &OwnedFd) -> Result<bool, Failure> {
    let target = match open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()) {
        Ok(target) => target,
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(false),
        Err(errno) => return Err(errno).doing_at("hiding", path),
    };
    let name = if is_directory(&target).doing_at("hiding", path)? {
        MASK_DIR
    } else {
        MASK_FILE
    };
    let mount = clone_mount(store.as_fd(), Path::new(name), false).doing_at("hiding", path)?;
    match attach(mount.as_fd(), target.as_fd()) {
        // Removed since it was opened: a socket whose service has just ended.
        Err(Errno::ENOENT) => Ok(false),
        other => other.doing_at("hiding", path).map(|()| true),
    }
}
