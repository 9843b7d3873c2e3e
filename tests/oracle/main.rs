//! The oracle: whatever a program does natively must come out the same through `run` and `commit`.
//! Random scripts from seeds, and stored ones that once showed a difference, as root and as an
//! ordinary user, on every driver.
//!
//! The program is its own interpreter inside and outside, so it brings its own harness. Arguments
//! select tests by a part of their name. `PVISOR_THOROUGH=1` runs 1,000 scripts per driver and user
//! instead of 60 in all; `PVISOR_ORACLE_SEED` and `PVISOR_ORACLE_COUNT` choose others;
//! `PVISOR_ORACLE_SCRIPT` names a file to run instead.
#![allow(clippy::unwrap_used)] // A test may fail by panicking; that is how it reports.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros)] // Shared with tests that need more of it.
mod support;

mod deviations;
mod generate;
mod halves;
mod interpret;
mod pinned;
mod random;
mod review;
mod runner;
mod script;
mod shrink;
mod snapshot;
mod twin;

fn main() -> std::process::ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|a| a == interpret::WORD) {
        return match interpret::main(&arguments[1..]) {
            Ok(()) => std::process::ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("error: {e}");
                std::process::ExitCode::FAILURE
            }
        };
    }
    runner::main(&arguments)
}
