//! A key press as the bytes a terminal sends for it: xterm's encoding, and `CSI u` where the agent
//! asked for keys that can be told apart. Pure.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyEventState, KeyModifiers};
use pvisor::emulator::Modes;

/// The bytes for `key`; `None` for a release and for keys that a terminal has no bytes for.
pub fn encode_key(key: &KeyEvent, modes: &Modes) -> Option<Vec<u8>> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let held = key.modifiers;
    if modes.app_keypad
        && held.is_empty()
        && key.state.contains(KeyEventState::KEYPAD)
        && let Some(action) = keypad(key.code)
    {
        return Some(vec![0x1b, b'O', action]);
    }
    let bytes = match key.code {
        KeyCode::Char(c) => character(c, held, modes),
        KeyCode::Enter => {
            let plain = if modes.newline { "\r\n" } else { "\r" };
            special(13, plain, held, modes)
        }
        KeyCode::Tab if !held.contains(KeyModifiers::SHIFT) => special(9, "\t", held, modes),
        KeyCode::Tab | KeyCode::BackTab => {
            let held = held | KeyModifiers::SHIFT;
            if modes.disambiguate_keys {
                csi_u(9, held)
            } else {
                special(9, "\x1b[Z", held, modes)
            }
        }
        KeyCode::Backspace => {
            let plain = if held.contains(KeyModifiers::CONTROL) {
                "\x08"
            } else {
                "\x7f"
            };
            special(127, plain, held, modes)
        }
        // Alone it cannot be told from the beginning of a sequence.
        KeyCode::Esc if modes.disambiguate_keys => csi_u(27, held),
        KeyCode::Esc => special(27, "\x1b", held, modes),
        KeyCode::Null => vec![0],
        KeyCode::Up => cursor(b'A', held, modes),
        KeyCode::Down => cursor(b'B', held, modes),
        KeyCode::Right => cursor(b'C', held, modes),
        KeyCode::Left => cursor(b'D', held, modes),
        KeyCode::KeypadBegin => cursor(b'E', held, modes),
        KeyCode::End => cursor(b'F', held, modes),
        KeyCode::Home => cursor(b'H', held, modes),
        KeyCode::Insert => numbered(2, held),
        KeyCode::Delete => numbered(3, held),
        KeyCode::PageUp => numbered(5, held),
        KeyCode::PageDown => numbered(6, held),
        KeyCode::Menu => numbered(29, held),
        KeyCode::F(number) => function(number, held)?,
        _ => return None,
    };
    Some(bytes)
}

/// The modifiers as xterm counts them: 1 is none.
fn count(held: KeyModifiers) -> u8 {
    let bit = |modifier, value| if held.contains(modifier) { value } else { 0 };
    1 + bit(KeyModifiers::SHIFT, 1)
        + bit(KeyModifiers::ALT, 2)
        + bit(KeyModifiers::CONTROL, 4)
        + bit(KeyModifiers::SUPER, 8)
}

fn csi_u(code: u32, held: KeyModifiers) -> Vec<u8> {
    match count(held) {
        1 => format!("\x1b[{code}u").into_bytes(),
        held => format!("\x1b[{code};{held}u").into_bytes(),
    }
}

fn character(c: char, held: KeyModifiers, modes: &Modes) -> Vec<u8> {
    let (control, alt) = (
        held.contains(KeyModifiers::CONTROL),
        held.contains(KeyModifiers::ALT),
    );
    if modes.disambiguate_keys && (control || alt) {
        // The key is named by what it gives without Shift.
        let (key, held) = if c.is_ascii_uppercase() {
            (c.to_ascii_lowercase(), held | KeyModifiers::SHIFT)
        } else {
            (c, held)
        };
        return csi_u(u32::from(key), held);
    }
    let mut bytes = Vec::new();
    if alt {
        bytes.push(0x1b);
    }
    if control && let Some(byte) = control_byte(c) {
        bytes.push(byte);
    } else {
        let shift = held.contains(KeyModifiers::SHIFT);
        let c = if shift { c.to_ascii_uppercase() } else { c };
        bytes.extend(c.encode_utf8(&mut [0; 4]).bytes());
    }
    bytes
}

/// What Ctrl makes of a character.
fn control_byte(c: char) -> Option<u8> {
    Some(match c {
        'a'..='z' | 'A'..='Z' => c.to_ascii_lowercase() as u8 & 0x1f,
        ' ' | '@' | '2' => 0,
        '[' | '3' => 0x1b,
        '\\' | '4' => 0x1c,
        ']' | '5' => 0x1d,
        '^' | '6' => 0x1e,
        '_' | '/' | '7' => 0x1f,
        '?' | '8' => 0x7f,
        _ => return None,
    })
}

/// A key that has bytes of its own: those, with Escape before them while Alt is held.
fn special(code: u32, plain: &str, held: KeyModifiers, modes: &Modes) -> Vec<u8> {
    if modes.disambiguate_keys && count(held) > 1 {
        return csi_u(code, held);
    }
    let alt = if held.contains(KeyModifiers::ALT) {
        "\x1b"
    } else {
        ""
    };
    format!("{alt}{plain}").into_bytes()
}

fn cursor(action: u8, held: KeyModifiers, modes: &Modes) -> Vec<u8> {
    let action = char::from(action);
    match count(held) {
        1 if modes.app_cursor => format!("\x1bO{action}"),
        1 => format!("\x1b[{action}"),
        held => format!("\x1b[1;{held}{action}"),
    }
    .into_bytes()
}

fn numbered(number: u8, held: KeyModifiers) -> Vec<u8> {
    match count(held) {
        1 => format!("\x1b[{number}~"),
        held => format!("\x1b[{number};{held}~"),
    }
    .into_bytes()
}

fn function(number: u8, held: KeyModifiers) -> Option<Vec<u8>> {
    if let 1..=4 = number {
        let action = char::from(b'P' + number - 1);
        let text = match count(held) {
            1 => format!("\x1bO{action}"),
            held => format!("\x1b[1;{held}{action}"),
        };
        return Some(text.into_bytes());
    }
    // The numbers have gaps, as on the keyboards they come from.
    const NUMBERS: [u8; 16] = [
        15, 17, 18, 19, 20, 21, 23, 24, 25, 26, 28, 29, 31, 32, 33, 34,
    ];
    let index = usize::from(number).checked_sub(5)?;
    NUMBERS.get(index).map(|code| numbered(*code, held))
}

/// The final byte of a keypad key in application mode.
fn keypad(code: KeyCode) -> Option<u8> {
    Some(match code {
        KeyCode::Char(digit @ '0'..='9') => b'p' + digit as u8 - b'0',
        KeyCode::Char('*') => b'j',
        KeyCode::Char('+') => b'k',
        KeyCode::Char(',') => b'l',
        KeyCode::Char('-') => b'm',
        KeyCode::Char('.') => b'n',
        KeyCode::Char('/') => b'o',
        KeyCode::Enter => b'M',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: KeyModifiers = KeyModifiers::NONE;
    const SHIFT: KeyModifiers = KeyModifiers::SHIFT;
    const ALT: KeyModifiers = KeyModifiers::ALT;
    const CTRL: KeyModifiers = KeyModifiers::CONTROL;

    fn sent(code: KeyCode, held: KeyModifiers, modes: &Modes) -> Option<String> {
        encode_key(&KeyEvent::new(code, held), modes).map(|b| b.escape_ascii().to_string())
    }

    #[test]
    fn keys_come_as_xterm_sends_them() {
        let table = [
            (KeyCode::Char('a'), NONE, "a"),
            (KeyCode::Char('A'), SHIFT, "A"),
            (KeyCode::Char('a'), SHIFT, "A"),
            (KeyCode::Char('é'), NONE, r"\xc3\xa9"),
            (KeyCode::Char('c'), CTRL, r"\x03"),
            (KeyCode::Char('C'), CTRL | SHIFT, r"\x03"),
            (KeyCode::Char(' '), CTRL, r"\x00"),
            (KeyCode::Char(']'), CTRL, r"\x1d"),
            (KeyCode::Char('/'), CTRL, r"\x1f"),
            (KeyCode::Char('x'), ALT, r"\x1bx"),
            (KeyCode::Char('x'), ALT | CTRL, r"\x1b\x18"),
            (KeyCode::Char(';'), CTRL, ";"),
            (KeyCode::Enter, NONE, r"\r"),
            (KeyCode::Enter, SHIFT, r"\r"),
            (KeyCode::Enter, ALT, r"\x1b\r"),
            (KeyCode::Tab, NONE, r"\t"),
            (KeyCode::BackTab, SHIFT, r"\x1b[Z"),
            (KeyCode::Tab, SHIFT, r"\x1b[Z"),
            (KeyCode::Backspace, NONE, r"\x7f"),
            (KeyCode::Backspace, CTRL, r"\x08"),
            (KeyCode::Backspace, ALT, r"\x1b\x7f"),
            (KeyCode::Esc, NONE, r"\x1b"),
            (KeyCode::Up, NONE, r"\x1b[A"),
            (KeyCode::Left, CTRL, r"\x1b[1;5D"),
            (KeyCode::Right, ALT | SHIFT, r"\x1b[1;4C"),
            (KeyCode::Home, NONE, r"\x1b[H"),
            (KeyCode::End, SHIFT, r"\x1b[1;2F"),
            (KeyCode::Delete, NONE, r"\x1b[3~"),
            (KeyCode::PageUp, CTRL, r"\x1b[5;5~"),
            (KeyCode::F(1), NONE, r"\x1bOP"),
            (KeyCode::F(4), CTRL, r"\x1b[1;5S"),
            (KeyCode::F(5), NONE, r"\x1b[15~"),
            (KeyCode::F(12), SHIFT, r"\x1b[24;2~"),
            (KeyCode::F(20), NONE, r"\x1b[34~"),
        ];
        for (code, held, bytes) in table {
            let got = sent(code, held, &Modes::default());
            assert_eq!(got.as_deref(), Some(bytes), "{code:?} {held:?}");
        }
        assert_eq!(sent(KeyCode::F(21), NONE, &Modes::default()), None);
        assert_eq!(sent(KeyCode::CapsLock, NONE, &Modes::default()), None);
    }

    #[test]
    fn application_modes_change_cursor_keypad_and_enter() {
        let modes = Modes {
            app_cursor: true,
            app_keypad: true,
            newline: true,
            ..Modes::default()
        };
        assert_eq!(sent(KeyCode::Up, NONE, &modes).as_deref(), Some(r"\x1bOA"));
        assert_eq!(
            sent(KeyCode::Up, CTRL, &modes).as_deref(),
            Some(r"\x1b[1;5A")
        );
        assert_eq!(sent(KeyCode::Enter, NONE, &modes).as_deref(), Some(r"\r\n"));
        let mut key = KeyEvent::new(KeyCode::Char('7'), NONE);
        key.state = KeyEventState::KEYPAD;
        assert_eq!(encode_key(&key, &modes).as_deref(), Some(&b"\x1bOw"[..]));
        assert_eq!(
            encode_key(&key, &Modes::default()).as_deref(),
            Some(&b"7"[..])
        );
    }

    #[test]
    fn keys_can_be_told_apart_when_asked_for() {
        let modes = Modes {
            disambiguate_keys: true,
            ..Modes::default()
        };
        let table = [
            (KeyCode::Enter, NONE, r"\r"),
            (KeyCode::Enter, SHIFT, r"\x1b[13;2u"),
            (KeyCode::Esc, NONE, r"\x1b[27u"),
            (KeyCode::Tab, NONE, r"\t"),
            (KeyCode::BackTab, SHIFT, r"\x1b[9;2u"),
            (KeyCode::Backspace, ALT, r"\x1b[127;3u"),
            (KeyCode::Char('a'), NONE, "a"),
            (KeyCode::Char('A'), SHIFT, "A"),
            (KeyCode::Char('c'), CTRL, r"\x1b[99;5u"),
            (KeyCode::Char('C'), CTRL, r"\x1b[99;6u"),
            (KeyCode::Char('é'), ALT, r"\x1b[233;3u"),
            (KeyCode::Up, NONE, r"\x1b[A"),
        ];
        for (code, held, bytes) in table {
            assert_eq!(
                sent(code, held, &modes).as_deref(),
                Some(bytes),
                "{code:?} {held:?}"
            );
        }
    }

    #[test]
    fn a_release_sends_nothing() {
        let mut key = KeyEvent::new(KeyCode::Char('a'), NONE);
        key.kind = KeyEventKind::Release;
        assert_eq!(encode_key(&key, &Modes::default()), None);
        key.kind = KeyEventKind::Repeat;
        assert_eq!(encode_key(&key, &Modes::default()), Some(b"a".to_vec()));
    }
}
