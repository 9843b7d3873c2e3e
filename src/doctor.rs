//! What this machine allows, found out by trying. Owns the checks and their remedies; prints
//! nothing and changes nothing (what it mounts is seen by its own children only).

use std::fs::OpenOptions;
use std::io::Read;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use serde::{Deserialize, Serialize};

use crate::sandbox::trial;

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was tried, e.g. `overlay in a user namespace`.
    pub name: String,
    /// Whether it works.
    pub ok: bool,
    /// Whether a staged session needs it.
    pub needed: bool,
    /// What was found, one sentence.
    pub detail: String,
    /// What mends it, often a command.
    pub remedy: Option<String>,
}

/// Everything that was tried, in the order a session needs it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// See [`Check`].
    pub checks: Vec<Check>,
}

impl Report {
    /// Whether a staged session can run.
    pub fn staged_works(&self) -> bool {
        self.checks.iter().all(|check| check.ok || !check.needed)
    }
}

/// Tries everything. `state_dir` is where sessions are kept; a directory is made there for the
/// time of the trial. **Must be called while the process has one thread**: it forks children that
/// go on without exec.
pub fn examine(state_dir: &Path) -> Report {
    let mut checks = state_directory(state_dir);
    checks.extend(sandbox(state_dir));
    checks.push(landlock());
    checks.push(seccomp());
    checks.push(cgroup());
    checks.push(device(
        "/dev/kvm",
        "virtual machines",
        "switch virtualisation on in the firmware, or join the group that owns it: \
         `sudo usermod -aG kvm $USER`",
    ));
    checks.push(watches());
    Report { checks }
}

/// The nearest directory at or above `path` that exists.
fn existing(path: &Path) -> PathBuf {
    path.ancestors()
        .find(|dir| dir.is_dir())
        .unwrap_or(Path::new("/"))
        .to_owned()
}

fn state_directory(state_dir: &Path) -> Vec<Check> {
    let dir = existing(state_dir);
    let shown = crate::text::visible_path(&dir).into_owned();
    let check = |ok, detail: String, remedy: Option<&str>| {
        vec![Check {
            name: "state directory".into(),
            ok,
            needed: true,
            detail,
            remedy: remedy.map(Into::into),
        }]
    };
    let elsewhere = "keep the sessions elsewhere: `--state-dir DIR` or XDG_STATE_HOME";
    if nix::unistd::access(&dir, nix::unistd::AccessFlags::W_OK).is_err() {
        let detail = format!("{shown} is not writable");
        return check(false, detail, Some(elsewhere));
    }
    match trial::unfit(&dir) {
        Ok(None) => check(true, format!("{shown} can hold layers"), None),
        Ok(Some(reason)) => check(false, format!("{shown} is on {reason}"), Some(elsewhere)),
        Err(errno) => check(false, format!("{shown}: {}", errno.desc()), Some(elsewhere)),
    }
}

/// Walks through the steps of a sandbox in a child; the first that fails ends the trial.
fn sandbox(state_dir: &Path) -> Vec<Check> {
    let dir = existing(state_dir);
    let outcome = in_child(move || trial::steps(&dir));
    let mut checks = Vec::new();
    for step in outcome.unwrap_or_default() {
        let needed = step.needed;
        let (ok, detail, remedy) = match step.refused {
            None => (true, "works".to_owned(), None),
            Some((cause, remedy)) => (false, cause, remedy),
        };
        checks.push(Check {
            name: step.name,
            ok,
            needed,
            detail,
            remedy,
        });
    }
    if checks.is_empty() {
        checks.push(Check {
            name: "sandbox".into(),
            ok: false,
            needed: true,
            detail: "the process that tried it was lost".into(),
            remedy: None,
        });
    }
    checks
}

/// What `work` found out in a process of its own.
fn in_child(work: impl FnOnce() -> Vec<trial::Step>) -> Option<Vec<trial::Step>> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC).ok()?;
    let child = trial::fork_child(|| {
        let found = postcard::to_stdvec(&work()).unwrap_or_default();
        // The parent reads what arrives.
        let _ = nix::unistd::write(&write, &found);
    })
    .ok()?;
    drop(write);
    let mut bytes = Vec::new();
    std::fs::File::from(read).read_to_end(&mut bytes).ok()?;
    // Its findings are here already.
    let _ = nix::sys::wait::waitpid(child, None);
    postcard::from_bytes(&bytes).ok()
}

fn landlock() -> Check {
    let abi = trial::landlock_abi();
    Check {
        name: "Landlock".into(),
        ok: abi >= 6,
        needed: false,
        detail: match abi {
            0 => "not available: the mounts alone hold, and sockets of the abstract namespace can \
                  be reached"
                .into(),
            1..6 => format!("ABI {abi}: sockets of the abstract namespace can be reached"),
            _ => format!("works, ABI {abi}"),
        },
        remedy: (abi < 6).then(|| "use Linux 6.12 or newer, with `landlock` in `lsm=`".into()),
    }
}

/// Without a filter nothing runs: it is what answers for the kernel's riskier calls.
fn seccomp() -> Check {
    let tried = trial::seccomp();
    Check {
        name: "seccomp".into(),
        ok: tried.is_ok(),
        needed: true,
        detail: tried.as_ref().err().cloned().unwrap_or("works".into()),
        remedy: tried
            .is_err()
            .then(|| "use a kernel with CONFIG_SECCOMP_FILTER".into()),
    }
}

/// What `--memory` and `--cpus` need.
fn cgroup() -> Check {
    let tried = trial::cgroup();
    let ok = tried.as_ref().is_ok_and(|held| held.len() == 3);
    Check {
        name: "cgroup for limits".into(),
        ok,
        needed: false,
        detail: match &tried {
            Ok(held) if ok => format!("works: {}", held.join(", ")),
            Ok(held) => format!("only {} can be limited", held.join(", ")),
            Err(reason) => format!("{reason}: `--memory` and `--cpus` are not enforced"),
        },
        remedy: (!ok).then(|| {
            "start pvisor-tui in a delegated cgroup: `systemd-run --user --scope -p Delegate=yes \
             pvisor-tui ...`"
                .into()
        }),
    }
}

fn device(path: &str, purpose: &str, remedy: &str) -> Check {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    Check {
        name: path.into(),
        ok: opened.is_ok(),
        needed: false,
        detail: match &opened {
            Ok(_) => format!("can be opened, for {purpose}"),
            Err(e) => format!(
                "{}: no {purpose}",
                Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)).desc()
            ),
        },
        remedy: opened.is_err().then(|| remedy.into()),
    }
}

/// The live change list watches every directory of the uppers.
fn watches() -> Check {
    const ENOUGH: u64 = 8192;
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok());
    let made = nix::sys::inotify::Inotify::init(nix::sys::inotify::InitFlags::IN_CLOEXEC);
    let ok = made.is_ok() && limit.is_none_or(|limit| limit >= ENOUGH);
    Check {
        name: "inotify".into(),
        ok,
        needed: false,
        detail: match (&made, limit) {
            (Err(errno), _) => format!("{}: changes are polled", errno.desc()),
            (Ok(_), Some(limit)) => format!("{limit} directories can be watched"),
            (Ok(_), None) => "works".into(),
        },
        remedy: (!ok).then(|| {
            "`sudo sysctl fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=512`"
                .into()
        }),
    }
}
