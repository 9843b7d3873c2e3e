//! What staging costs seven everyday operations of developers' tools: traverse, read, write, git,
//! ripgrep, cargo, npm. One task after another natively, with us and in bubblewrap with an overlay,
//! interleaved in random order, each on a fresh copy of the same inputs; what is printed are medians
//! and their ratios to the native ones with a 95 % interval (whole rounds resampled).
//!
//! `cargo bench --bench tools` measures; run in any other way, or with `--smoke`, it only shows that
//! it works. `--rounds N` and `--driver D` (also twice: both are measured then) change the defaults.
//! A tool that is not here is left out. The operations themselves are in `tools.py`.

#[allow(unused)] // The bench needs the world and the users, not the terminal or the model.
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use support::beside::{bubblewrap, median, millis};
use support::user::User;
use support::{Capability, World, capability, world};

/// Rounds, as measured and as tried.
const ROUNDS: (usize, usize) = (30, 1);
/// At most so many times the native whole task, at the upper end of the interval.
const BAR: f64 = 1.15;
/// Resamplings for an interval.
const DRAWS: usize = 4_000;
/// What does the operations.
const PAYLOAD: &str = include_str!("tools.py");
/// The column of the whole task, from the start of a runtime's command to its end.
const WHOLE: &str = "whole";

/// Milliseconds by operation.
type Times = BTreeMap<String, f64>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let full = args.iter().any(|a| a == "--bench") && !args.iter().any(|a| a == "--smoke");
    let after = |flag: &str| -> Vec<String> {
        let pairs = args.windows(2).filter(|pair| pair[0] == flag);
        pairs.map(|pair| pair[1].clone()).collect()
    };
    let asked = after("--rounds").first().and_then(|n| n.parse().ok());
    let rounds = asked.unwrap_or(if full { ROUNDS.0 } else { ROUNDS.1 });
    let mut drivers = after("--driver");
    if drivers.is_empty() {
        drivers.push("overlayfs".into());
    }
    let Some(user) = User::ordinary().ok().or_else(User::root) else {
        return ExitCode::SUCCESS;
    };
    let world = World::new("bench tools", user);
    if !capability::have_sandbox(&world)
        || !capability::have(&world, Capability::Program("python3"))
    {
        return ExitCode::SUCCESS;
    }
    let bench = Bench::prepare(world, full, drivers);
    let samples = bench.measure(rounds);
    let upper = bench.report(&samples);
    if full && upper > BAR {
        println!("tools: the whole task may take more than {BAR} times the native one");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

struct Bench {
    world: World,
    /// Of the tools, for every runtime.
    path: String,
    runtimes: Vec<String>,
}

impl Bench {
    /// Makes the inputs; fewer of them for a mere try.
    fn prepare(world: World, full: bool, drivers: Vec<String>) -> Self {
        let toolchain = world::toolchain().map(|t| t.bin.display().to_string());
        let path = format!(
            "{}:/usr/local/bin:/usr/bin:/bin",
            toolchain.unwrap_or_else(|_| "/usr/local/bin".into())
        );
        let script = world.root.join("tools.py");
        fs::write(&script, PAYLOAD).expect("the payload");
        world.own(&script, 0o644);
        let mut runtimes = vec!["native".to_owned()];
        runtimes.extend(drivers);
        if capability::have(&world, Capability::Program("bwrap")) {
            runtimes.push("bubblewrap".into());
        }
        let bench = Self {
            world,
            path,
            runtimes,
        };
        let amount = if full { "full" } else { "small" };
        let inputs = bench.world.root.join("inputs").display().to_string();
        let mut make = bench.world.command("python3");
        make.env("PATH", &bench.path).arg(&script);
        run(make.args(["prepare", &inputs, amount]));
        bench
    }

    fn measure(&self, rounds: usize) -> Vec<BTreeMap<String, Times>> {
        let mut dice = Dice(7);
        let mut samples = Vec::new();
        // The first round only warms up.
        for round in 0..=rounds {
            let mut order = self.runtimes.clone();
            for at in (1..order.len()).rev() {
                order.swap(at, dice.below(at + 1));
            }
            let taken = order.into_iter().map(|name| {
                let times = self.sample(&name, round);
                (name, times)
            });
            let taken: BTreeMap<String, Times> = taken.collect();
            if round > 0 {
                samples.push(taken);
            }
        }
        samples
    }

    /// One task on a fresh copy of the inputs.
    fn sample(&self, runtime: &str, round: usize) -> Times {
        let dir = self.world.root.join(format!("{runtime}{round}"));
        fs::create_dir(&dir).expect("a directory");
        self.world.own(&dir, 0o755);
        let workspace = dir.join("w");
        let mut copy = self.world.command("cp");
        copy.args(["-a", "--reflink=auto"]);
        run(copy.arg(self.world.root.join("inputs")).arg(&workspace));
        run(self.world.command("sync").arg("-f").arg(&dir));
        let mut command = self.command(runtime, &workspace, &dir);
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        let begun = Instant::now();
        let done = command.output().expect("it starts");
        let whole = begun.elapsed();
        assert!(done.status.success(), "{runtime}: {command:?} {done:?}");
        let said = String::from_utf8(done.stdout).expect("text");
        let mut times: Times = serde_json::from_str(said.trim()).expect("times");
        times.insert(WHOLE.into(), millis(whole));
        let staged = runtime != "native";
        assert!(
            staged != workspace.join("written").exists(),
            "{runtime}: where the files went"
        );
        let mut remove = self.world.command("sh");
        run(remove
            .args(["-c", "chmod -R u+rwX \"$1\"; rm -rf \"$1\"", "sh"])
            .arg(&dir));
        times
    }

    fn command(&self, runtime: &str, workspace: &Path, dir: &Path) -> Command {
        let script = self.world.root.join("tools.py").display().to_string();
        let payload = ["python3", "-I", "-S", &script, "task"];
        let mut command = match runtime {
            "native" => {
                let mut command = self.world.command(payload[0]);
                command.args(&payload[1..]);
                command
            }
            "bubblewrap" => bubblewrap(&self.world, workspace, &dir.join("stage"), &payload),
            driver => {
                let mut command = self.world.command(world::binary());
                command.args(["run", "--headless", "--driver", driver, "--state-dir"]);
                command.arg(dir.join("state"));
                command.arg("--workspace").arg(workspace).arg("--");
                command.args(payload);
                command
            }
        };
        command.env("PATH", &self.path).current_dir(workspace);
        command
    }

    /// Prints both tables; the upper end of the first of our whole tasks' interval.
    fn report(&self, samples: &[BTreeMap<String, Times>]) -> f64 {
        let first = &samples[0]["native"];
        let columns: Vec<&String> = first.keys().collect();
        let names: Vec<&str> = columns.iter().map(|c| c.as_str()).collect();
        let head = format!(" {} |", names.join(" | "));
        println!(
            "\nmedian, ms\n| runtime |{head}\n|---|{}",
            "---|".repeat(columns.len())
        );
        for name in &self.runtimes {
            let cells = columns.iter().map(|column| {
                let taken = samples.iter().map(|round| round[name][*column] / 1000.0);
                let middle = median(taken.map(Duration::from_secs_f64).collect());
                format!(" {:.1} |", millis(middle))
            });
            println!("| {name} |{}", cells.collect::<String>());
        }
        println!(
            "\nratio to native [95 % of {} rounds]\n| runtime |{head}\n|---|{}",
            samples.len(),
            "---|".repeat(columns.len())
        );
        let mut bar = None;
        for name in self.runtimes.iter().skip(1) {
            let mut cells = String::new();
            for column in &columns {
                let pair = |round: &BTreeMap<String, Times>| {
                    (round["native"][*column], round[name][*column])
                };
                let pairs: Vec<(f64, f64)> = samples.iter().map(pair).collect();
                let (ratio, low, high) = interval(&pairs);
                let _ = write!(cells, " {ratio:.2} [{low:.2}, {high:.2}] |");
                if *column == WHOLE {
                    bar.get_or_insert(high);
                }
            }
            println!("| {name} |{cells}");
        }
        bar.unwrap_or_default()
    }
}

fn run(command: &mut Command) {
    let done = command.output().expect("it starts");
    assert!(done.status.success(), "{command:?}: {done:?}");
}

/// Ratio of the medians, and its interval.
fn interval(pairs: &[(f64, f64)]) -> (f64, f64, f64) {
    fn ratio(pairs: &[(f64, f64)]) -> f64 {
        let middle = |side: fn(&(f64, f64)) -> f64| {
            let taken = pairs.iter().map(side);
            median(taken.map(Duration::from_secs_f64).collect()).as_secs_f64()
        };
        middle(|pair| pair.1) / middle(|pair| pair.0)
    }
    let mut dice = Dice(11);
    let mut draws: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let picked = (0..pairs.len()).map(|_| pairs[dice.below(pairs.len())]);
            ratio(&picked.collect::<Vec<_>>())
        })
        .collect();
    draws.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| draws[((draws.len() - 1) as f64 * share) as usize];
    (ratio(pairs), at(0.025), at(0.975))
}

/// Numbers that repeat.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}
