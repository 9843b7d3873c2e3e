//! The last row: a line being typed, the last notice, or the keys that matter here.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{Scene, log};
use crate::action::TABLE;
use crate::model::dialog::{Dialog, TextFor, TextLine};
use crate::widget::line::{self, Look};

/// Draws the row; returns where the cursor of a typed line is.
pub fn draw(buf: &mut Buffer, row: Rect, scene: Scene) -> Option<(u16, u16)> {
    if let Some(Dialog::Text(text)) = &scene.model.dialog {
        return Some(typed(buf, row, scene, text));
    }
    if let Some(notice) = &scene.model.notice {
        let look = Look::of(scene.theme, log::scope(notice.severity));
        line::draw_bytes(buf, row, notice.text.as_bytes(), &look);
        return None;
    }
    let context = scene.model.context();
    let mut x = row.x;
    for entry in TABLE {
        if entry.hint.is_empty() || !entry.contexts.contains(&context) {
            continue;
        }
        let Some(key) = scene.model.keymap.key(entry.name) else {
            continue;
        };
        let width = (key.chars().count() + entry.hint.chars().count() + 3) as u16;
        if x + width > row.right() {
            break;
        }
        let room = |x: u16| Rect::new(x, row.y, row.right() - x, 1);
        x += line::draw_text(buf, room(x), &key, scene.theme.style("ui.key"));
        x += 1;
        x += line::draw_text(buf, room(x), entry.hint, scene.theme.style("ui.text.dim"));
        x += 2;
    }
    None
}

fn typed(buf: &mut Buffer, row: Rect, scene: Scene, text: &TextLine) -> (u16, u16) {
    let label = match &text.purpose {
        TextFor::Reason(choice) => match choice.targets.as_slice() {
            [_] => "Reject. Reason (may be empty): ".to_owned(),
            many => format!("Reject {}. Reason (may be empty): ", many.len()),
        },
        TextFor::Command => ":".to_owned(),
        TextFor::Search => "/".to_owned(),
    };
    buf.set_style(row, scene.theme.style("ui.input"));
    let used = line::draw_text(buf, row, &label, scene.theme.style("ui.key"));
    let room = Rect::new(row.x + used, row.y, row.width.saturating_sub(used + 1), 1);
    let look = Look::of(scene.theme, "ui.input");
    let end = line::draw_end(buf, room, text.text.as_bytes(), &look);
    ((room.x + end).min(row.right().saturating_sub(1)), row.y)
}
