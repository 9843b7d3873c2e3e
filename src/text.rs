//! What may be shown of bytes that an agent made. Owns the one rule by which hostile bytes become
//! visible text; never strips, never does I/O.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A run of shown text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Safe text as it was.
    Plain(String),
    /// The escape that stands for something that must not be shown raw.
    Escaped(String),
    /// A tab.
    Tab,
}

fn hostile(c: char) -> bool {
    c.is_control()
        || matches!(c as u32, 0x202A..=0x202E | 0x2066..=0x2069 | 0x200B..=0x200F | 0xFEFF | 0x2060..=0x2064 | 0x061C | 0xE0000..=0xE007F | 0x2028 | 0x2029)
}

/// The runs of `bytes`.
pub fn pieces(bytes: &[u8]) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\t' {
                out.push(Piece::Tab);
            } else if hostile(c) {
                let text = match c {
                    '\n' => "\\n".to_owned(),
                    '\r' => "\\r".to_owned(),
                    c if (c as u32) < 0x100 => format!("\\x{:02x}", c as u32),
                    c => format!("\\u{{{:x}}}", c as u32),
                };
                out.push(Piece::Escaped(text));
            } else if let Some(Piece::Plain(text)) = out.last_mut() {
                text.push(c);
            } else {
                out.push(Piece::Plain(c.to_string()));
            }
        }
        for b in chunk.invalid() {
            out.push(Piece::Escaped(format!("\\x{b:02x}")));
        }
    }
    out
}

/// The visible form of `bytes`: safe to print to a terminal on one line.
pub fn visible(bytes: &[u8]) -> Cow<'_, str> {
    let mut text = String::new();
    for piece in pieces(bytes) {
        match piece {
            Piece::Plain(s) | Piece::Escaped(s) => text.push_str(&s),
            Piece::Tab => {
                let _ = write!(text, "\\t");
            }
        }
    }
    Cow::Owned(text)
}

/// How many characters of `bytes` are shown as escapes.
pub fn count_hidden(bytes: &[u8]) -> usize {
    pieces(bytes)
        .iter()
        .filter(|p| matches!(p, Piece::Escaped(_)))
        .count()
}

/// Whether any is.
pub fn has_hidden(bytes: &[u8]) -> bool {
    count_hidden(bytes) > 0
}
