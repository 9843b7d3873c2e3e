//! Questions of rules: when their page opens, what its keys do, and the page of rules.

use std::time::Duration;

use pvisor::policy::{Pattern, Scope};
use pvisor::protocol::{Request, Role};
use pvisor::session::state::SessionState;

use crate::action::Name;
use crate::effect::{Effect, Purpose};
use crate::model::ask::{AskPage, about};
use crate::model::dialog::{Dialog, IDLE};
use crate::model::rules::{RulesPage, Stands, rows};
use crate::model::{Model, Pane, Severity};

/// Brings the page up to the state: a question that was answered elsewhere goes, the next one comes
/// once no other page is open and the person does not type. It never comes over a line of text or
/// the agent's terminal, where the next key may be one of a sentence: there the footer tells of it.
pub fn settle(model: &mut Model, state: &SessionState) {
    model.waiting = !state.asks.is_empty();
    model.later.retain(|id| state.asks.contains_key(id));
    model.answering.retain(|id| state.asks.contains_key(id));
    if let Some(Dialog::Ask(page)) = &model.dialog
        && !state.asks.contains_key(&page.id)
    {
        model.dialog = None;
    }
    model.opens_at = None;
    model.held_back = None;
    if model.dialog.is_some() || model.role < Role::Driver || model.pending.is_some() {
        return;
    }
    let next = state
        .asks
        .keys()
        .find(|id| !model.later.contains(id) && !model.answering.contains(id));
    if let Some(id) = next {
        if model.focus == Pane::Agent {
            model.held_back = Some(*id);
            return;
        }
        let rests = model.last_key + IDLE;
        if model.last_key == Duration::ZERO || rests <= model.now {
            model.dialog = Some(Dialog::Ask(AskPage::new(*id)));
        } else {
            model.opens_at = Some(rests);
        }
    }
}

/// A key on the page of a question. `last_key` is when the key before it came.
pub fn key(model: &mut Model, state: &SessionState, name: Name, last_key: Duration) -> Vec<Effect> {
    let Some(Dialog::Ask(page)) = &mut model.dialog else {
        return Vec::new();
    };
    match name {
        Name::AnswerAccess => {
            let allow = page.allow;
            return answer(model, state, allow, last_key);
        }
        Name::AllowAccess => return answer(model, state, true, last_key),
        Name::DenyAccess => return answer(model, state, false, last_key),
        Name::OtherAnswer => page.allow = !page.allow,
        Name::ForOnce => {
            page.scope = Scope::Once;
            page.pattern = Pattern::File;
        }
        Name::ForSession => page.scope = Scope::Session,
        Name::ForWorkspace => page.scope = Scope::Workspace,
        Name::ForUser => page.scope = Scope::User,
        Name::AboutFile => page.pattern = Pattern::File,
        Name::AboutDirectory => wider(page, Pattern::Directory),
        Name::AboutSuffix => {
            let ask = state.asks.get(&page.id);
            if ask.is_some_and(|ask| about(state, ask, Pattern::Suffix).is_some()) {
                wider(page, Pattern::Suffix);
            } else {
                model.hint("This name has no suffix.");
            }
        }
        Name::AskLater => {
            let id = page.id;
            model.later.insert(id);
            model.dialog = None;
            let key = model.keymap.key(Name::Rules).unwrap_or_default();
            model.hint(format!(
                "The command goes on waiting: `{key}` lists the questions."
            ));
        }
        _ => {}
    }
    Vec::new()
}

/// More than the one path is about more than the one operation.
fn wider(page: &mut AskPage, pattern: Pattern) {
    page.pattern = pattern;
    if page.scope == Scope::Once {
        page.scope = Scope::Session;
    }
}

fn answer(model: &mut Model, state: &SessionState, allow: bool, last_key: Duration) -> Vec<Effect> {
    let Some(Dialog::Ask(page)) = &model.dialog else {
        return Vec::new();
    };
    if page.armed_at(allow, last_key).is_none_or(|t| t > model.now) {
        let why = if allow && !page.shown_to_end() {
            "Read to the end first: nothing was answered."
        } else {
            "Too soon: nothing was answered. Look, then press the key once."
        };
        model.say(Severity::Warning, why);
        return Vec::new();
    }
    let page = page.clone();
    model.dialog = None;
    if !state.asks.contains_key(&page.id) {
        return Vec::new();
    }
    model.answering.insert(page.id);
    vec![Effect::Ask(
        Purpose::Answer(page.id),
        Request::Answer {
            ask: page.id,
            allow,
            scope: page.scope,
            pattern: page.pattern,
        },
    )]
}

/// o: the page of rules, and a fresh look at what was counted.
pub fn open_rules(model: &mut Model) -> Vec<Effect> {
    model.dialog = Some(Dialog::Rules(RulesPage::default()));
    observe()
}

/// Asks what was counted by now.
pub fn observe() -> Vec<Effect> {
    vec![Effect::Ask(Purpose::Observed, Request::Observed)]
}

/// enter on the page of rules: the question under the cursor.
pub fn open_ask(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    let Some(Dialog::Rules(page)) = &model.dialog else {
        return Vec::new();
    };
    let rows = rows(state, model.observed.as_ref());
    match rows.get(page.cursor).map(|row| &row.stands) {
        Some(Stands::Ask(id)) if model.role >= Role::Driver => {
            model.later.remove(id);
            model.dialog = Some(Dialog::Ask(AskPage::new(*id)));
        }
        Some(Stands::Ask(_)) => {
            model.say(Severity::Warning, "Answering needs the role driver.");
        }
        _ => model.hint("There is no question in this row."),
    }
    Vec::new()
}

/// x on the page of rules, twice: the answer under the cursor is forgotten.
pub fn forget(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    let rows = rows(state, model.observed.as_ref());
    let role = model.role;
    let Some(Dialog::Rules(page)) = &mut model.dialog else {
        return Vec::new();
    };
    let Some(Stands::Answer(answer)) = rows.get(page.cursor).map(|row| row.stands.clone()) else {
        model.hint("There is no remembered answer in this row.");
        return Vec::new();
    };
    if role < Role::Driver {
        model.say(
            Severity::Warning,
            "Forgetting an answer needs the role driver.",
        );
        return Vec::new();
    }
    if page.forgetting.as_ref() == Some(&answer) {
        page.forgetting = None;
        return vec![Effect::Ask(Purpose::Forget, Request::Forget(answer))];
    }
    page.forgetting = Some(answer);
    let key = model.keymap.key(Name::Forget).unwrap_or_default();
    model.hint(format!(
        "`{key}` once more forgets this answer: the rule asks again."
    ));
    Vec::new()
}
