//! The log: the session's notices, ours, and the commits.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Scene;
use crate::model::layout::Layout;
use crate::model::{Severity, marks};
use crate::widget::line::{self, Glyphs, How, Look};

/// Draws the newest lines, or those scrolled to.
pub fn draw(buf: &mut Buffer, area: Rect, scene: Scene, layout: &mut Layout) {
    let mut lines: Vec<(&'static str, String)> = Vec::new();
    for note in &scene.state.boundary.notes {
        lines.push(("ui.text.dim", format!("boundary: {note}")));
    }
    for commit in &scene.state.commits {
        let what = match commit.undoes {
            Some(n) => format!("commit {} undid commit {n}", commit.number),
            None => format!("commit {}", commit.number),
        };
        lines.push((
            "page.head",
            format!(
                "{what}: {}, by {}",
                marks::count(commit.paths.len(), "path"),
                commit.by
            ),
        ));
    }
    for notice in &scene.state.notices {
        lines.push(("notice.warning", notice.clone()));
    }
    for notice in &scene.model.notices {
        lines.push((scope(notice.severity), notice.text.clone()));
    }
    if lines.is_empty() {
        lines.push(("ui.text.dim", "Nothing happened yet.".into()));
    }
    let width = usize::from(area.width);
    let mut rows: Vec<(&'static str, Vec<line::Glyph>)> = Vec::new();
    for (scope, text) in lines {
        let glyphs = Glyphs::of(text.as_bytes(), How::default());
        for range in glyphs.wrapped(width) {
            rows.push((scope, glyphs.glyphs[range].to_vec()));
        }
    }
    let height = usize::from(area.height);
    let last = rows.len().saturating_sub(height);
    let top = last - scene.model.log_up.min(last);
    for (y, (scope, glyphs)) in (area.top()..area.bottom()).zip(rows.iter().skip(top)) {
        let look = Look::of(scene.theme, scope);
        line::draw(buf, (area.x, y), area.width, glyphs, 0, &look);
    }
    layout.log = (height, rows.len());
}

/// Scope of a notice.
pub fn scope(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "notice.info",
        Severity::Warning => "notice.warning",
        Severity::Error => "notice.error",
    }
}
