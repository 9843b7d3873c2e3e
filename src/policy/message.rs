//! What the gate and the session say to each other, over a socket, in frames of
//! [`crate::protocol::codec`]. Owns the messages; no I/O.

use serde::{Deserialize, Serialize};

use super::{Answer, Level, Observations};
use crate::LayerPath;
use crate::overlay::Access;

/// An access that a rule speaks about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempted {
    /// Where; of a file with several names the one that is protected.
    pub key: LayerPath,
    /// What.
    pub access: Access,
    /// The calling process, as the host's process list numbers it; 0 when unknown.
    pub pid: u32,
    /// Its name (`/proc/PID/comm`), lossy text, as it came; empty when unknown.
    pub program: String,
    /// The glob of the rule.
    pub glob: String,
}

/// Why a question needs no answer any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Withdrawn {
    /// Nobody answered in time: denied.
    TimedOut,
    /// Who asked was ended: denied.
    CallerGone,
    /// The file server is gone, or the connection to it.
    GateGone,
}

/// From the gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// The operation waits.
    Asked {
        /// The gate's number for it.
        id: u64,
        /// What waits.
        what: Attempted,
        /// How long it will wait, in milliseconds.
        wait: u64,
    },
    /// It does not wait any more.
    Withdrawn {
        /// Which.
        id: u64,
        /// Why.
        why: Withdrawn,
    },
    /// A `warn` or `deny` rule has spoken: once per path and access.
    Remarked(Level, Attempted),
    /// So many remarks were left out, because there were too many.
    RemarksCut(u64),
    /// Counts since the last message of this kind.
    Observed(Observations),
    /// Everything that was counted before [`Told::Count`] came has been sent.
    Counted,
}

/// From the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// The answer to a question.
    Verdict {
        /// The gate's number.
        id: u64,
        /// Whether it may happen.
        allow: bool,
    },
    /// This answer settles questions from now on.
    Remember(Answer),
    /// It does not any more.
    Forget(Answer),
    /// The command has ended: what was counted shall be sent now. Answered by [`Said::Counted`].
    Count,
}
