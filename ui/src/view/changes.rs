//! The change list: one line a row, only the rows on the screen are looked at.

use pvisor::change::{Change, Merges, Risk};
use pvisor::layer::FileType;
use pvisor::review::Summary;
use pvisor::session::state::RunState;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::Scene;
use crate::model::layout::Layout;
use crate::model::list::{Fold, Row, Tally};
use crate::model::{Pane, marks};
use crate::widget::line::{self, Look};

/// Draws the rows from the model's place on.
pub fn draw(buf: &mut Buffer, area: Rect, scene: Scene, layout: &mut Layout) {
    let list = &scene.model.list;
    let height = usize::from(area.height);
    if list.rows.is_empty() {
        for (y, text) in (area.top()..area.bottom()).zip(nothing(scene)) {
            let row = Rect::new(area.x, y, area.width, 1);
            line::draw_text(buf, row, text, scene.theme.style("ui.text.dim"));
        }
        return;
    }
    let lowest = (list.cursor + 1).saturating_sub(height.max(1));
    let top = list.top.clamp(lowest, list.cursor).min(list.rows.len() - 1);
    let end = (top + height).min(list.rows.len());
    for (y, at) in (area.top()..area.bottom()).zip(top..end) {
        let row = Rect::new(area.x, y, area.width, 1);
        let over = cursor_style(scene, at == list.cursor, Pane::Files);
        if let Some(style) = over {
            buf.set_style(row, style);
        }
        draw_row(buf, row, scene, &list.rows[at], over);
    }
    layout.list_rows = top..end;
}

/// What an empty list says.
fn nothing(scene: Scene) -> [&'static str; 2] {
    if scene.state.boundary.mode == "host" {
        return [
            "Mode host: nothing is staged.",
            "The agent writes to your files directly.",
        ];
    }
    match scene.state.run {
        Some(RunState::Running) => ["No change yet.", "What the agent writes appears here."],
        _ => ["No change.", "Your files are as they were."],
    }
}

/// The style of the row under a pane's cursor.
pub fn cursor_style(scene: Scene, here: bool, pane: Pane) -> Option<Style> {
    here.then(|| {
        scene.theme.style(if scene.model.focus == pane {
            "ui.cursor"
        } else {
            "ui.cursor.idle"
        })
    })
}

/// Writes words from left to right, under the cursor's style.
struct Pen<'a> {
    buf: &'a mut Buffer,
    row: Rect,
    x: u16,
    scene: Scene<'a>,
    over: Option<Style>,
}

impl Pen<'_> {
    fn style(&self, scope: &str) -> Style {
        let style = self.scene.theme.style(scope);
        // A scope's own ground stays: escapes and conflicts look alike everywhere.
        match self.over {
            Some(over) if style.bg.is_none() => style.patch(over),
            _ => style,
        }
    }

    fn look(&self, scope: &str) -> Look {
        let mut look = Look::of(self.scene.theme, scope);
        look.plain = self.style(scope);
        look
    }

    fn rest(&self) -> Rect {
        let x = self.x.min(self.row.right());
        Rect::new(x, self.row.y, self.row.right() - x, 1)
    }

    fn word(&mut self, scope: &str, text: &str) {
        let style = self.style(scope);
        self.x += line::draw_text(self.buf, self.rest(), text, style);
    }

    /// Words at the right edge; what is left of them is the rest.
    fn right(&mut self, words: &[(&'static str, String)]) {
        let width: usize = words.iter().map(|(_, t)| t.chars().count() + 1).sum();
        let from = self.row.right().saturating_sub(width as u16).max(self.x);
        let (left, right) = (self.x, self.row.right());
        self.x = from;
        for (scope, text) in words {
            self.x += 1;
            self.word(scope, text);
        }
        self.row.width = from.saturating_sub(self.row.x);
        self.x = left.min(right);
    }
}

fn draw_row(buf: &mut Buffer, row: Rect, scene: Scene, what: &Row, over: Option<Style>) {
    let list = &scene.model.list;
    let mut pen = Pen {
        buf,
        row,
        x: row.x,
        scene,
        over,
    };
    let fold = |open: &bool| if *open { "▾" } else { "▸" };
    match what {
        Row::Layer {
            layer, open, plain, ..
        } => {
            sign(&mut pen, list.tally_of(what).summary());
            pen.right(&[("ui.text.dim", counts(&list.tally_in(plain)))]);
            pen.word("list.layer", fold(open));
            pen.word("list.layer", " ");
            let root = scene
                .state
                .info
                .as_ref()
                .and_then(|i| i.layers.iter().find(|l| l.name == *layer))
                .map(|l| l.root.as_os_str().as_encoded_bytes().to_vec());
            let mut text = layer.clone().into_bytes();
            if let Some(root) = root {
                text.extend_from_slice(b"  ");
                text.extend(root);
            }
            let look = pen.look("list.layer");
            let rest = pen.rest();
            line::draw_bytes(pen.buf, rest, &text, &look);
        }
        Row::Dir {
            dir,
            skip,
            depth,
            own,
            open,
            ..
        } => {
            let tally = list.tally_of(what);
            sign(&mut pen, tally.summary());
            let own = own
                .map(|o| &list.members[o])
                .and_then(|m| scene.state.changes.get(&m.key));
            pen.right(&[("ui.text.dim", tally.total().to_string())]);
            indent(&mut pen, *depth);
            pen.word("list.dir", fold(open));
            pen.word("list.dir", " ");
            if let Some(change) = own {
                pen.word(
                    marks::letter_scope(&change.kind),
                    marks::letter(&change.kind),
                );
                pen.word("list.dir", " ");
            }
            let mut text = Vec::new();
            if let Some(from) = own.and_then(|change| change.from()) {
                let (from, shown) = (from.as_bytes(), &dir.path.as_bytes()[..*skip]);
                text.extend_from_slice(from.strip_prefix(shown).unwrap_or(from));
                text.extend_from_slice(b"/ -> ");
            }
            text.extend_from_slice(&dir.path.as_bytes()[*skip..]);
            text.push(b'/');
            let look = pen.look("list.dir");
            let rest = pen.rest();
            line::draw_end(pen.buf, rest, &text, &look);
        }
        Row::Fold {
            fold: kind,
            members,
            open,
            ..
        } => {
            sign(&mut pen, list.tally_of(what).summary());
            indent(&mut pen, 1);
            pen.word("list.fold", fold(open));
            let n = members.len();
            let text = match kind {
                Fold::Touched if n == 1 => " 1 file touched (times only)".to_owned(),
                Fold::Touched => format!(" {n} files touched (times only)"),
                Fold::GitObjects if n == 1 => " 1 git object".to_owned(),
                Fold::GitObjects => format!(" {n} git objects"),
                Fold::Ignored => format!(" {n} ignored by git"),
            };
            pen.word("list.fold", &text);
        }
        Row::Change {
            member,
            skip,
            depth,
        } => {
            let member = &list.members[*member];
            sign(&mut pen, member.summary);
            if let Some(change) = scene.state.changes.get(&member.key) {
                draw_change(&mut pen, change, *skip, *depth);
            } else {
                let look = pen.look("ui.text.dim");
                let rest = pen.rest();
                line::draw_end(pen.buf, rest, member.key.path.as_bytes(), &look);
            }
        }
    }
}

fn sign(pen: &mut Pen, summary: Summary) {
    pen.word(marks::sign_scope(summary), marks::sign(summary));
    pen.x += 1;
}

/// One column a level, and never so many that no name is left.
fn indent(pen: &mut Pen, depth: usize) {
    let most = pen.row.width / 3;
    pen.x += (depth.saturating_sub(1) as u16).min(most);
}

fn counts(tally: &Tally) -> String {
    let left = tally.undecided + tally.mixed;
    if tally.total() == 0 {
        String::new()
    } else if left == 0 {
        format!("{} decided", tally.total())
    } else {
        format!("{left} of {} left", tally.total())
    }
}

fn draw_change(pen: &mut Pen, change: &Change, skip: usize, depth: usize) {
    let model = pen.scene.model;
    let moved = model
        .diff
        .seen(&change.key)
        .is_some_and(|s| s.is_older_than(change));
    let right = badges(pen, change);
    pen.right(&right);
    indent(pen, depth);
    pen.word(
        marks::letter_scope(&change.kind),
        marks::letter(&change.kind),
    );
    if moved {
        pen.word("mark.moved", "*");
    } else {
        pen.x += 1;
    }
    let mut text = Vec::new();
    if let Some(from) = change.from() {
        // Both names without what the rows above already show, where they share it.
        let (from, shown) = (from.as_bytes(), &change.key.path.as_bytes()[..skip]);
        text.extend_from_slice(from.strip_prefix(shown).unwrap_or(from));
        text.extend_from_slice(b" -> ");
    }
    if change.key.path.is_root() {
        text.push(b'.');
    }
    text.extend_from_slice(&change.key.path.as_bytes()[skip..]);
    text.extend_from_slice(marks::type_suffix(change.file_type()).as_bytes());
    let matched = model.search.as_ref().is_some_and(|s| {
        model.focus == Pane::Files
            && pvisor::text::visible(&text)
                .to_lowercase()
                .contains(&s.text.to_lowercase())
    });
    let look = pen.look(if matched { "text.match" } else { "ui.text" });
    let rest = pen.rest();
    line::draw_end(pen.buf, rest, &text, &look);
}

/// What stands at the right of a change: conflict, risks, hidden characters, lines.
fn badges(pen: &Pen, change: &Change) -> Vec<(&'static str, String)> {
    let mut words = Vec::new();
    if change.conflict.is_some() {
        let word = match change.merges {
            Some(Merges::Clean { .. }) => "conflict, merges",
            _ => "conflict",
        };
        words.push(("risk.conflict", word.to_owned()));
    }
    let hidden = pen
        .scene
        .model
        .diff
        .hidden(&change.key, change.digest)
        .unwrap_or(0)
        + pvisor::text::count_hidden(change.key.path.as_bytes());
    let hides = hidden > 0 || change.risks.contains(&Risk::HiddenText);
    if hides {
        let text = if hidden > 0 {
            format!("hidden:{hidden}")
        } else {
            "hidden".to_owned()
        };
        words.push(("risk.high", text));
    }
    // As many as leave room for a name.
    let room = usize::from(pen.row.width) / 2;
    let mut rest = 0;
    for risk in change.risks.iter().filter(|r| **r != Risk::HiddenText) {
        let used: usize = words.iter().map(|(_, t)| t.len() + 1).sum();
        let text = format!("!{}", marks::badge(*risk));
        if used + text.len() + 8 > room && !words.is_empty() {
            rest += 1;
        } else {
            words.push((marks::badge_scope(*risk), text));
        }
    }
    if rest > 0 {
        words.push(("risk.low", format!("!{rest}")));
    }
    if change.file_type() == FileType::File && change.added + change.removed > 0 {
        words.push(("kind.added", format!("+{}", change.added)));
        words.push(("kind.deleted", format!("-{}", change.removed)));
    }
    words
}
