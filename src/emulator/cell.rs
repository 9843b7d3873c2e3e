//! One cell of the agent's screen, in a form that may be drawn. Owns the rule by which what an
//! agent wrote into its screen becomes text that cannot steer the terminal it is shown on, nor
//! take more columns there than it has here. No I/O.

use alacritty_terminal::grid::{Dimensions, Grid, Row};
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::cell::{Cell as GridCell, Flags};
use alacritty_terminal::term::color::Colors;
use alacritty_terminal::vte::ansi::{Color as GridColor, NamedColor};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Shown in place of a character that must not be drawn as it is.
const REPLACEMENT: &str = "\u{fffd}";
/// The same in two columns: a full-width question mark.
const WIDE_REPLACEMENT: &str = "\u{ff1f}";
/// A blank of two columns.
const WIDE_BLANK: &str = "\u{3000}";

/// The colour of a cell's text or background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Color {
    /// What the terminal that shows it calls its own.
    #[default]
    Default,
    /// One of the 256 colours of the palette: 0 to 15 belong to the theme of whoever looks, 16 to
    /// 255 are the fixed cube and greys.
    Indexed(u8),
    /// Red, green, blue.
    Rgb(u8, u8, u8),
}

/// One cell of the agent's screen.
///
/// `text` never holds a control character, a bidirectional control or any other character that
/// draws nothing and steers its neighbours, and it is exactly `width` columns wide by the same
/// rule the screen library measures with. Joiners and variation selectors are left out: terminals
/// disagree about the width they give, and the agent's screen counted without them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// The character and its combining marks; empty when `width` is 0.
    pub text: String,
    /// Columns taken: 1, 2, or 0 for the right half of a wide character.
    pub width: u8,
    /// Colour of the text.
    pub fg: Color,
    /// Colour behind it.
    pub bg: Color,
    /// Bold.
    pub bold: bool,
    /// Faint.
    pub dim: bool,
    /// Italic.
    pub italic: bool,
    /// Underlined, whatever the style of the line.
    pub underline: bool,
    /// Text and background exchanged.
    pub inverse: bool,
    /// Struck out.
    pub strikeout: bool,
    /// Written, but not to be shown (a password prompt).
    pub hidden: bool,
}

impl Default for Cell {
    fn default() -> Self {
        Self {
            text: " ".to_owned(),
            width: 1,
            fg: Color::Default,
            bg: Color::Default,
            bold: false,
            dim: false,
            italic: false,
            underline: false,
            inverse: false,
            strikeout: false,
            hidden: false,
        }
    }
}

impl Cell {
    /// Whether nothing distinguishes this cell from one that was never written.
    pub(super) fn is_blank(&self) -> bool {
        *self == Self::default()
    }

    /// Whether both look the same but for their text.
    pub(super) fn same_look(&self, other: &Self) -> bool {
        (self.fg, self.bg) == (other.fg, other.bg) && self.look_flags() == other.look_flags()
    }

    fn look_flags(&self) -> [bool; 7] {
        [
            self.bold,
            self.dim,
            self.italic,
            self.underline,
            self.inverse,
            self.strikeout,
            self.hidden,
        ]
    }
}

/// The cells of one grid row. A wide character whose other half was overwritten becomes a
/// replacement mark, so that widths always add up to the number of columns.
pub(super) fn cells_of(row: &Row<GridCell>, colors: &Colors) -> Vec<Cell> {
    let cells = &row[..];
    let mut out = Vec::with_capacity(cells.len());
    let mut column = 0;
    while let Some(cell) = cells.get(column) {
        let wide = cell.flags.contains(Flags::WIDE_CHAR);
        let paired = wide
            && cells
                .get(column + 1)
                .is_some_and(|next| next.flags.contains(Flags::WIDE_CHAR_SPACER));
        if cell.flags.contains(Flags::LEADING_WIDE_CHAR_SPACER) {
            // The gap before a wide character that did not fit was never written.
            out.push(look_of(&GridCell::default(), colors));
            column += 1;
            continue;
        }
        let mut look = look_of(cell, colors);
        if paired {
            out.push(Cell {
                text: text_of(cell, 2),
                width: 2,
                ..look.clone()
            });
            look.text.clear();
            look.width = 0;
            out.push(look);
            column += 2;
            continue;
        }
        if wide {
            REPLACEMENT.clone_into(&mut look.text);
        } else if !cell.flags.contains(Flags::WIDE_CHAR_SPACER) {
            look.text = text_of(cell, 1);
        }
        out.push(look);
        column += 1;
    }
    out
}

/// How many cells of `line` belong to text that goes on in the next line; `None` when the line ends
/// by itself. The gap left before a wide character that did not fit is no text.
pub(super) fn joined_cells(grid: &Grid<GridCell>, line: Line) -> Option<usize> {
    let row = &grid[line];
    let end = row[Column(row.len() - 1)].flags;
    if line >= grid.bottommost_line() || !end.contains(Flags::WRAPLINE) {
        return None;
    }
    let gap = end.contains(Flags::LEADING_WIDE_CHAR_SPACER) && {
        let next = &grid[line + 1i32];
        next[Column(0)].flags.contains(Flags::WIDE_CHAR)
            && next[Column(1)].flags.contains(Flags::WIDE_CHAR_SPACER)
    };
    Some(row.len() - usize::from(gap))
}

/// A cell with the attributes of `cell` and a blank for text.
pub(super) fn look_of(cell: &GridCell, colors: &Colors) -> Cell {
    let flags = cell.flags;
    Cell {
        fg: color_of(cell.fg, colors),
        bg: color_of(cell.bg, colors),
        bold: flags.contains(Flags::BOLD),
        dim: flags.contains(Flags::DIM) || is_dim_name(cell.fg),
        italic: flags.contains(Flags::ITALIC),
        underline: flags.intersects(Flags::ALL_UNDERLINES),
        inverse: flags.contains(Flags::INVERSE),
        strikeout: flags.contains(Flags::STRIKEOUT),
        hidden: flags.contains(Flags::HIDDEN),
        ..Cell::default()
    }
}

fn is_dim_name(color: GridColor) -> bool {
    matches!(color, GridColor::Named(name) if (NamedColor::DimBlack..=NamedColor::DimWhite).contains(&name)
        || name == NamedColor::DimForeground)
}

fn color_of(color: GridColor, colors: &Colors) -> Color {
    let index = match color {
        GridColor::Spec(rgb) => return Color::Rgb(rgb.r, rgb.g, rgb.b),
        GridColor::Indexed(index) => usize::from(index),
        GridColor::Named(name) => match name {
            NamedColor::DimBlack
            | NamedColor::DimRed
            | NamedColor::DimGreen
            | NamedColor::DimYellow
            | NamedColor::DimBlue
            | NamedColor::DimMagenta
            | NamedColor::DimCyan
            | NamedColor::DimWhite => name as usize - NamedColor::DimBlack as usize,
            NamedColor::BrightForeground | NamedColor::DimForeground => {
                NamedColor::Foreground as usize
            }
            other => other as usize,
        },
    };
    // The agent may have given the palette other colours (OSC 4, 10, 11).
    if let Some(rgb) = colors[index] {
        return Color::Rgb(rgb.r, rgb.g, rgb.b);
    }
    u8::try_from(index).map_or(Color::Default, Color::Indexed)
}

/// The text of a grid cell, exactly `width` columns wide.
fn text_of(cell: &GridCell, width: usize) -> String {
    let base = match cell.c {
        // The grid marks the start of a tab so; what it shows is a blank.
        '\t' => ' ',
        c => c,
    };
    if base.is_control() || steers(base) || base.width() != Some(width) {
        return replaced(base, width).to_owned();
    }
    let mut text = String::from(base);
    for mark in cell.zerowidth().unwrap_or_default() {
        if !mark.is_control() && !steers(*mark) && mark.width() == Some(0) {
            text.push(*mark);
        }
    }
    if text.width() != width {
        // Some marks make the whole wider or narrower than the screen counted.
        text.truncate(base.len_utf8());
    }
    if text.width() != width {
        return replaced(base, width).to_owned();
    }
    text
}

/// A skin tone alone changes the width of what stands before it in some terminals: a blank; all
/// else that cannot be drawn gets a mark.
fn replaced(base: char, width: usize) -> &'static str {
    match (is_emoji_modifier(base), width) {
        (true, 2) => WIDE_BLANK,
        (false, 2) => WIDE_REPLACEMENT,
        _ => REPLACEMENT,
    }
}

fn is_emoji_modifier(c: char) -> bool {
    matches!(c, '\u{1f3fb}'..='\u{1f3ff}')
}

/// Whether `c` draws nothing by itself and changes how or where its neighbours are drawn: bidi
/// controls, joiners, variation selectors, invisible operators and fillers, tags; and the skin
/// tones, which melt into the character before them.
/// (Unicode's `Default_Ignorable_Code_Point` and `Prepended_Concatenation_Mark`.)
pub(super) fn steers(c: char) -> bool {
    // Nearly everything on a screen is below the first of them.
    c >= '\u{ad}'
        && (is_emoji_modifier(c)
            || matches!(c,
                '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}'
                | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
                | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'))
}
