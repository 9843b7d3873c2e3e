//! The person's terminal: entering and leaving our modes, and frames. Owns the promise that the
//! terminal is given back as it was, whatever ends us: return, panic, signal or suspension.

use std::io::{self, BufWriter, Stdout, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{SetCursorStyle, Show};
use crossterm::event::{
    DisableBracketedPaste, DisableFocusChange, DisableMouseCapture, EnableBracketedPaste,
    EnableFocusChange, EnableMouseCapture,
};
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use pvisor::emulator::{Cursor, CursorShape};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Rect, Size};
use ratatui::{Frame, Terminal};

/// Bytes gathered before they are written: a whole frame usually.
const BUFFER: usize = 64 * 1024;

/// Whether the terminal is in our modes now.
static ENTERED: AtomicBool = AtomicBool::new(false);
/// Whether a thread has panicked since the screen was entered.
static PANICKED: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// The terminal in our modes. Dropping it gives the terminal back.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    mouse: bool,
    shape: Option<(CursorShape, bool)>,
    unknown: bool,
}

impl Screen {
    /// Enters our modes, with mouse reporting if `mouse`.
    pub fn enter(mouse: bool) -> io::Result<Self> {
        HOOK.call_once(restore_on_panic);
        let backend = CrosstermBackend::new(BufWriter::with_capacity(BUFFER, io::stdout()));
        let mut screen = Self {
            terminal: Terminal::new(backend)?,
            mouse,
            shape: None,
            unknown: false,
        };
        screen.modes_on()?;
        Ok(screen)
    }

    fn modes_on(&mut self) -> io::Result<()> {
        // From here on whatever fails gives the terminal back.
        ENTERED.store(true, Ordering::SeqCst);
        enable_raw_mode()?;
        let out = self.terminal.backend_mut();
        queue!(
            out,
            EnterAlternateScreen,
            EnableBracketedPaste,
            EnableFocusChange
        )?;
        if self.mouse {
            queue!(out, EnableMouseCapture)?;
        }
        out.flush()
    }

    /// Draws a frame in one synchronised update.
    pub fn draw(&mut self, view: impl FnOnce(&mut Frame)) -> io::Result<()> {
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        if std::mem::take(&mut self.unknown) {
            let Size { width, height } = self.terminal.size()?;
            // Also clears the screen and draws every cell. (`clear` would ask the terminal where
            // its cursor is, and the answer would be taken for keys.)
            self.terminal.resize(Rect::new(0, 0, width, height))?;
        }
        self.terminal.draw(view)?;
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate)
    }

    /// Gives the cursor the agent's shape, or the person's own.
    pub fn shape_cursor(&mut self, cursor: Option<Cursor>) -> io::Result<()> {
        let shape = cursor.map(|c| (c.shape, c.blinking));
        if shape == self.shape {
            return Ok(());
        }
        self.shape = shape;
        let style = match shape {
            None => SetCursorStyle::DefaultUserShape,
            Some((CursorShape::Block, true)) => SetCursorStyle::BlinkingBlock,
            Some((CursorShape::Block, false)) => SetCursorStyle::SteadyBlock,
            Some((CursorShape::Underline, true)) => SetCursorStyle::BlinkingUnderScore,
            Some((CursorShape::Underline, false)) => SetCursorStyle::SteadyUnderScore,
            Some((CursorShape::Bar, true)) => SetCursorStyle::BlinkingBar,
            Some((CursorShape::Bar, false)) => SetCursorStyle::SteadyBar,
        };
        execute!(self.terminal.backend_mut(), style)
    }

    /// Turns mouse reporting on or off.
    pub fn capture_mouse(&mut self, on: bool) -> io::Result<()> {
        self.mouse = on;
        let out = self.terminal.backend_mut();
        if on {
            execute!(out, EnableMouseCapture)
        } else {
            execute!(out, DisableMouseCapture)
        }
    }

    /// Gives the terminal back for a while.
    pub fn leave(&mut self) {
        restore();
    }

    /// What is on the terminal is unknown: the next frame draws every cell. A terminal that was
    /// resized has cut or moved what it showed, even when it has its old size again.
    pub fn forget(&mut self) {
        self.unknown = true;
    }

    /// Takes it again and forgets what was on it.
    pub fn enter_again(&mut self) -> io::Result<()> {
        self.shape = None;
        self.modes_on()?;
        self.forget();
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Whether a thread has panicked: what it said is on the terminal already.
pub fn panicked() -> bool {
    PANICKED.load(Ordering::SeqCst)
}

/// Leaves our modes if they are on. Errors are not reported: the terminal may be gone.
///
/// The person's own screen comes last. Whoever sees it may type for the shell at once, and what is
/// typed in raw mode is no line: its end is a carriage return, which no reader of lines takes.
fn restore() {
    if !ENTERED.swap(false, Ordering::SeqCst) {
        return;
    }
    let _ = execute!(
        io::stdout(),
        EndSynchronizedUpdate,
        DisableMouseCapture,
        DisableFocusChange,
        DisableBracketedPaste,
        SetCursorStyle::DefaultUserShape
    );
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
}

/// A panic's message belongs on the terminal as it was before us.
fn restore_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        restore();
        before(info);
        PANICKED.store(true, Ordering::SeqCst);
        // Another thread than the screen's own: the screen has to end too, and it may be waiting.
        if std::thread::current().name() != Some("main") {
            let _ = signal_hook::low_level::raise(signal_hook::consts::SIGTERM);
        }
    }));
}
