//! The page of rules: what is in force, what waits, what was answered, remarked and observed. Owns
//! its rows, made of the session's state; each is exact bytes, shown through [`pvisor::text`] only.

use pvisor::policy::{Answer, Level, Observations, Origin, Rule, access_word};
use pvisor::session::state::SessionState;

use super::dialog::Tone;
use super::marks::count;

/// Observed paths on the page.
const OBSERVED: usize = 200;

/// Where a person is on the page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RulesPage {
    /// Row under the cursor.
    pub cursor: usize,
    /// First row on the screen.
    pub top: usize,
    /// The answer that one more key forgets.
    pub forgetting: Option<Answer>,
}

/// What a row stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stands {
    /// Only for itself.
    Text,
    /// The question of this number.
    Ask(u64),
    /// A remembered answer.
    Answer(Answer),
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleRow {
    /// Weight.
    pub tone: Tone,
    /// What it says.
    pub text: Vec<u8>,
    /// What it stands for.
    pub stands: Stands,
}

/// Every row, in order. `observed` is the server's last word on what was counted.
pub fn rows(state: &SessionState, observed: Option<&Observations>) -> Vec<RuleRow> {
    let mut rows = Rows(Vec::new());
    rows.head(&format!("Questions that wait: {}", state.asks.len()));
    for ask in state.asks.values() {
        let mut text = format!("  {}  {} ", ask.id, access_word(ask.what.access)).into_bytes();
        text.extend(state.absolute(&ask.what.key));
        text.extend(format!("  by {}", ask.what.program).into_bytes());
        rows.0.push(RuleRow {
            tone: Tone::Warn,
            text,
            stands: Stands::Ask(ask.id),
        });
    }
    rows.head(&format!("Remembered answers: {}", state.answers.len()));
    for answer in &state.answers {
        let said = if answer.allow { "allow" } else { "deny " };
        let mut text = format!("  {said} {:<9} ", answer.origin.name()).into_bytes();
        text.extend(answer.subject.shown());
        rows.0.push(RuleRow {
            tone: Tone::Plain,
            text,
            stands: Stands::Answer(answer.clone()),
        });
    }
    let (builtin, given): (Vec<&Rule>, Vec<&Rule>) = state
        .rules
        .iter()
        .partition(|rule| rule.origin == Origin::BuiltIn);
    if state.rules.is_empty() {
        rows.head("Rules: none in force (only our own file server, the driver fuse, holds rules)");
    } else {
        rows.head(&format!(
            "Rules: {} given, {} of the built-in list",
            given.len(),
            builtin.len()
        ));
    }
    for rule in given.into_iter().chain(builtin) {
        let text = format!(
            "  {:<4} {:<9} {}",
            rule.level.name(),
            rule.origin.name(),
            rule.glob
        );
        rows.text(Tone::Plain, text);
    }
    let remarks = state.remarks.len() as u64 + state.more_remarks;
    rows.head(&format!("Denied and remarked by rules: {remarks}"));
    for remark in state.remarks.iter().rev() {
        let said = match remark.level {
            Level::Deny => "denied  ",
            Level::Ask | Level::Warn => "remarked",
        };
        let mut text = format!("  {said} {:<7} ", access_word(remark.what.access)).into_bytes();
        text.extend(state.absolute(&remark.what.key));
        text.extend(
            format!(
                "  by {}, rule {}:{}",
                remark.what.program,
                remark.level.name(),
                remark.what.glob
            )
            .into_bytes(),
        );
        rows.text(Tone::Plain, text);
    }
    rows.observed(state, observed);
    rows.0
}

struct Rows(Vec<RuleRow>);

impl Rows {
    fn head(&mut self, text: &str) {
        if !self.0.is_empty() {
            self.text(Tone::Plain, "");
        }
        self.text(Tone::Head, text);
    }

    fn text(&mut self, tone: Tone, text: impl Into<Vec<u8>>) {
        self.0.push(RuleRow {
            tone,
            text: text.into(),
            stands: Stands::Text,
        });
    }

    fn observed(&mut self, state: &SessionState, observed: Option<&Observations>) {
        let Some(observed) = observed else {
            self.head("Observed: nothing is counted (`run --observe` counts)");
            return;
        };
        self.head(&format!(
            "Observed: {}",
            count(observed.paths.len(), "path")
        ));
        let mut paths: Vec<_> = observed.paths.iter().collect();
        paths.sort_by_key(|(_, c)| {
            std::cmp::Reverse((c.denied, c.bytes_written, c.bytes_read, c.accesses()))
        });
        let mut more = observed.more;
        for (at, (key, counts)) in paths.into_iter().enumerate() {
            if at >= OBSERVED {
                more = more.saturating_add(counts.accesses());
                continue;
            }
            let mut text = format!(
                "  read {:<7} written {:<7} denied {:<3} opened {:<4} ",
                counts.bytes_read, counts.bytes_written, counts.denied, counts.opened
            )
            .into_bytes();
            text.extend(state.absolute(key));
            self.text(Tone::Plain, text);
        }
        if more > 0 {
            self.text(
                Tone::Plain,
                format!("  and {more} more accesses to other paths"),
            );
        }
    }
}
