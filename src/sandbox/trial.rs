//! The steps of a sandbox, tried one by one without running anything: what `doctor` stands on.
//! Owns the order of the steps; explanations come from [`super::probe`].

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, UnlinkatFlags, fork, unlinkat};
use serde::{Deserialize, Serialize};

use super::devices::Devices;
use super::failure::{Doing, Failure};
use super::file_server::FileServer;
use super::mount_api::{READ_ONLY, TAME, attach, clone_mount, here, pivot_into, restrict};
use super::{cgroup, init, landlock, namespace, overlay, probe, seccomp};
use crate::layer::{Driver, Layer};

/// One step and how it went.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Step {
    /// What was tried.
    pub name: String,
    /// Whether a staged session needs it.
    pub needed: bool,
    /// Cause and remedy when it was refused.
    pub refused: Option<(String, Option<String>)>,
}

/// Tries what [`super::start()`] does, in its order; steps after a needed one that failed are left
/// out. Runs in a child that ends afterwards: it changes the namespaces of its process.
pub(crate) fn steps(dir: &Path) -> Vec<Step> {
    type Try<'a> = (&'a str, bool, Box<dyn FnOnce() -> Result<(), Failure> + 'a>);
    let tries: [Try<'_>; 7] = [
        (
            "user and mount namespace",
            true,
            Box::new(|| namespace::enter(true)),
        ),
        (
            "overlay in a user namespace",
            true,
            Box::new(|| try_overlay(dir)),
        ),
        (
            "a FUSE file system of our own",
            false,
            Box::new(|| try_fuse(dir)),
        ),
        (
            "devices and terminals of its own",
            true,
            Box::new(|| Devices::collect().map(drop)),
        ),
        ("a read-only root", true, Box::new(try_root)),
        (
            "pid, ipc and uts namespaces",
            true,
            Box::new(|| {
                unshare(
                    CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS,
                )
                .doing("making namespaces")
            }),
        ),
        ("a /proc of its own", false, Box::new(try_proc)),
    ];
    let mut steps = Vec::new();
    for (name, needed, attempt) in tries {
        let failure = attempt().err();
        let stop = needed && failure.is_some();
        steps.push(Step {
            name: name.to_owned(),
            needed,
            refused: failure.map(|f| (format!("{}: {}", f.doing, f.cause), f.hint)),
        });
        if stop {
            break;
        }
    }
    steps
}

/// Serves a directory of its own for a moment, as a session's file server would.
fn try_fuse(dir: &Path) -> Result<(), Failure> {
    let trial = dir.join(format!(".pvisor-tui-trial-{}", std::process::id()));
    let lower = trial.join("lower");
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(&lower).doing_at("making", &lower)?;
    let outcome = std::fs::write(lower.join("file"), "").doing_at("writing in", &lower);
    let outcome = outcome.and_then(|()| {
        let layer = Layer {
            name: "trial".into(),
            root: lower.clone(),
            dir: trial.join("layer"),
            driver: Driver::Fuse,
        };
        overlay::make_upper(&layer.upper(), &layer.root).doing_at("making", &layer.upper())?;
        let (_server, merged) = FileServer::for_trial(layer)?;
        write_and_delete(&merged)
    });
    // A directory left behind is in nobody's way; its name tells where it came from.
    let _ = std::fs::remove_dir_all(&trial);
    outcome
}

/// Mounts an overlay over a directory of its own, and changes and deletes something in it.
fn try_overlay(dir: &Path) -> Result<(), Failure> {
    let trial = dir.join(format!(".pvisor-tui-trial-{}", std::process::id()));
    let lower = trial.join("lower");
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(&lower).doing_at("making", &lower)?;
    let outcome = std::fs::write(lower.join("file"), "")
        .doing_at("writing in", &lower)
        .and_then(|()| {
            use_overlay(&Layer {
                name: "trial".into(),
                root: lower.clone(),
                dir: trial.join("layer"),
                driver: Driver::Overlayfs,
            })
        });
    // A directory left behind is in nobody's way; its name tells where it came from.
    let _ = std::fs::remove_dir_all(&trial);
    outcome
}

fn use_overlay(layer: &Layer) -> Result<(), Failure> {
    let mounted = overlay::mount(layer)?;
    let merged = overlay::merged(&mounted.mount).doing("opening the merged view")?;
    write_and_delete(&merged)
}

fn write_and_delete(merged: &OwnedFd) -> Result<(), Failure> {
    let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    openat(merged, "new", flags, Mode::from_bits_truncate(0o600))
        .doing("making a file in an overlay")?;
    unlinkat(merged, "file", UnlinkatFlags::NoRemoveDir).doing("deleting a file in an overlay")
}

fn try_root() -> Result<(), Failure> {
    let root = clone_mount(here(), Path::new("/"), true).doing("copying the mount table")?;
    restrict(root.as_fd(), READ_ONLY | TAME, true, true).doing("making / read-only")?;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let slash = open("/", flags, Mode::empty()).doing("opening /")?;
    attach(root.as_fd(), slash.as_fd()).doing("placing the new root")?;
    pivot_into(&root).doing("changing the root")
}

/// In the PID namespace that the next child founds.
fn try_proc() -> Result<(), Failure> {
    let child = fork_child(|| {
        let errno = init::mount_proc().err().map_or(0, |errno| errno as i32);
        namespace::leave(errno);
    })
    .doing("forking")?;
    match waitpid(child, None) {
        Ok(WaitStatus::Exited(_, 0)) => Ok(()),
        Ok(WaitStatus::Exited(_, errno)) => Err(Failure::new(
            "mounting /proc",
            format!(
                "{}: parts of the present one are covered; sessions use that one, read-only",
                Errno::from_raw(errno).desc()
            ),
        )
        .hint("outside containers this does not happen; it weakens nothing that is written")),
        _ => Err(Failure::new("mounting /proc", "the child was lost")),
    }
}

/// Forks a child that lives in `life` and then ends. The process must have one thread.
pub(crate) fn fork_child(life: impl FnOnce()) -> Result<Pid, Errno> {
    // SAFETY: the caller promises one thread, so the child may do anything.
    match unsafe { fork() }? {
        ForkResult::Child => {
            // Unwinding into the parent's frames would run its destructors twice.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(life));
            namespace::leave(0)
        }
        ForkResult::Parent { child } => Ok(child),
    }
}

/// Why no upper can lie in `dir`, as far as its file system tells.
pub(crate) fn unfit(dir: &Path) -> Result<Option<String>, Errno> {
    let dir = overlay::open_dir(&std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned()))?;
    Ok(probe::unfit(dir.as_fd()).map(|(name, reason)| format!("{name}, {reason}")))
}

/// The kernel's Landlock ABI, 0 without. **Must be called while the process has one thread.**
pub(crate) fn landlock_abi() -> u32 {
    let child = fork_child(|| namespace::leave(landlock::tried() as i32));
    match child.and_then(|child| waitpid(child, None)) {
        Ok(WaitStatus::Exited(_, abi)) => u32::try_from(abi).unwrap_or(0),
        _ => 0,
    }
}

/// Puts the command's seccomp filter on a process that then ends. **Must be called while the
/// process has one thread.**
pub(crate) fn seccomp() -> Result<(), String> {
    let child = fork_child(|| {
        let refused =
            nix::sys::prctl::set_no_new_privs().is_err() || seccomp::put_up(false).is_err();
        namespace::leave(i32::from(refused));
    });
    match child.and_then(|child| waitpid(child, None)) {
        Ok(WaitStatus::Exited(_, 0)) => Ok(()),
        Ok(_) => Err("the kernel does not take the filter".into()),
        Err(errno) => Err(errno.desc().into()),
    }
}

/// Which limits a cgroup can hold here; see [`cgroup::tried`].
pub(crate) fn cgroup() -> Result<Vec<&'static str>, String> {
    cgroup::tried()
}
