//! What actions do: the one place where the model changes. Pure: what has to happen outside comes
//! back as effects.

mod ask;
mod decide;
mod leave;
mod navigate;
mod pages;
mod plan;
mod pointer;
mod replies;
mod resolve;
mod search;
mod talk;

pub use replies::{failed_to_send, loaded, message, replied, since_ready};
pub use resolve::edited;

use std::sync::Arc;

use crossterm::event::KeyEvent;
use pvisor::protocol::Request;
use pvisor::session::state::{RunState, SessionState};

use crate::action::{Action, Context, Name};
use crate::effect::Effect;
use crate::input::Input;
use crate::keymap::{Key, Keymap, Meaning};
use crate::model::dialog::Dialog;
use crate::model::{Model, Pane, Severity};

/// Loads under way at once; moving on never waits for them.
const LOADS: usize = 2;

/// Turns an input into its action, if it has one.
pub fn interpret(model: &mut Model, keymap: &Keymap, input: &Input) -> Option<Action> {
    let pending = model.pending.take();
    match keymap.meaning(input, model.context(), pending.as_ref()) {
        Meaning::Action(action) => Some(action),
        Meaning::Pending(first) => {
            model.pending = Some(first);
            model.last_key = model.now;
            None
        }
        Meaning::Nothing => match input {
            Input::Key(key) => Some(Action::Unbound(*key)),
            _ => None,
        },
    }
}

/// Carries an action out.
pub fn update(model: &mut Model, state: &SessionState, action: Action) -> Vec<Effect> {
    let just_left = std::mem::take(&mut model.agent.just_left);
    let typed = matches!(
        action,
        Action::Do(_)
            | Action::Insert(_)
            | Action::AgentKey(_)
            | Action::Paste(_)
            | Action::Unbound(_)
    );
    let before = model.last_key;
    if typed {
        model.last_key = model.now;
        model.notice = None;
    }
    match action {
        Action::Do(name) => {
            if model.layout.too_small && !alive_when_small(name) {
                return Vec::new();
            }
            named(model, state, name, before, just_left)
        }
        Action::Insert(c) => {
            if let Some(Dialog::Text(line)) = &mut model.dialog {
                line.text.push(c);
            }
            search::follow(model, state);
            Vec::new()
        }
        Action::AgentKey(key) => talk::key(model, state, &key),
        Action::Paste(text) => talk::paste(model, state, &text),
        Action::Pointer(event) => pointer::pointer(model, state, event),
        Action::Focused(focused) => talk::focused(model, state, focused),
        Action::Unbound(key) => {
            unbound(model, &key);
            Vec::new()
        }
        Action::Resized(_) => Vec::new(),
    }
}

/// A key without a meaning says so, and where the keys are listed.
fn unbound(model: &mut Model, event: &KeyEvent) {
    let key = Key::of(event).to_string();
    let help = model.keymap.key(Name::Help).unwrap_or_default();
    let text = match model.context() {
        Context::Confirm | Context::Quit | Context::Ask => format!("`{key}` answers nothing here."),
        Context::Text | Context::Agent => return,
        Context::Help | Context::Rules => format!("`{key}` does nothing here."),
        _ => format!("`{key}` does nothing here: `{help}` lists the keys."),
    };
    model.hint(pvisor::text::visible(text.as_bytes()));
}

/// On a screen too small to show what is decided, only ways back work.
fn alive_when_small(name: Name) -> bool {
    matches!(
        name,
        Name::Deny
            | Name::DenyAccess
            | Name::AskLater
            | Name::Cancel
            | Name::CancelText
            | Name::Quit
            | Name::Detach
            | Name::Suspend
            | Name::LeaveAgent
            | Name::Interrupt
    )
}

fn named(
    model: &mut Model,
    state: &SessionState,
    name: Name,
    last_key: std::time::Duration,
    just_left: bool,
) -> Vec<Effect> {
    match name {
        Name::Down
        | Name::Up
        | Name::HalfDown
        | Name::HalfUp
        | Name::PageDown
        | Name::PageUp
        | Name::Top
        | Name::Bottom
        | Name::RowToMiddle
        | Name::RowToTop
        | Name::RowToBottom
        | Name::Left
        | Name::Right => {
            navigate::scroll(model, name);
            Vec::new()
        }
        Name::NextHunk => navigate::hunk(model, true),
        Name::PreviousHunk => navigate::hunk(model, false),
        Name::NextFile => navigate::file(model, true),
        Name::PreviousFile => navigate::file(model, false),
        Name::Next => search::next(model, state, true),
        Name::Previous => search::next(model, state, false),
        Name::Search => pages::open_text(model, crate::model::dialog::TextFor::Search),
        Name::CommandLine => pages::open_text(model, crate::model::dialog::TextFor::Command),
        Name::NextPane => focus_by(model, 1),
        Name::PreviousPane => focus_by(model, 3),
        Name::PaneFiles => focus(model, Pane::Files),
        Name::PaneDiff => focus(model, Pane::Diff),
        Name::PaneAgent => focus(model, Pane::Agent),
        Name::PaneLog => focus(model, Pane::Log),
        // One pane at a time is no more than that.
        Name::Zoom => {
            if model.layout.tabs.is_empty() {
                model.zoom = true;
            } else {
                model.hint("This pane has the whole screen already.");
            }
            Vec::new()
        }
        Name::Unzoom => set(&mut model.zoom, false),
        Name::Approve => decide::approve(model, state),
        Name::ApproveNext => decide::approve_next(model, state),
        Name::Reject => decide::reject(model, state),
        Name::Reset => decide::reset(model, state),
        Name::WholeFile => decide::whole_file(model, state),
        Name::LineOrHunk => {
            model.diff.by_line = !model.diff.by_line;
            Vec::new()
        }
        Name::Range => {
            let at = model.diff.cursor;
            model.diff.anchor = match model.diff.anchor {
                Some(_) => None,
                None => Some(at),
            };
            Vec::new()
        }
        Name::Undo => decide::undo(model, state),
        Name::Redo => decide::redo(model),
        Name::Commit => pages::open_commit(model, state),
        Name::UndoCommit => pages::open_undo_commit(model, state),
        Name::Revert => decide::revert(model, state),
        Name::Resolve => resolve::open(model, state),
        Name::Wrap => {
            model.diff.left = 0;
            toggle(&mut model.diff.wrap)
        }
        Name::Invisibles => toggle(&mut model.diff.invisibles),
        Name::SinceSeen => navigate::since_seen(model, state),
        Name::Order => {
            use crate::model::list::Order;
            model.list.order = match model.list.order {
                Order::Risk => Order::Path,
                Order::Path => Order::Risk,
            };
            model.stale = true;
            model.hint(match model.list.order {
                Order::Risk => "Risk first, then by path.",
                Order::Path => "By path.",
            });
            Vec::new()
        }
        Name::Refresh if matches!(model.dialog, Some(Dialog::Rules(_))) => ask::observe(),
        Name::Refresh => vec![Effect::Ask(crate::effect::Purpose::Rescan, Request::Rescan)],
        Name::Mouse => {
            model.mouse = !model.mouse;
            let text = if model.mouse {
                "The mouse works here; hold shift to select text."
            } else {
                "The mouse selects text as usual; the same key turns it on again."
            };
            model.say(Severity::Info, text);
            vec![Effect::CaptureMouse(model.mouse)]
        }
        Name::Help => {
            model.dialog = Some(Dialog::Help { top: 0 });
            Vec::new()
        }
        Name::LeaveAgent => {
            model.focus = model.before_agent;
            model.zoom = false;
            model.agent.just_left = true;
            Vec::new()
        }
        Name::ToAgent => {
            let effects = focus(model, Pane::Agent);
            if just_left {
                return talk::literal_leave(model, state);
            }
            effects
        }
        Name::AgentHistoryUp => talk::history(model, 1),
        Name::AgentHistoryDown => talk::history(model, -1),
        Name::Accept => pages::accept(model, state, last_key),
        Name::Merge if pages::is_about_conflict(model) => {
            resolve::choose(model, state, name, last_key)
        }
        Name::Merge => pages::merge(model, state),
        Name::Ours | Name::Theirs | Name::Markers | Name::EditConflict => {
            resolve::choose(model, state, name, last_key)
        }
        Name::Deny => pages::deny(model),
        Name::AnswerAccess
        | Name::AllowAccess
        | Name::DenyAccess
        | Name::OtherAnswer
        | Name::AskLater
        | Name::ForOnce
        | Name::ForSession
        | Name::ForWorkspace
        | Name::ForUser
        | Name::AboutFile
        | Name::AboutDirectory
        | Name::AboutSuffix => ask::key(model, state, name, last_key),
        Name::Rules => ask::open_rules(model),
        Name::OpenAsk => ask::open_ask(model, state),
        Name::Forget => ask::forget(model, state),
        Name::AcceptText => pages::accept_text(model, state),
        Name::CancelText => {
            if let Some(Dialog::Text(line)) = model.dialog.take()
                && line.purpose == crate::model::dialog::TextFor::Search
            {
                model.search = None;
            }
            Vec::new()
        }
        Name::Erase | Name::EraseWord | Name::EraseLine => {
            pages::erase(model, name);
            search::follow(model, state);
            Vec::new()
        }
        Name::Quit => leave::quit(model),
        Name::Cancel => leave::cancel(model),
        Name::Detach => vec![Effect::Leave(crate::effect::Leave::Detach)],
        Name::StopAgent => leave::stop(model, state),
        Name::Discard => leave::discard(model, state),
        Name::Suspend => vec![Effect::Suspend],
        Name::Interrupt => {
            let quit = model.keymap.key(Name::Quit).unwrap_or_default();
            model.say(
                Severity::Info,
                format!("Nothing was interrupted: `{quit}` leaves, the agent has its own pane."),
            );
            Vec::new()
        }
    }
}

fn set(flag: &mut bool, to: bool) -> Vec<Effect> {
    *flag = to;
    Vec::new()
}

fn toggle(flag: &mut bool) -> Vec<Effect> {
    *flag = !*flag;
    Vec::new()
}

/// Gives a pane the focus.
fn focus(model: &mut Model, pane: Pane) -> Vec<Effect> {
    if pane == Pane::Agent && model.focus != Pane::Agent {
        model.before_agent = model.focus;
    }
    model.focus = pane;
    Vec::new()
}

fn focus_by(model: &mut Model, steps: usize) -> Vec<Effect> {
    let at = Pane::ALL
        .iter()
        .position(|p| *p == model.focus)
        .unwrap_or(0);
    focus(model, Pane::ALL[(at + steps) % Pane::ALL.len()])
}

/// Whether the agent's command runs.
fn running(state: &SessionState) -> bool {
    state.run == Some(RunState::Running)
}

/// Brings the model up to the state, right before a frame is drawn: what a person then acts on is
/// what they see.
pub fn settle(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    if model.stale {
        model.list.rebuild(state);
        model.stale = false;
    }
    model.said = state.said;
    let current = model
        .list
        .current()
        .and_then(|row| model.list.change(row))
        .map(|m| m.key.clone());
    model.diff.turn_to(current.as_ref());
    ask::settle(model, state);
    let mut effects = pages::refresh(model, state);
    if let Some(change) = current.and_then(|k| state.changes.get(&k))
        && !model.diff.fetch(change.digest)
    {
        let wanted = (change.key.clone(), change.digest);
        let failed = model
            .diff
            .failed
            .as_ref()
            .is_some_and(|(k, d, _)| (k, d) == (&wanted.0, &wanted.1));
        if !failed && !model.diff.loading.contains(&wanted) && model.diff.loading.len() < LOADS {
            model.diff.loading.push(wanted);
            effects.push(Effect::Load(Arc::clone(change)));
        }
    }
    effects
}

/// Whether keys go to the agent now.
pub fn in_agent(model: &Model) -> bool {
    model.context() == Context::Agent
}
