//! The parts of one control sequence. Parsing only.

/// A control sequence taken apart: `CSI [private] parameters [intermediates] final`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sequence {
    /// `<`, `=`, `>` or `?` in front, else 0.
    pub(super) private: u8,
    /// The parameters; one that is missing is `None`. Those with sub-parameters count as missing.
    pub(super) params: Vec<Option<u16>>,
    /// Bytes between parameters and final.
    pub(super) intermediates: Vec<u8>,
    /// The final byte.
    pub(super) action: u8,
}

impl Sequence {
    /// Takes `bytes`, what follows `ESC [`, apart.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (&action, mut rest) = bytes.split_last()?;
        let private = match rest.first() {
            Some(&byte @ b'<'..=b'?') => {
                rest = &rest[1..];
                byte
            }
            _ => 0,
        };
        let end = rest
            .iter()
            .position(|b| (0x20..=0x2f).contains(b))
            .unwrap_or(rest.len());
        let (params, intermediates) = rest.split_at(end);
        if !intermediates.iter().all(|b| (0x20..=0x2f).contains(b)) {
            return None;
        }
        let params = match params {
            [] => Vec::new(),
            params => params.split(|&b| b == b';').map(number).collect(),
        };
        Some(Self {
            private,
            params,
            intermediates: intermediates.to_vec(),
            action,
        })
    }

    /// Parameter `index`, or `default` when it is missing.
    pub(super) fn param(&self, index: usize, default: u16) -> u16 {
        self.params.get(index).copied().flatten().unwrap_or(default)
    }

    /// Private marker, intermediates and final in one, to match on.
    pub(super) fn key(&self) -> (u8, &[u8], u8) {
        (self.private, &self.intermediates, self.action)
    }
}

/// Digits as a number; too large ones are cut at the top, as terminals do.
pub(super) fn number(digits: &[u8]) -> Option<u16> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0u32, |value, digit| {
        (value * 10 + u32::from(digit - b'0')).min(u32::from(u16::MAX))
    });
    u16::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_a_sequence_apart() {
        let mode = Sequence::parse(b"?1049;2004$p").unwrap();
        assert_eq!(mode.key(), (b'?', &b"$"[..], b'p'));
        assert_eq!(mode.params, [Some(1049), Some(2004)]);
        let empty = Sequence::parse(b"c").unwrap();
        assert_eq!((empty.key(), empty.param(0, 7)), ((0, &b""[..], b'c'), 7));
        let huge = Sequence::parse(b"99999999999;;5m").unwrap();
        assert_eq!(huge.params, [Some(u16::MAX), None, Some(5)]);
        assert_eq!(Sequence::parse(b"4:3m").unwrap().params, [None]);
        assert_eq!(Sequence::parse(b"1$2p"), None);
    }
}
