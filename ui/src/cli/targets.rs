//! From what was typed to what a request is about, against a session's change set. The grammar is
//! [`super::address`]'s; this adds the one look at the file system it needs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pvisor::protocol::Target;
use pvisor::session::state::SessionState;
use pvisor::session::store::SessionRecord;

use super::address::{AddressError, Addressing};
use super::error::CliError;

/// Whether items may be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Items {
    /// PATH#ITEM is understood.
    Allowed,
    /// Paths only.
    Refused,
}

/// One target per argument; all are looked up before any is used.
pub fn resolve(
    record: &SessionRecord,
    state: &SessionState,
    typed: &[Vec<u8>],
    items: Items,
) -> Result<Vec<Target>, CliError> {
    let addressing = Addressing {
        layers: &record.info.layers,
        changes: &state.changes,
    };
    let one = |typed: &[u8]| match items {
        Items::Allowed => addressing.target(typed),
        Items::Refused => addressing.path_target(typed),
    };
    typed
        .iter()
        .map(|typed| match one(typed) {
            Err(AddressError::Outside(_)) => one(&through_links(typed)),
            other => other,
        })
        .collect::<Result<_, _>>()
        .map_err(|error: AddressError| {
            CliError::usage(error.to_string()).hint(
                "paths are relative to the workspace's root; `pvisor-tui changes` lists what \
                 there is",
            )
        })
}

/// Layers are known by their real paths: a home directory reached through a link is found so. The
/// last part stays, it may itself be a changed link.
fn through_links(typed: &[u8]) -> Vec<u8> {
    let path = Path::new(OsStr::from_bytes(typed));
    let real = path
        .parent()
        .zip(path.file_name())
        .and_then(|(parent, name)| Some(parent.canonicalize().ok()?.join(name)));
    real.map_or_else(
        || typed.to_vec(),
        |path| path.as_os_str().as_bytes().to_vec(),
    )
}
