//! A clean merge is the one that `git merge-file` makes.

use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

use super::super::*;

/// What git makes of three files; `None` where it finds a conflict.
fn git(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, bytes) in [("base", base), ("ours", ours), ("theirs", theirs)] {
        std::fs::write(dir.path().join(name), bytes).expect("written");
    }
    let output = Command::new("git")
        .args(["merge-file", "-p", "ours", "base", "theirs"])
        .current_dir(dir.path())
        .output()
        .expect("git runs");
    match output.status.code() {
        Some(0) => Some(output.stdout),
        Some(1..=127) => None,
        _ => panic!("{output:?}"),
    }
}

fn has_git() -> bool {
    let mut call = Command::new("git");
    call.arg("--version").stdout(Stdio::null());
    let found = call.status().is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped: there is no git");
    }
    found
}

/// An edit of a base line: kept, replaced, removed, doubled, or something put before it.
fn edited(base: &[String], edits: &[u8], who: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for (n, (line, edit)) in base.iter().zip(edits).enumerate() {
        match edit {
            0 => lines.push(format!("{who} {n}")),
            1 => {}
            2 => lines.extend([line.clone(), line.clone()]),
            3 => lines.extend([format!("{who} before {n}"), line.clone()]),
            // The same edit by whoever makes it.
            4 => lines.push(format!("anybody {n}")),
            _ => lines.push(line.clone()),
        }
    }
    lines
}

fn text(lines: &[String], end: &str, newline: bool) -> Vec<u8> {
    let mut text = lines.join(end);
    if newline && !lines.is_empty() {
        text.push_str(end);
    }
    text.into_bytes()
}

type Case = (Vec<u8>, Vec<u8>, Vec<u8>, bool, [bool; 3], bool);

/// Bases, with lines that repeat or without, and two sides' edits of them.
fn case() -> impl Strategy<Value = Case> {
    let edits = || prop::collection::vec(0..40u8, 30);
    (
        prop::collection::vec(0..30u8, 1..30),
        edits(),
        edits(),
        any::<bool>(),
        prop_oneof![Just([true; 3]), Just([false; 3]), any::<[bool; 3]>()],
        any::<bool>(),
    )
}

#[test]
fn a_clean_merge_is_gits() {
    if !has_git() {
        return;
    }
    let cases = std::env::var("PROPTEST_CASES");
    let cases: u32 = cases.ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    let (mut clean, mut of_both) = (0, 0);
    let mut runner = TestRunner::new(Config::with_cases(1));
    for _ in 0..cases {
        let tree = case().new_tree(&mut runner).expect("a case");
        let (base, ours, theirs, crlf, newlines, repeats) = tree.current();
        let line = |(at, line): (usize, &u8)| {
            let name = if repeats { usize::from(line % 6) } else { at };
            format!("line {name}")
        };
        let base: Vec<String> = base.iter().enumerate().map(line).collect();
        let [ours, theirs] = [
            edited(&base, &ours, "host"),
            edited(&base, &theirs, "agent"),
        ];
        let end = if crlf { "\r\n" } else { "\n" };
        let base = text(&base, end, newlines[0]);
        let ours = text(&ours, end, newlines[1]);
        let theirs = text(&theirs, end, newlines[2]);
        let Merge::Clean(merged) = merge(&base, &ours, &theirs) else {
            continue;
        };
        clean += 1;
        let shown = [&base, &ours, &theirs, &merged].map(|side| String::from_utf8_lossy(side));
        match git(&base, &ours, &theirs) {
            Some(of_git) => {
                assert!(
                    of_git == merged,
                    "{shown:#?}\n{}",
                    String::from_utf8_lossy(&of_git)
                );
                of_both += 1;
            }
            // For git a last line without its newline is another line; for the review the newline
            // is an item of its own, which goes with the other edits.
            None => assert_ne!(newlines, [true; 3], "{shown:#?}"),
        }
    }
    eprintln!("{clean} clean merges of {cases}, {of_both} of them clean for git as well");
    assert!(of_both > cases / 4, "{of_both} of {cases}");
}
