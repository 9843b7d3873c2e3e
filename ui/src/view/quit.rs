//! The question how to leave.

use pvisor::session::state::RunState;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Scene;
use crate::action::Name;
use crate::widget::{line, pane};

/// Draws the question.
pub fn draw(buf: &mut Buffer, area: Rect, scene: Scene) {
    let inside = pane::draw(buf, area, b"leave", true, scene.theme);
    let running = scene.state.run == Some(RunState::Running);
    let tally = scene.model.list.tally;
    let mut lines: Vec<(Option<Name>, String)> = vec![
        (
            None,
            if running {
                "The agent's command is still running.".into()
            } else {
                "The agent's command has ended.".into()
            },
        ),
        (
            None,
            format!(
                "{} undecided, {} approved and not committed.",
                tally.undecided + tally.mixed,
                tally.approved
            ),
        ),
        (None, String::new()),
    ];
    let leave = if running {
        "leave this screen; the agent goes on, `attach` comes back"
    } else {
        "leave this screen; decisions and changes are kept, `review` comes back"
    };
    lines.push((Some(Name::Detach), leave.into()));
    if running {
        lines.push((
            Some(Name::StopAgent),
            "end the agent's command and stay here".into(),
        ));
        lines.push((
            Some(Name::Discard),
            "throw the staged side away: only once the command has ended".into(),
        ));
    } else {
        lines.push((
            Some(Name::Discard),
            "throw the staged side away (asks once more)".into(),
        ));
    }
    lines.push((Some(Name::Deny), "stay".into()));
    for (y, (name, text)) in (inside.top()..inside.bottom()).zip(&lines) {
        let row = Rect::new(inside.x, y, inside.width, 1);
        let mut x = 1;
        if let Some(name) = name {
            let key = scene.model.keymap.key(*name).unwrap_or_default();
            let cell = Rect::new(row.x + 1, y, row.width.saturating_sub(1), 1);
            line::draw_text(buf, cell, &key, scene.theme.style("ui.key"));
            x = 5;
        }
        let room = Rect::new(row.x + x, y, row.width.saturating_sub(x), 1);
        line::draw_text(buf, room, text, scene.theme.style("ui.text"));
    }
}
