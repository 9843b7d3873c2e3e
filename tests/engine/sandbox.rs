//! The sandbox, tried from inside. Starting one forks children that go on without exec, which
//! needs a process with one thread, so these tests bring their own harness: every test runs on the
//! main thread, one after the other. Arguments select tests by a part of their name.
//!
//! Run them as root and as an ordinary user; `PVISOR_TEST_DIR` names a directory to work in.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{ForkResult, fork};
use pvisor::RelPath;
use pvisor::doctor::examine;
use pvisor::layer::{AccessError, Driver, Layer};
use pvisor::sandbox::spec::TerminalSize;
use pvisor::sandbox::{
    AgentIo, Boundary, ExitStatus, Mode, MountAccess, MountSpec, Running, SandboxError,
    SandboxSpec, Stdio, open_unmounted, start,
};

type Test = (&'static str, fn());

macro_rules! tests {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name as fn())),*] };
}

const TESTS: &[Test] = tests![
    the_command_runs_in_place_as_its_caller_and_the_host_stays_clean,
    nothing_inside_holds_a_capability,
    root_inside_cannot_touch_the_kernels_settings,
    hidden_places_are_empty_and_stay_hidden,
    what_was_given_back_is_seen,
    the_system_is_read_only_and_scratch_places_are_private,
    only_harmless_devices_exist,
    sockets_outside_are_out_of_reach,
    only_the_given_environment_and_descriptors_pass,
    exit_statuses_are_those_of_a_shell,
    a_time_limit_ends_the_command,
    a_stop_ends_every_descendant,
    nothing_survives_a_killed_server,
    the_end_of_the_command_ends_what_it_left_behind,
    a_terminal_has_a_name_and_a_size,
    terminals_can_be_made_inside,
    a_workspace_on_a_mount_of_its_own_is_staged,
    a_workspace_in_tmp_is_seen_in_place,
    a_workspace_that_is_the_home_is_one_layer,
    a_session_inside_the_workspace_is_hidden,
    a_workspace_in_a_hidden_place_is_refused,
    mounts_are_what_was_asked_for,
    a_layer_goes_on_with_its_upper,
    uppers_are_read_with_the_agents_rights,
    a_covered_proc_is_used_read_only,
    a_mount_inside_the_workspace_is_refused_by_name,
    a_mount_inside_the_home_makes_it_read_only,
    without_user_namespaces_nothing_runs,
    mode_host_is_a_plain_process,
    doctor_tries_every_step_and_leaves_nothing,
    start_cost,
];

fn main() {
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted.iter().any(|a| a == "--list") {
        for (name, _) in TESTS {
            println!("{name}: test");
        }
        return;
    }
    if let Ok(scenario) = std::env::var("PVISOR_SCENARIO") {
        let (name, path) = scenario.split_once(' ').unwrap_or((&scenario, ""));
        match name {
            "proc" => scenario_proc(),
            "submount" => scenario_submount(Path::new(path)),
            "mounted" => scenario_mounted(Path::new(path)),
            "home" => scenario_home(Path::new(path)),
            _ => scenario_denied(),
        }
        return;
    }
    wanted.retain(|a| !a.starts_with('-'));
    let mut failed = Vec::new();
    for (name, test) in TESTS {
        let selected = wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()));
        if !selected {
            continue;
        }
        let outcome = std::panic::catch_unwind(test);
        println!(
            "test {name} ... {}",
            if outcome.is_ok() { "ok" } else { "FAILED" }
        );
        if outcome.is_err() {
            failed.push(*name);
        }
    }
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
        std::process::exit(101);
    }
}

// ---- fixture ----

struct Fixture {
    root: tempfile::TempDir,
    home: PathBuf,
    workspace: PathBuf,
    session: PathBuf,
}

fn base() -> PathBuf {
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
    fn new() -> Self {
        Self::in_dir(&base())
    }

    fn in_dir(dir: &Path) -> Self {
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

    fn layer(&self, name: &str, root: &Path) -> Layer {
        Layer {
            name: name.into(),
            root: root.into(),
            dir: self.session.join("layers").join(name),
            driver: Driver::Overlayfs,
        }
    }

    fn spec<const N: usize>(&self, command: [&str; N]) -> SandboxSpec {
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
        }
    }

    fn shell(&self, script: &str) -> SandboxSpec {
        self.spec(["sh", "-c", script])
    }

    fn upper(&self, layer: &str, path: &str) -> PathBuf {
        self.session
            .join("layers")
            .join(layer)
            .join("upper")
            .join(path)
    }
}

struct Ran {
    status: ExitStatus,
    out: String,
    err: String,
    boundary: Boundary,
}

fn read(fd: OwnedFd) -> String {
    let mut bytes = Vec::new();
    fs::File::from(fd).read_to_end(&mut bytes).expect("output");
    String::from_utf8_lossy(&bytes).into_owned()
}

fn finish(running: Running) -> Ran {
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

fn run(spec: &SandboxSpec) -> Ran {
    match start(spec) {
        Ok(running) => finish(running),
        Err(SandboxError::Setup { doing, cause, hint }) => panic!("{doing}: {cause} ({hint:?})"),
    }
}

fn refusal(spec: &SandboxSpec) -> (String, String) {
    match start(spec) {
        Ok(running) => panic!("it ran: {:?}", finish(running).out),
        Err(SandboxError::Setup { doing, cause, hint }) => {
            (format!("{doing}: {cause}"), hint.unwrap_or_default())
        }
    }
}

/// Waits until `condition` holds; fails after ten seconds.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < end, "still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs whose command line holds `mark`.
fn runs(mark: &str) -> bool {
    fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .any(|entry| {
            fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| line.windows(mark.len()).any(|w| w == mark.as_bytes()))
        })
}

/// Runs one of this file's hidden scenarios in a shell that prepares the machine first, in a mount
/// namespace of its own. `None` when that is not possible here.
fn prepared(preparation: &str, scenario: &str) -> Option<(i32, String)> {
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

// ---- tests ----

fn the_command_runs_in_place_as_its_caller_and_the_host_stays_clean() {
    let f = Fixture::new();
    let ran = run(&f.shell(
        "pwd; id -u; echo $HOME; hostname; umask; echo more >>a.txt; echo new >b.txt; echo x >~/.new",
    ));
    assert_eq!(ran.err, "");
    assert_eq!(ran.status, ExitStatus::Code(0));
    let hostname = nix::unistd::gethostname().expect("name");
    let umask = Command::new("sh")
        .args(["-c", "umask"])
        .output()
        .expect("umask");
    let expected = format!(
        "{}\n{}\n{}\n{}\n{}",
        f.workspace.display(),
        nix::unistd::geteuid(),
        f.home.display(),
        hostname.display(),
        String::from_utf8_lossy(&umask.stdout),
    );
    assert_eq!(ran.out, expected);
    assert_eq!(
        fs::read_to_string(f.workspace.join("a.txt")).expect("a"),
        "a\n"
    );
    assert!(!f.workspace.join("b.txt").exists());
    assert!(!f.home.join(".new").exists());
    let upper = |layer, path| fs::read_to_string(f.upper(layer, path)).expect("in the upper");
    assert_eq!(upper("workspace", "a.txt"), "a\nmore\n");
    assert_eq!(upper("workspace", "b.txt"), "new\n");
    assert_eq!(upper("home", ".new"), "x\n");
    assert!(
        !f.upper("home", "proj").exists(),
        "the workspace is no change of the home"
    );
    let mode = |path: &Path| fs::metadata(path).expect("dir").mode();
    assert_eq!(mode(&f.upper("workspace", "")), mode(&f.workspace));
    assert_eq!(
        ran.boundary.namespaces,
        ["user", "mnt", "pid", "ipc", "uts"]
    );
    assert_eq!(ran.boundary.layers.len(), 2);
    assert_eq!(ran.boundary.proc, "new");
    assert_eq!(ran.boundary.network, "host");
}

fn nothing_inside_holds_a_capability() {
    let f = Fixture::new();
    let ran = run(&f.shell("grep -E '^(Cap|NoNewPrivs)' /proc/self/status"));
    for line in ran.out.lines() {
        let (name, value) = line.split_once(":\t").expect("a field");
        let expected = if name == "NoNewPrivs" {
            "1"
        } else {
            "0000000000000000"
        };
        assert_eq!(value, expected, "{name}");
    }
    assert_eq!(ran.out.lines().count(), 6, "{}", ran.out);
    assert!(ran.boundary.no_capabilities);
    let ran = run(&f.shell(
        "umount /tmp; umount -l $HOME; mount -t tmpfs none /mnt; mount -o remount,rw /; \
         unshare -Ur true && echo nested; unshare -m true && echo mounts; chroot / true && echo chroot; \
         cat /proc/1/environ && echo looked; kill -9 1; ls /proc | grep -c '^[0-9]'",
    ));
    for word in ["nested", "mounts", "chroot", "looked"] {
        assert!(!ran.out.contains(word), "{word}: {}", ran.out);
    }
    let processes: usize = ran.out.trim().parse().expect("a number");
    assert!(
        processes <= 5,
        "only its own processes are seen, not {processes}"
    );
}

fn root_inside_cannot_touch_the_kernels_settings() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let f = Fixture::new();
    let before = fs::read_to_string("/proc/sys/kernel/core_pattern").expect("setting");
    let ran = run(&f.shell(
        "echo x >/proc/sys/kernel/core_pattern && echo wrote; echo h >/proc/sysrq-trigger && echo wrote; \
         echo 1 >/sys/kernel/mm/ksm/run && echo wrote; find /proc -maxdepth 1 -type f -perm /222 | \
         while read f; do (: >>$f) && echo open $f; done; echo 5 >/proc/self/oom_score_adj && echo own",
    ));
    assert_eq!(ran.out, "own\n", "{}", ran.err);
    let after = fs::read_to_string("/proc/sys/kernel/core_pattern").expect("setting");
    assert_eq!(before, after);
}

fn hidden_places_are_empty_and_stay_hidden() {
    let f = Fixture::new();
    fs::create_dir_all(f.home.join(".ssh")).expect("dir");
    fs::write(f.home.join(".ssh/id_ed25519"), "SECRET").expect("key");
    fs::write(f.home.join(".netrc"), "SECRET").expect("file");
    fs::create_dir_all(f.home.join("cluster")).expect("dir");
    fs::write(f.home.join("cluster/config"), "SECRET").expect("file");
    symlink("cluster", f.home.join(".kube")).expect("link");
    fs::create_dir_all(f.workspace.join("private")).expect("dir");
    fs::write(f.workspace.join("private/x"), "SECRET").expect("file");
    let mut spec = f.shell(
        "cat ~/.profile; cat ~/.ssh/id_ed25519; cat ~/.netrc; cat ~/.kube/config; cat ~/cluster/config; \
         cat private/x; chmod 700 ~/.ssh && ls -A ~/.ssh; chmod 600 ~/.netrc && cat ~/.netrc; \
         mv ~/.ssh ~/.s2 && echo moved; rm -rf ~/.ssh; echo x >~/.ssh/new && echo wrote; \
         ls ~/.local/state/pvisor-tui && echo listed; ln ~/.netrc ~/n2 && cat ~/n2",
    );
    spec.hide.push(f.workspace.join("private"));
    let ran = run(&spec);
    assert_eq!(
        ran.out, "p\n",
        "the file beside them is read; nothing else is: {}",
        ran.err
    );
    let hidden = |path: &Path| ran.boundary.hidden.contains(&path.display().to_string());
    for path in [".ssh", ".netrc", ".kube", ".local/state/pvisor-tui"] {
        assert!(
            hidden(&f.home.join(path)),
            "{path}: {:?}",
            ran.boundary.hidden
        );
    }
    assert_eq!(
        fs::read_to_string(f.home.join(".ssh/id_ed25519")).expect("key"),
        "SECRET"
    );
}

fn what_was_given_back_is_seen() {
    let f = Fixture::new();
    fs::create_dir_all(f.home.join(".aws")).expect("dir");
    fs::write(f.home.join(".aws/credentials"), "KEY").expect("file");
    let mut spec = f.shell("cat ~/.aws/credentials");
    assert_eq!(run(&spec).out, "");
    spec.unhide = vec![f.home.join(".aws")];
    assert_eq!(run(&spec).out, "KEY");
}

fn the_system_is_read_only_and_scratch_places_are_private() {
    let f = Fixture::new();
    let mark = f
        .root
        .path()
        .file_name()
        .expect("name")
        .display()
        .to_string();
    fs::write(std::env::temp_dir().join(&mark), "outside").expect("file in /tmp");
    let outside = f.root.path().join("outside");
    fs::create_dir(&outside).expect("dir");
    let ran = run(&f.shell(&format!(
        "for d in /etc /usr / /var /home {} /run/user; do touch $d/{mark}.x 2>/dev/null && echo $d; done; \
         cat /tmp/{mark}; for d in /tmp /var/tmp /dev/shm /run/user/$(id -u); do \
         echo y >$d/{mark}.y && cat $d/{mark}.y; done; stat -c %a /tmp /var/tmp",
        outside.display()
    )));
    fs::remove_file(std::env::temp_dir().join(&mark)).expect("clean");
    // `/run/user` is the agent's own.
    assert_eq!(
        ran.out, "/run/user\ny\ny\ny\ny\n1777\n1777\n",
        "{}",
        ran.err
    );
    for dir in ["/tmp", "/var/tmp", "/dev/shm", "/etc"] {
        assert!(!Path::new(dir).join(format!("{mark}.y")).exists(), "{dir}");
    }
    let kept = f.session.join("private/tmp").join(format!("{mark}.y"));
    assert!(kept.exists(), "on disk, in the session's directory");
}

fn only_harmless_devices_exist() {
    let f = Fixture::new();
    let ran = run(&f.shell(
        "ls /dev | tr '\\n' ' '; echo; echo x >/dev/null && head -c 4 /dev/zero | wc -c; \
         echo </dev/full | cat; touch /dev/new && echo made; mknod /tmp/n b 254 0 && echo node",
    ));
    assert_eq!(
        ran.out, "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero \n4\n\n",
        "{}",
        ran.err
    );
}

fn sockets_outside_are_out_of_reach() {
    let f = Fixture::new();
    let dir = tempfile::tempdir_in(std::env::temp_dir()).expect("dir");
    let path = dir.path().join("agent.sock");
    let _listener = UnixListener::bind(&path).expect("listener");
    std::os::unix::net::UnixStream::connect(&path).expect("it answers outside");
    let ask = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1].replace('@','\\0'))\nprint('reached')";
    let mut spec = f.spec(["python3", "-c", ask, path.to_str().expect("text")]);
    assert_eq!(run(&spec).out, "");

    use std::os::linux::net::SocketAddrExt;
    let name = format!("pvisor-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("name");
    let _listener = UnixListener::bind_addr(&address).expect("listener");
    spec.command[3] = format!("@{name}").into();
    let ran = run(&spec);
    match ran.boundary.landlock {
        Some(abi) => {
            assert!(abi >= 6);
            assert_eq!(ran.out, "", "cut off by Landlock");
            assert!(ran.err.contains("PermissionError"), "{}", ran.err);
        }
        None => assert!(ran.boundary.notes.iter().any(|n| n.contains("abstract"))),
    }
    // A listener inside is reached, by either kind of name.
    let pair = "import socket\nfor n in ['/tmp/s','\\0inside']:\n l=socket.socket(socket.AF_UNIX);l.bind(n);l.listen()\n \
                s=socket.socket(socket.AF_UNIX);s.connect(n);print('inside')";
    let ran = run(&f.spec(["python3", "-c", pair]));
    assert_eq!(ran.out, "inside\ninside\n", "{}", ran.err);
}

fn only_the_given_environment_and_descriptors_pass() {
    let f = Fixture::new();
    let leak = fs::File::open("/etc/passwd").expect("file");
    nix::fcntl::fcntl(
        &leak,
        nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()),
    )
    .expect("inheritable");
    let ran = run(&f.spec(["env"]));
    let expected = format!(
        "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin\nHOME={}\n",
        f.home.display()
    );
    assert_eq!(ran.out, expected);
    // One more is `ls` reading the directory.
    let ran = run(&f.spec(["ls", "/proc/self/fd"]));
    assert_eq!(ran.out, "0\n1\n2\n3\n");
    let ran = run(&f.shell("grep -E '^Sig(Blk|Ign)' /proc/self/status"));
    assert_eq!(
        ran.out,
        "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
    );
}

fn exit_statuses_are_those_of_a_shell() {
    let f = Fixture::new();
    fs::write(f.workspace.join("plain"), "x").expect("file");
    fs::write(f.workspace.join("script"), "echo scripted $1; exit 7\n").expect("file");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(f.workspace.join("script"), executable).expect("mode");
    let status = |spec: &SandboxSpec| run(spec).status;
    assert_eq!(status(&f.spec(["true"])), ExitStatus::Code(0));
    assert_eq!(status(&f.shell("exit 3")), ExitStatus::Code(3));
    assert_eq!(status(&f.shell("kill -9 $$")), ExitStatus::Signal(9));
    assert_eq!(status(&f.shell("kill -40 $$")).code(), 168);
    let ran = run(&f.spec(["no-such-thing"]));
    assert_eq!(ran.status, ExitStatus::NotExecuted(127));
    assert_eq!(ran.err, "pvisor-tui: no-such-thing: not found\n");
    let ran = run(&f.spec(["./plain"]));
    assert_eq!(ran.status, ExitStatus::NotExecuted(126));
    assert_eq!(ran.err, "pvisor-tui: ./plain: Permission denied\n");
    let ran = run(&f.spec(["./script", "arg"]));
    assert_eq!(
        (ran.status, ran.out.as_str()),
        (ExitStatus::Code(7), "scripted arg\n")
    );
    let ran = run(&f.spec(["\u{1b}[31mred"]));
    assert!(!ran.err.contains('\u{1b}'), "{:?}", ran.err);
    let mut spec = f.spec(["true"]);
    spec.cwd = f.home.join("nowhere");
    let (error, _) = refusal(&spec);
    assert!(error.contains("entering"), "{error}");
}

fn a_time_limit_ends_the_command() {
    let f = Fixture::new();
    let mut spec = f.spec(["sleep", "100"]);
    spec.timeout = Some(Duration::from_millis(100));
    let begun = Instant::now();
    assert_eq!(run(&spec).status, ExitStatus::TimedOut);
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "SIGTERM was enough"
    );
    spec.command = ["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"]
        .map(OsString::from)
        .into();
    assert_eq!(run(&spec).status, ExitStatus::TimedOut);
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_secs(2) && took < Duration::from_secs(6),
        "{took:?}"
    );
}

fn a_stop_ends_every_descendant() {
    let f = Fixture::new();
    let mark = "7654321.1";
    let running = start(&f.shell(&format!(
        "trap '' HUP TERM; setsid sh -c \"trap '' HUP TERM; exec sleep {mark}\" & echo ready; wait"
    )))
    .unwrap_or_else(|e| panic!("{e}"));
    until("it runs", || runs(mark));
    running.control.stop(Duration::from_millis(50));
    assert_eq!(finish(running).status, ExitStatus::Signal(9));
    assert!(!runs(mark), "gone when the wait returns");
    let running = start(&f.spec(["sleep", "100"])).unwrap_or_else(|e| panic!("{e}"));
    running.control.stop(Duration::from_secs(30));
    let begun = Instant::now();
    let status = finish(running).status;
    assert!(matches!(status, ExitStatus::Signal(1 | 15)), "{status:?}");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

fn nothing_survives_a_killed_server() {
    let f = Fixture::new();
    for (mode, mark) in [(Mode::Staged, "7654322.1"), (Mode::Host, "7654322.2")] {
        let mut spec = f.shell(&format!("sleep {mark} & setsid sleep {mark} & wait"));
        if mode == Mode::Host {
            spec.command[2] = format!("sleep {mark} & wait").into();
        }
        spec.mode = mode;
        // SAFETY: this process has one thread.
        let server = match unsafe { fork() }.expect("fork") {
            ForkResult::Child => {
                let _running = start(&spec);
                loop {
                    nix::unistd::pause();
                }
            }
            ForkResult::Parent { child } => child,
        };
        until("it runs", || runs(mark));
        kill(server, Signal::SIGKILL).expect("kill");
        nix::sys::wait::waitpid(server, None).expect("wait");
        until("everything is gone", || !runs(mark));
    }
    assert_eq!(
        fs::read_to_string(f.workspace.join("a.txt")).expect("a"),
        "a\n"
    );
}

fn the_end_of_the_command_ends_what_it_left_behind() {
    let f = Fixture::new();
    let mark = "7654323.1";
    let ran = run(&f.shell(&format!(
        "(setsid sleep {mark} >/dev/null 2>&1 </dev/null &) ; exit 4"
    )));
    assert_eq!(ran.status, ExitStatus::Code(4));
    assert!(!runs(mark));
}

fn a_terminal_has_a_name_and_a_size() {
    let f = Fixture::new();
    let mut spec = f.shell(
        "tty; stty size; trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.05; done",
    );
    spec.stdio = Stdio::Pty(TerminalSize {
        rows: 33,
        cols: 101,
    });
    for mode in [Mode::Staged, Mode::Host] {
        spec.mode = mode;
        let running = start(&spec).unwrap_or_else(|e| panic!("{e}"));
        let AgentIo::Pty(master) = running.io else {
            panic!("a terminal was asked for");
        };
        let mut master = fs::File::from(master);
        let mut shown = Vec::new();
        let mut buffer = [0; 256];
        let mut resized = false;
        // The end of a terminal is an error of its master.
        while let Ok(length @ 1..) = master.read(&mut buffer) {
            shown.extend_from_slice(&buffer[..length]);
            if !resized && shown.windows(5).any(|w| w == b"ready") {
                resized = true;
                running.control.resize(TerminalSize { rows: 44, cols: 77 });
            }
        }
        let shown = String::from_utf8_lossy(&shown).into_owned();
        assert_eq!(running.exit.wait(), ExitStatus::Code(5));
        let lines: Vec<&str> = shown.lines().collect();
        if mode == Mode::Staged {
            assert_eq!(lines[0], "/dev/pts/0");
        } else {
            assert!(lines[0].starts_with("/dev/pts/"), "{shown}");
        }
        assert_eq!(lines[1..], ["33 101", "ready", "44 77"]);
    }
}

fn terminals_can_be_made_inside() {
    let f = Fixture::new();
    let open = "import os,pty\nm,s=pty.openpty()\nprint(os.ttyname(s))\nos.write(s,b'hello')\nprint(os.read(m,5))";
    let ran = run(&f.spec(["python3", "-c", open]));
    assert_eq!(ran.out, "/dev/pts/0\nb'hello'\n", "{}", ran.err);
}

fn a_workspace_on_a_mount_of_its_own_is_staged() {
    let f = Fixture::new();
    let dir = f.workspace.display();
    let prepare = format!("mount -t tmpfs none '{dir}'; echo far >'{dir}/a.txt'");
    if let Some((status, text)) = prepared(&prepare, &format!("mounted {dir}")) {
        assert_eq!(status, 0, "{text}");
    }
}

fn scenario_mounted(workspace: &Path) {
    let f = Fixture::new();
    let mut spec = f.shell("cat a.txt; echo more >>a.txt; cat a.txt");
    spec.layers[0].root = workspace.into();
    spec.cwd = workspace.into();
    assert_eq!(run(&spec).out, "far\nfar\nmore\n");
    assert_eq!(
        fs::read_to_string(workspace.join("a.txt")).expect("a"),
        "far\n"
    );
}

fn a_workspace_in_tmp_is_seen_in_place() {
    let f = Fixture::in_dir(&std::env::temp_dir());
    let ran = run(&f.shell("pwd; cat a.txt; echo more >>a.txt; touch ../x; ls -A /tmp | wc -l"));
    assert_eq!(
        ran.out,
        format!("{}\na\n1\n", f.workspace.display()),
        "{}",
        ran.err
    );
    assert!(f.upper("home", "x").exists());
}

fn a_workspace_that_is_the_home_is_one_layer() {
    let f = Fixture::new();
    let mut spec = f.shell("echo $PWD; echo x >x; cat .profile");
    spec.layers = vec![f.layer("workspace", &f.home)];
    spec.cwd.clone_from(&f.home);
    let ran = run(&spec);
    assert_eq!(ran.out, format!("{}\np\n", f.home.display()), "{}", ran.err);
    assert!(f.upper("workspace", "x").exists());
}

fn a_session_inside_the_workspace_is_hidden() {
    let mut f = Fixture::new();
    f.session = f.workspace.join(".stage/s");
    let mut spec = f.shell("find . 2>/dev/null | wc -l; mkdir -p .stage/x; echo rc=$?");
    spec.hide = vec![f.workspace.join(".stage")];
    let ran = run(&spec);
    assert_eq!(ran.out, "3\nrc=1\n", "{}", ran.err);
    // The same when nobody asked for it: the stage is never seen.
    spec.hide.clear();
    spec.command = [
        "sh",
        "-c",
        "ls -R .stage/s/layers/workspace .stage/s/private",
    ]
    .map(OsString::from)
    .into();
    let ran = run(&spec);
    assert_eq!(ran.out.matches("tmp").count(), 0, "{}", ran.out);
    assert_ne!(ran.status, ExitStatus::Code(0));
}

fn a_workspace_in_a_hidden_place_is_refused() {
    let f = Fixture::new();
    let place = f.home.join(".password-store/repo");
    fs::create_dir_all(&place).expect("dir");
    let mut spec = f.spec(["true"]);
    spec.layers[0].root.clone_from(&place);
    spec.cwd = place;
    let (error, hint) = refusal(&spec);
    assert!(
        error.contains(".password-store, which is hidden"),
        "{error}"
    );
    assert!(hint.contains("--mount"), "{hint}");
    spec.unhide = vec![f.home.join(".password-store")];
    assert_eq!(run(&spec).status, ExitStatus::Code(0));
}

fn mounts_are_what_was_asked_for() {
    let f = Fixture::new();
    let data = f.root.path().join("data");
    for name in ["read", "write", "private", "hide"] {
        fs::create_dir_all(data.join(name)).expect("dir");
        fs::write(data.join(name).join("f"), name).expect("file");
    }
    fs::write(f.home.join(".tool"), "tool").expect("file");
    let data = fs::canonicalize(data).expect("real");
    let mount = |name: &str, access| MountSpec {
        source: data.join(name),
        target: data.join(name),
        access,
        name: None,
    };
    let mut spec = f.shell(&format!(
        "cd {}; for d in read write private hide; do cat $d/f; echo new >$d/n && echo $d; done; \
         echo x >~/.tool && echo wrote; cat ~/.tool /tmp/inner/f",
        data.display()
    ));
    spec.mounts = vec![
        mount("read", MountAccess::Read),
        mount("write", MountAccess::Write),
        mount("private", MountAccess::Private),
        mount("hide", MountAccess::Hide),
        MountSpec {
            source: f.home.join(".tool"),
            target: f.home.join(".tool"),
            access: MountAccess::Read,
            name: None,
        },
        MountSpec {
            source: data.join("read"),
            target: "/tmp/inner".into(),
            access: MountAccess::Read,
            name: None,
        },
    ];
    let ran = run(&spec);
    assert_eq!(ran.out, "readwritewrite\nprivate\ntoolread", "{}", ran.err);
    assert_eq!(
        fs::read_to_string(data.join("write/n")).expect("written"),
        "new\n"
    );
    assert!(!data.join("private/n").exists());
    assert_eq!(
        ran.boundary.writable,
        [data.join("write").display().to_string()]
    );
    let there = run(&f.shell("true"));
    assert_eq!(there.status, ExitStatus::Code(0));
    spec.mounts[0].target = "/no/such/place".into();
    let (error, _) = refusal(&spec);
    assert!(error.contains("/no/such/place"), "{error}");
}

fn a_layer_goes_on_with_its_upper() {
    let f = Fixture::new();
    run(&f.shell("echo one >b; mkdir z; chmod 0 z"));
    let ran = run(&f.shell("cat b; echo two >>b; echo t >/tmp/t"));
    assert_eq!(ran.out, "one\n", "{}", ran.err);
    let ran = run(&f.shell("cat b /tmp/t"));
    assert_eq!(ran.out, "one\ntwo\nt\n", "{}", ran.err);
    let works = fs::read_dir(f.session.join("layers/workspace/work"))
        .expect("work")
        .count();
    assert_eq!(works, 1, "earlier work directories are gone");
}

fn uppers_are_read_with_the_agents_rights() {
    let f = Fixture::new();
    let deep = "d/".repeat(2500);
    let descend = "import os\nfor _ in range(2500): os.mkdir('d'); os.chdir('d')\nopen('end','w').write('deep\\n')";
    let mut spec = f.shell(&format!(
        "echo secret >z; chmod 0 z; mkdir locked; echo in >locked/f; chmod 0 locked; ln -s z l; \
         mkfifo p; python3 -c \"{descend}\"; echo ready; cat",
    ));
    spec.timeout = Some(Duration::from_secs(60));
    let running = start(&spec).unwrap_or_else(|e| panic!("{e}"));
    let AgentIo::Pipes { stdin, stdout, .. } = running.io else {
        panic!("pipes");
    };
    let mut ready = [0; 6];
    let mut stdout = fs::File::from(stdout);
    stdout.read_exact(&mut ready).expect("ready");
    let access = running.access.expect("staged");
    let path = |text: &str| RelPath::try_from(text).expect("path");
    let check = |access: &dyn pvisor::layer::StageAccess| {
        let content = |name: &str| match access.open("workspace", &path(name)) {
            Ok(fd) => read(fd),
            Err(AccessError::Io { message, .. }) => panic!("{message}"),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(content("z"), "secret\n");
        assert_eq!(content("locked/f"), "in\n");
        assert_eq!(content(&format!("{deep}end")), "deep\n");
        for name in ["l", "p", "locked", "none", "l/x"] {
            let error = access.open("workspace", &path(name)).expect_err(name);
            assert!(matches!(error, AccessError::Io { .. }), "{name}: {error}");
        }
        let error = access.open("nowhere", &path("z")).expect_err("layer");
        assert_eq!(error, AccessError::NoLayer("nowhere".into()));
        access.sync("workspace").expect("sync");
        let entries = access.walk("workspace").expect("walk");
        assert!(entries.iter().any(|e| e.path == path("locked/f")));
    };
    check(&*access);
    fs::File::from(stdin).write_all(b"bye\n").expect("write");
    assert_eq!(running.exit.wait(), ExitStatus::Code(0));
    check(&*access);
    drop(access);
    let layers = spec.layers.clone();
    check(&*open_unmounted(&layers).expect("unmounted"));
}

fn a_covered_proc_is_used_read_only() {
    let prepare = "mount --bind /proc/sys /proc/sys; mount -o remount,ro,bind /proc/sys";
    let Some((status, text)) = prepared(prepare, "proc") else {
        return;
    };
    assert_eq!(status, 0, "{text}");
}

fn scenario_proc() {
    let f = Fixture::new();
    let ran = run(&f.shell(
        "readlink /proc/self >/dev/null && echo self; cat /proc/1/environ >/dev/null && echo looked; \
         ls /proc/1/root/ && echo entered; kill -0 $PPID && echo signal; echo x >/proc/sys/kernel/core_pattern && echo wrote",
    ));
    assert_eq!(ran.boundary.proc, "host, read-only");
    assert!(
        ran.boundary
            .notes
            .iter()
            .any(|n| n.starts_with("/proc is the host's"))
    );
    let lines: Vec<&str> = ran.out.lines().collect();
    // `$PPID` is 1 inside: PID 1 may be asked whether it exists, not more.
    assert!(lines.contains(&"self"), "{} {}", ran.out, ran.err);
    for word in ["looked", "entered", "wrote"] {
        assert!(!lines.contains(&word), "{word}");
    }
}

fn a_mount_inside_the_workspace_is_refused_by_name() {
    let f = Fixture::new();
    let mount = f.workspace.join("mnt point");
    fs::create_dir(&mount).expect("dir");
    let prepare = format!("mount -t tmpfs none '{}'", mount.display());
    let scenario = format!("submount {}", f.workspace.display());
    if let Some((status, text)) = prepared(&prepare, &scenario) {
        assert_eq!(status, 0, "{text}");
        assert!(text.contains("mnt point is a mount of its own"), "{text}");
    }
}

fn scenario_submount(workspace: &Path) {
    let f = Fixture::new();
    let mut spec = f.spec(["true"]);
    spec.layers[0].root = workspace.into();
    spec.cwd = workspace.into();
    println!("{}", refusal(&spec).0);
}

fn a_mount_inside_the_home_makes_it_read_only() {
    let f = Fixture::new();
    let mount = f.home.join("remote");
    fs::create_dir(&mount).expect("dir");
    let prepare = format!(
        "mount -t tmpfs none '{0}'; echo far >'{0}/file'",
        mount.display()
    );
    let scenario = format!("home {}", f.home.display());
    if let Some((status, text)) = prepared(&prepare, &scenario) {
        assert_eq!(status, 0, "{text}");
    }
}

fn scenario_home(home: &Path) {
    let mut f = Fixture::new();
    f.home = home.into();
    f.workspace = home.join("proj");
    let ran = run(&f.shell(
        "cat ~/remote/file; echo x >~/x && echo wrote; echo y >~/remote/y && echo past; echo z >z && echo staged",
    ));
    assert_eq!(ran.out, "far\nstaged\n", "{}", ran.err);
    assert!(
        ran.boundary
            .notes
            .iter()
            .any(|n| n.contains("home directory is read-only"))
    );
    let home = ran.boundary.layers.iter().find(|l| l.name == "home");
    assert_eq!(home.expect("layer").driver, "read-only");
}

fn without_user_namespaces_nothing_runs() {
    let probe = Command::new("unshare").args(["-Ur", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("skipped: unshare -Ur is not possible here");
        return;
    }
    let output = Command::new("unshare")
        .args(["-Ur", "sh", "-c"])
        .arg("echo 0 >/proc/sys/user/max_user_namespaces; exec \"$0\" scenario")
        .arg(std::env::current_exe().expect("this program"))
        .env("PVISOR_SCENARIO", "denied")
        .output()
        .expect("unshare");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("max_user_namespaces is 0") && text.contains("sudo sysctl"),
        "{text}"
    );
}

fn scenario_denied() {
    let f = Fixture::new();
    let (error, hint) = refusal(&f.shell("touch ran"));
    println!("{error}\n{hint}");
    assert!(!f.workspace.join("ran").exists());
    let report = examine(&f.session);
    assert!(!report.staged_works());
    let check = report
        .checks
        .iter()
        .find(|c| !c.ok && c.needed)
        .expect("a failed check");
    assert!(
        check.detail.contains("max_user_namespaces is 0"),
        "{check:?}"
    );
    assert!(
        check.remedy.as_ref().expect("remedy").contains("sysctl"),
        "{check:?}"
    );
}

fn mode_host_is_a_plain_process() {
    let f = Fixture::new();
    let mut spec = f.shell("echo more >>a.txt; pwd; exit 6");
    spec.mode = Mode::Host;
    let running = start(&spec).unwrap_or_else(|e| panic!("{e}"));
    assert!(running.access.is_none());
    let ran = finish(running);
    assert_eq!(ran.status, ExitStatus::Code(6));
    assert_eq!(ran.out, format!("{}\n", f.workspace.display()));
    assert_eq!(
        fs::read_to_string(f.workspace.join("a.txt")).expect("a"),
        "a\nmore\n"
    );
    assert!(ran.boundary.layers.is_empty() && ran.boundary.namespaces.is_empty());
    assert!(
        ran.boundary
            .notes
            .iter()
            .any(|n| n.contains("nothing is staged"))
    );
    let mark = "7654324.1";
    spec.command[2] = format!("trap '' TERM HUP; sleep {mark} & wait; sleep {mark}").into();
    let running = start(&spec).unwrap_or_else(|e| panic!("{e}"));
    until("it runs", || runs(mark));
    running.control.stop(Duration::from_millis(50));
    assert_eq!(finish(running).status, ExitStatus::Signal(9));
    until("its group is gone", || !runs(mark));
}

fn doctor_tries_every_step_and_leaves_nothing() {
    let f = Fixture::new();
    let report = examine(&f.session.join("not/yet/made"));
    assert!(report.staged_works(), "{report:#?}");
    let names: Vec<&str> = report.checks.iter().map(|c| c.name.as_str()).collect();
    for name in [
        "state directory",
        "overlay in a user namespace",
        "a /proc of its own",
        "/dev/kvm",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    for check in &report.checks {
        assert!(check.ok || check.remedy.is_some(), "{check:?}");
    }
    let left = fs::read_dir(&f.session).expect("dir").count();
    assert_eq!(left, 0, "nothing is left behind");
    // A place no upper can lie on is named: inside a sandbox, /etc is read-only.
    assert!(!examine(Path::new("/proc")).staged_works());
}

/// Not a test of a limit: prints what starting and ending `true` costs with two layers.
fn start_cost() {
    let f = Fixture::new();
    let spec = f.spec(["true"]);
    let mut times: Vec<Duration> = (0..40)
        .map(|_| {
            let begun = Instant::now();
            let running = start(&spec).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(running.exit.wait(), ExitStatus::Code(0));
            begun.elapsed()
        })
        .collect();
    times.sort();
    println!(
        "start to end of `true`: min {:?}, median {:?}",
        times[0],
        times[times.len() / 2]
    );
}
