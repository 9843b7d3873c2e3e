//! Cuts the agent's byte stream at its escape sequences, so that each can be answered, bounded or
//! dropped before anything interprets it. Owns no screen and no answer.
//!
//! Only the seven-bit introducers count, as in every UTF-8 terminal. Sequences are collected up to
//! a limit and left out whole beyond it: an endless title or image cannot grow the memory.

/// Longest control sequence passed on: 32 parameters of true colour need less.
const CSI_LIMIT: usize = 256;
/// Longest operating-system command or device-control string kept; longer ones are left out.
const STRING_LIMIT: usize = 4096;

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;

/// One part of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Text and control characters outside of any sequence.
    Text(&'a [u8]),
    /// `ESC` and these bytes, the last one the final.
    Escape(&'a [u8]),
    /// `ESC [` and these bytes: parameters and intermediates, then the final.
    Control(&'a [u8]),
    /// The content of an operating-system command, and whether a bell ended it.
    Command(&'a [u8], bool),
    /// The content of a device-control string.
    Device(&'a [u8]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Ground,
    Escape,
    Control,
    Command,
    Device,
    /// Start-of-string, privacy and application messages: swallowed to their end.
    Swallow,
}

/// Where in a sequence the stream stands.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: State,
    collected: Vec<u8>,
    overflow: bool,
    /// The first bytes of a character whose rest has not come yet.
    tail: Vec<u8>,
}

/// How many bytes at the end of `text` begin a character that is not complete.
pub(crate) fn unfinished(text: &[u8]) -> usize {
    let longest = text.len().min(3);
    (1..=longest)
        .find(|&count| text[text.len() - count] & 0xc0 != 0x80)
        .filter(|&count| {
            let tail = &text[text.len() - count..];
            std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none())
        })
        .unwrap_or(0)
}

impl Gate {
    /// Cuts `bytes`, which go on where the last call ended, and hands each part to `take` in order.
    pub(super) fn cut(&mut self, bytes: &[u8], mut take: impl FnMut(Piece<'_>)) {
        let mut rest = bytes;
        while let Some(&byte) = rest.first() {
            if self.state == State::Ground {
                let end = rest.iter().position(|&b| b == ESC).unwrap_or(rest.len());
                let (text, after) = rest.split_at(end);
                self.text(text, !after.is_empty(), &mut take);
                rest = after;
                if !rest.is_empty() {
                    self.enter(State::Escape);
                    rest = &rest[1..];
                }
                continue;
            }
            rest = &rest[1..];
            self.step(byte, &mut take);
        }
    }

    /// Hands text on in whole characters. One that is cut by the end of the bytes waits for its
    /// rest, one that is cut by a sequence (`ended`) is replaced.
    fn text(&mut self, text: &[u8], ended: bool, take: &mut impl FnMut(Piece<'_>)) {
        let joined;
        let text = if self.tail.is_empty() {
            text
        } else {
            joined = [self.tail.as_slice(), text].concat();
            self.tail.clear();
            &joined
        };
        let (whole, tail) = text.split_at(text.len() - unfinished(text));
        if !whole.is_empty() {
            take(Piece::Text(whole));
        }
        if ended && !tail.is_empty() {
            take(Piece::Text("\u{fffd}".as_bytes()));
        } else {
            self.tail.extend_from_slice(tail);
        }
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.collected.clear();
        self.overflow = false;
    }

    fn step(&mut self, byte: u8, take: &mut impl FnMut(Piece<'_>)) {
        match (self.state, byte) {
            (_, CAN | SUB) => self.enter(State::Ground),
            (State::Ground, _) => {}
            (State::Command | State::Device, ESC) => {
                // The end (`ESC \`), or something else cut it short: xterm acts on it either way.
                self.finish_string(false, take);
                self.enter(State::Escape);
            }
            (State::Command, BEL) => {
                self.finish_string(true, take);
                self.enter(State::Ground);
            }
            (State::Command | State::Device, _) => self.collect(byte, STRING_LIMIT),
            (_, ESC) => self.enter(State::Escape),
            // A control character in the middle of a sequence acts at once.
            (State::Escape | State::Control, 0..=0x1f) => take(Piece::Text(&[byte])),
            (State::Escape, _) => self.step_escape(byte, take),
            (State::Control, 0x20..=0x3f) => self.collect(byte, CSI_LIMIT),
            (State::Control, 0x40..=0x7e) => {
                self.collect(byte, CSI_LIMIT + 1);
                if !self.overflow {
                    take(Piece::Control(&self.collected));
                }
                self.enter(State::Ground);
            }
            (State::Swallow | State::Control, _) => {}
        }
    }

    fn step_escape(&mut self, byte: u8, take: &mut impl FnMut(Piece<'_>)) {
        match byte {
            b'[' if self.collected.is_empty() => self.enter(State::Control),
            b']' if self.collected.is_empty() => self.enter(State::Command),
            b'P' if self.collected.is_empty() => self.enter(State::Device),
            b'X' | b'^' | b'_' if self.collected.is_empty() => self.enter(State::Swallow),
            0x20..=0x2f => self.collect(byte, 2),
            0x30..=0x7e => {
                self.collect(byte, 3);
                if !self.overflow {
                    take(Piece::Escape(&self.collected));
                }
                self.enter(State::Ground);
            }
            0x7f => {}
            _ => {
                self.enter(State::Ground);
                self.tail.push(byte);
            }
        }
    }

    fn collect(&mut self, byte: u8, limit: usize) {
        if self.collected.len() < limit {
            self.collected.push(byte);
        } else {
            self.overflow = true;
        }
    }

    fn finish_string(&mut self, bell: bool, take: &mut impl FnMut(Piece<'_>)) {
        if self.overflow {
            return;
        }
        take(match self.state {
            State::Device => Piece::Device(&self.collected),
            _ => Piece::Command(&self.collected, bell),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(chunks: &[&[u8]]) -> Vec<String> {
        let mut gate = Gate::default();
        let mut out = Vec::new();
        for chunk in chunks {
            gate.cut(chunk, |piece| {
                out.push(match piece {
                    Piece::Text(b) => format!("text {}", b.escape_ascii()),
                    Piece::Escape(b) => format!("esc {}", b.escape_ascii()),
                    Piece::Control(b) => format!("csi {}", b.escape_ascii()),
                    Piece::Command(b, bell) => format!("osc {} {bell}", b.escape_ascii()),
                    Piece::Device(b) => format!("dcs {}", b.escape_ascii()),
                });
            });
        }
        out
    }

    #[test]
    fn cuts_at_sequences_wherever_the_chunks_end() {
        let stream =
            b"a\x1b[1;3mb\x1b]0;t\x07c\x1b]2;u\x1b\\d\x1bP$qm\x1b\\\x1b(0e\x1b_gone\x1b\\f";
        let whole = pieces(&[stream]);
        assert_eq!(
            whole,
            [
                "text a",
                "csi 1;3m",
                "text b",
                "osc 0;t true",
                "text c",
                "osc 2;u false",
                "esc \\\\",
                "text d",
                "dcs $qm",
                "esc \\\\",
                "esc (0",
                "text e",
                "esc \\\\",
                "text f"
            ]
        );
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(pieces(&single), whole);
    }

    #[test]
    fn a_control_character_inside_a_sequence_acts_first() {
        assert_eq!(pieces(&[b"\x1b[1\n;2m"]), ["text \\n", "csi 1;2m"]);
        assert_eq!(pieces(&[b"\x1b[1\x18;2m"]), ["text ;2m"]);
        assert_eq!(pieces(&[b"\x1b[1\x1b[2m"]), ["csi 2m"]);
    }

    #[test]
    fn characters_are_never_cut() {
        let text = "a漢🚀é".as_bytes();
        let single: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(pieces(&single).len(), 4);
        assert_eq!(
            pieces(&[b"a\xe6\xbc", b"\x1b[m"]),
            ["text a", r"text \xef\xbf\xbd", "csi m"]
        );
        assert_eq!(pieces(&[b"\xcc", b"\xcc\x81"]), [r"text \xcc\xcc\x81"]);
        assert_eq!(pieces(&[b"\x1b\xc3", b"\xa9"]), [r"text \xc3\xa9"]);
    }

    #[test]
    fn endless_sequences_are_left_out_whole() {
        let mut stream = b"\x1b]0;".to_vec();
        stream.resize(3 * STRING_LIMIT, b'x');
        stream.extend(b"\x07ok\x1b[");
        stream.resize(stream.len() + 2 * CSI_LIMIT, b'1');
        stream.extend(b"mfine");
        assert_eq!(pieces(&[&stream]), ["text ok", "text fine"]);
    }
}
