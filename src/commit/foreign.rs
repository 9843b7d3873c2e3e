//! Attributes that no stage carries (`trusted.*`, `security.*`; see `xattr(7)`): new content gets
//! them from the host's file that it takes the place of. Owns which those are and which of them
//! stand in the way; the review decides about all others.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::host;
use super::ledger::{Action, Piece, Step};
use super::place::{Place, Root, proc_path, words};
use super::{Batch, Refusal};
use crate::change::ChangeKind;
use crate::layer::{FileType, Node};
use crate::text::visible;
use crate::{LayerPath, RelPath};

/// File capabilities: the kernel takes them from a file that is written to.
const CAPABILITY: &[u8] = b"security.capability";

/// Name and value.
pub(super) type Attributes = Vec<(OsString, Vec<u8>)>;

/// Where a renamed file comes from, and what it was there.
pub(super) struct Origins(BTreeMap<LayerPath, (RelPath, Arc<Node>)>);

impl Origins {
    /// The renames among what was approved.
    pub fn of(batch: &Batch<'_>) -> Self {
        let renamed = batch.approved.iter().filter_map(|approved| {
            let change = &approved.change;
            let ChangeKind::Renamed { from } = &change.kind else {
                return None;
            };
            let before = change.before.clone()?;
            Some((change.key.clone(), (from.clone(), before)))
        });
        Self(renamed.collect())
    }

    /// The host's entry that a new one takes the place of, and whether its bytes stay.
    fn source(&self, step: &Step, piece: &Piece) -> Option<(RelPath, bool)> {
        let Action::Swap { before, .. } = &step.action else {
            return None;
        };
        let path = piece.path.under(&step.path);
        let key = LayerPath::new(step.layer.clone(), path.clone());
        let same_place = before.iter().find(|old| old.path == piece.path);
        let (from, old) = match (same_place, self.0.get(&key)) {
            (Some(old), _) => (path, &old.node),
            (None, Some((from, old))) => (from.clone(), old),
            (None, None) => return None,
        };
        // A link is never written to, only replaced.
        let kept = matches!(
            old.file_type,
            FileType::File | FileType::Dir | FileType::Fifo
        );
        let new = &piece.node;
        let same =
            old.digest == new.digest && (new.digest.is_some() || new.file_type != FileType::File);
        (kept && old.file_type == new.file_type).then_some((from, same))
    }

    /// What the new entry `piece` gets from the host's.
    pub fn attributes(&self, root: &Root, step: &Step, piece: &Piece) -> io::Result<Attributes> {
        let Some((from, same)) = self.source(step, piece) else {
            return Ok(Vec::new());
        };
        let place = root.at(&from)?;
        if place.look()?.is_none() {
            return Ok(Vec::new());
        }
        of(place.handle()?.as_fd(), same)
    }

    /// What an ordinary user's commit would lose, by path.
    pub fn check(&self, steps: &[Step], roots: &BTreeMap<String, Root>) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        if nix::unistd::geteuid().is_root() {
            return refusals;
        }
        for step in steps {
            let (Some(root), Action::Swap { after, .. }) = (roots.get(&step.layer), &step.action)
            else {
                continue;
            };
            for piece in after {
                // What cannot be looked at is refused by the other checks.
                let Ok(held) = self.attributes(root, step, piece) else {
                    continue;
                };
                if let Some((name, _)) = held.iter().find(|(name, _)| is_needed(name.as_bytes())) {
                    refusals.push(Refusal {
                        key: LayerPath::new(step.layer.clone(), piece.path.under(&step.path)),
                        reason: lost(name.as_bytes(), &io::Error::from_raw_os_error(libc::EPERM)),
                    });
                }
            }
        }
        refusals
    }
}

/// The attributes of a host's file that new content gets; `same`: its bytes stay.
fn of(fd: BorrowedFd<'_>, same: bool) -> io::Result<Attributes> {
    let path = proc_path(fd);
    let listed = match xattr::list_deref(&path) {
        Ok(listed) => listed,
        Err(e) if e.raw_os_error() == Some(libc::ENOTSUP) => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut found = Vec::new();
    for name in listed {
        let bytes = name.as_bytes();
        let foreign = bytes.starts_with(b"trusted.") || bytes.starts_with(b"security.");
        if !foreign || is_made(bytes) || bytes == CAPABILITY && !same {
            continue;
        }
        match xattr::get_deref(&path, &name) {
            Ok(Some(value)) => found.push((name, value)),
            Ok(None) => {}
            // It could not be set either; the empty value only stands for its name.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
                found.push((name, Vec::new()));
            }
            Err(e) => return Err(e),
        }
    }
    Ok(found)
}

/// Gives a new entry these attributes. Errors: the sentence for the person.
pub(super) fn give(fd: BorrowedFd<'_>, attributes: &Attributes) -> Result<(), String> {
    let path = proc_path(fd);
    for (name, value) in attributes {
        if matches!(xattr::get_deref(&path, name), Ok(Some(held)) if held == *value) {
            continue;
        }
        match host::set_xattr(fd, name, value) {
            Err(e) if is_needed(name.as_bytes()) => return Err(lost(name.as_bytes(), &e)),
            _ => {}
        }
    }
    Ok(())
}

/// Copies these attributes with a file that goes to another file system, as far as that one and
/// this process can.
pub(super) fn copy(from: &Place, to: &Place) -> io::Result<()> {
    let target = to.handle()?;
    for (name, value) in of(from.handle()?.as_fd(), true)? {
        match host::set_xattr(target.as_fd(), &name, &value) {
            Err(e)
                if !matches!(
                    e.raw_os_error(),
                    Some(libc::EPERM | libc::EACCES | libc::ENOTSUP | libc::EINVAL)
                ) =>
            {
                return Err(e);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether the system makes an attribute from the file itself.
fn is_made(name: &[u8]) -> bool {
    matches!(name, b"security.ima" | b"security.evm")
}

/// Whether a new file may not be without an attribute: a label is the system's to choose where
/// nobody else may.
fn is_needed(name: &[u8]) -> bool {
    name != b"security.selinux" && !name.starts_with(b"security.SMACK64")
}

fn lost(name: &[u8], error: &io::Error) -> String {
    let name = visible(name);
    format!(
        "the attribute {name} of the host's file would be lost: it cannot be set on the new \
         content ({}); commit as root, or take it off first (`setfattr -x {name}`, as root)",
        words(error)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_of_the_system_is_no_reason_to_refuse() {
        for name in [
            "security.selinux",
            "security.SMACK64",
            "security.SMACK64EXEC",
        ] {
            assert!(!is_needed(name.as_bytes()), "{name}");
        }
        for name in ["security.foo", "trusted.t", "security.capability"] {
            assert!(is_needed(name.as_bytes()), "{name}");
        }
    }
}
