//! What the agent's terminal answers. Owns every reply, so that a program which asks what it talks
//! to gets its answer at once from us and never from the person's own terminal. Reports what the
//! emulator really does; never the window's title or the clipboard.

use std::fmt::Write as _;

use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::term::TermMode;
use alacritty_terminal::vte::ansi::{CursorShape, CursorStyle, Handler, NamedColor, Rgb};

use super::palette;
use super::screen::Screen;
use super::sequence::{Sequence, number};

/// Assumed size of a cell in pixels, for programs that count in them.
const CELL_PIXELS: (u32, u32) = (8, 16);

/// The colours the emulator's own defaults stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Defaults {
    pub(super) foreground: (u8, u8, u8),
    pub(super) background: (u8, u8, u8),
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            foreground: (229, 229, 229),
            background: (0, 0, 0),
        }
    }
}

/// The answer to a control sequence that asks; `None` when it asks nothing we know.
pub(super) fn control(screen: &Screen, defaults: Defaults, ask: &Sequence) -> Option<String> {
    let size = || {
        (
            screen.term.screen_lines() as u32,
            screen.term.columns() as u32,
        )
    };
    let reply = match ask.key() {
        // Primary attributes: a VT220 with colours.
        (0, [], b'c') if ask.param(0, 0) == 0 => "\x1b[?62;22c".to_owned(),
        // Secondary: as the emulator underneath names itself, whose abilities these are.
        (b'>', [], b'c') if ask.param(0, 0) == 0 => "\x1b[>0;2600;1c".to_owned(),
        (b'=', [], b'c') if ask.param(0, 0) == 0 => "\x1bP!|00000000\x1b\\".to_owned(),
        (b'>', [], b'q') if ask.param(0, 0) == 0 => {
            format!("\x1bP>|pvisor-tui({})\x1b\\", env!("CARGO_PKG_VERSION"))
        }
        (0, [], b'n') => match ask.param(0, 0) {
            5 => "\x1b[0n".to_owned(),
            6 => position(screen, ""),
            _ => return None,
        },
        (b'?', [], b'n') => match ask.param(0, 0) {
            6 => position(screen, "?"),
            996 => scheme(screen, defaults),
            _ => return None,
        },
        (private @ (0 | b'?'), [b'$'], b'p') => {
            let mode = ask.param(0, 0);
            let (mark, state) = if private == 0 {
                ("", ansi_mode(screen, mode))
            } else {
                ("?", private_mode(screen, mode))
            };
            format!("\x1b[{mark}{mode};{state}$y")
        }
        (0, [], b't') => {
            let (rows, cols) = size();
            let (width, height) = CELL_PIXELS;
            match ask.param(0, 0) {
                11 => "\x1b[1t".to_owned(),
                13 => "\x1b[3;0;0t".to_owned(),
                14 => format!("\x1b[4;{};{}t", rows * height, cols * width),
                15 => format!("\x1b[5;{};{}t", rows * height, cols * width),
                16 => format!("\x1b[6;{height};{width}t"),
                18 => format!("\x1b[8;{rows};{cols}t"),
                19 => format!("\x1b[9;{rows};{cols}t"),
                _ => return None,
            }
        }
        (b'?', [], b'u') => format!("\x1b[?{}u", screen.keys[0].current),
        // Which of xterm's extended key forms is on: none.
        (b'?', [], b'm') if ask.param(0, 0) == 4 => "\x1b[>4;0m".to_owned(),
        // Image abilities: none of these items.
        (b'?', [], b'S') => format!("\x1b[?{};3;0S", ask.param(0, 0)),
        // Terminal parameters (DECREQTPARM).
        (0, [], b'x') if ask.param(0, 0) <= 1 => {
            format!("\x1b[{};1;1;128;128;1;0x", ask.param(0, 0) + 2)
        }
        _ => return None,
    };
    Some(reply)
}

/// Whether the colours are dark (1) or light (2).
pub(super) fn scheme(screen: &Screen, defaults: Defaults) -> String {
    let background = color(screen, defaults, NamedColor::Background as usize);
    format!(
        "\x1b[?997;{}n",
        if palette::is_dark(background) { 1 } else { 2 }
    )
}

fn position(screen: &Screen, mark: &str) -> String {
    let point = screen.term.grid().cursor.point;
    let origin = if screen.mode(TermMode::ORIGIN) {
        screen.region.0 as i32
    } else {
        0
    };
    let row = (point.line.0 - origin).max(0) + 1;
    format!("\x1b[{mark}{row};{}R", point.column.0 + 1)
}

/// 1 set, 2 reset, 4 for ever reset, 0 unknown.
fn ansi_mode(screen: &Screen, mode: u16) -> u8 {
    let flag = match mode {
        4 => TermMode::INSERT,
        20 => TermMode::LINE_FEED_NEW_LINE,
        _ => return 0,
    };
    state(screen.mode(flag))
}

fn private_mode(screen: &Screen, mode: u16) -> u8 {
    let flag = match mode {
        1 => TermMode::APP_CURSOR,
        6 => TermMode::ORIGIN,
        7 => TermMode::LINE_WRAP,
        12 => return state(screen.term.cursor_style().blinking),
        25 => TermMode::SHOW_CURSOR,
        47 | 1047 | 1049 => TermMode::ALT_SCREEN,
        66 => TermMode::APP_KEYPAD,
        1000 => TermMode::MOUSE_REPORT_CLICK,
        1002 => TermMode::MOUSE_DRAG,
        1003 => TermMode::MOUSE_MOTION,
        1004 => TermMode::FOCUS_IN_OUT,
        1006 => TermMode::SGR_MOUSE,
        1007 => TermMode::ALTERNATE_SCROLL,
        1042 => TermMode::URGENCY_HINTS,
        2004 => TermMode::BRACKETED_PASTE,
        2026 => return state(screen.synchronized),
        2031 => return state(screen.scheme_reports),
        // Known, and never on: smooth scrolling, reverse video, old mouse forms, pixels, clusters
        // of graphemes as one, size reports by sequence.
        3 | 4 | 5 | 9 | 1001 | 1005 | 1015 | 1016 | 2027 | 2048 => return 4,
        _ => return 0,
    };
    state(screen.mode(flag))
}

fn state(set: bool) -> u8 {
    if set { 1 } else { 2 }
}

/// Acts on an operating-system command and gives its answers. Titles and colours are all that is
/// known; the clipboard, links, notifications, files and images are left out.
pub(super) fn command(
    screen: &mut Screen,
    defaults: Defaults,
    content: &[u8],
    bell: bool,
) -> Vec<String> {
    let end = if bell { "\x07" } else { "\x1b\\" };
    let mut parts = content.split(|&b| b == b';');
    let Some(code) = parts.next().and_then(number) else {
        return Vec::new();
    };
    let parts: Vec<&[u8]> = parts.collect();
    let mut replies = Vec::new();
    match code {
        0 | 2 => {
            let title = content.splitn(2, |&b| b == b';').nth(1).unwrap_or_default();
            screen.set_title_text(title_of(title));
        }
        4 => {
            for pair in parts.chunks_exact(2) {
                let Some(index) = number(pair[0]).and_then(|n| u8::try_from(n).ok()) else {
                    continue;
                };
                if pair[1] == b"?" {
                    let rgb = color(screen, defaults, usize::from(index));
                    replies.push(format!("\x1b]4;{index};{}{end}", palette::spell(rgb)));
                } else if let Some(rgb) = palette::read(pair[1]) {
                    set_color(screen, usize::from(index), rgb);
                }
            }
        }
        10..=12 => {
            // Several values go to the codes that follow.
            for (code, value) in (code..=12).zip(&parts) {
                let index = match code {
                    10 => NamedColor::Foreground,
                    11 => NamedColor::Background,
                    _ => NamedColor::Cursor,
                } as usize;
                if *value == b"?" {
                    let rgb = color(screen, defaults, index);
                    replies.push(format!("\x1b]{code};{}{end}", palette::spell(rgb)));
                } else if let Some(rgb) = palette::read(value) {
                    set_color(screen, index, rgb);
                }
            }
        }
        104 => {
            if parts.iter().all(|part| part.is_empty()) {
                (0..256).for_each(|index| screen.reset_color(index));
            }
            for index in parts.into_iter().filter_map(number).filter(|&n| n < 256) {
                screen.reset_color(usize::from(index));
            }
        }
        110 => screen.reset_color(NamedColor::Foreground as usize),
        111 => screen.reset_color(NamedColor::Background as usize),
        112 => screen.reset_color(NamedColor::Cursor as usize),
        _ => {}
    }
    replies
}

fn set_color(screen: &mut Screen, index: usize, (r, g, b): (u8, u8, u8)) {
    Handler::set_color(screen, index, Rgb { r, g, b });
}

fn color(screen: &Screen, defaults: Defaults, index: usize) -> (u8, u8, u8) {
    if let Some(rgb) = screen.term.colors()[index] {
        return (rgb.r, rgb.g, rgb.b);
    }
    match u8::try_from(index) {
        Ok(index) => palette::rgb_of(index),
        Err(_) if index == NamedColor::Background as usize => defaults.background,
        Err(_) => defaults.foreground,
    }
}

/// Titles longer than this many characters are cut.
const TITLE_LIMIT: usize = 256;

/// The title as it is kept: text, no control characters, bounded. `None` when empty.
fn title_of(bytes: &[u8]) -> Option<String> {
    let text: String = String::from_utf8_lossy(bytes)
        .chars()
        .filter(|c| !c.is_control())
        .take(TITLE_LIMIT)
        .collect();
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The answer to a device-control string that asks.
pub(super) fn device(screen: &Screen, content: &[u8]) -> Option<String> {
    if let Some(setting) = content.strip_prefix(b"$q") {
        return Some(match setting_of(screen, setting) {
            Some(value) => format!("\x1bP1$r{value}\x1b\\"),
            None => "\x1bP0$r\x1b\\".to_owned(),
        });
    }
    let names = content.strip_prefix(b"+q")?;
    // One answer per name: a program waits for each of them.
    let mut reply = String::new();
    for name in names.split(|&b| b == b';').take(32) {
        if name.is_empty() || !name.iter().all(u8::is_ascii_hexdigit) {
            continue;
        }
        let name = String::from_utf8_lossy(name).into_owned();
        match capability(&name.to_ascii_lowercase()) {
            Some(value) => {
                let _ = write!(reply, "\x1bP1+r{name}=");
                for byte in value.bytes() {
                    let _ = write!(reply, "{byte:02x}");
                }
                reply.push_str("\x1b\\");
            }
            None => {
                let _ = write!(reply, "\x1bP0+r{name}\x1b\\");
            }
        }
    }
    (!reply.is_empty()).then_some(reply)
}

/// Values of terminfo capabilities by their name in hexadecimal digits.
fn capability(hex: &str) -> Option<&'static str> {
    Some(match hex {
        // "Co", "colors"
        "436f" | "636f6c6f7273" => "256",
        // "RGB"
        "524742" => "8/8/8",
        // "TN", "name"
        "544e" | "6e616d65" => "xterm-256color",
        _ => return None,
    })
}

fn setting_of(screen: &Screen, setting: &[u8]) -> Option<String> {
    Some(match setting {
        b"r" => format!("{};{}r", screen.region.0 + 1, screen.region.1 + 1),
        b" q" => format!("{} q", cursor_style_code(screen.term.cursor_style())),
        b"\"p" => "62;1\"p".to_owned(),
        _ => return None,
    })
}

/// The number by which a program asks for this cursor (DECSCUSR).
pub(super) fn cursor_style_code(style: CursorStyle) -> u8 {
    let steady = match style.shape {
        CursorShape::Underline => 4,
        CursorShape::Beam => 6,
        _ => 2,
    };
    if style.blinking { steady - 1 } else { steady }
}
