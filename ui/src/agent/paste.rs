//! Pasted text and focus changes as the bytes the agent asked for. Pure.

use pvisor::emulator::Modes;

/// The bytes for a paste of `text`, framed by marks when the agent asked for them.
///
/// Lines end as Enter ends them. Other control characters but the tab are left out: text must not
/// press keys, and without an escape character in it no end mark can hide there.
pub fn encode_paste(text: &str, modes: &Modes) -> Vec<u8> {
    let content: String = text
        .replace("\r\n", "\r")
        .chars()
        .map(|c| if c == '\n' { '\r' } else { c })
        .filter(|c| matches!(c, '\r' | '\t') || !c.is_control())
        .collect();
    if modes.bracketed_paste {
        format!("\x1b[200~{content}\x1b[201~").into_bytes()
    } else {
        content.into_bytes()
    }
}

/// The bytes that tell the agent its pane got or lost the focus; `None` when it did not ask.
pub fn encode_focus(focused: bool, modes: &Modes) -> Option<Vec<u8>> {
    let bytes: &[u8] = if focused { b"\x1b[I" } else { b"\x1b[O" };
    modes.focus_events.then(|| bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paste_cannot_leave_its_frame() {
        let modes = Modes {
            bracketed_paste: true,
            ..Modes::default()
        };
        let hostile = "a\r\nb\nc\td\x1b[20\x1b[201~1~\x03\u{9b}201~é";
        assert_eq!(
            String::from_utf8_lossy(&encode_paste(hostile, &modes)),
            "\x1b[200~a\rb\rc\td[20[201~1~201~é\x1b[201~"
        );
        assert_eq!(encode_paste("x\ny\x04", &Modes::default()), b"x\ry");
    }

    #[test]
    fn focus_is_told_only_to_who_asked() {
        let modes = Modes {
            focus_events: true,
            ..Modes::default()
        };
        assert_eq!(encode_focus(true, &modes), Some(b"\x1b[I".to_vec()));
        assert_eq!(encode_focus(false, &modes), Some(b"\x1b[O".to_vec()));
        assert_eq!(encode_focus(true, &Modes::default()), None);
    }
}
