//! Tests of the engine against real directory trees and, where the machine allows it, the kernel's
//! overlayfs in a user namespace.

mod changes;
mod layers;
//! The engine as its users see it: real trees, real bytes, no screen.
mod emulator;
