//! The application: one loop over terminal input, the server's messages, replies and signals.
//! Owns the order of things: inputs become actions, actions change the model and leave effects,
//! frames are drawn at most 60 times a second and only when something changed.

mod link;
mod sources;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use crossbeam_channel::{Receiver, at, never, select};
use crossterm::event::MouseEventKind;
use pvisor::LayerPath;
use pvisor::protocol::{MarkedFile, Request, Role, ServerMessage, Welcome};
use pvisor::sandbox::ExitStatus;
use pvisor::sandbox::spec::TerminalSize;
use pvisor::session::client::Client;
use pvisor::session::state::{RunState, SessionState};

use crate::effect::{Effect, Leave};
use crate::input::Input;
use crate::keymap::Keymap;
use crate::model::Model;
use crate::terminal::{self, Screen};
use crate::theme::{self, Depth, Theme};
use crate::{update, view};
use link::{Back, Link};
use sources::Signal;

/// Shortest time between two frames.
const FRAME: Duration = Duration::from_millis(16);
/// The agent's terminal follows its pane once that has kept its size this long.
const RESIZE_AFTER: Duration = Duration::from_millis(80);
/// An agent's update is held back until it is complete, but no longer than this.
const HOLD_BACK: Duration = Duration::from_millis(150);
/// Messages are taken in for this long before keys are looked at again.
const BATCH: Duration = Duration::from_millis(4);

/// Lets a person edit the content of a file of this name: what they left, or `None` when they
/// changed nothing.
pub type Editor = fn(&[u8], &Path) -> io::Result<Option<Vec<u8>>>;

/// How the screen is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Theme; absent or `auto`: the one that fits the terminal's background, if that is known.
    pub theme: Option<String>,
    /// Directory with a person's own themes.
    pub themes: Option<PathBuf>,
    /// Colours; found out from the environment when absent.
    pub depth: Option<Depth>,
    /// Keys in place of the defaults, by action id; no keys unbinds.
    pub keys: BTreeMap<String, Vec<String>>,
    /// Lines of history kept of the agent's terminal.
    pub scrollback: usize,
    /// Whether the mouse is used.
    pub mouse: bool,
    /// Edits text while the screen is away.
    pub editor: Option<Editor>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            theme: None,
            themes: None,
            depth: None,
            keys: BTreeMap::new(),
            scrollback: 10_000,
            mouse: true,
            editor: None,
        }
    }
}

/// How the screen was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The session goes on with its command.
    Detached,
    /// The command had ended before.
    Ended {
        /// How, if the server knows.
        status: Option<ExitStatus>,
    },
    /// The staged side was thrown away.
    Discarded,
    /// The connection to the server was lost.
    Lost,
}

/// Shows a session until the person leaves. The terminal is given back before this returns.
pub fn run(client: Client, welcome: Welcome, options: Options) -> anyhow::Result<Exit> {
    let keymap = Keymap::new(&options.keys).context("the key bindings of the configuration")?;
    let depth = options
        .depth
        .unwrap_or_else(|| Depth::detect(|name| std::env::var(name).ok()));
    let name = match options.theme.as_deref() {
        None | Some("auto") => theme::auto(std::env::var("COLORFGBG").ok().as_deref()),
        Some(name) => name,
    };
    let theme = Theme::load(name, options.themes.as_deref(), depth)?;
    let signals = sources::signals().context("watching signals")?;
    let mut model = Model::new(&welcome, keymap.clone(), options.scrollback, options.mouse);
    model.opened = pvisor::layer::Timestamp::now();
    let messages = client.messages().clone();
    let link = Link::start(client).context("starting threads")?;
    let screen = Screen::enter(options.mouse).context("setting the terminal up")?;
    let mut app = App {
        state: welcome.state,
        model,
        keymap,
        theme,
        screen,
        link,
        started: Instant::now(),
        dirty: Some(Dirty::Urgent),
        dirty_since: Instant::now(),
        last_frame: None,
        size: SizeFollower::default(),
        exit: None,
        editing: None,
        editor: options.editor,
    };
    let exit = loop {
        let input = sources::input().context("starting threads")?;
        let ended = app.run(&input.received, &messages, &signals);
        // What is typed while the screen is away is not for us.
        input.stop();
        match (app.editing.take(), ended) {
            (Some((key, marked)), Ok(_)) => {
                if let Err(error) = app.edit(key, &marked) {
                    break Err(error);
                }
            }
            (_, ended) => break ended,
        }
    };
    app.screen.leave();
    app.link.finish();
    anyhow::ensure!(
        !terminal::panicked(),
        "a part of the screen has failed; the session goes on"
    );
    exit
}

/// Why a frame is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Dirty {
    /// The agent wrote; it may be in the middle of an update.
    Output,
    /// Anything else.
    Urgent,
}

struct App {
    state: SessionState,
    model: Model,
    keymap: Keymap,
    theme: Theme,
    screen: Screen,
    link: Link,
    started: Instant,
    dirty: Option<Dirty>,
    dirty_since: Instant,
    last_frame: Option<Instant>,
    size: SizeFollower,
    exit: Option<Exit>,
    /// What the person is to edit as soon as nobody else reads their keys.
    editing: Option<(LayerPath, Box<MarkedFile>)>,
    editor: Option<Editor>,
}

/// The size the agent's terminal was given, and the one its pane has.
#[derive(Debug, Default)]
struct SizeFollower {
    sent: Option<TerminalSize>,
    wanted: Option<(TerminalSize, Instant)>,
}

impl App {
    fn run(
        &mut self,
        input: &Receiver<Input>,
        messages: &Receiver<ServerMessage>,
        signals: &Receiver<Signal>,
    ) -> anyhow::Result<Exit> {
        let back = self.link.back().clone();
        loop {
            if let Some(exit) = self.exit {
                return Ok(exit);
            }
            if self.editing.is_some() {
                return Ok(self.left());
            }
            let now = Instant::now();
            if self.frame_due().is_some_and(|t| t <= now) && self.draw().is_err() {
                // The terminal is gone; the session is not.
                return Ok(self.left());
            }
            self.follow_size(now);
            if self.exit.is_some() {
                continue;
            }
            // Keys first: a flood of output never makes them wait.
            if let Ok(event) = input.try_recv() {
                self.input(&event)?;
                continue;
            }
            let wake = self.next_wake();
            let timer = wake.map_or_else(never, at);
            select! {
                recv(input) -> event => match event {
                    Ok(event) => self.input(&event)?,
                    Err(_) => return Ok(self.left()),
                },
                recv(messages) -> message => match message {
                    Ok(message) => self.messages(message, messages),
                    Err(_) => return Ok(self.lost()),
                },
                recv(back) -> answer => match answer {
                    Ok(answer) => self.back(answer)?,
                    Err(_) => return Ok(self.lost()),
                },
                recv(signals) -> signal => match signal {
                    Ok(Signal::End) | Err(_) => return Ok(self.left()),
                    Ok(Signal::Stop) => self.suspend()?,
                    Ok(Signal::Continued) => self.repaint()?,
                },
                recv(timer) -> _ => {
                    if self.model.wakes_at().is_some_and(|t| t <= self.started.elapsed()) {
                        self.soil(Dirty::Urgent);
                    }
                }
            }
        }
    }

    /// Something on the screen may look different now.
    fn soil(&mut self, why: Dirty) {
        if self.dirty.is_none() {
            self.dirty_since = Instant::now();
        }
        self.dirty = self.dirty.max(Some(why));
    }

    fn frame_due(&self) -> Option<Instant> {
        let why = self.dirty?;
        let earliest = self.last_frame.map_or(self.dirty_since, |t| t + FRAME);
        if why == Dirty::Output && self.model.agent.emulator.synchronized() {
            return Some(earliest.max(self.dirty_since + HOLD_BACK));
        }
        Some(earliest)
    }

    fn next_wake(&self) -> Option<Instant> {
        let consent = self
            .model
            .wakes_at()
            .filter(|_| self.dirty.is_none())
            .map(|t| self.started + t);
        let size = self.size.wanted.map(|(_, t)| t);
        [self.frame_due(), consent, size]
            .into_iter()
            .flatten()
            .min()
    }

    fn draw(&mut self) -> io::Result<()> {
        self.model.now = self.started.elapsed();
        let effects = update::settle(&mut self.model, &self.state);
        let mut layout = None;
        let (state, model, theme) = (&self.state, &self.model, &self.theme);
        self.screen
            .draw(|frame| layout = Some(view::draw(frame, state, model, theme)))?;
        let layout = layout.unwrap_or_default();
        let cursor = layout
            .agent_cursor
            .then(|| self.model.agent.emulator.cursor())
            .flatten();
        self.screen.shape_cursor(cursor)?;
        self.size.want(layout.agent_size);
        self.model.note_drawn(layout);
        self.dirty = None;
        self.last_frame = Some(Instant::now());
        // The screen says so when consent becomes possible.
        self.carry_out(effects)
    }

    /// Tells the server of the pane's size once it has settled.
    fn follow_size(&mut self, now: Instant) {
        if let Some((size, due)) = self.size.wanted
            && due <= now
        {
            self.size.wanted = None;
            self.size.sent = Some(size);
            if self.model.role == Role::Driver {
                self.link.send(Request::Resize(size));
            }
        }
    }

    fn input(&mut self, event: &Input) -> io::Result<()> {
        self.model.now = self.started.elapsed();
        // The mouse passing over changes nothing here.
        if !matches!(event, Input::Mouse(m) if m.kind == MouseEventKind::Moved) {
            self.soil(Dirty::Urgent);
        }
        if matches!(event, Input::Resize(_)) {
            self.screen.forget();
        }
        let Some(action) = update::interpret(&mut self.model, &self.keymap, event) else {
            return Ok(());
        };
        let effects = update::update(&mut self.model, &self.state, action);
        self.carry_out(effects)
    }

    fn messages(&mut self, first: ServerMessage, more: &Receiver<ServerMessage>) {
        self.model.now = self.started.elapsed();
        let until = Instant::now() + BATCH;
        let mut next = Some(first);
        while let Some(message) = next {
            let why = match message {
                ServerMessage::Output(..) => Dirty::Output,
                _ => Dirty::Urgent,
            };
            if update::message(&mut self.model, &mut self.state, message) {
                self.soil(why);
            }
            next = if Instant::now() < until {
                more.try_recv().ok()
            } else {
                None
            };
        }
    }

    fn back(&mut self, answer: Back) -> io::Result<()> {
        self.model.now = self.started.elapsed();
        self.soil(Dirty::Urgent);
        match answer {
            Back::Reply(purpose, result) => {
                let effects = update::replied(&mut self.model, &purpose, result);
                self.carry_out(effects)
            }
            Back::Unsent(purpose) => {
                update::failed_to_send(&mut self.model, &purpose);
                Ok(())
            }
            Back::Loaded(key, digest, result) => {
                update::loaded(&mut self.model, &key, digest, result);
                Ok(())
            }
            Back::Since(document) => {
                update::since_ready(&mut self.model, document);
                Ok(())
            }
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>) -> io::Result<()> {
        for effect in effects {
            match effect {
                Effect::Send(request) => self.link.send(request),
                Effect::Ask(purpose, request) => self.link.ask(purpose, request),
                Effect::Load(change) => self.link.load(change),
                Effect::Since {
                    key,
                    digest,
                    old,
                    new,
                } => self.link.since(key, digest, old, new),
                Effect::Edit(key, marked) => self.editing = Some((key, marked)),
                Effect::CaptureMouse(on) => self.screen.capture_mouse(on)?,
                Effect::Suspend => self.suspend()?,
                Effect::Leave(Leave::Discarded) => self.exit = Some(Exit::Discarded),
                Effect::Leave(Leave::Detach) => {
                    // Whatever a hang-up would do: this is none.
                    self.link.send(Request::Detach);
                    self.exit = Some(self.left());
                }
            }
        }
        Ok(())
    }

    /// Stops this process as the shell expects it; the session goes on.
    fn suspend(&mut self) -> io::Result<()> {
        self.screen.leave();
        sources::stop_self()?;
        self.repaint()
    }

    /// Gives the terminal to the person's editor for a while.
    fn edit(&mut self, key: LayerPath, marked: &MarkedFile) -> anyhow::Result<()> {
        let result = match self.editor {
            Some(edit) => {
                self.screen.leave();
                let result = edit(&marked.bytes, key.path.as_path());
                self.repaint()?;
                result.map_err(|error| error.to_string())
            }
            None => Err("There is no editor here.".to_owned()),
        };
        self.model.now = self.started.elapsed();
        let effects = update::edited(&mut self.model, key, marked, result);
        self.carry_out(effects)?;
        Ok(())
    }

    fn repaint(&mut self) -> io::Result<()> {
        self.screen.enter_again()?;
        self.last_frame = None;
        self.soil(Dirty::Urgent);
        Ok(())
    }

    fn left(&self) -> Exit {
        match self.state.run {
            Some(RunState::Running) => Exit::Detached,
            Some(RunState::Discarded) => Exit::Discarded,
            _ => Exit::Ended {
                status: self.state.exit,
            },
        }
    }

    /// The server closed the connection: after a discard it has nothing left to serve.
    fn lost(&self) -> Exit {
        if self.state.run == Some(RunState::Discarded) {
            Exit::Discarded
        } else {
            Exit::Lost
        }
    }
}

impl SizeFollower {
    fn want(&mut self, size: Option<TerminalSize>) {
        let Some(size) = size else {
            return;
        };
        if self.sent == Some(size) {
            self.wanted = None;
        } else if self.wanted.is_none_or(|(w, _)| w != size) {
            // The first size is right at once; later ones may come in a row.
            let wait = if self.sent.is_none() {
                Duration::ZERO
            } else {
                RESIZE_AFTER
            };
            self.wanted = Some((size, Instant::now() + wait));
        }
    }
}
