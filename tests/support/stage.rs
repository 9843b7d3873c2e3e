//! A world whose runs are merged by one driver, and the native twin of what runs there. Owns the
//! choice of driver, the probe whether the binary and the machine have it, and the comparison of
//! what was committed with what the same job does to a plain directory.

use std::collections::HashMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::call::{Call, Done};
use super::capability::{self, Capability};
use super::changes::Changes;
use super::tree::Tree;
use super::world::{World, binary};

/// Who merges the layers of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Driver {
    /// The kernel.
    Overlayfs,
    /// Our file server.
    Fuse,
}

impl Driver {
    /// As `--driver` takes it and `changes --json` tells it.
    pub fn name(self) -> &'static str {
        match self {
            Driver::Overlayfs => "overlayfs",
            Driver::Fuse => "fuse",
        }
    }
}

/// See the module. Everything of [`World`] is there; what runs goes through the driver.
pub struct Stage {
    world: World,
    /// Who merges.
    pub driver: Driver,
}

/// What became of a job beside its twin.
pub struct Twins {
    /// The run in the sandbox.
    pub staged: Done,
    /// The same script in a plain directory.
    pub native: Done,
    /// The changes as they stood before the commit.
    pub changes: Changes,
}

impl Deref for Stage {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Stage {
    /// Root's; `None`, with the reason printed, where it cannot be tried.
    pub fn of_root(test: &str, driver: Driver) -> Option<Self> {
        Self::over(World::of_root(test)?, driver)
    }

    /// An ordinary user's.
    pub fn of_ordinary_user(test: &str, driver: Driver) -> Option<Self> {
        Self::over(World::of_ordinary_user(test)?, driver)
    }

    fn over(world: World, driver: Driver) -> Option<Self> {
        let capability = match driver {
            Driver::Overlayfs => return Some(Self { world, driver }),
            Driver::Fuse => Capability::FuseDriver,
        };
        capability::have(&world, capability).then_some(Self { world, driver })
    }

    /// Whether our own file server merges.
    pub fn is_fuse(&self) -> bool {
        self.driver == Driver::Fuse
    }

    /// `run --headless` of a script in the workspace. With `PVISOR_TESTS_CACHE=extended` in the
    /// environment, every case that may be cached more is.
    pub fn run_with(&self, flags: &[&str], script: &str) -> Call {
        let driver = ["--driver", self.driver.name()];
        let cache = std::env::var("PVISOR_TESTS_CACHE").unwrap_or_default();
        // Rules and the observation log refuse it.
        let clashes = flags
            .iter()
            .any(|flag| ["--rule", "--observe", "--cache"].contains(flag));
        let cache = ["--cache", &cache];
        let cache = if self.is_fuse() && !clashes && !cache[1].is_empty() {
            &cache[..]
        } else {
            &[]
        };
        self.world
            .run_with(&[&driver, cache, flags].concat(), script)
    }

    /// [`Stage::run_with`] without further flags, to its successful end.
    #[track_caller]
    pub fn run(&self, script: &str) -> Done {
        self.run_with(&[], script).ok()
    }

    /// Prepares the workspace and a directory beside it alike, runs `job` staged in the one and
    /// natively in the other, commits, and demands the same tree (times apart, which no two runs
    /// have in common). Undo then has to bring back what was prepared, times included.
    #[track_caller]
    pub fn beside_twin(&self, prepare: &str, job: &str) -> Twins {
        let twin = self.root.join("twin");
        std::fs::create_dir(&twin).expect("a new directory");
        self.own(&twin, 0o755);
        let natively = |dir: &PathBuf, script: &str| {
            let mut command = self.command("bash");
            command.args(["-c", script]).current_dir(dir);
            Call::new(command).done()
        };
        // Root's job has no capability inside, so its twin has none either.
        let job_natively = |dir: &PathBuf| {
            if !self.user.is_root() {
                return natively(dir, job);
            }
            let mut command = self.command("setpriv");
            command.args(["--bounding-set=-all", "--inh-caps=-all", "bash", "-c", job]);
            command.current_dir(dir);
            Call::new(command).done()
        };
        for dir in [&self.workspace, &twin] {
            natively(dir, &format!("set -e; {prepare}")).exits(0);
        }
        let before = self.tree();
        let staged = self.run_with(&[], job).done();
        before.assert_same(&self.tree(), "the host after the run");
        let native = job_natively(&twin);
        assert_eq!(staged.status, native.status, "{staged}\n{native}");
        let changes = self.changes();
        self.pvisor(["commit", "--all", "--ignored"]).ok();
        let made = Tree::of(&twin).timeless();
        made.assert_same(
            &self.tree().timeless(),
            "committed, beside the same job done natively",
        );
        assert_eq!(
            self.changes().lines(),
            Vec::<String>::new(),
            "nothing is left to commit"
        );
        if changes.all().next().is_some() {
            self.pvisor(["undo"]).ok();
        }
        before.assert_same(&self.tree(), "undo brings back what was there");
        std::fs::remove_dir_all(&twin).expect("the twin goes");
        Twins {
            staged,
            native,
            changes,
        }
    }
}

impl Twins {
    /// Demands that the job printed the same, and that it is this.
    #[track_caller]
    pub fn both_print(&self, expected: &str) {
        assert_eq!(self.native.out(), expected, "natively: {}", self.native);
        assert_eq!(self.staged.out(), expected, "staged: {}", self.staged);
    }
}

/// Whether a run of the world's user can be served by our own file server: really tried.
pub fn probe_fuse(world: &World) -> Result<(), String> {
    static KNOWN: Mutex<Option<HashMap<u32, Result<(), String>>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known
        .get_or_insert_default()
        .entry(world.user.uid)
        .or_insert_with(|| {
            std::fs::metadata("/dev/fuse").map_err(|e| format!("/dev/fuse: {e}"))?;
            // In directories of its own: the test's sessions are the test's.
            let state = world.root.join("probe-state");
            let workspace = world.root.join("probe-work");
            for dir in [&state, &workspace] {
                std::fs::create_dir(dir).map_err(|e| e.to_string())?;
                world.own(dir, 0o700);
            }
            let call = |args: &[&str]| {
                let mut command = world.command(binary());
                command.arg("--state-dir").arg(&state).args(args);
                command.current_dir(&workspace);
                Call::new(command).done()
            };
            let ran = call(&["run", "--headless", "--driver", "fuse", "--", "true"]);
            if ran.status != Some(0) {
                return Err(format!("`run --driver fuse`: {}", ran.err().trim()));
            }
            let status = call(&["changes", "last", "--json"]);
            let json: serde_json::Value =
                serde_json::from_slice(&status.stdout).map_err(|e| e.to_string())?;
            match &json["layers"][0]["driver"] {
                driver if driver == "fuse" => Ok(()),
                driver => Err(format!("`--driver fuse` was served by {driver}")),
            }
        })
        .clone()
}

/// Declares one test that runs four times: by both drivers, as root and as an ordinary user.
macro_rules! each_driver_and_user {
    ($(#[$meta:meta])* fn $name:ident($stage:ident) $body:block) => {
        mod $name {
            #[allow(unused_imports)] // Not every test needs everything its file imports.
            use super::*;

            $(#[$meta])*
            fn check($stage: &$crate::support::Stage) $body

            #[test]
            fn overlayfs_as_root() {
                let name = concat!(module_path!(), "::overlayfs_as_root");
                let driver = $crate::support::Driver::Overlayfs;
                if let Some(stage) = $crate::support::Stage::of_root(name, driver) {
                    check(&stage);
                }
            }

            #[test]
            fn overlayfs_as_ordinary_user() {
                let name = concat!(module_path!(), "::overlayfs_as_ordinary_user");
                let driver = $crate::support::Driver::Overlayfs;
                if let Some(stage) = $crate::support::Stage::of_ordinary_user(name, driver) {
                    check(&stage);
                }
            }

            #[test]
            fn fuse_as_root() {
                let name = concat!(module_path!(), "::fuse_as_root");
                let driver = $crate::support::Driver::Fuse;
                if let Some(stage) = $crate::support::Stage::of_root(name, driver) {
                    check(&stage);
                }
            }

            #[test]
            fn fuse_as_ordinary_user() {
                let name = concat!(module_path!(), "::fuse_as_ordinary_user");
                let driver = $crate::support::Driver::Fuse;
                if let Some(stage) = $crate::support::Stage::of_ordinary_user(name, driver) {
                    check(&stage);
                }
            }
        }
    };
}
pub(crate) use each_driver_and_user;
