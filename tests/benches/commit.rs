//! What a commit costs: change sets of 10, 1,000 and 10,000 text files of some 4 KiB, half modified,
//! half added, beside `cp -a`, `git apply`, `rsync -a` and the reference's `apply --all` of the same
//! files onto a copy of the same tree, each with `sync -f` behind it; 10 files also beside the bare
//! system calls. Interleaved in turns, every one onto a fresh copy and checked against what was to
//! come out. Each begins when all that came before is on the device, and nothing is removed before
//! the last one is through: ext4 without a journal passes over inodes freed within minutes one by
//! one, and what makes many files then pays for whoever removed some. Printed are medians, their
//! ratios, what `run`, `changes`, `diff`, `undo` and a refusal of the same set take, and the most
//! memory of each process. What is above a bar fails.
//!
//! `cargo bench --bench commit` measures; run in any other way, or with `--smoke`, it only shows that
//! it works, with 10 files. `--large` adds 100,000 files, `--rounds N` changes how often, `--only N`
//! leaves the other sizes out, `--disks` adds xfs and btrfs in loop files (as root). The reference
//! is tried where `PVISOR_PEER` names its program or `pvisor` is on the path.

#[allow(unused)] // The bench needs the world and the users, not the terminal or the model.
#[path = "../support/mod.rs"]
mod support;

#[path = "commit/bare.rs"]
mod bare;
#[path = "commit/disk.rs"]
mod disk;
#[path = "commit/memory.rs"]
mod memory;
#[path = "commit/ways.rs"]
mod ways;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime};

use disk::Disk;
use memory::Peaks;
use support::beside::{median, millis};
use support::user::User;
use support::{World, capability};
use ways::{Way, run, timed};

/// At most so many times `cp -a` and `sync -f`, from [`BAR_FROM`] files on.
const BAR: f64 = 1.2;
/// The same on a file system in a loop file.
const BAR_ON_LOOP: f64 = 2.0;
/// Fewer files than this are a matter of the start of two programs.
const BAR_FROM: usize = 1_000;
/// At most so many times the bare system calls, for [`BARE`] files.
const BARE_BAR: f64 = 1.5;
/// Files that the bare system calls are measured with.
const BARE: usize = 10;
/// At most so much memory for each process, in bytes.
const MEMORY_BAR: u64 = 300 << 20;
/// A commit that is refused takes at most so long, whatever the number of files.
const REFUSAL_BAR: Duration = Duration::from_secs(2);
/// 100,000 files take at most so many times as long as 10,000: ten times, and what an hour's noise
/// adds to one of two numbers.
const LINEAR_BAR: f64 = 15.0;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let has = |flag: &str| args.iter().any(|a| a == flag);
    let number = |flag: &str| {
        let pair = args.windows(2).find(|pair| pair[0] == flag);
        pair.and_then(|pair| pair[1].parse::<usize>().ok())
    };
    let full = has("--bench") && !has("--smoke");
    let mut sizes = vec![(10, if full { 9 } else { 1 })];
    if full {
        sizes.extend([(1_000, 7), (10_000, 3)]);
    }
    if has("--large") {
        sizes.push((100_000, 1));
    }
    if let Some(only) = number("--only") {
        sizes.retain(|(files, _)| *files == only);
    }
    let rounds = number("--rounds");
    let Some(user) = User::root().or_else(|| User::ordinary().ok()) else {
        return ExitCode::SUCCESS;
    };
    let world = World::new("bench commit", user.clone());
    if !capability::have_sandbox(&world) {
        return ExitCode::SUCCESS;
    }
    let mut good = measure_sizes(&world, &world.root, BAR, &sizes, rounds);
    if full && has("--disks") {
        for kind in ["xfs", "btrfs"] {
            let mut world = World::new(&format!("bench commit {kind}"), user.clone());
            if let Some(disk) = Disk::mount(&mut world, kind) {
                println!("commit: on {kind} in a loop file:");
                let mut sizes = sizes.clone();
                sizes.retain(|(files, _)| (BAR_FROM..=10_000).contains(files));
                good &= measure_sizes(&world, &disk.path, BAR_ON_LOOP, &sizes, rounds);
                support::processes::end_all_of(&world);
            }
        }
    }
    if full && !good {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Every size, below `at`; whether all of it keeps below the bars.
fn measure_sizes(
    world: &World,
    at: &Path,
    bar: f64,
    sizes: &[(usize, usize)],
    rounds: Option<usize>,
) -> bool {
    let mut good = true;
    let mut took = Vec::new();
    for &(files, usual) in sizes {
        let bench = Bench::prepare(world, at, files);
        let (ours, kept) = bench.measure(rounds.unwrap_or(usual), bar);
        good &= kept;
        took.push((files, ours));
        fs::remove_dir_all(&bench.dir).expect("the inputs go");
    }
    let of = |files: usize| {
        took.iter()
            .find(|(n, _)| *n == files)
            .map(|(_, took)| *took)
    };
    if let (Some(less), Some(more)) = (of(10_000), of(100_000)) {
        let ratio = more.as_secs_f64() / less.as_secs_f64();
        println!("commit: 100,000 files take {ratio:.1} times as long as 10,000");
        good &= ratio <= LINEAR_BAR;
    }
    good
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
    fn prepare(world: &'a World, at: &Path, files: usize) -> Self {
        let dir = at.join(format!("of{files}"));
        // Both are of one size: `rsync` goes by the seconds of their times.
        let now = SystemTime::now();
        let times = [now - Duration::from_secs(3_600), now];
        for side in ["old", "new"] {
            for number in 0..files {
                let at = dir.join(side).join(format!("d{}", number / 100));
                if number % 100 == 0 {
                    fs::create_dir_all(&at).expect("a directory");
                }
                // The first half is there before.
                if side == "new" || number < files / 2 {
                    let path = at.join(format!("f{number}"));
                    fs::write(&path, text(number, side)).expect("a file");
                    let file = fs::File::options().write(true).open(&path);
                    let file = file.expect("it opens");
                    file.set_modified(times[usize::from(side == "new")])
                        .expect("utimens");
                }
            }
        }
        let owner = format!("{}:{}", world.user.uid, world.user.gid);
        run(Command::new("chown").args(["-R", &owner]).arg(&dir));
        let ways = ways::all(world, &dir, files == BARE);
        Self {
            world,
            files,
            dir,
            ways,
        }
    }

    /// Prints what it took; the median of ours, and whether all keeps below the bars.
    fn measure(&self, rounds: usize, bar: f64) -> (Duration, bool) {
        let mut took: Vec<Vec<Duration>> = vec![Vec::new(); self.ways.len()];
        let mut beside = Beside::default();
        let mut targets = Vec::new();
        // One of each first, unless it takes long: caches that only the first run fills.
        let warm = usize::from(self.files < 10_000);
        for round in 0..rounds + warm {
            for turn in 0..self.ways.len() {
                let at = (round + turn) % self.ways.len();
                let target = self.dir.join(format!("t{round}-{at}"));
                let mut copy = self.world.command("cp");
                run(copy.arg("-a").arg(self.dir.join("old")).arg(&target));
                run(self.world.command("sync").arg("-f").arg(&target));
                let one = match &self.ways[at] {
                    Way::Ours => self.ours(&target, &mut beside),
                    way => way.apply(self.world, &self.dir, &target),
                };
                let mut same = self.world.command("diff");
                run(same.arg("-rq").arg(self.dir.join("new")).arg(&target));
                if round >= warm {
                    took[at].push(one);
                }
                targets.push((at, target));
            }
        }
        for (at, target) in targets {
            if self.ways[at] == Way::Ours {
                timed(&mut self.verb(&target, &["discard"]));
                fs::remove_dir_all(records(&target)).expect("its records go");
            }
            fs::remove_dir_all(&target).expect("the copy goes");
        }
        let medians: Vec<Duration> = took.into_iter().map(median).collect();
        let of = |wanted: &str| {
            let at = self.ways.iter().position(|way| way.name() == wanted);
            at.map(|at| medians[at])
        };
        let copy = of(Way::Copy.name()).unwrap_or_default().as_secs_f64();
        for (way, took) in self.ways.iter().zip(&medians) {
            println!(
                "commit: {} files: {} {:.1} ms, {:.2} times cp -a (medians of {rounds} interleaved \
                 runs)",
                self.files,
                way.name(),
                millis(*took),
                took.as_secs_f64() / copy,
            );
        }
        println!("commit: {} files: {beside}", self.files);
        println!("commit: {} files: load {}", self.files, load());
        let mut good = true;
        let mut above = |what: &str| {
            println!("commit: {} files: {what}", self.files);
            good = false;
        };
        let ratio = medians[0].as_secs_f64() / copy;
        if self.files >= BAR_FROM && ratio > bar {
            above(&format!("{ratio:.2} times cp -a is above {bar}"));
        }
        if let Some(bare) = of(Way::Bare.name()) {
            let ratio = medians[0].as_secs_f64() / bare.as_secs_f64();
            println!("commit: {} files: {ratio:.2} times bare calls", self.files);
            if ratio > BARE_BAR {
                above(&format!(
                    "{ratio:.2} times the bare calls is above {BARE_BAR}"
                ));
            }
        }
        if median(beside.refusal.clone()) > REFUSAL_BAR {
            above(&format!("a refusal takes more than {REFUSAL_BAR:?}"));
        }
        for (process, most) in beside.peaks.iter() {
            if most > MEMORY_BAR {
                let most = most >> 20;
                let bar = MEMORY_BAR >> 20;
                above(&format!("{process} takes {most} MiB, more than {bar}"));
            }
        }
        (medians[0], good)
    }

    /// Stages the set on `target`, and takes the time of its commit, and of everything around it on
    /// the way. What is committed stays: what was undone is committed again.
    fn ours(&self, target: &Path, beside: &mut Beside) -> Duration {
        let command = |args: &[&str]| self.verb(target, args);
        let verb = |args: &[&str]| timed(&mut command(args));
        let from = self.dir.join("new/.").display().to_string();
        let ran = verb(&["run", "--headless", "--", "cp", "-a", &from, "."]);
        beside.run.push(ran);
        beside.changes.push(verb(&["changes"]));
        beside.diff.push(verb(&["diff"]));
        beside.refusal.push(Self::refused(target, &command));
        // The others' files have been on the device for long.
        run(self.world.command("sync").arg("-f").arg(target));
        let took = verb(&["commit", "--all"]);
        beside.undo.push(verb(&["undo"]));
        // Looking at the processes takes a part of a processor: not while the time is taken.
        beside
            .peaks
            .during(self.world, || verb(&["commit", "--all"]));
        took
    }

    fn verb(&self, target: &Path, args: &[&str]) -> Command {
        let mut command = self.world.command(support::world::binary());
        command.args(args).current_dir(target);
        // Each round is a world of its own: `last` is its session.
        command.env("XDG_STATE_HOME", records(target));
        command
    }

    /// How long it takes to be told that the host was changed meanwhile. It is as it was afterwards.
    fn refused(target: &Path, command: &dyn Fn(&[&str]) -> Command) -> Duration {
        let file = target.join("d0/f0");
        let meta = fs::metadata(&file).expect("it is there");
        let before = fs::read(&file).expect("it can be read");
        let own = (meta.permissions(), meta.modified().expect("a time"));
        fs::write(&file, "somebody else's\n").expect("written");
        let mut commit = command(&["commit", "--all"]);
        let begun = std::time::Instant::now();
        let out = commit.output().expect("it starts");
        let took = begun.elapsed();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.code() == Some(1) && said.contains("d0/f0"),
            "{}: {said}",
            out.status
        );
        fs::write(&file, before).expect("written");
        fs::set_permissions(&file, own.0).expect("chmod");
        let file = fs::File::options().write(true).open(&file);
        let file = file.expect("it opens");
        file.set_modified(own.1).expect("utimens");
        took
    }
}

/// Where the sessions of a round are kept.
fn records(target: &Path) -> PathBuf {
    target.with_extension("state")
}

/// What the steps around a commit take.
#[derive(Default)]
struct Beside {
    run: Vec<Duration>,
    changes: Vec<Duration>,
    diff: Vec<Duration>,
    undo: Vec<Duration>,
    refusal: Vec<Duration>,
    peaks: Peaks,
}

impl std::fmt::Display for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = |samples: &[Duration]| millis(median(samples.to_vec()));
        write!(
            f,
            "run {:.0} ms, changes {:.0} ms, diff {:.0} ms, refusal {:.0} ms, undo {:.0} ms; at most \
             during the commit: {}",
            of(&self.run),
            of(&self.changes),
            of(&self.diff),
            of(&self.refusal),
            of(&self.undo),
            self.peaks,
        )
    }
}

/// The machine's load average over the last minute.
fn load() -> String {
    let all = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    all.split(' ').next().unwrap_or("unknown").to_owned()
}

/// Some 4 KiB of text.
fn text(number: usize, side: &str) -> String {
    let lines = (0..64).map(|line| match line {
        20 => format!("line {line} of file {number}, which is {side}\n"),
        _ => format!("line {line} of file {number}, as it is in either of the two trees\n"),
    });
    lines.collect()
}
