//! What the live change set costs: the time from the agent's write to the change at a client, at 50
//! writes a second, and the processor time of an idle session whose upper holds thousands of files.
//!
//! `cargo bench --bench watch` measures; run in any other way, or with `--smoke`, it only shows that
//! it works.

#[allow(unused)] // The bench needs the world and the users, not the terminal or the model.
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pvisor::protocol::{Hello, PROTOCOL_VERSION, Role, ServerMessage};
use pvisor::session::client::Client;
use pvisor::session::state::Update;
use pvisor::session::store::Store;

use support::user::User;
use support::{World, capability};

/// At most so long from the write to the change, for 95 of 100 writes.
const BAR: Duration = Duration::from_millis(300);
/// Files of the host's side.
const LOWER: usize = 4_000;
/// Files of the upper while it is idle.
const UPPER: usize = 5_000;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let full = args.iter().any(|a| a == "--bench") && !args.iter().any(|a| a == "--smoke");
    let Some(user) = User::root().or_else(|| User::ordinary().ok()) else {
        return ExitCode::SUCCESS;
    };
    let world = World::new("bench watch", user);
    if !capability::have_sandbox(&world) {
        return ExitCode::SUCCESS;
    }
    for number in 0..LOWER {
        let dir = world.workspace.join(format!("d{}", number % 80));
        fs::create_dir_all(&dir).expect("a directory");
        fs::write(dir.join(format!("f{number}")), "text\n").expect("a file");
    }
    let (writes, files, rest) = if full { (500, UPPER, 20) } else { (10, 50, 1) };
    let latencies = latencies(&world, writes);
    let at = |percent: usize| latencies[(latencies.len() * percent / 100).min(latencies.len() - 1)];
    println!(
        "watch: {writes} writes at 50/s over a lower of {LOWER} files: median {:?}, p95 {:?}, longest {:?}",
        at(50),
        at(95),
        at(100)
    );
    let (busy, span) = idle(&world, files, Duration::from_secs(rest));
    println!(
        "watch: idle for {span:?} with {files} files in the upper: {busy:?} of processor time \
         ({:.2} %)",
        busy.as_secs_f64() / span.as_secs_f64() * 100.0
    );
    if full && at(95) > BAR {
        println!("watch: p95 is above {BAR:?}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Starts `script` detached and looks at it as a further client.
fn start(world: &World, script: &str) -> (Client, String) {
    let mut command = world.command(support::world::binary());
    command.args(["run", "--detach", "--workspace"]);
    command
        .arg(&world.workspace)
        .args(["--", "bash", "-c", script]);
    let out = command
        .stderr(Stdio::inherit())
        .output()
        .expect("it starts");
    let id = String::from_utf8(out.stdout)
        .expect("an id")
        .trim()
        .to_owned();
    let store = Store::new(
        world.state.join("pvisor-tui"),
        world.runtime.join("pvisor-tui"),
    );
    let hello = Hello {
        version: PROTOCOL_VERSION,
        role: Role::Observer,
        output: false,
        size: None,
        owns_command: false,
    };
    let (client, _) = Client::connect(&store.socket(&id), hello).expect("it listens");
    (client, id)
}

/// Each file is named by the moment of its making.
fn latencies(world: &World, writes: usize) -> Vec<Duration> {
    let script = format!(
        "mkdir w; for i in $(seq {writes}); do echo x > w/$EPOCHREALTIME; sleep 0.02; done; sleep 1"
    );
    let (client, _) = start(world, &script);
    let mut seen = Vec::new();
    while seen.len() < writes {
        let Ok(message) = client.messages().recv_timeout(Duration::from_secs(30)) else {
            break;
        };
        let ServerMessage::Update(Update::ChangesMoved { changed, .. }) = message else {
            continue;
        };
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a time");
        for change in changed {
            let name = change.key.path.to_string();
            let made = name.strip_prefix("w/").and_then(|n| n.parse::<f64>().ok());
            if let Some(made) = made {
                seen.push(now.saturating_sub(Duration::from_secs_f64(made)));
            }
        }
    }
    assert!(seen.len() >= writes, "only {} of {writes} came", seen.len());
    seen.sort_unstable();
    seen
}

/// Processor time of the server and its helper while nothing happens.
fn idle(world: &World, files: usize, rest: Duration) -> (Duration, Duration) {
    let script =
        format!("mkdir many; cd many; for i in $(seq {files}); do echo $i > f$i; done; sleep 300");
    let (client, id) = start(world, &script);
    let mut count = 0;
    while count < files {
        match client.messages().recv_timeout(Duration::from_secs(60)) {
            Ok(ServerMessage::Update(Update::ChangesMoved { changed, .. })) => {
                count += changed.len();
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    // What was written lately is looked at a while longer; that is part of being idle.
    let (before, begun) = (spent(&id), Instant::now());
    std::thread::sleep(rest);
    let result = (spent(&id).saturating_sub(before), begun.elapsed());
    let mut stop = world.command(support::world::binary());
    stop.args(["stop", &id]).output().expect("it stops");
    result
}

/// User and system time of every process of the session that is ours.
fn spent(session: &str) -> Duration {
    let mut ticks = 0;
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let path = entry.path();
        let holds = |name: &str| {
            fs::read_link(path.join(name)).is_ok_and(|l| l.to_string_lossy().contains(session))
        };
        let Ok(stat) = fs::read_to_string(path.join("stat")) else {
            continue;
        };
        let Some((head, tail)) = stat.rsplit_once(") ") else {
            continue;
        };
        let server = holds("fd/2");
        let helper = head.ends_with("(pvisor-helper")
            && fs::read_dir(path.join("fd")).is_ok_and(|mut fds| {
                fds.any(|fd| {
                    fd.is_ok_and(|fd| {
                        fs::read_link(fd.path())
                            .is_ok_and(|l| l.to_string_lossy().contains(session))
                    })
                })
            });
        if server || helper {
            let fields: Vec<&str> = tail.split(' ').collect();
            ticks +=
                fields[11].parse::<u64>().unwrap_or(0) + fields[12].parse::<u64>().unwrap_or(0);
        }
    }
    // Hundredths of a second, on every Linux.
    Duration::from_millis(ticks * 10)
}
