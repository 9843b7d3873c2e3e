//! The product from outside: the real binary, as root and as an ordinary user, on the real disk.
//! Written from the command line's contract; knows nothing of the code behind it.
#![allow(clippy::unwrap_used)] // A test may fail by panicking; that is how it reports.

#[path = "../support/mod.rs"]
mod support;

mod agents;
mod cases;
mod cli_contract;
mod commit_cases;
mod conflicts;
mod decide_commit_undo;
mod drivers;
mod escapes;
mod faults;
mod hard_to_see;
mod impossible;
mod keys;
mod live;
mod merging;
mod messages;
mod mounts;
mod places;
mod power;
mod presets;
mod prune;
mod readme;
mod real_work;
mod recover;
mod renames;
mod resolving;
mod rules;
mod settling;
mod staged_run;
mod staging_cases;
mod submounts;
mod together;
