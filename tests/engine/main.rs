//! The engine's own tests: everything that needs no terminal.
#![allow(clippy::unwrap_used)] // A test may fail by panicking; that is how it reports.

mod commit;
