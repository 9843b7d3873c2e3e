//! Extended attributes as the caller sees them. Owns the escape rules: marks of the overlay are
//! never shown, the user's own `user.overlay.*` are stored as `user.overlay.overlay.*`.

use std::ffi::{CStr, CString};
use std::os::fd::AsFd;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::calls::Result;
use super::guard::Access;
use super::inode::{Node, Side};
use super::place::Place;
use super::xattr_calls::Subject;
use super::{Caller, Overlay};

const MARK: &[u8] = b"user.overlay.";
const ESCAPED: &[u8] = b"user.overlay.overlay.";

/// The name under which the upper stores an attribute; `None` for one that is not carried.
pub(super) fn stored_name(name: &CStr) -> Option<CString> {
    let bytes = name.to_bytes();
    if let Some(rest) = bytes.strip_prefix(MARK) {
        return CString::new([ESCAPED, rest].concat()).ok();
    }
    let kept = bytes.starts_with(b"user.") || bytes.starts_with(b"system.posix_acl_");
    kept.then(|| name.to_owned())
}

/// The name under which an attribute of the upper is shown; `None` for a mark.
fn shown_name(stored: &CStr) -> Option<CString> {
    let bytes = stored.to_bytes();
    if let Some(rest) = bytes.strip_prefix(ESCAPED) {
        return CString::new([MARK, rest].concat()).ok();
    }
    let hidden = bytes.starts_with(MARK) || bytes.starts_with(b"trusted.");
    (!hidden).then(|| stored.to_owned())
}

impl Overlay {
    /// The value of an attribute.
    pub fn getxattr(&self, caller: &Caller, id: u64, name: &[u8]) -> Result<Vec<u8>> {
        let node = self.node(id)?;
        let name = attribute(name)?;
        // Asked by the kernel before every first write, and by nobody else.
        if name.to_bytes().starts_with(b"security.") || name.to_bytes().starts_with(b"trusted.") {
            return Err(Errno::ENODATA);
        }
        if name.to_bytes().starts_with(b"user.") {
            self.permit_node(caller, &node, Access::Read)?;
        }
        let _tree = self.reading();
        let (place, _) = self.located(&node)?;
        let stored = match place.side {
            Side::Upper => stored_name(&name).ok_or(Errno::EOPNOTSUPP)?,
            Side::Lower => name,
        };
        let value = with_subject(&place, &node, OFlag::O_RDONLY, |s| s.get(&stored));
        match value {
            Ok(value) if stored.to_bytes().starts_with(b"system.posix_acl_") => {
                Ok(known_entries(&value))
            }
            // Links and special files have none of the user's.
            Err(Errno::EPERM) => Err(Errno::ENODATA),
            other => other,
        }
    }

    /// The names of all attributes.
    pub fn listxattr(&self, caller: &Caller, id: u64) -> Result<Vec<CString>> {
        let node = self.node(id)?;
        self.permit_node(caller, &node, Access::Read)?;
        if node.kind == libc::S_IFLNK {
            return Ok(Vec::new());
        }
        let _tree = self.reading();
        let (place, _) = self.located(&node)?;
        let names = match with_subject(&place, &node, OFlag::O_RDONLY, |s| s.list()) {
            // A pipe or a socket without a name cannot be asked.
            Err(Errno::EOPNOTSUPP) => Vec::new(),
            other => other?,
        };
        Ok(match place.side {
            Side::Upper => names.iter().filter_map(|n| shown_name(n)).collect(),
            Side::Lower => names
                .into_iter()
                .filter(|n| stored_name(n).is_some())
                .collect(),
        })
    }

    /// Sets an attribute; `flags` as in setxattr(2).
    pub fn setxattr(
        &self,
        caller: &Caller,
        id: u64,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Result<()> {
        let node = self.node(id)?;
        let name = attribute(name)?;
        let stored = writable_name(&name)?;
        self.permit_node(caller, &node, Access::Write)?;
        if self.budget.limits() {
            self.budget.room_for(value.len() as u64)?;
        }
        self.copy_up(&node, u64::MAX)?;
        {
            let _tree = self.changing();
            let (place, _) = self.located_above(&node)?;
            with_subject(&place, &node, OFlag::O_RDONLY, |s| {
                s.set(&stored, value, flags)
            })?;
            node.state().default_acl = None;
        }
        self.saw_node(&node, Access::Write, 0);
        Ok(())
    }

    /// Removes an attribute.
    pub fn removexattr(&self, caller: &Caller, id: u64, name: &[u8]) -> Result<()> {
        let node = self.node(id)?;
        let name = attribute(name)?;
        let stored = writable_name(&name)?;
        self.permit_node(caller, &node, Access::Write)?;
        // Nothing is copied up for an attribute that is not there.
        if !name.to_bytes().starts_with(b"system.") {
            self.getxattr(caller, id, name.to_bytes())?;
        }
        self.copy_up(&node, u64::MAX)?;
        let removed = {
            let _tree = self.changing();
            let (place, _) = self.located_above(&node)?;
            node.state().default_acl = None;
            with_subject(&place, &node, OFlag::O_RDONLY, |s| s.remove(&stored))
        };
        self.saw_node(&node, Access::Write, 0);
        match removed {
            // An ACL that is not there is as good as removed.
            Err(Errno::ENODATA) if name.to_bytes().starts_with(b"system.") => Ok(()),
            other => other,
        }
    }
}

/// An ACL without the entries for ids that this namespace does not know: the kernel takes no value
/// that holds them, and nobody here could be meant.
///
/// Four bytes of version, then eight a piece: tag, rights, id (`struct posix_acl_xattr_entry`).
fn known_entries(value: &[u8]) -> Vec<u8> {
    const USER: u16 = 2;
    const GROUP: u16 = 8;
    let Some((version, entries)) = value.split_at_checked(4) else {
        return value.to_vec();
    };
    let mut known = version.to_vec();
    for entry in entries.chunks(8) {
        let tag = u16::from_le_bytes([entry[0], entry.get(1).copied().unwrap_or_default()]);
        let unknown = entry.get(4..8) == Some(&[0xff; 4]);
        if !(unknown && (tag == USER || tag == GROUP)) {
            known.extend_from_slice(entry);
        }
    }
    known
}

fn attribute(name: &[u8]) -> Result<CString> {
    CString::new(name).map_err(|_| Errno::EINVAL)
}

fn writable_name(name: &CStr) -> Result<CString> {
    let bytes = name.to_bytes();
    if bytes.starts_with(b"security.") || bytes.starts_with(b"trusted.") {
        return Err(Errno::EPERM);
    }
    let stored = stored_name(name).ok_or(Errno::EOPNOTSUPP)?;
    if stored.to_bytes().len() > 255 {
        return Err(Errno::ERANGE);
    }
    Ok(stored)
}

/// Runs a call on the object of a place; a removed one is opened again, as its own descriptor may
/// be a mere place.
fn with_subject<T>(
    place: &Place,
    node: &Arc<Node>,
    flags: OFlag,
    call: impl FnOnce(Subject<'_>) -> Result<T>,
) -> Result<T> {
    if place.name.is_empty() && !node.is_dir() {
        if !node.is_file() {
            return Err(Errno::EOPNOTSUPP);
        }
        let fd = Overlay::open_place(place, flags)?;
        return call(Subject {
            dir: fd.as_fd(),
            name: c"",
        });
    }
    call(place.subject(node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_for_unknown_ids_are_left_out() {
        let entry = |tag: u8, rights: u8, id: u32| {
            [&[tag, 0, rights, 0] as &[u8], &id.to_le_bytes()].concat()
        };
        let version = 2u32.to_le_bytes().to_vec();
        let owner = entry(1, 6, u32::MAX);
        let unknown = entry(2, 4, u32::MAX);
        let known = entry(2, 4, 1000);
        let all = [version.clone(), owner.clone(), unknown, known.clone()].concat();
        assert_eq!(known_entries(&all), [version, owner, known].concat());
    }

    #[test]
    fn marks_are_hidden_and_the_users_own_come_back() {
        let stored = stored_name(c"user.overlay.opaque").expect("kept");
        assert_eq!(stored.as_c_str(), c"user.overlay.overlay.opaque");
        assert_eq!(shown_name(&stored).as_deref(), Some(c"user.overlay.opaque"));
        assert_eq!(shown_name(c"user.overlay.opaque"), None);
        assert_eq!(stored_name(c"security.capability"), None);
    }
}
