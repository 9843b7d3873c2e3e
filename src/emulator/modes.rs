//! What the agent asked of its terminal's keyboard and mouse, and where its cursor stands. Data
//! only.

/// Which mouse events the agent wants to hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mouse {
    /// None.
    #[default]
    Off,
    /// Presses and releases (mode 1000).
    Click,
    /// And motion while a button is held (mode 1002).
    Drag,
    /// And every motion (mode 1003).
    Motion,
}

/// How input for the agent must be encoded, and what is on its screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Modes {
    /// Mouse events wanted.
    pub mouse: Mouse,
    /// Mouse events in SGR form (mode 1006); else the old form of three bytes.
    pub mouse_sgr: bool,
    /// A paste is framed by marks (mode 2004).
    pub bracketed_paste: bool,
    /// Cursor keys in application form (mode 1).
    pub app_cursor: bool,
    /// Keypad in application form.
    pub app_keypad: bool,
    /// The alternate screen is shown: it has no history.
    pub alternate_screen: bool,
    /// Focus changes wanted (mode 1004).
    pub focus_events: bool,
    /// On the alternate screen the wheel becomes cursor keys (mode 1007).
    pub alternate_scroll: bool,
    /// Keys that are ambiguous in the old encoding come as `CSI u` (flag 1 of the kitty keyboard
    /// protocol), so that Shift+Enter differs from Enter.
    pub disambiguate_keys: bool,
    /// Cursor-line feeds also return the carriage (mode 20): Enter sends both.
    pub newline: bool,
}

/// What the cursor looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CursorShape {
    /// A filled cell.
    #[default]
    Block,
    /// A line below.
    Underline,
    /// A line at the left.
    Bar,
}

/// The agent's cursor as it is seen now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// Row of the visible part, from 0 at the top.
    pub row: u16,
    /// Column, from 0 at the left.
    pub col: u16,
    /// Shape.
    pub shape: CursorShape,
    /// Whether it should blink.
    pub blinking: bool,
}
