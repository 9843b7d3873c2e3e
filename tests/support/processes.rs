//! Processes of a world, found by what their environment says: every one of them, the sandbox's
//! included, knows a directory of the world (`$HOME` at least).

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::Pid;

use super::wait;
use super::world::World;

/// Process ids of everything that runs in or for the world.
pub fn of(world: &World) -> Vec<i32> {
    let needle = world.root.as_os_str().as_bytes();
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut found: Vec<i32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|env| env.windows(needle.len()).any(|w| w == needle))
        })
        .filter(|pid| !is_zombie(*pid))
        .collect();
    found.sort_unstable();
    found
}

/// Command lines of [`of`], for messages.
pub fn describe(pids: &[i32]) -> Vec<String> {
    pids.iter()
        .map(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            format!(
                "{pid}: {}",
                String::from_utf8_lossy(&line).replace('\0', " ")
            )
        })
        .collect()
}

/// Waits until nothing of the world runs any more.
#[track_caller]
pub fn await_none(world: &World) {
    let mut left = Vec::new();
    let gone = wait::attempt(wait::PATIENCE, || {
        left = of(world);
        left.is_empty().then_some(())
    });
    assert!(gone.is_some(), "still running: {:#?}", describe(&left));
}

/// Sockets that session servers of the world listen on.
pub fn sockets(world: &World) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![world.runtime.clone(), world.state.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let path = entry.path();
            if kind.is_dir() && entry.file_name() != "layers" {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "sock") {
                found.push(path);
            }
        }
    }
    found
}

/// Process id of the server of the world's only running session.
#[track_caller]
pub fn server(world: &World) -> i32 {
    wait::until("a listening session server", || {
        sockets(world).iter().find_map(|path| {
            let stream = UnixStream::connect(path).ok()?;
            let peer = getsockopt(&stream, sockopt::PeerCredentials).ok()?;
            (peer.pid() > 0).then_some(peer.pid())
        })
    })
}

/// Whether a process has ended and only waits to be reaped.
pub fn is_zombie(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        stat.rsplit(')')
            .next()
            .is_some_and(|s| s.trim_start().starts_with('Z'))
    })
}

/// SIGKILL to one process of the world's.
#[track_caller]
pub fn kill_hard(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap_or_else(|e| panic!("kill {pid}: {e}"));
}

/// Ends what a failed test left.
pub fn end_all_of(world: &World) {
    for pid in of(world) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    let _ = wait::attempt(std::time::Duration::from_secs(5), || {
        of(world).is_empty().then_some(())
    });
}
