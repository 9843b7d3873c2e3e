//! What a commit costs: change sets of 10, 1,000 and 10,000 files of some 4 KiB, half modified, half
//! added, beside `cp -a`, `git apply` and `rsync -a` of the same files onto a copy of the same tree,
//! each with `sync -f` behind it. Interleaved in turns, every one onto a fresh copy and checked
//! against what was to come out; what is printed are medians and their ratios to `cp -a`, and what
//! `run`, `changes`, `diff` and `undo` of the same set take. A ratio above the bar fails.
//!
//! `cargo bench --bench commit` measures; run in any other way, or with `--smoke`, it only shows that
//! it works, with 10 files. `--large` adds 100,000 files, `--rounds N` changes how often.

#[allow(unused)] // The bench needs the world and the users, not the terminal or the model.
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use support::beside::{median, millis};
use support::user::User;
use support::{Capability, World, capability, processes};

/// At most so many times `cp -a` and `sync -f`, from [`BAR_FROM`] files on.
const BAR: f64 = 1.2;
/// Fewer files than this are a matter of the start of two programs.
const BAR_FROM: usize = 1_000;
/// At most so much memory for all processes of a session together, in bytes.
const MEMORY_BAR: u64 = 300 << 20;

/// Ways to bring a change set to a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Ours,
    Copy,
    Rsync,
    GitApply,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Ours => "commit --all",
            Way::Copy => "cp -a",
            Way::Rsync => "rsync -a",
            Way::GitApply => "git apply",
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let has = |flag: &str| args.iter().any(|a| a == flag);
    let full = has("--bench") && !has("--smoke");
    let asked = args.windows(2).find(|pair| pair[0] == "--rounds");
    let asked = asked.and_then(|pair| pair[1].parse().ok());
    let mut sizes = vec![(10, if full { 9 } else { 1 })];
    if full {
        sizes.extend([(1_000, 7), (10_000, 3)]);
    }
    if has("--large") {
        sizes.push((100_000, 1));
    }
    let Some(user) = User::root().or_else(|| User::ordinary().ok()) else {
        return ExitCode::SUCCESS;
    };
    let world = World::new("bench commit", user);
    if !capability::have_sandbox(&world) {
        return ExitCode::SUCCESS;
    }
    let mut good = true;
    for (files, rounds) in sizes {
        let bench = Bench::prepare(&world, files);
        good &= bench.measure(asked.unwrap_or(rounds));
        fs::remove_dir_all(&bench.dir).expect("the inputs go");
    }
    if full && !good {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// One change set.
struct Bench<'a> {
    world: &'a World,
    files: usize,
    dir: PathBuf,
    ways: Vec<Way>,
}

impl<'a> Bench<'a> {
    /// Makes the tree before, the files after, and the patch between them.
    fn prepare(world: &'a World, files: usize) -> Self {
        let dir = world.root.join(format!("of{files}"));
        for side in ["old", "new"] {
            for number in 0..files {
                let at = dir.join(side).join(format!("d{}", number / 100));
                if number % 100 == 0 {
                    fs::create_dir_all(&at).expect("a directory");
                }
                // The first half is there before.
                if side == "new" || number < files / 2 {
                    fs::write(at.join(format!("f{number}")), text(number, side)).expect("a file");
                }
            }
        }
        let owner = format!("{}:{}", world.user.uid, world.user.gid);
        run(Command::new("chown").args(["-R", &owner]).arg(&dir));
        let mut ways = vec![Way::Ours, Way::Copy];
        if capability::have(world, Capability::Program("rsync")) {
            ways.push(Way::Rsync);
        }
        if capability::have(world, Capability::Program("git")) {
            ways.push(Way::GitApply);
            let mut diff = world.command("git");
            diff.args(["diff", "--no-index", "--no-prefix", "--output=patch"]);
            // It ends with 1 where there is a difference.
            let status = diff.args(["old", "new"]).current_dir(&dir).status();
            assert_eq!(status.expect("git starts").code(), Some(1));
        }
        Self {
            world,
            files,
            dir,
            ways,
        }
    }

    /// Prints what it took; whether that keeps below the bars.
    fn measure(&self, rounds: usize) -> bool {
        let mut took: Vec<Vec<Duration>> = vec![Vec::new(); self.ways.len()];
        let mut beside = Beside::default();
        // One of each first, unless it takes long: caches that only the first run fills.
        let warm = usize::from(self.files < 10_000);
        for round in 0..rounds + warm {
            for turn in 0..self.ways.len() {
                let at = (round + turn) % self.ways.len();
                let target = self.dir.join(format!("t{round}-{at}"));
                let mut copy = self.world.command("cp");
                run(copy.arg("-a").arg(self.dir.join("old")).arg(&target));
                run(self.world.command("sync").arg("-f").arg(&target));
                let one = match self.ways[at] {
                    Way::Ours => self.ours(&target, &mut beside),
                    way => self.theirs(way, &target),
                };
                let mut same = self.world.command("diff");
                run(same.arg("-rq").arg(self.dir.join("new")).arg(&target));
                if round >= warm {
                    took[at].push(one);
                }
                fs::remove_dir_all(&target).expect("the copy goes");
            }
        }
        let medians: Vec<Duration> = took.into_iter().map(median).collect();
        let copy = medians[1].as_secs_f64();
        for (way, took) in self.ways.iter().zip(&medians) {
            println!(
                "commit: {} files: {} {:.1} ms, {:.2} times cp -a (medians of {rounds} interleaved runs)",
                self.files,
                way.name(),
                millis(*took),
                took.as_secs_f64() / copy,
            );
        }
        println!("commit: {} files: {beside}", self.files);
        let ratio = medians[0].as_secs_f64() / copy;
        let mut good = true;
        if self.files >= BAR_FROM && ratio > BAR {
            println!("commit: {} files: the ratio is above {BAR}", self.files);
            good = false;
        }
        if beside.memory > MEMORY_BAR {
            println!(
                "commit: {} files: more memory than {} MiB",
                self.files,
                MEMORY_BAR >> 20
            );
            good = false;
        }
        good
    }

    /// Stages the set on `target`, and takes the time of its commit, and of everything around it on
    /// the way. What is committed stays: what was undone is committed again.
    fn ours(&self, target: &Path, beside: &mut Beside) -> Duration {
        let verb = |args: &[&str]| {
            let mut command = self.world.command(support::world::binary());
            command.args(args).current_dir(target);
            timed(&mut command)
        };
        let from = self.dir.join("new/.").display().to_string();
        beside
            .run
            .push(verb(&["run", "--headless", "--", "cp", "-a", &from, "."]));
        beside.changes.push(verb(&["changes"]));
        beside.diff.push(verb(&["diff"]));
        let watched = Watched::default();
        let took = std::thread::scope(|scope| {
            scope.spawn(|| watched.follow(self.world));
            let took = verb(&["commit", "--all"]);
            watched.ended.store(true, Ordering::Relaxed);
            took
        });
        beside.memory = beside.memory.max(watched.most.load(Ordering::Relaxed));
        beside.undo.push(verb(&["undo"]));
        verb(&["commit", "--all"]);
        verb(&["discard"]);
        took
    }

    fn theirs(&self, way: Way, target: &Path) -> Duration {
        let new = self.dir.join("new/.");
        let mut command = match way {
            Way::GitApply => {
                let mut git = self.world.command("git");
                git.arg("apply").arg(self.dir.join("patch"));
                git
            }
            Way::Rsync => {
                let mut rsync = self.world.command("rsync");
                rsync.arg("-a").arg(self.dir.join("new/")).arg(".");
                rsync
            }
            Way::Ours | Way::Copy => {
                let mut copy = self.world.command("cp");
                copy.arg("-a").arg(new).arg(".");
                copy
            }
        };
        command.current_dir(target);
        timed(&mut command) + timed(self.world.command("sync").arg("-f").arg(target))
    }
}

/// What the steps around a commit take.
#[derive(Default)]
struct Beside {
    run: Vec<Duration>,
    changes: Vec<Duration>,
    diff: Vec<Duration>,
    undo: Vec<Duration>,
    memory: u64,
}

impl std::fmt::Display for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = |samples: &[Duration]| millis(median(samples.to_vec()));
        write!(
            f,
            "run {:.0} ms, changes {:.0} ms, diff {:.0} ms, undo {:.0} ms; {} MiB at most during the commit",
            of(&self.run),
            of(&self.changes),
            of(&self.diff),
            of(&self.undo),
            self.memory >> 20
        )
    }
}

/// The most memory that the processes of a world had at once, as they say themselves.
#[derive(Default)]
struct Watched {
    ended: AtomicBool,
    most: AtomicU64,
}

impl Watched {
    fn follow(&self, world: &World) {
        while !self.ended.load(Ordering::Relaxed) {
            let most = |pid: i32| -> u64 {
                let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
                let kibibytes = line.and_then(|l| l.trim().split(' ').next()?.parse().ok());
                kibibytes.unwrap_or(0u64) << 10
            };
            let now: u64 = processes::of(world).into_iter().map(most).sum();
            self.most.fetch_max(now, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Some 4 KiB of text.
fn text(number: usize, side: &str) -> String {
    let lines = (0..64).map(|line| match line {
        20 => format!("line {line} of file {number}, which is {side}\n"),
        _ => format!("line {line} of file {number}, as it is in either of the two trees\n"),
    });
    lines.collect()
}

fn timed(command: &mut Command) -> Duration {
    let begun = Instant::now();
    run(command);
    begun.elapsed()
}

fn run(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let out = command.stderr(Stdio::piped()).output().expect("it starts");
    assert!(
        out.status.success(),
        "{command:?}: {}: {}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
}
