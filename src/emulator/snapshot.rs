//! A screen as the bytes that paint it on a fresh one. Owns the order in which text, cursor and
//! modes must be written so that none disturbs another; changes nothing for good.

use std::fmt::Write as _;

use alacritty_terminal::grid::{Cursor as GridCursor, Dimensions, Grid};
use alacritty_terminal::index::Line;
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::Cell as GridCell;
use alacritty_terminal::term::color::Colors;
use alacritty_terminal::vte::ansi::{CharsetIndex, NamedColor, StandardCharset};

use super::cell::{Cell, Color, cells_of, joined_cells, look_of};
use super::palette;
use super::queries::cursor_style_code;
use super::screen::Screen;

/// Lines of history carried over.
pub(super) const HISTORY: usize = 2_000;

/// Plain text and charsets, whatever was set before.
const PLAIN: &str = "\x1b(B\x1b)B\x1b*B\x1b+B\x0f\x1b[0m";

/// The bytes that bring a fresh emulator of the same size to where `screen` is.
pub(super) fn take(screen: &mut Screen) -> Vec<u8> {
    let mut out = String::from("\x1bc");
    colors(&mut out, screen.term.colors());
    if let Some(title) = &screen.title {
        let _ = write!(out, "\x1b]2;{title}\x1b\\");
    }
    if screen.mode(TermMode::ALT_SCREEN) {
        // The terminal shows one grid only. The alternate one is lifted out while the primary is
        // read, because changing over clears it.
        let alternate = std::mem::replace(screen.term.grid_mut(), Grid::new(1, 2, 0));
        screen.term.swap_alt();
        let primary = screen.term.grid();
        stream(&mut out, primary);
        out.push_str(PLAIN);
        place(&mut out, &primary.cursor, 0);
        look(
            &mut out,
            &look_of(&primary.cursor.template, &Colors::default()),
        );
        charsets(&mut out, &primary.cursor);
        let _ = write!(out, "\x1b[={};1u", screen.keys[1].current);
        screen.term.swap_alt();
        *screen.term.grid_mut() = alternate;
        out.push_str("\x1b[?1049h");
        out.push_str(PLAIN);
        out.push_str("\x1b[2J\x1b[H");
    }
    stream(&mut out, screen.term.grid());
    finish(&mut out, screen);
    out.into_bytes()
}

fn colors(out: &mut String, colors: &Colors) {
    for index in 0..alacritty_terminal::term::color::COUNT {
        let Some(rgb) = colors[index] else { continue };
        let value = palette::spell((rgb.r, rgb.g, rgb.b));
        let _ = match index {
            0..=255 => write!(out, "\x1b]4;{index};{value}\x1b\\"),
            _ if index == NamedColor::Foreground as usize => write!(out, "\x1b]10;{value}\x1b\\"),
            _ if index == NamedColor::Background as usize => write!(out, "\x1b]11;{value}\x1b\\"),
            _ if index == NamedColor::Cursor as usize => write!(out, "\x1b]12;{value}\x1b\\"),
            _ => Ok(()),
        };
    }
}

/// History and screen as a stream of lines; a line that was wrapped wraps again by itself, so that
/// it still reflows as one.
fn stream(out: &mut String, grid: &Grid<GridCell>) {
    let first = -(grid.history_size().min(HISTORY) as i32);
    let last = grid.screen_lines() as i32 - 1;
    let mut pen = Pen::default();
    let mut joined = false;
    for line in first..=last {
        let cells = cells_of(&grid[Line(line)], &Colors::default());
        let wraps = joined_cells(grid, Line(line));
        let used = wraps.unwrap_or_else(|| {
            let end = cells
                .iter()
                .rposition(|cell| !cell.is_blank())
                .map_or(0, |at| at + 1);
            // The line before wraps only when something follows.
            end.max(usize::from(joined))
        });
        pen.write(out, &cells[..used]);
        if joined && used < cells.len() && cells[0].bg != Color::Default {
            // Scrolling filled the new line with the first character's background.
            pen.reset(out);
            out.push_str("\x1b[K");
        }
        if wraps.is_none() && line < last {
            pen.reset(out);
            out.push_str("\r\n");
        }
        joined = wraps.is_some();
    }
    pen.reset(out);
}

/// Everything that is not text: tab stops, cursors, region, modes.
fn finish(out: &mut String, screen: &Screen) {
    let grid = screen.term.grid();
    let plain = Colors::default();
    if screen
        .tabs
        .iter()
        .enumerate()
        .any(|(column, stop)| *stop != (column % 8 == 0))
    {
        out.push_str("\x1b[3g");
        for (column, _) in screen.tabs.iter().enumerate().filter(|(_, stop)| **stop) {
            let _ = write!(out, "\x1b[{}G\x1bH", column + 1);
        }
    }
    let (cursor, saved) = (&grid.cursor, &grid.saved_cursor);
    let pending = cursor.input_needs_wrap && cursor.point.column.0 + 1 == grid.columns();
    // A cursor behind the last column of a line that goes on in the next was brought back there by
    // a restore; writing the last column again would end the line.
    let restored = pending
        && joined_cells(grid, cursor.point.line).is_some()
        && (saved.point, saved.input_needs_wrap) == (cursor.point, true);

    place(out, saved, 0);
    if restored {
        write_last(out, grid, cursor.point.line);
    }
    look(out, &look_of(&saved.template, &plain));
    charsets(out, saved);
    out.push_str("\x1b7");
    out.push_str(PLAIN);
    if restored && let Some(cell) = cells_of(&grid[cursor.point.line + 1i32], &plain).first() {
        look(out, cell);
        out.push_str(&cell.text);
    }

    if screen.region != (0, grid.screen_lines() - 1) {
        let _ = write!(out, "\x1b[{};{}r", screen.region.0 + 1, screen.region.1 + 1);
    }
    let origin = screen.mode(TermMode::ORIGIN);
    if origin {
        out.push_str("\x1b[?6h");
    }
    if restored {
        out.push_str("\x1b8");
        out.push_str(PLAIN);
    } else {
        place(out, cursor, if origin { screen.region.0 } else { 0 });
        if pending {
            write_last(out, grid, cursor.point.line);
        }
    }
    look(out, &look_of(&cursor.template, &plain));
    charsets(out, cursor);
    if screen.charset == CharsetIndex::G1 {
        out.push('\x0e');
    }
    modes(out, screen);
}

/// Writes the last column of `line` again, with the cursor on it: only so it comes to stand behind.
fn write_last(out: &mut String, grid: &Grid<GridCell>, line: Line) {
    let cells = cells_of(&grid[line], &Colors::default());
    let Some(mut cell) = cells.last() else { return };
    if cell.width == 0
        && let [.., wide, _] = &cells[..]
    {
        out.push_str("\x1b[D");
        cell = wide;
    }
    look(out, cell);
    out.push_str(&cell.text);
}

fn modes(out: &mut String, screen: &Screen) {
    let sets = [
        (TermMode::APP_CURSOR, "\x1b[?1h"),
        (TermMode::APP_KEYPAD, "\x1b="),
        (TermMode::INSERT, "\x1b[4h"),
        (TermMode::LINE_FEED_NEW_LINE, "\x1b[20h"),
        (TermMode::MOUSE_REPORT_CLICK, "\x1b[?1000h"),
        (TermMode::MOUSE_DRAG, "\x1b[?1002h"),
        (TermMode::MOUSE_MOTION, "\x1b[?1003h"),
        (TermMode::FOCUS_IN_OUT, "\x1b[?1004h"),
        (TermMode::SGR_MOUSE, "\x1b[?1006h"),
        (TermMode::BRACKETED_PASTE, "\x1b[?2004h"),
    ];
    let resets = [
        (TermMode::LINE_WRAP, "\x1b[?7l"),
        (TermMode::SHOW_CURSOR, "\x1b[?25l"),
        (TermMode::ALTERNATE_SCROLL, "\x1b[?1007l"),
        (TermMode::URGENCY_HINTS, "\x1b[?1042l"),
    ];
    for (_, bytes) in sets.iter().filter(|(flag, _)| screen.mode(*flag)) {
        out.push_str(bytes);
    }
    for (_, bytes) in resets.iter().filter(|(flag, _)| !screen.mode(*flag)) {
        out.push_str(bytes);
    }
    if screen.synchronized {
        out.push_str("\x1b[?2026h");
    }
    if screen.scheme_reports {
        out.push_str("\x1b[?2031h");
    }
    let _ = write!(out, "\x1b[={};1u", screen.keys[0].current);
    let _ = write!(
        out,
        "\x1b[{} q",
        cursor_style_code(screen.term.cursor_style())
    );
}

/// Moves to where `cursor` stands, counted from row `top`.
fn place(out: &mut String, cursor: &GridCursor<GridCell>, top: usize) {
    let row = usize::try_from(cursor.point.line.0)
        .unwrap_or_default()
        .saturating_sub(top);
    let _ = write!(out, "\x1b[{};{}H", row + 1, cursor.point.column.0 + 1);
}

fn charsets(out: &mut String, cursor: &GridCursor<GridCell>) {
    let slots = [
        (CharsetIndex::G0, '('),
        (CharsetIndex::G1, ')'),
        (CharsetIndex::G2, '*'),
        (CharsetIndex::G3, '+'),
    ];
    for (index, slot) in slots {
        if cursor.charsets[index] == StandardCharset::SpecialCharacterAndLineDrawing {
            let _ = write!(out, "\x1b{slot}0");
        }
    }
}

/// Writes cells and remembers the attributes in force.
#[derive(Default)]
struct Pen {
    look: Cell,
}

impl Pen {
    fn write(&mut self, out: &mut String, cells: &[Cell]) {
        for cell in cells.iter().filter(|cell| cell.width > 0) {
            if !cell.same_look(&self.look) {
                look(out, cell);
                self.look = cell.clone();
            }
            out.push_str(&cell.text);
        }
    }

    fn reset(&mut self, out: &mut String) {
        if !self.look.same_look(&Cell::default()) {
            out.push_str("\x1b[0m");
            self.look = Cell::default();
        }
    }
}

/// Sets the attributes of `cell`, and no others.
fn look(out: &mut String, cell: &Cell) {
    out.push_str("\x1b[0");
    let flags = [
        (cell.bold, 1),
        (cell.dim, 2),
        (cell.italic, 3),
        (cell.underline, 4),
        (cell.inverse, 7),
        (cell.hidden, 8),
        (cell.strikeout, 9),
    ];
    for (_, code) in flags.iter().filter(|(set, _)| *set) {
        let _ = write!(out, ";{code}");
    }
    for (color, first) in [(cell.fg, 30u16), (cell.bg, 40)] {
        let _ = match color {
            Color::Default => Ok(()),
            Color::Indexed(index @ 0..=7) => write!(out, ";{}", first + u16::from(index)),
            Color::Indexed(index @ 8..=15) => write!(out, ";{}", first + 52 + u16::from(index)),
            Color::Indexed(index) => write!(out, ";{};5;{index}", first + 8),
            Color::Rgb(r, g, b) => write!(out, ";{};2;{r};{g};{b}", first + 8),
        };
    }
    out.push('m');
}
