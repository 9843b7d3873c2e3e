//! Tests of the engine through its public doors.

mod config;
mod diff;
mod emulator;
mod review;
mod store;
