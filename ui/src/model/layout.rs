//! Where things were drawn last: for the mouse, for scrolling, and to know what a person has seen.
//! Made by the view, read by `update`; owns no decision.

use std::ops::Range;

use pvisor::LayerPath;
use pvisor::sandbox::spec::TerminalSize;
use ratatui::layout::{Position, Rect};

use super::Pane;

/// The last frame.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// The whole screen.
    pub area: Rect,
    /// The screen is too small for anything but leaving.
    pub too_small: bool,
    /// The tabs.
    pub tabs: Vec<(Rect, Pane)>,
    /// Insides of the panes that were drawn.
    pub panes: Vec<(Pane, Rect)>,
    /// Size the agent's terminal should have.
    pub agent_size: Option<TerminalSize>,
    /// Rows of the change list that were drawn.
    pub list_rows: Range<usize>,
    /// Which change the diff pane showed.
    pub diff_key: Option<LayerPath>,
    /// The diff's row on each of its screen lines.
    pub diff_lines: Vec<usize>,
    /// Rows of the diff that were drawn whole.
    pub diff_rows: Range<usize>,
    /// The first row goes on below the last line.
    pub diff_more: bool,
    /// Lines of the open page that were drawn.
    pub page: Option<Range<usize>>,
    /// Lines of the open page altogether.
    pub page_len: usize,
    /// Lines of the log that were drawn, and altogether.
    pub log: (usize, usize),
    /// An agent's cursor was drawn.
    pub agent_cursor: bool,
}

impl Layout {
    /// The pane at a position.
    pub fn pane_at(&self, at: Position) -> Option<(Pane, Rect)> {
        self.panes.iter().copied().find(|(_, r)| r.contains(at))
    }

    /// The inside of a pane.
    pub fn pane(&self, pane: Pane) -> Option<Rect> {
        self.panes
            .iter()
            .find(|(p, _)| *p == pane)
            .map(|(_, rect)| *rect)
    }

    /// Height of a pane's inside; 10 when it was not drawn.
    pub fn height(&self, pane: Pane) -> usize {
        self.pane(pane).map_or(10, |r| usize::from(r.height).max(1))
    }
}
