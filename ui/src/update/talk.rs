//! The agent's terminal: keys, pastes and the focus go there as its modes want them.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use pvisor::protocol::{Request, Role};
use pvisor::session::state::SessionState;

use crate::action::{Context, Name};
use crate::agent::{encode_focus, encode_key, encode_paste};
use crate::effect::Effect;
use crate::model::dialog::Dialog;
use crate::model::{Model, Severity};

/// Lines one step through the history scrolls.
const STEP: i32 = 10;

fn may_type(model: &mut Model, state: &SessionState) -> bool {
    let leave = model.keymap.key(Name::LeaveAgent).unwrap_or_default();
    if !super::running(state) {
        model.say(
            Severity::Info,
            format!("The command has ended: `{leave}` leaves this pane."),
        );
        return false;
    }
    if model.role < Role::Driver {
        model.say(
            Severity::Warning,
            format!("Only the driver types here; `{leave}` leaves this pane."),
        );
        return false;
    }
    true
}

fn send(bytes: Option<Vec<u8>>) -> Vec<Effect> {
    bytes
        .filter(|b| !b.is_empty())
        .map(|b| Effect::Send(Request::Input(b)))
        .into_iter()
        .collect()
}

/// A key for the agent.
pub fn key(model: &mut Model, state: &SessionState, key: &KeyEvent) -> Vec<Effect> {
    if !may_type(model, state) {
        return Vec::new();
    }
    model.agent.emulator.scroll_to_bottom();
    let modes = model.agent.emulator.modes();
    send(encode_key(key, &modes))
}

/// The key that leaves the pane, sent to the agent because it came twice.
pub fn literal_leave(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    let event = KeyEvent::new(KeyCode::Char(']'), KeyModifiers::CONTROL);
    key(model, state, &event)
}

/// Pasted text: into a line of text or to the agent; nowhere else does it mean anything.
pub fn paste(model: &mut Model, state: &SessionState, text: &str) -> Vec<Effect> {
    match model.context() {
        Context::Agent => {
            if !may_type(model, state) {
                return Vec::new();
            }
            model.agent.emulator.scroll_to_bottom();
            let modes = model.agent.emulator.modes();
            send(Some(encode_paste(text, &modes)))
        }
        Context::Text => {
            if let Some(Dialog::Text(line)) = &mut model.dialog {
                // One line: what would end it becomes a blank.
                let one_line: String = text
                    .chars()
                    .map(|c| if c.is_control() { ' ' } else { c })
                    .collect();
                line.text.push_str(&one_line);
            }
            super::search::follow(model, state);
            Vec::new()
        }
        _ => {
            model.say(
                Severity::Info,
                "Pasted text does nothing here: it goes to the agent's pane or to a line of text.",
            );
            Vec::new()
        }
    }
}

/// Our terminal gained or lost the focus.
pub fn focused(model: &mut Model, state: &SessionState, focused: bool) -> Vec<Effect> {
    if !super::in_agent(model) || !super::running(state) || model.role < Role::Driver {
        return Vec::new();
    }
    let modes = model.agent.emulator.modes();
    send(encode_focus(focused, &modes))
}

/// Through the history, up (1) or down (-1).
pub fn history(model: &mut Model, direction: i32) -> Vec<Effect> {
    model.agent.emulator.scroll(direction * STEP);
    Vec::new()
}
