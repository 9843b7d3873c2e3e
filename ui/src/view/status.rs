//! The status bar: mode and boundary as they are in force, the command's state, what is left to
//! decide, who is there.

use pvisor::sandbox::ExitStatus;
use pvisor::session::state::{RunState, SessionState};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Scene;
use crate::widget::line;

/// One word of the bar.
struct Part {
    scope: &'static str,
    long: String,
    /// For a narrow screen; empty: left out there.
    short: String,
}

impl Part {
    fn new(scope: &'static str, long: impl Into<String>, short: impl Into<String>) -> Self {
        Self {
            scope,
            long: long.into(),
            short: short.into(),
        }
    }

    /// A word that is as short as it can be.
    fn fixed(scope: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self::new(scope, text.clone(), text)
    }
}

/// Draws the bar: long words where they fit, short ones from the right on where they do not.
pub fn draw(buf: &mut Buffer, row: Rect, scene: Scene) {
    let style = scene.theme.style("status");
    buf.set_style(row, style);
    let mut parts = parts(scene);
    let width = |parts: &[Part]| -> usize {
        parts
            .iter()
            .filter(|p| !p.long.is_empty())
            .map(|p| p.long.chars().count() + 1)
            .sum()
    };
    for at in (0..parts.len()).rev() {
        if width(&parts) <= usize::from(row.width) {
            break;
        }
        parts[at].long = std::mem::take(&mut parts[at].short);
    }
    let mut x = row.x;
    for part in parts.iter().filter(|p| !p.long.is_empty()) {
        let rest = Rect::new(x, row.y, row.right().saturating_sub(x), 1);
        let look = line::Look::of(scene.theme, part.scope);
        x += line::draw_bytes(buf, rest, part.long.as_bytes(), &look);
        x = (x + 1).min(row.right());
    }
}

fn parts(scene: Scene) -> Vec<Part> {
    let state = scene.state;
    let list = &scene.model.list;
    let tally = list.tally;
    let mut parts = vec![Part::fixed("status.mode", format!(" {} ", mode(state)))];
    if scene.model.lost {
        parts.push(Part::fixed("status.conflict", " connection lost "));
    }
    if let Some(first) = scene.state.asks.values().min_by_key(|ask| ask.until) {
        let asks = crate::model::marks::count(scene.state.asks.len(), "question");
        let left = crate::model::ask::left(first, scene.model.wall());
        parts.push(Part::fixed("status.conflict", format!(" {asks} {left} ")));
    }
    if list.conflicts > 0 {
        let noun = if list.conflicts == 1 {
            "conflict"
        } else {
            "conflicts"
        };
        let text = format!(" {} {noun} ", list.conflicts);
        parts.push(Part::fixed("status.conflict", text));
    }
    let (scope, text) = run(state);
    parts.push(Part::fixed(scope, text));
    if let Some(busy) = scene.model.busy {
        parts.push(Part::fixed("status.ended", format!("{busy} ...")));
    }
    let open = tally.undecided + tally.mixed;
    let (yes, no) = (tally.approved, tally.rejected);
    parts.push(Part::new(
        "status",
        format!("| {open} undecided {yes} approved {no} rejected"),
        format!("| {open} left {yes}✓ {no}✗"),
    ));
    if list.home.total() > 0 {
        let text = format!("| home {}", list.home.total());
        parts.push(Part::new("status", text, ""));
    }
    parts.extend(boundary(state));
    if state.people.len() > 1 {
        let names: Vec<&str> = state.people.iter().map(|p| p.user.as_str()).collect();
        let count = format!("| {} people", names.len());
        parts.push(Part::new("status", format!("| {}", names.join(" ")), count));
    }
    if list.ignored > 0 {
        parts.push(Part::new(
            "status",
            format!("| {} ignored", list.ignored),
            "",
        ));
    }
    if !scene.model.mouse {
        parts.push(Part::new("status", "| mouse off", ""));
    }
    parts
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

fn run(state: &SessionState) -> (&'static str, String) {
    let text = match (state.run, state.exit) {
        (Some(RunState::Running), _) => return ("status.running", "running".into()),
        (Some(RunState::Lost), _) => "server lost".into(),
        (Some(RunState::Discarded), _) => "discarded".into(),
        (Some(run), Some(exit)) => {
            let word = run.name();
            match exit {
                ExitStatus::Code(code) => format!("{word} {code}"),
                ExitStatus::Signal(signal) => format!("{word} by signal {signal}"),
                ExitStatus::TimedOut => format!("{word}: time is up"),
                ExitStatus::StageFull => format!("{word}: stage is full"),
                ExitStatus::NotExecuted(_) => format!("{word}: not executed"),
                ExitStatus::Lost => format!("{word}: lost"),
                ExitStatus::FilesLost => format!("{word}: file server lost"),
                ExitStatus::RenamerLost => format!("{word}: server of renames lost"),
            }
        }
        (Some(run), None) => run.name().into(),
        (None, _) => "no command".into(),
    };
    ("status.ended", text)
}

/// What is in force, never what was only asked for.
fn boundary(state: &SessionState) -> Vec<Part> {
    let boundary = &state.boundary;
    let mut parts = Vec::new();
    let mut drivers: Vec<&str> = boundary.layers.iter().map(|l| l.driver.as_str()).collect();
    drivers.dedup();
    if !drivers.is_empty() {
        let names: Vec<&str> = boundary.layers.iter().map(|l| l.name.as_str()).collect();
        let drivers = drivers.join("/");
        let long = format!("| {drivers} {}", names.join("+"));
        parts.push(Part::new("status", long, format!("| {drivers}")));
    }
    if !boundary.network.is_empty() {
        let text = format!("| net {}", boundary.network);
        parts.push(Part::fixed("status", text));
    }
    if !boundary.writable.is_empty() {
        let text = format!("| {} written directly", boundary.writable.len());
        let short = format!("| {} direct", boundary.writable.len());
        parts.push(Part::new("status", text, short));
    }
    if !boundary.notes.is_empty() {
        parts.push(Part::new(
            "status",
            match boundary.notes.len() {
                1 => "| 1 note in the log".to_owned(),
                n => format!("| {n} notes in the log"),
            },
            "",
        ));
    }
    parts
}
