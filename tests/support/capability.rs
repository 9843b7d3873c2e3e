//! What a machine may lack. Owns the probes (each really tries) and the account of what was
//! skipped and why.
//!
//! `PVISOR_TESTS_FORBID_SKIP` turns a skip into a failure: `1` for all, or names joined by commas.
//! `PVISOR_TESTS_REPORT` names a file that gets a line for every capability test.

use std::collections::HashMap;
use std::io::Write;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use super::user::User;
use super::world::{self, World};

/// Something a test needs of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Capability {
    /// The tests run as root, so that root can be tried too.
    Root,
    /// An ordinary user exists or can be made.
    OrdinaryUser,
    /// User namespaces in which root can mount an overlayfs.
    SandboxOfRoot,
    /// User namespaces in which an ordinary user can mount an overlayfs.
    SandboxOfUser,
    /// A program is installed.
    Program(&'static str),
    /// A real agent is installed (see [`super::model`]).
    Agent(&'static str),
    /// Our own file server can merge the layers.
    FuseDriver,
    /// A file system of a few megabytes can be mounted for the test.
    SmallDisk,
    /// Disks of the test's own can be mounted, which lose what was not flushed.
    LossyDisk,
    /// A Rust toolchain that the user can reach, and a crate in the registry's cache.
    Toolchain,
}

impl Capability {
    /// The name used in the report.
    pub fn name(self) -> String {
        match self {
            Capability::Root => "root".into(),
            Capability::OrdinaryUser => "ordinary-user".into(),
            Capability::SandboxOfRoot => "sandbox-of-root".into(),
            Capability::SandboxOfUser => "sandbox-of-user".into(),
            Capability::Program(program) => format!("program-{program}"),
            Capability::Agent(agent) => format!("agent-{agent}"),
            Capability::FuseDriver => "fuse-driver".into(),
            Capability::SmallDisk => "small-disk".into(),
            Capability::LossyDisk => "lossy-disk".into(),
            Capability::Toolchain => "toolchain".into(),
        }
    }
}

/// Whether `world` has it. When not, the reason is printed and recorded, and the test should end.
pub fn have(world: &World, capability: Capability) -> bool {
    decide(&world.test, capability, probe(world, capability))
}

/// Records and prints what a probe said of a test.
#[track_caller]
pub fn decide(test: &str, capability: Capability, probed: Result<(), String>) -> bool {
    let name = capability.name();
    match probed {
        Ok(()) => {
            record(&format!("ran\t{name}\t{test}"));
            true
        }
        Err(reason) => {
            // Written straight to the descriptor, so that the test runner does not swallow it.
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {name}: {reason}");
            record(&format!("skipped\t{name}\t{test}\t{reason}"));
            assert!(
                !forbidden(&name),
                "{test} may not be skipped here, {name} is wanted: {reason}"
            );
            false
        }
    }
}

/// Whether the world's user can have a sandbox at all.
pub fn have_sandbox(world: &World) -> bool {
    let capability = if world.user.is_root() {
        Capability::SandboxOfRoot
    } else {
        Capability::SandboxOfUser
    };
    have(world, capability)
}

fn forbidden(name: &str) -> bool {
    std::env::var("PVISOR_TESTS_FORBID_SKIP")
        .is_ok_and(|wanted| wanted == "1" || wanted.split(',').any(|w| w == name))
}

fn record(line: &str) {
    let Some(path) = std::env::var_os("PVISOR_TESTS_REPORT") else {
        return;
    };
    let file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path);
    if let Ok(mut file) = file {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}

fn probe(world: &World, capability: Capability) -> Result<(), String> {
    match capability {
        Capability::Root => User::root().map(|_| ()).ok_or("not run as root".into()),
        Capability::OrdinaryUser => User::ordinary().map(drop),
        Capability::SandboxOfRoot | Capability::SandboxOfUser => sandbox(world),
        Capability::Program(program) => in_path(world, program),
        Capability::Agent(agent) => world::agent(agent).map(|_| ()),
        Capability::FuseDriver => super::stage::probe_fuse(world),
        // Both are found out by mounting one.
        Capability::SmallDisk | Capability::LossyDisk => Ok(()),
        Capability::Toolchain => world::toolchain().map(|_| ()),
    }
}

fn in_path(world: &World, program: &str) -> Result<(), String> {
    let found = world
        .host(&format!("command -v {program}"))
        .status
        .is_some_and(|code| code == 0);
    found
        .then_some(())
        .ok_or(format!("{program} is not installed"))
}

/// Mounts an overlay in a user namespace as the world's user, on the disk the tests use.
fn sandbox(world: &World) -> Result<(), String> {
    static KNOWN: Mutex<Option<HashMap<u32, Result<(), String>>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known
        .get_or_insert_default()
        .entry(world.user.uid)
        .or_insert_with(|| {
            let script = "mkdir -p probe/l probe/u probe/w probe/m && cd probe && \
                exec unshare --user --map-root-user --mount mount -t overlay probe \
                -o lowerdir=l,upperdir=u,workdir=w,userxattr m";
            let mut command = Command::new("sh");
            command.args(["-c", script]).current_dir(&world.root);
            world.user.apply(&mut command);
            let done = command.output().map_err(|e| e.to_string())?;
            if done.status.success() {
                return Ok(());
            }
            Err(format!(
                "no overlay in a user namespace: {}",
                String::from_utf8_lossy(&done.stderr).trim()
            ))
        })
        .clone()
}
