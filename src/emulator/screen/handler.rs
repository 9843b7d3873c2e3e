//! What each sequence does to the screen. Owns the differences from the terminal underneath: bounds
//! against hostile streams, questions that are answered elsewhere, and a few places where it does
//! otherwise than xterm.

use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::Line;
use alacritty_terminal::term::TermMode;
use alacritty_terminal::vte::ansi::{
    Attr, CharsetIndex, ClearMode, CursorShape, CursorStyle, Handler, Hyperlink, KeyboardModes,
    KeyboardModesApplyBehavior, LineClearMode, Mode, ModifyOtherKeys, NamedPrivateMode,
    PrivateMode, Rgb, ScpCharPath, ScpUpdateMode, StandardCharset, TabulationClearMode,
    cursor_icon::CursorIcon,
};
use unicode_width::UnicodeWidthChar;

use super::{KeyFlags, STACK_LIMIT, Screen};

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
