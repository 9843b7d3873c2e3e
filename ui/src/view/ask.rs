//! The page of a question: who wants what, how far an answer would go, and how to give it.

use pvisor::policy::{Pattern, Scope};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Scene;
use crate::action::Name;
use crate::model::ask::{AskPage, about, left, lines};
use crate::model::dialog::Tone;
use crate::model::layout::Layout;
use crate::widget::line::{self, Glyphs, How, Look};
use crate::widget::pane;

/// Rows below the question: how long, about what, the answer.
const FEET: u16 = 3;

/// Scope of a line on a page.
pub fn scope(tone: Tone) -> &'static str {
    match tone {
        Tone::Head => "page.head",
        Tone::Plain => "ui.text",
        Tone::Warn => "page.warn",
        Tone::Bad => "page.bad",
    }
}

/// Draws the page.
pub fn draw(buf: &mut Buffer, area: Rect, scene: Scene, page: &AskPage, layout: &mut Layout) {
    let Some(ask) = scene.state.asks.get(&page.id) else {
        return;
    };
    let title = format!(
        "question {}: denied by itself in {}",
        page.id,
        left(ask, scene.model.wall())
    );
    let inside = pane::draw(buf, area, title.as_bytes(), true, scene.theme);
    let feet = FEET.min(inside.height.saturating_sub(1));
    let body = Rect::new(
        inside.x + 1,
        inside.y,
        inside.width.saturating_sub(2),
        inside.height - feet,
    );
    // A path is shown whole, over as many rows as it takes.
    let mut rows = Vec::new();
    for text in lines(scene.state, ask) {
        let glyphs = Glyphs::of(&text.text, How::default());
        for range in glyphs.wrapped(usize::from(body.width).max(1)) {
            rows.push((scope(text.tone), glyphs.glyphs[range].to_vec()));
        }
    }
    let height = usize::from(body.height);
    let top = page.top.min(rows.len().saturating_sub(height));
    for (y, (scope, glyphs)) in (body.top()..body.bottom()).zip(rows.iter().skip(top)) {
        let look = Look::of(scene.theme, scope);
        line::draw(buf, (body.x, y), body.width, glyphs, 0, &look);
    }
    let end = (top + height).min(rows.len());
    layout.page = Some(top..end);
    layout.page_len = rows.len();

    let foot = |n: u16| Rect::new(body.x, inside.bottom() - feet + n, body.width, 1);
    if feet == FEET {
        how_long(buf, foot(0), scene, page);
        about_what(buf, foot(1), scene, page);
    }
    let last = foot(feet.saturating_sub(1));
    answers(buf, last, scene, page, rows.len() - end);
}

/// Words with their keys, the chosen one in brackets: never by colour alone.
fn choices(buf: &mut Buffer, row: Rect, scene: Scene, head: &str, all: &[(Name, Vec<u8>, bool)]) {
    let mut x = row.x;
    let room = |x: u16| Rect::new(x, row.y, row.right().saturating_sub(x), 1);
    let theme = scene.theme;
    x += line::draw_text(buf, room(x), head, theme.style("ui.text.dim"));
    for (name, word, chosen) in all {
        let key = scene.model.keymap.key(*name).unwrap_or_default();
        x += line::draw_text(buf, room(x), " ", theme.style("ui.text"));
        x += line::draw_text(buf, room(x), &key, theme.style("ui.key"));
        let text = if *chosen {
            [b" [".as_slice(), word, b"]"].concat()
        } else {
            [b" ".as_slice(), word].concat()
        };
        let scope = if *chosen { "page.armed" } else { "ui.text" };
        x += line::draw_bytes(buf, room(x), &text, &Look::of(theme, scope));
        x += line::draw_text(buf, room(x), " ", theme.style("ui.text"));
    }
}

fn how_long(buf: &mut Buffer, row: Rect, scene: Scene, page: &AskPage) {
    let choice = |name, scope: Scope| (name, scope.name().into(), page.scope == scope);
    let all = [
        choice(Name::ForOnce, Scope::Once),
        choice(Name::ForSession, Scope::Session),
        choice(Name::ForWorkspace, Scope::Workspace),
        choice(Name::ForUser, Scope::User),
    ];
    choices(buf, row, scene, "for  ", &all);
}

fn about_what(buf: &mut Buffer, row: Rect, scene: Scene, page: &AskPage) {
    if page.scope == Scope::Once {
        let text = "about this one operation";
        line::draw_text(buf, row, text, scene.theme.style("ui.text.dim"));
        return;
    }
    let Some(ask) = scene.state.asks.get(&page.id) else {
        return;
    };
    let mut all = Vec::new();
    for (name, pattern, word) in [
        (Name::AboutFile, Pattern::File, "this path"),
        (Name::AboutDirectory, Pattern::Directory, "its directory"),
        (Name::AboutSuffix, Pattern::Suffix, "suffix"),
    ] {
        let Some(about) = about(scene.state, ask, pattern) else {
            continue;
        };
        let chosen = page.pattern == pattern;
        // The chosen one says exactly what it covers.
        let word = match (chosen, pattern) {
            (true, Pattern::Directory) | (_, Pattern::Suffix) => about,
            _ => word.into(),
        };
        all.push((name, word, chosen));
    }
    choices(buf, row, scene, "about", &all);
}

fn answers(buf: &mut Buffer, row: Rect, scene: Scene, page: &AskPage, below: usize) {
    let model = scene.model;
    let key = |name| model.keymap.key(name).unwrap_or_default();
    let armed = |allow| {
        page.armed_at(allow, model.last_key)
            .is_some_and(|t| t <= model.now)
    };
    let button = |allow: bool, word: &str, name| {
        let (open, close) = if page.allow == allow {
            ("[", "]")
        } else {
            (" ", " ")
        };
        (
            if armed(allow) && page.allow == allow {
                "page.armed"
            } else {
                "ui.text"
            },
            format!("{open}{} {word}{close}", key(name)),
        )
    };
    let mut x = row.x;
    let mut put = |scope: &str, text: &str| {
        let room = Rect::new(x, row.y, row.right().saturating_sub(x), 1);
        x += line::draw_text(buf, room, text, scene.theme.style(scope)) + 1;
    };
    for (scope, text) in [
        button(false, "Deny", Name::DenyAccess),
        button(true, "Allow", Name::AllowAccess),
    ] {
        put(scope, &text);
    }
    if below > 0 {
        let text = format!("{below} more rows below ({})", key(Name::PageDown));
        put("page.warn", &text);
    } else if !armed(page.allow) {
        put("ui.text.dim", "...");
    } else {
        let text = format!(
            "{}: as marked  {}: other  {}: later",
            key(Name::AnswerAccess),
            key(Name::OtherAnswer),
            key(Name::AskLater)
        );
        put("ui.text.dim", &text);
    }
}
