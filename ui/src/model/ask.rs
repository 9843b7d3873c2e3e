//! The page that puts a question of a rule to the person. Owns what the answer will be and when it
//! may be given: only once the whole question was on the screen and no key came for a moment.

use std::time::Duration;

use pvisor::layer::Timestamp;
use pvisor::policy::{Pattern, Scope, Subject, access_word};
use pvisor::session::state::{Ask, SessionState};

use super::dialog::{IDLE, PageLine, Tone};

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskPage {
    /// Number of the question.
    pub id: u64,
    /// "Allow" has the focus, not "Deny".
    pub allow: bool,
    /// How long the answer holds.
    pub scope: Scope,
    /// What it is about.
    pub pattern: Pattern,
    /// First row on the screen.
    pub top: usize,
    /// Rows altogether, as drawn last.
    pub len: usize,
    /// When the page was first drawn to its end (on a screen too small: at all).
    pub drawn: Option<Duration>,
    /// The farthest row that was on the screen.
    pub seen: usize,
}

impl AskPage {
    /// A page that is not drawn yet; "Deny" has the focus.
    pub fn new(id: u64) -> Self {
        Self {
            id,
            allow: false,
            scope: Scope::Once,
            pattern: Pattern::File,
            top: 0,
            len: 0,
            drawn: None,
            seen: 0,
        }
    }

    /// Whether the whole question was on the screen.
    pub fn shown_to_end(&self) -> bool {
        self.drawn.is_some() && self.seen >= self.len
    }

    /// From when on an answer is heard, if no further key comes. A denial needs no reading to the
    /// end.
    pub fn armed_at(&self, allow: bool, last_key: Duration) -> Option<Duration> {
        let drawn = self.drawn.filter(|_| !allow || self.shown_to_end())?;
        Some(drawn.max(last_key) + IDLE)
    }

    /// Notes that the rows from `top` on, `rows` of `len`, were on the screen.
    pub fn note_drawn(&mut self, rows: usize, len: usize, now: Duration) {
        let before = self.shown_to_end();
        self.len = len;
        self.seen = self.seen.max(self.top + rows);
        if self.drawn.is_none() || (!before && self.shown_to_end()) {
            self.drawn = Some(now);
        }
    }
}

/// Who wants what, without the path.
pub fn who(ask: &Ask) -> Vec<u8> {
    let what = &ask.what;
    let mut who: Vec<u8> = if what.program.is_empty() {
        b"A process".to_vec()
    } else {
        what.program.clone().into_bytes()
    };
    if what.pid != 0 {
        who.extend_from_slice(format!(" (pid {})", what.pid).as_bytes());
    }
    who.extend_from_slice(format!(" wants to {}", access_word(what.access)).as_bytes());
    who
}

/// What the page says; exact bytes, shown through [`pvisor::text`] only.
pub fn lines(state: &SessionState, ask: &Ask) -> Vec<PageLine> {
    let what = &ask.what;
    let rule = state.rules.iter().find(|rule| rule.glob == what.glob);
    let origin = rule.map_or("", |rule| rule.origin.name());
    let mut lines = vec![
        PageLine::new(Tone::Head, who(ask)),
        PageLine::new(Tone::Warn, state.absolute(&what.key)),
        PageLine::new(Tone::Plain, format!("rule ask:{} ({origin})", what.glob)),
    ];
    lines.push(PageLine::new(
        Tone::Plain,
        "An answer for longer than once holds for every kind of access.",
    ));
    let others = state.asks.len().saturating_sub(1);
    if others > 0 {
        lines.push(PageLine::new(
            Tone::Plain,
            format!(
                "{} more in the queue",
                super::marks::count(others, "question")
            ),
        ));
    }
    lines
}

/// What an answer of this pattern would be about; `None` when the name has no suffix.
pub fn about(state: &SessionState, ask: &Ask, pattern: Pattern) -> Option<Vec<u8>> {
    let path = state.absolute(&ask.what.key);
    Subject::of(pattern, &path, ask.what.access).map(|subject| subject.shown())
}

/// How long a question still waits: `4:05`.
pub fn left(ask: &Ask, now: Timestamp) -> String {
    let seconds = ask.until.sec.saturating_sub(now.sec).max(0);
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_waits_for_the_end_and_for_rest() {
        let ms = Duration::from_millis;
        let mut page = AskPage::new(1);
        assert_eq!(page.armed_at(false, ms(0)), None, "never drawn");
        page.note_drawn(5, 8, ms(100));
        assert_eq!(page.armed_at(false, ms(0)), Some(ms(500)));
        assert_eq!(
            page.armed_at(true, ms(0)),
            None,
            "three rows were not shown"
        );
        page.top = 3;
        page.note_drawn(5, 8, ms(1000));
        assert_eq!(page.armed_at(true, ms(900)), Some(ms(1400)));
        page.note_drawn(5, 8, ms(2000));
        assert_eq!(page.armed_at(true, ms(1300)), Some(ms(1700)));
    }
}
