//! Colours as themes write them and as terminals can show them. Owns the fall from true colour to
//! 256, to 16, to none; knows no scope.

use ratatui::style::Color;

/// How many colours the terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// None: `NO_COLOR`, or a terminal that has none.
    None,
    /// The 16 named ones.
    Basic,
    /// The xterm palette.
    Indexed,
    /// 24 bit.
    True,
}

impl Depth {
    /// What the environment gives evidence for: never more than that.
    pub fn detect(var: impl Fn(&str) -> Option<String>) -> Self {
        let var = |name: &str| var(name).filter(|v| !v.is_empty());
        if var("NO_COLOR").is_some() {
            return Depth::None;
        }
        let term = var("TERM").unwrap_or_default();
        if term.is_empty() || term == "dumb" || term.starts_with("vt1") || term.starts_with("vt2") {
            return Depth::None;
        }
        let truecolor = var("COLORTERM").is_some_and(|v| v == "truecolor" || v == "24bit");
        if truecolor || term.ends_with("-direct") {
            Depth::True
        } else if term.contains("256color") {
            Depth::Indexed
        } else {
            Depth::Basic
        }
    }
}

/// A colour of a theme: what it is, and what stands for it among 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint {
    /// Red, green, blue.
    pub rgb: [u8; 3],
    /// Index among the 16.
    pub basic: u8,
}

const BASIC: [(&str, Color, [u8; 3]); 16] = [
    ("black", Color::Black, [0, 0, 0]),
    ("red", Color::Red, [205, 0, 0]),
    ("green", Color::Green, [0, 205, 0]),
    ("yellow", Color::Yellow, [205, 205, 0]),
    ("blue", Color::Blue, [0, 0, 238]),
    ("magenta", Color::Magenta, [205, 0, 205]),
    ("cyan", Color::Cyan, [0, 205, 205]),
    ("gray", Color::Gray, [229, 229, 229]),
    ("dark-gray", Color::DarkGray, [127, 127, 127]),
    ("light-red", Color::LightRed, [255, 0, 0]),
    ("light-green", Color::LightGreen, [0, 255, 0]),
    ("light-yellow", Color::LightYellow, [255, 255, 0]),
    ("light-blue", Color::LightBlue, [92, 92, 255]),
    ("light-magenta", Color::LightMagenta, [255, 0, 255]),
    ("light-cyan", Color::LightCyan, [0, 255, 255]),
    ("white", Color::White, [255, 255, 255]),
];

impl Paint {
    /// Reads `#rrggbb`, with the nearest of the 16, or one of the 16 by name.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(at) = basic(text) {
            return Some(Self {
                rgb: BASIC[usize::from(at)].2,
                basic: at,
            });
        }
        let hex = text.strip_prefix('#')?;
        if hex.len() != 6 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).ok();
        let rgb = [byte(0)?, byte(2)?, byte(4)?];
        let nearest = (0u8..16).min_by_key(|i| distance(rgb, BASIC[usize::from(*i)].2))?;
        Some(Self {
            rgb,
            basic: nearest,
        })
    }

    /// The colour for a terminal of this depth; `None` for the terminal's own.
    pub fn at(self, depth: Depth) -> Option<Color> {
        match depth {
            Depth::None => None,
            Depth::Basic => Some(BASIC[usize::from(self.basic)].1),
            Depth::Indexed => Some(Color::Indexed(indexed(self.rgb))),
            Depth::True => Some(Color::Rgb(self.rgb[0], self.rgb[1], self.rgb[2])),
        }
    }

    /// Contrast with another colour, 1 to 21, as the web's accessibility rules define it.
    pub fn contrast(self, other: Paint) -> f64 {
        let (a, b) = (luminance(self.rgb), luminance(other.rgb));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }
}

/// Index of one of the 16 by name.
pub fn basic(name: &str) -> Option<u8> {
    BASIC.iter().position(|(n, ..)| *n == name).map(|i| i as u8)
}

fn distance(a: [u8; 3], b: [u8; 3]) -> i32 {
    a.iter()
        .zip(b)
        .map(|(a, b)| (i32::from(*a) - i32::from(b)).pow(2))
        .sum()
}

/// Nearest of the xterm palette's cube and greys.
fn indexed(rgb: [u8; 3]) -> u8 {
    const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let step = |v: u8| {
        (0..6u8)
            .min_by_key(|i| (i32::from(STEPS[usize::from(*i)]) - i32::from(v)).abs())
            .unwrap_or(0)
    };
    let cube = rgb.map(step);
    let cube_rgb = cube.map(|i| STEPS[usize::from(i)]);
    let mean = rgb.iter().map(|v| i32::from(*v)).sum::<i32>() / 3;
    let grey = ((mean - 3) / 10).clamp(0, 23) as u8;
    let grey_rgb = [8 + grey * 10; 3];
    if distance(rgb, grey_rgb) < distance(rgb, cube_rgb) {
        232 + grey
    } else {
        16 + 36 * cube[0] + 6 * cube[1] + cube[2]
    }
}

fn luminance(rgb: [u8; 3]) -> f64 {
    let part = |v: u8| {
        let v = f64::from(v) / 255.0;
        if v <= 0.039_28 {
            v / 12.92
        } else {
            ((v + 0.055) / 1.055).powf(2.4)
        }
    };
    0.2126 * part(rgb[0]) + 0.7152 * part(rgb[1]) + 0.0722 * part(rgb[2])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(vars: &[(&str, &str)]) -> Depth {
        Depth::detect(|name| {
            vars.iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| (*v).to_owned())
        })
    }

    #[test]
    fn no_colour_is_sent_without_evidence() {
        assert_eq!(depth(&[("TERM", "xterm")]), Depth::Basic);
        assert_eq!(depth(&[("TERM", "linux")]), Depth::Basic);
        assert_eq!(
            depth(&[("TERM", "xterm-256color"), ("COLORTERM", "")]),
            Depth::Indexed
        );
        assert_eq!(
            depth(&[("TERM", "xterm-256color"), ("COLORTERM", "truecolor")]),
            Depth::True
        );
        assert_eq!(
            depth(&[
                ("TERM", "xterm-256color"),
                ("COLORTERM", "truecolor"),
                ("NO_COLOR", "1")
            ]),
            Depth::None
        );
        assert_eq!(depth(&[("TERM", "dumb")]), Depth::None);
        assert_eq!(depth(&[]), Depth::None);
    }

    #[test]
    fn colours_fall_to_what_there_is() {
        let paint = Paint::parse("#ff0000").expect("a colour");
        assert_eq!(paint.at(Depth::True), Some(Color::Rgb(255, 0, 0)));
        assert_eq!(paint.at(Depth::Indexed), Some(Color::Indexed(196)));
        assert_eq!(paint.at(Depth::Basic), Some(Color::LightRed));
        assert_eq!(paint.at(Depth::None), None);
        assert_eq!(Paint::parse("#ff00"), None);
        assert_eq!(Paint::parse("#gg0000"), None);
        let white = Paint::parse("white").expect("a colour");
        let black = Paint::parse("black").expect("a colour");
        assert!((white.contrast(black) - 21.0).abs() < 0.01);
    }
}
