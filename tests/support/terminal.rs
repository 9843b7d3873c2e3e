//! A terminal with a person in front of it: runs a command on a PTY, shows what an emulator makes
//! of its output, types, resizes, and keeps every byte that reached it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use alacritty_terminal::event::{Event, EventListener};
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::cell::Flags;
use alacritty_terminal::term::{Config, Term, TermMode};
use alacritty_terminal::vte::ansi::{Processor, Rgb};
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::stat::Mode;
use nix::sys::termios::{LocalFlags, Termios, tcgetattr};
use nix::unistd::pipe2;

use super::wait::PATIENCE;

nix::ioctl_write_ptr_bad!(set_window_size, libc::TIOCSWINSZ, Winsize);
nix::ioctl_write_int_bad!(set_controlling_terminal, libc::TIOCSCTTY);

/// A running command, its screen and its keyboard.
pub struct Terminal {
    child: Child,
    master: Option<std::fs::File>,
    output: Output,
    term: Term<Answers>,
    parser: Processor,
    answers: Receiver<Answer>,
    initial: Termios,
    /// Every byte the outer terminal got.
    pub bytes: Vec<u8>,
    /// Every window title that was set.
    pub titles: Vec<String>,
    /// Everything that was put into the clipboard.
    pub clipboard: Vec<String>,
    what: String,
}

/// What the command writes, read at once as a window does: a command must not wait for a test that
/// looks elsewhere.
struct Output {
    chunks: Receiver<Vec<u8>>,
    /// Closed to stop the reader.
    stop: Option<OwnedFd>,
    reader: Option<JoinHandle<()>>,
}

impl Output {
    fn of(mut master: std::fs::File) -> Self {
        let (stopped, stop) = pipe2(OFlag::O_CLOEXEC).expect("a pipe");
        let (out, chunks) = channel();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            loop {
                let mut fds = [
                    PollFd::new(master.as_fd(), PollFlags::POLLIN),
                    PollFd::new(stopped.as_fd(), PollFlags::empty()),
                ];
                let ready = poll(&mut fds, PollTimeout::NONE);
                if fds[1].any() == Some(true) {
                    return;
                }
                if ready.is_err() {
                    continue;
                }
                // EIO: nobody holds the slave any more.
                let Ok(n @ 1..) = master.read(&mut buffer) else {
                    return;
                };
                if out.send(buffer[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            chunks,
            stop: Some(stop),
            reader: Some(reader),
        }
    }

    /// Returns once the reader holds the terminal no longer.
    fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

enum Answer {
    Text(String),
    Title(String),
    Clipboard(String),
}

#[derive(Clone)]
struct Answers(Sender<Answer>);

impl EventListener for Answers {
    fn send_event(&self, event: Event) {
        let answer = match event {
            Event::PtyWrite(text) => Answer::Text(text),
            Event::ColorRequest(_, reply) => Answer::Text(reply(Rgb { r: 0, g: 0, b: 0 })),
            Event::Title(title) => Answer::Title(title),
            Event::ClipboardStore(_, text) => Answer::Clipboard(text),
            _ => return,
        };
        let _ = self.0.send(answer);
    }
}

#[derive(Clone, Copy)]
struct Size {
    rows: u16,
    cols: u16,
}

impl Dimensions for Size {
    fn total_lines(&self) -> usize {
        usize::from(self.rows)
    }
    fn screen_lines(&self) -> usize {
        usize::from(self.rows)
    }
    fn columns(&self) -> usize {
        usize::from(self.cols)
    }
}

impl Terminal {
    /// Starts a command on a terminal of its own.
    #[track_caller]
    pub fn open(command: Command, rows: u16, cols: u16) -> Self {
        Self::start(command, rows, cols, true)
    }

    /// Starts a command on a terminal that is not its controlling one: nothing signals its end.
    #[track_caller]
    pub fn open_without_control(command: Command, rows: u16, cols: u16) -> Self {
        Self::start(command, rows, cols, false)
    }

    #[track_caller]
    fn start(mut command: Command, rows: u16, cols: u16, controlling: bool) -> Self {
        let what = format!("{command:?}")
            .split("\" \"")
            .collect::<Vec<_>>()
            .join(" ");
        let size = Size { rows, cols };
        let (master, slave) = open_pair(size);
        let initial = tcgetattr(&master).expect("its modes");
        let stream = || Stdio::from(slave.try_clone().expect("a descriptor"));
        command.stdin(stream()).stdout(stream()).stderr(stream());
        // SAFETY: between fork and exec only two system calls are made, both async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                nix::unistd::setsid()?;
                if controlling {
                    set_controlling_terminal(0, 0)?;
                }
                Ok(())
            });
        }
        let child = command.spawn().unwrap_or_else(|e| panic!("{what}: {e}"));
        // The command's descriptors must be the last ones of the slave, so that its end shows.
        drop(command);
        drop(slave);
        let (out, answers) = channel();
        let master = std::fs::File::from(master);
        Self {
            child,
            output: Output::of(master.try_clone().expect("a descriptor")),
            master: Some(master),
            term: Term::new(Config::default(), &size, Answers(out)),
            parser: Processor::new(),
            answers,
            initial,
            bytes: Vec::new(),
            titles: Vec::new(),
            clipboard: Vec::new(),
            what,
        }
    }

    /// Types.
    #[track_caller]
    pub fn send(&mut self, keys: &str) {
        let master = self.master.as_mut().expect("the terminal is open");
        master
            .write_all(keys.as_bytes())
            .unwrap_or_else(|e| panic!("{}: typing {keys:?}: {e}", self.what));
    }

    /// Gives the window another size.
    pub fn resize(&mut self, rows: u16, cols: u16) {
        let size = Size { rows, cols };
        let master = self.master.as_ref().expect("the terminal is open");
        // First the picture: what is drawn for the new size must find it.
        self.term.resize(size);
        // SAFETY: the descriptor is a terminal's and the argument a whole `winsize`.
        unsafe { set_window_size(master.as_raw_fd(), &winsize(size)) }.expect("TIOCSWINSZ");
    }

    /// Leaves our screen as a person does: asks to, and answers the question once it is shown. No
    /// page may lie over the panes, and the agent's pane must not have the keys.
    #[track_caller]
    pub fn leave_screen(&mut self) {
        self.send("q");
        self.wait_text("leave this screen;");
        self.send("l");
    }

    /// Waits until the screen shows this text.
    #[track_caller]
    pub fn wait_text(&mut self, needle: &str) {
        self.wait_for(&format!("{needle:?} on the screen"), |screen| {
            screen.contains(needle)
        });
    }

    /// Waits until the screen's text fulfils a condition.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str, condition: impl Fn(&str) -> bool) {
        let found = self.attempt(PATIENCE, |t| condition(&t.text()).then_some(()));
        assert!(
            found.is_some(),
            "waited in vain for {what}; {}'s screen:\n{}",
            self.what,
            self.text()
        );
    }

    /// Reads output until `look` finds something or the limit is reached.
    pub fn attempt<T>(
        &mut self,
        limit: Duration,
        mut look: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let end = Instant::now() + limit;
        loop {
            if let Some(found) = look(self) {
                return Some(found);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let open = self.pump(left.min(Duration::from_millis(50)));
            if !open {
                // Nothing more to read; what is waited for may be the command's end.
                return super::wait::attempt(left, || look(self));
            }
        }
    }

    /// Takes in what arrives within `limit`; false once the other side is closed.
    fn pump(&mut self, limit: Duration) -> bool {
        self.take(limit) != Err(RecvTimeoutError::Disconnected)
    }

    fn take(&mut self, limit: Duration) -> Result<(), RecvTimeoutError> {
        let chunk = self.output.chunks.recv_timeout(limit)?;
        self.bytes.extend_from_slice(&chunk);
        self.parser.advance(&mut self.term, &chunk);
        while let Ok(answer) = self.answers.try_recv() {
            match answer {
                Answer::Text(text) => {
                    if let Some(master) = self.master.as_mut() {
                        let _ = master.write_all(text.as_bytes());
                    }
                }
                Answer::Title(title) => self.titles.push(title),
                Answer::Clipboard(text) => self.clipboard.push(text),
            }
        }
        Ok(())
    }

    /// The screen as text, one line per row, without trailing blanks.
    pub fn text(&self) -> String {
        let grid = self.term.grid();
        let rows = (0..self.term.screen_lines()).map(|row| {
            let mut line = String::new();
            for col in 0..self.term.columns() {
                let cell = &grid[Line(i32::try_from(row).unwrap_or(0))][Column(col)];
                if cell.flags.contains(Flags::WIDE_CHAR_SPACER) {
                    continue;
                }
                line.push(cell.c);
                line.extend(cell.zerowidth().into_iter().flatten());
            }
            line.trim_end().to_owned()
        });
        rows.collect::<Vec<_>>().join("\n")
    }

    /// Process id of the command.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Whether the command is in the alternate screen.
    pub fn in_alternate_screen(&self) -> bool {
        self.term.mode().contains(TermMode::ALT_SCREEN)
    }

    /// Waits for the command's end and takes in its last output.
    #[track_caller]
    pub fn wait_exit(&mut self) -> ExitStatus {
        let status = self.attempt(PATIENCE, |t| t.child.try_wait().expect("a child"));
        let Some(status) = status.or_else(|| self.child.try_wait().expect("a child")) else {
            panic!("{} does not end; its screen:\n{}", self.what, self.text())
        };
        while self.take(Duration::from_millis(100)).is_ok() {}
        status
    }

    /// Closes the window: the command's terminal hangs up.
    pub fn hang_up(&mut self) {
        self.output.stop();
        drop(self.master.take());
    }

    /// What a shell would find wrong now: private modes still set, a cursor still hidden, echo or
    /// line mode still off. Empty when the terminal was given back as it was.
    pub fn left_behind(&self) -> Vec<String> {
        let mut wrong: Vec<String> = private_modes(&self.bytes)
            .into_iter()
            .filter(|(mode, on)| *on != matches!(mode, 7 | 25))
            // Autowrap and the cursor are on by default, all else is off.
            .map(|(mode, on)| format!("mode {mode} is {}", if on { "set" } else { "reset" }))
            .collect();
        if let Some(master) = &self.master {
            match tcgetattr(master) {
                Ok(now) => {
                    let flags = LocalFlags::ECHO | LocalFlags::ICANON | LocalFlags::ISIG;
                    if now.local_flags & flags != self.initial.local_flags & flags {
                        wrong.push("echo, line mode or signals are not as before".into());
                    }
                }
                Err(e) => wrong.push(format!("tcgetattr: {e}")),
            }
        }
        if !keyboard_protocol_popped(&self.bytes) {
            wrong.push("a keyboard protocol was pushed and not popped".into());
        }
        wrong
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        self.output.stop();
    }
}

/// Both sides of a new terminal. No child inherits the master, else closing it here would hang
/// nothing up.
fn open_pair(size: Size) -> (OwnedFd, OwnedFd) {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = posix_openpt(flags).expect("a pty");
    grantpt(&master).expect("its owner");
    unlockpt(&master).expect("its lock");
    let name = ptsname_r(&master).expect("its name");
    let slave = open(name.as_str(), flags, Mode::empty()).expect("its other side");
    // SAFETY: the descriptor is a terminal's and the argument a whole `winsize`.
    unsafe { set_window_size(master.as_raw_fd(), &winsize(size)) }.expect("TIOCSWINSZ");
    (OwnedFd::from(master), slave)
}

fn winsize(size: Size) -> Winsize {
    Winsize {
        ws_row: size.rows,
        ws_col: size.cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// The last word on every private mode (`CSI ? n h` and `CSI ? n l`) in some output.
fn private_modes(bytes: &[u8]) -> BTreeMap<u32, bool> {
    let mut modes = BTreeMap::new();
    for (at, _) in bytes.windows(3).enumerate().filter(|(_, w)| w == b"\x1b[?") {
        let rest = &bytes[at + 3..];
        let end = rest
            .iter()
            .position(|b| !b.is_ascii_digit() && *b != b';')
            .unwrap_or(rest.len());
        let on = match rest.get(end) {
            Some(b'h') => true,
            Some(b'l') => false,
            _ => continue,
        };
        for number in rest[..end].split(|b| *b == b';') {
            let text = std::str::from_utf8(number).unwrap_or_default();
            if let Ok(number) = text.parse() {
                modes.insert(number, on);
            }
        }
    }
    modes
}

/// Whether every kitty keyboard push (`CSI > n u`) was followed by a pop (`CSI < n u`).
fn keyboard_protocol_popped(bytes: &[u8]) -> bool {
    let count = |intro: &[u8]| {
        bytes
            .windows(intro.len())
            .enumerate()
            .filter(|(at, w)| {
                *w == intro
                    && bytes[at + intro.len()..]
                        .iter()
                        .find(|b| !b.is_ascii_digit())
                        .is_some_and(|b| *b == b'u')
            })
            .count()
    };
    count(b"\x1b[>") <= count(b"\x1b[<")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Terminal {
        let mut command = Command::new("bash");
        command.args(["--norc", "-c", script]);
        Terminal::open(command, 24, 80)
    }

    #[test]
    fn shows_types_and_ends() {
        let mut terminal = shell("read x; echo got $x; stty size");
        terminal.send("word\r");
        terminal.wait_text("got word");
        terminal.wait_text("24 80");
        assert!(terminal.wait_exit().success());
        assert_eq!(terminal.left_behind(), Vec::<String>::new());
    }

    #[test]
    fn notices_what_a_program_left_behind() {
        let mut terminal = shell("printf '\\033[?1049h\\033[?25l\\033[>1u'; stty -echo");
        terminal.wait_exit();
        assert_eq!(
            terminal.left_behind().len(),
            4,
            "{:?}",
            terminal.left_behind()
        );
        let mut clean = shell("printf '\\033[?1000;1006h\\033[?1006;1000l\\033[?25l\\033[?25h'");
        clean.wait_exit();
        assert_eq!(clean.left_behind(), Vec::<String>::new());
    }
}
