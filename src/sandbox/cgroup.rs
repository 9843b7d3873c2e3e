//! A cgroup (v2) of the command's own, where one can be had. Owns finding a place that is delegated
//! to the caller, the limits written there, and its end. Everything here works by trying: what the
//! kernel did not take is not held.
//!
//! The command goes into it by itself right before exec; its supervisor stays outside, so that the
//! out-of-memory killer never ends the sandbox instead of the command.
//!
//! Source: <https://docs.kernel.org/admin-guide/cgroup-v2.html>, "Delegation" and "No Internal
//! Process Constraint".

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::spec::Limits;

/// A controller that holds one of our limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Controller {
    /// `memory.max`
    Memory,
    /// `cpu.max`
    Cpu,
    /// `pids.max`
    Processes,
}

impl Controller {
    const fn name(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Cpu => "cpu",
            Controller::Processes => "pids",
        }
    }
}

/// Beginning of the name of every cgroup made here; the maker's process id follows.
const PREFIX: &str = "pvisor-tui-";
/// Microseconds in which a processor's share is counted.
const PERIOD: u64 = 100_000;
/// How long the kernel may take to let go of an ended cgroup.
const PATIENCE: Duration = Duration::from_millis(500);

/// A cgroup with limits in force. Dropping it ends whatever is in it and removes it.
#[derive(Debug)]
pub(super) struct Cgroup {
    dir: PathBuf,
    /// `cgroup.procs`, open for writing: the command writes itself into it.
    pub procs: OwnedFd,
    /// Which limits the kernel took.
    pub held: Vec<Controller>,
}

impl Cgroup {
    /// One for these limits; `None` when they need none. The error is one sentence.
    pub fn for_limits(limits: &Limits) -> Result<Option<Self>, String> {
        let wanted = wanted(limits);
        if wanted.is_empty() {
            return Ok(None);
        }
        let (mount, own) = position().ok_or("no cgroup (v2) is mounted")?;
        Self::below(&mount, &own, limits, &wanted).map(Some)
    }

    fn below(
        mount: &Path,
        own: &Path,
        limits: &Limits,
        wanted: &[Controller],
    ) -> Result<Self, String> {
        let parent = place(mount, own, wanted)?;
        remove_abandoned(&parent);
        let dir = parent.join(format!("{PREFIX}{}", std::process::id()));
        let told = |error: io::Error| format!("{}: {error}", super::failure::shown(&dir));
        fs::create_dir(&dir).map_err(told)?;
        let made = fill(&dir, limits, wanted);
        if made.is_err() {
            let _ = fs::remove_dir(&dir);
        }
        let (procs, held) = made.map_err(told)?;
        Ok(Self { dir, procs, held })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Linux 5.14 and later; before, everything in it has ended with its pid namespace.
        let _ = fs::write(self.dir.join("cgroup.kill"), "1");
        let mut waited = Duration::ZERO;
        while fs::remove_dir(&self.dir).is_err() && self.dir.exists() && waited < PATIENCE {
            let pause = Duration::from_millis(5);
            thread::sleep(pause);
            waited += pause;
        }
    }
}

/// Which controllers the limits need. The number of processes has another means for an ordinary
/// user, but the cgroup's counts exactly what it should.
fn wanted(limits: &Limits) -> Vec<Controller> {
    [
        (Controller::Memory, limits.memory.is_some()),
        (Controller::Cpu, limits.cpu_millis.is_some()),
        (
            Controller::Processes,
            limits.processes.is_some()
                && (limits.memory.is_some()
                    || limits.cpu_millis.is_some()
                    || nix::unistd::getuid().is_root()),
        ),
    ]
    .into_iter()
    .filter_map(|(controller, wanted)| wanted.then_some(controller))
    .collect()
}

/// Where cgroup2 is mounted, and our own cgroup in it.
fn position() -> Option<(PathBuf, PathBuf)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut fields = left.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        // A part of the hierarchy mounted elsewhere has other paths than the kernel tells.
        (right.starts_with("cgroup2 ") && root == "/").then(|| PathBuf::from(point))
    })?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some((mount.clone(), mount.join(own.trim_start_matches('/'))))
}

/// The nearest cgroup around our own in which a new one can have all the wanted controllers.
fn place(mount: &Path, own: &Path, wanted: &[Controller]) -> Result<PathBuf, String> {
    let names: Vec<&str> = wanted.iter().map(|c| c.name()).collect();
    for dir in own.ancestors().take_while(|dir| dir.starts_with(mount)) {
        let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
        let has = |list: &str, name: &str| list.split_whitespace().any(|word| word == name);
        let available = read("cgroup.controllers");
        // To move a process one must be allowed to write there.
        let delegated = nix::unistd::access(dir, nix::unistd::AccessFlags::W_OK).is_ok()
            && OpenOptions::new()
                .write(true)
                .open(dir.join("cgroup.procs"))
                .is_ok();
        if !delegated || !names.iter().all(|name| has(&available, name)) {
            continue;
        }
        let enabled = read("cgroup.subtree_control");
        let missing = names.iter().filter(|name| !has(&enabled, name));
        // Refused where processes live in the directory itself: then one further up may do.
        let all = missing
            .map(|name| fs::write(dir.join("cgroup.subtree_control"), format!("+{name}")))
            .all(|written| written.is_ok());
        if all {
            return Ok(dir.to_owned());
        }
    }
    Err(format!(
        "no cgroup (v2) with the controllers {} is delegated to you",
        names.join(", ")
    ))
}

fn fill(
    dir: &Path,
    limits: &Limits,
    wanted: &[Controller],
) -> io::Result<(OwnedFd, Vec<Controller>)> {
    let mut held = Vec::new();
    for controller in wanted {
        match controller {
            Controller::Memory => {
                if let Some(bytes) = limits.memory {
                    fs::write(dir.join("memory.max"), bytes.to_string())?;
                    // Without it the rest goes to swap instead; kernels without swap have no file.
                    let _ = fs::write(dir.join("memory.swap.max"), "0");
                }
            }
            Controller::Cpu => {
                if let Some(millis) = limits.cpu_millis {
                    let quota = millis.saturating_mul(PERIOD) / 1000;
                    fs::write(dir.join("cpu.max"), format!("{} {PERIOD}", quota.max(1000)))?;
                }
            }
            Controller::Processes => {
                if let Some(count) = limits.processes {
                    fs::write(dir.join("pids.max"), count.to_string())?;
                }
            }
        }
        held.push(*controller);
    }
    let procs = OpenOptions::new()
        .write(true)
        .open(dir.join("cgroup.procs"))?;
    Ok((procs.into(), held))
}

/// What a killed server left. Only an empty one can be removed.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if maker.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Which limits a cgroup could hold here, by making one and removing it again.
pub(crate) fn tried() -> Result<Vec<&'static str>, String> {
    let limits = Limits {
        memory: Some(1 << 40),
        cpu_millis: Some(1_000_000),
        processes: Some(4_000_000),
        ..Limits::default()
    };
    let (mount, own) = position().ok_or("no cgroup (v2) is mounted")?;
    let mut held = Vec::new();
    let mut refused = None;
    for controller in [Controller::Memory, Controller::Cpu, Controller::Processes] {
        match Cgroup::below(&mount, &own, &limits, &[controller]) {
            Ok(_) => held.push(controller.name()),
            Err(reason) => refused = Some(reason),
        }
    }
    match (held.is_empty(), refused) {
        (true, Some(_)) => {
            Err("no cgroup (v2) with a memory, cpu or pids controller is delegated to you".into())
        }
        _ => Ok(held),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            memory: Some(1 << 30),
            cpu_millis: Some(1500),
            ..Limits::default()
        }
    }

    /// A directory that looks like a cgroup to us.
    fn node(dir: &Path, controllers: &str) {
        fs::create_dir_all(dir).expect("dir");
        fs::write(dir.join("cgroup.controllers"), controllers).expect("file");
        fs::write(dir.join("cgroup.subtree_control"), controllers).expect("file");
        fs::write(dir.join("cgroup.procs"), "").expect("file");
    }

    #[test]
    fn the_nearest_cgroup_with_the_controllers_is_taken() {
        let root = tempfile::tempdir().expect("dir");
        let (slice, scope) = (root.path().join("slice"), root.path().join("slice/scope"));
        node(root.path(), "memory cpu pids");
        node(&slice, "memory cpu");
        node(&scope, "memory");
        let both = [Controller::Memory, Controller::Cpu];
        assert_eq!(place(root.path(), &scope, &both), Ok(slice.clone()));
        assert_eq!(
            place(root.path(), &scope, &[Controller::Memory]),
            Ok(scope.clone())
        );
        let refused = place(&slice, &scope, &[Controller::Processes]);
        assert!(
            refused.is_err_and(|text| text.contains("pids")),
            "never outside the mount"
        );
    }

    #[test]
    fn the_limits_are_written_in_the_kernels_form() {
        let dir = tempfile::tempdir().expect("dir");
        node(dir.path(), "");
        let (_, held) = fill(dir.path(), &limits(), &wanted(&limits())).expect("written");
        assert_eq!(held, [Controller::Memory, Controller::Cpu]);
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).expect("file");
        assert_eq!(read("memory.max"), "1073741824");
        assert_eq!(read("cpu.max"), "150000 100000");
    }

    #[test]
    fn no_limit_needs_no_cgroup() {
        assert!(
            Cgroup::for_limits(&Limits::default())
                .expect("nothing to do")
                .is_none()
        );
    }
}
