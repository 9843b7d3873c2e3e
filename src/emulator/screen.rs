//! The grid behind the emulator: alacritty's terminal, kept within bounds. Owns what that terminal
//! does not tell (region, tab stops, character set, titles, keyboard flags) and refuses what a
//! hostile stream could grow or burn without end. Answers no query.

mod handler;

use alacritty_terminal::Term;
use alacritty_terminal::event::VoidListener;
use alacritty_terminal::grid::{Dimensions, Scroll};
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::cell::Flags;
use alacritty_terminal::term::{Config, Osc52, TermMode};
use alacritty_terminal::vte::ansi::{
    Attr, CharsetIndex, Handler, Mode, NamedMode, NamedPrivateMode, PrivateMode, StandardCharset,
};

use crate::sandbox::spec::TerminalSize;

/// Combining characters kept per cell; Unicode's stream-safe text needs far fewer.
const MARKS_PER_CELL: usize = 8;
/// Saved titles and saved keyboard flags kept.
const STACK_LIMIT: usize = 16;
/// Distance of the tab stops at first.
const TAB_INTERVAL: usize = 8;

/// Rows and columns as alacritty wants them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dims(pub(super) TerminalSize);

impl Dimensions for Dims {
    fn total_lines(&self) -> usize {
        self.screen_lines()
    }

    fn screen_lines(&self) -> usize {
        usize::from(self.0.rows)
    }

    fn columns(&self) -> usize {
        usize::from(self.0.cols)
    }
}

/// Flags of the kitty keyboard protocol for one screen: those in force, and those to come back to.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyFlags {
    pub(super) current: u8,
    saved: Vec<u8>,
}

/// The only flag honoured: keys that are ambiguous in the old encoding become distinct.
pub(super) const DISAMBIGUATE: u8 = 1;

impl KeyFlags {
    pub(super) fn push(&mut self, flags: u8) {
        if self.saved.len() == STACK_LIMIT {
            self.saved.remove(0);
        }
        self.saved.push(self.current);
        self.current = flags & DISAMBIGUATE;
    }

    pub(super) fn pop(&mut self, count: usize) {
        for _ in 0..count.min(STACK_LIMIT) {
            self.current = self.saved.pop().unwrap_or(0);
        }
    }
}

pub(super) struct Screen {
    pub(super) term: Term<VoidListener>,
    /// Scrolling region, first and last row from 0, as the agent set it.
    pub(super) region: (usize, usize),
    pub(super) tabs: Vec<bool>,
    pub(super) charset: CharsetIndex,
    pub(super) title: Option<String>,
    titles: Vec<Option<String>>,
    /// Of the shown screen, then of the other.
    pub(super) keys: [KeyFlags; 2],
    /// An update has begun whose end is still to come (mode 2026).
    pub(super) synchronized: bool,
    /// The agent wants to hear when the colours turn light or dark (mode 2031).
    pub(super) scheme_reports: bool,
    pub(super) bells: u64,
}

impl Screen {
    pub(super) fn new(size: TerminalSize, scrollback: usize) -> Self {
        let config = Config {
            scrolling_history: scrollback,
            osc52: Osc52::Disabled,
            kitty_keyboard: false,
            ..Config::default()
        };
        let mut screen = Self {
            term: Term::new(config, &Dims(size), VoidListener),
            region: (0, 0),
            tabs: Vec::new(),
            charset: CharsetIndex::default(),
            title: None,
            titles: Vec::new(),
            keys: <[KeyFlags; 2]>::default(),
            synchronized: false,
            scheme_reports: false,
            bells: 0,
        };
        screen.full_region();
        screen.default_tabs();
        screen
    }

    pub(super) fn resize(&mut self, size: TerminalSize) {
        self.term.resize(Dims(size));
        self.full_region();
        let columns = self.term.columns();
        for column in self.tabs.len()..columns {
            self.tabs.push(column % TAB_INTERVAL == 0);
        }
        self.tabs.truncate(columns);
        self.settle();
    }

    /// Brings the view back within the history. Scrolling inside a region that does not begin at
    /// the top moves a scrolled view in the terminal underneath, though no history was added.
    pub(super) fn settle(&mut self) {
        let grid = self.term.grid();
        if grid.display_offset() > grid.history_size() {
            self.term.scroll_display(Scroll::Delta(0));
        }
    }

    pub(super) fn set_title_text(&mut self, title: Option<String>) {
        self.title = title;
    }

    pub(super) fn mode(&self, flag: TermMode) -> bool {
        self.term.mode().contains(flag)
    }

    /// Back to the modes of a fresh screen, the text left as it is (`CSI ! p`).
    pub(super) fn soft_reset(&mut self) {
        let point = self.term.grid().cursor.point;
        let reset = |screen: &mut Self, mode| {
            Handler::unset_private_mode(screen, PrivateMode::Named(mode));
        };
        reset(self, NamedPrivateMode::Origin);
        reset(self, NamedPrivateMode::CursorKeys);
        Handler::set_private_mode(self, PrivateMode::Named(NamedPrivateMode::ShowCursor));
        Handler::set_private_mode(self, PrivateMode::Named(NamedPrivateMode::LineWrap));
        Handler::unset_mode(self, Mode::Named(NamedMode::Insert));
        Handler::unset_keypad_application_mode(self);
        Handler::terminal_attribute(self, Attr::Reset);
        for index in [
            CharsetIndex::G0,
            CharsetIndex::G1,
            CharsetIndex::G2,
            CharsetIndex::G3,
        ] {
            Handler::configure_charset(self, index, StandardCharset::Ascii);
        }
        Handler::set_active_charset(self, CharsetIndex::G0);
        Handler::set_scrolling_region(self, 1, None);
        Handler::save_cursor_position(self);
        Handler::goto(self, point.line.0, point.column.0);
        self.keys = <[KeyFlags; 2]>::default();
    }

    /// Takes back every mode that turns a person's input into something else; what is shown stays.
    pub(super) fn release_input(&mut self) {
        for mode in [
            NamedPrivateMode::ReportMouseClicks,
            NamedPrivateMode::ReportCellMouseMotion,
            NamedPrivateMode::ReportAllMouseMotion,
            NamedPrivateMode::SgrMouse,
            NamedPrivateMode::ReportFocusInOut,
            NamedPrivateMode::BracketedPaste,
            NamedPrivateMode::CursorKeys,
        ] {
            Handler::unset_private_mode(self, PrivateMode::Named(mode));
        }
        Handler::unset_keypad_application_mode(self);
        self.keys = <[KeyFlags; 2]>::default();
        self.synchronized = false;
        self.scheme_reports = false;
    }

    fn full_region(&mut self) {
        self.region = (0, self.term.screen_lines() - 1);
    }

    fn default_tabs(&mut self) {
        self.tabs = (0..self.term.columns())
            .map(|column| column % TAB_INTERVAL == 0)
            .collect();
    }

    /// Whether the cell a combining character would join holds enough of them.
    fn marks_full(&self) -> bool {
        let grid = self.term.grid();
        let cursor = &grid.cursor;
        let mut column = cursor.point.column;
        if !cursor.input_needs_wrap {
            column = Column(column.0.saturating_sub(1));
        }
        let row = &grid[cursor.point.line];
        if row[column].flags.contains(Flags::WIDE_CHAR_SPACER) {
            column = Column(column.0.saturating_sub(1));
        }
        row[column]
            .zerowidth()
            .is_some_and(|marks| marks.len() >= MARKS_PER_CELL)
    }

    /// The line `rows` above the cursor; the region's first stops who starts below it.
    fn line_above(&self, rows: usize) -> i32 {
        let line = self.term.grid().cursor.point.line.0;
        let top = self.region.0 as i32;
        (line - rows as i32).max(if line >= top { top } else { 0 })
    }

    /// The line `rows` below the cursor; the region's last stops who starts above it.
    fn line_below(&self, rows: usize) -> i32 {
        let line = self.term.grid().cursor.point.line.0;
        let bottom = self.region.1 as i32;
        let last = self.term.screen_lines() as i32 - 1;
        (line + rows as i32).min(if line <= bottom { bottom } else { last })
    }

    /// Moves to a line counted from the top of the screen, whatever the origin mode.
    fn move_to(&mut self, line: i32, column: usize) {
        let origin = if self.mode(TermMode::ORIGIN) {
            self.region.0 as i32
        } else {
            0
        };
        Handler::goto(&mut self.term, line - origin, column);
    }

    fn at_most_columns(&self, count: usize) -> usize {
        count.min(self.term.columns())
    }

    fn swap_screens(&mut self, alternate: bool) {
        if self.mode(TermMode::ALT_SCREEN) != alternate {
            self.keys.swap(0, 1);
            if alternate {
                self.keys[0] = KeyFlags::default();
            }
        }
    }
}

/// The grid line shown at row `index` when `offset` lines of history are scrolled into view.
pub(super) fn line_at(index: usize, offset: usize) -> Line {
    Line(index as i32 - offset as i32)
}
