//! The `pvisor-tui` binary: parses the command line and hands over to the library.
#![forbid(unsafe_code)]

fn main() {}
