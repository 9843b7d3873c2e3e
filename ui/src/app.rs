//! Stand-in until the screen is merged.

use pvisor::protocol::Welcome;
use pvisor::session::client::Client;

/// Stand-in.
#[derive(Debug, Clone, Default)]
pub struct Options {}

/// Stand-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The person left; the session goes on.
    Detached,
}

/// Stand-in.
pub fn run(_client: Client, _welcome: Welcome, _options: Options) -> anyhow::Result<Exit> {
    Ok(Exit::Detached)
}
