//! How a command begins and ends, and what ends with it.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{ForkResult, fork};
use pvisor::sandbox::spec::TerminalSize;
use pvisor::sandbox::{AgentIo, ExitStatus, Mode, SandboxSpec, Stdio, start};

use crate::fixture::{Fixture, all_gone, finish, hear_ready, refusal, run, runs, watched};

pub fn exit_statuses_are_those_of_a_shell() {
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

pub fn a_time_limit_ends_the_command() {
    let f = Fixture::new();
    // Long enough for the trap to be set on a busy machine.
    let limit = Duration::from_millis(500);
    let mut spec = f.shell("trap 'echo told; exit' TERM; while :; do sleep 0.05; done");
    spec.timeout = Some(limit);
    let ran = run(&spec);
    assert_eq!(
        (ran.status, ran.out.as_str()),
        (ExitStatus::TimedOut, "told\n")
    );
    let begun = Instant::now();
    spec.command[2] = "trap '' TERM; while :; do sleep 0.05; done".into();
    assert_eq!(run(&spec).status, ExitStatus::TimedOut);
    // Whoever does not listen has two seconds. That this returns shows that the wait has an end.
    assert!(begun.elapsed() >= limit + Duration::from_secs(2));
}

pub fn a_stop_ends_every_descendant() {
    let f = Fixture::new();
    let mark = "7654321.1";
    let running = start(&f.shell(&format!(
        "trap '' HUP TERM; setsid sh -c \"trap '' HUP TERM; echo ready; exec sleep {mark}\" & wait"
    )))
    .unwrap_or_else(|e| panic!("{e}"));
    hear_ready(&running);
    assert!(runs(mark));
    running.control.stop(Duration::from_millis(50));
    assert_eq!(finish(running).status, ExitStatus::Signal(9));
    assert!(!runs(mark), "gone when the wait returns");
    let running = start(&f.spec(["sleep", "100"])).unwrap_or_else(|e| panic!("{e}"));
    running.control.stop(Duration::from_secs(30));
    // Were its grace waited for to the end, it would be SIGKILL.
    let status = finish(running).status;
    assert!(matches!(status, ExitStatus::Signal(1 | 15)), "{status:?}");
}

pub fn nothing_survives_a_killed_server() {
    let f = Fixture::new();
    for (mode, mark) in [(Mode::Staged, "7654322.1"), (Mode::Host, "7654322.2")] {
        let mut spec = f.shell(&format!(
            "sleep {mark} & setsid sleep {mark} & echo ready; wait"
        ));
        if mode == Mode::Host {
            spec.command[2] = format!("sleep {mark} & echo ready; wait").into();
        }
        spec.mode = mode;
        let (told, tell) = nix::unistd::pipe().expect("pipe");
        // SAFETY: this process has one thread.
        let server = match unsafe { fork() }.expect("fork") {
            ForkResult::Child => {
                let running = start(&spec).unwrap_or_else(|e| panic!("{e}"));
                hear_ready(&running);
                nix::unistd::write(&tell, b"r").expect("write");
                loop {
                    nix::unistd::pause();
                }
            }
            ForkResult::Parent { child } => child,
        };
        drop(tell);
        assert_eq!(
            nix::unistd::read(&told, &mut [0]),
            Ok(1),
            "it did not start"
        );
        let processes = watched(mark);
        kill(server, Signal::SIGKILL).expect("kill");
        nix::sys::wait::waitpid(server, None).expect("wait");
        all_gone(&processes);
        assert!(!runs(mark));
    }
    assert_eq!(
        fs::read_to_string(f.workspace.join("a.txt")).expect("a"),
        "a\n"
    );
}

pub fn the_end_of_the_command_ends_what_it_left_behind() {
    let f = Fixture::new();
    let mark = "7654323.1";
    let ran = run(&f.shell(&format!(
        "(setsid sleep {mark} >/dev/null 2>&1 </dev/null &) ; exit 4"
    )));
    assert_eq!(ran.status, ExitStatus::Code(4));
    assert!(!runs(mark));
}

pub fn a_terminal_has_a_name_and_a_size() {
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

pub fn terminals_can_be_made_inside() {
    let f = Fixture::new();
    let open = "import os,pty\nm,s=pty.openpty()\nprint(os.ttyname(s))\nos.write(s,b'hello')\nprint(os.read(m,5))";
    let ran = run(&f.spec(["python3", "-c", open]));
    assert_eq!(ran.out, "/dev/pts/0\nb'hello'\n", "{}", ran.err);
}

pub fn mode_host_is_a_plain_process() {
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
    spec.command[2] =
        format!("trap '' TERM HUP; sleep {mark} & echo ready; wait; sleep {mark}").into();
    let running = start(&spec).unwrap_or_else(|e| panic!("{e}"));
    hear_ready(&running);
    let processes = watched(mark);
    running.control.stop(Duration::from_millis(50));
    assert_eq!(finish(running).status, ExitStatus::Signal(9));
    all_gone(&processes);
}

/// Not a test of a limit: prints what starting and ending `true` costs with two layers.
pub fn start_cost() {
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
