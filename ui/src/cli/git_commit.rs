//! `commit --git-commit`: records what was just written in the workspace's git repository. Owns the
//! call of git and what of the repository it must not obey: no hook and no file-system monitor
//! runs, and nothing is recorded when the commit itself wrote below a `.git`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use pvisor::LayerPath;
use pvisor::RelPath;
use pvisor::change::{Change, Class};
use pvisor::layer::WORKSPACE;

use super::error::{CliError, REFUSED};

/// Records `paths` (and the old names of renames among them, as `before` knows them).
pub fn record(
    workspace: &Path,
    paths: &[LayerPath],
    before: &BTreeMap<LayerPath, Change>,
    message: &str,
) -> Result<(), CliError> {
    let written = written(paths, before)?;
    if written.is_empty() {
        return Ok(());
    }
    let list: Vec<u8> = written
        .iter()
        .flat_map(|path| path.as_bytes().iter().copied().chain([0]))
        .collect();
    git(workspace, &["add", "--all"], &list)?;
    let commit = [
        "commit",
        "--quiet",
        "--only",
        "--no-verify",
        "--message",
        message,
    ];
    git(workspace, &commit, &list)
}

/// What of the commit a git repository tracks.
fn written(
    paths: &[LayerPath],
    before: &BTreeMap<LayerPath, Change>,
) -> Result<BTreeSet<RelPath>, CliError> {
    let mut written = BTreeSet::new();
    for key in paths.iter().filter(|key| key.layer == WORKSPACE) {
        if key.path.components().any(|part| part == b".git") {
            return Err(CliError::refused(format!(
                "committed, but not recorded in git: the commit itself wrote {key}"
            ))
            .hint("look at the repository before git works in it, then commit there by hand"));
        }
        let change = before.get(key);
        if change.is_some_and(|change| change.class == Class::Ignored) {
            continue;
        }
        // git knows no directories of their own.
        let directory = |change: &Change| change.file_type() == pvisor::layer::FileType::Dir;
        if change.is_some_and(directory) {
            continue;
        }
        written.extend(change.and_then(Change::from).cloned());
        written.insert(key.path.clone());
    }
    Ok(written)
}

fn git(workspace: &Path, arguments: &[&str], paths: &[u8]) -> Result<(), CliError> {
    let failed = |error: &dyn std::fmt::Display| {
        CliError::while_doing("committed, but not recorded in git", error).with_status(REFUSED)
    };
    let mut child = Command::new("git")
        .arg("-C")
        .arg(workspace)
        .args([
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "core.fsmonitor=false",
        ])
        .arg("--literal-pathspecs")
        .args(arguments)
        .args(["--pathspec-from-file=-", "--pathspec-file-nul"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error))?;
    // git reads the whole list before it says anything.
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(paths);
    }
    let done = child.wait_with_output().map_err(|error| failed(&error))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(failed(&format!("git {}: {}", arguments[0], said.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture::{change, renamed};

    fn key(path: &[u8]) -> LayerPath {
        LayerPath::new(WORKSPACE, RelPath::new(path).expect("path"))
    }

    #[test]
    fn a_commit_below_git_is_never_followed_by_git() {
        let set = BTreeMap::new();
        assert!(written(&[key(b"a"), key(b".git/config")], &set).is_err());
        assert!(written(&[key(b"sub/.git/hooks/x")], &set).is_err());
    }

    #[test]
    fn both_names_of_a_rename_and_nothing_ignored() {
        let mut ignored = change(WORKSPACE, b"target/x", &[]);
        ignored.class = Class::Ignored;
        let set: BTreeMap<_, _> = [
            ignored,
            renamed(WORKSPACE, b"old", b"new", &[]),
            change(WORKSPACE, b"a", &[]),
        ]
        .into_iter()
        .map(|c| (c.key.clone(), c))
        .collect();
        let paths: Vec<_> = set.keys().cloned().collect();
        let names = written(&paths, &set).expect("paths");
        let names: Vec<_> = names.iter().filter_map(RelPath::as_utf8).collect();
        assert_eq!(names, ["a", "new", "old"]);
    }

    #[test]
    fn git_records_exactly_these_paths_and_runs_no_hook() {
        let dir = tempfile::tempdir().expect("tempdir");
        let w = dir.path();
        let host = |script: &str| {
            let done = Command::new("sh")
                .args(["-ec", script])
                .current_dir(w)
                .output();
            let done = done.expect("sh");
            String::from_utf8_lossy(&done.stdout).trim().to_owned()
        };
        if host("command -v git").is_empty() {
            eprintln!("skipped: git is not installed");
            return;
        }
        host(
            "git init -q .; git config user.name ada; git config user.email ada@example.org
             echo 1 > gone; echo 1 > other; git add .; git commit -qm first
             printf '#!/bin/sh\\ntouch ran\\n' > .git/hooks/post-commit; chmod +x .git/hooks/*
             rm gone; echo 2 > other; git add other; echo x > '[a]*'",
        );
        record(
            w,
            &[key(b"gone"), key(b"[a]*")],
            &BTreeMap::new(),
            "the message",
        )
        .expect("recorded");
        assert_eq!(
            host("git show --format=%s --name-status HEAD"),
            "the message\n\nA\t[a]*\nD\tgone"
        );
        assert_eq!(
            host("git status --short"),
            "M  other",
            "what was staged before stays staged"
        );
        assert!(!w.join("ran").exists(), "no hook ran");
    }
}
