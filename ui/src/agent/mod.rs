//! Stand-in until the agent pane is merged.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseEvent};
use pvisor::emulator::{Emulator, Modes};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::Widget;

/// Stand-in.
pub struct AgentPane<'a> {
    emulator: &'a Emulator,
}

impl<'a> AgentPane<'a> {
    /// Stand-in.
    pub fn new(emulator: &'a Emulator) -> Self {
        Self { emulator }
    }
}

impl Widget for AgentPane<'_> {
    fn render(self, area: Rect, buf: &mut Buffer) {
        for (y, line) in (area.top()..area.bottom()).zip(self.emulator.text().lines()) {
            buf.set_stringn(
                area.x,
                y,
                line,
                area.width.into(),
                ratatui::style::Style::new(),
            );
        }
    }
}

/// Stand-in.
pub fn encode_key(key: &KeyEvent, _modes: &Modes) -> Option<Vec<u8>> {
    match key.code {
        KeyCode::Char(c) if key.modifiers.contains(KeyModifiers::CONTROL) => {
            Some(vec![c as u8 & 0x1f])
        }
        KeyCode::Char(c) => Some(c.to_string().into_bytes()),
        KeyCode::Enter => Some(b"\r".to_vec()),
        _ => None,
    }
}

/// Stand-in.
pub fn encode_mouse(_mouse: &MouseEvent, _area: Rect, _modes: &Modes) -> Option<Vec<u8>> {
    None
}

/// Stand-in.
pub fn encode_paste(text: &str, _modes: &Modes) -> Vec<u8> {
    text.as_bytes().to_vec()
}

/// Stand-in.
pub fn encode_focus(_focused: bool, _modes: &Modes) -> Option<Vec<u8>> {
    None
}
