//! What comes from the server: agreed facts, the agent's bytes, answers to requests.

use pvisor::LayerPath;
use pvisor::commit::Outcome;
use pvisor::layer::Digest;
use pvisor::policy::message::Withdrawn;
use pvisor::protocol::{Failure, Reply, ServerMessage};
use pvisor::session::state::{AnsweredBy, SessionState, Update};

use super::pages;
use crate::effect::{Effect, Leave, Purpose};
use crate::model::dialog::Check;
use crate::model::document::Document;
use crate::model::{Model, Notice, Severity, marks};

/// Takes a message in. Returns whether anything on the screen may look different.
pub fn message(model: &mut Model, state: &mut SessionState, message: ServerMessage) -> bool {
    match message {
        ServerMessage::Update(update) => {
            note(model, &update);
            state.apply(&update);
            model.stale = true;
        }
        ServerMessage::Snapshot(snapshot) => {
            *state = *snapshot;
            model.stale = true;
        }
        ServerMessage::Output(_, bytes) => {
            // Only the server answers the agent's queries.
            drop(model.agent.emulator.feed(&bytes));
        }
        ServerMessage::Resized(size) => model.agent.emulator.resize(size),
        ServerMessage::Welcome(_) | ServerMessage::Refused(_) | ServerMessage::Reply(..) => {
            return false;
        }
    }
    true
}

fn note(model: &mut Model, update: &Update) {
    match update {
        Update::Exited { status, .. } => {
            // A dead command's mouse and paste modes must not outlive it.
            model.agent.emulator.release_input();
            model.say(
                Severity::Info,
                format!("The command has ended with status {}.", status.code()),
            );
        }
        // The state keeps it; here it is only shown.
        Update::Noticed(text) => {
            model.notice = Some(Notice {
                severity: Severity::Warning,
                text: pvisor::text::visible(text.as_bytes()).into_owned(),
            });
        }
        // Decisions of before were about other changes; the commit is now the last thing done.
        Update::Committed(_) => model.history.clear(),
        Update::Answered { ask, allow, by, .. } => answered(model, *ask, *allow, by),
        Update::Lost => model.say(
            Severity::Error,
            "The server was lost while the command ran.",
        ),
        _ => {}
    }
}

fn answered(model: &mut Model, ask: u64, allow: bool, by: &AnsweredBy) {
    let done = if allow { "allowed" } else { "denied" };
    let visible = |text: &String| pvisor::text::visible(text.as_bytes()).into_owned();
    match by {
        // Whoever ended the process knows; the end of the command is told as such.
        AnsweredBy::Nobody(Withdrawn::CallerGone | Withdrawn::GateGone) => {}
        AnsweredBy::Nobody(Withdrawn::TimedOut) => model.say(
            Severity::Warning,
            format!("Question {ask} was not answered in time: denied."),
        ),
        AnsweredBy::Person(who) | AnsweredBy::Unsaved(who) => model.say(
            Severity::Info,
            format!("Question {ask}: {done} by {}.", visible(who)),
        ),
        AnsweredBy::Remembered(who) => model.say(
            Severity::Info,
            format!("Question {ask}: {done} by an answer of {}.", visible(who)),
        ),
    }
}

/// Takes the answer to a request in.
pub fn replied(
    model: &mut Model,
    purpose: &Purpose,
    result: Result<Reply, Failure>,
) -> Vec<Effect> {
    if matches!(
        purpose,
        Purpose::Commit | Purpose::UndoCommit | Purpose::Revert | Purpose::Resolve
    ) {
        model.busy = None;
    }
    let reply = match result {
        Ok(reply) => reply,
        Err(failure) => {
            if let Purpose::Answer(ask) = purpose {
                model.answering.remove(ask);
            }
            failed(model, purpose, &failure);
            return Vec::new();
        }
    };
    match (purpose, reply) {
        (Purpose::Plan(number), Reply::Outcome(outcome)) => {
            pages::checked(model, *number, Check::Done(outcome));
        }
        (Purpose::Commit, Reply::Outcome(outcome)) => {
            say_outcome(model, "committed", &outcome);
        }
        (Purpose::UndoCommit, Reply::Outcome(outcome)) => say_outcome(model, "put back", &outcome),
        (Purpose::Revert, Reply::Concerned(keys)) => model.say(
            Severity::Info,
            format!("Taken back in the agent's view: {}.", names(&keys)),
        ),
        (Purpose::Revert, _) => model.say(Severity::Info, "Taken back in the agent's view."),
        (Purpose::Resolve, Reply::Concerned(keys)) => model.say(
            Severity::Info,
            format!("Settled in the agent's file: {}. Look at it.", names(&keys)),
        ),
        (Purpose::Marked(key), Reply::Marked(marked)) => match *marked {
            Ok(marked) => return vec![Effect::Edit(key.clone(), Box::new(marked))],
            Err(why) => {
                let why = pvisor::text::visible(why.as_bytes()).into_owned();
                model.say(Severity::Error, format!("{key}: {why}."));
            }
        },
        (Purpose::Rescan, _) => model.say(Severity::Info, "The change set is up to date."),
        (Purpose::Stop, _) => model.say(Severity::Info, "The command is being ended."),
        (Purpose::Observed, Reply::Observed(observed)) => {
            model.observed = observed.map(|observed| *observed);
        }
        (Purpose::Forget, _) => model.say(Severity::Info, "Forgotten: the rule asks again."),
        (Purpose::Discard, _) => return vec![Effect::Leave(Leave::Discarded)],
        _ => {}
    }
    Vec::new()
}

fn names(keys: &[LayerPath]) -> String {
    match keys {
        [key] => key.to_string(),
        many => format!("{} changes", many.len()),
    }
}

fn say_outcome(model: &mut Model, word: &str, outcome: &Outcome) {
    match outcome {
        Outcome::Committed { number, paths, .. } => model.say(
            Severity::Info,
            format!(
                "Commit {number}: {word} {}.",
                marks::count(paths.len(), "path")
            ),
        ),
        Outcome::Refused { refusals } => {
            for refusal in refusals.iter().rev() {
                model.say(
                    Severity::Error,
                    format!(
                        "{}: {}",
                        refusal.key,
                        pvisor::text::visible(refusal.reason.as_bytes())
                    ),
                );
            }
            if refusals.len() > 1 {
                model.say(
                    Severity::Error,
                    format!(
                        "Nothing was written: {} paths stand in the way, see the log.",
                        refusals.len()
                    ),
                );
            }
        }
        Outcome::Nothing => model.say(Severity::Info, "There was nothing to do."),
        Outcome::Planned { .. } => {}
        Outcome::Unsettled { number, reason, .. } => model.say(
            Severity::Error,
            format!(
                "Commit {number} is unsettled ({}): run `pvisor-tui recover`.",
                pvisor::text::visible(reason.as_bytes())
            ),
        ),
    }
}

fn failed(model: &mut Model, purpose: &Purpose, failure: &Failure) {
    let text = pvisor::text::visible(failure.to_string().as_bytes()).into_owned();
    if let Purpose::Plan(number) = purpose {
        pages::checked(model, *number, Check::Failed(text));
        return;
    }
    if let (Purpose::Decide, Failure::Changed { path, .. }) = (purpose, failure) {
        let seen = model.diff.seen(path).is_some_and(|s| s.after.is_some());
        let look = model
            .keymap
            .key(crate::action::Name::SinceSeen)
            .filter(|_| seen)
            .map(|key| format!(" `{key}` shows what changed."))
            .unwrap_or_default();
        model.say(
            Severity::Error,
            format!("{path} has changed since it was shown: nothing was decided.{look}"),
        );
        return;
    }
    if let Failure::Overtaken { path, .. } = failure {
        model.history.refused(path);
    }
    model.say(Severity::Error, text);
}

/// A request could not be sent: the connection is gone.
pub fn failed_to_send(model: &mut Model, purpose: &Purpose) {
    if let Purpose::Commit | Purpose::UndoCommit | Purpose::Revert | Purpose::Resolve = purpose {
        model.busy = None;
    }
    model.lost = true;
}

/// A diff was worked out, or could not be.
pub fn loaded(model: &mut Model, key: &LayerPath, asked: Digest, result: Result<Document, String>) {
    model.diff.loading.retain(|(k, d)| (k, *d) != (key, asked));
    match result {
        Ok(document) => {
            if document.digest != asked {
                // The change moved while it was read; its update asks again.
                model.diff.failed = Some((
                    key.clone(),
                    asked,
                    "It changed while it was read.".to_owned(),
                ));
            }
            model.diff.store(document);
        }
        Err(text) => model.diff.failed = Some((key.clone(), asked, text)),
    }
}

/// What changed since it was seen was worked out.
pub fn since_ready(model: &mut Model, document: Document) {
    let current = model
        .diff
        .document
        .as_ref()
        .is_some_and(|d| d.key == document.key && d.digest == document.digest);
    if current && model.diff.key.as_ref() == Some(&document.key) {
        model.diff.show_since(document);
    }
}
