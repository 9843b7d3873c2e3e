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
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

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
            time(&mut bubblewrap(world, round)),
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

/// Mounts the overlay between fork and exec, so that no shell and no `mount` program is timed.
fn bubblewrap(world: &World, round: usize) -> Command {
    let stage = world.root.join(format!("stage{round}"));
    for part in ["upper", "work"] {
        fs::create_dir_all(stage.join(part)).expect("a stage");
        world.own(&stage.join(part), 0o755);
    }
    let text = |path: &Path| path.to_str().expect("a plain path").to_owned();
    let workspace = text(&world.workspace);
    let options = format!(
        "lowerdir={workspace},upperdir={},workdir={},userxattr,volatile",
        text(&stage.join("upper")),
        text(&stage.join("work"))
    );
    let ids = (world.user.uid, world.user.gid);
    let mut command = world.command("bwrap");
    command.args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
    command.args([
        "--tmpfs", "/dev/shm", "--tmpfs", "/tmp", "--bind", &workspace, &workspace,
    ]);
    command.args([
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
    ]);
    command.args(["--die-with-parent", "true"]);
    // SAFETY: this process has one thread, so its child may allocate between fork and exec.
    unsafe {
        command.pre_exec(move || mount_overlay(ids, &workspace, &options));
    }
    command
}

fn mount_overlay((uid, gid): (u32, u32), at: &str, options: &str) -> io::Result<()> {
    // A change of user makes a process undumpable, and its own /proc/self files unwritable.
    nix::sys::prctl::set_dumpable(true)?;
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    mount(
        Some("overlay"),
        at,
        Some("overlay"),
        MsFlags::empty(),
        Some(options),
    )?;
    Ok(())
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

fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort_unstable();
    let middle = samples.len() / 2;
    if samples.len() % 2 == 1 {
        samples[middle]
    } else {
        (samples[middle - 1] + samples[middle]) / 2
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
