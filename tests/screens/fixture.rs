//! Sessions made by hand, and a screen on one of them without a terminal: keys in, pictures and
//! requests out.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use pvisor::change::{Change, ChangeKind, Class, Conflict, Risk};
use pvisor::commit::Outcome;
use pvisor::diff::{Item, diff, items};
use pvisor::layer::{Digest, Driver, FileType, Layer, Node, Timestamp};
use pvisor::protocol::{Contents, Reply, Request, Role, Welcome};
use pvisor::review::FileDecision;
use pvisor::sandbox::boundary::{Boundary, LayerBoundary};
use pvisor::sandbox::spec::TerminalSize;
use pvisor::sandbox::{ExitStatus, Mode};
use pvisor::session::state::{RunState, SessionInfo, SessionState, Update};
use pvisor::{LayerPath, RelPath};
use pvisor_tui::effect::{Effect, Leave, Purpose};
use pvisor_tui::input::Input;
use pvisor_tui::keymap::Keymap;
use pvisor_tui::model::Model;
use pvisor_tui::model::document::Document;
use pvisor_tui::theme::{Depth, Theme};
use pvisor_tui::{update, view};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;

/// A session made by hand.
pub struct Session {
    pub state: SessionState,
    pub contents: HashMap<LayerPath, Contents>,
}

pub fn workspace(path: &[u8]) -> LayerPath {
    LayerPath::new("workspace", RelPath::new(path).expect("a valid path"))
}

pub fn file(bytes: &[u8], mode: u32) -> Node {
    node(
        FileType::File,
        mode,
        bytes.len() as u64,
        Some(Digest::of(bytes)),
        None,
    )
}

fn node(
    file_type: FileType,
    mode: u32,
    size: u64,
    digest: Option<Digest>,
    target: Option<&[u8]>,
) -> Node {
    Node {
        file_type,
        mode,
        uid: 1000,
        gid: 1000,
        size,
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        dev: 1,
        ino: 1,
        nlink: 1,
        rdev: 0,
        target: target.map(<[u8]>::to_vec),
        xattrs: BTreeMap::new(),
        digest,
    }
}

impl Session {
    /// A running session without changes.
    pub fn new() -> Self {
        let layer = |name: &str, root: &str| Layer {
            name: name.into(),
            root: PathBuf::from(root),
            dir: PathBuf::from("/state").join(name),
            driver: Driver::Overlayfs,
        };
        let boundary = |name: &str| LayerBoundary {
            name: name.into(),
            driver: "overlayfs".into(),
            reason: "the fastest that can honour the policy".into(),
        };
        let state = SessionState {
            info: Some(Box::new(SessionInfo {
                settings: pvisor::config::SessionSettings::default(),
                id: "20261130-131602-x7k2".into(),
                name: "agent-1".into(),
                user: "ann".into(),
                mode: Mode::Staged,
                command: vec!["agent".into(), "--fix".into()],
                dir: "/state".into(),
                workspace: "/home/ann/project".into(),
                layers: vec![
                    layer("workspace", "/home/ann/project"),
                    layer("home", "/home/ann"),
                ],
                started: Timestamp::default(),
            })),
            run: Some(RunState::Running),
            boundary: Boundary {
                mode: "staged".into(),
                layers: vec![boundary("workspace"), boundary("home")],
                network: "host".into(),
                ..Boundary::default()
            },
            ..SessionState::default()
        };
        Self {
            state,
            contents: HashMap::new(),
        }
    }

    /// Adds a change; the last word on its risks is the caller's.
    pub fn change(
        &mut self,
        key: LayerPath,
        kind: ChangeKind,
        sides: (Option<Node>, Option<Node>),
        bytes: (Option<&[u8]>, Option<&[u8]>),
        risks: &[Risk],
    ) -> &mut Change {
        let (before, after) = sides;
        let (old, new) = (bytes.0.unwrap_or_default(), bytes.1.unwrap_or_default());
        let computed = diff(old, new);
        let list: Vec<Item> = items(&kind, before.as_ref(), after.as_ref(), Some(&computed));
        let count = |items: &[Item], side: fn(&Item) -> u32| items.iter().map(side).sum();
        let lines = |bytes: &[u8]| bytes.split_inclusive(|b| *b == b'\n').count() as u32;
        let (added, removed) = match kind {
            ChangeKind::Added => (lines(new), 0),
            ChangeKind::Deleted => (0, lines(old)),
            _ => (count(&list, |i| i.new.len), count(&list, |i| i.old.len)),
        };
        let digest = Digest::of(format!("{key:?}{kind:?}{before:?}{after:?}").as_bytes());
        let change = Change {
            key: key.clone(),
            kind,
            class: Class::Plain,
            before: before.map(Arc::new),
            after: after.map(Arc::new),
            binary: computed.binary,
            added,
            removed,
            digest,
            risks: risks.to_vec(),
            conflict: None,
            merges: None,
            items: list,
        };
        self.contents.insert(
            key.clone(),
            Contents {
                digest,
                before: bytes.0.map(<[u8]>::to_vec),
                after: bytes.1.map(<[u8]>::to_vec),
                too_large: false,
            },
        );
        self.state.changes.insert(key.clone(), Arc::new(change));
        Arc::make_mut(self.state.changes.get_mut(&key).expect("just added"))
    }

    pub fn added(&mut self, path: &[u8], new: &[u8], risks: &[Risk]) -> &mut Change {
        self.change(
            workspace(path),
            ChangeKind::Added,
            (None, Some(file(new, 0o644))),
            (None, Some(new)),
            risks,
        )
    }

    pub fn modified(&mut self, path: &[u8], old: &[u8], new: &[u8], risks: &[Risk]) -> &mut Change {
        self.change(
            workspace(path),
            ChangeKind::Modified,
            (Some(file(old, 0o644)), Some(file(new, 0o644))),
            (Some(old), Some(new)),
            risks,
        )
    }

    pub fn deleted(&mut self, path: &[u8], old: &[u8]) -> &mut Change {
        self.change(
            workspace(path),
            ChangeKind::Deleted,
            (Some(file(old, 0o644)), None),
            (Some(old), None),
            &[Risk::Delete],
        )
    }

    pub fn link(&mut self, path: &[u8], target: &[u8], risks: &[Risk]) -> &mut Change {
        let link = node(
            FileType::Symlink,
            0o777,
            1,
            Some(Digest::of(target)),
            Some(target),
        );
        self.change(
            workspace(path),
            ChangeKind::Added,
            (None, Some(link)),
            (None, Some(target)),
            risks,
        )
    }

    /// A directory (no bytes) or file under another name; `new` is what the file holds by now.
    pub fn renamed(&mut self, from: &[u8], to: &[u8], old: Option<&[u8]>, new: Option<&[u8]>) {
        let side = |bytes: Option<&[u8]>| {
            let dir = || node(FileType::Dir, 0o755, 0, None, None);
            Some(bytes.map_or_else(dir, |bytes| file(bytes, 0o644)))
        };
        let kind = ChangeKind::Renamed {
            from: RelPath::new(from).expect("valid"),
        };
        self.change(workspace(to), kind, (side(old), side(new)), (old, new), &[]);
    }

    /// A session with one of everything.
    pub fn full() -> Self {
        let mut s = Self::new();
        let lines: Vec<String> = (1..=40).map(|i| format!("line {i}")).collect();
        let old = lines.join("\n") + "\n";
        let new = old
            .replace("line 5\n", "line five\n")
            .replace("line 30\n", "line 30\nline 30b\n");
        let mode = s.modified(b"src/main.rs", old.as_bytes(), new.as_bytes(), &[]);
        mode.after = Some(Arc::new(file(new.as_bytes(), 0o755)));
        let computed = diff(old.as_bytes(), new.as_bytes());
        mode.items = items(
            &ChangeKind::Modified,
            mode.before.as_deref(),
            mode.after.as_deref(),
            Some(&computed),
        );
        mode.risks = vec![Risk::Executable, Risk::ModeChange];
        s.modified(b"src/lib.rs", b"a\nb\nc\n", b"a\nB\nc\n", &[]);
        s.added(b"src/deep/er/new.rs", b"fn new() {}\n", &[]);
        s.added(b"README.md", b"# Hello\n\nworld\n", &[]);
        s.deleted(b"gone.txt", b"one\ntwo\n");
        s.change(
            workspace(b"new-name.txt"),
            ChangeKind::Renamed {
                from: RelPath::new(*b"old-name.txt").expect("valid"),
            },
            (Some(file(b"x\n", 0o644)), Some(file(b"x\n", 0o644))),
            (Some(b"x\n"), Some(b"x\n")),
            &[],
        );
        s.link(b"passwd", b"/etc/passwd", &[Risk::OutsideLink]);
        s.added(
            b".git/hooks/pre-commit",
            b"#!/bin/sh\nrm -rf /\n",
            &[Risk::GitHook, Risk::Executable],
        );
        s.modified(b"Cargo.lock", b"v1\n", b"v2\n", &[Risk::Lockfile])
            .conflict = Some(Conflict::HostModified);
        s.added(b"data.bin", b"\0\x01\x02\0", &[Risk::Binary]);
        for i in 0..3 {
            s.added(format!("target/o{i}").as_bytes(), b"o\n", &[])
                .class = Class::Ignored;
        }
        s.added(b".git/objects/aa/bb", b"z", &[]).class = Class::GitObject;
        s.change(
            workspace(b"touched.txt"),
            ChangeKind::Meta,
            (Some(file(b"t", 0o644)), Some(file(b"t", 0o644))),
            (Some(b"t"), Some(b"t")),
            &[],
        );
        s.change(
            LayerPath::new("home", RelPath::new(*b".bashrc").expect("valid")),
            ChangeKind::Modified,
            (Some(file(b"a\n", 0o644)), Some(file(b"b\n", 0o644))),
            (Some(b"a\n"), Some(b"b\n")),
            &[Risk::Dotfile],
        );
        s
    }

    /// The command has ended.
    pub fn ended(mut self, code: u8) -> Self {
        self.state.run = Some(RunState::Exited);
        self.state.exit = Some(ExitStatus::Code(code));
        self
    }
}

/// A screen on a session.
pub struct Screen {
    pub state: SessionState,
    pub model: Model,
    pub contents: HashMap<LayerPath, Contents>,
    keymap: Keymap,
    pub theme: Theme,
    pub size: (u16, u16),
    /// What was asked of the server since the last look.
    pub asked: Vec<Request>,
    /// What a plan's dry run answers; `None` leaves it unanswered.
    pub plan: Option<Outcome>,
    pub left: Option<Leave>,
    pub suspended: usize,
    /// Changes whose merge was given to the person's editor.
    pub edited: Vec<LayerPath>,
    pub clock: Duration,
}

impl Screen {
    pub fn new(session: Session, size: (u16, u16)) -> Self {
        let welcome = Welcome {
            state: session.state.clone(),
            screen: b"$ agent --fix\r\nthinking ...\r\n".to_vec(),
            size: TerminalSize { rows: 10, cols: 60 },
            role: Role::Driver,
        };
        let mut screen = Self {
            state: session.state,
            model: Model::new(&welcome, Keymap::default(), 100, true),
            contents: session.contents,
            keymap: Keymap::default(),
            theme: Theme::load("dark", None, Depth::True).expect("the dark theme"),
            size,
            asked: Vec::new(),
            plan: Some(Outcome::Planned {
                paths: Vec::new(),
                merged: Vec::new(),
            }),
            left: None,
            suspended: 0,
            edited: Vec::new(),
            clock: Duration::ZERO,
        };
        screen.model.focus = pvisor_tui::model::Pane::Files;
        screen.draw();
        screen
    }

    /// Lets time pass, drawing at its end.
    pub fn wait(&mut self, ms: u64) {
        self.clock += Duration::from_millis(ms);
        self.draw();
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Load(change) => {
                    let contents = self.contents.get(&change.key);
                    let result = contents
                        .map(|c| Document::build(&change, c))
                        .ok_or_else(|| "gone".to_owned());
                    update::loaded(&mut self.model, &change.key, change.digest, result);
                }
                Effect::Since {
                    key,
                    digest,
                    old,
                    new,
                } => {
                    update::since_ready(&mut self.model, Document::since(&key, digest, &old, &new));
                }
                Effect::Ask(purpose, request) => {
                    self.asked.push(request);
                    if let (Purpose::Plan(_), Some(plan)) = (&purpose, self.plan.clone()) {
                        let reply = Ok(Reply::Outcome(plan));
                        let more = update::replied(&mut self.model, &purpose, reply);
                        self.carry_out(more);
                    }
                }
                Effect::Send(request) => self.asked.push(request),
                Effect::Leave(how) => self.left = Some(how),
                Effect::Suspend => self.suspended += 1,
                Effect::Edit(key, _) => self.edited.push(key),
                Effect::CaptureMouse(_) => {}
            }
        }
    }

    /// An input, without a frame after it.
    pub fn input(&mut self, input: &Input) {
        self.model.now = self.clock;
        if let Some(action) = update::interpret(&mut self.model, &self.keymap, input) {
            let effects = update::update(&mut self.model, &self.state, action);
            self.carry_out(effects);
        }
    }

    /// A key, without a frame after it: typed ahead.
    pub fn ahead(&mut self, key: &str) {
        self.input(&Input::Key(key_event(key)));
    }

    /// A key and the frame after it, a second later.
    pub fn press(&mut self, key: &str) -> &mut Self {
        self.ahead(key);
        self.clock += Duration::from_millis(1);
        self.draw();
        self
    }

    /// Several keys, each drawn.
    pub fn keys(&mut self, keys: &[&str]) -> &mut Self {
        for key in keys {
            self.press(key);
        }
        self
    }

    pub fn paste(&mut self, text: &str) {
        self.input(&Input::Paste(text.into()));
        self.draw();
    }

    /// A fact from the server.
    pub fn learn(&mut self, fact: Update) {
        self.model.now = self.clock;
        update::message(
            &mut self.model,
            &mut self.state,
            pvisor::protocol::ServerMessage::Update(fact),
        );
    }

    /// A decision made by the server from what was asked.
    pub fn decide(&mut self, key: &LayerPath, decision: FileDecision) {
        self.learn(Update::Decided {
            key: key.clone(),
            decision: Some(decision),
        });
        self.draw();
    }

    /// Requests since the last call.
    pub fn asked(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.asked)
    }

    /// Draws until nothing more is to be loaded.
    pub fn draw(&mut self) -> Buffer {
        let mut buffer = Buffer::default();
        for _ in 0..4 {
            self.model.now = self.clock;
            let effects = update::settle(&mut self.model, &self.state);
            let again = effects.iter().any(|e| !matches!(e, Effect::Send(_)));
            let (width, height) = self.size;
            let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
            let mut layout = None;
            terminal
                .draw(|f| layout = Some(view::draw(f, &self.state, &self.model, &self.theme)))
                .expect("a frame");
            buffer = terminal.backend().buffer().clone();
            self.model.note_drawn(layout.expect("a layout"));
            self.carry_out(effects);
            if !again {
                break;
            }
        }
        buffer
    }

    /// The picture as text.
    pub fn text(&mut self) -> String {
        text_of(&self.draw())
    }

    /// Puts the list's cursor on a change.
    pub fn go_to(&mut self, path: &[u8]) {
        self.model.focus = pvisor_tui::model::Pane::Files;
        let at = self
            .model
            .list
            .rows
            .iter()
            .position(|r| {
                self.model
                    .list
                    .change(r)
                    .is_some_and(|m| m.key.path.as_bytes() == path)
            })
            .expect("a row of that name");
        self.model.list.cursor = at;
        self.draw();
    }
}

pub fn text_of(buffer: &Buffer) -> String {
    use unicode_width::UnicodeWidthStr;
    let mut out = String::new();
    for y in 0..buffer.area.height {
        let mut line = String::new();
        let mut x = 0;
        while x < buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            x += (symbol.width() as u16).max(1);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

pub fn key_event(key: &str) -> KeyEvent {
    let (modifiers, name) = match key.strip_prefix("ctrl-") {
        Some(rest) => (KeyModifiers::CONTROL, rest),
        None => (KeyModifiers::NONE, key),
    };
    let code = match name {
        "space" => KeyCode::Char(' '),
        "enter" => KeyCode::Enter,
        "esc" => KeyCode::Esc,
        "tab" => KeyCode::Tab,
        "backspace" => KeyCode::Backspace,
        "pagedown" => KeyCode::PageDown,
        "f2" => KeyCode::F(2),
        one => KeyCode::Char(one.chars().next().expect("a key")),
    };
    KeyEvent::new(code, modifiers)
}
