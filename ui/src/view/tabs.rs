//! The row of tabs on a screen that shows one pane at a time.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Scene;
use crate::model::Pane;
use crate::widget::line;

/// Draws the tabs; returns where each lies.
pub fn draw(buf: &mut Buffer, row: Rect, scene: Scene) -> Vec<(Rect, Pane)> {
    let mut tabs = Vec::new();
    let mut x = row.x;
    for (i, pane) in Pane::ALL.into_iter().enumerate() {
        let active = pane == scene.model.focus;
        let scope = if active { "ui.tab.active" } else { "ui.tab" };
        let text = if active {
            format!("[{} {}]", i + 1, pane.title())
        } else {
            format!(" {} {} ", i + 1, pane.title())
        };
        let room = Rect::new(x, row.y, row.right().saturating_sub(x), 1);
        let used = line::draw_text(buf, room, &text, scene.theme.style(scope));
        tabs.push((Rect::new(x, row.y, used, 1), pane));
        x += used + 1;
    }
    // What the diff is about, where there is room.
    if scene.model.focus == Pane::Diff
        && let Some(key) = &scene.model.diff.key
    {
        let room = Rect::new(x, row.y, row.right().saturating_sub(x), 1);
        let look = line::Look::of(scene.theme, "ui.title.focused");
        line::draw_end(buf, room, key.path.as_bytes(), &look);
    }
    tabs
}
