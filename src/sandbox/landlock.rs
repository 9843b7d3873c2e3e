//! Landlock around the command: the second fence behind the mounts. Owns which rights stand where;
//! the command puts it on itself, last of all, before exec.
//!
//! Everything that is visible may be read and executed, and written only below the writable places.
//! Every writable place has the same rights, `REFER` among them, so that a rename or a link from one
//! directory into another ends as it would without Landlock. Scopes cut off abstract unix sockets
//! and signals that lead out of the sandbox. What an older kernel does not know is left out; the
//! boundary tells which ABI was in force.
//!
//! Source: landlock(7), <https://docs.kernel.org/userspace-api/landlock.html>.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::spec::{MountAccess, SandboxSpec};

/// The newest ABI whose rights are known here and were looked at one by one.
const KNOWN: ABI = ABI::V9;

/// First ABI whose scopes cut off abstract unix sockets and signals (Linux 6.12).
pub(super) const SCOPES: u32 = 6;
/// First ABI that can refuse connecting to unix sockets by path.
pub(super) const PATH_SOCKETS: u32 = 9;

/// Writable in every view, besides layers and mounts. `/proc` holds the process' own settings (its
/// kernel settings are read-only mounts), `/dev` its terminals and the harmless nodes.
const PLACES: [&str; 5] = ["/tmp", "/var/tmp", "/run", "/proc", "/dev"];

/// What is to be put in force.
pub(super) struct Fence {
    /// Places that may be written to.
    writable: Vec<PathBuf>,
    /// Places outside them whose sockets were given to the command on purpose.
    sockets: Vec<PathBuf>,
    /// Nested sandboxes mount, which Landlock's file rules forbid altogether: scopes only.
    scopes_only: bool,
}

impl Fence {
    /// The fence of this specification.
    pub fn of(spec: &SandboxSpec) -> Self {
        let mut writable: Vec<PathBuf> = PLACES.iter().map(PathBuf::from).collect();
        writable.extend(spec.layers.iter().map(|layer| layer.root.clone()));
        let mut sockets = Vec::new();
        for mount in &spec.mounts {
            match mount.access {
                MountAccess::Write | MountAccess::Private | MountAccess::Keep => {
                    writable.push(mount.target.clone());
                }
                MountAccess::Stage => writable.push(mount.source.clone()),
                MountAccess::Read => sockets.push(mount.target.clone()),
                MountAccess::Hide => {}
            }
        }
        Self {
            writable,
            sockets,
            scopes_only: spec.nested,
        }
    }

    /// Restricts the calling thread and what it starts. The ABI in force, `None` when the kernel
    /// has none. Needs `no_new_privs`, and the view as the root directory.
    pub fn put_up(&self) -> Result<Option<u32>, String> {
        let told = |error: landlock::RulesetError| error.to_string();
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .scope(Scope::from_all(KNOWN))
            .map_err(told)?;
        if self.scopes_only {
            let restricted = ruleset.create().map_err(told)?.restrict_self();
            return Ok(in_force(&restricted.map_err(told)?));
        }
        let mut ruleset = ruleset
            .handle_access(AccessFs::from_all(KNOWN))
            .map_err(told)?
            .create()
            .map_err(told)?
            .set_compatibility(CompatLevel::BestEffort);
        let reading = AccessFs::from_read(ABI::V1);
        let connecting = reading | AccessFs::ResolveUnix;
        let rules = std::iter::once((Path::new("/"), reading))
            .chain(self.writable.iter().map(|p| (p.as_path(), writing())))
            .chain(self.sockets.iter().map(|p| (p.as_path(), connecting)));
        for (path, rights) in rules {
            // A place that is not in the view (a layer that is masked, a system without /var/tmp)
            // needs no rule. Links are followed: /tmp may be one.
            let Some((place, is_dir)) = open_place(path) else {
                continue;
            };
            let rights = if is_dir {
                rights
            } else {
                rights & AccessFs::from_file(KNOWN)
            };
            ruleset = ruleset
                .add_rule(PathBeneath::new(place, rights))
                .map_err(told)?;
        }
        Ok(in_force(&ruleset.restrict_self().map_err(told)?))
    }
}

/// Everything but making block devices, which nobody inside could use. Character devices stay: a
/// whiteout of a nested overlay is one, and any other is refused by the lack of capabilities.
fn writing() -> BitFlags<AccessFs> {
    AccessFs::from_all(KNOWN) & !BitFlags::from(AccessFs::MakeBlock)
}

fn in_force(status: &RestrictionStatus) -> Option<u32> {
    match status.ruleset {
        // Partly: the kernel knows fewer rights than we do, which is what its ABI says.
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => {
            Some(abi_of(&status.landlock))
        }
        RulesetStatus::NotEnforced => None,
    }
}

fn open_place(path: &Path) -> Option<(OwnedFd, bool)> {
    let place = open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
    let stat = nix::sys::stat::fstat(&place).ok()?;
    Some((place, stat.st_mode & libc::S_IFMT == libc::S_IFDIR))
}

fn abi_of(status: &LandlockStatus) -> u32 {
    match status {
        LandlockStatus::Available {
            effective_abi,
            kernel_abi,
        } => kernel_abi
            .and_then(|abi| u32::try_from(abi).ok())
            .unwrap_or(*effective_abi as u32),
        _ => 0,
    }
}

/// The kernel's ABI, 0 without Landlock, found out by restricting the calling process, which is to
/// end afterwards: it may not even execute a program any more.
pub(super) fn tried() -> u32 {
    let restricted = Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V1))
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self);
    restricted.map_or(0, |status| abi_of(&status.landlock))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use nix::sys::wait::{WaitStatus, waitpid};

    use super::*;
    use crate::sandbox::{namespace, seccomp, trial};

    /// What a start pays for both fences, in a process of its own: the least of some rounds, as
    /// other tests run beside it.
    #[test]
    fn both_fences_cost_a_start_less_than_a_millisecond() {
        let fence = Fence {
            writable: PLACES.iter().map(PathBuf::from).collect(),
            sockets: vec!["/etc/passwd".into()],
            scopes_only: false,
        };
        let round = || {
            let child = trial::fork_child(|| {
                let _ = nix::sys::prctl::set_no_new_privs();
                let begun = Instant::now();
                let up = fence.put_up().is_ok() && seccomp::put_up(false).is_ok();
                // In steps of 10 microseconds, as far as an exit status goes.
                let steps = begun.elapsed().as_micros() / 10;
                namespace::leave(if up { steps.min(254) as i32 } else { 255 });
            });
            match waitpid(child.expect("fork"), None) {
                Ok(WaitStatus::Exited(_, steps @ 0..255)) => {
                    Duration::from_micros(steps as u64 * 10)
                }
                other => panic!("the fences were not put up: {other:?}"),
            }
        };
        let least = (0..20).map(|_| round()).min().expect("rounds");
        println!("Landlock and seccomp: {least:?}");
        assert!(least < Duration::from_millis(1), "{least:?}");
    }
}
