//! Lines of hostile bytes as cells: escapes shown, tabs by stops from the text's start, wide
//! characters whole, what has no width shown by its number. Owns the one way bytes reach the
//! screen.

use std::ops::Range;

use pvisor::text::{Piece, pieces};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::theme::Theme;

/// Columns between tab stops.
const TAB: usize = 8;

/// What a glyph is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Text as it is.
    Plain,
    /// Text that was marked as changed.
    Changed,
    /// Stands for something hidden.
    Escape,
    /// A blank, tab or line end made visible.
    Invisible,
}

/// A character as it is drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glyph {
    /// Its text.
    pub text: String,
    /// Its columns.
    pub width: usize,
    /// What it is.
    pub class: Class,
}

/// A line ready to be drawn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Glyphs {
    /// From left to right.
    pub glyphs: Vec<Glyph>,
    /// More follows that was not laid out.
    pub cut: bool,
}

/// How bytes are laid out.
#[derive(Debug, Clone, Copy, Default)]
pub struct How<'a> {
    /// Show blanks, tabs and line ends.
    pub invisibles: bool,
    /// Ranges of bytes that changed.
    pub changed: &'a [Range<usize>],
    /// Lay out no more columns than this; 0 for all.
    pub columns: usize,
}

impl Glyphs {
    /// Lays `bytes` out. A line end of LF is not part of the text; a CR before it is a mark.
    pub fn of(bytes: &[u8], how: How) -> Self {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let (mut bytes, cr) = match bytes.strip_suffix(b"\r") {
            Some(rest) => (rest, true),
            None => (bytes, false),
        };
        let mut out = Self::default();
        if how.columns > 0 {
            // Enough for that many columns of anything but piles of combining marks.
            let most = how.columns * 8 + 256;
            if bytes.len() > most {
                bytes = &bytes[..boundary(bytes, most)];
                out.cut = true;
            }
        }
        let mut column = 0;
        for (range, changed) in segments(bytes, how.changed) {
            let class = if changed {
                Class::Changed
            } else {
                Class::Plain
            };
            for piece in pieces(&bytes[range]) {
                match piece {
                    Piece::Plain(text) => out.plain(&text, class, how.invisibles, &mut column),
                    Piece::Escaped(text) => {
                        for c in text.chars() {
                            out.push(c.to_string(), 1, Class::Escape, &mut column);
                        }
                    }
                    Piece::Tab => out.tab(class, how.invisibles, &mut column),
                }
            }
        }
        if cr && !out.cut {
            out.push("␍".into(), 1, Class::Invisible, &mut column);
        }
        if how.invisibles && !out.cut {
            out.push("¶".into(), 1, Class::Invisible, &mut column);
        }
        out
    }

    fn push(&mut self, text: String, width: usize, class: Class, column: &mut usize) {
        *column += width;
        self.glyphs.push(Glyph { text, width, class });
    }

    fn tab(&mut self, class: Class, invisibles: bool, column: &mut usize) {
        let width = TAB - *column % TAB;
        for i in 0..width {
            let (text, class) = if invisibles && i == 0 {
                ("→", Class::Invisible)
            } else {
                (" ", class)
            };
            self.push(text.into(), 1, class, column);
        }
    }

    fn plain(&mut self, text: &str, class: Class, invisibles: bool, column: &mut usize) {
        for grapheme in text.graphemes(true) {
            if grapheme == " " && invisibles {
                self.push("·".into(), 1, Class::Invisible, column);
                continue;
            }
            let width = grapheme.width();
            if width > 0 {
                self.push(grapheme.to_owned(), width, class, column);
                continue;
            }
            // A mark without a base: it joins the character before it, or shows its number.
            match self.glyphs.last_mut() {
                Some(last) if last.class == Class::Plain || last.class == Class::Changed => {
                    last.text.push_str(grapheme);
                }
                _ => {
                    for c in grapheme.chars() {
                        for c in format!("\\u{{{:x}}}", c as u32).chars() {
                            self.push(c.to_string(), 1, Class::Escape, column);
                        }
                    }
                }
            }
        }
    }

    /// Columns altogether.
    pub fn width(&self) -> usize {
        self.glyphs.iter().map(|g| g.width).sum()
    }

    /// The glyphs of each screen line of `width` columns; at least one line.
    pub fn wrapped(&self, width: usize) -> Vec<Range<usize>> {
        let width = width.max(2);
        let mut lines = Vec::new();
        let (mut start, mut used) = (0, 0);
        for (i, glyph) in self.glyphs.iter().enumerate() {
            if used + glyph.width > width && i > start {
                lines.push(start..i);
                start = i;
                used = 0;
            }
            used += glyph.width;
        }
        lines.push(start..self.glyphs.len());
        lines
    }
}

/// `bytes` in runs that are changed or not; cuts never fall inside a character.
fn segments(bytes: &[u8], changed: &[Range<usize>]) -> Vec<(Range<usize>, bool)> {
    let mut out = Vec::new();
    let mut at = 0;
    for range in changed {
        let start = boundary(bytes, range.start.min(bytes.len())).max(at);
        let end = boundary(bytes, range.end.min(bytes.len())).max(start);
        if start > at {
            out.push((at..start, false));
        }
        if end > start {
            out.push((start..end, true));
        }
        at = end;
    }
    if at < bytes.len() {
        out.push((at..bytes.len(), false));
    }
    out
}

/// The nearest place at or before `at` that is not inside a character.
fn boundary(bytes: &[u8], at: usize) -> usize {
    let mut cut = at;
    while cut > 0 && cut < bytes.len() && at - cut < 4 && bytes[cut] & 0xc0 == 0x80 {
        cut -= 1;
    }
    cut
}

/// Styles of a line's classes.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Of text.
    pub plain: Style,
    /// Of what changed.
    pub changed: Style,
    /// Of escapes.
    pub escape: Style,
    /// Of blanks made visible.
    pub invisible: Style,
}

impl Look {
    /// Text of one scope.
    pub fn of(theme: &Theme, scope: &str) -> Self {
        Self {
            plain: theme.style(scope),
            changed: theme.style(scope),
            escape: theme.style("text.escape"),
            invisible: theme.style("text.invisible"),
        }
    }

    fn style(&self, class: Class) -> Style {
        match class {
            Class::Plain => self.plain,
            Class::Changed => self.changed,
            Class::Escape => self.escape,
            Class::Invisible => self.invisible,
        }
    }
}

/// Draws glyphs from `x` on, `skip` columns in, at most `width` columns. Returns the columns used.
/// What does not fit whole is not drawn in half.
pub fn draw(
    buf: &mut Buffer,
    at: (u16, u16),
    width: u16,
    glyphs: &[Glyph],
    skip: usize,
    look: &Look,
) -> u16 {
    let (x, y) = at;
    let area = *buf.area();
    if y < area.top() || y >= area.bottom() || x < area.left() {
        return 0;
    }
    let width = usize::from(width.min(area.right().saturating_sub(x)));
    let mut column = 0usize;
    let mut used = 0;
    for glyph in glyphs {
        let start = column;
        column += glyph.width;
        if column <= skip {
            continue;
        }
        if start < skip {
            // Half of a wide character is left of the edge.
            for i in 0..(column - skip).min(width) {
                buf[(x + i as u16, y)].set_symbol(" ");
            }
            used = column - skip;
            continue;
        }
        if start - skip + glyph.width > width {
            break;
        }
        let at = x + (start - skip) as u16;
        let style = look.style(glyph.class);
        buf[(at, y)].set_symbol(&glyph.text).set_style(style);
        for i in 1..glyph.width as u16 {
            buf[(at + i, y)].reset();
            buf[(at + i, y)].set_style(style);
        }
        used = start - skip + glyph.width;
    }
    used.min(width) as u16
}

/// Draws bytes on one line, cut at the right with a mark. Returns the columns used.
pub fn draw_bytes(buf: &mut Buffer, area: Rect, bytes: &[u8], look: &Look) -> u16 {
    let how = How {
        columns: usize::from(area.width),
        ..How::default()
    };
    let glyphs = Glyphs::of(bytes, how);
    let all = glyphs.width();
    let fits = all <= usize::from(area.width) && !glyphs.cut;
    if fits {
        return draw(buf, (area.x, area.y), area.width, &glyphs.glyphs, 0, look);
    }
    if area.width == 0 {
        return 0;
    }
    draw(
        buf,
        (area.x, area.y),
        area.width - 1,
        &glyphs.glyphs,
        0,
        look,
    );
    mark(buf, area.right() - 1, area.y, "…", look);
    area.width
}

/// Draws the end of a name that is too long, with a mark on its left: a path's end tells more.
pub fn draw_end(buf: &mut Buffer, area: Rect, bytes: &[u8], look: &Look) -> u16 {
    // Enough bytes from the end for any name that fits.
    let most = usize::from(area.width) * 8 + 256;
    let mut from = bytes.len().saturating_sub(most);
    while from < bytes.len() && from > 0 && bytes[from] & 0xc0 == 0x80 {
        from += 1;
    }
    let glyphs = Glyphs::of(&bytes[from..], How::default());
    let all = glyphs.width();
    if all <= usize::from(area.width) && from == 0 {
        return draw(buf, (area.x, area.y), area.width, &glyphs.glyphs, 0, look);
    }
    if area.width == 0 {
        return 0;
    }
    let room = usize::from(area.width) - 1;
    let used = draw(
        buf,
        (area.x + 1, area.y),
        area.width - 1,
        &glyphs.glyphs,
        all.saturating_sub(room),
        look,
    );
    mark(buf, area.x, area.y, "…", look);
    used + 1
}

fn mark(buf: &mut Buffer, x: u16, y: u16, symbol: &str, look: &Look) {
    if let Some(cell) = buf.cell_mut((x, y)) {
        cell.set_symbol(symbol).set_style(look.invisible);
    }
}

/// Draws words of ours, cut at the right. Returns the columns used.
pub fn draw_text(buf: &mut Buffer, area: Rect, text: &str, style: Style) -> u16 {
    if area.width == 0 || area.height == 0 || !buf.area().contains(area.as_position()) {
        return 0;
    }
    let (end, _) = buf.set_stringn(area.x, area.y, text, area.width.into(), style);
    end - area.x
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8], invisibles: bool) -> String {
        let how = How {
            invisibles,
            ..How::default()
        };
        Glyphs::of(bytes, how)
            .glyphs
            .iter()
            .map(|g| g.text.as_str())
            .collect()
    }

    #[test]
    fn tabs_stop_from_the_start_of_the_text() {
        assert_eq!(text(b"a\tB", false), "a       B");
        assert_eq!(text(b"12345678\t9", false), "12345678        9");
        assert_ne!(text(b"        x", true), text(b"\tx", true));
        assert_eq!(text(b"        x", false), text(b"\tx", false));
    }

    #[test]
    fn a_carriage_return_is_a_mark_at_the_end_and_an_escape_elsewhere() {
        assert_eq!(text(b"two\r\n", false), "two␍");
        assert_eq!(text(b"a\rb", false), "a\\rb");
    }

    #[test]
    fn hidden_characters_are_shown_and_classed() {
        let glyphs = Glyphs::of("ad\u{200b}min".as_bytes(), How::default());
        let escaped: String = glyphs
            .glyphs
            .iter()
            .filter(|g| g.class == Class::Escape)
            .map(|g| g.text.as_str())
            .collect();
        assert_eq!(escaped, "\\u{200b}");
        // What looks the same in the file is plain text.
        let forged = Glyphs::of(b"\\u{200b}", How::default());
        assert!(forged.glyphs.iter().all(|g| g.class == Class::Plain));
    }

    #[test]
    fn a_mark_without_a_base_is_never_invisible() {
        assert_eq!(text("\u{301}x".as_bytes(), false), "\\u{301}x");
        assert_eq!(text("e\u{301}x".as_bytes(), false), "e\u{301}x");
    }

    #[test]
    fn changed_ranges_never_cut_characters() {
        let bytes = "aé漢b".as_bytes();
        for start in 0..=bytes.len() {
            for end in start..=bytes.len() + 2 {
                let changed = [start..end];
                let how = How {
                    changed: &changed,
                    ..How::default()
                };
                let glyphs = Glyphs::of(bytes, how);
                assert!(glyphs.glyphs.iter().all(|g| g.class != Class::Escape));
                let all: String = glyphs.glyphs.iter().map(|g| g.text.as_str()).collect();
                assert_eq!(all, "aé漢b");
            }
        }
    }

    #[test]
    fn wide_characters_are_drawn_whole_or_not_at_all() {
        let glyphs = Glyphs::of("漢字".as_bytes(), How::default());
        let look = Look {
            plain: Style::new(),
            changed: Style::new(),
            escape: Style::new(),
            invisible: Style::new(),
        };
        let mut buf = Buffer::empty(Rect::new(0, 0, 3, 1));
        assert_eq!(draw(&mut buf, (0, 0), 3, &glyphs.glyphs, 0, &look), 2);
        assert_eq!(buf[(2, 0)].symbol(), " ");
        let mut buf = Buffer::empty(Rect::new(0, 0, 3, 1));
        assert_eq!(draw(&mut buf, (0, 0), 3, &glyphs.glyphs, 1, &look), 3);
        assert_eq!(buf[(0, 0)].symbol(), " ");
        assert_eq!(buf[(1, 0)].symbol(), "字");
        assert_eq!(glyphs.wrapped(3), vec![0..1, 1..2]);
    }
}
