//! A file as lines: the bytes between newlines, and whether the last line ends with one. Owns the
//! one place where bytes are split and joined, so that both always agree.

/// Lines without their newlines. An empty file has no lines; only the last line may lack a newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lines<'a> {
    /// The lines, without the newline, a carriage return included.
    pub lines: Vec<&'a [u8]>,
    /// Whether the last line ends with a newline; meaningless when there is no line.
    pub final_newline: bool,
}

impl<'a> Lines<'a> {
    pub fn of(bytes: &'a [u8]) -> Self {
        if bytes.is_empty() {
            return Self {
                lines: Vec::new(),
                final_newline: true,
            };
        }
        let (body, final_newline) = match bytes.strip_suffix(b"\n") {
            Some(body) => (body, true),
            None => (bytes, false),
        };
        Self {
            lines: body.split(|b| *b == b'\n').collect(),
            final_newline,
        }
    }

    /// How many there would be.
    pub fn count(bytes: &[u8]) -> u32 {
        let newlines = memchr::memchr_iter(b'\n', bytes).count();
        (newlines + usize::from(bytes.last().is_some_and(|b| *b != b'\n'))) as u32
    }

    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether line `index` is the last one and has no newline.
    pub fn lacks_newline(&self, index: usize) -> bool {
        !self.final_newline && index + 1 == self.lines.len()
    }
}

/// The inverse of [`Lines::of`].
pub(crate) fn join(lines: &[&[u8]], final_newline: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(lines.iter().map(|l| l.len() + 1).sum());
    for (index, line) in lines.iter().enumerate() {
        out.extend_from_slice(line);
        if final_newline || index + 1 < lines.len() {
            out.push(b'\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitting_and_joining_are_inverse() {
        for bytes in [
            &b""[..],
            b"\n",
            b"\n\n",
            b"a",
            b"a\n",
            b"a\n\n",
            b"a\r\nb",
            b"\r",
        ] {
            let lines = Lines::of(bytes);
            assert_eq!(join(&lines.lines, lines.final_newline), bytes);
            assert_eq!(Lines::count(bytes) as usize, lines.len());
        }
        assert_eq!(Lines::of(b"a\n\n").len(), 2);
        assert_eq!(Lines::of(b"").len(), 0);
    }
}
