//! Which scripts run on what, and the account of it.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::deviations::{Driver, TABLE};
use super::generate;
use super::pinned;
use super::random::Random;
use super::script::Script;
use super::shrink::shrink;
use super::support::World;
use super::support::capability::{self, Capability};
use super::twin::{Setting, Stage, compare};

/// Scripts of a normal run, all drivers and users together.
const SCRIPTS: u64 = 60;
/// Scripts of a thorough run, for each driver and user.
const THOROUGH: u64 = 1000;
/// Sessions at once.
const AT_ONCE: usize = 2;

pub fn main(arguments: &[OsString]) -> ExitCode {
    let arguments: Vec<String> = arguments
        .iter()
        .map(|a| a.to_string_lossy().into())
        .collect();
    let wanted: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let mut tests = tests();
    tests.retain(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| name.contains(*w)));
    if arguments.iter().any(|a| a == "--list") {
        for (name, _) in &tests {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let mut failed = Vec::new();
    let total = tests.len();
    for (name, test) in tests {
        // A panic has told its reason.
        let passed = catch_unwind(AssertUnwindSafe(test)).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        if !passed {
            failed.push(name);
        }
    }
    let word = if failed.is_empty() { "ok" } else { "FAILED" };
    let passed = total - failed.len();
    println!(
        "test result: {word}. {passed} passed; {} failed; 0 ignored",
        failed.len()
    );
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        println!("failed: {}", failed.join(", "));
        ExitCode::from(101)
    }
}

/// The `fuse` driver where the kernel may keep what it knows.
const EXTENDED: &str = "fuse-extended";

type Test = (String, Box<dyn FnOnce()>);

fn tests() -> Vec<Test> {
    let mut tests: Vec<Test> = vec![("deviations_are_told_in_the_readme".into(), Box::new(told))];
    for (name, test) in pinned::TESTS {
        tests.push(((*name).to_owned(), Box::new(*test)));
    }
    for path in regressions() {
        let stem = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        tests.push((
            format!("regression_{stem}"),
            Box::new(move || stored(&path)),
        ));
    }
    let ways = Driver::ALL.map(|driver| (driver, driver.name()));
    for (driver, way) in ways.into_iter().chain([(Driver::Fuse, EXTENDED)]) {
        for root in [true, false] {
            let who = if root { "root" } else { "user" };
            let name = format!("random_{way}_{who}");
            let own = name.clone();
            tests.push((name, Box::new(move || seeds(&own, driver, root))));
        }
    }
    tests
}

fn regressions() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/oracle/regressions");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&dir)
        .expect("stored scripts")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    paths.sort();
    paths
}

/// Every driver's conditions stand in the README, so that a reader finds what a test leaves out.
fn told() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let text = std::fs::read_to_string(readme).expect("a README");
    for deviation in TABLE {
        assert!(!deviation.why.is_empty() && !deviation.handled.is_empty());
        assert!(
            text.contains(&format!("\n| {} |", deviation.condition)),
            "the README's deviations do not say of {}: {}",
            deviation.driver,
            deviation.condition
        );
    }
}

/// The setting, unless this machine (or this build) cannot have it; the reason is printed.
pub fn setting(test: &str, driver: Driver, root: bool) -> Option<Setting> {
    let world = if root {
        World::of_root(test)
    } else {
        World::of_ordinary_user(test)
    }?;
    if !capability::have(&world, Capability::Program("setpriv")) {
        return None;
    }
    let user = world.user.clone();
    let setting = Setting {
        user,
        driver,
        shim: true,
        flags: if test.contains(EXTENDED) {
            ["--cache", "extended"].map(str::to_owned).to_vec()
        } else {
            Vec::new()
        },
    };
    if let Some(reason) = unable(&world, driver) {
        eprintln!("skipped: {test}: {reason}");
        return None;
    }
    Some(setting)
}

fn unable(world: &World, driver: Driver) -> Option<String> {
    if driver == Driver::Overlayfs {
        return None;
    }
    if !Path::new("/dev/fuse").exists() {
        return Some("no /dev/fuse".into());
    }
    let done = world.run_with(&["--driver", driver.name()], "true").done();
    if done.status == Some(0) {
        return None;
    }
    let said = done.err();
    Some(
        said.lines()
            .next()
            .unwrap_or("the driver is refused")
            .to_owned(),
    )
}

fn stored(path: &Path) {
    let text = std::fs::read_to_string(path).expect("a stored script");
    let script: Script = serde_json::from_str(&text).expect("a script");
    let name = path.display().to_string();
    for driver in Driver::ALL {
        // A name that says which driver it is for: what another cannot do is no regression.
        if driver == Driver::Overlayfs && name.contains("/fuse_only") {
            continue;
        }
        for root in [true, false] {
            let Some(setting) = setting(&name, driver, root) else {
                continue;
            };
            let (_, found) = compare(&setting, &script, Stage::Revert);
            if let Some(found) = found {
                panic!(
                    "{name}, {}: {:?}: {}",
                    setting.name(),
                    found.stage,
                    found.report
                );
            }
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn seeds(test: &str, driver: Driver, root: bool) {
    let Some(setting) = setting(test, driver, root) else {
        return;
    };
    let thorough = std::env::var_os("PVISOR_THOROUGH").is_some_and(|v| v == "1");
    let each = if thorough { THOROUGH } else { SCRIPTS / 4 };
    let count = number("PVISOR_ORACLE_COUNT").unwrap_or(each);
    let first = number("PVISOR_ORACLE_SEED").unwrap_or(1);
    if let Some(path) = std::env::var_os("PVISOR_ORACLE_SCRIPT") {
        let text = std::fs::read_to_string(path).expect("a script");
        let script = serde_json::from_str(&text).expect("a script");
        let failures = Mutex::new(Vec::new());
        one(&setting, &script, &failures);
        assert!(failures.into_inner().unwrap().is_empty(), "see above");
        return;
    }
    println!("{}: seeds {first} to {}", setting.name(), first + count - 1);
    let next = AtomicU64::new(first);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let enough = failures.lock().unwrap().len() >= 5;
                    if seed >= first + count || enough {
                        return;
                    }
                    one(&setting, &random(&setting, seed), &failures);
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} of {count} scripts: {failures:?}",
        failures.len()
    );
}

/// 50 to 500 operations, more often few than many.
fn random(setting: &Setting, seed: u64) -> Script {
    let mut length = Random::new(seed ^ 0xffff);
    let longest = 50 + length.below(451);
    let count = 50 + length.below(longest - 49);
    generate::script(seed, count as usize, setting.driver.allowed(setting.shim))
}

fn one(setting: &Setting, script: &Script, failures: &Mutex<Vec<String>>) {
    let run = || {
        let (script, found) = compare(setting, script, Stage::Revert);
        found.map(|found| {
            println!(
                "{}, {}: {:?}, {}:\n{}\nmade shorter ...",
                script.about,
                setting.name(),
                found.stage,
                found.class,
                found.report
            );
            shrink(setting, script, found)
        })
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(None) => {}
        Ok(Some((script, found))) => {
            println!(
                "the shortest script that shows it ({:?}, {}):\n{}\n{}",
                found.stage,
                found.class,
                found.report,
                script.pretty()
            );
            let what = format!("{}: {:?}: {}", script.about, found.stage, found.class);
            failures.lock().unwrap().push(what);
        }
        Err(_) => failures
            .lock()
            .unwrap()
            .push(format!("{}: panicked", script.about)),
    }
}
