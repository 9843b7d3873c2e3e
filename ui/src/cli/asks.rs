//! Questions about paths in a line of text. Everything that comes from the agent is sanitised.

use pvisor::layer::Timestamp;
use pvisor::policy::access_word;
use pvisor::session::state::{Ask, SessionState};
use pvisor::text::visible;

use crate::model::ask::left;

/// `cat (pid 7) wants to read /w/.env`.
pub fn sentence(state: &SessionState, ask: &Ask) -> String {
    let what = &ask.what;
    let program = if what.program.is_empty() {
        "a process".to_owned()
    } else {
        visible(what.program.as_bytes()).into_owned()
    };
    let pid = match what.pid {
        0 => String::new(),
        pid => format!(" (pid {pid})"),
    };
    format!(
        "{program}{pid} wants to {} {}",
        access_word(what.access),
        visible(&state.absolute(&what.key))
    )
}

/// The question and how to answer it.
pub fn with_command(state: &SessionState, ask: &Ask, session: &str) -> String {
    format!(
        "{} (rule ask:{}); `pvisor-tui allow {session} {id}` or `deny {session} {id}`, denied in {}",
        sentence(state, ask),
        visible(ask.what.glob.as_bytes()),
        left(ask, Timestamp::now()),
        id = ask.id,
    )
}
