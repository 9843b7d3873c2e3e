//! A screen too small to show what is decided: it says so, and only ways back work.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{Scene, geometry};
use crate::action::Name;
use crate::model::dialog::Dialog;
use crate::widget::line;

/// Draws what fits.
pub fn draw(buf: &mut Buffer, area: Rect, scene: Scene) {
    let (width, height) = geometry::SMALLEST;
    let key = |name| scene.model.keymap.key(name).unwrap_or_default();
    let lines = match scene.model.dialog {
        Some(Dialog::Quit) => vec![
            format!("leave? {} leaves, the agent goes on", key(Name::Detach)),
            format!("{}: stay", key(Name::Deny)),
        ],
        Some(Dialog::Ask(ref page)) => vec![
            format!(
                "question {}: {} denies, {} later",
                page.id,
                key(Name::DenyAccess),
                key(Name::AskLater)
            ),
            format!("A larger screen ({width}x{height}) can allow."),
        ],
        _ => vec![
            format!("needs {width}x{height}; {}: quit", key(Name::Quit)),
            "Nothing can be decided here.".to_owned(),
        ],
    };
    for (y, text) in (area.top()..area.bottom()).zip(&lines) {
        let row = Rect::new(area.x, y, area.width, 1);
        line::draw_text(buf, row, text, scene.theme.style("notice.warning"));
    }
}
