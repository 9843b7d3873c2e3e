//! Publication: prepared entries and their destinations change places, under lease, and what came
//! out is looked at. Owns one step forward; the way back is [`super::back`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::RelPath;
use crate::change::Conflict;
use crate::layer::read::{ACL_ACCESS, ACL_DEFAULT};
use crate::layer::{FileType, Node};

use super::lease::{Lease, Patience};
use super::ledger::{Action, Piece, Step};
use super::place::{Place, Root, look_fd, proc_path, words, xattrs};
use super::verify::{self, Expect, Tree};
use super::{Refusal, host, preflight};

/// Steps published under leases that are held together; two descriptors each at most.
const TOGETHER: usize = 256;
/// How long the leases are held on after the last step, so that whoever had looked a name up
/// before it was exchanged shows itself.
const GRACE: Duration = Duration::from_micros(300);

/// Publishes every step. On a refusal `go_back` is called while the leases of the latest steps
/// are still held, so that nobody writes to an inode that is about to lose its name.
pub(super) fn all<T>(
    steps: &[Step],
    roots: &BTreeMap<String, Root>,
    go_back: impl FnOnce(Refusal) -> T,
) -> Result<(), T> {
    let moved = preflight::moved(steps);
    let patience = Patience::new();
    for chunk in steps.chunks(TOGETHER) {
        let mut held = Vec::new();
        for step in chunk {
            let Some(root) = roots.get(&step.layer) else {
                continue;
            };
            let mut publisher = Publisher {
                root,
                moved: moved.get(&step.layer),
                patience: &patience,
                held: &mut held,
                step,
            };
            if let Err(reason) = publisher.publish() {
                let key = step.key();
                return Err(go_back(Refusal { key, reason }));
            }
        }
        if !held.is_empty() {
            std::thread::sleep(GRACE);
        }
        if let Some((step, _)) = held.iter().find(|(_, lease)| !lease.stands()) {
            let refusal = Refusal {
                key: step.key(),
                reason: LATE.into(),
            };
            return Err(go_back(refusal));
        }
    }
    Ok(())
}

const LATE: &str = "a program on the host opened it for writing at this moment; its save stands";

struct Publisher<'a, 'b> {
    root: &'a Root,
    moved: Option<&'a BTreeSet<RelPath>>,
    patience: &'a Patience,
    held: &'b mut Vec<(&'a Step, Lease)>,
    step: &'a Step,
}

fn failed(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EEXIST) => Conflict::HostCreated.describe(),
        Some(libc::ENOENT) => Conflict::HostDeleted.describe(),
        Some(libc::ELOOP | libc::ENOTDIR) => {
            "a directory on its path was replaced by a link or a file meanwhile".into()
        }
        _ => format!("it could not be written: {}", words(error)),
    }
}

impl Publisher<'_, '_> {
    fn publish(&mut self) -> Result<(), String> {
        let step = self.step;
        let place = self.root.at(&step.path).map_err(|e| failed(&e))?;
        match &step.action {
            Action::Swap { before, after, .. } => {
                let aside = self.root.at(&step.aside).map_err(|e| failed(&e))?;
                match (before.first(), after.first()) {
                    (None, None) => Ok(()),
                    (None, Some(_)) => host::rename_new(&aside, &place).map_err(|e| failed(&e)),
                    (Some(old), after) => {
                        self.lease(&place, &old.node)?;
                        let swapped = if after.is_some() {
                            swap(self.root, step, &place, &aside)
                        } else {
                            host::rename_new(&place, &aside)
                        };
                        swapped.map_err(|e| failed(&e))?;
                        self.inspect(before)
                    }
                }
            }
            Action::Move {
                from,
                before,
                after,
            } => {
                let old = self.root.at(from).map_err(|e| failed(&e))?;
                self.lease(&old, before)?;
                host::rename_new(&old, &place).map_err(|e| failed(&e))?;
                let found = place.look().map_err(|e| failed(&e))?;
                if found.is_none_or(|look| look.node.ino != before.ino) {
                    return Err(Conflict::HostModified.describe());
                }
                adjust(&place, before, after).map_err(|e| failed(&e))
            }
            Action::Meta { before, after } => {
                let look = place.look().map_err(|e| failed(&e))?;
                let Some(look) = look else {
                    return Err(Conflict::HostDeleted.describe());
                };
                match verify::entry(&place, &look, before, false) {
                    Ok(None) => adjust(&place, before, after).map_err(|e| failed(&e)),
                    Ok(Some(conflict)) => Err(conflict.describe()),
                    Err(e) => Err(failed(&e)),
                }
            }
        }
    }

    /// Takes the lease on the entry that is about to go and looks at it once more under it.
    fn lease(&mut self, place: &Place, expect: &Node) -> Result<(), String> {
        let look = place.look().map_err(|e| failed(&e))?;
        let Some(look) = look else {
            return Err(Conflict::HostDeleted.describe());
        };
        if expect.file_type != FileType::File || look.node.file_type != FileType::File {
            if look.node.file_type != expect.file_type {
                return Err(Conflict::HostTypeChanged.describe());
            }
            if look.node.ino != expect.ino {
                return Err(Conflict::HostModified.describe());
            }
            return Ok(());
        }
        let unchanged = |node: &Node| match verify::entry(
            place,
            &super::place::Look {
                node: node.clone(),
                sealed: None,
                mount: false,
            },
            expect,
            false,
        ) {
            // Even the same bytes in another inode were written by somebody meanwhile; they are
            // compared by the next commit, not swapped away unseen by this one.
            Ok(None) if node.ino == expect.ino => Ok(()),
            Ok(_) => Err(Conflict::HostModified.describe()),
            Err(e) => Err(failed(&e)),
        };
        match Lease::take(|| place.open(), self.patience) {
            Ok(Some(lease)) => {
                let now = look_fd(lease.file().as_fd()).map_err(|e| failed(&e))?;
                unchanged(&now.node)?;
                self.held.push((self.step, lease));
                Ok(())
            }
            Ok(None) => Err(preflight::BUSY.into()),
            // It cannot be read, so there is no lease either: its stat must do.
            Err(_) => unchanged(&look.node),
        }
    }

    /// Looks at what came out: it must be what was expected, and nobody may be at work on it.
    fn inspect(&self, before: &[Piece]) -> Result<(), String> {
        let none = BTreeSet::new();
        let expect = Expect {
            path: &self.step.path,
            at: &self.step.aside,
            pieces: before,
            moved: self.moved.unwrap_or(&none),
        };
        match verify::tree(self.root, &expect) {
            Ok(Tree::Same(_)) => {}
            Ok(Tree::Differs { conflict, .. }) => return Err(conflict.describe()),
            Ok(Tree::Stuck { why, .. }) => return Err(why),
            Err(e) => return Err(failed(&e)),
        }
        // Files below a displaced directory: nobody may have one open for writing.
        for piece in before.iter().skip(1) {
            if piece.node.file_type != FileType::File {
                continue;
            }
            let place = self.root.at(&piece.path.under(&self.step.aside));
            if let Ok(place) = place
                && let Ok(file) = place.open()
                && Lease::try_take(file).is_none()
            {
                return Err(format!(
                    "{}: {}",
                    piece.path.under(&self.step.path),
                    preflight::BUSY
                ));
            }
        }
        Ok(())
    }
}

/// Puts the entry at `aside` in the place of the one at `place`, which ends at `aside`.
///
/// A file system without exchange gets the second best: the old inode is kept under a second
/// temporary name first, then the new entry is renamed over it (a directory: renamed away, with a
/// moment in which the name is free).
pub(super) fn swap(root: &Root, step: &Step, place: &Place, aside: &Place) -> io::Result<()> {
    match host::exchange(aside, place) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {}
        other => return other,
    }
    let second = root.at(&step.second_aside())?;
    let is_dir = |place: &Place| -> io::Result<bool> {
        Ok(place
            .look()?
            .is_some_and(|look| look.node.file_type == FileType::Dir))
    };
    if is_dir(place)? || is_dir(aside)? || host::hard_link(place, &second).is_err() {
        host::rename_new(place, &second)?;
        host::rename_new(aside, place)?;
    } else {
        host::rename_over(aside, place)?;
    }
    host::rename_new(&second, aside)
}

/// The attributes that are there, with the owner's right to change them opened: it is shut again
/// when the mode is set.
fn attributes(
    fd: BorrowedFd<'_>,
    before: &Node,
    after: &Node,
    mode: u32,
) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let users = |node: &Node| {
        node.xattrs
            .iter()
            .filter(|(name, _)| name.starts_with("user."))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect::<BTreeMap<_, _>>()
    };
    // Opening it up changes what an ACL says of the owner.
    let acls = acls(fd);
    let (old, new) = (users(before), users(after));
    let shut = mode & 0o400 == 0 && !(old.is_empty() && new.is_empty());
    let fixed = mode & 0o200 == 0 && old != new;
    if (shut || fixed) && !nix::unistd::geteuid().is_root() {
        host::set_mode(fd, mode | 0o600)?;
    }
    let mut held = xattrs(fd)?;
    held.extend(acls);
    Ok(held)
}

fn acls(fd: BorrowedFd<'_>) -> Vec<(String, Vec<u8>)> {
    let path = proc_path(fd);
    [ACL_ACCESS, ACL_DEFAULT]
        .into_iter()
        .filter_map(|name| {
            let value = xattr::get_deref(&path, name).ok()??;
            Some((name.to_owned(), value))
        })
        .collect()
}

/// Turns mode, xattrs, owner and time from `before` into `after`, in place. What is neither the
/// one nor the other was set by somebody else and is left alone.
pub(super) fn adjust(place: &Place, before: &Node, after: &Node) -> io::Result<()> {
    let handle = place.handle()?;
    let fd = handle.as_fd();
    let Some(look) = place.look()? else {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    };
    let found = look.node;
    let is_link = found.file_type == FileType::Symlink;
    let owners = |node: &Node| (node.uid, node.gid);
    if owners(before) != owners(after) && owners(&found) == owners(before) {
        match host::set_owner(place, after.uid, after.gid) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::EINVAL)) => {}
            other => other?,
        }
    }
    if before.xattrs != after.xattrs && !is_link {
        let held = attributes(fd, before, after, found.mode)?;
        // A user's attributes need the right to write, which an ACL may take away.
        let wanted = |acl: bool| move |name: &&String| is_acl(name) == acl;
        let changes = |name: &&String| before.xattrs.get(*name) != after.xattrs.get(*name);
        for acl in [false, true] {
            for name in before.xattrs.keys().filter(wanted(acl)) {
                if !after.xattrs.contains_key(name) && held.get(name) == before.xattrs.get(name) {
                    host::remove_xattr(fd, name)?;
                }
            }
            for name in after.xattrs.keys().filter(wanted(acl)).filter(changes) {
                if held.get(name) == before.xattrs.get(name)
                    && let Some(value) = after.xattrs.get(name)
                {
                    host::set_xattr(fd, name, value)?;
                }
            }
        }
    }
    let mode = place.look()?.map_or(found.mode, |look| look.node.mode);
    let mode_is_known =
        mode == before.mode || before.xattrs != after.xattrs || owners(before) != owners(after);
    if !is_link && mode != after.mode && mode_is_known {
        host::set_mode(fd, after.mode)?;
    }
    if before.mtime != after.mtime
        && found.file_type != FileType::Dir
        && found.mtime == before.mtime
    {
        host::set_mtime(place, after.mtime)?;
    }
    Ok(())
}

fn is_acl(name: &str) -> bool {
    name == ACL_ACCESS || name == ACL_DEFAULT
}
