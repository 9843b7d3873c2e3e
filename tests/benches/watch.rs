//! What the live change set costs: the time from the agent's write to the change at a client, under
//! 50 and 200 writes a second; a burst of 100,000 files, every one of which must be known a second
//! after its end; the processor time and memory of an idle session whose upper holds 20,000 files.
//!
//! `cargo bench --bench watch` measures; run in any other way, or with `--smoke`, it only shows that
//! it works, with fewer of everything.

#[allow(unused)] // The bench needs the world and the users, not the terminal or the model.
#[path = "../support/mod.rs"]
mod support;

use std::collections::HashSet;
use std::fs;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pvisor::change::Change;
use pvisor::protocol::{Hello, PROTOCOL_VERSION, Role, ServerMessage};
use pvisor::session::client::Client;
use pvisor::session::state::Update;
use pvisor::session::store::Store;

use support::user::User;
use support::{Capability, World, capability};

/// At most so long from the write to the change, for 95 of 100 writes.
const BAR: Duration = Duration::from_millis(300);
/// At most so long from a burst's end until all of it is known.
const BURST_BAR: Duration = Duration::from_secs(1);
/// At most so much of a processor while nothing happens, in hundredths.
const IDLE_BAR: f64 = 0.5;

/// How much of everything.
struct Size {
    /// Directories of the host's side, each with one file.
    lower: usize,
    /// Writes whose latency is taken, per rate.
    writes: usize,
    /// Directories of the burst, and files in each.
    burst: (usize, usize),
    /// Files of the upper while it is idle.
    idle: usize,
    /// How long that is watched.
    rest: Duration,
}

const FULL: Size = Size {
    lower: 25_000,
    writes: 1_000,
    burst: (1_000, 100),
    idle: 20_000,
    rest: Duration::from_secs(30),
};

const SMOKE: Size = Size {
    lower: 50,
    writes: 10,
    burst: (10, 10),
    idle: 50,
    rest: Duration::from_secs(1),
};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let full = args.iter().any(|a| a == "--bench") && !args.iter().any(|a| a == "--smoke");
    let Some(user) = User::root().or_else(|| User::ordinary().ok()) else {
        return ExitCode::SUCCESS;
    };
    let world = World::new("bench watch", user);
    if !capability::have_sandbox(&world)
        || !capability::have(&world, Capability::Program("python3"))
    {
        return ExitCode::SUCCESS;
    }
    let size = if full { FULL } else { SMOKE };
    for number in 0..size.lower {
        let dir = world.workspace.join(format!("l{}/d{number}", number % 50));
        fs::create_dir_all(&dir).expect("a directory");
        fs::write(dir.join("f"), "text\n").expect("a file");
    }
    let mut missed = Vec::new();
    for rate in [50, 200] {
        let seen = latencies(&world, size.writes, rate);
        let at = |percent: usize| seen[(seen.len() * percent / 100).min(seen.len() - 1)];
        println!(
            "watch: {} writes at {rate}/s over a lower of {} directories: median {:?}, p95 {:?}, longest {:?}",
            size.writes,
            size.lower,
            at(50),
            at(95),
            at(100)
        );
        if at(95) > BAR {
            missed.push(format!("p95 at {rate}/s is above {BAR:?}"));
        }
    }
    let known_after = burst(&world, size.burst);
    println!(
        "watch: {} directories of {} files at once, stores through maps among them: all known {known_after:?} after the end",
        size.burst.0, size.burst.1
    );
    if known_after > BURST_BAR {
        missed.push(format!("a burst was known later than {BURST_BAR:?}"));
    }
    let idle = idle(&world, size.idle, size.rest);
    println!(
        "watch: idle for {:?} with {} files in the upper: {:?} of processor time ({:.2} %), {} MiB resident",
        idle.span,
        size.idle,
        idle.busy,
        idle.percent(),
        idle.resident >> 20
    );
    if idle.percent() > IDLE_BAR {
        missed.push(format!("an idle session takes more than {IDLE_BAR} %"));
    }
    for miss in &missed {
        println!("watch: {miss}");
    }
    if full && !missed.is_empty() {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Starts `script` detached and looks at it as a further client.
fn start(world: &World, interpreter: &[&str], script: &str) -> (Client, String) {
    let mut command = world.command(support::world::binary());
    command.args(["run", "--detach", "--workspace"]);
    command
        .arg(&world.workspace)
        .arg("--")
        .args(interpreter)
        .arg(script);
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
    let (client, welcome) = Client::connect(&store.socket(&id), hello).expect("it listens");
    assert!(welcome.state.changes.is_empty(), "nothing is staged yet");
    (client, id)
}

fn stop(world: &World, id: &str) {
    let mut stop = world.command(support::world::binary());
    stop.args(["stop", id]).output().expect("it stops");
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a time")
}

/// The moment that a name ends in, in seconds.
fn moment(name: &str, prefix: &str) -> Option<Duration> {
    let seconds = name.strip_prefix(prefix)?.parse::<f64>().ok()?;
    Some(Duration::from_secs_f64(seconds))
}

/// Each file is named by the moment of its making.
fn latencies(world: &World, writes: usize, rate: usize) -> Vec<Duration> {
    let script = format!(
        "import os, time\n\
         time.sleep(0.5); os.mkdir('w'); due = time.time()\n\
         for i in range({writes}):\n\
         \x20   due += 1 / {rate}; time.sleep(max(0, due - time.time()))\n\
         \x20   os.close(os.open(f'w/{{time.time():.6f}}', os.O_CREAT | os.O_WRONLY))\n\
         time.sleep(1)\n"
    );
    let (client, id) = start(world, &["python3", "-c"], &script);
    let mut seen = Vec::new();
    while seen.len() < writes {
        let Ok(message) = client.messages().recv_timeout(Duration::from_secs(30)) else {
            break;
        };
        let ServerMessage::Update(Update::ChangesMoved { changed, .. }) = message else {
            continue;
        };
        let now = now();
        for change in changed {
            let made = moment(&change.key.path.to_string(), "w/");
            seen.extend(made.map(|made| now.saturating_sub(made)));
        }
    }
    assert!(seen.len() >= writes, "only {} of {writes} came", seen.len());
    seen.sort_unstable();
    stop(world, &id);
    seen
}

/// How long after the end of a burst a client knows all of it, contents included: every tenth file
/// is written through a map.
fn burst(world: &World, (dirs, files): (usize, usize)) -> Duration {
    let script = format!(
        "import mmap, os, time\n\
         time.sleep(0.5); flags = os.O_CREAT | os.O_RDWR\n\
         for d in range({dirs}):\n\
         \x20   os.mkdir(f'b{{d}}')\n\
         \x20   for f in range({files}):\n\
         \x20       fd = os.open(f'b{{d}}/f{{f}}', flags, 0o644)\n\
         \x20       if f % 10:\n\
         \x20           os.write(fd, b'%d\\n' % f)\n\
         \x20       else:\n\
         \x20           os.truncate(fd, 8); m = mmap.mmap(fd, 8); m[:] = b'mapped!\\n'; m.close()\n\
         \x20       os.close(fd)\n\
         os.mkdir(f'end{{time.time():.6f}}'); time.sleep(30)\n"
    );
    let (client, id) = start(world, &["python3", "-c"], &script);
    let mapped = pvisor::layer::Digest::of(b"mapped!\n");
    let (mut known, mut ended) = (HashSet::new(), None);
    let mut complete = now();
    let wanted = dirs + dirs * files;
    while known.len() < wanted || ended.is_none() {
        let Ok(message) = client.messages().recv_timeout(Duration::from_secs(30)) else {
            break;
        };
        let changed: Vec<Arc<Change>> = match message {
            ServerMessage::Update(Update::ChangesMoved { changed, gone }) => {
                for key in &gone {
                    known.remove(&key.path);
                }
                changed
            }
            // More than a client is told one by one.
            ServerMessage::Snapshot(state) => {
                known.clear();
                state.changes.into_values().collect()
            }
            _ => continue,
        };
        complete = now();
        for change in changed {
            let name = change.key.path.to_string();
            if let Some(end) = moment(&name, "end") {
                ended = Some(end);
                continue;
            }
            let in_map = name
                .rsplit_once("/f")
                .is_some_and(|(_, n)| n.ends_with('0'));
            let digest = change.after.as_ref().and_then(|node| node.digest);
            // One that was seen before it was filled is not known yet.
            if !in_map || digest == Some(mapped) {
                known.insert(change.key.path.clone());
            }
        }
    }
    assert_eq!(known.len(), wanted, "what was made and what is known");
    stop(world, &id);
    complete.saturating_sub(ended.expect("an end"))
}

/// What an idle session takes.
struct Idle {
    busy: Duration,
    span: Duration,
    /// Bytes of memory.
    resident: u64,
}

impl Idle {
    fn percent(&self) -> f64 {
        self.busy.as_secs_f64() / self.span.as_secs_f64() * 100.0
    }
}

/// Processor time of the server and its helper while nothing happens.
fn idle(world: &World, files: usize, rest: Duration) -> Idle {
    let script = format!(
        "import os, time\n\
         time.sleep(0.5)\n\
         for i in range({files}):\n\
         \x20   os.makedirs(f'many/d{{i // 100}}', exist_ok=True)\n\
         \x20   open(f'many/d{{i // 100}}/f{{i}}', 'w').write(f'{{i}}\\n')\n\
         time.sleep(300)\n"
    );
    let (client, id) = start(world, &["python3", "-c"], &script);
    let mut known = HashSet::new();
    while known.len() < files {
        let changed = match client.messages().recv_timeout(Duration::from_secs(60)) {
            Ok(ServerMessage::Update(Update::ChangesMoved { changed, .. })) => changed,
            Ok(ServerMessage::Snapshot(state)) => state.changes.into_values().collect(),
            Ok(_) => continue,
            Err(_) => break,
        };
        let is_file = |name: &String| name.matches('/').count() == 2;
        let names = changed.iter().map(|c| c.key.path.to_string());
        known.extend(names.filter(is_file));
    }
    assert_eq!(known.len(), files, "what was made and what is known");
    // What was written lately is looked at a while longer; that is part of being idle.
    let ((before, _), begun) = (spent(&id), Instant::now());
    std::thread::sleep(rest);
    let (after, resident) = spent(&id);
    let result = Idle {
        busy: after.saturating_sub(before),
        span: begun.elapsed(),
        resident,
    };
    stop(world, &id);
    result
}

/// User and system time, and resident bytes, of every process of the session that is ours.
fn spent(session: &str) -> (Duration, u64) {
    let (mut ticks, mut resident) = (0, 0);
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
            let fields: Vec<u64> = tail
                .split(' ')
                .map(|f| f.trim().parse().unwrap_or(0))
                .collect();
            ticks += fields[11] + fields[12];
            // In pages.
            resident += fields[21] * 4096;
        }
    }
    // Hundredths of a second, on every Linux.
    (Duration::from_millis(ticks * 10), resident)
}
