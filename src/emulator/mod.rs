//! Stand-in until the emulator is merged.

use crate::sandbox::spec::TerminalSize;

/// Stand-in.
#[derive(Debug, Clone, Copy, Default)]
pub struct Modes {
    /// Mouse reporting is on.
    pub mouse: bool,
}

/// Stand-in: keeps plain lines.
pub struct Emulator {
    size: TerminalSize,
    text: Vec<u8>,
}

impl Emulator {
    /// Stand-in.
    pub fn new(size: TerminalSize, _scrollback: usize) -> Self {
        Self {
            size,
            text: Vec::new(),
        }
    }
    /// Stand-in.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.text.extend_from_slice(bytes);
        Vec::new()
    }
    /// Stand-in.
    pub fn resize(&mut self, size: TerminalSize) {
        self.size = size;
    }
    /// Stand-in.
    pub fn modes(&self) -> Modes {
        Modes::default()
    }
    /// Stand-in.
    pub fn scroll(&mut self, _lines: i32) {}
    /// Stand-in.
    pub fn scroll_to_bottom(&mut self) {}
    /// Stand-in.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.text.split(|b| *b == b'\n')
    }
}
