//! Draws the agent's screen, cell by cell, into whatever room there is. Owns the mapping of its
//! colours to those the person's terminal has.

use pvisor::emulator::{Cell, Color, Emulator, nearest_indexed, nearest_sixteen, rgb_of};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color as TerminalColor, Modifier, Style};
use ratatui::widgets::Widget;

/// How many colours the person's terminal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ColorDepth {
    /// 24 bits.
    #[default]
    Truecolor,
    /// The palette of 256.
    Indexed,
    /// The first 16.
    Sixteen,
    /// None: attributes alone.
    None,
}

/// The agent's screen as a widget. Smaller room shows the part around the cursor, larger room is
/// filled up.
#[derive(Debug, Clone, Copy)]
pub struct AgentPane<'a> {
    emulator: &'a Emulator,
    depth: ColorDepth,
    filler: Style,
}

impl<'a> AgentPane<'a> {
    /// Draws `emulator` in full colour.
    pub fn new(emulator: &'a Emulator) -> Self {
        Self {
            emulator,
            depth: ColorDepth::default(),
            filler: Style::new().add_modifier(Modifier::DIM),
        }
    }

    /// With the colours the terminal has.
    #[must_use]
    pub fn depth(mut self, depth: ColorDepth) -> Self {
        self.depth = depth;
        self
    }

    /// With this style where the agent's screen ends before the room does.
    #[must_use]
    pub fn filler(mut self, style: Style) -> Self {
        self.filler = style;
        self
    }

    /// Where the cursor is seen when the pane is drawn into `area`; `None` when it is not.
    pub fn cursor_position(&self, area: Rect) -> Option<Position> {
        let cursor = self.emulator.cursor()?;
        let (top, left) = self.corner(area);
        let (row, col) = (cursor.row.checked_sub(top)?, cursor.col.checked_sub(left)?);
        (row < area.height && col < area.width).then(|| Position::new(area.x + col, area.y + row))
    }

    /// The first row and column shown in `area`: as far down and right as the cursor needs.
    fn corner(&self, area: Rect) -> (u16, u16) {
        let size = self.emulator.size();
        let Some(cursor) = self.emulator.cursor() else {
            return (0, 0);
        };
        let first = |at: u16, all: u16, room: u16| {
            (at + 1).saturating_sub(room).min(all.saturating_sub(room))
        };
        (
            first(cursor.row, size.rows, area.height),
            first(cursor.col, size.cols, area.width),
        )
    }
}

impl Widget for AgentPane<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let area = area.intersection(buffer.area);
        let (top, left) = self.corner(area);
        let mut palette = Palette {
            depth: self.depth,
            last: None,
        };
        for y in 0..area.height {
            let row = self.emulator.row(usize::from(top + y));
            for x in 0..area.width {
                let target = &mut buffer[(area.x + x, area.y + y)];
                target.reset();
                let Some(cell) = row.get(usize::from(left + x)) else {
                    target.set_char('·').set_style(self.filler);
                    continue;
                };
                target.set_style(palette.style(cell));
                // The halves of a wide character that is cut at an edge stay blank; a right half
                // inside is covered by the left one.
                let fits = cell.width > 0 && x + u16::from(cell.width) <= area.width;
                if fits && !cell.hidden {
                    target.set_symbol(&cell.text);
                }
            }
        }
    }
}

/// Maps colours, and remembers the last one: neighbours mostly share theirs.
struct Palette {
    depth: ColorDepth,
    last: Option<(Color, u8)>,
}

impl Palette {
    fn style(&mut self, cell: &Cell) -> Style {
        let mut style = Style::reset();
        let (fg, bg) = (self.color(cell.fg), self.color(cell.bg));
        // Two colours that fall together would hide the text.
        let fg = match bg {
            TerminalColor::Reset => fg,
            _ if fg == bg && cell.fg != cell.bg => against(cell.bg),
            _ => fg,
        };
        style = style.fg(fg).bg(bg);
        let flags = [
            (cell.bold, Modifier::BOLD),
            (cell.dim, Modifier::DIM),
            (cell.italic, Modifier::ITALIC),
            (cell.underline, Modifier::UNDERLINED),
            (cell.inverse, Modifier::REVERSED),
            (cell.strikeout, Modifier::CROSSED_OUT),
        ];
        for (_, modifier) in flags.iter().filter(|(set, _)| *set) {
            style = style.add_modifier(*modifier);
        }
        style
    }

    fn color(&mut self, color: Color) -> TerminalColor {
        let index = match (self.depth, color) {
            (ColorDepth::None, _) | (_, Color::Default) => return TerminalColor::Reset,
            (ColorDepth::Truecolor, Color::Rgb(r, g, b)) => return TerminalColor::Rgb(r, g, b),
            (ColorDepth::Truecolor | ColorDepth::Indexed, Color::Indexed(index))
            | (ColorDepth::Sixteen, Color::Indexed(index @ 0..=15)) => index,
            (_, color) => self.nearest(color),
        };
        named(index)
    }

    fn nearest(&mut self, color: Color) -> u8 {
        if let Some((last, index)) = self.last
            && last == color
        {
            return index;
        }
        let rgb = rgb(color);
        let index = match self.depth {
            ColorDepth::Sixteen => nearest_sixteen(rgb),
            _ => nearest_indexed(rgb),
        };
        self.last = Some((color, index));
        index
    }
}

/// Black or white, whichever is seen on `background`.
fn against(background: Color) -> TerminalColor {
    let (r, g, b) = rgb(background);
    let light = u32::from(r) * 3 + u32::from(g) * 6 + u32::from(b) > 1_280;
    named(if light { 0 } else { 15 })
}

fn rgb(color: Color) -> (u8, u8, u8) {
    match color {
        Color::Default => (0, 0, 0),
        Color::Indexed(index) => rgb_of(index),
        Color::Rgb(r, g, b) => (r, g, b),
    }
}

/// Entry `index` of the palette; the first 16 by name, because terminals with no more than those
/// know no numbers.
fn named(index: u8) -> TerminalColor {
    const NAMES: [TerminalColor; 16] = [
        TerminalColor::Black,
        TerminalColor::Red,
        TerminalColor::Green,
        TerminalColor::Yellow,
        TerminalColor::Blue,
        TerminalColor::Magenta,
        TerminalColor::Cyan,
        TerminalColor::Gray,
        TerminalColor::DarkGray,
        TerminalColor::LightRed,
        TerminalColor::LightGreen,
        TerminalColor::LightYellow,
        TerminalColor::LightBlue,
        TerminalColor::LightMagenta,
        TerminalColor::LightCyan,
        TerminalColor::White,
    ];
    NAMES
        .get(usize::from(index))
        .copied()
        .unwrap_or(TerminalColor::Indexed(index))
}
