//! Diagnostics of the command line's own process. Owns their file, `pvisor-tui.log` in the state
//! directory; nothing is written unless `PVISOR_TUI_LOG` says what (as `RUST_LOG` would).

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

use tracing_subscriber::EnvFilter;

use pvisor::reserve::Forgiving;

use super::context::Context;

/// Starts logging when it is wanted. The file is opened for each line: this process may fork a
/// server, which closes every descriptor it does not know.
pub fn start(context: &Context) {
    let Some(filter) = context
        .environment
        .get(std::ffi::OsStr::new("PVISOR_TUI_LOG"))
        .and_then(|filter| filter.to_str())
        .filter(|filter| !filter.is_empty())
    else {
        return;
    };
    let state_dir = context.paths.state_dir.clone();
    let writer = move || -> Box<dyn Write> {
        let opened = pvisor::paths::make_private(&state_dir)
            .map_err(io::Error::other)
            .and_then(|()| {
                OpenOptions::new()
                    .append(true)
                    .create(true)
                    .mode(0o600)
                    .open(state_dir.join("pvisor-tui.log"))
            });
        match opened {
            Ok(file) => Box::new(Forgiving(file)),
            Err(_) => Box::new(io::sink()),
        }
    };
    // Set once per process; a second start has nothing to add.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(false)
        .with_writer(writer)
        .try_init();
}
