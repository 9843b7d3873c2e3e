//! What a start costs: `run --headless -- true` beside bubblewrap with one overlay over the same
//! workspace, in the same kinds of namespaces. Interleaved, so that a noisy moment meets both;
//! medians and their ratio are printed, and a ratio above the bar fails.
//!
//! `cargo bench --bench start` measures; run in any other way, or with `--smoke`, it only shows
//! that both sides work.

#[allow(unused)] // The bench needs the world and the users, not the terminal or the model.
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use support::beside::{bubblewrap, median, millis};
use support::user::User;
use support::{Capability, World, capability, world};

/// Runs per side.
const RUNS: usize = 30;
/// At most so many times what bubblewrap and an overlay take.
const BAR: f64 = 2.0;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let full = args.iter().any(|a| a == "--bench") && !args.iter().any(|a| a == "--smoke");
    let runs = if full { RUNS } else { 2 };
    let mut good = true;
    // Kept to the end: ext4 passes over the inodes of files deleted in the last seconds one by one
    // whenever it makes a new file, so tidying up one user's world would slow the next one's runs.
    let mut worlds = Vec::new();
    let users = [User::root(), User::ordinary().ok()];
    for user in users.into_iter().flatten() {
        let world = World::new("bench start", user);
        if !capability::have_sandbox(&world)
            || !capability::have(&world, Capability::Program("bwrap"))
        {
            continue;
        }
        let (ours, theirs) = measure(&world, runs);
        let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
        println!(
            "start as {}: pvisor-tui {:.1} ms, bubblewrap and overlay {:.1} ms, ratio {ratio:.2} \
             (medians of {runs} interleaved runs)",
            world.user.name,
            millis(ours),
            millis(theirs),
        );
        if full && ratio > BAR {
            println!("start as {}: the ratio is above {BAR}", world.user.name);
            good = false;
        }
        worlds.push(world);
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn measure(world: &World, runs: usize) -> (Duration, Duration) {
    fs::write(world.workspace.join("f"), "x").expect("a file in the workspace");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // One of each first: caches and directories that only the first run fills.
    for round in 0..=runs {
        let pair = [
            time(&mut pvisor(world)),
            time(&mut bubblewrap(
                world,
                &world.workspace,
                &world.root.join(format!("stage{round}")),
                &["true"],
            )),
        ];
        if round > 0 {
            ours.push(pair[0]);
            theirs.push(pair[1]);
        }
    }
    (median(ours), median(theirs))
}

fn pvisor(world: &World) -> Command {
    let mut command = world.command(world::binary());
    command.args(["run", "--headless", "--workspace"]);
    command.arg(&world.workspace).args(["--", "true"]);
    command
}

fn time(command: &mut Command) -> Duration {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status().expect("it starts");
    let took = start.elapsed();
    assert!(status.success(), "{command:?}: {status}");
    took
}
