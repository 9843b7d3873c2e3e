//! Frames: a 4-byte little-endian length, then a postcard message. Owns the limit on a frame's
//! size, so that a broken peer cannot make us allocate without bound.

use std::io::{self, BufWriter, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest frame accepted, 1 GiB: a snapshot of a million changes fits.
pub const MAX_FRAME: u32 = 1 << 30;

/// Memory reserved on a peer's word.
const AT_ONCE: u32 = 1 << 18;

/// Bytes handed to the writer at once.
const PART: usize = 1 << 16;

/// Writes one message and flushes. However large it is, no more than a part of it is held.
pub fn write<T: Serialize>(out: &mut impl Write, message: &T) -> io::Result<()> {
    let length = postcard::ser_flavors::Size::default();
    let length = postcard::serialize_with_flavor(message, length).map_err(io::Error::other)?;
    let whole = u32::try_from(length).ok().filter(|n| *n <= MAX_FRAME);
    let whole = whole
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the message is too large"))?;
    let mut parts = BufWriter::with_capacity(PART.min(length + 4), out);
    parts.write_all(&whole.to_le_bytes())?;
    postcard::to_io(message, &mut parts).map_err(io::Error::other)?;
    parts.flush()
}

/// Reads one message; `None` at a clean end between frames.
pub fn read<T: DeserializeOwned>(input: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match input.read(&mut length)? {
        0 => return Ok(None),
        got => input.read_exact(&mut length[got..])?,
    }
    let length = u32::from_le_bytes(length);
    if length > MAX_FRAME {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the frame is too large",
        ));
    }
    // Beyond this much in steps: a length that lies does not reserve memory that never arrives.
    let mut frame = Vec::with_capacity(length.min(AT_ONCE) as usize);
    let got = input.take(u64::from(length)).read_to_end(&mut frame)?;
    if got < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let (message, rest) = postcard::take_from_bytes(&frame)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
    if !rest.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "bytes behind the message",
        ));
    }
    Ok(Some(message))
}
