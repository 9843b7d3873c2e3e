//! The agent's pane: its terminal as the emulator has it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::Widget;

use super::Scene;
use crate::agent::{AgentPane, ColorDepth};
use crate::theme::Depth;
use crate::widget::line;

/// Draws the terminal; returns where its cursor is, when it can be seen.
pub fn draw(buf: &mut Buffer, area: Rect, scene: Scene) -> Option<(u16, u16)> {
    let emulator = &scene.model.agent.emulator;
    let depth = match scene.theme.depth() {
        Depth::None => ColorDepth::None,
        Depth::Basic => ColorDepth::Sixteen,
        Depth::Indexed => ColorDepth::Indexed,
        Depth::True => ColorDepth::Truecolor,
    };
    let pane = AgentPane::new(emulator)
        .depth(depth)
        .filler(scene.theme.style("ui.text.dim"));
    let cursor = pane.cursor_position(area);
    pane.render(area, buf);
    let up = emulator.scroll_offset();
    if up > 0 {
        let text = format!(" {up} lines up ");
        let width = (text.len() as u16).min(area.width);
        let at = Rect::new(area.right() - width, area.y, width, 1);
        line::draw_text(buf, at, &text, scene.theme.style("ui.tab.active"));
    }
    cursor.map(|p| (p.x, p.y))
}
