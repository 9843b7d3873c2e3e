//! Tests of the engine through its public doors: real directory trees, real bytes, no screen, and
//! where the machine allows it the kernel's overlayfs in a user namespace.
#![allow(clippy::unwrap_used)] // A test may fail by panicking; that is how it reports.

mod architecture;
mod changes;
mod commit;
mod config;
mod diff;
mod emulator;
mod layers;
mod review;
mod store;
