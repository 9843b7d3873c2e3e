//! What a verb fails with: one message, its causes, hints and the exit status. Owns how an error
//! looks on standard error; everything in it is sanitised when it is printed.

use std::io::{self, Write};

use pvisor::config::{AnswersError, ConfigError, MountError};
use pvisor::paths::PathsError;
use pvisor::policy::RuleError;
use pvisor::protocol::Failure;
use pvisor::sandbox::SandboxError;
use pvisor::session::client::ClientError;
use pvisor::session::server::StartError;
use pvisor::session::store::StoreError;
use pvisor::text::visible;

use super::refuse;

/// Exit status when something was not found or was refused.
pub const REFUSED: u8 = 1;
/// Exit status of a mistake on the command line and of a failure.
pub const USAGE: u8 = 2;
/// Exit status of `run` when nothing could be run.
pub const NO_SANDBOX: u8 = 125;

/// Why a verb did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliError {
    status: u8,
    message: String,
    causes: Vec<String>,
    hints: Vec<String>,
}

impl CliError {
    fn new(status: u8, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            causes: Vec::new(),
            hints: Vec::new(),
        }
    }

    /// Not found, or refused.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(REFUSED, message)
    }

    /// A mistake on the command line.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    /// Something that should work did not.
    pub fn failure(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    /// What was attempted, around the error that came of it.
    pub fn while_doing(doing: impl Into<String>, error: impl std::fmt::Display) -> Self {
        let mut this = Self::new(USAGE, doing);
        this.causes.push(error.to_string());
        this
    }

    /// Adds what the person can do.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// The same error with another exit status.
    pub fn with_status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// What it came of.
    pub fn cause(&self) -> &str {
        self.causes.last().unwrap_or(&self.message)
    }

    /// The exit status.
    pub fn status(&self) -> u8 {
        self.status
    }

    /// Whether the reader of our output has gone: nothing is to be said then.
    pub fn is_silent(&self) -> bool {
        self.message.is_empty()
    }

    /// Prints it as `error:`, causes and `hint:` lines.
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        if self.is_silent() {
            return Ok(());
        }
        writeln!(out, "error: {}", lines(&self.message))?;
        for cause in &self.causes {
            writeln!(out, "  caused by: {}", lines(cause))?;
        }
        for hint in &self.hints {
            writeln!(out, "hint: {}", lines(hint))?;
        }
        Ok(())
    }
}

/// Sanitised; line breaks stay, indented, so that no name can begin a line of ours.
fn lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(|line| visible(line.as_bytes())).collect();
    lines.join("\n  ")
}

impl From<io::Error> for CliError {
    /// An error on our own standard output. A closed pipe is the reader's good right.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::new(0, "")
        } else {
            Self::while_doing("the output could not be written", error)
        }
    }
}

impl From<serde_json::Error> for CliError {
    fn from(error: serde_json::Error) -> Self {
        io::Error::from(error).into()
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        let message = error.to_string();
        match error {
            StoreError::Empty | StoreError::Discarded => {
                Self::refused(message).hint("`pvisor-tui run -- COMMAND` starts one")
            }
            StoreError::NotFound(_) => Self::refused(message)
                .hint("`pvisor-tui list` names them; `-s` takes the beginning of a name or id"),
            StoreError::Ambiguous(..) => Self::refused(message).hint("give one of these ids"),
            StoreError::File { .. } => Self::failure(message)
                .hint("`--state-dir DIR` or $XDG_STATE_HOME keeps sessions in another place"),
            StoreError::Record { .. } => Self::failure(message)
                .hint("what the session staged lies in the same directory, untouched"),
        }
    }
}

impl From<PathsError> for CliError {
    fn from(error: PathsError) -> Self {
        Self::failure(error.to_string())
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        let this = Self::usage(error.to_string());
        match error.hint() {
            Some(hint) => this.hint(hint),
            None => this,
        }
    }
}

impl From<RuleError> for CliError {
    fn from(error: RuleError) -> Self {
        Self::usage(error.to_string()).hint(error.hint())
    }
}

impl From<AnswersError> for CliError {
    fn from(error: AnswersError) -> Self {
        Self::usage(error.to_string())
            .hint("mend the file or remove it: without it, rules ask again")
    }
}

impl From<MountError> for CliError {
    fn from(error: MountError) -> Self {
        let this = Self::usage(error.to_string());
        match refuse::mount_hint(&error) {
            Some(hint) => this.hint(hint),
            None => this,
        }
    }
}

impl From<Failure> for CliError {
    fn from(failure: Failure) -> Self {
        let message = failure.to_string();
        match failure {
            Failure::UnknownPath(_) | Failure::UnknownItem(..) => {
                Self::usage(message).hint("`pvisor-tui changes` lists what there is")
            }
            Failure::Changed { .. } | Failure::Overtaken { .. } => {
                Self::refused(message).hint("look again with `pvisor-tui diff` before you decide")
            }
            Failure::UnknownAsk(_) => {
                Self::refused(message).hint("`pvisor-tui status` shows the questions that wait")
            }
            Failure::Running => {
                Self::refused(message).hint("`pvisor-tui stop` ends it; `attach` shows it")
            }
            Failure::NotRunning => {
                Self::refused(message).hint("`pvisor-tui run --continue -- COMMAND` starts another")
            }
            Failure::Role(_) | Failure::Discarded | Failure::NothingStaged | Failure::Other(_) => {
                Self::refused(message)
            }
            Failure::Access(_) => Self::failure(message),
            Failure::Version { .. } => Self::failure(message)
                .hint("the session was started by another version of pvisor-tui; use that one"),
        }
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Failed(failure) => failure.into(),
            lost => {
                Self::failure(lost.to_string()).hint("`pvisor-tui review` opens the session again")
            }
        }
    }
}

impl From<SandboxError> for CliError {
    fn from(error: SandboxError) -> Self {
        let SandboxError::Setup { doing, cause, hint } = error;
        let this = Self::while_doing(format!("the sandbox could not be made: {doing}"), cause);
        match hint {
            Some(hint) => this.hint(hint),
            None => this.hint("`pvisor-tui doctor` finds out what this machine lacks"),
        }
    }
}

impl From<StartError> for CliError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Sandbox(error) => error.into(),
            StartError::Store(error) => error.into(),
            StartError::Client(error) => error.into(),
            StartError::Running(id) => {
                Self::refused(format!("the command of session {id} is still running")).hint(
                    format!("`pvisor-tui attach {id}` shows it, `pvisor-tui stop {id}` ends it"),
                )
            }
            StartError::NoRoom(message) => Self::failure(message).hint(
                "`--state-dir DIR` or $XDG_STATE_HOME keeps sessions in another place; `pvisor-tui \
                 discard` gives up what an old one staged",
            ),
            StartError::Other(message) => Self::refused(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(error: &CliError) -> String {
        let mut out = Vec::new();
        error.print(&mut out).expect("written");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn causes_and_hints_follow_the_message() {
        let error = SandboxError::Setup {
            doing: "making a user namespace".into(),
            cause: "No space left on device".into(),
            hint: Some("sysctl user.max_user_namespaces=10000".into()),
        };
        assert_eq!(
            printed(&error.into()),
            "error: the sandbox could not be made: making a user namespace\n  caused by: No space \
             left on device\nhint: sysctl user.max_user_namespaces=10000\n"
        );
    }

    #[test]
    fn no_escape_byte_reaches_the_terminal() {
        let text = printed(&CliError::refused("a\u{1b}[2Jb\nerror: forged").hint("\u{7}x"));
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{7}'),
            "{text:?}"
        );
        assert_eq!(text.matches("\nerror:").count(), 0, "{text:?}");
    }

    #[test]
    fn a_store_that_cannot_be_used_names_the_way_out() {
        let error = StoreError::File {
            doing: "making",
            path: "/state/\u{1b}sessions".into(),
            source: io::ErrorKind::PermissionDenied.into(),
        };
        assert_eq!(
            printed(&error.into()),
            "error: making /state/\\x1bsessions: permission denied\nhint: `--state-dir DIR` or \
             $XDG_STATE_HOME keeps sessions in another place\n"
        );
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        let error = CliError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(error.is_silent());
        assert_eq!((error.status(), printed(&error)), (0, String::new()));
    }

    #[test]
    fn every_refusal_has_its_status() {
        assert_eq!(CliError::from(StoreError::Empty).status(), 1);
        assert_eq!(CliError::from(Failure::Running).status(), 1);
        let path = pvisor::LayerPath::new("workspace", pvisor::RelPath::root());
        assert_eq!(CliError::from(Failure::UnknownPath(path)).status(), 2);
        assert_eq!(CliError::from(ClientError::Closed).status(), 2);
    }
}
