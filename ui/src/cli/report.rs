//! Sentences about changes and outcomes for standard output and standard error. Owns their wording;
//! every name in them is sanitised.

use std::fmt::Write as _;

use pvisor::LayerPath;
use pvisor::change::{Change, ChangeSet};
use pvisor::commit::Outcome;
use pvisor::sandbox::Mode;
use pvisor::session::state::SessionState;

use super::context::shown;
use super::json::Counts;

/// So many names are written out after a count.
const NAMED: usize = 10;

/// "3 changes", "1 change".
pub fn changes(number: usize) -> String {
    format!("{number} change{}", if number == 1 { "" } else { "s" })
}

/// "3 changes (2 added, 1 deleted)".
pub fn counted<'a>(set: impl Iterator<Item = &'a Change> + Clone) -> String {
    let number = set.clone().count();
    let words: Vec<_> = Counts::of(set)
        .words()
        .into_iter()
        .map(|(word, number)| format!("{number} {word}"))
        .collect();
    if words.is_empty() {
        "no changes".into()
    } else {
        format!("{} ({})", changes(number), words.join(", "))
    }
}

/// "approved 2 changes: a, b".
pub fn concerned(done: &str, keys: &[LayerPath]) -> String {
    let mut line = format!("{done} {}", changes(keys.len()));
    for (n, key) in keys.iter().take(NAMED).enumerate() {
        let _ = write!(line, "{} {key}", if n == 0 { ":" } else { "," });
    }
    if keys.len() > NAMED {
        let _ = write!(line, ", and {} more", keys.len() - NAMED);
    }
    line
}

/// What is left of a run, and how to go on: one line for standard error.
pub fn last_word(session: &str, state: &SessionState) -> String {
    if state
        .info
        .as_ref()
        .is_some_and(|info| info.mode == Mode::Host)
    {
        return format!(
            "pvisor-tui: session {session} ran in mode host: what it changed is on the host already"
        );
    }
    let staged = state
        .changes
        .values()
        .map(|change| &**change)
        .filter(|c| !pvisor::layer::is_of_home(&c.key.layer));
    let at_home = state.changes.len() - staged.clone().count();
    let mut line = format!("pvisor-tui: session {session}: {}", counted(staged));
    if at_home > 0 {
        let _ = write!(line, ", {at_home} in the home directory");
    }
    if state.changes.is_empty() {
        line.push_str(" staged");
    } else {
        let _ = write!(
            line,
            " staged, the host is untouched; see `pvisor-tui diff {session}`, `pvisor-tui review \
             {session}`, {}",
            if at_home < state.changes.len() {
                format!("`pvisor-tui commit {session} --all`")
            } else {
                approve_at_home(session)
            }
        );
    }
    line
}

/// How what lies in the home directory is committed, which nothing takes along.
fn approve_at_home(session: &str) -> String {
    format!("`pvisor-tui approve {session} home:...` then `pvisor-tui commit {session}`")
}

/// What `commit --all` says where there are changes, but in the home directory only.
pub fn only_at_home(session: &str, changes: &ChangeSet) -> Option<String> {
    let at_home = |key: &LayerPath| pvisor::layer::is_of_home(&key.layer);
    if changes.is_empty() || !changes.keys().all(at_home) {
        return None;
    }
    let (number, are) = match changes.len() {
        1 => (self::changes(1), "is"),
        many => (self::changes(many), "are"),
    };
    Some(format!(
        "nothing to commit; {number} {are} in the home directory: {}",
        approve_at_home(session)
    ))
}

/// How to come back to a session whose command has ended: one line for standard error.
pub fn come_back(session: &str) -> String {
    format!(
        "pvisor-tui: session {session} stays as it is; `pvisor-tui review {session}` shows it \
         again, `pvisor-tui run --continue {session} -- COMMAND` goes on, `pvisor-tui discard \
         {session}` throws it away"
    )
}

/// How a commit (or an undo) ended, one or more lines.
pub fn outcome(outcome: &Outcome, undo: bool) -> String {
    match outcome {
        Outcome::Committed { number, paths, .. } if undo => {
            format!("undone (as commit {number}): {}", named(paths, &[]))
        }
        Outcome::Committed {
            number,
            paths,
            merged,
        } => format!("commit {number}: {}", named(paths, merged)),
        Outcome::Planned { paths, merged } => format!("would write {}", named(paths, merged)),
        Outcome::Nothing if undo => "nothing to undo".into(),
        Outcome::Nothing => "nothing to commit: no change is approved".into(),
        Outcome::Refused { refusals } => {
            let mut text = String::from("refused, and nothing was written:");
            for refusal in refusals {
                let _ = write!(text, "\n{}: {}", refusal.key, refusal.reason);
            }
            text
        }
        Outcome::Unsettled {
            number,
            reason,
            ledger,
        } => format!(
            "commit {number} is unsettled: {reason}; its ledger lies at {}",
            shown(ledger)
        ),
    }
}

fn named(paths: &[LayerPath], merged: &[LayerPath]) -> String {
    let mut text = changes(paths.len());
    for key in paths {
        let _ = write!(text, "\n  {key}");
        if merged.contains(key) {
            text.push_str(" (merged with the host's edits)");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use pvisor::RelPath;

    use super::*;
    use crate::cli::fixture::change;

    #[test]
    fn hostile_names_are_shown_not_obeyed() {
        let key = LayerPath::new("workspace", RelPath::new(*b"\x1b[2J\n\xff").expect("path"));
        let line = concerned("approved", std::slice::from_ref(&key));
        assert!(line.starts_with("approved 1 change: "), "{line:?}");
        assert!(!line.contains('\u{1b}') && !line.contains('\n'), "{line:?}");
        let text = outcome(
            &Outcome::Committed {
                number: 1,
                paths: vec![key],
                merged: Vec::new(),
            },
            false,
        );
        assert_eq!(text.lines().count(), 2, "{text:?}");
    }

    #[test]
    fn the_last_word_counts_and_tells_how_to_go_on() {
        let mut state = SessionState::default();
        assert_eq!(
            last_word("x", &state),
            "pvisor-tui: session x: no changes staged"
        );
        for change in [
            change("workspace", b"a", &[]),
            change("home", b".profile", &[]),
        ] {
            state.changes.insert(change.key.clone(), change.into());
        }
        let line = last_word("x", &state);
        assert!(line.contains("commit x --all"), "{line}");
        assert_eq!(only_at_home("x", &state.changes), None);
        assert!(
            line.contains("1 change (1 modified), 1 in the home directory"),
            "{line}"
        );
        assert!(
            line.contains("pvisor-tui review x") && !line.contains('\n'),
            "{line}"
        );
        state.changes.retain(|key, _| key.layer == "home");
        let line = last_word("x", &state);
        let how = "`pvisor-tui approve x home:...` then `pvisor-tui commit x`";
        assert!(line.ends_with(how) && !line.contains("--all"), "{line}");
        let text = only_at_home("x", &state.changes).expect("only there");
        assert!(
            text.contains("nothing to commit; 1 change is in the home directory: `pv"),
            "{text}"
        );
    }
}
