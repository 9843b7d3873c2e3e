//! What is folded, counted apart or marked as a risk: git's own files and what git ignores.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use super::{Review, rows};
use crate::layers::rel;
use pvisor::RelPath;
use pvisor::change::{ChangeKind, Class, Conflict, Risk};
use pvisor::layer::{AccessError, DirectAccess, Overwrite, StageAccess, UpperEntry};

#[test]
fn a_nested_repository_is_reviewed_and_its_hooks_come_first() {
    let Some(mut review) = Review::new(
        "git init -q . && git -c user.email=a@b -c user.name=n commit -q --allow-empty -m i",
    ) else {
        return;
    };
    review.stage.agent("git init -q sub; echo s > sub/f; printf '#!/bin/sh\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; git config core.fsmonitor 'touch /tmp/x'");
    let hook = review.change(".git/hooks/pre-commit");
    assert_eq!(hook.risks[..2], [Risk::GitHook, Risk::Executable]);
    assert_eq!(review.change(".git/config").risks[0], Risk::GitConfig);
    assert_eq!(review.change("sub/.git/config").risks[0], Risk::GitConfig);
    assert_eq!(review.change("sub/f").kind, ChangeKind::Added);
    assert_eq!(review.change("sub/f").class, Class::Plain);
}

#[test]
fn git_objects_and_ignored_files_are_classed() {
    let Some(mut review) = Review::new(
        "git init -q . && printf 'target/\\n*.log\\n' > .gitignore && echo x > tracked.log && git add -f . && git -c user.email=a@b -c user.name=n commit -qm i",
    ) else {
        return;
    };
    review.stage.agent("mkdir -p target/d; echo o > target/d/o; echo n > n.log; echo 2 > tracked.log; echo '*.rs' >> .gitignore; echo r > a.rs; git add -f a.rs; git -c user.email=a@b -c user.name=n commit -qm second");
    let changes = review.scan();
    let class = |path: &str| {
        changes
            .iter()
            .find(|c| c.key.path == rel(path))
            .unwrap_or_else(|| panic!("{path}"))
            .class
    };
    assert_eq!(class("target"), Class::Ignored);
    assert_eq!(class("target/d/o"), Class::Ignored);
    assert_eq!(class("n.log"), Class::Ignored);
    assert_eq!(
        class("tracked.log"),
        Class::Plain,
        "tracked in spite of the rule"
    );
    assert_eq!(
        class("a.rs"),
        Class::Plain,
        "the agent's own rule hides nothing"
    );
    assert_eq!(class(".git/index"), Class::Plain);
    let objects = changes
        .iter()
        .filter(|c| c.class == Class::GitObject)
        .count();
    // A blob, a tree and a commit; directories of theirs may be there already.
    assert!(objects >= 3, "{:?}", rows(&changes));
    assert!(
        changes
            .iter()
            .all(|c| c.class != Class::GitObject || c.kind == ChangeKind::Added)
    );
    // Once it is committed, its rule holds.
    review.commit(&changes);
    review.stage.agent("echo r > b.rs");
    assert_eq!(review.change("b.rs").class, Class::Ignored);
}

#[test]
fn git_status_on_the_host_is_no_conflict_and_the_agents_is_no_change() {
    let Some(mut review) = Review::new(
        "git init -q . && echo a > a && echo b > b && git add . && git -c user.email=a@b -c user.name=n commit -qm i",
    ) else {
        return;
    };
    review
        .stage
        .agent("touch -d 2001-01-01 b; git status --porcelain");
    assert_eq!(review.rows(), ["meta b"]);
    review.stage.agent("echo c > c; git add c");
    let changed = review.change(".git/index");
    assert_eq!(
        (&changed.kind, &changed.conflict),
        (&ChangeKind::Modified, &None)
    );
    review
        .stage
        .host("touch -d 2002-02-02 a; git status --porcelain >/dev/null");
    assert_eq!(review.conflict(".git/index"), None);
    review.stage.host("echo d > d; git add d");
    assert_eq!(review.conflict(".git/index"), Some(Conflict::HostModified));
}

/// A door to the upper behind which the host's index is refreshed just before the agent's is read.
struct Refreshed<'a> {
    door: DirectAccess,
    host: &'a Path,
}

impl StageAccess for Refreshed<'_> {
    fn walk(&self, layer: &str) -> Result<Vec<UpperEntry>, AccessError> {
        self.door.walk(layer)
    }

    fn open(&self, layer: &str, path: &RelPath) -> Result<OwnedFd, AccessError> {
        if *path == rel(".git/index") {
            let script = "touch -d 2002-02-02 b; git status --porcelain >/dev/null";
            let mut shell = Command::new("sh");
            let done = shell.args(["-c", script]).current_dir(self.host).status();
            assert!(done.expect("sh").success());
        }
        self.door.open(layer, path)
    }

    fn restore(&self, layer: &str, path: &RelPath) -> Result<(), AccessError> {
        self.door.restore(layer, path)
    }

    fn overwrite(&self, layer: &str, path: &RelPath, new: &Overwrite) -> Result<(), AccessError> {
        self.door.overwrite(layer, path, new)
    }

    fn sync(&self, layer: &str) -> Result<(), AccessError> {
        self.door.sync(layer)
    }
}

#[test]
fn git_status_on_the_host_in_the_middle_of_a_scan_is_no_conflict() {
    let Some(mut review) = Review::new(
        "git init -q . && echo a > a && echo b > b && git add . && git -c user.email=a@b -c user.name=n commit -qm i",
    ) else {
        return;
    };
    review.stage.agent("echo c > c; git add c");
    let host = review.stage.layer.root.clone();
    let door = Refreshed {
        door: review.stage.access(),
        host: &host,
    };
    review.tracker.scan(&door).expect("scan");
    assert_eq!(review.conflict(".git/index"), None);
}

#[test]
fn what_the_agent_throws_away_of_ignored_files_is_not_read() {
    let Some(mut review) = Review::new(
        "mkdir -p node_modules/m; echo node_modules > .gitignore; echo 1 > node_modules/m/f; echo 2 > g",
    ) else {
        return;
    };
    review.stage.agent("rm -r node_modules g");
    let ignored = review.change("node_modules/m/f");
    assert_eq!((ignored.class, ignored.removed), (Class::Ignored, 0));
    assert!(ignored.before.as_ref().is_some_and(|n| n.digest.is_none()));
    assert_eq!(review.change("g").removed, 1);
    assert_eq!(review.conflict("node_modules/m/f"), None);
    review.stage.host("echo 3 > node_modules/m/f");
    assert_eq!(
        review.conflict("node_modules/m/f"),
        Some(Conflict::HostModified)
    );
}
