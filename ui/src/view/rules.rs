//! The page of rules: one line per rule, question, answer, remark and observed path.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Scene;
use super::ask::scope;
use crate::action::Name;
use crate::model::layout::Layout;
use crate::model::rules::{RulesPage, Stands, rows};
use crate::widget::line::{self, Look};
use crate::widget::pane;

/// Draws the page so that the cursor is in sight.
pub fn draw(buf: &mut Buffer, area: Rect, scene: Scene, page: &RulesPage, layout: &mut Layout) {
    let rows = rows(scene.state, scene.model.observed.as_ref());
    let cursor = page.cursor.min(rows.len().saturating_sub(1));
    let inside = pane::draw(buf, area, b"rules and questions", true, scene.theme);
    let height = usize::from(inside.height.saturating_sub(1));
    let top = page
        .top
        .clamp((cursor + 1).saturating_sub(height), cursor)
        .min(rows.len().saturating_sub(height));
    let bottom = inside.bottom().saturating_sub(1);
    for (at, y) in (top..rows.len()).zip(inside.top()..bottom) {
        let row = Rect::new(inside.x, y, inside.width, 1);
        let text = &rows[at];
        let under = at == cursor;
        if under {
            buf.set_style(row, scene.theme.style("ui.cursor"));
        }
        let scope = if under { "ui.cursor" } else { scope(text.tone) };
        // The cursor is a sign, not only a colour.
        let sign = if under { b">".as_slice() } else { b" " };
        let bytes = [sign, &text.text].concat();
        line::draw_bytes(buf, row, &bytes, &Look::of(scene.theme, scope));
    }
    let end = (top + height).min(rows.len());
    layout.page = Some(top..end);
    layout.page_len = rows.len();
    let key = |name| scene.model.keymap.key(name).unwrap_or_default();
    let can = match rows.get(cursor).map(|row| &row.stands) {
        Some(Stands::Ask(_)) => format!("{}: answer  ", key(Name::OpenAsk)),
        Some(Stands::Answer(_)) => format!("{} twice: forget  ", key(Name::Forget)),
        _ => String::new(),
    };
    let text = format!(
        "{can}{}: count again  {}: back",
        key(Name::Refresh),
        key(Name::Cancel)
    );
    let foot = Rect::new(inside.x + 1, bottom, inside.width.saturating_sub(2), 1);
    line::draw_text(buf, foot, &text, scene.theme.style("ui.text.dim"));
}
