//! Commit, undo and recovery on plain directories: an upper that holds the agent's whole tree and
//! change rows made by comparing it with the baseline.

mod accept;
mod astray;
mod crash;
mod late;
mod merged;
mod mixture;
mod property;
mod race;
mod refuse;
mod scene;
mod swap;
mod turns;
mod undo;
