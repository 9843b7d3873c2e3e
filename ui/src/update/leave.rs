//! One level back, and the question how to leave.

use pvisor::protocol::{Request, Role};
use pvisor::session::state::SessionState;

use super::pages;
use crate::effect::{Effect, Purpose};
use crate::model::dialog::{Dialog, Subject};
use crate::model::{Model, Severity};

/// q: closes a page or the zoom, else asks.
pub fn quit(model: &mut Model) -> Vec<Effect> {
    if model.dialog.take().is_some() {
        return Vec::new();
    }
    if model.zoom && !model.layout.too_small {
        model.zoom = false;
        return Vec::new();
    }
    model.dialog = Some(Dialog::Quit);
    Vec::new()
}

/// esc: range, since, search, zoom, page: the nearest one.
pub fn cancel(model: &mut Model) -> Vec<Effect> {
    if model.dialog.take().is_some() || model.diff.anchor.take().is_some() {
        return Vec::new();
    }
    if model.diff.leave_since() {
        return Vec::new();
    }
    if model.search.take().is_none() {
        model.zoom = false;
    }
    Vec::new()
}

/// s on the question: end the command and stay.
pub fn stop(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    model.dialog = None;
    if model.role < Role::Driver {
        model.say(
            Severity::Warning,
            "Ending the command needs the role driver.",
        );
        return Vec::new();
    }
    if !super::running(state) {
        model.say(Severity::Info, "No command is running.");
        return Vec::new();
    }
    vec![Effect::Ask(Purpose::Stop, Request::Stop)]
}

/// T on the question: throw the staged side away, after another page.
pub fn discard(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    model.dialog = None;
    if model.role < Role::Driver {
        model.say(
            Severity::Warning,
            "Throwing the staged side away needs the role driver.",
        );
        return Vec::new();
    }
    if super::running(state) {
        model.say(
            Severity::Warning,
            "The command is still running: stop it first, then throw the staged side away.",
        );
        return Vec::new();
    }
    pages::open_page(model, state, Subject::Discard, &[])
}
