//! Owner, mode and attributes of entries on the host. Knows in which order they have to be set; content
//! and times are somebody else's.

use std::io;
use std::os::fd::BorrowedFd;

use super::host;
use super::place::{Place, carried, xattrs};
use crate::layer::Node;
use crate::layer::read::{ACL_ACCESS, ACL_DEFAULT};

/// Gives an entry its owner, as far as this process may.
pub(super) fn own(place: &Place, node: &Node) -> io::Result<()> {
    let Some(look) = place.look()? else {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    };
    if (look.node.uid, look.node.gid) == (node.uid, node.gid) {
        return Ok(());
    }
    match host::set_owner(place, node.uid, node.gid) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::EINVAL)) => Ok(()),
        other => other,
    }
}

/// Gives an entry that its owner can still write exactly this mode and these attributes.
pub(super) fn dress(fd: BorrowedFd<'_>, node: &Node) -> io::Result<()> {
    let found = xattrs(fd)?;
    for name in found.keys().filter(|name| !node.xattrs.contains_key(*name)) {
        host::remove_xattr(fd, name)?;
    }
    let wanted = |acl: bool| {
        node.xattrs.iter().filter(move |(name, _)| {
            carried(name) && (*name == ACL_ACCESS || *name == ACL_DEFAULT) == acl
        })
    };
    // A user's attributes need the right to write, which the mode may take away; an ACL sets the
    // mode's group bits, and the mode those of an ACL, to what both say together.
    for (name, value) in wanted(false) {
        if found.get(name) != Some(value) {
            host::set_xattr(fd, name, value)?;
        }
    }
    host::set_mode(fd, node.mode)?;
    for (name, value) in wanted(true) {
        host::set_xattr(fd, name, value)?;
    }
    Ok(())
}
