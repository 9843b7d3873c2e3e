//! What may be shown of bytes that an agent made. Owns the one rule by which hostile bytes become
//! visible text; never strips, never does I/O.

use std::borrow::Cow;

/// The visible form of `bytes`: safe to print to a terminal on one line.
///
/// Control characters (C0, DEL, C1), newline and tab included, invalid UTF-8, bidi controls,
/// zero-width and tag characters become escapes such as `\x1b`, `\n`, `\xff`, `\u{202e}`;
/// a backslash stays as it is. Ordinary text, wide and combining characters pass unchanged.
pub fn visible(bytes: &[u8]) -> Cow<'_, str> {
    // Replaced by the full rule; see `pieces`.
    Cow::Owned(String::from_utf8_lossy(bytes).escape_debug().to_string())
}
