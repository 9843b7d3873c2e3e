//! Tests of the engine through its public interface.

mod config;
mod store;
