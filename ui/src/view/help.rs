//! The help page, made of the action table and the keymap in force.

use std::fmt::Write as _;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Scene;
use crate::action::{Entry, TABLE};
use crate::keymap::Keymap;
use crate::model::layout::Layout;
use crate::widget::{line, pane};

/// Columns for the keys.
const KEYS: u16 = 20;

enum Line {
    Heading(&'static str),
    Action(&'static Entry, String),
    Blank,
}

fn lines(keymap: &Keymap) -> Vec<Line> {
    let mut out = Vec::new();
    let mut group = None;
    for entry in TABLE {
        if group != Some(entry.group) {
            if group.is_some() {
                out.push(Line::Blank);
            }
            out.push(Line::Heading(entry.group.title()));
            group = Some(entry.group);
        }
        let keys = keymap.keys(entry.name);
        let keys = if keys.is_empty() {
            format!(":{}", entry.id)
        } else {
            keys.join(" ")
        };
        out.push(Line::Action(entry, keys));
    }
    out
}

/// Draws the page from line `top` on.
pub fn draw(buf: &mut Buffer, area: Rect, scene: Scene, top: usize, layout: &mut Layout) {
    let lines = lines(&scene.model.keymap);
    let height = usize::from(area.height.saturating_sub(2));
    let top = top.min(lines.len().saturating_sub(height));
    let end = (top + height).min(lines.len());
    let title = format!("keys, lines {}-{end} of {}", top + 1, lines.len());
    let inside = pane::draw(buf, area, title.as_bytes(), true, scene.theme);
    for (y, line) in (inside.top()..inside.bottom()).zip(lines.iter().skip(top)) {
        let row = Rect::new(inside.x, y, inside.width, 1);
        match line {
            Line::Heading(title) => {
                line::draw_text(buf, row, title, scene.theme.style("page.head"));
            }
            Line::Action(entry, keys) => {
                let left = Rect::new(row.x + 1, y, KEYS.min(row.width.saturating_sub(1)), 1);
                line::draw_text(buf, left, keys, scene.theme.style("ui.key"));
                let right = Rect::new(row.x + KEYS + 2, y, row.width.saturating_sub(KEYS + 2), 1);
                line::draw_text(buf, right, entry.help, scene.theme.style("ui.text"));
            }
            Line::Blank => {}
        }
    }
    layout.page = Some(top..end);
    layout.page_len = lines.len();
}

/// The table as Markdown, for the documentation: group, keys, id, help.
pub fn key_table(keymap: &Keymap) -> String {
    let mut out = String::from("| keys | action | what it does |\n|---|---|---|\n");
    for entry in TABLE {
        let keys: Vec<String> = keymap
            .keys(entry.name)
            .iter()
            .map(|k| format!("`{}`", k.replace('|', "\\|")))
            .collect();
        let _ = writeln!(
            out,
            "| {} | `{}` | {} |",
            keys.join(" "),
            entry.id,
            entry.help
        );
    }
    out
}
