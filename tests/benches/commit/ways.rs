//! The ways to bring a change set to a tree. Owns how each is called, and that what it wrote is on
//! the device when its time is taken.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::bare;
use super::support::{Capability, World, capability};

/// See the module.
#[derive(Clone, PartialEq, Eq)]
pub enum Way {
    /// `commit --all` of a session.
    Ours,
    /// `cp -a` over what is there.
    Copy,
    /// `rsync -a`.
    Rsync,
    /// `git apply` of the patch between the two.
    GitApply,
    /// The reference's `apply --all` of a stage; the path of its program.
    Peer(PathBuf),
    /// The system calls of a commit alone.
    Bare,
}

/// The ways that there are here; where one is missing, the reason is printed.
pub fn all(world: &World, dir: &Path, bare: bool) -> Vec<Way> {
    let mut ways = vec![Way::Ours, Way::Copy];
    if bare {
        ways.push(Way::Bare);
    }
    if capability::have(world, Capability::Program("rsync")) {
        ways.push(Way::Rsync);
    }
    if capability::have(world, Capability::Program("git")) {
        let mut diff = world.command("git");
        diff.args(["diff", "--no-index", "--no-prefix", "--output=patch"]);
        // It ends with 1 where there is a difference.
        let status = diff.args(["old", "new"]).current_dir(dir).status();
        match status.expect("git starts").code() {
            Some(1) => ways.push(Way::GitApply),
            // It maps every file at once, of which the kernel allows 65,530.
            _ => println!("commit: git apply is left out: git could not make the patch"),
        }
    }
    match peer() {
        Some(program) => ways.push(Way::Peer(program)),
        None => println!("commit: the reference is left out: PVISOR_PEER does not name it"),
    }
    ways
}

/// The reference's program.
fn peer() -> Option<PathBuf> {
    let named = std::env::var_os("PVISOR_PEER").map(PathBuf::from);
    named.or_else(|| {
        let path = std::env::var_os("PATH")?;
        let mut dirs = std::env::split_paths(&path).map(|dir| dir.join("pvisor"));
        dirs.find(|program| program.is_file())
    })
}

impl Way {
    /// Its name in the table.
    pub fn name(&self) -> &'static str {
        match self {
            Way::Ours => "commit --all",
            Way::Copy => "cp -a",
            Way::Rsync => "rsync -a",
            Way::GitApply => "git apply",
            Way::Peer(_) => "pvisor apply --all",
            Way::Bare => "bare calls",
        }
    }

    /// Brings `dir/new` to `target`, which is a copy of `dir/old`: what that took.
    pub fn apply(&self, world: &World, dir: &Path, target: &Path) -> Duration {
        let new = dir.join("new/.");
        let mut command = match self {
            Way::GitApply => {
                let mut git = world.command("git");
                git.arg("apply").arg(dir.join("patch"));
                git
            }
            Way::Rsync => {
                let mut rsync = world.command("rsync");
                rsync.arg("-a").arg(dir.join("new/")).arg(".");
                rsync
            }
            Way::Peer(program) => return apply_of_peer(program, world, &new, target),
            Way::Bare => return bare::apply(&dir.join("new"), target),
            Way::Ours | Way::Copy => {
                let mut copy = world.command("cp");
                copy.arg("-a").arg(new).arg(".");
                copy
            }
        };
        command.current_dir(target);
        timed(&mut command) + timed(world.command("sync").arg("-f").arg(target))
    }
}

/// Stages the files first; only its `apply` is timed, which syncs by itself.
fn apply_of_peer(program: &Path, world: &World, new: &Path, target: &Path) -> Duration {
    let stage = target.with_extension("stage");
    let home = target.with_extension("peer");
    std::fs::create_dir(&home).expect("a new directory");
    world.own(&home, 0o755);
    let call = |args: &[&str]| {
        let mut command = world.command(program);
        let own = ["HOME", "PVISOR_RUN_HOME", "XDG_CONFIG_HOME"];
        command.envs(own.map(|name| (name, &home)));
        command.args(args).current_dir(target);
        command
    };
    let (at, from) = (stage.to_str().expect("text"), new.to_str().expect("text"));
    run(&mut call(&[
        "spawn",
        "--stage",
        at,
        "--filesystem",
        "host",
        "--",
        "cp",
        "-a",
        from,
        ".",
    ]));
    let took = timed(&mut call(&["apply", at, "--all"]));
    for dir in [stage, home] {
        let _ = std::fs::remove_dir_all(dir);
    }
    took
}

/// Runs it to its successful end: what that took.
pub fn timed(command: &mut Command) -> Duration {
    let begun = Instant::now();
    run(command);
    begun.elapsed()
}

/// Runs it to its successful end.
pub fn run(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let out = command.stderr(Stdio::piped()).output().expect("it starts");
    assert!(
        out.status.success(),
        "{command:?}: {}: {}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
}
