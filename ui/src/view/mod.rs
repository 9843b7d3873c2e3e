//! Views: what the screen shows of a session's state and a person's model. Pure: they take `&`,
//! draw into the frame and return only where things lie.

mod agent;
mod ask;
mod changes;
mod confirm;
mod diff;
mod footer;
mod geometry;
mod help;
mod log;
mod quit;
mod rules;
mod small;
mod status;
mod tabs;

use pvisor::session::state::SessionState;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::model::dialog::Dialog;
use crate::model::layout::Layout;
use crate::model::{Model, Pane};
use crate::theme::Theme;
use crate::widget::pane;

pub use help::key_table;

/// What a view needs to draw.
#[derive(Clone, Copy)]
struct Scene<'a> {
    state: &'a SessionState,
    model: &'a Model,
    theme: &'a Theme,
}

/// Draws everything.
pub fn draw(frame: &mut Frame, state: &SessionState, model: &Model, theme: &Theme) -> Layout {
    let area = frame.area();
    let mut layout = Layout {
        area,
        ..Layout::default()
    };
    let cursor = {
        let buf = frame.buffer_mut();
        buf.set_style(area, theme.style("ui.background"));
        let scene = Scene {
            state,
            model,
            theme,
        };
        draw_into(buf, area, scene, &mut layout)
    };
    if let Some(position) = cursor {
        frame.set_cursor_position(position);
    }
    layout
}

/// Draws into a buffer; returns where the terminal's cursor belongs, if anywhere.
fn draw_into(
    buf: &mut Buffer,
    area: Rect,
    scene: Scene,
    layout: &mut Layout,
) -> Option<(u16, u16)> {
    let model = scene.model;
    let Some(geometry) = geometry::of(area, model.focus, model.zoom) else {
        layout.too_small = true;
        small::draw(buf, area, scene);
        return None;
    };
    layout.agent_size = Some(geometry.agent_size);
    if let Some(row) = geometry.tabs {
        layout.tabs = tabs::draw(buf, row, scene);
    }
    let page = matches!(
        model.dialog,
        Some(
            Dialog::Help { .. }
                | Dialog::Confirm(_)
                | Dialog::Quit
                | Dialog::Ask(_)
                | Dialog::Rules(_)
        )
    );
    let mut cursor = None;
    if page {
        match &model.dialog {
            Some(Dialog::Help { top }) => help::draw(buf, geometry.body, scene, *top, layout),
            Some(Dialog::Confirm(page)) => {
                confirm::draw(buf, geometry.body, scene, page, layout);
            }
            Some(Dialog::Ask(page)) => ask::draw(buf, geometry.body, scene, page, layout),
            Some(Dialog::Rules(page)) => rules::draw(buf, geometry.body, scene, page, layout),
            _ => quit::draw(buf, geometry.body, scene),
        }
    } else {
        for (which, area) in &geometry.panes {
            let inside = if geometry.framed {
                let title = title(scene, *which);
                pane::draw(buf, *area, &title, *which == model.focus, scene.theme)
            } else {
                *area
            };
            layout.panes.push((*which, inside));
            match which {
                Pane::Files => changes::draw(buf, inside, scene, layout),
                Pane::Diff => diff::draw(buf, inside, scene, layout),
                Pane::Agent => {
                    let at = agent::draw(buf, inside, scene);
                    if *which == model.focus {
                        cursor = at;
                    }
                }
                Pane::Log => log::draw(buf, inside, scene, layout),
            }
        }
    }
    layout.agent_cursor = cursor.is_some();
    status::draw(buf, geometry.status, scene);
    footer::draw(buf, geometry.footer, scene).or(cursor)
}

/// A pane's title, exact bytes.
fn title(scene: Scene, which: Pane) -> Vec<u8> {
    let number = Pane::ALL.iter().position(|p| *p == which).unwrap_or(0) + 1;
    let mut text = format!("{number} {}", which.title()).into_bytes();
    match which {
        Pane::Diff => {
            if let Some(key) = &scene.model.diff.key {
                text.extend_from_slice(b": ");
                text.extend_from_slice(key.path.as_bytes());
            }
        }
        Pane::Agent => {
            if let Some(info) = &scene.state.info {
                text.extend_from_slice(b": ");
                text.extend_from_slice(info.command.join(" ").as_bytes());
            }
        }
        Pane::Files | Pane::Log => {}
    }
    text
}
