//! The agent's pane: its terminal as the emulator has it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::Widget;

use super::Scene;
use crate::agent::AgentPane;

/// Draws the terminal; returns where its cursor is, when it can be seen.
pub fn draw(buf: &mut Buffer, area: Rect, scene: Scene) -> Option<(u16, u16)> {
    let pane = AgentPane::new(&scene.model.agent.emulator);
    pane.render(area, buf);
    None
}
