//! Effects: what an action wants done outside the model. Owns the list; the application carries
//! them out.

use std::sync::Arc;

use pvisor::LayerPath;
use pvisor::change::Change;
use pvisor::layer::Digest;
use pvisor::protocol::{MarkedFile, Request};

/// Why a request was sent; comes back with its reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// A decision.
    Decide,
    /// A dry run for the plan with this number.
    Plan(u64),
    /// The commit.
    Commit,
    /// Undo of the last commit.
    UndoCommit,
    /// Changes taken back in the agent's view.
    Revert,
    /// A conflict settled in the agent's view.
    Resolve,
    /// What is to be edited of this change.
    Marked(LayerPath),
    /// A new scan.
    Rescan,
    /// The end of the command.
    Stop,
    /// The end of the staged side.
    Discard,
    /// The answer to the question of this number.
    Answer(u64),
    /// An answer that is to be forgotten.
    Forget,
    /// What was counted.
    Observed,
}

/// How the screen is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// The session stays as it is.
    Detach,
    /// The staged side was thrown away.
    Discarded,
}

/// Something to be done outside the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send a request nobody answers (input for the agent).
    Send(Request),
    /// Send a request and come back with its reply.
    Ask(Purpose, Request),
    /// Fetch both sides of this change and work out its diff.
    Load(Arc<Change>),
    /// Work out what changed between the side that was seen before and the side that is there now.
    Since {
        /// Which change.
        key: LayerPath,
        /// Its digest now.
        digest: Digest,
        /// The side seen before.
        old: Arc<Vec<u8>>,
        /// The side that is there now.
        new: Arc<Vec<u8>>,
    },
    /// Let the person edit a merge, and come back with what they made of it.
    Edit(LayerPath, Box<MarkedFile>),
    /// Turn mouse reporting on or off.
    CaptureMouse(bool),
    /// Suspend this process; the session goes on.
    Suspend,
    /// Leave the screen.
    Leave(Leave),
}
