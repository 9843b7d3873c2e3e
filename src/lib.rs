//! The engine of pvisor-tui.
//!
//! A **session** runs a command in a **sandbox** whose writable places are staged **layers**
//! (overlay lower, upper and work), compares the uppers with the untouched host (**change set**),
//! keeps a person's **decisions** by file, hunk or line, and **commits** what was approved.
//!
//! ```text
//! upper --> watch --> Event --+
//! PTY, exit --------> Event --+--> session::Session::handle --> Job (scan, diff, commit) --> Event
//! client ==socket==> Request -+         |
//!                                       +--> Update --> SessionState::apply   (server)
//!                                                   --> Journal::append      (record)
//!                                                   ==socket==> client --> SessionState::apply --> view
//! ```
//!
//! The engine knows no screen: it prints nothing and never imports a terminal-drawing crate.
//! `diff`, `merge`, `review`, `text` and `session::state` do no I/O. `commit` is the only writer to the
//! host's files.

pub mod change;
pub mod commit;
pub mod config;
pub mod diff;
pub mod doctor;
pub mod emulator;
pub mod fuse;
pub mod layer;
pub mod merge;
pub mod overlay;
pub mod path;
pub mod paths;
pub mod policy;
pub mod protocol;
pub mod pty;
pub mod record;
pub mod reserve;
pub mod review;
pub mod sandbox;
pub mod session;
pub mod text;
pub mod watch;

pub use path::{LayerPath, RelPath};
