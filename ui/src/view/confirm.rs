//! A page that asks for consent: the plan of a commit and its like. Says when consent is heard.

use pvisor::commit::Outcome;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Scene;
use crate::action::Name;
use crate::model::dialog::{Check, Confirm, Subject, Tone};
use crate::model::layout::Layout;
use crate::widget::line::{self, Look};
use crate::widget::pane;

/// Draws the page.
pub fn draw(buf: &mut Buffer, area: Rect, scene: Scene, page: &Confirm, layout: &mut Layout) {
    let title: &[u8] = match page.subject {
        Subject::Commit { .. } => b"commit",
        Subject::UndoCommit(_) => b"undo a commit",
        Subject::Revert(_) => b"take back",
        Subject::Resolve(_) => b"resolve",
        Subject::Discard => b"discard",
        Subject::Approve(_) => b"approve",
    };
    let inside = pane::draw(buf, area, title, true, scene.theme);
    let body = Rect::new(
        inside.x,
        inside.y,
        inside.width,
        inside.height.saturating_sub(1),
    );
    let height = usize::from(body.height);
    let top = page.top.min(page.lines.len().saturating_sub(height));
    for (y, text) in (body.top()..body.bottom()).zip(page.lines.iter().skip(top)) {
        let scope = match text.tone {
            Tone::Head => "page.head",
            Tone::Plain => "ui.text",
            Tone::Warn => "page.warn",
            Tone::Bad => "page.bad",
        };
        let row = Rect::new(body.x + 1, y, body.width.saturating_sub(2), 1);
        line::draw_bytes(buf, row, &text.text, &Look::of(scene.theme, scope));
    }
    let end = (top + height).min(page.lines.len());
    layout.page = Some(top..end);
    layout.page_len = page.lines.len();
    let below = page.lines.len() - end;
    let foot = Rect::new(
        inside.x + 1,
        inside.bottom().saturating_sub(1),
        inside.width.saturating_sub(2),
        1,
    );
    let (scope, text) = answer(scene, page, below);
    line::draw_text(buf, foot, &text, scene.theme.style(scope));
}

/// What can be answered now.
fn answer(scene: Scene, page: &Confirm, below: usize) -> (&'static str, String) {
    let key = |name| scene.model.keymap.key(name).unwrap_or_default();
    let no = format!("{}: no", key(Name::Deny));
    match &page.check {
        Check::Waiting => {
            return (
                "ui.text.dim",
                format!("checking against the host ...  {no}"),
            );
        }
        Check::Failed(_) | Check::Done(Outcome::Refused { .. } | Outcome::Unsettled { .. }) => {
            if page.can_merge {
                let merge = key(Name::Merge);
                let text = format!("refused as it stands.  {merge}: plan with merges  {no}");
                return ("page.bad", text);
            }
            return ("page.bad", format!("this cannot be done.  {no}"));
        }
        Check::Done(Outcome::Nothing) => {
            return ("page.warn", format!("there is nothing to do.  {no}"));
        }
        Check::Unneeded | Check::Done(_) => {}
    }
    if below > 0 && !page.shown_to_end() {
        let text = format!(
            "{below} more lines below: read to the end ({}).  {no}",
            key(Name::PageDown)
        );
        return ("page.warn", text);
    }
    let armed = page
        .armed_at(scene.model.last_key)
        .is_some_and(|t| t <= scene.model.now);
    if let (true, Subject::Resolve(_)) = (armed, &page.subject) {
        return ("page.armed", format!(" one of the keys above   {no} "));
    }
    if armed {
        let what = match &page.subject {
            Subject::Commit { merge: true } => "commit with the merges",
            Subject::Commit { .. } => "commit",
            Subject::UndoCommit(_) => "put it back",
            Subject::Revert(_) => "take it back",
            Subject::Resolve(_) => "settle it",
            Subject::Discard => "throw it away",
            Subject::Approve(_) => "approve",
        };
        let yes = key(Name::Accept);
        ("page.armed", format!(" {yes}: yes, {what}   {no} "))
    } else {
        ("ui.text.dim", format!(" {} ...  {no} ", key(Name::Accept)))
    }
}
