//! The agent's terminal: a screen with history that its bytes paint, that reflows on a new size,
//! and that answers what a program asks of its terminal. Owns no descriptor and does no I/O: bytes
//! in, cells and answers out.
//!
//! Nothing an agent writes leaves here but as [`Cell`]s and as a sanitised title. Clipboard, links,
//! images, notifications and window operations end here. Memory is bounded by size and scrollback,
//! whatever comes in.
//!
//! Server and clients each keep one of their own; [`Emulator::snapshot`] brings a late one up to
//! date. Only the server's answers go to the agent, the others' are thrown away.

mod cell;
mod gate;
mod modes;
mod palette;
mod queries;
mod screen;
mod sequence;
mod snapshot;

use std::cell::RefCell;
use std::time::Duration;

use alacritty_terminal::grid::{Dimensions, Scroll};
use alacritty_terminal::index::Line;
use alacritty_terminal::term::TermMode;
use alacritty_terminal::vte::ansi::{CursorShape as GridCursorShape, Handler, Processor, Timeout};

pub use cell::{Cell, Color};
pub(crate) use gate::unfinished;
pub use modes::{Cursor, CursorShape, Modes, Mouse};
pub use palette::{nearest_indexed, nearest_sixteen, rgb_of};

use crate::sandbox::spec::TerminalSize;
use gate::{Gate, Piece};
use queries::Defaults;
use screen::{DISAMBIGUATE, Screen};
use sequence::Sequence;

/// Largest screen kept; a bigger one is cut to it.
const MAX_ROWS: u16 = 500;
/// See [`MAX_ROWS`].
const MAX_COLS: u16 = 1_000;
/// Most lines of history.
const MAX_SCROLLBACK: usize = 100_000;
/// Answers to one portion of output beyond this many bytes are dropped: who asks more reads none.
const MAX_ANSWERS: usize = 64 * 1024;

/// The agent's terminal.
pub struct Emulator {
    // Reading the screen that is not shown means exchanging the two for a moment, even for a
    // snapshot that changes nothing.
    screen: RefCell<Screen>,
    processor: Processor<Immediate>,
    gate: Gate,
    defaults: Defaults,
    unasked: Vec<u8>,
}

impl std::fmt::Debug for Emulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Emulator")
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

/// Updates are painted as they come; who draws looks at [`Emulator::synchronized`] instead.
#[derive(Default)]
struct Immediate;

impl Timeout for Immediate {
    fn set_timeout(&mut self, _: Duration) {}

    fn clear_timeout(&mut self) {}

    fn pending_timeout(&self) -> bool {
        false
    }
}

impl Emulator {
    /// An empty screen of `size` (at least 1 row and 2 columns, at most 500 and 1,000) that keeps
    /// `scrollback` lines (at most 100,000).
    pub fn new(size: TerminalSize, scrollback: usize) -> Self {
        Self {
            screen: RefCell::new(Screen::new(clamp(size), scrollback.min(MAX_SCROLLBACK))),
            processor: Processor::new(),
            gate: Gate::default(),
            defaults: Defaults::default(),
            unasked: Vec::new(),
        }
    }

    /// Paints what the agent wrote. Returns the answers to what it asked, to be written to its
    /// terminal; a client throws them away.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut answers = std::mem::take(&mut self.unasked);
        let mut painter = Painter {
            screen: self.screen.get_mut(),
            processor: &mut self.processor,
            defaults: self.defaults,
            answers: &mut answers,
        };
        self.gate.cut(bytes, |piece| painter.take(piece));
        self.screen.get_mut().settle();
        answers
    }

    /// Gives the screen another size; wrapped lines flow anew, none loses text to a narrower one.
    pub fn resize(&mut self, size: TerminalSize) {
        self.screen.get_mut().resize(clamp(size));
    }

    /// The size the screen has.
    pub fn size(&self) -> TerminalSize {
        let screen = self.screen.borrow();
        TerminalSize {
            rows: screen.term.screen_lines() as u16,
            cols: screen.term.columns() as u16,
        }
    }

    /// Tells which colours the default text and background stand for (red, green, blue): what the
    /// agent is told when it asks. An agent that wants to hear of a change from dark to light is
    /// told with the next answers (`feed(&[])` fetches them).
    pub fn set_colors(&mut self, foreground: (u8, u8, u8), background: (u8, u8, u8)) {
        let screen = self.screen.get_mut();
        let before = queries::scheme(screen, self.defaults);
        self.defaults = Defaults {
            foreground,
            background,
        };
        let after = queries::scheme(screen, self.defaults);
        if screen.scheme_reports && before != after {
            self.unasked = after.into_bytes();
        }
    }

    /// Bytes which, fed to a fresh emulator of this size, give the same screen, history (the last
    /// 2,000 lines), cursor, modes, alternate screen and title. The scroll offset stays with whoever
    /// scrolled. What was saved by programs to come back to (title and keyboard stacks) is not
    /// carried over.
    pub fn snapshot(&self) -> Vec<u8> {
        snapshot::take(&mut self.screen.borrow_mut())
    }

    /// The cells of visible row `index` from the top, as many as there are columns; the scroll
    /// offset counts. Empty when there is no such row.
    pub fn row(&self, index: usize) -> Vec<Cell> {
        let screen = self.screen.borrow();
        if index >= screen.term.screen_lines() {
            return Vec::new();
        }
        let grid = screen.term.grid();
        let line = screen::line_at(index, grid.display_offset());
        cell::cells_of(&grid[line], screen.term.colors())
    }

    /// Where the cursor is seen; `None` while it is hidden or scrolled out of view.
    pub fn cursor(&self) -> Option<Cursor> {
        let screen = self.screen.borrow();
        if !screen.mode(TermMode::SHOW_CURSOR) {
            return None;
        }
        let grid = screen.term.grid();
        let row = usize::try_from(grid.cursor.point.line.0).ok()? + grid.display_offset();
        if row >= screen.term.screen_lines() {
            return None;
        }
        let style = screen.term.cursor_style();
        let shape = match style.shape {
            GridCursorShape::Underline => CursorShape::Underline,
            GridCursorShape::Beam => CursorShape::Bar,
            GridCursorShape::Hidden => return None,
            GridCursorShape::Block | GridCursorShape::HollowBlock => CursorShape::Block,
        };
        Some(Cursor {
            row: row as u16,
            col: grid.cursor.point.column.0 as u16,
            shape,
            blinking: style.blinking,
        })
    }

    /// What the agent asked of keyboard and mouse.
    pub fn modes(&self) -> Modes {
        let screen = self.screen.borrow();
        let has = |flag| screen.mode(flag);
        Modes {
            mouse: if has(TermMode::MOUSE_MOTION) {
                Mouse::Motion
            } else if has(TermMode::MOUSE_DRAG) {
                Mouse::Drag
            } else if has(TermMode::MOUSE_REPORT_CLICK) {
                Mouse::Click
            } else {
                Mouse::Off
            },
            mouse_sgr: has(TermMode::SGR_MOUSE),
            bracketed_paste: has(TermMode::BRACKETED_PASTE),
            app_cursor: has(TermMode::APP_CURSOR),
            app_keypad: has(TermMode::APP_KEYPAD),
            alternate_screen: has(TermMode::ALT_SCREEN),
            focus_events: has(TermMode::FOCUS_IN_OUT),
            alternate_scroll: has(TermMode::ALTERNATE_SCROLL),
            disambiguate_keys: screen.keys[0].current & DISAMBIGUATE != 0,
            newline: has(TermMode::LINE_FEED_NEW_LINE),
        }
    }

    /// Whether the agent is in the middle of an update that should be drawn as one. It may forget
    /// to end it: do not hold a frame back for longer than 150 ms.
    pub fn synchronized(&self) -> bool {
        self.screen.borrow().synchronized
    }

    /// Takes back the modes that change what keys, mouse and pastes send. To be called when the
    /// command ends, however it ended: its mouse mode must not outlive it.
    pub fn release_input(&mut self) {
        self.screen.get_mut().release_input();
    }

    /// Scrolls the view by `lines`: up into the history when positive, down when negative.
    pub fn scroll(&mut self, lines: i32) {
        let most = MAX_SCROLLBACK as i32;
        let lines = lines.clamp(-most, most);
        self.screen
            .get_mut()
            .term
            .scroll_display(Scroll::Delta(lines));
    }

    /// Lines the view is scrolled up; 0 at the bottom. New output moves a scrolled view with its
    /// text.
    pub fn scroll_offset(&self) -> usize {
        self.screen.borrow().term.grid().display_offset()
    }

    /// Shows the newest output again.
    pub fn scroll_to_bottom(&mut self) {
        self.screen.get_mut().term.scroll_display(Scroll::Bottom);
    }

    /// Lines of history above the screen; 0 on the alternate screen.
    pub fn history(&self) -> usize {
        self.screen.borrow().term.history_size()
    }

    /// The title the agent gave its window, safe to print; `None` when it gave none.
    pub fn title(&self) -> Option<String> {
        let screen = self.screen.borrow();
        let title = screen.title.as_ref()?;
        Some(crate::text::visible(title.as_bytes()).into_owned())
    }

    /// How often the bell rang.
    pub fn bells(&self) -> u64 {
        self.screen.borrow().bells
    }

    /// The visible part as text: a line per row, blanks at their ends left out.
    pub fn text(&self) -> String {
        let rows = usize::from(self.size().rows);
        let lines: Vec<String> = (0..rows)
            .map(|row| {
                let text: String = self.row(row).into_iter().map(|cell| cell.text).collect();
                text.trim_end().to_owned()
            })
            .collect();
        lines.join("\n")
    }

    /// History and screen as lines of text, those that were wrapped in one piece. The blank rows at
    /// the end are left out.
    pub fn transcript(&self) -> Vec<String> {
        let screen = self.screen.borrow();
        let grid = screen.term.grid();
        let mut lines = Vec::new();
        let mut line = String::new();
        for index in -(grid.history_size() as i32)..grid.screen_lines() as i32 {
            let joined = cell::joined_cells(grid, Line(index));
            let mut cells = cell::cells_of(&grid[Line(index)], screen.term.colors());
            cells.truncate(joined.unwrap_or(usize::MAX));
            line.extend(cells.into_iter().map(|cell| cell.text));
            if joined.is_none() {
                line.truncate(line.trim_end().len());
                lines.push(std::mem::take(&mut line));
            }
        }
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }
}

fn clamp(size: TerminalSize) -> TerminalSize {
    TerminalSize {
        rows: size.rows.clamp(1, MAX_ROWS),
        cols: size.cols.clamp(2, MAX_COLS),
    }
}

/// Acts on the parts of the stream, one after the other.
struct Painter<'a> {
    screen: &'a mut Screen,
    processor: &'a mut Processor<Immediate>,
    defaults: Defaults,
    answers: &'a mut Vec<u8>,
}

impl Painter<'_> {
    fn take(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Text(text) => self.processor.advance(self.screen, text),
            Piece::Escape(b"Z") => self.control(b"c"),
            Piece::Escape(content) => {
                self.processor.advance(self.screen, b"\x1b");
                self.processor.advance(self.screen, content);
            }
            Piece::Control(content) => self.control(content),
            Piece::Command(content, bell) => {
                for answer in queries::command(self.screen, self.defaults, content, bell) {
                    self.answer(&answer);
                }
            }
            Piece::Device(content) => {
                if let Some(answer) = queries::device(self.screen, content) {
                    self.answer(&answer);
                }
            }
        }
    }

    fn control(&mut self, content: &[u8]) {
        let Some(sequence) = Sequence::parse(content) else {
            return;
        };
        if let Some(answer) = queries::control(self.screen, self.defaults, &sequence) {
            self.answer(&answer);
            return;
        }
        let screen = &mut *self.screen;
        match sequence.key() {
            // Window operations: only the saved titles are ours.
            (0, [], b't') => match (sequence.param(0, 0), sequence.param(1, 0)) {
                (22, 0 | 2) => screen.push_title(),
                (23, 0 | 2) => screen.pop_title(),
                _ => {}
            },
            (0, [b'!'], b'p') => screen.soft_reset(),
            (b'>', [], b'u') => screen.keys[0].push(sequence.param(0, 0) as u8),
            (b'<', [], b'u') => screen.keys[0].pop(usize::from(sequence.param(0, 1).max(1))),
            (b'=', [], b'u') => {
                let flags = sequence.param(0, 0) as u8 & DISAMBIGUATE;
                let current = &mut screen.keys[0].current;
                match sequence.param(1, 1) {
                    1 => *current = flags,
                    2 => *current |= flags,
                    3 => *current &= !flags,
                    _ => {}
                }
            }
            // Repeating is meant for the rest of a line; more would only burn time.
            (0, [], b'b') => {
                let count = sequence.param(0, 1).min(screen.term.columns() as u16);
                let repeat = format!("\x1b[{count}b");
                self.processor.advance(screen, repeat.as_bytes());
            }
            _ => {
                self.processor.advance(screen, b"\x1b[");
                self.processor.advance(screen, content);
            }
        }
    }

    fn answer(&mut self, answer: &str) {
        if self.answers.len() + answer.len() <= MAX_ANSWERS {
            self.answers.extend_from_slice(answer.as_bytes());
        }
    }
}
