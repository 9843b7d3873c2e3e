//! A mouse event as the bytes the agent asked for. Pure.

use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use pvisor::emulator::{Modes, Mouse};
use ratatui::layout::Rect;

/// Cursor keys one step of the wheel becomes on the alternate screen.
const WHEEL_STEPS: usize = 3;
/// Largest coordinate the old form of three bytes can carry.
const OLD_LIMIT: u16 = 223;

/// The bytes for `event` in a pane drawn at `area`; `None` when the agent did not ask for it or it
/// happened elsewhere. A drag or release that began inside counts at the nearest cell.
pub fn encode_mouse(event: &MouseEvent, area: Rect, modes: &Modes) -> Option<Vec<u8>> {
    if area.is_empty() {
        return None;
    }
    let inside = area.contains((event.column, event.row).into());
    if modes.mouse == Mouse::Off {
        return wheel_as_keys(event.kind, modes).filter(|_| inside);
    }
    let held_motion = matches!(event.kind, MouseEventKind::Drag(_) | MouseEventKind::Up(_));
    if !inside && !held_motion {
        return None;
    }
    let column = event.column.clamp(area.left(), area.right() - 1) - area.left() + 1;
    let row = event.row.clamp(area.top(), area.bottom() - 1) - area.top() + 1;

    let (code, released) = match event.kind {
        MouseEventKind::Down(pressed) => (button(pressed), false),
        MouseEventKind::Up(pressed) => (button(pressed), true),
        MouseEventKind::Drag(pressed) if modes.mouse != Mouse::Click => {
            (button(pressed) + 32, false)
        }
        MouseEventKind::Moved if modes.mouse == Mouse::Motion => (35, false),
        MouseEventKind::ScrollUp => (64, false),
        MouseEventKind::ScrollDown => (65, false),
        MouseEventKind::ScrollLeft => (66, false),
        MouseEventKind::ScrollRight => (67, false),
        MouseEventKind::Drag(_) | MouseEventKind::Moved => return None,
    };
    let held = |modifier, value| {
        if event.modifiers.contains(modifier) {
            value
        } else {
            0
        }
    };
    let modifiers =
        held(KeyModifiers::SHIFT, 4) + held(KeyModifiers::ALT, 8) + held(KeyModifiers::CONTROL, 16);
    if modes.mouse_sgr {
        let action = if released { 'm' } else { 'M' };
        return Some(format!("\x1b[<{};{column};{row}{action}", code + modifiers).into_bytes());
    }
    if column > OLD_LIMIT || row > OLD_LIMIT {
        return None;
    }
    // The old form does not say which button was released.
    let code = if released { 3 } else { code } + modifiers;
    Some(vec![
        0x1b,
        b'[',
        b'M',
        32 + code,
        32 + column as u8,
        32 + row as u8,
    ])
}

fn button(button: MouseButton) -> u8 {
    match button {
        MouseButton::Left => 0,
        MouseButton::Middle => 1,
        MouseButton::Right => 2,
    }
}

fn wheel_as_keys(kind: MouseEventKind, modes: &Modes) -> Option<Vec<u8>> {
    if !modes.alternate_screen || !modes.alternate_scroll {
        return None;
    }
    let key = match (kind, modes.app_cursor) {
        (MouseEventKind::ScrollUp, false) => b"\x1b[A",
        (MouseEventKind::ScrollUp, true) => b"\x1bOA",
        (MouseEventKind::ScrollDown, false) => b"\x1b[B",
        (MouseEventKind::ScrollDown, true) => b"\x1bOB",
        _ => return None,
    };
    Some(key.repeat(WHEEL_STEPS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: Rect = Rect {
        x: 10,
        y: 5,
        width: 80,
        height: 20,
    };

    fn event(kind: MouseEventKind, column: u16, row: u16) -> MouseEvent {
        MouseEvent {
            kind,
            column,
            row,
            modifiers: KeyModifiers::NONE,
        }
    }

    fn sent(event: MouseEvent, mouse: Mouse, sgr: bool) -> Option<String> {
        let modes = Modes {
            mouse,
            mouse_sgr: sgr,
            ..Modes::default()
        };
        encode_mouse(&event, AREA, &modes).map(|bytes| bytes.escape_ascii().to_string())
    }

    #[test]
    fn sgr_form_tells_button_place_and_release() {
        let left = MouseButton::Left;
        let table = [
            (MouseEventKind::Down(left), Some(r"\x1b[<0;1;1M")),
            (
                MouseEventKind::Up(MouseButton::Right),
                Some(r"\x1b[<2;1;1m"),
            ),
            (MouseEventKind::Drag(left), Some(r"\x1b[<32;1;1M")),
            (MouseEventKind::Moved, Some(r"\x1b[<35;1;1M")),
            (MouseEventKind::ScrollUp, Some(r"\x1b[<64;1;1M")),
            (MouseEventKind::ScrollRight, Some(r"\x1b[<67;1;1M")),
        ];
        for (kind, bytes) in table {
            assert_eq!(
                sent(event(kind, 10, 5), Mouse::Motion, true).as_deref(),
                bytes,
                "{kind:?}"
            );
        }
        let mut held = event(MouseEventKind::Down(left), 89, 24);
        held.modifiers = KeyModifiers::CONTROL | KeyModifiers::SHIFT;
        assert_eq!(
            sent(held, Mouse::Click, true).as_deref(),
            Some(r"\x1b[<20;80;20M")
        );
    }

    #[test]
    fn only_what_was_asked_for_is_sent() {
        let drag = event(MouseEventKind::Drag(MouseButton::Left), 12, 6);
        assert_eq!(sent(drag, Mouse::Click, true), None);
        assert!(sent(drag, Mouse::Drag, true).is_some());
        let moved = event(MouseEventKind::Moved, 12, 6);
        assert_eq!(sent(moved, Mouse::Drag, true), None);
        let down = event(MouseEventKind::Down(MouseButton::Left), 12, 6);
        assert_eq!(sent(down, Mouse::Off, true), None);
    }

    #[test]
    fn outside_counts_only_for_what_began_inside() {
        let down = event(MouseEventKind::Down(MouseButton::Left), 9, 6);
        assert_eq!(sent(down, Mouse::Motion, true), None);
        let up = event(MouseEventKind::Up(MouseButton::Left), 0, 99);
        assert_eq!(
            sent(up, Mouse::Motion, true).as_deref(),
            Some(r"\x1b[<0;1;20m")
        );
        let empty = Rect { width: 0, ..AREA };
        assert_eq!(encode_mouse(&down, empty, &Modes::default()), None);
    }

    #[test]
    fn old_form_has_three_bytes_and_an_end() {
        let down = event(MouseEventKind::Down(MouseButton::Middle), 12, 6);
        assert_eq!(
            sent(down, Mouse::Click, false).as_deref(),
            Some("\\x1b[M!#\\\"")
        );
        let up = event(MouseEventKind::Up(MouseButton::Middle), 12, 6);
        assert_eq!(
            sent(up, Mouse::Click, false).as_deref(),
            Some("\\x1b[M##\\\"")
        );
        let far = event(MouseEventKind::Down(MouseButton::Left), 240, 6);
        let wide = Rect { width: 400, ..AREA };
        let modes = Modes {
            mouse: Mouse::Click,
            ..Modes::default()
        };
        assert_eq!(encode_mouse(&far, wide, &modes), None);
    }

    #[test]
    fn the_wheel_becomes_cursor_keys_on_the_alternate_screen() {
        let up = event(MouseEventKind::ScrollUp, 12, 6);
        let modes = Modes {
            alternate_screen: true,
            alternate_scroll: true,
            ..Modes::default()
        };
        assert_eq!(
            encode_mouse(&up, AREA, &modes),
            Some(b"\x1b[A\x1b[A\x1b[A".to_vec())
        );
        let modes = Modes {
            alternate_screen: false,
            ..modes
        };
        assert_eq!(encode_mouse(&up, AREA, &modes), None);
    }
}
