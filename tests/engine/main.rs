//! The engine as its users see it: real trees, real bytes, no screen.

mod emulator;
