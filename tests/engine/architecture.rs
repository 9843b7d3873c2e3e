//! The rules that keep the rooms apart, checked over manifests and sources. A rule that is broken
//! on purpose is changed here first, with the reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest a source file may grow before it must be split.
const LONGEST: usize = 800;

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file with this extension below a directory of the repository.
fn files(dir: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![top().join(dir)];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                if entry.file_name() != "target" {
                    dirs.push(path);
                }
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn name(path: &Path) -> String {
    let path = path.strip_prefix(top()).unwrap_or(path);
    path.to_string_lossy().into_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A file's code: without comments, and without the unit tests at its end.
fn code(path: &Path) -> String {
    let text = read(path);
    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
    product
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Whether `word` stands in `text` as a whole identifier.
fn mentions(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(part)
            && !text[at + word.len()..].chars().next().is_some_and(part)
    })
}

/// Fails with every file of `within` whose code mentions one of the words.
#[track_caller]
fn nobody_mentions(within: &[PathBuf], words: &[&str], why: &str) {
    let wrong: Vec<String> = within
        .iter()
        .flat_map(|path| {
            let code = code(path);
            words
                .iter()
                .filter(|word| mentions(&code, word))
                .map(|word| format!("{} mentions {word}", name(path)))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(wrong.is_empty(), "{why}:\n  {}", wrong.join("\n  "));
}

/// Whether a file below `src` holds unit tests only: `tests.rs`, `*_tests.rs`, or in `tests/`.
fn is_unit_tests(path: &Path) -> bool {
    let name = name(path);
    name.ends_with("/tests.rs") || name.ends_with("_tests.rs") || name.contains("/tests/")
}

/// Sources of `dir` outside the named files and folders, unit tests apart.
fn outside(dir: &str, rooms: &[&str]) -> Vec<PathBuf> {
    let mut sources = files(dir, "rs");
    sources.retain(|path| !is_in(path, rooms) && !is_unit_tests(path));
    sources
}

fn inside(dir: &str, rooms: &[&str]) -> Vec<PathBuf> {
    let mut sources = files(dir, "rs");
    sources.retain(|path| is_in(path, rooms) && !is_unit_tests(path));
    assert!(
        !sources.is_empty(),
        "no source in {rooms:?}: has a room moved?"
    );
    sources
}

fn is_in(path: &Path, rooms: &[&str]) -> bool {
    let name = name(path);
    rooms
        .iter()
        .any(|room| name == *room || (room.ends_with('/') && name.starts_with(room)))
}

/// Names of the packages a manifest needs, development apart.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let table: toml::Table = read(&top().join(manifest)).parse().expect("a manifest");
    let table = table.get("dependencies").and_then(|d| d.as_table());
    table.into_iter().flat_map(|t| t.keys().cloned()).collect()
}

#[test]
fn the_engine_knows_no_screen_and_no_command_line() {
    let needs = dependencies("Cargo.toml");
    let banned = [
        "ratatui",
        "crossterm",
        "clap",
        "clap_complete",
        "anyhow",
        "pvisor-tui",
    ];
    for package in banned {
        assert!(!needs.contains(package), "the engine needs {package}");
    }
    nobody_mentions(
        // Tests may say on standard error why they were skipped.
        &outside("src", &[]),
        &[
            "ratatui",
            "crossterm",
            "clap",
            "anyhow",
            "println!",
            "print!",
            "eprintln!",
            "eprint!",
            "dbg!",
        ],
        "the engine neither draws nor prints",
    );
}

#[test]
fn the_workstation_knows_no_system_interface() {
    let needs = dependencies("ui/Cargo.toml");
    for package in ["fuser", "nix", "libc", "notify", "rustix", "inotify"] {
        assert!(!needs.contains(package), "ui needs {package}");
    }
    assert!(
        !needs.iter().any(|n| n.starts_with("kvm-")),
        "ui needs {needs:?}"
    );
    nobody_mentions(
        &files("ui/src", "rs"),
        &[
            "fuser",
            "nix",
            "libc",
            "kvm_ioctls",
            "notify",
            "inotify",
            "rustix",
        ],
        "system interfaces belong to the engine",
    );
}

#[test]
fn nothing_points_back() {
    let firmware = dependencies("firmware/Cargo.toml");
    assert!(
        !firmware.iter().any(|n| n.starts_with("pvisor")),
        "firmware needs {firmware:?}"
    );
    nobody_mentions(
        &files("src", "rs"),
        &["pvisor_tui"],
        "the engine does not know its screen",
    );
}

#[test]
fn the_workstation_touches_files_in_three_places_only() {
    nobody_mentions(
        &outside(
            "ui/src",
            &[
                "ui/src/main.rs",
                "ui/src/cli/",
                "ui/src/theme.rs",
                "ui/src/theme/",
            ],
        ),
        &[
            "std::fs",
            "fs::read",
            "fs::write",
            "File::open",
            "OpenOptions",
        ],
        "files are touched in main, cli and theme only",
    );
}

#[test]
fn views_only_look() {
    nobody_mentions(
        &inside("ui/src", &["ui/src/view/"]),
        &[
            "Client",
            "Request",
            "std::fs",
            "std::net",
            "std::process",
            "crossterm::event::read",
        ],
        "views take state and return a picture",
    );
}

#[test]
fn pure_rooms_do_no_io() {
    nobody_mentions(
        &inside(
            "src",
            &[
                "src/diff/",
                "src/merge/",
                "src/review/",
                "src/review.rs",
                "src/text.rs",
                "src/text/",
                "src/session/state.rs",
                "src/session/state/",
                "src/protocol/mod.rs",
                "src/path.rs",
                "src/policy/mod.rs",
                "src/policy/answer.rs",
                "src/policy/builtin.rs",
                "src/policy/matcher.rs",
                "src/policy/message.rs",
                "src/policy/observed.rs",
                "src/policy/parse.rs",
            ],
        ),
        &[
            "std::fs",
            "std::net",
            "std::process",
            "std::env",
            "nix",
            "libc",
            "OpenOptions",
            "UnixStream",
        ],
        "these rooms only compute",
    );
}

#[test]
fn only_the_listed_rooms_change_files() {
    // `commit` writes to the host. The others write what is ours: records, stages, sockets, config.
    let writers = [
        "src/commit/",
        "src/layer/",
        "src/overlay/",
        "src/reserve.rs",
        // Hands a request of that name on.
        "src/fuse/filesystem.rs",
        "src/sandbox/",
        "src/session/",
        "src/change/",
        "src/record.rs",
        "src/record/",
        "src/config/",
        "src/paths.rs",
        "src/reserve.rs",
        "src/doctor.rs",
        "src/doctor/",
    ];
    nobody_mentions(
        &outside("src", &writers),
        &[
            "fs::write",
            "fs::rename",
            "fs::remove_file",
            "fs::remove_dir",
            "fs::remove_dir_all",
            "fs::create_dir",
            "fs::create_dir_all",
            "fs::copy",
            "fs::set_permissions",
            "symlink",
            "renameat",
            "renameat2",
            "unlinkat",
            "mkdirat",
            "symlinkat",
            "fchmodat",
            "OpenOptions",
            "File::create",
            "linkat",
            "mknodat",
        ],
        "this room has no reason to change a file",
    );
}

#[test]
fn only_commit_publishes_into_a_lower() {
    // The two calls by which something appears under a name of the host's. The other two rooms make
    // them for the agent, within a merged view and its upper.
    nobody_mentions(
        &outside("src", &["src/commit/", "src/overlay/", "src/sandbox/shim/"]),
        &["RENAME_EXCHANGE", "RENAME_NOREPLACE"],
        "publishing is commit's alone",
    );
    nobody_mentions(
        &inside("src", &["src/sandbox/"]),
        &["commit", "review"],
        "the sandbox knows nothing of review or commit",
    );
}

#[test]
fn the_overlay_knows_no_transport_and_no_rules() {
    nobody_mentions(
        &inside("src", &["src/overlay/"]),
        &["fuser", "fuse", "policy", "sandbox", "session", "commit"],
        "the overlay is carried by adapters and asks a guard",
    );
    nobody_mentions(
        &outside("src", &["src/fuse/"]),
        &["fuser"],
        "one room speaks to the kernel's side",
    );
}

#[test]
fn unsafe_code_stands_where_it_is_expected() {
    let rooms = [
        "src/sandbox/",
        "src/pty.rs",
        "src/layer/",
        "src/commit/",
        "src/overlay/",
    ];
    nobody_mentions(&outside("src", &rooms), &["unsafe"], "no unsafe code here");
    nobody_mentions(
        &files("firmware/src", "rs"),
        &["unsafe"],
        "no unsafe code in the protocol",
    );
    for root in ["ui/src/lib.rs", "ui/src/main.rs"] {
        let text = read(&top().join(root));
        assert!(
            text.contains("#![forbid(unsafe_code)]"),
            "{root} does not forbid unsafe code"
        );
    }
}

#[test]
fn every_unsafe_block_carries_its_argument() {
    let mut wrong = Vec::new();
    for path in files("src", "rs") {
        let text = read(&path);
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let block = line.contains("unsafe {") && !line.trim_start().starts_with("//");
            // The argument stands in the comment just above the statement.
            let argued = lines[at.saturating_sub(12)..=at]
                .iter()
                .any(|l| l.contains("SAFETY:"));
            if block && !argued {
                wrong.push(format!("{}:{}", name(&path), at + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "unsafe without an argument: {wrong:?}");
}

#[test]
fn files_keep_to_a_size_one_can_read() {
    let mut wrong = Vec::new();
    for dir in ["src", "ui/src", "firmware/src", "tests"] {
        for path in files(dir, "rs") {
            let lines = read(&path).lines().count();
            if lines > LONGEST {
                wrong.push(format!("{}: {lines} lines", name(&path)));
            }
        }
    }
    assert!(wrong.is_empty(), "split these: {wrong:?}");
}

#[test]
fn every_source_says_what_it_owns() {
    let mut wrong = Vec::new();
    for dir in ["src", "ui/src", "firmware/src", "tests"] {
        for path in files(dir, "rs") {
            let text = read(&path);
            let is_unit_tests = path.file_name().is_some_and(|n| n == "tests.rs");
            if !text.starts_with("//!") && !is_unit_tests {
                wrong.push(name(&path));
            }
            assert!(
                !text.contains(concat!("todo", "!("))
                    && !text.contains(concat!("unimplemented", "!(")),
                "{} is unfinished",
                name(&path)
            );
        }
    }
    assert!(wrong.is_empty(), "no header in {wrong:?}");
}

#[test]
fn every_test_file_is_wired_in() {
    let mut wrong = Vec::new();
    for path in files("tests", "rs") {
        let dir = path.parent().expect("a file has a folder");
        let stem = path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let own_target = ["tests/benches", "tests/fuzz/fuzz_targets"]
            .iter()
            .any(|d| dir.ends_with(d));
        if own_target || stem == "main" || stem == "mod" {
            continue;
        }
        let parents = [
            dir.join("main.rs"),
            dir.join("mod.rs"),
            dir.with_extension("rs"),
        ];
        let wired = parents.iter().filter(|p| p.exists()).any(|parent| {
            let text = read(parent);
            text.contains(&format!("mod {stem};"))
        });
        if !wired {
            wrong.push(name(&path));
        }
    }
    assert!(wrong.is_empty(), "never compiled: {wrong:?}");
    let manifests = read(&top().join("Cargo.toml")) + &read(&top().join("ui/Cargo.toml"));
    let benches = files("tests/benches", "rs");
    for bench in &benches {
        let stem = bench.file_stem().expect("a name").to_string_lossy();
        let shared = format!("mod {stem};");
        if benches.iter().any(|other| read(other).contains(&shared)) {
            continue;
        }
        let file = bench
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        assert!(
            manifests.contains(&format!("tests/benches/{file}")),
            "{file} is in no manifest"
        );
    }
    let fuzz = read(&top().join("tests/fuzz/Cargo.toml"));
    for target in files("tests/fuzz/fuzz_targets", "rs") {
        let stem = target
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        assert!(
            fuzz.contains(&format!("name = \"{stem}\"")),
            "{stem} is in no manifest"
        );
    }
}

#[test]
fn vague_rooms_do_not_exist() {
    // "The helper process" is what the design calls the process that this file is.
    let named_by_the_design = ["src/sandbox/helper.rs"];
    for dir in ["src", "ui/src", "firmware/src", "tests"] {
        for path in files(dir, "rs") {
            let stem = path
                .file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            let vague = [
                "util", "utils", "helper", "helpers", "common", "misc", "manager",
            ];
            assert!(
                !vague.contains(&stem.as_str())
                    || named_by_the_design.contains(&name(&path).as_str()),
                "{} says nothing by its name",
                name(&path)
            );
        }
    }
}

#[test]
fn no_test_sleeps() {
    let sleep = concat!("thread::", "sleep");
    let wrong: Vec<String> = ["tests", "src", "ui/src"]
        .iter()
        .flat_map(|dir| files(dir, "rs"))
        // A measurement of what is spent while nothing happens lasts as long as it lasts.
        .filter(|path| !name(path).starts_with("tests/benches/"))
        .filter(|path| {
            let text = read(path);
            let tests = text.split("#[cfg(test)]").nth(1).unwrap_or_default();
            let whole = name(path).starts_with("tests/");
            (if whole { text.as_str() } else { tests }).contains(sleep)
        })
        .map(|path| name(&path))
        .collect();
    assert!(wrong.is_empty(), "tests wait for conditions: {wrong:?}");
}
