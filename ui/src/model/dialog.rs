//! Pages and lines that lie over the panes: help, consent, leaving, a line of text. Owns when
//! consent may be given: only to what was shown to its end, and never by keys typed ahead.

use std::time::Duration;

use super::ask::AskPage;
use super::rules::RulesPage;
use pvisor::LayerPath;
use pvisor::commit::Outcome;
use pvisor::layer::Digest;
use pvisor::protocol::{Request, Target};

/// Keys must rest this long before consent is heard.
pub const IDLE: Duration = Duration::from_millis(400);

/// A decision that waits for a reason or for consent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What is decided on, each with the digest that was on the screen.
    pub targets: Vec<(LayerPath, Target, Digest)>,
    /// The decisions that were on the screen, see [`Request::Decide`].
    pub seen: u64,
}

/// What a line of text is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextFor {
    /// The reason of a rejection.
    Reason(Choice),
    /// An action by name.
    Command,
    /// A search.
    Search,
}

/// A line of text being typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextLine {
    /// What for.
    pub purpose: TextFor,
    /// What was typed.
    pub text: String,
}

/// What consent is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// Writing what is approved to the host.
    Commit {
        /// Merged where the host has changed a file as well.
        merge: bool,
    },
    /// Putting back what this commit wrote.
    UndoCommit(u32),
    /// Taking changes back in the agent's view.
    Revert(Vec<Target>),
    /// Settling a conflict in the agent's view.
    Resolve(LayerPath),
    /// Throwing the staged side away.
    Discard,
    /// Approving many changes at once.
    Approve(Choice),
}

/// What can be made of a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Choices {
    /// A clean merge.
    pub merge: bool,
    /// One side's.
    pub sides: bool,
    /// Both between markers.
    pub markers: bool,
    /// What a person makes of both.
    pub edit: bool,
}

/// Weight of a line on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// A heading.
    Head,
    /// An ordinary line.
    Plain,
    /// Something to look at twice.
    Warn,
    /// What stands in the way.
    Bad,
}

/// A line of a page: exact bytes, shown through [`pvisor::text`] only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageLine {
    /// Weight.
    pub tone: Tone,
    /// What it says.
    pub text: Vec<u8>,
}

impl PageLine {
    /// A line.
    pub fn new(tone: Tone, text: impl Into<Vec<u8>>) -> Self {
        Self {
            tone,
            text: text.into(),
        }
    }
}

/// Whether the server found anything in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// It needs no check.
    Unneeded,
    /// The answer is on its way.
    Waiting,
    /// This is the answer.
    Done(Outcome),
    /// It could not be checked, one sentence.
    Failed(String),
}

/// A page that asks for consent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirm {
    /// To what.
    pub subject: Subject,
    /// Tells this page's check from an older one's.
    pub number: u64,
    /// Names exactly what is consented to.
    pub hash: Digest,
    /// What it says.
    pub lines: Vec<PageLine>,
    /// Whether anything stands in the way.
    pub check: Check,
    /// A commit is refused for files that would merge cleanly.
    pub can_merge: bool,
    /// First line on the screen.
    pub top: usize,
    /// When the page was first drawn as it stands.
    pub drawn: Option<Duration>,
    /// The farthest line that was on the screen.
    pub seen: usize,
}

impl Confirm {
    /// A page that is not drawn yet.
    pub fn new(subject: Subject, number: u64, hash: Digest, lines: Vec<PageLine>) -> Self {
        let check = match subject {
            Subject::Commit { .. } => Check::Waiting,
            _ => Check::Unneeded,
        };
        Self {
            subject,
            number,
            hash,
            lines,
            check,
            can_merge: false,
            top: 0,
            drawn: None,
            seen: 0,
        }
    }

    /// Whether there is something to consent to and nothing in the way.
    pub fn possible(&self) -> bool {
        matches!(
            self.check,
            Check::Unneeded | Check::Done(Outcome::Planned { .. })
        )
    }

    /// Whether the end was on the screen.
    pub fn shown_to_end(&self) -> bool {
        self.drawn.is_some() && self.seen >= self.lines.len()
    }

    /// From when on consent is heard, if no further key comes.
    pub fn armed_at(&self, last_key: Duration) -> Option<Duration> {
        let drawn = self
            .drawn
            .filter(|_| self.possible() && self.shown_to_end())?;
        Some(drawn.max(last_key) + IDLE)
    }

    /// The page says something else now: it has to be shown again before consent is heard.
    pub fn replace(&mut self, hash: Digest, lines: Vec<PageLine>) {
        self.hash = hash;
        self.lines = lines;
        self.drawn = None;
        self.seen = 0;
        self.top = 0;
    }

    /// Notes that the lines from `top` on, `rows` of them, were on the screen.
    pub fn note_drawn(&mut self, rows: usize, now: Duration) {
        // The wait begins when the end comes into sight.
        if !self.shown_to_end() {
            self.drawn = Some(now);
        }
        self.seen = self.seen.max(self.top + rows);
    }
}

/// What lies over the panes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dialog {
    /// The keys.
    Help {
        /// First line on the screen.
        top: usize,
    },
    /// Consent is asked for.
    Confirm(Box<Confirm>),
    /// How to leave.
    Quit,
    /// A question of a rule.
    Ask(AskPage),
    /// The page of rules.
    Rules(RulesPage),
    /// A line of text.
    Text(TextLine),
}

/// One thing a person did, and how to take it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What it was, for the notice.
    pub label: String,
    /// Does it (again).
    pub forward: Vec<Request>,
    /// Takes it back.
    pub inverse: Vec<Request>,
}

/// What was done and what was taken back, newest last.
#[derive(Debug, Clone, Default)]
pub struct History {
    done: Vec<Step>,
    undone: Vec<Step>,
}

impl History {
    /// Steps kept.
    const KEEP: usize = 500;

    /// Notes something new; what was taken back can no longer be made again.
    pub fn push(&mut self, step: Step) {
        self.undone.clear();
        if self.done.len() == Self::KEEP {
            self.done.remove(0);
        }
        self.done.push(step);
    }

    /// Whether there is nothing to take back.
    pub fn is_at_start(&self) -> bool {
        self.done.is_empty()
    }

    /// The last step about this change was refused: there is nothing to take back.
    pub fn refused(&mut self, path: &LayerPath) {
        let is_about = |request: &Request| match request {
            Request::Decide { targets, .. } => targets.iter().any(|target| match target {
                Target::Path(key) | Target::Items(key, _) => key == path,
                Target::All => false,
            }),
            _ => false,
        };
        let at = self
            .done
            .iter()
            .rposition(|s| s.forward.iter().any(is_about));
        if let Some(at) = at {
            self.done.remove(at);
        }
    }

    /// Nothing of before can be taken back or made again: a commit has come.
    pub fn clear(&mut self) {
        self.done.clear();
        self.undone.clear();
    }

    /// The last step, to be taken back.
    pub fn undo(&mut self) -> Option<&Step> {
        let step = self.done.pop()?;
        self.undone.push(step);
        self.undone.last()
    }

    /// The last step taken back, to be made again.
    pub fn redo(&mut self) -> Option<&Step> {
        let step = self.undone.pop()?;
        self.done.push(step);
        self.done.last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(lines: usize) -> Confirm {
        Confirm::new(
            Subject::Discard,
            1,
            Digest::of(b""),
            vec![PageLine::new(Tone::Plain, "x"); lines],
        )
    }

    #[test]
    fn consent_waits_for_the_end_and_for_rest() {
        let ms = Duration::from_millis;
        let mut page = page(30);
        assert_eq!(page.armed_at(ms(0)), None);
        page.note_drawn(20, ms(10));
        assert_eq!(page.armed_at(ms(0)), None, "ten lines were not shown");
        page.top = 10;
        page.note_drawn(20, ms(1000));
        assert_eq!(page.armed_at(ms(900)), Some(ms(1400)));
        page.note_drawn(20, ms(2000));
        assert_eq!(
            page.armed_at(ms(900)),
            Some(ms(1400)),
            "drawing again is no news"
        );
        assert_eq!(
            page.armed_at(ms(1300)),
            Some(ms(1700)),
            "a key starts the wait anew"
        );
        page.replace(Digest::of(b"other"), vec![PageLine::new(Tone::Plain, "y")]);
        assert_eq!(page.armed_at(ms(0)), None, "the new text was not shown");
    }
}
