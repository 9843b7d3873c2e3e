//! Sessions: one command after another on the same layers, and everything a person did with what
//! they left. Owns the session thread, its records and its directory.

mod agent;
mod asks;
mod backlog;
pub mod client;
mod connection;
mod core;
mod create;
mod event;
mod guard;
mod jobs;
mod journal;
pub mod keep;
mod last_words;
mod layers;
mod outbox;
mod pace;
pub mod prune;
mod records;
pub mod recover;
mod reduce;
mod requests;
mod resolve;
mod serve;
pub mod server;
mod socket;
mod stage_limit;
pub mod state;
pub mod store;
#[cfg(test)]
mod tests;
mod worker;
