//! Tests of the engine as its users see it: real directory trees, real bytes, no screen, and where
//! the machine allows it the kernel's overlayfs in a user namespace.

mod changes;
mod emulator;
mod layers;
//! Tests of the engine through its public doors.
mod diff;
mod review;
//! The engine's own tests: everything that needs no terminal.
#![allow(clippy::unwrap_used)] // A test may fail by panicking; that is how it reports.
mod architecture;
