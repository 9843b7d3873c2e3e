//! The diff pane: items, hunks and lines of one change. Only what is on the screen is laid out.

use std::cell::OnceCell;

use pvisor::change::{Change, Merges};
use pvisor::diff::rows::{DiffRow, RowKind};
use pvisor::diff::{Item, ItemId};
use pvisor::merge::Standing;
use pvisor::review::{FileDecision, Summary, Verdict, line_verdict, reason};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::Scene;
use super::changes::cursor_style;
use crate::action::Name;
use crate::model::document::{DocRow, Document};
use crate::model::layout::Layout;
use crate::model::verdicts::Verdicts;
use crate::model::{Pane, marks};
use crate::widget::line::{self, Glyphs, How, Look};

/// Draws the pane.
pub fn draw(buf: &mut Buffer, area: Rect, scene: Scene, layout: &mut Layout) {
    let head = Rect::new(area.x, area.y, area.width, 1);
    let body = Rect::new(
        area.x,
        area.y + 1,
        area.width,
        area.height.saturating_sub(1),
    );
    if let Some((_, inside)) = layout.panes.last_mut() {
        *inside = body;
    }
    let model = scene.model;
    let Some(key) = &model.diff.key else {
        for (y, text) in (area.top()..area.bottom()).zip(about_group(scene)) {
            let row = Rect::new(area.x, y, area.width, 1);
            line::draw_text(buf, row, &text, scene.theme.style("ui.text.dim"));
        }
        return;
    };
    let change = scene.state.changes.get(key).map(|change| &**change);
    draw_head(buf, head, scene, change);
    let Some(document) = model.diff.drawn() else {
        let text = match &model.diff.failed {
            Some((k, _, why)) if k == key => why.as_str(),
            _ => "loading ...",
        };
        let look = Look::of(scene.theme, "diff.note");
        line::draw_bytes(buf, body, text.as_bytes(), &look);
        return;
    };
    if body.height == 0 || document.rows.is_empty() {
        return;
    }
    layout.diff_key = Some(document.key.clone());
    let page = Page {
        scene,
        document,
        change,
        decision: scene
            .state
            .decisions
            .get(key)
            .filter(|d| d.digest == document.digest),
        verdicts: OnceCell::new(),
        numbers: number_width(document),
        body,
    };
    page.draw(buf, layout);
}

/// What is said of a group of changes, which has no diff of its own.
fn about_group(scene: Scene) -> Vec<String> {
    let list = &scene.model.list;
    let Some(row) = list.current() else {
        return vec!["The diff of a change appears here.".into()];
    };
    let tally = list.tally_of(row);
    let key = |name| scene.model.keymap.key(name).unwrap_or_default();
    vec![
        format!(
            "{}: {} undecided, {} approved, {} rejected{}.",
            marks::count(tally.total(), "change"),
            tally.undecided,
            tally.approved,
            tally.rejected,
            match tally.mixed {
                0 => String::new(),
                n => format!(", {n} in part"),
            }
        ),
        format!(
            "In the list `{}` opens or folds them, `{}` approves all, `{}` rejects all.",
            key(Name::ApproveNext),
            key(Name::Approve),
            key(Name::Reject)
        ),
    ]
}

/// What is known of the change as a whole.
fn draw_head(buf: &mut Buffer, row: Rect, scene: Scene, change: Option<&Change>) {
    let Some(change) = change else {
        let text = "This is no longer a change.";
        line::draw_text(buf, row, text, scene.theme.style("notice.warning"));
        return;
    };
    let diff = &scene.model.diff;
    let mut parts: Vec<(&'static str, String)> = vec![(
        marks::letter_scope(&change.kind),
        change.kind.name().to_owned(),
    )];
    if change.added + change.removed > 0 {
        parts.push(("diff.plus", format!("+{}", change.added)));
        parts.push(("diff.minus", format!("-{}", change.removed)));
    }
    if let Some(conflict) = &change.conflict {
        parts.push(("page.bad", conflict.describe()));
        match &change.merges {
            Some(merges @ Merges::Clean { .. }) => parts.push(("page.warn", merges.describe())),
            Some(merges) => parts.push(("page.bad", merges.describe())),
            None => {}
        }
    }
    let key = scene.model.keymap.key(Name::SinceSeen).unwrap_or_default();
    match diff.document.as_ref() {
        Some(d) if d.digest != change.digest => {
            parts.push(("notice.warning", "changed since it was shown".into()));
        }
        Some(_) if diff.since.is_some() => {
            parts.push(("notice.warning", "since you looked".into()));
        }
        Some(d) => {
            if diff.seen(&change.key).is_some_and(|s| s.previous.is_some()) {
                parts.push(("mark.moved", format!("* changed since you looked ({key})")));
            }
            if d.hidden > 0 {
                parts.push(("risk.high", format!("{} hidden characters", d.hidden)));
            }
            if d.mixed_line_ends {
                parts.push(("risk.low", "mixed line ends".into()));
            }
        }
        None => {}
    }
    for (on, text) in [
        (diff.anchor.is_some(), "range"),
        (diff.by_line, "by line"),
        (!diff.wrap, "no wrap"),
    ] {
        if on {
            parts.push(("ui.text.dim", text.to_owned()));
        }
    }
    let decision = marks::holding(change, scene.state.decisions.get(&change.key));
    if let Some(reason) = decision.and_then(reason) {
        parts.push(("mark.rejected", format!("rejected: {reason}")));
    }
    let mut x = row.x;
    for (scope, text) in parts {
        let rest = Rect::new(x, row.y, row.right().saturating_sub(x), 1);
        let look = Look::of(scene.theme, scope);
        x += line::draw_bytes(buf, rest, text.as_bytes(), &look);
        x = (x + 2).min(row.right());
    }
}

/// Columns of the largest line number.
fn number_width(document: &Document) -> usize {
    let largest = document
        .rows
        .iter()
        .rev()
        .filter_map(|r| match r {
            DocRow::Line(l) if l.old_no.is_some() || l.new_no.is_some() => {
                Some(l.old_no.max(l.new_no).unwrap_or(0))
            }
            _ => None,
        })
        .take(2)
        .max()
        .unwrap_or(0);
    largest.max(1).ilog10() as usize + 1
}

struct Page<'a> {
    scene: Scene<'a>,
    document: &'a Document,
    change: Option<&'a Change>,
    decision: Option<&'a FileDecision>,
    /// The same by item, made when it is asked for.
    verdicts: OnceCell<Option<Verdicts<'a>>>,
    numbers: usize,
    body: Rect,
}

impl Page<'_> {
    /// Columns before the text: both numbers, the decision's sign, `+` or `-`.
    fn gutter(&self) -> u16 {
        (self.numbers * 2 + 5) as u16
    }

    fn text_width(&self) -> usize {
        usize::from(self.body.width.saturating_sub(self.gutter())).max(1)
    }

    /// The text of a row and where its screen lines begin.
    fn lay_out(&self, row: usize, skip: usize) -> (Glyphs, Vec<std::ops::Range<usize>>) {
        let diff = &self.scene.model.diff;
        let DocRow::Line(l) = &self.document.rows[row] else {
            return (Glyphs::default(), std::iter::once(0..0).collect());
        };
        if matches!(l.kind, RowKind::HunkHeader | RowKind::Eof) {
            return (Glyphs::default(), std::iter::once(0..0).collect());
        }
        let width = self.text_width();
        let lines = skip + usize::from(self.body.height) + 1;
        let how = How {
            invisibles: diff.invisibles || l.eol_only,
            changed: &l.changed,
            columns: if diff.wrap {
                width * lines
            } else {
                width + diff.left + 1
            },
        };
        let glyphs = Glyphs::of(&l.bytes, how);
        let ranges = if diff.wrap {
            glyphs.wrapped(width)
        } else {
            std::iter::once(0..glyphs.glyphs.len()).collect()
        };
        (glyphs, ranges)
    }

    /// The first row, so that the cursor's row is on the screen.
    fn top(&self) -> usize {
        let diff = &self.scene.model.diff;
        let height = usize::from(self.body.height);
        let last = self.document.rows.len() - 1;
        let cursor = diff.cursor.min(last);
        let mut top = diff.top.min(cursor);
        if cursor - top >= height {
            top = cursor + 1 - height;
        }
        if diff.wrap {
            let heights: Vec<usize> = (top..=cursor).map(|r| self.lay_out(r, 0).1.len()).collect();
            let mut total: usize = heights.iter().sum();
            for height_of in &heights {
                if total <= height || top == cursor {
                    break;
                }
                total -= height_of;
                top += 1;
            }
        }
        top
    }

    fn draw(&self, buf: &mut Buffer, layout: &mut Layout) {
        let diff = &self.scene.model.diff;
        let top = self.top();
        let mut y = self.body.top();
        let mut whole = top..top;
        for row in top..self.document.rows.len() {
            if y >= self.body.bottom() {
                break;
            }
            let skip = if row == top && row == diff.cursor {
                diff.skip
            } else {
                0
            };
            let (glyphs, ranges) = self.lay_out(row, skip);
            let mut drawn = 0;
            for (i, range) in ranges.iter().enumerate().skip(skip) {
                if y >= self.body.bottom() {
                    break;
                }
                self.draw_line(buf, y, row, &glyphs, range, i == 0);
                layout.diff_lines.push(row);
                drawn = i + 1;
                y += 1;
            }
            let complete = drawn == ranges.len() && !(diff.wrap && glyphs.cut);
            if complete && skip == 0 {
                whole.end = row + 1;
            }
            if row == top {
                layout.diff_more = !complete;
            }
        }
        layout.diff_rows = whole;
    }

    fn over(&self, row: usize) -> Option<Style> {
        let diff = &self.scene.model.diff;
        if row == diff.cursor {
            return cursor_style(self.scene, true, Pane::Diff);
        }
        (diff.anchor.is_some() && diff.chosen().contains(&row))
            .then(|| self.scene.theme.style("ui.range"))
    }

    fn draw_line(
        &self,
        buf: &mut Buffer,
        y: u16,
        row: usize,
        glyphs: &Glyphs,
        range: &std::ops::Range<usize>,
        first: bool,
    ) {
        let area = Rect::new(self.body.x, y, self.body.width, 1);
        let over = self.over(row);
        let style = |scope: &str| {
            let style = self.scene.theme.style(scope);
            over.map_or(style, |over| style.patch(over))
        };
        match &self.document.rows[row] {
            DocRow::Line(l) if !matches!(l.kind, RowKind::HunkHeader | RowKind::Eof) => {
                let scope = scope(l.kind);
                buf.set_style(area, style(scope));
                if first {
                    self.draw_gutter(buf, area, l, &style);
                }
                self.draw_text(buf, area, l, glyphs, range, first, &style);
            }
            other => {
                if let Some(over) = over {
                    buf.set_style(area, over);
                }
                self.draw_head_row(buf, area, row, other, &style);
            }
        }
    }

    /// An item, the head of a block, or a word of ours.
    fn draw_head_row(
        &self,
        buf: &mut Buffer,
        area: Rect,
        at: usize,
        row: &DocRow,
        style: &dyn Fn(&str) -> Style,
    ) {
        let (scope, text) = match row {
            DocRow::Item { text, .. } => ("diff.item", text.as_slice()),
            DocRow::Line(l) if l.kind == RowKind::Eof => ("diff.item", l.bytes.as_slice()),
            DocRow::Line(l) => ("diff.hunk", l.bytes.as_slice()),
            DocRow::Note(text) => ("diff.note", text.as_bytes()),
        };
        let mut x = area.x;
        let room = |x: u16| Rect::new(x, area.y, area.right().saturating_sub(x), 1);
        if let Some(summary) = self.row_summary(at) {
            x += line::draw_text(buf, room(x), "[", style(scope));
            let sign = style(marks::sign_scope(summary));
            x += line::draw_text(buf, room(x), marks::sign(summary), sign);
            x += line::draw_text(buf, room(x), "] ", style(scope));
        }
        let mut look = Look::of(self.scene.theme, scope);
        look.plain = style(scope);
        x += line::draw_bytes(buf, room(x), text, &look);
        if let Some((scope, text)) = self.standings(at) {
            line::draw_text(buf, room(x + 2), text, style(scope));
        }
    }

    /// Of a block whose file the host has changed as well: how the worst of its hunks stands.
    fn standings(&self, at: usize) -> Option<(&'static str, &'static str)> {
        let merges = self.change?.merges.as_ref()?;
        let block = self.document.block(at);
        let of = |row| merges.standing(self.document.item(row)?);
        let worst = block.filter_map(of).max()?;
        Some((standing_scope(worst), worst.name()))
    }

    /// How the hunk that begins with this line stands to the host's edits.
    fn standing(&self, l: &DiffRow) -> Option<Standing> {
        let item = l.item.as_ref().filter(|_| l.line_in_item <= 1)?;
        self.change?.merges.as_ref()?.standing(item)
    }

    /// Decisions on what a row stands for: its item, or every item of its block.
    fn row_summary(&self, at: usize) -> Option<Summary> {
        if let Some(id) = self.document.item(at) {
            return Some(self.summary(id));
        }
        let mut last = None;
        let mut all: Option<Summary> = None;
        for row in self.document.block(at) {
            let Some(id) = self.document.item(row).filter(|id| last != Some(*id)) else {
                continue;
            };
            last = Some(id);
            let summary = self.summary(id);
            all = Some(match all {
                Some(other) if other != summary => Summary::Mixed,
                _ => summary,
            });
        }
        all
    }

    fn verdicts(&self) -> Option<&Verdicts<'_>> {
        let make = || self.change.map(|c| Verdicts::of(c, self.decision));
        self.verdicts.get_or_init(make).as_ref()
    }

    fn item(&self, id: &ItemId) -> Option<&Item> {
        self.verdicts()?.item(id)
    }

    fn summary(&self, id: &ItemId) -> Summary {
        let found = self.verdicts().and_then(|v| v.summary(id));
        found.unwrap_or(Summary::Undecided)
    }

    fn draw_gutter(
        &self,
        buf: &mut Buffer,
        area: Rect,
        l: &DiffRow,
        style: &dyn Fn(&str) -> Style,
    ) {
        let number = |n: Option<u32>| n.map_or_else(String::new, |n| n.to_string());
        let w = self.numbers;
        let numbers = format!("{:>w$} {:>w$} ", number(l.old_no), number(l.new_no));
        let mut numbers_style = style("diff.gutter");
        numbers_style.bg = style(scope(l.kind)).bg;
        let mut x = area.x + line::draw_text(buf, area, &numbers, numbers_style);
        let item = l.item.as_ref().and_then(|id| self.item(id));
        // Lines of what is decided on as a whole have no line numbers of their own.
        let summary = item.map(|item| {
            let line = l.line_in_item.max(1);
            match line_verdict(item, line, self.decision) {
                None => Summary::Undecided,
                Some(Verdict::Approved) => Summary::Approved,
                Some(Verdict::Rejected { .. }) => Summary::Rejected,
            }
        });
        if let Some(summary) = summary {
            let rest = Rect::new(x, area.y, area.right().saturating_sub(x), 1);
            let mut sign = style(marks::sign_scope(summary));
            sign.bg = style(scope(l.kind)).bg;
            line::draw_text(buf, rest, marks::sign(summary), sign);
        }
        x += 1;
        let sign = match l.kind {
            RowKind::Added => "+",
            RowKind::Removed => "-",
            _ => " ",
        };
        let rest = Rect::new(x, area.y, area.right().saturating_sub(x), 1);
        line::draw_text(buf, rest, sign, style(scope(l.kind)));
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one line's parts, used in one place"
    )]
    fn draw_text(
        &self,
        buf: &mut Buffer,
        area: Rect,
        l: &DiffRow,
        glyphs: &Glyphs,
        range: &std::ops::Range<usize>,
        first: bool,
        style: &dyn Fn(&str) -> Style,
    ) {
        let diff = &self.scene.model.diff;
        let base = scope(l.kind);
        let mut look = Look::of(self.scene.theme, base);
        look.plain = style(base);
        look.changed = match l.kind {
            RowKind::Added => self.scene.theme.style("diff.plus.word"),
            RowKind::Removed => self.scene.theme.style("diff.minus.word"),
            _ => style(base),
        };
        if self.matched(l) {
            look.plain = self.scene.theme.style("text.match");
        }
        let x = area.x + self.gutter();
        let width = area.right().saturating_sub(x);
        let left = if diff.wrap { 0 } else { diff.left };
        let part = &glyphs.glyphs[range.clone()];
        let used = line::draw(buf, (x, area.y), width, part, left, &look);
        let edge = |buf: &mut Buffer, x: u16, mark: &str| {
            let at = Rect::new(x, area.y, 1, 1);
            line::draw_text(buf, at, mark, self.scene.theme.style("text.escape"));
        };
        if !diff.wrap && first {
            if left > 0 && !part.is_empty() {
                edge(buf, x.saturating_sub(1), "«");
            }
            let shown = glyphs.width().saturating_sub(left);
            if (glyphs.cut || shown > usize::from(width)) && width > 0 {
                edge(buf, area.right() - 1, "»");
            }
        }
        if range.end == glyphs.glyphs.len() && !glyphs.cut {
            let mut at = used;
            let mut say = |scope, note: &str| {
                let rest = Rect::new(x + at, area.y, width.saturating_sub(at), 1);
                at += line::draw_text(buf, rest, note, style(scope));
            };
            if l.eol_only {
                say("diff.note", " [only the line end differs]");
            } else if l.no_newline {
                say("diff.note", " [no newline at the end]");
            }
            if let Some(standing) = self.standing(l) {
                say(standing_scope(standing), &format!(" [{}]", standing.name()));
            }
        }
    }

    fn matched(&self, l: &DiffRow) -> bool {
        let model = self.scene.model;
        model.focus == Pane::Diff
            && model.search.as_ref().is_some_and(|s| {
                pvisor::text::visible(&l.bytes)
                    .to_lowercase()
                    .contains(&s.text.to_lowercase())
            })
    }
}

fn standing_scope(standing: Standing) -> &'static str {
    match standing {
        Standing::Applies => "diff.note",
        Standing::Merges => "page.warn",
        Standing::Conflicts => "page.bad",
    }
}

fn scope(kind: RowKind) -> &'static str {
    match kind {
        RowKind::Added => "diff.plus",
        RowKind::Removed => "diff.minus",
        RowKind::Context | RowKind::HunkHeader | RowKind::Eof => "diff.context",
    }
}
