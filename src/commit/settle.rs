//! After the point of no return: displaced entries go to the store, where undo finds them, and
//! nothing temporary is left. Owns moving trees between file systems; repeated after a crash it
//! only does what is left to do.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use crate::LayerPath;
use crate::layer::FileType;
use crate::layer::read;

use super::astray::Directories;
use super::dress::{dress, own};
use super::lease::Lease;
use super::ledger::{self, Action, Source, Step};
use super::place::{Place, Root, below, xattrs};
use super::stage::copy_sparse;
use super::{CommitError, foreign, host, transaction};

/// How often an entry is copied anew because somebody writes to it, and how long is waited before:
/// two seconds in all. Then what was read last is kept.
const COPIES: u32 = 40;
const WRITTEN: std::time::Duration = std::time::Duration::from_millis(50);

/// Moves what a committed batch displaced into the store and closes its ledger.
pub(super) fn all(
    steps: &[Step],
    roots: &BTreeMap<String, Root>,
    store: &Path,
    number: u32,
    undoes: Option<u32>,
    directories: &Directories,
) -> Result<(), CommitError> {
    let dir = ledger::directory(store, number);
    let broken = |source| CommitError::store("keeping what was replaced in", &dir, source);
    let own = Root::at_path(String::new(), &dir).map_err(broken)?;
    for root in roots.values() {
        root.forget();
    }
    for (index, step) in steps.iter().enumerate() {
        let Some(root) = roots.get(&step.layer) else {
            continue;
        };
        let kept = match directories.stand(root, step) {
            Ok(true) => keep(root, step, &own, index),
            Ok(false) => Ok(()),
            Err(e) => Err(e),
        };
        kept.map_err(|source| CommitError::Unsettled {
            path: step.key(),
            source,
        })?;
    }
    if is_elsewhere(&own, roots) {
        // One file system keeps the order of what is done to it, two do not: that the ledger is
        // closed must not outlive a power loss which that the temporaries are gone does not.
        transaction::sync(roots)?;
    }
    if let Some(undone) = undoes {
        consume(steps, store, undone).map_err(broken)?;
        ledger::mark_undone(store, undone)?;
    }
    ledger::finish(store, number)
}

/// Whether the store lies on another file system than a layer.
fn is_elsewhere(store: &Root, roots: &BTreeMap<String, Root>) -> bool {
    let device = |root: &Root| {
        let look = root.look(&crate::RelPath::root()).ok().flatten();
        look.map(|look| look.node.dev)
    };
    roots.values().any(|root| device(root) != device(store))
}

fn keep(root: &Root, step: &Step, store: &Root, index: usize) -> io::Result<()> {
    let Action::Swap { before, .. } = &step.action else {
        return Ok(());
    };
    if before.is_empty() {
        return Ok(());
    }
    for name in [&step.aside, &step.second_aside()] {
        let aside = match root.at(name) {
            Ok(aside) => aside,
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
            Err(e) => return Err(e),
        };
        let home = store.at(&below(&format!("pre/{index}")))?;
        // Mostly one rename says all there is to know.
        match host::rename_new(&aside, &home) {
            Ok(()) => continue,
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => continue,
            Err(_) => {}
        }
        if aside.look()?.is_none() {
            continue;
        }
        if home.look()?.is_some() {
            // Copied by an earlier attempt that was cut short before it removed the original.
            host::remove_all(&aside)?;
        } else {
            relocate(&aside, &home)?;
        }
    }
    Ok(())
}

/// The undone commit's pre-images are on the host again; copies left in its store go.
fn consume(steps: &[Step], store: &Path, undone: u32) -> io::Result<()> {
    let root = match Root::at_path(String::new(), &ledger::directory(store, undone)) {
        Ok(root) => root,
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
        Err(e) => return Err(e),
    };
    for step in steps {
        if let Action::Swap {
            source: Source::Kept { number, step },
            ..
        } = &step.action
            && *number == undone
        {
            host::remove_all(&root.at(&below(&format!("pre/{step}")))?)?;
        }
    }
    Ok(())
}

/// Moves an entry, whole, to a free place: by rename, or by copying where that is another file
/// system; then the original goes when the copy and its name are on their device.
pub(super) fn relocate(from: &Place, to: &Place) -> io::Result<()> {
    if fetch(from, to)? == Fetched::Moved {
        return Ok(());
    }
    let opened = std::fs::File::from(read::open_dir(to.dir.as_fd(), b".")?);
    host::sync_file(&opened)?;
    host::remove_all(from)
}

/// How an entry came to its new place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fetched {
    /// By rename.
    Moved,
    /// It was copied there, and the original is where it was.
    Copied,
}

/// As [`relocate`], but an original that has to be copied stays, and the copy's name is not yet on
/// its device (the copy itself is: a name that is there after a crash is that of a whole copy).
pub(super) fn fetch(from: &Place, to: &Place) -> io::Result<Fetched> {
    match host::rename_new(from, to) {
        Err(e) if e.raw_os_error() == Some(libc::EXDEV) => {}
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
            return relocate_shut(from, to).map(|()| Fetched::Moved);
        }
        other => return other.map(|()| Fetched::Moved),
    }
    let part = part_of(to)?;
    for _ in 0..COPIES {
        host::remove_all(&part)?;
        copy_tree(from, &part)?;
        if is_copied(from, &part)? {
            break;
        }
        // Somebody writes to it, having opened it before it was moved aside.
        std::thread::sleep(WRITTEN);
    }
    let opened = read::open_dir(to.dir.as_fd(), b".")?;
    host::sync_file_system(opened.as_fd())?;
    host::rename_new(&part, to)?;
    Ok(Fetched::Copied)
}

/// Where a copy is made before it gets its name.
pub(super) fn part_of(to: &Place) -> io::Result<Place> {
    let mut name = to.name.as_bytes().to_vec();
    name.extend_from_slice(b".part");
    Ok(Place {
        dir: Arc::clone(&to.dir),
        name: std::ffi::CString::new(name)?,
    })
}

/// Whether nobody has a file of the original open for writing, nor has written since it was copied.
fn is_copied(from: &Place, copy: &Place) -> io::Result<bool> {
    let (Some(old), Some(new)) = (from.look()?, copy.look()?) else {
        return Ok(false);
    };
    match old.node.file_type {
        FileType::File => {
            let idle = from
                .open()
                .map_or(true, |file| Lease::try_take(file).is_some());
            // In this order: who came meanwhile has left a new time.
            let now = from.look()?.map(|look| (look.node.size, look.node.mtime));
            Ok(idle && now == Some((new.node.size, new.node.mtime)))
        }
        FileType::Dir => {
            let Ok(names) = from.names() else {
                return Ok(true);
            };
            let (old, new) = (Arc::new(from.handle()?), Arc::new(copy.handle()?));
            for name in names {
                let name = std::ffi::CString::new(name)?;
                let below = |dir: &Arc<std::os::fd::OwnedFd>| Place {
                    dir: Arc::clone(dir),
                    name: name.clone(),
                };
                if !is_copied(&below(&old), &below(&new))? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ => Ok(true),
    }
}

/// A directory can only go below another one while its owner may write it.
fn relocate_shut(from: &Place, to: &Place) -> io::Result<()> {
    let shut = || io::Error::from_raw_os_error(libc::EACCES);
    let look = from.look()?.ok_or_else(shut)?;
    if look.node.file_type != FileType::Dir || look.node.mode & 0o200 != 0 {
        return Err(shut());
    }
    let handle = from.handle()?;
    host::set_mode(handle.as_fd(), look.node.mode | 0o700)?;
    let moved = host::rename_new(from, to);
    host::set_mode(handle.as_fd(), look.node.mode)?;
    moved
}

fn copy_tree(from: &Place, to: &Place) -> io::Result<()> {
    let Some(look) = from.look()? else {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    };
    let mut node = look.node;
    match node.file_type {
        FileType::File => {
            let source = open_shut(from, node.mode)?;
            let target = host::create_file(to)?;
            if host::clone_file(source.as_fd(), target.as_fd()).is_err() {
                copy_sparse(&source, &target, node.size, &mut Vec::new())?;
            }
        }
        FileType::Dir => {
            host::create_dir(to)?;
            let shut = node.mode & 0o500 != 0o500;
            if shut {
                host::set_mode(from.handle()?.as_fd(), node.mode | 0o700)?;
            }
            let (old, new) = (Arc::new(from.handle()?), Arc::new(to.handle()?));
            for name in from.names()? {
                let name = std::ffi::CString::new(name)?;
                let below = |dir: &Arc<std::os::fd::OwnedFd>| Place {
                    dir: Arc::clone(dir),
                    name: name.clone(),
                };
                copy_tree(&below(&old), &below(&new))?;
            }
            if shut {
                host::set_mode(from.handle()?.as_fd(), node.mode)?;
            }
        }
        FileType::Symlink => {
            host::create_link(to, &from.read_link()?)?;
            own(to, &node)?;
            return host::set_mtime(to, node.mtime);
        }
        FileType::Fifo => host::create_fifo(to)?,
        FileType::Socket | FileType::Device => {
            return Err(io::Error::other(
                "sockets and devices cannot be copied to another file system",
            ));
        }
    }
    node.xattrs = xattrs(from.handle()?.as_fd())?;
    own(to, &node)?;
    dress(to.handle()?.as_fd(), &node)?;
    foreign::copy(from, to)?;
    host::set_mtime(to, node.mtime)
}

/// Opens a file for copying although its owner may not read it just now.
fn open_shut(at: &Place, mode: u32) -> io::Result<std::fs::File> {
    match at.open() {
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => {}
        other => return other,
    }
    let handle = at.handle()?;
    host::set_mode(handle.as_fd(), mode | 0o400)?;
    let opened = at.open();
    host::set_mode(handle.as_fd(), mode)?;
    opened
}

/// Every layer that these steps touch, for opening and locking their roots.
pub(super) fn layers(steps: &[Step], paths: &[LayerPath]) -> Vec<String> {
    let mut names: Vec<String> = steps
        .iter()
        .map(|step| step.layer.clone())
        .chain(paths.iter().map(|path| path.layer.clone()))
        .collect();
    names.sort();
    names.dedup();
    names
}
