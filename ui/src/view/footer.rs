//! The last row: a line being typed, the last notice, or the keys that matter here.

use pvisor::session::state::Ask;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{Scene, log};
use crate::action::{Context, Name, TABLE};
use crate::model::ask::who;
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
    if let Some(ask) = scene
        .model
        .held_back
        .and_then(|id| scene.state.asks.get(&id))
    {
        held_back(buf, row, scene, ask);
        return None;
    }
    hints(buf, row, scene);
    None
}

/// A question that does not take the keys from the agent's terminal: how to come to it, and what it
/// is as far as there is room.
fn held_back(buf: &mut Buffer, row: Rect, scene: Scene, ask: &Ask) {
    let key = scene.model.keymap.key(Name::LeaveAgent).unwrap_or_default();
    let used = line::draw_text(buf, row, &key, scene.theme.style("ui.key")) + 1;
    let room = Rect::new(row.x + used, row.y, row.width.saturating_sub(used), 1);
    let mut text = b"to answer: ".to_vec();
    text.extend(who(ask));
    text.push(b' ');
    text.extend(scene.state.absolute(&ask.what.key));
    let look = Look::of(scene.theme, "page.warn");
    line::draw_bytes(buf, room, &text, &look);
}

/// The keys that matter here: how to get help and out at the right, the others as far as they fit.
fn hints(buf: &mut Buffer, row: Rect, scene: Scene) {
    let context = scene.model.context();
    let on_help: &[(Name, &str)] = match context {
        Context::Help => &[
            (Name::Down, "down"),
            (Name::Up, "up"),
            (Name::PageDown, "page down"),
            (Name::PageUp, "page up"),
        ],
        _ => &[],
    };
    let shown: Vec<(Name, String, &str)> = TABLE
        .iter()
        .filter(|e| !e.hint.is_empty() && e.contexts.contains(&context))
        .map(|e| (e.name, e.hint))
        .chain(on_help.iter().copied())
        .filter_map(|(name, hint)| Some((name, scene.model.keymap.key(name)?, hint)))
        .collect();
    let (last, first): (Vec<_>, Vec<_>) = shown
        .into_iter()
        .partition(|(name, ..)| matches!(name, Name::Help | Name::Quit));
    let width = |key: &str, hint: &str| (key.chars().count() + hint.chars().count() + 3) as u16;
    let at_right: u16 = last.iter().map(|(_, key, hint)| width(key, hint)).sum();
    let end = row
        .right()
        .saturating_sub(at_right.saturating_sub(2))
        .max(row.x);
    let mut x = row.x;
    let mut put = |x: &mut u16, key: &str, hint: &str| {
        let room = |x: u16| Rect::new(x, row.y, row.right().saturating_sub(x), 1);
        *x += line::draw_text(buf, room(*x), key, scene.theme.style("ui.key")) + 1;
        *x += line::draw_text(buf, room(*x), hint, scene.theme.style("ui.text.dim")) + 2;
    };
    for (_, key, hint) in &first {
        if x + width(key, hint) > end {
            break;
        }
        put(&mut x, key, hint);
    }
    x = end;
    for (_, key, hint) in &last {
        put(&mut x, key, hint);
    }
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
