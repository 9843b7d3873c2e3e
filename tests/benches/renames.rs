//! What help with renames of directories costs: a start, a rename of a file, one that fails, and
//! `mv` of a directory of the host's, each with and without the shim. Interleaved, so that a noisy
//! moment meets both; medians and their ratio are printed, and a ratio above the bar fails.
//!
//! `cargo bench --bench renames` measures; run in any other way, or with `--smoke`, it only shows
//! that both sides work.

#[allow(unused)] // The bench needs the world and the users, not the terminal or the model.
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;
use std::time::Instant;

use support::user::User;
use support::{Capability, World, capability};

/// Rounds; each has one run with and one without.
const RUNS: usize = 15;

/// What is measured: its name, the unit, and at most so many times what it takes without.
const MEASURES: [(&str, &str, f64); 5] = [
    ("start and end of `true`", "ms", 1.5),
    ("a rename that fails", "us", 20.0),
    ("a rename of a file", "us", 4.0),
    ("write a file beside, rename it over", "us", 1.5),
    ("mv of a directory of 1,000 x 4 KiB", "ms", 1.5),
];

/// Prints seconds for each measure but the start.
const PROGRAM: &str = r"
import os, subprocess, time
def each(count, do):
    start = time.perf_counter()
    for i in range(count): do(i)
    return (time.perf_counter() - start) / count
def fails(i):
    try: os.rename('none', 'no')
    except FileNotFoundError: pass
open('f0', 'w').close()
def save(i):
    with open('save.tmp', 'w') as f: f.write('some text\n' * 50)
    os.rename('save.tmp', 'save')
print(each(COUNT, fails), each(COUNT, lambda i: os.rename(f'f{i}', f'f{i + 1}')), each(COUNT, save),
    each(1, lambda i: subprocess.run(['mv', 'large', 'moved'], check=True)))
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let full = args.iter().any(|a| a == "--bench") && !args.iter().any(|a| a == "--smoke");
    let (runs, calls) = if full { (RUNS, 3000) } else { (2, 20) };
    let mut good = true;
    // Kept to the end, as in the bench of the start.
    let mut worlds = Vec::new();
    for user in [User::root(), User::ordinary().ok()].into_iter().flatten() {
        let world = World::new("bench renames", user);
        if !capability::have_sandbox(&world)
            || !capability::have(&world, Capability::Program("python3"))
        {
            continue;
        }
        world.host_ok(
            "mkdir large; for i in $(seq 1000); do head -c 4096 /dev/zero >large/$i; done",
        );
        let mut samples: [[Vec<f64>; 2]; 5] = Default::default();
        for round in 0..=runs {
            for (side, flag) in [&[][..], &["--no-rename-shim"][..]].into_iter().enumerate() {
                let seconds = measure(&world, flag, calls);
                if round > 0 {
                    for (all, one) in samples.iter_mut().zip(seconds) {
                        all[side].push(one);
                    }
                }
            }
        }
        for ((name, unit, bar), [with, without]) in MEASURES.iter().zip(samples) {
            let scale = if *unit == "ms" { 1e3 } else { 1e6 };
            let (with, without) = (median(with), median(without));
            let ratio = with / without;
            println!(
                "{name} as {}: {:.1} {unit}, without {:.1} {unit}, ratio {ratio:.2} (medians of \
                 {runs} interleaved runs)",
                world.user.name,
                with * scale,
                without * scale,
            );
            if full && ratio > *bar {
                println!("{name}: the ratio is above {bar}");
                good = false;
            }
        }
        worlds.push(world);
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Seconds of each measure.
fn measure(world: &World, flags: &[&str], calls: usize) -> [f64; 5] {
    let start = Instant::now();
    world.run_with(flags, "exec true").ok();
    let started = start.elapsed().as_secs_f64();
    let program = PROGRAM.replace("COUNT", &calls.to_string());
    let script = format!("exec python3 -c \"$(cat <<'END'\n{program}\nEND\n)\"");
    let printed = world.run_with(flags, &script).ok().out();
    world.pvisor(["discard"]).ok();
    let mut seconds = printed
        .split_whitespace()
        .map(|n| n.parse().expect("seconds"));
    let mut next = || seconds.next().expect("a figure");
    [started, next(), next(), next(), next()]
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    let middle = samples.len() / 2;
    if samples.len() % 2 == 1 {
        samples[middle]
    } else {
        f64::midpoint(samples[middle - 1], samples[middle])
    }
}
