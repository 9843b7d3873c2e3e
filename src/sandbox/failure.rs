//! Why a step of the set-up failed, in a form that travels from the helper to the server. Owns
//! the wording of causes and remedies by errno; [`super::probe`] finds out what lies behind them.

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::SandboxError;
use super::probe;

/// A failed step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Failure {
    /// The step, e.g. `making a user namespace`.
    pub doing: String,
    /// What went wrong.
    pub cause: String,
    /// What mends it.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure told in words.
    pub fn new(doing: impl Into<String>, cause: impl Into<String>) -> Self {
        Self {
            doing: doing.into(),
            cause: cause.into(),
            hint: None,
        }
    }

    /// The same with a remedy.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A failed system call, explained as far as this machine's settings tell.
    pub fn call(doing: impl Into<String>, errno: Errno) -> Self {
        let (cause, hint) = probe::explain(errno);
        Self {
            doing: doing.into(),
            cause,
            hint,
        }
    }
}

impl From<Failure> for SandboxError {
    fn from(failure: Failure) -> Self {
        SandboxError::Setup {
            doing: failure.doing,
            cause: failure.cause,
            hint: failure.hint,
        }
    }
}

/// Names the step whose call failed.
pub(super) trait Doing<T> {
    /// Turns an errno into a [`Failure`] of this step.
    fn doing(self, step: &str) -> Result<T, Failure>;

    /// The same for a step on a path.
    fn doing_at(self, step: &str, path: &std::path::Path) -> Result<T, Failure>;
}

impl<T, E: Into<RawErrno>> Doing<T> for Result<T, E> {
    fn doing(self, step: &str) -> Result<T, Failure> {
        self.map_err(|e| Failure::call(step, e.into().0))
    }

    fn doing_at(self, step: &str, path: &std::path::Path) -> Result<T, Failure> {
        self.map_err(|e| Failure::call(format!("{step} {}", shown(path)), e.into().0))
    }
}

/// An errno, wherever it came from.
pub(super) struct RawErrno(pub Errno);

impl From<Errno> for RawErrno {
    fn from(errno: Errno) -> Self {
        Self(errno)
    }
}

impl From<std::io::Error> for RawErrno {
    fn from(error: std::io::Error) -> Self {
        Self(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
    }
}

/// A path as it may be shown.
pub(super) fn shown(path: &std::path::Path) -> String {
    crate::text::visible_path(path).into_owned()
}
