//! Ways out of the sandbox, each tried as root and as an ordinary user and with every driver. Beside
//! every refusal stands a control that shows the same attempt succeed outside, or with the guard
//! off, so that nothing passes because something was missing; the host's own state is the judge.

mod escalate;
mod files;
mod kernel;
mod limits;
mod nested;
mod processes;
mod reach;
mod reviewer;
mod sockets;

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::support::{Call, Done, World, world};

/// Who merges the layers while an escape is tried.
pub const DRIVERS: &[&str] = &["overlayfs", "fuse"];

/// What must never be seen inside.
pub const SECRET: &str = "only-for-the-person-7f3a";

/// A world of one user, and one driver.
pub struct Cell {
    world: World,
    driver: &'static str,
}

impl Deref for Cell {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Cell {
    pub fn new(world: World, driver: &'static str) -> Self {
        Self { world, driver }
    }

    /// As [`World::run_with`], with the cell's driver.
    pub fn run_with(&self, flags: &[&str], script: &str) -> Call {
        let flags = [&["--driver", self.driver], flags].concat();
        self.world.run_with(&flags, script)
    }

    /// As [`World::run`], with the cell's driver.
    #[track_caller]
    pub fn run(&self, script: &str) -> Done {
        self.run_with(&[], script).ok()
    }

    /// Runs a script that must neither print the secret nor succeed.
    #[track_caller]
    pub fn refused(&self, script: &str) -> Done {
        let done = self.run_with(&[], script).done();
        assert_ne!(done.status, Some(0), "{done}");
        assert_ne!(
            done.status,
            Some(125),
            "the sandbox itself must work: {done}"
        );
        assert!(!(done.out() + &done.err()).contains(SECRET), "{done}");
        done
    }

    /// A directory outside of everything staged, that the permissions open to everybody.
    pub fn outside(&self, name: &str) -> PathBuf {
        let dir = self.root.join(name);
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        dir
    }

    /// A script of the host's that runs as whoever runs the tests: root, if anybody.
    #[track_caller]
    pub fn privileged(&self, script: &str) -> Done {
        let mut command = Command::new("bash");
        command
            .args(["-c", &format!("set -e; {script}")])
            .current_dir(&self.workspace);
        Call::new(command).done()
    }
}

/// Declares one escape.
macro_rules! escape {
    (fn $name:ident($cell:ident) $body:block) => {
        mod $name {
            #[allow(unused_imports)] // Not every test needs everything its file imports.
            use super::*;

            fn attempt($cell: &$crate::escapes::Cell) $body

            fn everywhere(made: impl Fn() -> Option<$crate::support::World>) {
                for driver in $crate::escapes::DRIVERS {
                    if let Some(world) = made() {
                        attempt(&$crate::escapes::Cell::new(world, driver));
                    }
                }
            }

            #[test]
            fn as_root() {
                let name = concat!(module_path!(), "::as_root");
                everywhere(|| $crate::support::World::of_root(name));
            }

            #[test]
            fn as_ordinary_user() {
                let name = concat!(module_path!(), "::as_ordinary_user");
                everywhere(|| $crate::support::World::of_ordinary_user(name));
            }
        }
    };
}
pub(crate) use escape;

/// The program that makes single system calls (`attack.c`), where every user can execute it.
pub fn attack() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/e2e/escapes/attack.c");
        let dir = world::base().join("bin");
        fs::create_dir_all(&dir).unwrap();
        let half = tempfile::NamedTempFile::new_in(&dir).unwrap();
        let done = Command::new("cc")
            .args(["-O1", "-w", "-o"])
            .arg(half.path())
            .arg(&source)
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        fs::set_permissions(half.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = dir.join(format!("attack-{}", std::process::id()));
        // Closed before it is executed.
        half.into_temp_path().persist(&program).unwrap();
        program.to_str().unwrap().to_owned()
    })
}

/// The only line a run of [`attack`] printed last.
pub fn verdict(done: &Done) -> String {
    done.out().lines().last().unwrap_or_default().to_owned()
}
