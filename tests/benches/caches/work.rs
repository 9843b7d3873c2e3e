//! The tree and what is done with it. Owns the steps; knows nothing of mounts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Requests of a kind that do not count as asking again: the first of them says that no more are
/// needed, and programs look at a few other things.
pub const FEW: u64 = 40;

/// How large the tree is.
#[derive(Clone, Copy)]
pub struct Scale {
    pub dirs: usize,
    pub files: usize,
    pub written: usize,
}

impl Scale {
    pub const FULL: Scale = Scale {
        dirs: 32,
        files: 64,
        written: 256,
    };
    pub const SMOKE: Scale = Scale {
        dirs: 4,
        files: 16,
        written: 8,
    };
}

/// One thing that is done.
pub struct Step {
    pub name: &'static str,
    /// Requests that extended caching spares.
    pub unasked: &'static [&'static str],
    /// Waited for before, so that what holds for a second does not hold any more.
    pub after: Duration,
    pub run: fn(&Path, &Scale) -> bool,
}

const NOW: Duration = Duration::ZERO;
const LATER: Duration = Duration::from_millis(1200);

/// In this order, each once.
pub const STEPS: [Step; 10] = [
    step("list, first", &[], NOW, |top, scale| {
        walk(top) == scale.dirs * scale.files
    }),
    step(
        "list, again at once",
        &["lookup", "getattr"],
        NOW,
        |top, scale| walk(top) == scale.dirs * scale.files,
    ),
    step(
        "list, after more than a second",
        &["lookup", "getattr"],
        LATER,
        |top, scale| walk(top) == scale.dirs * scale.files,
    ),
    step("stat each", &["lookup", "getattr"], NOW, |top, scale| {
        each(top, scale, |file| fs::symlink_metadata(file).is_ok())
    }),
    step(
        "stat each, after more than a second",
        &["lookup", "getattr"],
        LATER,
        |top, scale| each(top, scale, |file| fs::symlink_metadata(file).is_ok()),
    ),
    step("git status, first", &["open", "release"], NOW, status),
    step(
        "git status, again at once",
        // What was read has another time of last access: that is asked for once.
        &["open", "release", "lookup"],
        NOW,
        status,
    ),
    step(
        "git status, after more than a second",
        &["open", "release", "lookup", "getattr"],
        LATER,
        status,
    ),
    step(
        "read each",
        &["open", "release", "lookup", "read"],
        NOW,
        |top, scale| {
            each(top, scale, |file| {
                fs::read(file).is_ok_and(|b| b.len() > 900)
            })
        },
    ),
    step(
        "write files of 64 KiB",
        &["open", "release"],
        NOW,
        |top, scale| {
            let made = top.join("made");
            let written = fs::create_dir(&made).is_ok()
                && (0..scale.written)
                    .all(|n| fs::write(made.join(n.to_string()), vec![7; 65_536]).is_ok());
            written && fs::remove_dir_all(made).is_ok()
        },
    ),
];

const fn step(
    name: &'static str,
    unasked: &'static [&'static str],
    after: Duration,
    run: fn(&Path, &Scale) -> bool,
) -> Step {
    Step {
        name,
        unasked,
        after,
        run,
    }
}

/// Waits as long as a step wants.
pub fn wait(step: &Step) {
    sleep(step.after);
}

/// Makes the tree, committed; the index is as in a fresh copy, so that git reads every file once.
pub fn fill(top: &Path, scale: &Scale) {
    for dir in 0..scale.dirs {
        let dir = top.join(format!("d{dir:03}"));
        fs::create_dir_all(&dir).expect("a directory");
        for file in 0..scale.files {
            let line = format!("{file:05} a needle in every file {}\n", "x".repeat(1000));
            fs::write(dir.join(format!("f{file:05}.txt")), line).expect("a file");
        }
    }
    git(top, &["init", "-q"]);
    git(top, &["add", "."]);
    git(top, &["commit", "-qm", "tree"]);
}

/// Where git is missing, its steps do nothing, everywhere.
fn git(top: &Path, words: &[&str]) -> bool {
    let run = Command::new("git")
        .args(["-c", "user.name=bench", "-c", "user.email=bench@invalid"])
        .args(["-c", "gc.auto=0", "-c", "safe.directory=*"])
        .args(words)
        .current_dir(top)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .output();
    run.is_ok_and(|done| done.status.success() && done.stdout.is_empty())
}

fn status(top: &Path, _: &Scale) -> bool {
    git(top, &["status", "--porcelain"]) || !Path::new("/usr/bin/git").exists()
}

/// Lists and looks at everything but git's own; how many files there are.
fn walk(top: &Path) -> usize {
    let mut found = 0;
    let mut todo = vec![top.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() && entry.file_name() != ".git" => todo.push(entry.path()),
                Ok(meta) if meta.is_file() => found += 1,
                _ => {}
            }
        }
    }
    found
}

/// Does something with each file, by its path.
fn each(top: &Path, scale: &Scale, act: impl Fn(&PathBuf) -> bool) -> bool {
    (0..scale.dirs).all(|dir| {
        (0..scale.files).all(|file| {
            act(&top
                .join(format!("d{dir:03}"))
                .join(format!("f{file:05}.txt")))
        })
    })
}
