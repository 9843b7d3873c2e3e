//! A home, a workspace and a session to try the sandbox with, and how a command is run there.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pvisor::layer::{Driver, Layer};
use pvisor::sandbox::{
    AgentIo, Boundary, ExitStatus, Mode, Running, SandboxError, SandboxSpec, Stdio, start,
};

pub struct Fixture {
    pub root: tempfile::TempDir,
    pub home: PathBuf,
    pub workspace: PathBuf,
    pub session: PathBuf,
}

pub fn base() -> PathBuf {
    let candidates = [
        std::env::var_os("PVISOR_TEST_DIR").map(PathBuf::from),
        Some(PathBuf::from(env!("CARGO_TARGET_TMPDIR"))),
    ];
    candidates
        .into_iter()
        .flatten()
        .find(|dir| nix::unistd::access(dir, nix::unistd::AccessFlags::W_OK).is_ok())
        .unwrap_or_else(std::env::temp_dir)
}

impl Fixture {
    pub fn new() -> Self {
        Self::in_dir(&base())
    }

    pub fn in_dir(dir: &Path) -> Self {
        let root = tempfile::tempdir_in(dir).expect("a directory to work in");
        let real = fs::canonicalize(root.path()).expect("its real name");
        let home = real.join("home");
        let workspace = home.join("proj");
        let session = home.join(".local/state/pvisor-tui/sessions/s1");
        fs::create_dir_all(&workspace).expect("workspace");
        fs::create_dir_all(&session).expect("session");
        fs::write(workspace.join("a.txt"), "a\n").expect("file");
        fs::write(home.join(".profile"), "p\n").expect("file");
        Self {
            root,
            home,
            workspace,
            session,
        }
    }

    pub fn layer(&self, name: &str, root: &Path) -> Layer {
        Layer {
            name: name.into(),
            root: root.into(),
            dir: self.session.join("layers").join(name),
            driver: Driver::Overlayfs,
        }
    }

    pub fn spec<const N: usize>(&self, command: [&str; N]) -> SandboxSpec {
        SandboxSpec {
            mode: Mode::Staged,
            command: command.iter().map(OsString::from).collect(),
            cwd: self.workspace.clone(),
            env: vec![
                (
                    "PATH".into(),
                    "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".into(),
                ),
                ("HOME".into(), self.home.clone().into()),
            ],
            layers: vec![
                self.layer("workspace", &self.workspace),
                self.layer("home", &self.home),
            ],
            mounts: Vec::new(),
            unhide: Vec::new(),
            hide: vec![self.home.join(".local/state/pvisor-tui")],
            home: self.home.clone(),
            private: self.session.join("private"),
            stdio: Stdio::Pipes,
            timeout: None,
            network: pvisor::sandbox::spec::Network::Host,
            driver: pvisor::sandbox::spec::DriverChoice::Auto,
            cache: pvisor::sandbox::spec::CacheMode::Default,
            observe: false,
            policy: pvisor::policy::Policy::default(),
            limits: pvisor::sandbox::spec::Limits::default(),
            rename_shim: true,
            nested: false,
            notes: Vec::new(),
        }
    }

    pub fn shell(&self, script: &str) -> SandboxSpec {
        self.spec(["sh", "-c", script])
    }

    pub fn upper(&self, layer: &str, path: &str) -> PathBuf {
        self.session
            .join("layers")
            .join(layer)
            .join("upper")
            .join(path)
    }
}

impl Drop for Fixture {
    /// The kernel leaves directories of mode 000 behind, and so do some tests.
    fn drop(&mut self) {
        let mut chmod = Command::new("chmod");
        chmod.args(["-R", "u+rwX"]).arg(self.root.path());
        // What cannot be removed stays in the target directory.
        let _ = chmod.stderr(std::process::Stdio::null()).status();
    }
}

pub struct Ran {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
    pub boundary: Boundary,
}

pub fn read(fd: OwnedFd) -> String {
    let mut bytes = Vec::new();
    fs::File::from(fd).read_to_end(&mut bytes).expect("output");
    String::from_utf8_lossy(&bytes).into_owned()
}

pub fn finish(running: Running) -> Ran {
    let AgentIo::Pipes {
        stdin,
        stdout,
        stderr,
    } = running.io
    else {
        panic!("pipes were asked for");
    };
    drop(stdin);
    let (out, err) = (read(stdout), read(stderr));
    let status = running.exit.wait();
    drop(running.access);
    Ran {
        status,
        out,
        err,
        boundary: running.boundary,
    }
}

/// Waits for the line `ready` at the begin of the command's output.
pub fn hear_ready(running: &Running) {
    let AgentIo::Pipes { stdout, .. } = &running.io else {
        panic!("pipes were asked for");
    };
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\n") {
        assert_eq!(nix::unistd::read(stdout, &mut byte), Ok(1), "{line:?}");
        line.extend(byte);
    }
    assert_eq!(line, b"ready\n");
}

pub fn run(spec: &SandboxSpec) -> Ran {
    match start(spec) {
        Ok(running) => finish(running),
        Err(SandboxError::Setup { doing, cause, hint }) => panic!("{doing}: {cause} ({hint:?})"),
    }
}

pub fn refusal(spec: &SandboxSpec) -> (String, String) {
    match start(spec) {
        Ok(running) => panic!("it ran: {:?}", finish(running).out),
        Err(SandboxError::Setup { doing, cause, hint }) => {
            (format!("{doing}: {cause}"), hint.unwrap_or_default())
        }
    }
}

/// Whether a process runs whose command line holds `mark`.
pub fn runs(mark: &str) -> bool {
    !marked(mark).is_empty()
}

/// The processes whose command line holds `mark`.
fn marked(mark: &str) -> Vec<i32> {
    fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter(|entry| {
            fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| line.windows(mark.len()).any(|w| w == mark.as_bytes()))
        })
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Descriptors of the processes that run with `mark` in their command line, for [`all_gone`].
pub fn watched(mark: &str) -> Vec<OwnedFd> {
    let found: Vec<OwnedFd> = marked(mark)
        .into_iter()
        .filter_map(|pid| {
            // SAFETY: the call takes two numbers; what it returns is a new descriptor or -1.
            let fd = unsafe { nix::libc::syscall(nix::libc::SYS_pidfd_open, pid, 0) };
            let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
            // SAFETY: the descriptor is new and nobody else's.
            Some(unsafe { OwnedFd::from_raw_fd(fd) })
        })
        .collect();
    assert!(!found.is_empty(), "nothing runs with {mark}");
    found
}

/// Waits until every watched process has ended; fails after a minute.
pub fn all_gone(processes: &[OwnedFd]) {
    let limit = PollTimeout::try_from(Duration::from_secs(60)).expect("a time limit");
    for process in processes {
        let mut end = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut end, limit), Ok(1), "a process is still there");
    }
}

/// Runs one of this file's hidden scenarios in a shell that prepares the machine first, in a mount
/// namespace of its own. `None` when that is not possible here.
pub fn prepared(preparation: &str, scenario: &str) -> Option<(i32, String)> {
    let root = nix::unistd::geteuid().is_root();
    let flags = if root { "-m" } else { "-Urm" };
    let probe = Command::new("unshare").args([flags, "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("skipped: unshare {flags} is not possible here");
        return None;
    }
    let this = std::env::current_exe().expect("this program");
    let output = Command::new("unshare")
        .args([flags, "sh", "-c"])
        .arg(format!("set -e; {preparation}; exec \"$0\" scenario"))
        .arg(this)
        .env("PVISOR_SCENARIO", scenario)
        .output()
        .expect("unshare");
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Some((output.status.code().unwrap_or(-1), text))
}
