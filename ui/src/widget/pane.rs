//! The frame of a pane: border, number, title. Owns its looks; the inside is the caller's.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Block, Widget};

use super::line;
use crate::theme::Theme;

/// Draws a frame and returns its inside.
pub fn draw(buf: &mut Buffer, area: Rect, title: &[u8], focused: bool, theme: &Theme) -> Rect {
    let (border, scope) = if focused {
        ("ui.border.focused", "ui.title.focused")
    } else {
        ("ui.border", "ui.title")
    };
    let block = Block::bordered().border_style(theme.style(border));
    let inside = block.inner(area);
    block.render(area, buf);
    if area.width > 4 {
        let room = Rect::new(area.x + 2, area.y, area.width - 4, 1);
        let look = line::Look::of(theme, scope);
        // The pane with the focus is told by more than its colour.
        let marked: Vec<u8> = if focused {
            [b"> ".as_slice(), title, b" "].concat()
        } else {
            [b" ".as_slice(), title, b" "].concat()
        };
        line::draw_bytes(buf, room, &marked, &look);
    }
    inside
}
