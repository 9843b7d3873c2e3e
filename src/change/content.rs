//! Reads contents with their hashes: any size in flat memory, bytes up to a cap.

use std::fs::File;
use std::io::{self, Read};

use crate::layer::Digest;
use crate::layer::content::hash;

/// Largest content that is held in memory.
pub(super) const LARGEST_IN_MEMORY: u64 = 64 << 20;

/// A content that was read.
pub(super) struct Content {
    /// Hash of all of it.
    pub digest: Digest,
    /// All of it, unless it is larger than the cap.
    pub bytes: Option<Vec<u8>>,
}

/// Reads `file` from the start; keeps the bytes if there are at most `cap`.
pub(super) fn read(file: &File, cap: u64) -> io::Result<Content> {
    let len = file.metadata()?.len();
    if len > cap {
        return Ok(Content {
            digest: hash(file)?,
            bytes: None,
        });
    }
    // One byte more than there should be: the read that finds the end needs room.
    let mut bytes = Vec::with_capacity(usize::try_from(len).map_or(0, |len| len + 1));
    Read::take(file, cap + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 <= cap {
        return Ok(Content {
            digest: Digest::of(&bytes),
            bytes: Some(bytes),
        });
    }
    // It has grown meanwhile.
    drop(bytes);
    Ok(Content {
        digest: hash(file)?,
        bytes: None,
    })
}
