//! The status bar: mode and boundary as they are in force, the command's state, what is left to
//! decide, who is there.

use pvisor::sandbox::ExitStatus;
use pvisor::session::state::{RunState, SessionState};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Scene;
use crate::widget::line;

/// Draws the bar. What matters least is dropped first when there is no room.
pub fn draw(buf: &mut Buffer, row: Rect, scene: Scene) {
    let style = scene.theme.style("status");
    buf.set_style(row, style);
    let state = scene.state;
    let list = &scene.model.list;
    let tally = list.tally;
    let mut parts: Vec<(&'static str, String, u8)> =
        vec![("status.mode", format!(" {} ", mode(state)), 0)];
    if scene.model.lost {
        parts.push(("status.conflict", " connection lost ".into(), 0));
    }
    parts.push(run(state));
    if list.conflicts > 0 {
        let text = format!(" {} conflicts ", list.conflicts);
        parts.push(("status.conflict", text, 0));
    }
    parts.push((
        "status",
        format!(
            "{} undecided  {} approved  {} rejected",
            tally.undecided + tally.mixed,
            tally.approved,
            tally.rejected
        ),
        1,
    ));
    if list.ignored > 0 {
        parts.push(("status", format!("{} ignored", list.ignored), 4));
    }
    if let Some(busy) = scene.model.busy {
        parts.push(("status.ended", format!("{busy} ..."), 1));
    }
    for text in boundary(state) {
        parts.push(("status", text, 3));
    }
    if state.people.len() > 1 {
        parts.push(("status", people(state), 2));
    }
    if !scene.model.mouse {
        parts.push(("status", "mouse off".into(), 2));
    }
    let room = usize::from(row.width);
    for least in (1..=4u8).rev() {
        let width: usize = parts.iter().map(|(_, t, _)| t.chars().count() + 2).sum();
        if width <= room {
            break;
        }
        parts.retain(|(.., weight)| *weight < least);
    }
    let mut x = row.x;
    for (scope, text, _) in parts {
        let rest = Rect::new(x, row.y, row.right().saturating_sub(x), 1);
        let look = line::Look::of(scene.theme, scope);
        x += line::draw_bytes(buf, rest, text.as_bytes(), &look);
        x = (x + 2).min(row.right());
    }
}

fn mode(state: &SessionState) -> String {
    if state.boundary.mode.is_empty() {
        state
            .info
            .as_ref()
            .map_or_else(String::new, |i| i.mode.name().to_owned())
    } else {
        state.boundary.mode.clone()
    }
}

fn run(state: &SessionState) -> (&'static str, String, u8) {
    match (state.run, state.exit) {
        (Some(RunState::Running), _) => ("status.running", "running".into(), 0),
        (Some(RunState::Lost), _) => ("status.ended", "server lost".into(), 0),
        (Some(RunState::Discarded), _) => ("status.ended", "discarded".into(), 0),
        (Some(run), Some(exit)) => {
            let word = run.name();
            let text = match exit {
                ExitStatus::Code(code) => format!("{word} {code}"),
                ExitStatus::Signal(signal) => format!("{word} by signal {signal}"),
                ExitStatus::TimedOut => format!("{word}: time is up"),
                ExitStatus::NotExecuted(_) => format!("{word}: not executed"),
                ExitStatus::Lost => format!("{word}: lost"),
            };
            ("status.ended", text, 0)
        }
        (Some(run), None) => ("status.ended", run.name().into(), 0),
        (None, _) => ("status.ended", "no command".into(), 0),
    }
}

/// What is in force, never what was only asked for.
fn boundary(state: &SessionState) -> Vec<String> {
    let boundary = &state.boundary;
    let mut parts = Vec::new();
    let mut drivers: Vec<&str> = boundary.layers.iter().map(|l| l.driver.as_str()).collect();
    drivers.dedup();
    if !drivers.is_empty() {
        let names: Vec<&str> = boundary.layers.iter().map(|l| l.name.as_str()).collect();
        parts.push(format!("{} {}", drivers.join("/"), names.join("+")));
    }
    if !boundary.network.is_empty() {
        parts.push(format!("net {}", boundary.network));
    }
    if !boundary.writable.is_empty() {
        parts.push(format!("{} written directly", boundary.writable.len()));
    }
    if !boundary.notes.is_empty() {
        parts.push(format!("{} notes", boundary.notes.len()));
    }
    parts
}

fn people(state: &SessionState) -> String {
    let names: Vec<&str> = state.people.iter().map(|p| p.user.as_str()).collect();
    names.join(" ")
}
