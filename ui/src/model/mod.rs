//! The model: what belongs to one person's screen and is never sent: focus, cursors, scroll, open
//! pages, loaded diffs, the agent's terminal as it looks here. Owns no fact of the session and
//! does no I/O; changed by [`crate::update`] only.

pub mod ask;
pub mod dialog;
pub mod diff;
pub mod document;
pub mod layout;
pub mod list;
pub mod marks;
pub mod rules;
pub mod verdicts;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crossterm::event::KeyEvent;
use pvisor::emulator::Emulator;
use pvisor::layer::Timestamp;
use pvisor::policy::Observations;
use pvisor::protocol::{Role, Welcome};
use pvisor::session::state::RunState;
#[cfg(doc)]
use pvisor::session::state::SessionState;

use crate::action::Context;
use crate::keymap::Keymap;
use dialog::{Dialog, History};
use diff::DiffPane;
use layout::Layout;
use list::List;

/// A pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pane {
    /// The change list.
    Files,
    /// The diff.
    Diff,
    /// The agent's terminal.
    Agent,
    /// The log.
    Log,
}

impl Pane {
    /// All of them, in the order of their numbers.
    pub const ALL: [Pane; 4] = [Pane::Files, Pane::Diff, Pane::Agent, Pane::Log];

    /// Its name on the screen.
    pub fn title(self) -> &'static str {
        match self {
            Pane::Files => "files",
            Pane::Diff => "diff",
            Pane::Agent => "agent",
            Pane::Log => "log",
        }
    }
}

/// Weight of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Something was done.
    Info,
    /// Something was not done.
    Warning,
    /// Something went wrong.
    Error,
}

/// A word to the person, sanitised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Weight.
    pub severity: Severity,
    /// Sentence.
    pub text: String,
}

/// The agent's terminal as this screen has it.
pub struct Agent {
    /// What its bytes have painted. Answers to its queries are the server's business.
    pub emulator: Emulator,
    /// The pane was left by its key just now: the same key again goes to the agent.
    pub just_left: bool,
}

/// A search that is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// What is looked for, in visible text.
    pub text: String,
}

/// Everything that belongs to this screen alone.
pub struct Model {
    /// Time since the screen was opened; set before every update.
    pub now: Duration,
    /// The time of day when the screen was opened.
    pub opened: Timestamp,
    /// The keymap in force (for hints).
    pub keymap: Keymap,
    /// What this person may do.
    pub role: Role,
    /// The pane with the focus.
    pub focus: Pane,
    /// The pane that had it before the agent's.
    pub before_agent: Pane,
    /// The focused pane has the whole screen.
    pub zoom: bool,
    /// The change list.
    pub list: List,
    /// The list does not know the last updates yet.
    pub stale: bool,
    /// The diff.
    pub diff: DiffPane,
    /// The agent's terminal.
    pub agent: Agent,
    /// Lines the log is scrolled up from its end.
    pub log_up: usize,
    /// Our own notices, oldest first.
    pub notices: VecDeque<Notice>,
    /// The notice in the footer.
    pub notice: Option<Notice>,
    /// What lies over the panes.
    pub dialog: Option<Dialog>,
    /// The search that is on.
    pub search: Option<Search>,
    /// Decisions that can be taken back.
    pub history: History,
    /// First of two keys.
    pub pending: Option<KeyEvent>,
    /// The decisions that the last frame showed, by [`SessionState::said`].
    pub said: u64,
    /// When the last key or paste came.
    pub last_key: Duration,
    /// Mouse reporting is on.
    pub mouse: bool,
    /// The last frame.
    pub layout: Layout,
    /// Number for the next page that asks.
    pub pages: u64,
    /// A commit, undo or revert is under way.
    pub busy: Option<&'static str>,
    /// The connection to the server is gone.
    pub lost: bool,
    /// Questions that wait: the screen counts their time down.
    pub waiting: bool,
    /// Questions put off by this person.
    pub later: BTreeSet<u64>,
    /// Questions this person has answered; the server has not said so yet.
    pub answering: BTreeSet<u64>,
    /// When the next question's page opens: once the person stops typing.
    pub opens_at: Option<Duration>,
    /// The question whose page does not open because the agent's terminal has the keys.
    pub held_back: Option<u64>,
    /// What was counted, as the server last told.
    pub observed: Option<Observations>,
}

/// Own notices kept.
const NOTICES: usize = 100;

impl Model {
    /// A fresh screen on a session.
    pub fn new(welcome: &Welcome, keymap: Keymap, scrollback: usize, mouse: bool) -> Self {
        let mut emulator = Emulator::new(welcome.size, scrollback);
        // The server answers the agent's queries.
        drop(emulator.feed(&welcome.screen));
        // Whoever starts or joins a running command wants to talk to it first.
        let running = welcome.state.run == Some(RunState::Running);
        Self {
            now: Duration::ZERO,
            opened: Timestamp::default(),
            keymap,
            role: welcome.role,
            focus: if running { Pane::Agent } else { Pane::Files },
            before_agent: Pane::Files,
            zoom: false,
            list: List::default(),
            stale: true,
            diff: DiffPane::new(),
            agent: Agent {
                emulator,
                just_left: false,
            },
            log_up: 0,
            notices: VecDeque::new(),
            notice: None,
            dialog: None,
            search: None,
            history: History::default(),
            pending: None,
            said: 0,
            last_key: Duration::ZERO,
            mouse,
            layout: Layout::default(),
            pages: 0,
            busy: None,
            lost: false,
            waiting: false,
            later: BTreeSet::new(),
            answering: BTreeSet::new(),
            opens_at: None,
            held_back: None,
            observed: None,
        }
    }

    /// Where keys have their meaning now.
    pub fn context(&self) -> Context {
        match &self.dialog {
            Some(Dialog::Help { .. }) => Context::Help,
            Some(Dialog::Confirm(_)) => Context::Confirm,
            Some(Dialog::Quit) => Context::Quit,
            Some(Dialog::Ask(_)) => Context::Ask,
            Some(Dialog::Rules(_)) => Context::Rules,
            Some(Dialog::Text(_)) => Context::Text,
            None => match self.focus {
                Pane::Files => Context::Files,
                Pane::Diff => Context::Diff,
                Pane::Agent => Context::Agent,
                Pane::Log => Context::Log,
            },
        }
    }

    /// Says something. `text` must be sanitised.
    pub fn say(&mut self, severity: Severity, text: impl Into<String>) {
        let notice = Notice {
            severity,
            text: text.into(),
        };
        if self.notices.len() == NOTICES {
            self.notices.pop_front();
        }
        self.notices.push_back(notice.clone());
        self.notice = Some(notice);
    }

    /// Answers a key that did nothing: shown until the next one, not kept. `text` must be sanitised.
    pub fn hint(&mut self, text: impl Into<String>) {
        self.notice = Some(Notice {
            severity: Severity::Info,
            text: text.into(),
        });
    }

    /// When the screen changes by itself next, if it does: consent becomes possible, a question's
    /// page opens, its time is counted down.
    pub fn wakes_at(&self) -> Option<Duration> {
        let armed = match &self.dialog {
            Some(Dialog::Confirm(page)) => page.armed_at(self.last_key),
            Some(Dialog::Ask(page)) => page.armed_at(page.allow, self.last_key),
            _ => None,
        };
        let second = self
            .waiting
            .then(|| Duration::from_secs(self.now.as_secs() + 1));
        [armed, self.opens_at, second]
            .into_iter()
            .flatten()
            .filter(|t| *t > self.now)
            .min()
    }

    /// The time of day, as of [`Model::now`].
    pub fn wall(&self) -> Timestamp {
        Timestamp {
            sec: self.opened.sec.saturating_add(self.now.as_secs() as i64),
            nsec: self.opened.nsec,
        }
    }

    /// Takes in what the last frame showed.
    pub fn note_drawn(&mut self, layout: Layout) {
        if let Some(drawn) = &layout.page
            && let Some(Dialog::Confirm(page)) = &mut self.dialog
        {
            page.top = drawn.start;
            page.note_drawn(drawn.len(), self.now);
        }
        if let Some(Dialog::Ask(page)) = &mut self.dialog {
            match &layout.page {
                Some(drawn) => {
                    page.top = drawn.start;
                    page.note_drawn(drawn.len(), layout.page_len, self.now);
                }
                // Too small for more than a denial.
                None if layout.too_small => {
                    page.drawn.get_or_insert(self.now);
                }
                None => {}
            }
        }
        if let (Some(Dialog::Rules(page)), Some(drawn)) = (&mut self.dialog, &layout.page) {
            page.top = drawn.start;
            page.cursor = page.cursor.min(layout.page_len.saturating_sub(1));
        }
        if let (Some(Dialog::Help { top }), Some(page)) = (&mut self.dialog, &layout.page) {
            *top = page.start;
        }
        if !layout.list_rows.is_empty() {
            self.list.top = layout.list_rows.start;
        }
        if let Some(first) = layout.diff_lines.first() {
            self.diff.top = *first;
            let rows = layout.diff_rows.clone();
            if layout.diff_key.is_some() && layout.diff_key == self.diff.key {
                self.diff.note_drawn(rows);
            }
        }
        self.layout = layout;
    }
}
