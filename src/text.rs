//! What may be shown of bytes that an agent made. Owns the one rule by which hostile bytes become
//! visible text; never strips, never does I/O.
//!
//! The rule: a character is shown as itself when it takes part in ordinary text, and as an escape
//! when it steers a terminal, changes the order in which text is read, or cannot be seen at all.
//! Bytes that are not UTF-8 are shown one by one. [`pieces`] keeps escapes apart from text, so
//! that a screen can draw them in a style that no file can imitate.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

/// A run of text, or one thing that must not reach a terminal as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Ordinary text, unchanged.
    Plain(String),
    /// The escape of one or more adjacent characters or bytes, such as `\x1b` or `\u{202e}`.
    Escaped(String),
    /// One tab; how wide it is drawn depends on its column.
    Tab,
}

/// The visible form of `bytes`: safe to print to a terminal on one line.
///
/// Control characters (C0, DEL, C1), newline and tab included, invalid UTF-8, bidi controls,
/// zero-width and tag characters become escapes such as `\x1b`, `\n`, `\xff`, `\u{202e}`;
/// a backslash stays as it is. Ordinary text, wide and combining characters pass unchanged.
pub fn visible(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && is_plain(text)
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 16);
    scan(bytes, |unit| match unit {
        Unit::Plain(text) => out.push_str(text),
        Unit::Hidden(c) => escape_char(c, &mut out),
        Unit::Invalid(byte) => escape_byte(byte, &mut out),
    });
    Cow::Owned(out)
}

/// The visible form of a path, see [`visible`].
pub fn visible_path(path: &Path) -> Cow<'_, str> {
    visible(path.as_os_str().as_encoded_bytes())
}

/// `bytes` taken apart into text, escapes and tabs, in order. The texts joined with the escapes
/// (and `\t` for tabs) are [`visible`].
pub fn pieces(bytes: &[u8]) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    scan(bytes, |unit| match unit {
        Unit::Plain(text) => match out.last_mut() {
            Some(Piece::Plain(run)) => run.push_str(text),
            _ => out.push(Piece::Plain(text.to_owned())),
        },
        Unit::Hidden('\t') => out.push(Piece::Tab),
        Unit::Hidden(c) => escape_char(c, escaped_run(&mut out)),
        Unit::Invalid(byte) => escape_byte(byte, escaped_run(&mut out)),
    });
    out
}

/// Whether a character steers a terminal, changes the order of text or cannot be seen, wherever it
/// stands. ([`visible`] lets some pass where they do their proper work, as a joiner between emoji.)
pub fn steers(c: char) -> bool {
    is_hidden(c)
}

/// Whether `bytes` hold something a reader would not notice: any escaped character or invalid byte
/// but tabs, newlines and the carriage return of a CRLF.
pub fn has_hidden(bytes: &[u8]) -> bool {
    count_hidden(bytes) > 0
}

/// How many characters and bytes deserve the alarm of [`has_hidden`].
pub fn count_hidden(bytes: &[u8]) -> usize {
    if is_common(bytes) {
        return 0;
    }
    let mut count = 0;
    let mut pending_return = false;
    scan(bytes, |unit| {
        // A carriage return is alarming unless a newline follows.
        let was_return = std::mem::take(&mut pending_return);
        match unit {
            Unit::Hidden('\n') => return,
            Unit::Hidden('\r') => pending_return = true,
            Unit::Hidden('\t') | Unit::Plain(_) => {}
            Unit::Hidden(_) | Unit::Invalid(_) => count += 1,
        }
        count += usize::from(was_return);
    });
    count + usize::from(pending_return)
}

/// Whether there is nothing but printable ASCII, tabs and newlines: what most files are made of, and
/// quickly seen.
fn is_common(bytes: &[u8]) -> bool {
    let plain = |b: &u8| matches!(b, b' '..=b'~' | b'\n' | b'\t');
    // Without an early exit inside, a piece is looked at many bytes at once.
    bytes
        .chunks(1024)
        .all(|piece| piece.iter().fold(true, |all, b| all & plain(b)))
}

fn escaped_run(out: &mut Vec<Piece>) -> &mut String {
    if !matches!(out.last(), Some(Piece::Escaped(_))) {
        out.push(Piece::Escaped(String::new()));
    }
    match out.last_mut() {
        Some(Piece::Escaped(run)) => run,
        _ => unreachable!("an escaped run was pushed above"),
    }
}

enum Unit<'a> {
    Plain(&'a str),
    Hidden(char),
    Invalid(u8),
}

fn scan<'a>(bytes: &'a [u8], mut emit: impl FnMut(Unit<'a>)) {
    for chunk in bytes.utf8_chunks() {
        scan_text(chunk.valid(), &mut emit);
        for byte in chunk.invalid() {
            emit(Unit::Invalid(*byte));
        }
    }
}

fn scan_text<'a>(text: &'a str, emit: &mut impl FnMut(Unit<'a>)) {
    let mut plain_from = 0;
    let mut at = 0;
    let bytes = text.as_bytes();
    while at < bytes.len() {
        // Printable ASCII is nearly everything; it needs no table.
        if (0x20..0x7f).contains(&bytes[at]) {
            at += 1;
            continue;
        }
        let Some(c) = text[at..].chars().next() else {
            break;
        };
        let next = at + c.len_utf8();
        if is_hidden(c) && !is_joined(text, at, c, next) {
            if plain_from < at {
                emit(Unit::Plain(&text[plain_from..at]));
            }
            emit(Unit::Hidden(c));
            plain_from = next;
        }
        at = next;
    }
    if plain_from < text.len() {
        emit(Unit::Plain(&text[plain_from..]));
    }
}

fn is_plain(text: &str) -> bool {
    let mut plain = true;
    scan_text(text, &mut |unit| plain &= matches!(unit, Unit::Plain(_)));
    plain
}

fn escape_char(c: char, out: &mut String) {
    match c {
        '\t' => out.push_str("\\t"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        c if c.is_ascii() => escape_byte(c as u8, out),
        c => {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        }
    }
}

fn escape_byte(byte: u8, out: &mut String) {
    let _ = write!(out, "\\x{byte:02x}");
}

/// Characters that steer, reorder or cannot be seen. Letters of right-to-left scripts, combining
/// marks and the ordinary no-break space are not among them.
fn is_hidden(c: char) -> bool {
    matches!(u32::from(c),
        // C0, DEL, C1.
        0x00..=0x1f | 0x7f..=0x9f
        // Soft hyphen, grapheme joiner, Arabic letter mark, Hangul and Khmer fillers.
        | 0xad | 0x34f | 0x61c | 0x115f | 0x1160 | 0x17b4 | 0x17b5
        // Mongolian selectors and vowel separator.
        | 0x180b..=0x180f
        // Zero width and marks of direction; line and paragraph separators; bidi embeddings.
        | 0x200b..=0x200f | 0x2028..=0x202e
        // Word joiner, invisible operators, bidi isolates and retired format controls.
        | 0x2060..=0x206f
        // Hangul fillers, variation selectors, byte order mark, annotation marks.
        | 0x3164 | 0xfe00..=0xfe0f | 0xfeff | 0xffa0 | 0xfff0..=0xfffb
        // Invisible marks of music and shorthand, tags and the supplementary selectors.
        | 0x1_bca0..=0x1_bca3 | 0x1_d173..=0x1_d17a | 0xe_0000..=0xe_0fff)
}

/// Whether an invisible character does its proper work: a joiner between two emoji, or one
/// selector behind a character that has variants.
fn is_joined(text: &str, at: usize, c: char, next: usize) -> bool {
    let mut before = text[..at].chars().rev();
    match u32::from(c) {
        0x200d => {
            let base = before.find(|c| !is_emoji_modifier(*c));
            let after = text[next..].chars().next();
            base.is_some_and(is_emoji) && after.is_some_and(is_emoji)
        }
        0xfe0e | 0xfe0f => before
            .next()
            .is_some_and(|b| is_emoji(b) || matches!(b, '0'..='9' | '#' | '*')),
        0xfe00..=0xfe02 | 0xe_0100..=0xe_01ef => before
            .next()
            .is_some_and(|b| is_ideograph(b) || is_operator(b)),
        _ => false,
    }
}

fn is_emoji_modifier(c: char) -> bool {
    matches!(u32::from(c), 0xfe0f | 0x1_f3fb..=0x1_f3ff)
}

fn is_emoji(c: char) -> bool {
    matches!(u32::from(c),
        0xa9 | 0xae | 0x203c | 0x2049 | 0x2122 | 0x2139 | 0x2190..=0x21ff | 0x2300..=0x23ff
        | 0x24c2 | 0x25aa..=0x25fe | 0x2600..=0x27bf | 0x2934 | 0x2935 | 0x2b00..=0x2bff
        | 0x3030 | 0x303d | 0x3297 | 0x3299 | 0x1_f000..=0x1_faff)
}

fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c),
        0x3001..=0x3002 | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0xff01..=0xff1f
        | 0x2_0000..=0x3_ffff)
}

fn is_operator(c: char) -> bool {
    matches!(u32::from(c), 0x2205..=0x22ff | 0x2a00..=0x2aff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_steers_a_terminal_is_spelled_out() {
        assert_eq!(visible(b"a\x1b]0;T\x07b"), r"a\x1b]0;T\x07b");
        assert_eq!(visible(b"a\nb\rc\td\x7f"), r"a\nb\rc\td\x7f");
        assert_eq!(visible(b"\xff\xfe.bin"), r"\xff\xfe.bin");
        assert_eq!(visible(b"\x9b[31m \xc2\x9b"), r"\x9b[31m \u{9b}");
        assert_eq!(visible(br"a\x1b"), r"a\x1b");
    }

    #[test]
    fn what_reorders_or_hides_is_spelled_out() {
        assert_eq!(
            visible("photo\u{202e}gpj.sh".as_bytes()),
            r"photo\u{202e}gpj.sh"
        );
        assert_eq!(visible("ad\u{200b}min".as_bytes()), r"ad\u{200b}min");
        for c in [
            '\u{2066}',
            '\u{2069}',
            '\u{200f}',
            '\u{feff}',
            '\u{2060}',
            '\u{2028}',
            '\u{e0041}',
            '\u{ad}',
            '\u{200d}',
            '\u{3164}',
            '\u{fe01}',
        ] {
            assert!(
                visible(format!("a{c}b").as_bytes()).starts_with("a\\u{"),
                "{c:?}"
            );
        }
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        for text in [
            "naïve \u{a0}x",
            "Cafe\u{301}",
            "漢字",
            "שלום",
            "مرحبا",
            "⚠️ warn",
            "👩‍🚀 crew",
            "🏴‍☠️ flag",
            "👩🏽‍🚀",
            "1️⃣ one",
            "葛\u{e0100}",
            r"back\slash",
        ] {
            assert!(matches!(visible(text.as_bytes()), Cow::Borrowed(t) if t == text));
            assert!(!has_hidden(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn selectors_that_carry_data_are_shown() {
        let text = "😀\u{e0101}\u{e0102}";
        assert_eq!(visible(text.as_bytes()), r"😀\u{e0101}\u{e0102}");
        assert_eq!(
            visible("😀\u{fe0f}\u{fe0f}".as_bytes()),
            "😀\u{fe0f}\\u{fe0f}"
        );
    }

    #[test]
    fn only_what_is_hidden_alarms() {
        assert_eq!(count_hidden(b"a\tb\r\nc\n"), 0);
        assert_eq!(count_hidden(b"a\rb\r"), 2);
        assert_eq!(count_hidden(b"\r\r\n"), 1);
        assert_eq!(count_hidden("x\u{202e}\u{2066}y\u{200b}".as_bytes()), 3);
        assert_eq!(count_hidden(b"\xff\x00"), 2);
    }

    #[test]
    fn escapes_are_apart_from_text_that_looks_like_them() {
        assert_eq!(
            pieces(b"\\x1b\x1b[2J\t."),
            [
                Piece::Plain("\\x1b".into()),
                Piece::Escaped("\\x1b".into()),
                Piece::Plain("[2J".into()),
                Piece::Tab,
                Piece::Plain(".".into()),
            ]
        );
    }

    /// Takes the escapes back to bytes; only used on what `pieces` calls escaped.
    fn unescape(escaped: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = escaped;
        while !rest.is_empty() {
            if let Some(tail) = rest.strip_prefix("\\x") {
                out.push(u8::from_str_radix(&tail[..2], 16).unwrap());
                rest = &tail[2..];
            } else if let Some(tail) = rest.strip_prefix("\\u{") {
                let (hex, tail) = tail.split_once('}').unwrap();
                let c = char::from_u32(u32::from_str_radix(hex, 16).unwrap()).unwrap();
                out.extend(c.to_string().into_bytes());
                rest = tail;
            } else {
                out.push(match &rest[..2] {
                    "\\n" => b'\n',
                    "\\r" => b'\r',
                    other => panic!("unknown escape {other}"),
                });
                rest = &rest[2..];
            }
        }
        out
    }

    fn hostile() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            any::<String>().prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 0..8),
            prop::sample::select(vec![
                "\u{200d}",
                "\u{202e}",
                "👩",
                "🚀",
                "\u{fe0f}",
                "\u{1f3fd}",
                "\r\n",
                "\t",
                "\\",
                "\x1b",
                "\u{9b}",
                "\u{e0100}",
                "漢",
            ])
            .prop_map(|s| s.as_bytes().to_vec()),
        ];
        prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_hidden_gets_through(bytes in hostile()) {
            let shown = visible(&bytes);
            prop_assert!(is_plain(&shown), "{shown:?}");
            prop_assert!(!shown.chars().any(|c| c.is_control()
                || matches!(u32::from(c), 0x200b | 0x200c | 0x200e | 0x200f | 0x2028..=0x202e
                    | 0x2060..=0x206f | 0xfeff | 0xe_0000..=0xe_007f)));
        }

        #[test]
        fn nothing_is_lost(bytes in hostile()) {
            let mut back = Vec::new();
            let mut joined = String::new();
            for piece in pieces(&bytes) {
                match piece {
                    Piece::Plain(text) => {
                        joined.push_str(&text);
                        back.extend(text.into_bytes());
                    }
                    Piece::Escaped(text) => {
                        joined.push_str(&text);
                        back.extend(unescape(&text));
                    }
                    Piece::Tab => {
                        joined.push_str("\\t");
                        back.push(b'\t');
                    }
                }
            }
            prop_assert_eq!(back, bytes.clone());
            prop_assert_eq!(joined, visible(&bytes));
        }
    }
}
