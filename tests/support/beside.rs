//! Bubblewrap with one overlay over the workspace: what the benches measure us beside. Owns how the
//! two are put together.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::world::World;

/// `argv` in `workspace`, in the same kinds of namespaces as ours; `stage` takes what it writes. The
/// overlay is mounted between fork and exec, so that no shell and no `mount` program is timed.
pub fn bubblewrap(world: &World, workspace: &Path, stage: &Path, argv: &[&str]) -> Command {
    for dir in [stage, &stage.join("upper"), &stage.join("work")] {
        fs::create_dir_all(dir).expect("a stage");
        world.own(dir, 0o755);
    }
    let text = |path: &Path| path.to_str().expect("a plain path").to_owned();
    let workspace = text(workspace);
    let options = format!(
        "lowerdir={workspace},upperdir={},workdir={},userxattr,volatile",
        text(&stage.join("upper")),
        text(&stage.join("work"))
    );
    let ids = (world.user.uid, world.user.gid);
    let mut command = world.command("bwrap");
    command.args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
    command.args([
        "--tmpfs", "/dev/shm", "--tmpfs", "/tmp", "--bind", &workspace, &workspace, "--chdir",
        &workspace,
    ]);
    command.args([
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
    ]);
    command.arg("--die-with-parent").args(argv);
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

/// The middle one, or the mean of the two in the middle.
pub fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort_unstable();
    let middle = samples.len() / 2;
    if samples.len() % 2 == 1 {
        samples[middle]
    } else {
        (samples[middle - 1] + samples[middle]) / 2
    }
}

/// Milliseconds.
pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
