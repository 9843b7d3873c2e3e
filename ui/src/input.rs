//! Input: what comes from the terminal, before it has a meaning. Owns the choice of which terminal
//! events count; knows no action.

use crossterm::event::{Event, KeyEvent, KeyEventKind, MouseEvent};
use ratatui::layout::Size;

/// One thing that came from the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A key.
    Key(KeyEvent),
    /// Pasted text, whole.
    Paste(String),
    /// The mouse moved, was pressed, released or turned.
    Mouse(MouseEvent),
    /// The terminal has this size now.
    Resize(Size),
    /// The terminal gained (`true`) or lost the focus.
    Focus(bool),
}

impl Input {
    /// From the terminal's event; `None` for what nobody asks for (a key's release).
    pub fn from_event(event: Event) -> Option<Self> {
        match event {
            Event::Key(key) if key.kind == KeyEventKind::Release => None,
            Event::Key(key) => Some(Input::Key(key)),
            Event::Paste(text) => Some(Input::Paste(text)),
            Event::Mouse(mouse) => Some(Input::Mouse(mouse)),
            Event::Resize(width, height) => Some(Input::Resize(Size { width, height })),
            Event::FocusGained => Some(Input::Focus(true)),
            Event::FocusLost => Some(Input::Focus(false)),
        }
    }
}
