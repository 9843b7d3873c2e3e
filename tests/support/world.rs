//! A world for one test: workspace, home, state and runtime directories of one user on the real
//! disk, outside root's home and outside `/tmp`, and the installed binary to try in it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use nix::unistd::{Gid, Uid, chown, geteuid};
use tempfile::TempDir;

use super::call::{Call, Done};
use super::capability::{self, Capability};
use super::changes::Changes;
use super::tree::Tree;
use super::user::User;

/// Where programs of the host are looked for.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The directories of one test, removed when it ends.
pub struct World {
    /// The test's name, for the report.
    pub test: String,
    /// Who runs the binary and owns everything here.
    pub user: User,
    /// Holds all the others.
    pub root: PathBuf,
    /// The agent's workspace.
    pub workspace: PathBuf,
    /// What `$HOME` says.
    pub home: PathBuf,
    /// What `$XDG_STATE_HOME` says.
    pub state: PathBuf,
    /// What `$XDG_RUNTIME_DIR` says.
    pub runtime: PathBuf,
    _dir: TempDir,
}

impl World {
    /// A world of root's; `None`, with the reason printed, where that cannot be tried.
    pub fn of_root(test: &str) -> Option<Self> {
        let root = User::root();
        let probed = root
            .as_ref()
            .map(|_| ())
            .ok_or("not run as root".to_owned());
        if !capability::decide(test, Capability::Root, probed) {
            return None;
        }
        let world = Self::new(test, root?);
        capability::have_sandbox(&world).then_some(world)
    }

    /// A world of an ordinary user's.
    pub fn of_ordinary_user(test: &str) -> Option<Self> {
        let user = User::ordinary();
        let probed = user.as_ref().map(|_| ()).map_err(Clone::clone);
        if !capability::decide(test, Capability::OrdinaryUser, probed) {
            return None;
        }
        let world = Self::new(test, user.ok()?);
        capability::have_sandbox(&world).then_some(world)
    }

    /// A world that promises nothing about the machine.
    #[track_caller]
    pub fn new(test: &str, user: User) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("w")
            .tempdir_in(base())
            .unwrap_or_else(|e| panic!("a world below {}: {e}", base().display()));
        let root = dir.path().canonicalize().expect("it was just made");
        let world = Self {
            test: test.into(),
            workspace: root.join("work"),
            home: root.join("home"),
            state: root.join("state"),
            runtime: root.join("run"),
            user,
            root,
            _dir: dir,
        };
        world.own(&world.root, 0o755);
        for (path, mode) in [
            (&world.workspace, 0o755),
            (&world.home, 0o755),
            (&world.state, 0o700),
            (&world.runtime, 0o700),
        ] {
            fs::create_dir(path).expect("a new directory");
            world.own(path, mode);
        }
        world
    }

    /// Gives `path` to the world's user.
    #[track_caller]
    pub fn own(&self, path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
        if geteuid().is_root() {
            let (uid, gid) = (Uid::from_raw(self.user.uid), Gid::from_raw(self.user.gid));
            chown(path, Some(uid), Some(gid)).expect("chown");
        }
    }

    /// A command as this world's user sees the machine: a short environment, starting outside the
    /// workspace, so that nothing leans on the current directory.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", &self.home)
            .env("USER", &self.user.name)
            .env("LOGNAME", &self.user.name)
            .env("SHELL", "/bin/bash")
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .env("LC_ALL", "C.UTF-8")
            .env("XDG_STATE_HOME", &self.state)
            .env("XDG_RUNTIME_DIR", &self.runtime)
            .current_dir(&self.root);
        self.user.apply(&mut command);
        command
    }

    /// The binary with these arguments.
    pub fn pvisor<I, A>(&self, args: I) -> Call
    where
        I: IntoIterator<Item = A>,
        A: AsRef<OsStr>,
    {
        let mut command = self.command(binary());
        command.args(args);
        Call::new(command)
    }

    /// `run --headless` of a script in the workspace, with these flags before `--`.
    pub fn run_with(&self, flags: &[&str], script: &str) -> Call {
        let mut command = self.command(binary());
        command
            .args(["run", "--headless", "--workspace"])
            .arg(&self.workspace)
            .args(flags)
            .args(["--", "bash", "-c", script]);
        Call::new(command)
    }

    /// [`World::run_with`] without flags, to its successful end.
    #[track_caller]
    pub fn run(&self, script: &str) -> Done {
        self.run_with(&[], script).ok()
    }

    /// A script of the host's in the workspace, whatever its end.
    #[track_caller]
    pub fn host(&self, script: &str) -> Done {
        let mut command = self.command("bash");
        command
            .args(["-c", &format!("set -e; {script}")])
            .current_dir(&self.workspace);
        Call::new(command).done()
    }

    /// A script of the host's in the workspace that must succeed.
    #[track_caller]
    pub fn host_ok(&self, script: &str) -> String {
        self.host(script).exits(0).out()
    }

    /// A file of the workspace, as bytes.
    #[track_caller]
    pub fn bytes(&self, path: &str) -> Vec<u8> {
        let full = self.workspace.join(path);
        fs::read(&full).unwrap_or_else(|e| panic!("{}: {e}", full.display()))
    }

    /// A file of the workspace, as text.
    #[track_caller]
    pub fn text(&self, path: &str) -> String {
        String::from_utf8_lossy(&self.bytes(path)).into_owned()
    }

    /// Whether the workspace has an entry of this name, dangling links included.
    pub fn has(&self, path: &str) -> bool {
        self.workspace.join(path).symlink_metadata().is_ok()
    }

    /// The permission bits of a path of the workspace.
    #[track_caller]
    pub fn mode(&self, path: &str) -> u32 {
        let full = self.workspace.join(path);
        let meta = full.symlink_metadata();
        meta.unwrap_or_else(|e| panic!("{}: {e}", full.display()))
            .mode()
            & 0o7777
    }

    /// The host's workspace as it lies on disk.
    #[track_caller]
    pub fn tree(&self) -> Tree {
        Tree::of(&self.workspace)
    }

    /// `changes --json` of the last session.
    #[track_caller]
    pub fn changes(&self) -> Changes {
        Changes::from_json(self.pvisor(["changes", "last", "--json"]).ok().json())
    }

    /// `status --json` of the last session.
    #[track_caller]
    pub fn status(&self) -> serde_json::Value {
        self.pvisor(["status", "last", "--json"]).ok().json()
    }

    /// The directory of the last session.
    #[track_caller]
    pub fn session_dir(&self) -> PathBuf {
        let status = self.status();
        PathBuf::from(status["dir"].as_str().expect("status names the directory"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A test that failed may have left a session behind; it must not outlive its directories.
        super::processes::end_all_of(self);
        // Overlay work directories have mode 000: an ordinary user cannot remove them as they are.
        let _ = Command::new("chmod")
            .args(["-R", "u+rwX"])
            .arg(&self.root)
            .stderr(std::process::Stdio::null())
            .status();
    }
}

/// Parent of all worlds: on the real disk, never below `/tmp`, which the sandbox replaces.
pub fn base() -> &'static Path {
    static BASE: OnceLock<PathBuf> = OnceLock::new();
    BASE.get_or_init(|| {
        let base = match std::env::var_os("PVISOR_TESTS_DIR") {
            Some(dir) => PathBuf::from(dir),
            None if geteuid().is_root() => PathBuf::from("/var/lib/pvtest"),
            None => PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pvtest"),
        };
        fs::create_dir_all(&base).expect("a directory for the tests");
        base.canonicalize().expect("it exists")
    })
}

/// The binary under test, where every user can execute it: root's target directory is often out of
/// an ordinary user's reach.
pub fn binary() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| {
        let built = PathBuf::from(
            std::env::var_os("PVISOR_TESTS_BINARY")
                .unwrap_or_else(|| env!("CARGO_BIN_EXE_pvisor-tui").into()),
        );
        readable(&built)
    })
}

/// A program as every user can execute it, under its own name.
pub fn readable(built: &Path) -> PathBuf {
    if !geteuid().is_root() {
        return built.to_owned();
    }
    let meta = fs::metadata(built).expect("cargo built it");
    // Named by what it is, so that other builds of the same tests do not disturb it.
    let dir = base()
        .join("bin")
        .join(format!("{}-{}", meta.ino(), meta.mtime_nsec()));
    fs::create_dir_all(&dir).expect("a directory for the binary");
    forget_old_copies(&base().join("bin"), &dir);
    let copy = dir.join(built.file_name().expect("a program has a name"));
    if !copy.exists() {
        // Several threads may come to this at once.
        let own = tempfile::tempdir_in(&dir).expect("a directory");
        let half = own.path().join("half");
        // By a process of its own: a file open for writing is "busy", and what another thread of this
        // one is just about to start would hold a copy of the descriptor.
        let copied = Command::new("cp").arg(built).arg(&half).status();
        assert!(copied.expect("cp starts").success(), "copying the binary");
        fs::set_permissions(&half, fs::Permissions::from_mode(0o755)).expect("chmod");
        fs::rename(&half, &copy).expect("renaming the binary");
    }
    copy
}

/// Copies of builds from earlier days go; one of today may be under test beside us.
fn forget_old_copies(bin: &Path, kept: &Path) {
    let day = std::time::Duration::from_secs(24 * 60 * 60);
    for entry in fs::read_dir(bin).into_iter().flatten().flatten() {
        let age = entry
            .metadata()
            .and_then(|m| m.modified())
            .map(|made| made.elapsed());
        if entry.path() != kept && age.is_ok_and(|age| age.is_ok_and(|age| age > day)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Where a real agent's program lies: `PVISOR_TESTS_AGENTS` names a directory in which npm
/// installed it.
pub fn agent(name: &str) -> Result<PathBuf, String> {
    let dir = std::env::var_os("PVISOR_TESTS_AGENTS")
        .map_or_else(|| base().join("agents"), PathBuf::from);
    let program = dir.join("node_modules/.bin").join(name);
    if program.exists() {
        Ok(program)
    } else {
        Err(format!("{} is not installed", program.display()))
    }
}

/// A toolchain and a crate for real work.
#[derive(Debug, Clone)]
pub struct Toolchain {
    /// Holds `cargo` and `rustc`.
    pub bin: PathBuf,
    /// Source of a published crate without dependencies.
    pub krate: PathBuf,
}

/// Finds a toolchain that every user can read (root's own often lies in its home: then it is
/// hard-linked or copied once) and a crate to build with it.
pub fn toolchain() -> Result<Toolchain, String> {
    static FOUND: OnceLock<Result<Toolchain, String>> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            let sysroot = output("rustc", &["--print", "sysroot"])?;
            let sysroot = PathBuf::from(sysroot.trim());
            let bin = if geteuid().is_root() {
                readable_copy(&sysroot)?
            } else {
                sysroot.join("bin")
            };
            if !bin.join("cargo").exists() {
                return Err(format!("no cargo in {}", bin.display()));
            }
            Ok(Toolchain {
                bin,
                krate: plain_crate()?,
            })
        })
        .clone()
}

fn readable_copy(sysroot: &Path) -> Result<PathBuf, String> {
    let version = output("rustc", &["--version"])?;
    let name: String = version
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '.')
        .collect();
    let copy = base().join(format!("toolchain-{name}"));
    if !copy.exists() {
        let half = tempfile::tempdir_in(base()).map_err(|e| e.to_string())?;
        for part in ["bin", "lib"] {
            let (from, to) = (sysroot.join(part), half.path().join(part));
            let text = |p: &Path| p.to_string_lossy().into_owned();
            output("cp", &["-al", &text(&from), &text(&to)])
                .or_else(|_| output("cp", &["-a", &text(&from), &text(&to)]))?;
        }
        fs::set_permissions(half.path(), fs::Permissions::from_mode(0o755))
            .map_err(|e| e.to_string())?;
        // Lost the race against another test process: its copy is as good.
        if fs::rename(half.path(), &copy).is_ok() {
            std::mem::forget(half);
        }
    }
    Ok(copy.join("bin"))
}

/// A published crate in the registry's source cache that needs no other crate and no build script.
fn plain_crate() -> Result<PathBuf, String> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
        .ok_or("no cargo home")?;
    let sources = home.join("registry/src");
    let mut crates: Vec<PathBuf> = fs::read_dir(&sources)
        .map_err(|e| format!("{}: {e}", sources.display()))?
        .flatten()
        .filter_map(|index| fs::read_dir(index.path()).ok())
        .flat_map(|index| index.flatten().map(|entry| entry.path()))
        .filter(|path| is_plain(path))
        .collect();
    crates.sort();
    crates.into_iter().next().ok_or(format!(
        "no crate without dependencies in {}",
        sources.display()
    ))
}

fn is_plain(path: &Path) -> bool {
    let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap_or_default();
    let needs = manifest
        .lines()
        .any(|line| line.starts_with('[') && line.contains("dependencies"));
    let sources = path.join("src/lib.rs").exists() && !path.join("build.rs").exists();
    let small = fs::read_dir(path.join("src")).is_ok_and(|files| files.count() < 20);
    let text = path.as_os_str().as_bytes();
    // A few well-kept ones that are not `no_core` tricks of the standard library.
    let known = [
        "/heck-",
        "/strsim-",
        "/scopeguard-",
        "/fnv-",
        "/shlex-",
        "/unicode-segmentation-",
    ];
    let known = known
        .iter()
        .any(|name| text.windows(name.len()).any(|w| w == name.as_bytes()));
    known && !needs && sources && small
}

fn output(program: &str, args: &[&str]) -> Result<String, String> {
    let done = Command::new(program)
        .args(args)
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    if done.status.success() {
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    } else {
        Err(format!(
            "{program}: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        ))
    }
}
