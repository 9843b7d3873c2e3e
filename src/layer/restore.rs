//! Puts entries back to what the lower holds. Owns the in-place order of steps that loses no later
//! write of a running agent.

use std::os::fd::BorrowedFd;

use super::AccessError;
use crate::RelPath;

/// While the layer is mounted: makes `path` in the merged view equal to the lower's (content
/// overwritten in place, missing entries made again, surplus ones removed), subtree included.
pub fn restore_live(
    _lower: BorrowedFd<'_>,
    _merged: BorrowedFd<'_>,
    _path: &RelPath,
) -> Result<(), AccessError> {
    Err(AccessError::HelperGone)
}

/// While the layer is not mounted: edits the upper so that a later mount shows the lower's entry
/// at `path` again, subtree included.
pub fn restore_unmounted(
    _lower: BorrowedFd<'_>,
    _upper: BorrowedFd<'_>,
    _path: &RelPath,
) -> Result<(), AccessError> {
    Err(AccessError::HelperGone)
}
