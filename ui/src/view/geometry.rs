//! Where panes lie. Owns the choice between all panes at once and one at a time.

use pvisor::sandbox::spec::TerminalSize;
use ratatui::layout::Rect;

use crate::model::Pane;

/// Smallest screen on which anything can be decided.
pub const SMALLEST: (u16, u16) = (40, 10);
/// From this width on all panes are shown at once.
const WIDE: u16 = 120;
/// And from this height on.
const TALL: u16 = 24;

/// The screen's parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// The row of tabs, when panes are shown one at a time.
    pub tabs: Option<Rect>,
    /// Everything between tabs and status bar.
    pub body: Rect,
    /// The panes on the screen.
    pub panes: Vec<(Pane, Rect)>,
    /// Whether they have frames.
    pub framed: bool,
    /// The status bar.
    pub status: Rect,
    /// The last row.
    pub footer: Rect,
    /// What the agent's terminal should measure.
    pub agent_size: TerminalSize,
}

/// The parts of a screen; `None` when it is too small.
pub fn of(area: Rect, focus: Pane, zoom: bool) -> Option<Geometry> {
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        return None;
    }
    let row = |y: u16| Rect::new(area.x, y, area.width, 1);
    let status = row(area.bottom() - 2);
    let footer = row(area.bottom() - 1);
    let wide = area.width >= WIDE && area.height >= TALL;
    let single = Rect::new(area.x, area.y + 1, area.width, area.height - 3);
    if !wide || zoom {
        let all = all_panes(area, focus);
        let agent = if wide && focus != Pane::Agent {
            all.agent_inside
        } else {
            single
        };
        return Some(Geometry {
            tabs: Some(row(area.y)),
            body: single,
            panes: vec![(focus, single)],
            framed: false,
            status,
            footer,
            agent_size: size(agent),
        });
    }
    let all = all_panes(area, focus);
    Some(Geometry {
        tabs: None,
        body: Rect::new(area.x, area.y, area.width, area.height - 2),
        panes: all.panes,
        framed: true,
        status,
        footer,
        agent_size: size(all.agent_inside),
    })
}

struct AllPanes {
    panes: Vec<(Pane, Rect)>,
    agent_inside: Rect,
}

fn all_panes(area: Rect, focus: Pane) -> AllPanes {
    let height = area.height.saturating_sub(2);
    let left = (area.width * 2 / 5).clamp(40, 64).min(area.width);
    let right = area.width - left;
    let upper = height * 11 / 20;
    let files = Rect::new(area.x, area.y, left, height);
    let diff = Rect::new(area.x + left, area.y, right, upper);
    let agent = Rect::new(area.x + left, area.y + upper, right, height - upper);
    let lower = if focus == Pane::Log {
        Pane::Log
    } else {
        Pane::Agent
    };
    let inside = Rect::new(
        agent.x + 1,
        agent.y + 1,
        agent.width.saturating_sub(2),
        agent.height.saturating_sub(2),
    );
    AllPanes {
        panes: vec![(Pane::Files, files), (Pane::Diff, diff), (lower, agent)],
        agent_inside: inside,
    }
}

fn size(inside: Rect) -> TerminalSize {
    TerminalSize {
        rows: inside.height.max(1),
        cols: inside.width.max(1),
    }
}
