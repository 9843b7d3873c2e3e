//! Sessions: one command after another on the same layers, and everything a person did with what
//! they left. Owns the session thread, its records and its directory.

pub mod client;
mod reduce;
pub mod server;
pub mod state;
pub mod store;
