//! Tests of the engine through its public doors: real directory trees, real bytes, no screen, and
//! where the machine allows it the kernel's overlayfs in a user namespace.
//!
//! The normal run takes samples where everything would take minutes. `PVISOR_THOROUGH=1` interrupts
//! commits at every call and repeats every race; `PROPTEST_CASES=N` asks for more random cases.
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

/// Whether everything is to be tried, not samples.
fn thorough() -> bool {
    std::env::var_os("PVISOR_THOROUGH").is_some_and(|value| value != "0")
}

/// How many random cases a property is tried with, unless `PROPTEST_CASES` says otherwise.
fn cases(normal: u32) -> proptest::prelude::ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let config = proptest::prelude::ProptestConfig::default();
    proptest::prelude::ProptestConfig {
        cases: if asked { config.cases } else { normal },
        failure_persistence: None,
        ..config
    }
}
