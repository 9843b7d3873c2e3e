//! The grid behind the emulator: alacritty's terminal, kept within bounds. Owns what that terminal
//! does not tell (region, tab stops, character set, titles, keyboard flags) and refuses what a
//! hostile stream could grow or burn without end. Answers no query.

use alacritty_terminal::Term;
use alacritty_terminal::event::VoidListener;
use alacritty_terminal::grid::{Dimensions, Scroll};
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::cell::Flags;
use alacritty_terminal::term::{Config, Osc52, TermMode};
use alacritty_terminal::vte::ansi::{
    Attr, CharsetIndex, ClearMode, CursorShape, CursorStyle, Handler, Hyperlink, KeyboardModes,
    KeyboardModesApplyBehavior, LineClearMode, Mode, ModifyOtherKeys, NamedPrivateMode,
    PrivateMode, Rgb, ScpCharPath, ScpUpdateMode, StandardCharset, TabulationClearMode,
    cursor_icon::CursorIcon,
};
use unicode_width::UnicodeWidthChar;

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
        Handler::unset_mode(
            self,
            Mode::Named(alacritty_terminal::vte::ansi::NamedMode::Insert),
        );
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

/// Hands a call on to the terminal unchanged.
macro_rules! pass {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        fn $name(&mut self, $($argument: $kind),*) {
            Handler::$name(&mut self.term, $($argument),*);
        }
    )*};
}

/// Hands a call on; a cursor that waited behind the last column to wrap does so no longer, as in
/// xterm: what it waited for has moved.
macro_rules! pass_and_settle {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        fn $name(&mut self, $($argument: $kind),*) {
            Handler::$name(&mut self.term, $($argument),*);
            self.term.grid_mut().cursor.input_needs_wrap = false;
        }
    )*};
}

/// Takes a call and does nothing: answered elsewhere, or not wanted at all.
macro_rules! drop_call {
    ($($name:ident($($kind:ty),*);)*) => {$(
        fn $name(&mut self, $(_: $kind),*) {}
    )*};
}

// A call that is forgotten here would be lost in silence.
#[deny(clippy::missing_trait_methods)]
impl Handler for Screen {
    pass! {
        set_cursor_style(style: Option<CursorStyle>);
        set_cursor_shape(shape: CursorShape);
        goto(line: i32, col: usize);
        goto_line(line: i32);
        move_forward(columns: usize);
        move_backward(columns: usize);
        put_tab(count: u16);
        backspace();
        carriage_return();
        substitute();
        newline();
        save_cursor_position();
        clear_line(mode: LineClearMode);
        clear_screen(mode: ClearMode);
        terminal_attribute(attribute: Attr);
        set_mode(mode: Mode);
        unset_mode(mode: Mode);
        set_keypad_application_mode();
        unset_keypad_application_mode();
        configure_charset(index: CharsetIndex, charset: StandardCharset);
        set_color(index: usize, color: Rgb);
        reset_color(index: usize);
        decaln();
    }

    pass_and_settle! {
        insert_blank(count: usize);
        scroll_up(rows: usize);
        scroll_down(rows: usize);
        insert_blank_lines(count: usize);
        delete_lines(count: usize);
        erase_chars(count: usize);
        delete_chars(count: usize);
        reverse_index();
    }

    drop_call! {
        // Queries are answered before they come here, titles and keyboard flags kept there too.
        identify_terminal(Option<char>);
        device_status(usize);
        report_mode(Mode);
        report_private_mode(PrivateMode);
        dynamic_color_sequence(String, usize, &str);
        text_area_size_pixels();
        text_area_size_chars();
        report_keyboard_mode();
        push_keyboard_mode(KeyboardModes);
        pop_keyboard_modes(u16);
        set_keyboard_mode(KeyboardModes, KeyboardModesApplyBehavior);
        set_title(Option<String>);
        // The clipboard, links and the pointer belong to the person's own terminal.
        clipboard_store(u8, &[u8]);
        clipboard_load(u8, &str);
        set_hyperlink(Option<Hyperlink>);
        set_mouse_cursor_icon(CursorIcon);
        set_modify_other_keys(ModifyOtherKeys);
        report_modify_other_keys();
        set_scp(ScpCharPath, ScpUpdateMode);
        set_tabs(u16);
    }

    fn input(&mut self, c: char) {
        // Only characters from U+0300 on can be combining.
        if c >= '\u{300}' && c.width() == Some(0) && self.marks_full() {
            return;
        }
        self.term.input(c);
    }

    // The terminal's own take the row for one counted from the region while origin mode is on.
    fn goto_col(&mut self, col: usize) {
        let line = self.term.grid().cursor.point.line.0;
        self.move_to(line, col);
    }

    fn move_up(&mut self, rows: usize) {
        let point = self.term.grid().cursor.point;
        self.move_to(self.line_above(rows), point.column.0);
    }

    fn move_down(&mut self, rows: usize) {
        let point = self.term.grid().cursor.point;
        self.move_to(self.line_below(rows), point.column.0);
    }

    fn move_up_and_cr(&mut self, rows: usize) {
        self.move_to(self.line_above(rows), 0);
    }

    fn move_down_and_cr(&mut self, rows: usize) {
        self.move_to(self.line_below(rows), 0);
    }

    fn restore_cursor_position(&mut self) {
        Handler::restore_cursor_position(&mut self.term);
        if self.mode(TermMode::ORIGIN) {
            // It may have been saved outside of the region, where origin mode allows no cursor.
            let cursor = &mut self.term.grid_mut().cursor;
            let (first, last) = (Line(self.region.0 as i32), Line(self.region.1 as i32));
            if cursor.point.line < first || cursor.point.line > last {
                cursor.point.line = cursor.point.line.clamp(first, last);
                cursor.input_needs_wrap = false;
            }
        }
    }

    fn linefeed(&mut self) {
        // Newline mode makes the feed return the carriage as well; the terminal's own does so only
        // for `ESC E`, which always does.
        Handler::linefeed(&mut self.term);
        self.term.grid_mut().cursor.input_needs_wrap = false;
        if self.mode(TermMode::LINE_FEED_NEW_LINE) {
            Handler::carriage_return(&mut self.term);
        }
    }

    fn bell(&mut self) {
        self.bells = self.bells.saturating_add(1);
    }

    fn set_horizontal_tabstop(&mut self) {
        let column = self.term.grid().cursor.point.column.0;
        if let Some(stop) = self.tabs.get_mut(column) {
            *stop = true;
        }
        Handler::set_horizontal_tabstop(&mut self.term);
    }

    fn clear_tabs(&mut self, mode: TabulationClearMode) {
        let column = self.term.grid().cursor.point.column.0;
        match mode {
            TabulationClearMode::Current => {
                if let Some(stop) = self.tabs.get_mut(column) {
                    *stop = false;
                }
            }
            TabulationClearMode::All => self.tabs.fill(false),
        }
        Handler::clear_tabs(&mut self.term, mode);
    }

    // With all stops cleared each step backward searches the whole line again.
    fn move_backward_tabs(&mut self, count: u16) {
        let count = self.at_most_columns(usize::from(count)) as u16;
        if self.tabs.iter().any(|stop| *stop) {
            Handler::move_backward_tabs(&mut self.term, count);
        } else {
            Handler::goto_col(self, 0);
        }
    }

    fn move_forward_tabs(&mut self, count: u16) {
        let count = self.at_most_columns(usize::from(count)) as u16;
        Handler::move_forward_tabs(&mut self.term, count);
    }

    fn reset_state(&mut self) {
        Handler::reset_state(&mut self.term);
        let colors = 0..alacritty_terminal::term::color::COUNT;
        colors.for_each(|index| Handler::reset_color(&mut self.term, index));
        self.full_region();
        self.default_tabs();
        self.charset = CharsetIndex::default();
        self.title = None;
        self.titles.clear();
        self.keys = <[KeyFlags; 2]>::default();
        self.synchronized = false;
        self.scheme_reports = false;
    }

    fn set_private_mode(&mut self, mode: PrivateMode) {
        match mode {
            PrivateMode::Named(NamedPrivateMode::SwapScreenAndSetRestoreCursor)
            | PrivateMode::Unknown(47 | 1047) => {
                self.swap_screens(true);
                let swap = NamedPrivateMode::SwapScreenAndSetRestoreCursor;
                Handler::set_private_mode(&mut self.term, PrivateMode::Named(swap));
            }
            PrivateMode::Unknown(1048) => Handler::save_cursor_position(&mut self.term),
            PrivateMode::Unknown(2031) => self.scheme_reports = true,
            PrivateMode::Named(NamedPrivateMode::SyncUpdate) => self.synchronized = true,
            // Coordinates as UTF-8 are not offered: SGR does better.
            PrivateMode::Named(NamedPrivateMode::Utf8Mouse) => {}
            PrivateMode::Named(NamedPrivateMode::ColumnMode) => {
                self.full_region();
                Handler::set_private_mode(&mut self.term, mode);
            }
            mode => Handler::set_private_mode(&mut self.term, mode),
        }
    }

    fn unset_private_mode(&mut self, mode: PrivateMode) {
        match mode {
            PrivateMode::Named(NamedPrivateMode::SwapScreenAndSetRestoreCursor)
            | PrivateMode::Unknown(47 | 1047) => {
                self.swap_screens(false);
                let swap = NamedPrivateMode::SwapScreenAndSetRestoreCursor;
                Handler::unset_private_mode(&mut self.term, PrivateMode::Named(swap));
            }
            PrivateMode::Unknown(1048) => Handler::restore_cursor_position(self),
            PrivateMode::Unknown(2031) => self.scheme_reports = false,
            PrivateMode::Named(NamedPrivateMode::SyncUpdate) => self.synchronized = false,
            PrivateMode::Named(NamedPrivateMode::ColumnMode) => {
                self.full_region();
                Handler::unset_private_mode(&mut self.term, mode);
            }
            mode => Handler::unset_private_mode(&mut self.term, mode),
        }
    }

    fn set_scrolling_region(&mut self, top: usize, bottom: Option<usize>) {
        let rows = self.term.screen_lines();
        let bottom = bottom.unwrap_or(rows).min(rows);
        let top = top.max(1);
        // A region of one row or none is refused, as by VT100 and xterm.
        if top >= bottom {
            return;
        }
        self.region = (top - 1, bottom - 1);
        Handler::set_scrolling_region(&mut self.term, top, Some(bottom));
    }

    fn set_active_charset(&mut self, index: CharsetIndex) {
        self.charset = index;
        Handler::set_active_charset(&mut self.term, index);
    }

    fn push_title(&mut self) {
        if self.titles.len() == STACK_LIMIT {
            self.titles.remove(0);
        }
        self.titles.push(self.title.clone());
    }

    fn pop_title(&mut self) {
        if let Some(title) = self.titles.pop() {
            self.title = title;
        }
    }
}

/// The grid line shown at row `index` when `offset` lines of history are scrolled into view.
pub(super) fn line_at(index: usize, offset: usize) -> Line {
    Line(index as i32 - offset as i32)
}
