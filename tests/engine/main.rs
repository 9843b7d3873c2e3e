//! Tests of the engine through its public doors: real directory trees, real bytes, no screen, and
//! where the machine allows it the kernel's overlayfs in a user namespace.

mod architecture;
mod changes;
mod diff;
mod emulator;
mod layers;
mod review;
