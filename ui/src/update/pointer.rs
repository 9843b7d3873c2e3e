//! The mouse: a click gives the focus and selects, the wheel scrolls what is under it. It never
//! decides and never answers a page.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use pvisor::protocol::{Request, Role};
use pvisor::session::state::SessionState;
use ratatui::layout::Position;

use crate::action::Name;
use crate::agent::encode_mouse;
use crate::effect::Effect;
use crate::model::{Model, Pane};

/// Rows a notch of the wheel moves.
const NOTCH: usize = 3;

/// Carries a mouse event out.
pub fn pointer(model: &mut Model, state: &SessionState, event: MouseEvent) -> Vec<Effect> {
    let at = Position::new(event.column, event.row);
    if model.layout.too_small {
        return Vec::new();
    }
    if model.dialog.is_some() {
        match event.kind {
            MouseEventKind::ScrollDown => repeat(model, Name::Down),
            MouseEventKind::ScrollUp => repeat(model, Name::Up),
            _ => {}
        }
        return Vec::new();
    }
    let pressed = matches!(event.kind, MouseEventKind::Down(MouseButton::Left));
    if pressed
        && let Some((_, pane)) = model
            .layout
            .tabs
            .iter()
            .find(|(r, _)| r.contains(at))
            .copied()
    {
        return super::focus(model, pane);
    }
    let Some((pane, area)) = model.layout.pane_at(at) else {
        return Vec::new();
    };
    if pane == Pane::Agent && super::running(state) && model.role == Role::Driver {
        if pressed {
            super::focus(model, Pane::Agent);
        }
        let modes = model.agent.emulator.modes();
        if let Some(bytes) = encode_mouse(&event, area, &modes) {
            return if model.focus == Pane::Agent {
                vec![Effect::Send(Request::Input(bytes))]
            } else {
                Vec::new()
            };
        }
    }
    match event.kind {
        MouseEventKind::Down(MouseButton::Left) => press(model, pane, at, area.y),
        MouseEventKind::ScrollDown => wheel(model, pane, true),
        MouseEventKind::ScrollUp => wheel(model, pane, false),
        _ => {}
    }
    Vec::new()
}

fn repeat(model: &mut Model, name: Name) {
    for _ in 0..NOTCH {
        super::navigate::scroll(model, name);
    }
}

fn press(model: &mut Model, pane: Pane, at: Position, top: u16) {
    super::focus(model, pane);
    let line = usize::from(at.y - top);
    match pane {
        Pane::Files => {
            let row = model.layout.list_rows.start + line;
            if row < model.layout.list_rows.end {
                if row == model.list.cursor {
                    model.stale |= model.list.fold(row, None);
                }
                model.list.cursor = row;
            }
        }
        Pane::Diff => {
            if let Some(row) = model.layout.diff_lines.get(line) {
                model.diff.cursor = *row;
            }
        }
        Pane::Agent | Pane::Log => {}
    }
}

fn wheel(model: &mut Model, pane: Pane, down: bool) {
    let step = |top: usize, len: usize| {
        if down {
            (top + NOTCH).min(len.saturating_sub(1))
        } else {
            top.saturating_sub(NOTCH)
        }
    };
    match pane {
        Pane::Files => {
            let drawn = model.layout.list_rows.len();
            let list = &mut model.list;
            list.top = step(list.top, list.rows.len().saturating_sub(drawn) + 1);
            list.cursor = list
                .cursor
                .clamp(list.top, (list.top + drawn).max(list.top + 1) - 1)
                .min(list.rows.len().saturating_sub(1));
        }
        Pane::Diff => {
            let drawn = model.layout.diff_rows.len().max(1);
            let len = model.diff.len();
            let diff = &mut model.diff;
            diff.skip = 0;
            diff.top = step(diff.top, len);
            diff.cursor = diff
                .cursor
                .clamp(diff.top, diff.top + drawn - 1)
                .min(len.saturating_sub(1));
        }
        Pane::Log => {
            let (height, all) = model.layout.log;
            let last = all.saturating_sub(height);
            model.log_up = if down {
                model.log_up.saturating_sub(NOTCH)
            } else {
                (model.log_up + NOTCH).min(last)
            };
        }
        Pane::Agent => model.agent.emulator.scroll(if down { -3 } else { 3 }),
    }
}
