//! Colours by number and by name: the 256-colour palette that queries are answered from, and the
//! forms in which programs write and read them. Pure.

/// The colours of the palette's first 16 entries, as xterm has them.
const BASE: [(u8, u8, u8); 16] = [
    (0, 0, 0),
    (205, 0, 0),
    (0, 205, 0),
    (205, 205, 0),
    (0, 0, 238),
    (205, 0, 205),
    (0, 205, 205),
    (229, 229, 229),
    (127, 127, 127),
    (255, 0, 0),
    (0, 255, 0),
    (255, 255, 0),
    (92, 92, 255),
    (255, 0, 255),
    (0, 255, 255),
    (255, 255, 255),
];

/// Red, green and blue of palette entry `index`.
pub fn rgb_of(index: u8) -> (u8, u8, u8) {
    match index {
        0..=15 => BASE[usize::from(index)],
        16..=231 => {
            let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
            let cube = index - 16;
            (level(cube / 36), level(cube / 6 % 6), level(cube % 6))
        }
        232..=255 => {
            let grey = 8 + 10 * (index - 232);
            (grey, grey, grey)
        }
    }
}

/// The entry of the fixed part (16 to 255) nearest to a colour.
pub fn nearest_indexed(rgb: (u8, u8, u8)) -> u8 {
    nearest(rgb, 16..=255)
}

/// The entry of the first 16 nearest to a colour; what has a hue keeps one.
pub fn nearest_sixteen(rgb: (u8, u8, u8)) -> u8 {
    let grey = |index: &u8| matches!(index, 0 | 7 | 8 | 15);
    let spread = rgb.0.max(rgb.1).max(rgb.2) - rgb.0.min(rgb.1).min(rgb.2);
    if spread > 64 {
        nearest(rgb, (0..=15).filter(|index| !grey(index)))
    } else {
        nearest(rgb, (0..=15).filter(grey))
    }
}

fn nearest(rgb: (u8, u8, u8), among: impl Iterator<Item = u8>) -> u8 {
    among
        .min_by_key(|&index| distance(rgb, rgb_of(index)))
        .unwrap_or_default()
}

fn distance(a: (u8, u8, u8), b: (u8, u8, u8)) -> u32 {
    // The eye is most sensitive to green, least to blue.
    let part = |a: u8, b: u8, weight: u32| weight * u32::from(a.abs_diff(b)).pow(2);
    part(a.0, b.0, 3) + part(a.1, b.1, 6) + part(a.2, b.2, 1)
}

/// Whether a background of this colour calls for light text.
pub(super) fn is_dark((r, g, b): (u8, u8, u8)) -> bool {
    u32::from(r) * 299 + u32::from(g) * 587 + u32::from(b) * 114 < 128_000
}

/// A colour as it is written in answers: 16 bits a channel.
pub(super) fn spell((r, g, b): (u8, u8, u8)) -> String {
    format!("rgb:{r:02x}{r:02x}/{g:02x}{g:02x}/{b:02x}{b:02x}")
}

/// Reads `rgb:R/G/B` (1 to 4 hexadecimal digits each) and `#RGB` to `#RRRRGGGGBBBB`.
pub(super) fn read(text: &[u8]) -> Option<(u8, u8, u8)> {
    let text = std::str::from_utf8(text).ok()?;
    let parts: [&str; 3] = if let Some(channels) = text.strip_prefix("rgb:") {
        channels.split('/').collect::<Vec<_>>().try_into().ok()?
    } else {
        let digits = text.strip_prefix('#').filter(|digits| digits.is_ascii())?;
        let each = digits.len() / 3;
        if !digits.len().is_multiple_of(3) {
            return None;
        }
        [
            &digits[..each],
            &digits[each..2 * each],
            &digits[2 * each..],
        ]
    };
    let channel = |digits: &str| {
        if digits.is_empty() || digits.len() > 4 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let value = u32::from_str_radix(digits, 16).ok()?;
        let most = 16u32.pow(digits.len() as u32) - 1;
        u8::try_from(255 * value / most).ok()
    };
    Some((channel(parts[0])?, channel(parts[1])?, channel(parts[2])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn palette_has_the_usual_cube_and_greys() {
        assert_eq!(rgb_of(16), (0, 0, 0));
        assert_eq!(rgb_of(231), (255, 255, 255));
        assert_eq!(rgb_of(196), (255, 0, 0));
        assert_eq!(rgb_of(232), (8, 8, 8));
        assert_eq!(rgb_of(255), (238, 238, 238));
        for index in 16..=255 {
            assert_eq!(rgb_of(nearest_indexed(rgb_of(index))), rgb_of(index));
        }
        assert_eq!(nearest_sixteen((250, 10, 10)), 9);
        assert_eq!(nearest_sixteen((215, 119, 87)), 3);
        assert_eq!(nearest_sixteen((48, 48, 48)), 0);
        assert_eq!(nearest_sixteen((250, 250, 250)), 15);
    }

    #[test]
    fn colours_are_read_in_every_spelling() {
        assert_eq!(read(b"rgb:ff/80/00"), Some((255, 128, 0)));
        assert_eq!(read(b"rgb:ffff/8080/0000"), Some((255, 128, 0)));
        assert_eq!(read(b"rgb:f/0/8"), Some((255, 0, 136)));
        assert_eq!(read(b"#ff8000"), Some((255, 128, 0)));
        assert_eq!(read(b"#f80"), Some((255, 136, 0)));
        for bad in [
            "",
            "rgb:",
            "rgb:1/2",
            "rgb:12345/0/0",
            "#",
            "#12",
            "#zzz",
            "red",
        ] {
            assert_eq!(read(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(read(&[b"#".as_slice(), &[b'0'; 60]].concat()), None);
        assert_eq!(spell((1, 2, 255)), "rgb:0101/0202/ffff");
    }
}
