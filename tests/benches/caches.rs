//! What each way of caching on the `fuse` driver saves: the same work on the same tree through an
//! overlay that caches by default (with the built-in rules, as a session has it), one with an
//! immutable lower, one with extended caching, and without any. Interleaved; medians are printed as
//! ratios to the work on the tree itself, and beside them the requests by opcode, the `statx` calls
//! beneath and the server's own time on a processor, which tells something on a busy machine too.
//!
//! `cargo bench -p pvisor --bench caches` measures; run in any other way, or with `--smoke`, it only
//! shows that everything works. Fails where extended caching does not spare what it is for.

#[path = "caches/mounted.rs"]
mod mounted;
#[path = "caches/work.rs"]
mod work;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use mounted::{Mounted, NO_FUSE};
use pvisor::sandbox::spec::CacheMode;
use work::{STEPS, Scale};

/// How the tree is reached.
const WAYS: [(&str, Option<CacheMode>); 4] = [
    ("native", None),
    ("default", Some(CacheMode::Default)),
    ("immutable-lower", Some(CacheMode::ImmutableLower)),
    ("extended", Some(CacheMode::Extended)),
];

/// What one step took and what was asked for it.
#[derive(Debug, Default, Clone)]
struct Sample {
    seconds: f64,
    /// `statx`, `cpu` (microseconds of the server) and the requests by opcode.
    counted: BTreeMap<String, u64>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let full = args.iter().any(|a| a == "--bench") && !args.iter().any(|a| a == "--smoke");
    let (rounds, scale) = if full {
        (9, Scale::FULL)
    } else {
        (1, Scale::SMOKE)
    };
    let dir = match tempfile::Builder::new().prefix("pvisor-bench").tempdir() {
        Ok(dir) => dir,
        Err(error) => {
            println!("a temporary directory: {error}");
            return ExitCode::FAILURE;
        }
    };
    work::fill(&dir.path().join("lower"), &scale);
    let mut samples: Vec<Vec<Vec<Sample>>> = vec![vec![Vec::new(); STEPS.len()]; WAYS.len()];
    for round in 0..rounds {
        for (way, (name, cache)) in WAYS.iter().enumerate() {
            match run(dir.path(), &format!("{name}{round}"), *cache, &scale) {
                Ok(steps) => {
                    for (all, one) in samples[way].iter_mut().zip(steps) {
                        all.push(one);
                    }
                }
                Err(why) if why == NO_FUSE => {
                    println!("skipped: /dev/fuse cannot be opened or mounted by this user");
                    return ExitCode::SUCCESS;
                }
                Err(why) => {
                    println!("{name}: {why}");
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    report(&samples)
}

/// Does all the steps once, over a new mount.
fn run(
    base: &Path,
    name: &str,
    cache: Option<CacheMode>,
    scale: &Scale,
) -> Result<Vec<Sample>, String> {
    let mounted = match cache {
        None => Mounted::not(base),
        Some(cache) => Mounted::over(base, name, cache)?,
    };
    mounted.work(scale)
}

fn report(samples: &[Vec<Vec<Sample>>]) -> ExitCode {
    let mut good = true;
    for (at, step) in STEPS.iter().enumerate() {
        println!("{}", step.name);
        let native = median(&samples[0][at]);
        for ((name, cache), steps) in WAYS.iter().zip(samples) {
            let ms = median(&steps[at]) * 1e3;
            let ratio = median(&steps[at]) / native;
            // Rounds differ in nothing but time: the last one's counts are everybody's.
            let counted = steps[at].last().map(|s| s.counted.clone());
            let mut line = format!("  {name:<16} {ms:8.2} ms {ratio:6.2}x");
            for (what, count) in counted.iter().flatten().filter(|(_, count)| **count > 0) {
                let _ = write!(line, "  {what} {count}");
            }
            println!("{line}");
            if *cache == Some(CacheMode::Extended)
                && let Some(asked) = step.unasked.iter().find_map(|word| {
                    let count = *counted.as_ref()?.get(*word)?;
                    (count > work::FEW).then_some((word, count))
                })
            {
                println!(
                    "  extended: {} requests `{}`: the kernel should know",
                    asked.1, asked.0
                );
                good = false;
            }
        }
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn median(samples: &[Sample]) -> f64 {
    let mut all: Vec<f64> = samples.iter().map(|s| s.seconds).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}
