//! Conflicts: the page that says how a change stands to what the host has made of its file, and what
//! a person chooses. What is chosen is written into the agent's view; the host never is.

use std::time::Duration;

use pvisor::LayerPath;
use pvisor::change::{Change, Conflict, Merges};
use pvisor::layer::Digest;
use pvisor::merge::Standing;
use pvisor::protocol::{MarkedFile, Request, Resolution, Role};
use pvisor::session::state::SessionState;

use super::pages;
use crate::action::Name;
use crate::effect::{Effect, Purpose};
use crate::model::dialog::{Choices, Dialog, PageLine, Subject, Tone};
use crate::model::marks::count;
use crate::model::{Model, Pane, Severity};

/// r: the conflict under the cursor.
pub fn open(model: &mut Model, state: &SessionState) -> Vec<Effect> {
    if model.role < Role::Driver {
        model.say(
            Severity::Warning,
            "Settling a conflict needs the role driver.",
        );
        return Vec::new();
    }
    if let Some(busy) = model.busy {
        model.say(Severity::Warning, format!("The {busy} is not done yet."));
        return Vec::new();
    }
    let key = match model.focus {
        Pane::Diff => model.diff.key.clone(),
        _ => model
            .list
            .current()
            .and_then(|row| model.list.change(row))
            .map(|member| member.key.clone()),
    };
    let Some(change) = key.as_ref().and_then(|key| state.changes.get(key)) else {
        return Vec::new();
    };
    if change.conflict.is_none() {
        model.hint("The host has not touched this: there is no conflict.");
        return Vec::new();
    }
    let key = change.key.clone();
    pages::open_page(model, state, Subject::Resolve(key), &[])
}

/// What can be made of a conflict.
pub fn choices(change: &Change) -> Choices {
    let whole = matches!(
        change.conflict,
        Some(
            Conflict::HostModified
                | Conflict::HostCreated
                | Conflict::HostDeleted
                | Conflict::HostTypeChanged
        )
    );
    match (&change.conflict, &change.merges) {
        (None, _) => Choices::default(),
        (Some(Conflict::Markers), _) => Choices {
            sides: true,
            edit: true,
            ..Choices::default()
        },
        (_, Some(merges)) => Choices {
            merge: merges.is_clean(),
            sides: true,
            markers: !merges.is_clean(),
            edit: true,
        },
        (_, None) => Choices {
            sides: whole && change.from().is_none(),
            ..Choices::default()
        },
    }
}

/// What the page about a conflict says, and the hash that names exactly that.
pub fn describe(model: &Model, state: &SessionState, key: &LayerPath) -> (Digest, Vec<PageLine>) {
    let Some((change, conflict)) = state
        .changes
        .get(key)
        .and_then(|change| Some((change, change.conflict.as_ref()?)))
    else {
        let text = format!("{key} is in no conflict any more.");
        return (Digest::of(b""), vec![PageLine::new(Tone::Head, text)]);
    };
    let head = format!("Settle the conflict in {key}, in the agent's view:");
    let mut lines = vec![PageLine::new(Tone::Head, head)];
    let mut say = |tone, text: String| lines.push(PageLine::new(tone, text));
    say(Tone::Bad, format!("  {}", conflict.describe()));
    if let Some(merges) = &change.merges {
        let tone = if merges.is_clean() {
            Tone::Plain
        } else {
            Tone::Bad
        };
        say(tone, format!("  {}", merges.describe()));
        if let Merges::Conflicts { regions, .. } = merges {
            for region in regions {
                say(
                    Tone::Warn,
                    format!("    both changed {}", region.describe()),
                );
            }
        }
        let (Merges::Clean { hunks } | Merges::Conflicts { hunks, .. }) = merges;
        for standing in [Standing::Applies, Standing::Merges, Standing::Conflicts] {
            let n = hunks.iter().filter(|(_, s)| *s == standing).count();
            if n > 0 {
                say(
                    Tone::Plain,
                    format!("  {}: {}", count(n, "hunk"), standing.name()),
                );
            }
        }
    }
    say(Tone::Plain, String::new());
    let can = choices(change);
    let offers = [
        (can.merge, Name::Merge, "both sides' edits, merged"),
        (can.sides, Name::Ours, ours(change)),
        (can.sides, Name::Theirs, theirs(change)),
        (
            can.markers,
            Name::Markers,
            "both between conflict markers; not committed while they are there",
        ),
        (
            can.edit,
            Name::EditConflict,
            "edit it in $VISUAL or $EDITOR",
        ),
        (true, Name::Deny, "leave it: a commit refuses the file"),
    ];
    for (offered, name, text) in offers {
        if offered {
            let key = model.keymap.key(name).unwrap_or_default();
            say(Tone::Plain, format!("  {key:>5}  {text}"));
        }
    }
    say(Tone::Plain, String::new());
    if change.merges.is_some() {
        let text = "Where edits do not meet both sides' stay, whatever is chosen.";
        say(Tone::Plain, text.into());
    }
    let text = "The result is written into the agent's file; the host is not touched.";
    say(Tone::Plain, text.into());
    let text = "What is not taken of the agent's edits is gone then.";
    say(Tone::Warn, text.into());
    let mut named = change.digest.0.to_vec();
    named.extend(format!("{conflict:?} {:?}", change.merges).into_bytes());
    (Digest::of(&named), lines)
}

fn ours(change: &Change) -> &'static str {
    if choices(change).edit {
        "ours: the host's edits where edits meet"
    } else {
        "ours: the host's entry as a whole"
    }
}

fn theirs(change: &Change) -> &'static str {
    if choices(change).edit {
        "theirs: the agent's edits where edits meet"
    } else {
        "theirs: the agent's entry as a whole, over the host's"
    }
}

/// One of the page's keys.
pub fn choose(
    model: &mut Model,
    state: &SessionState,
    name: Name,
    last_key: Duration,
) -> Vec<Effect> {
    let Some(Dialog::Confirm(page)) = &model.dialog else {
        return Vec::new();
    };
    let Subject::Resolve(key) = &page.subject else {
        model.say(Severity::Warning, "There is no conflict to settle here.");
        return Vec::new();
    };
    let key = key.clone();
    let Some(change) = state.changes.get(&key) else {
        model.dialog = None;
        model.say(Severity::Warning, "This is no longer a change.");
        return Vec::new();
    };
    let can = choices(change);
    let how = match name {
        Name::Merge if can.merge => Some(Resolution::Merge),
        Name::Ours if can.sides => Some(Resolution::Ours),
        Name::Theirs if can.sides => Some(Resolution::Theirs),
        Name::Markers if can.markers => Some(Resolution::Markers),
        Name::EditConflict if can.edit => None,
        _ => {
            model.say(Severity::Warning, "The page does not offer that.");
            return Vec::new();
        }
    };
    if !pages::is_armed(model, last_key) {
        return Vec::new();
    }
    let expect = change.digest;
    model.dialog = None;
    let Some(how) = how else {
        return vec![Effect::Ask(
            Purpose::Marked(key.clone()),
            Request::Marked(key),
        )];
    };
    ask(model, key, expect, how)
}

fn ask(model: &mut Model, key: LayerPath, expect: Digest, how: Resolution) -> Vec<Effect> {
    model.busy = Some("settling of the conflict");
    let request = Request::Resolve { key, expect, how };
    vec![Effect::Ask(Purpose::Resolve, request)]
}

/// The person's editor has ended.
pub fn edited(
    model: &mut Model,
    key: LayerPath,
    marked: &MarkedFile,
    result: Result<Option<Vec<u8>>, String>,
) -> Vec<Effect> {
    // Whatever was typed belonged to the editor.
    model.last_key = model.now;
    match result {
        Ok(Some(bytes)) => {
            let host = marked.host;
            let how = Resolution::Edited { bytes, host };
            ask(model, key, marked.digest, how)
        }
        Ok(None) => {
            model.say(Severity::Info, "Nothing was edited: it is left as it was.");
            Vec::new()
        }
        Err(text) => {
            model.say(Severity::Error, text);
            Vec::new()
        }
    }
}
