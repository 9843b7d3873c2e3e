//! Commit, undo and recovery on plain directories: an upper that holds the agent's whole tree and
//! change rows made by comparing it with the baseline.

mod accept;
mod crash;
mod merged;
mod property;
mod race;
mod refuse;
mod scene;
mod undo;
