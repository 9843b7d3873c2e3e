//! The mark of where a directory of an upper comes from. Owns its name and size.
//!
//! The kernel cannot rename a directory of the lower; one that was made of copies in its place can
//! be, and from then on nothing would tell that the two are one. The mark goes along with the
//! directory wherever it is renamed to, and away with it. Names below `user.overlay.` are the
//! overlay's own: what an agent sets under such a name is stored under another one, and it sees
//! none of ours.

use std::io;
use std::os::fd::BorrowedFd;

use super::copy::set_xattr;
use crate::RelPath;

/// The attribute's name after `user.overlay.`.
pub const MARK: &[u8] = b"pvisor.origin";

/// Longest path that is recorded: attributes have to fit into one block of the file system.
const LONGEST: usize = 3_000;

/// Marks a directory of an upper (also of a mounted one: the kernel passes over the name) as made
/// of the lower's directory at `from`. A longer path stays unrecorded, and its files are then
/// recognised one by one.
pub fn mark(dir: BorrowedFd<'_>, from: &RelPath) -> io::Result<()> {
    if from.as_bytes().len() > LONGEST {
        return Ok(());
    }
    set_xattr(dir, &[b"user.overlay.", MARK].concat(), from.as_bytes())
}
