//! Upper bounds on what the command uses: which of them can be put in force here, and by what. Owns
//! the resource limits and the account of all bounds for the boundary; the cgroup is
//! [`super::cgroup`]'s, the stage is watched by the session.
//!
//! Source: getrlimit(2).

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::unistd::getuid;

use super::Mode;
use super::boundary::LimitBoundary;
use super::cgroup::{Cgroup, Controller};
use super::failure::{Doing, Failure};
use super::spec::{Limits, SandboxSpec};

/// Why nothing but a cgroup can hold a bound.
const NO_CGROUP: &str = "no cgroup (v2) is delegated to you that could hold it";

/// The bounds of one command and the cgroup that holds some of them.
pub(super) struct Bounds {
    limits: Limits,
    mode: Mode,
    cgroup: Option<Cgroup>,
    /// Why there is no cgroup although one was wanted.
    refused: Option<String>,
}

impl Bounds {
    /// Makes the cgroup, where there is need of one and leave to make one.
    pub fn of(spec: &SandboxSpec) -> Self {
        let (cgroup, refused) = match Cgroup::for_limits(&spec.limits) {
            Ok(cgroup) => (cgroup, None),
            Err(reason) => (None, Some(reason)),
        };
        Self {
            limits: spec.limits,
            mode: spec.mode,
            cgroup,
            refused,
        }
    }

    /// A descriptor through which the command enters its cgroup.
    pub fn entrance(&self) -> Result<Option<OwnedFd>, Failure> {
        let copy = self.cgroup.as_ref().map(|c| c.procs.try_clone());
        copy.transpose().doing("keeping a cgroup open")
    }

    /// What became of each bound; `kept_out` is the errno with which the command could not enter
    /// the cgroup.
    pub fn account(&self, kept_out: Option<i32>) -> Vec<LimitBoundary> {
        let held = self.cgroup.as_ref().map(|c| c.held.as_slice());
        let held = held.filter(|_| kept_out.is_none()).unwrap_or_default();
        let kept_out = kept_out.map(|errno| {
            let errno = Errno::from_raw(errno);
            format!("the command could not enter its cgroup: {}", errno.desc())
        });
        let refused = kept_out.as_ref().or(self.refused.as_ref());
        account(&self.limits, self.mode, held, refused.map(String::as_str))
    }

    /// The cgroup, to be kept until the command has ended.
    pub fn into_cgroup(self) -> Option<Cgroup> {
        self.cgroup
    }
}

/// Puts the resource limits on the calling process and whatever it starts. A stricter one that is
/// there already stays.
pub(super) fn put_up(limits: &Limits, mode: Mode) -> Result<(), Failure> {
    for (resource, wanted) in resources(limits, mode) {
        set(resource, wanted).doing("setting a resource limit")?;
    }
    Ok(())
}

fn resources(limits: &Limits, mode: Mode) -> impl Iterator<Item = (Resource, u64)> {
    // Outside a user namespace of its own it would count whatever else the person runs.
    let processes = limits.processes.filter(|_| mode == Mode::Staged);
    [
        (Resource::RLIMIT_NPROC, processes),
        (Resource::RLIMIT_FSIZE, limits.file_size),
        (Resource::RLIMIT_NOFILE, limits.open_files),
    ]
    .into_iter()
    .filter_map(|(resource, wanted)| Some((resource, wanted?)))
}

fn set(resource: Resource, wanted: rlim_t) -> Result<(), Errno> {
    let (soft, hard) = getrlimit(resource)?;
    setrlimit(resource, soft.min(wanted), hard.min(wanted))
}

/// What becomes of every bound that was asked for. `held` are the controllers of the command's
/// cgroup, `refused` why there is none although it was wanted.
fn account(
    limits: &Limits,
    mode: Mode,
    held: &[Controller],
    refused: Option<&str>,
) -> Vec<LimitBoundary> {
    let mut account = Vec::new();
    let mut add = |name: &str, value: Option<u64>, by: Result<&str, String>| {
        if let Some(value) = value {
            account.push(LimitBoundary {
                name: name.into(),
                value,
                by: by.as_ref().ok().map(|by| (*by).to_owned()),
                reason: by.err(),
            });
        }
    };
    let no_cgroup = refused.unwrap_or(NO_CGROUP);
    let by_cgroup = |controller: Controller| {
        if held.contains(&controller) {
            Ok("cgroup")
        } else {
            Err(no_cgroup.to_owned())
        }
    };
    add("memory", limits.memory, by_cgroup(Controller::Memory));
    add("cpus", limits.cpu_millis, by_cgroup(Controller::Cpu));
    let processes = match by_cgroup(Controller::Processes) {
        Ok(by) => Ok(by),
        Err(_) if mode == Mode::Host => Err(format!(
            "in mode host a resource limit would count all of your processes, and {no_cgroup}"
        )),
        // copy_process() in kernel/fork.c lets the machine's own root pass.
        Err(_) if getuid().is_root() => Err(format!(
            "the kernel exempts root from this resource limit, and {no_cgroup}"
        )),
        Err(_) => Ok("resource limit"),
    };
    add("processes", limits.processes, processes);
    add("file size", limits.file_size, Ok("resource limit"));
    add("open files", limits.open_files, Ok("resource limit"));
    let stage = match mode {
        Mode::Staged => Ok("the session"),
        Mode::Host => Err("nothing is staged in mode host".to_owned()),
    };
    add("stage", limits.stage, stage);
    account
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Limits = Limits {
        memory: Some(1 << 30),
        cpu_millis: Some(1500),
        processes: Some(100),
        file_size: Some(1 << 20),
        open_files: Some(64),
        stage: Some(1 << 25),
    };

    #[test]
    fn nothing_is_claimed_that_has_no_means() {
        let account = account(&ALL, Mode::Staged, &[], None);
        let held: Vec<_> = account
            .iter()
            .map(|limit| (limit.name.as_str(), limit.by.as_deref()))
            .collect();
        let processes = (!getuid().is_root()).then_some("resource limit");
        assert_eq!(
            held,
            [
                ("memory", None),
                ("cpus", None),
                ("processes", processes),
                ("file size", Some("resource limit")),
                ("open files", Some("resource limit")),
                ("stage", Some("the session")),
            ]
        );
        assert!(account.iter().all(|l| l.by.is_some() != l.reason.is_some()));
    }

    #[test]
    fn what_a_cgroup_holds_is_told() {
        let held = [Controller::Memory, Controller::Cpu, Controller::Processes];
        let account = account(&ALL, Mode::Host, &held, None);
        let by: Vec<_> = account.iter().map(|l| l.by.as_deref()).collect();
        let cgroup = Some("cgroup");
        let limit = Some("resource limit");
        assert_eq!(by, [cgroup, cgroup, cgroup, limit, limit, None]);
    }
}
