//! Change sets of real overlays: what is listed, what is not, and when the host stands in the way.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use pvisor::LayerPath;
use pvisor::change::{Change, ChangeKind, Class, Conflict, Risk, Tracker};
use pvisor::layer::StageAccess;

use crate::layers::{Stage, rel};

/// The session's worker owns the tracker on a thread of its own.
const _: fn() = || {
    fn sendable<T: Send>() {}
    sendable::<Tracker>();
};

/// A tracker over one stage.
struct Review {
    stage: Stage,
    tracker: Tracker,
}

impl Review {
    /// Prepares the host, mounts, and opens the tracker; `None` where no overlay can be mounted.
    fn new(host: &str) -> Option<Self> {
        let mut stage = Stage::new();
        stage.host(host);
        let tracker = Tracker::open(std::slice::from_ref(&stage.layer)).expect("open");
        stage.mount().then_some(Self { stage, tracker })
    }

    fn scan(&mut self) -> Vec<Change> {
        let access = self.stage.access();
        self.tracker.scan(&access).expect("scan")
    }

    fn rows(&mut self) -> Vec<String> {
        rows(&self.scan())
    }

    /// One change by its path.
    fn change(&mut self, path: &str) -> Change {
        let changes = self.scan();
        changes
            .iter()
            .find(|c| c.key.path == rel(path))
            .cloned()
            .unwrap_or_else(|| panic!("{path} is not in {:?}", rows(&changes)))
    }

    fn conflict(&mut self, path: &str) -> Option<Conflict> {
        self.change(path).conflict
    }

    /// Writes these changes to the host as a commit would, and rebases.
    fn commit(&mut self, changes: &[Change]) {
        apply(&self.stage.layer.upper(), &self.stage.layer.root, changes);
        let paths: Vec<LayerPath> = changes.iter().map(|c| c.key.clone()).collect();
        self.tracker.rebase(&paths).expect("rebase");
    }

    fn commit_all(&mut self) {
        let changes = self.scan();
        self.commit(&changes);
    }
}

fn rows(changes: &[Change]) -> Vec<String> {
    changes
        .iter()
        .map(|c| match &c.kind {
            ChangeKind::Renamed { from } => format!("renamed {from} -> {}", c.key.path),
            kind => format!("{} {}", kind.name(), c.key.path),
        })
        .collect()
}

/// A commit in a few lines: deletions deepest first, then the rest parents first.
fn apply(upper: &Path, host: &Path, changes: &[Change]) {
    let remove = |path: &Path| {
        let Ok(meta) = path.symlink_metadata() else {
            return;
        };
        if meta.is_dir() {
            fs::remove_dir_all(path).expect("rmdir");
        } else {
            fs::remove_file(path).expect("unlink");
        }
    };
    for change in changes.iter().rev() {
        if let ChangeKind::Renamed { from } = &change.kind {
            remove(&host.join(from.as_path()));
        }
        if matches!(change.kind, ChangeKind::Deleted | ChangeKind::Type) {
            remove(&host.join(change.key.path.as_path()));
        }
    }
    let mut modes = Vec::new();
    for change in changes {
        let Some(after) = &change.after else {
            continue;
        };
        let from = upper.join(change.key.path.as_path());
        let to = host.join(change.key.path.as_path());
        let meta = from.symlink_metadata().expect("stat");
        if meta.is_dir() {
            let _ = fs::create_dir(&to);
            modes.push((to, meta.permissions()));
        } else {
            let _ = fs::remove_file(&to);
            let done = std::process::Command::new("cp")
                .arg("-a")
                .args([&from, &to])
                .status()
                .expect("cp");
            assert!(done.success());
            if after.file_type == pvisor::layer::FileType::File {
                let _ = xattr::remove(&to, "user.overlay.origin");
            }
        }
    }
    for (dir, mode) in modes {
        fs::set_permissions(dir, mode).expect("chmod");
    }
}

#[test]
fn the_main_jobs_changes_are_listed_exactly() {
    let Some(mut review) = Review::new(
        "echo a > a.txt; echo g > gone.txt; echo content > old.txt; echo s > s.sh; chmod 644 s.sh",
    ) else {
        return;
    };
    review.stage.agent("echo hi > b.txt; echo more >> a.txt; rm gone.txt; mv old.txt new.txt; chmod +x s.sh; ln -s a.txt l");
    assert_eq!(
        review.rows(),
        [
            "modified a.txt",
            "added b.txt",
            "deleted gone.txt",
            "added l",
            "renamed old.txt -> new.txt",
            "mode s.sh"
        ]
    );
    let changed = review.change("a.txt");
    assert_eq!(
        (changed.added, changed.removed, changed.binary),
        (1, 0, false)
    );
    let access = review.stage.access();
    let contents = review
        .tracker
        .contents(&changed, &access)
        .expect("contents");
    assert_eq!(contents.before.as_deref(), Some(&b"a\n"[..]));
    assert_eq!(contents.after.as_deref(), Some(&b"a\nmore\n"[..]));
}

#[test]
fn what_is_put_back_or_only_opened_is_no_change() {
    let Some(mut review) = Review::new(
        "mkdir -p d/s; echo a > d/s/f; echo b > g; echo c > h; chmod 600 h; echo e > e",
    ) else {
        return;
    };
    review.stage.agent("cp -p d/s/f keep; rm d/s/f; cp -p keep d/s/f; rm keep; exec 3<>g; exec 3<&-; touch d/s; chmod 644 h; chmod 600 h");
    assert_eq!(review.rows(), Vec::<String>::new());
    review.stage.agent("touch -d 2001-01-01 e; mkdir n; rmdir n; setfattr -n user.k -v v g || python3 -c 'import os; os.setxattr(\"g\", \"user.k\", b\"v\")'");
    assert_eq!(review.rows(), ["meta e", "meta g"]);
    // The times of a directory never count, its mode does.
    review.stage.agent("touch -d 2001-01-01 d; chmod 700 d/s");
    assert_eq!(review.rows(), ["mode d/s", "meta e", "meta g"]);
}

#[test]
fn a_rename_with_a_small_edit_is_one_row() {
    let Some(mut review) = Review::new(
        "seq 50 > old.txt; seq 100 200 > other; ln -s old.txt l; mkdir d; seq 1000 1100 > d/same; : > empty",
    ) else {
        return;
    };
    review.stage.agent("mv old.txt new.txt; sed -i 5s/5/five/ new.txt; mv l l2; mkdir e; mv d/same e/same; rmdir d; cp e/same aaa; rm empty; : > blank; rm other; echo x > unlike");
    assert_eq!(
        review.rows(),
        [
            "added aaa",
            "added blank",
            "deleted d",
            "added e",
            "renamed d/same -> e/same",
            "deleted empty",
            "renamed l -> l2",
            "renamed old.txt -> new.txt",
            "deleted other",
            "added unlike"
        ]
    );
    let change = review.change("new.txt");
    assert_eq!((change.added, change.removed), (1, 1));
    assert!(change.before.is_some() && change.after.is_some());
    let access = review.stage.access();
    let contents = review.tracker.contents(&change, &access).expect("contents");
    assert!(contents.before.expect("old").starts_with(b"1\n2\n"));
}

#[test]
fn a_type_change_lists_what_is_lost() {
    let Some(mut review) =
        Review::new("echo f > a; mkdir d; echo 1 > d/1; echo 2 > d/2; echo l > l")
    else {
        return;
    };
    review
        .stage
        .agent("rm a; mkdir a; echo n > a/n; rm -r d; echo file > d; rm l; ln -s d l");
    let expected = [
        "type a",
        "added a/n",
        "type d",
        "deleted d/1",
        "deleted d/2",
        "type l",
    ];
    assert_eq!(review.rows(), expected);
    assert!(review.scan().iter().all(|c| c.conflict.is_none()));
    review.stage.host("echo host >> d/2; echo late > d/3");
    assert_eq!(review.conflict("d/2"), Some(Conflict::HostModified));
    assert_eq!(review.conflict("d/1"), None);
    assert_eq!(
        review.conflict("d"),
        Some(Conflict::HostAddedInside { path: rel("d/3") })
    );
    assert_eq!(review.rows(), expected, "the host's own is never a row");
}

#[test]
fn an_opaque_directory_loses_what_it_hides() {
    let Some(mut review) =
        Review::new("mkdir -p d/s; echo 1 > d/old; echo 1 > d/s/x; echo same > d/same")
    else {
        return;
    };
    review
        .stage
        .agent("cp -p d/same .k; rm -rf d; mkdir d; echo 2 > d/new; cp -p .k d/same; rm .k");
    let expected = [
        "added d/new",
        "deleted d/old",
        "deleted d/s",
        "deleted d/s/x",
    ];
    assert_eq!(review.rows(), expected);
    // What the host adds to it meanwhile is neither a change nor in the way.
    review.stage.host("echo ext > d/ext");
    assert_eq!(review.rows(), expected);
    assert!(review.scan().iter().all(|c| c.conflict.is_none()));
    review.commit_all();
    assert_eq!(review.rows(), Vec::<String>::new());
    assert!(review.stage.layer.root.join("d/ext").exists());
}

#[test]
fn directories_that_move_are_listed_as_their_native_twins() {
    let host = "mkdir -p d/s e; echo 1 > d/s/o; echo 2 > e/n; echo 3 > d/g";
    let cases: [(&str, &[&str]); 5] = [
        (
            "mkdir k; mv e k/",
            &["deleted e", "added k", "added k/e", "renamed e/n -> k/e/n"],
        ),
        (
            "mv e d",
            &["added d/e", "renamed e/n -> d/e/n", "deleted e"],
        ),
        (
            "mv d/s d/t",
            &["deleted d/s", "added d/t", "renamed d/s/o -> d/t/o"],
        ),
        (
            "stat d/s/o >/dev/null; rm -r d/s",
            &["deleted d/s", "deleted d/s/o"],
        ),
        (
            "rm -rf d; mv e d; rm -rf d; mkdir -p d/s",
            &["deleted d/g", "deleted d/s/o", "deleted e", "deleted e/n"],
        ),
    ];
    for (agent, expected) in cases {
        let Some(mut review) = Review::new(host) else {
            return;
        };
        review.stage.agent(agent);
        let changes = review.scan();
        assert_eq!(rows(&changes), expected, "{agent}");
        assert!(changes.iter().all(|c| c.conflict.is_none()), "{agent}");
        review.commit_all();
        assert_eq!(review.rows(), Vec::<String>::new(), "{agent}");
    }
}

#[test]
fn links_are_links_and_marked_when_they_leave() {
    let Some(mut review) =
        Review::new("mkdir out; echo a > real; ln -s real l1; ln -s /tmp hl; echo o > out/f")
    else {
        return;
    };
    review.stage.agent("ln -sfn /etc/hostname l1; ln -s \"$(printf 'x\\033[31m')\" l2; rm -r out; ln -s /tmp out; rm hl; mkdir hl; echo new > hl/f; echo b > real");
    assert_eq!(
        review.rows(),
        [
            "type hl",
            "added hl/f",
            "modified l1",
            "added l2",
            "type out",
            "deleted out/f",
            "modified real"
        ]
    );
    let l1 = review.change("l1");
    assert!(l1.risks.contains(&Risk::OutsideLink));
    let access = review.stage.access();
    let contents = review.tracker.contents(&l1, &access).expect("contents");
    assert_eq!(contents.before.as_deref(), Some(&b"real"[..]));
    assert_eq!(contents.after.as_deref(), Some(&b"/etc/hostname"[..]));
    assert!(review.change("l2").risks.contains(&Risk::HiddenText));
    assert!(review.change("out").risks.contains(&Risk::OutsideLink));
}

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
    assert!(objects >= 6, "{:?}", rows(&changes));
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
fn the_hosts_edits_are_conflicts_where_they_meet_the_agents_and_else_nothing() {
    let Some(mut review) = Review::new(
        "echo aaaa > f; echo 1 > g; mkdir d; echo 1 > d/x; touch -d 2020-01-01 f; echo 1 > m; echo 1 > k; echo 1 > s",
    ) else {
        return;
    };
    review.stage.agent(
        "cat g > /dev/null; echo bbbb > f; rm -r d; echo nnn > n; echo 2 > m; rm k; echo 2 > s",
    );
    let expected = review.rows();
    assert_eq!(
        expected,
        [
            "deleted d",
            "deleted d/x",
            "modified f",
            "deleted k",
            "modified m",
            "added n",
            "modified s"
        ]
    );
    assert!(review.scan().iter().all(|c| c.conflict.is_none()));
    // Same size, same time; and another file.
    review
        .stage
        .host("echo cccc > f; touch -d 2020-01-01 f; echo 2 > g");
    assert_eq!(review.conflict("f"), Some(Conflict::HostModified));
    review
        .stage
        .host("echo host > n; echo e > d/ext; chmod 600 m; rm k; ln -sf f s");
    assert_eq!(review.conflict("n"), Some(Conflict::HostCreated));
    assert_eq!(
        review.conflict("d"),
        Some(Conflict::HostAddedInside { path: rel("d/ext") })
    );
    assert_eq!(review.conflict("m"), Some(Conflict::HostModified));
    assert_eq!(review.conflict("s"), Some(Conflict::HostTypeChanged));
    // Both removed k: there is nothing left to decide. Nobody claims g.
    let without_k: Vec<String> = expected.into_iter().filter(|r| r != "deleted k").collect();
    assert_eq!(review.rows(), without_k);
    review.stage.host("rm m");
    assert_eq!(review.conflict("m"), Some(Conflict::HostDeleted));
    // The baseline's bytes are still there for a merge.
    let change = review.change("f");
    let access = review.stage.access();
    let contents = review.tracker.contents(&change, &access).expect("contents");
    assert_eq!(contents.before.as_deref(), Some(&b"aaaa\n"[..]));
    // What only looks touched is none: same bytes, other inode and times.
    review.stage.host("rm f; echo aaaa > f");
    assert_eq!(review.conflict("f"), None);
    // And when the host has the agent's version, there is no change.
    review.stage.host("echo bbbb > f");
    assert!(!review.rows().contains(&"modified f".to_owned()));
}

#[test]
fn a_host_edit_after_the_copy_up_and_before_the_first_look_is_a_conflict() {
    let Some(mut review) = Review::new("echo a > f; echo a > g") else {
        return;
    };
    review.stage.agent("echo b > f; echo b > g");
    review.stage.host("sleep 0.05; echo host > f");
    assert_eq!(review.conflict("f"), Some(Conflict::HostModified));
    assert_eq!(review.conflict("g"), None);
    // It stays one for the next server, until the agent's side is put back.
    review.tracker = Tracker::open(std::slice::from_ref(&review.stage.layer)).expect("open");
    assert_eq!(review.conflict("f"), Some(Conflict::HostModified));
    review.stage.unmount();
    review
        .stage
        .access()
        .restore("workspace", &rel("f"))
        .expect("restore");
    assert_eq!(review.rows(), ["modified g"]);
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
        (changed.kind, changed.conflict),
        (ChangeKind::Modified, None)
    );
    review
        .stage
        .host("touch -d 2002-02-02 a; git status --porcelain >/dev/null");
    assert_eq!(review.conflict(".git/index"), None);
    review.stage.host("echo d > d; git add d");
    assert_eq!(review.conflict(".git/index"), Some(Conflict::HostModified));
}

#[test]
fn commits_while_the_agent_runs_move_the_baseline() {
    let Some(mut review) = Review::new("mkdir old; echo 1 > old/f; echo 1 > top") else {
        return;
    };
    review.stage.agent("mkdir -p new/deep; echo a > new/a; echo b > new/deep/b; echo c > new/deep/c; echo 2 > old/f; echo n > old/n; echo 2 > top; echo t > t");
    review.commit_all();
    assert_eq!(review.rows(), Vec::<String>::new());
    // In a directory of the agent's own no whiteout is left behind; in a merged one it is.
    review
        .stage
        .agent("rm new/a old/n t; echo more >> new/deep/b; echo 3 > old/f; mv new/deep/c new/c2");
    assert_eq!(
        review.rows(),
        [
            "deleted new/a",
            "renamed new/deep/c -> new/c2",
            "modified new/deep/b",
            "modified old/f",
            "deleted old/n",
            "deleted t"
        ]
    );
    let change = review.change("new/deep/b");
    let access = review.stage.access();
    let contents = review.tracker.contents(&change, &access).expect("contents");
    assert_eq!(contents.before.as_deref(), Some(&b"b\n"[..]));
    // The next server knows as much.
    review.tracker = Tracker::open(std::slice::from_ref(&review.stage.layer)).expect("open");
    assert!(review.scan().iter().all(|c| c.conflict.is_none()));
    assert_eq!(review.rows().len(), 6);
    review.commit_all();
    assert_eq!(review.rows(), Vec::<String>::new());
    // The whole directory goes; the host's own file in it stands in the way.
    review.stage.agent("rm -r new");
    assert_eq!(
        review.rows(),
        [
            "deleted new",
            "deleted new/c2",
            "deleted new/deep",
            "deleted new/deep/b"
        ]
    );
    assert!(review.scan().iter().all(|c| c.conflict.is_none()));
    review.stage.host("echo mine > new/deep/mine");
    assert_eq!(
        review.conflict("new"),
        Some(Conflict::HostAddedInside {
            path: rel("new/deep/mine")
        })
    );
}

#[test]
fn the_next_command_sees_what_the_last_one_left() {
    let Some(mut review) = Review::new("echo 1 > f") else {
        return;
    };
    review.stage.agent("mkdir -p new/deep; echo a > new/a; echo b > new/deep/b; mkdir locked; echo l > locked/l; chmod 555 locked");
    review.commit_all();
    review.stage.host("echo host > new/host");
    review.stage.agent("rm new/a new/deep/b");
    let left = ["deleted new/a", "deleted new/deep/b"];
    assert_eq!(
        review.rows(),
        left,
        "what the host added is not the agent's deletion"
    );
    review.stage.unmount();
    let access = review.stage.access();
    review.tracker.seal(&access).expect("seal");
    assert_eq!(
        fs::metadata(review.stage.layer.upper().join("locked"))
            .expect("stat")
            .mode()
            & 0o777,
        0o555
    );
    assert!(review.stage.mount());
    assert_eq!(
        review.stage.agent("find new | sort; cat locked/l"),
        "new\nnew/deep\nl\n"
    );
    assert_eq!(review.rows(), left);
    review.stage.agent("echo again > new/a");
    assert_eq!(review.rows(), ["modified new/a", "deleted new/deep/b"]);
}

#[test]
fn what_a_commit_undid_is_a_change_again() {
    let Some(mut review) = Review::new("mkdir -p d/s; echo 1 > d/s/f; echo 1 > d/g; echo 1 > m")
    else {
        return;
    };
    review.stage.host("cp -a . ../saved");
    review
        .stage
        .agent("rm -r d; echo 2 > m; mkdir -p n/k; echo n > n/k/n");
    let changes = review.scan();
    review.commit(&changes);
    assert_eq!(review.rows(), Vec::<String>::new());
    review.stage.host("rm -r ./*; cp -a ../saved/. .");
    let paths: Vec<LayerPath> = changes.iter().map(|c| c.key.clone()).collect();
    review.tracker.rebase(&paths).expect("rebase");
    assert_eq!(review.rows(), rows(&changes));
    assert!(review.scan().iter().all(|c| c.conflict.is_none()));
}

#[test]
fn what_was_put_back_is_listed_no_more() {
    let Some(mut review) =
        Review::new("mkdir -p d/s; echo a > d/s/f; echo g > d/g; echo x > x; echo t > t")
    else {
        return;
    };
    review
        .stage
        .agent("rm -r d; echo y > x; rm t; mkdir t; echo 1 > t/1; echo n > n");
    assert_eq!(review.scan().len(), 8);
    // The host moved on meanwhile: put back means as the host has it now.
    review.stage.host("echo newer > x");
    review.stage.unmount();
    for path in ["d", "x", "t", "n"] {
        review
            .stage
            .access()
            .restore("workspace", &rel(path))
            .expect("restore");
    }
    assert_eq!(review.rows(), Vec::<String>::new());
}

#[test]
fn sockets_and_pipes_are_listed_and_nothing_blocks() {
    let Some(mut review) = Review::new("mkfifo p") else {
        return;
    };
    review.stage.agent(
        "chmod 600 p; mkfifo q; python3 -c 'import socket as s; a=s.socket(1); a.bind(\"k\")'",
    );
    assert_eq!(review.rows(), ["added k", "mode p", "added q"]);
    assert!(review.change("k").risks.contains(&Risk::Uncommittable));
    assert!(!review.change("q").risks.contains(&Risk::Uncommittable));
}

#[test]
fn names_and_depths_beyond_the_ordinary_are_listed() {
    let Some(mut review) = Review::new("true") else {
        return;
    };
    review.stage.agent("python3 -c 'import os; [(os.mkdir(n), os.chdir(n)) for n in (\"%050d\" % i for i in range(120))]; open(\"f\", \"w\").write(\"f\\n\")'");
    review.stage.agent("touch \"$(printf 'a\\nb\\377')\"");
    let changes = review.scan();
    assert_eq!(changes.len(), 122);
    let deepest = changes
        .iter()
        .max_by_key(|c| c.key.path.depth())
        .expect("some");
    assert!(deepest.key.path.as_bytes().len() > 6_000);
    assert_eq!(deepest.after.as_ref().map(|n| n.size), Some(2));
    let odd = changes.last().expect("some");
    assert_eq!(odd.key.path.as_bytes(), b"a\nb\xff");
    assert!(odd.risks.contains(&Risk::HiddenText));
}

#[test]
fn hard_links_are_rows_of_their_own() {
    let Some(mut review) = Review::new("echo a > f; ln f g") else {
        return;
    };
    review.stage.agent("echo b >> f; ln f h");
    // The kernel's overlay splits the pair: g is not the agent's.
    assert_eq!(review.rows(), ["modified f", "added h"]);
    let (f, h) = (review.change("f"), review.change("h"));
    assert_eq!(f.after.map(|n| n.ino), h.after.map(|n| n.ino));
}

#[test]
fn counts_stay_exact_among_very_many() {
    let Some(mut review) = Review::new("mkdir k; for i in 1 2 3; do echo $i > k/$i; done") else {
        return;
    };
    review.stage.agent("mkdir v; python3 -c 'for i in range(20000): open(f\"v/{i}\", \"w\").close()'; rm k/*; chmod +x v/7");
    let started = std::time::Instant::now();
    let changes = review.scan();
    let first = started.elapsed();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for change in &changes {
        *counts.entry(change.kind.name()).or_default() += 1;
    }
    assert_eq!(counts, BTreeMap::from([("added", 20_001), ("deleted", 3)]));
    let started = std::time::Instant::now();
    assert_eq!(review.scan().len(), 20_004);
    eprintln!(
        "20,004 changes: first scan {first:?}, again {:?}",
        started.elapsed()
    );
}

#[test]
fn digests_name_the_change_and_not_its_times() {
    let Some(mut review) = Review::new("echo a > f") else {
        return;
    };
    review.stage.agent("echo b > f");
    let first = review.change("f").digest;
    review.stage.agent("touch f; cp f k; mv k f");
    assert_eq!(review.change("f").digest, first);
    review.stage.agent("echo c > f");
    let second = review.change("f").digest;
    assert_ne!(second, first);
    review.stage.agent("chmod 700 f");
    assert_ne!(review.change("f").digest, second);
}

#[test]
fn same_size_rewrites_are_seen_however_fast() {
    let Some(mut review) = Review::new("true") else {
        return;
    };
    for round in 0..30 {
        review.stage.agent(&format!("printf '%04d' {round} > f"));
        let change = review.change("f");
        let expected = pvisor::layer::Digest::of(format!("{round:04}").as_bytes());
        assert_eq!(
            change.after.and_then(|n| n.digest),
            Some(expected),
            "round {round}"
        );
    }
}

#[test]
fn the_roots_own_mode_is_a_change() {
    let Some(mut review) = Review::new("chmod 755 .") else {
        return;
    };
    assert_eq!(review.rows(), Vec::<String>::new());
    review.stage.agent("chmod 711 .");
    assert_eq!(review.rows(), ["mode "]);
}

/// Every difference between two trees, renames as both their halves.
fn twin(host: &Path, merged: &Path) -> Vec<String> {
    fn read(root: &Path, dir: &Path, out: &mut BTreeMap<String, (char, u32, Vec<u8>, i64)>) {
        for entry in fs::read_dir(dir).expect("list") {
            let path = entry.expect("entry").path();
            let meta = path.symlink_metadata().expect("stat");
            let name = path
                .strip_prefix(root)
                .expect("below")
                .display()
                .to_string();
            let mode = meta.permissions().mode() & 0o7777;
            if meta.is_dir() {
                out.insert(name, ('d', mode, Vec::new(), 0));
                read(root, &path, out);
            } else if meta.is_symlink() {
                let target = fs::read_link(&path)
                    .expect("link")
                    .into_os_string()
                    .into_encoded_bytes();
                out.insert(name, ('l', 0, target, 0));
            } else {
                let time = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
                out.insert(name, ('f', mode, fs::read(&path).expect("read"), time));
            }
        }
    }
    let (mut a, mut b) = (BTreeMap::new(), BTreeMap::new());
    read(host, host, &mut a);
    read(merged, merged, &mut b);
    let mut out = Vec::new();
    for name in a
        .keys()
        .chain(b.keys())
        .collect::<std::collections::BTreeSet<_>>()
    {
        let word = match (a.get(name), b.get(name)) {
            (None, Some(_)) => "added",
            (Some(_), None) => "deleted",
            (Some(x), Some(y)) if x.0 != y.0 => "type",
            (Some(x), Some(y)) if x.2 != y.2 => "modified",
            (Some(x), Some(y)) if x.1 != y.1 => "mode",
            (Some(x), Some(y)) if x.3 != y.3 && x.0 == 'f' => "meta",
            _ => continue,
        };
        out.push(format!("{word} {name}"));
    }
    out.sort();
    out
}

/// Rows of a change set in the words of [`twin`].
fn halves(changes: &[Change]) -> Vec<String> {
    let mut out = Vec::new();
    for change in changes {
        match &change.kind {
            ChangeKind::Renamed { from } => {
                out.push(format!("deleted {from}"));
                out.push(format!("added {}", change.key.path));
            }
            // A link's time is its own affair.
            ChangeKind::Meta if change.file_type() == pvisor::layer::FileType::Symlink => {}
            kind => out.push(format!("{} {}", kind.name(), change.key.path)),
        }
    }
    out.sort();
    out
}

/// The chosen changes with what they cannot go without: new parents, and everything lost with a
/// directory that goes.
fn closed(changes: &[Change], keep: &[bool]) -> Vec<Change> {
    let mut keep = keep.to_vec();
    loop {
        let before = keep.clone();
        for (i, a) in changes.iter().enumerate() {
            for (j, b) in changes.iter().enumerate() {
                let gone = |c: &Change| matches!(c.kind, ChangeKind::Deleted | ChangeKind::Type);
                let at = |c: &Change| c.from().unwrap_or(&c.key.path).clone();
                let (a_new, b_new) = (&a.key.path, &b.key.path);
                let needs = a_new != b_new && a_new.is_within(b_new) && b.after.is_some()
                    || gone(a) && at(b) != *a_new && at(b).is_within(a_new)
                    || gone(b) && a_new != b_new && a_new.is_within(b_new);
                if keep[i] && needs {
                    keep[j] = true;
                }
            }
        }
        if keep == before {
            break;
        }
    }
    changes
        .iter()
        .zip(keep)
        .filter(|(_, keep)| *keep)
        .map(|(c, _)| c.clone())
        .collect()
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
    assert!(ignored.before.is_some_and(|n| n.digest.is_none()));
    assert_eq!(review.change("g").removed, 1);
    assert_eq!(review.conflict("node_modules/m/f"), None);
    review.stage.host("echo 3 > node_modules/m/f");
    assert_eq!(
        review.conflict("node_modules/m/f"),
        Some(Conflict::HostModified)
    );
}

/// Random work against the one oracle that cannot be wrong: the two trees themselves.
#[test]
fn random_work_is_listed_as_the_trees_differ() {
    let seed: u64 = std::env::var("SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1);
    let rounds: u64 = std::env::var("ROUNDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(6);
    for seed in seed..seed + rounds {
        if !random_work(seed) {
            return;
        }
    }
}

fn random_work(seed: u64) -> bool {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % n
    };
    let Some(mut review) = Review::new(
        "mkdir -p a/b/c b/a c; echo 1 > a/f; echo 2 > a/b/f; echo 3 > a/b/c/f; echo 4 > b/a/f; ln -s a/f l; echo 5 > f",
    ) else {
        return false;
    };
    let names = [
        "a", "b", "c", "f", "l", "a/b", "a/b/c", "a/f", "a/b/f", "b/a", "b/a/f", "c/d", "c/d/f",
        "a/b/c/f", "b/l",
    ];
    let mut log = Vec::new();
    for step in 0..40 {
        let (x, y) = (names[random(names.len())], names[random(names.len())]);
        let op = match random(13) {
            0..=2 => format!("echo {step} > {x}"),
            3 => format!("echo {step} >> {x}"),
            4 | 5 => format!("rm -rf {x}"),
            6 => format!("mkdir -p {x}"),
            7 | 8 => format!("mv {x} {y}"),
            9 => format!("rm -rf {x}; ln -s {y} {x}"),
            10 => format!("test -L {x} || chmod 7{}5 {x}", random(8)),
            11 => format!("rm -rf {x}; mkdir {x}"),
            _ => format!("cp -a {x} {y}"),
        };
        log.push(op.clone());
        // Failing operations and writes through links are part of the game.
        review
            .stage
            .agent(&format!("{{ {op}; }} 2>/dev/null || true"));
        let check = random(4) == 0;
        let commit = random(12) == 0;
        let remount = random(15) == 0;
        if check || commit || remount || step == 39 {
            let out = review.stage.layer.dir.join("out");
            let _ = fs::remove_dir_all(&out);
            review
                .stage
                .agent(&format!("rm -rf {o}; cp -a . {o}", o = out.display()));
            let changes = review.scan();
            let context = format!("seed {seed}, after {log:#?}");
            assert_eq!(
                halves(&changes),
                twin(&review.stage.layer.root, &out),
                "{context}"
            );
            assert!(changes.iter().all(|c| c.conflict.is_none()), "{}", context);
            assert_eq!(rows(&review.scan()), rows(&changes), "{context}");
            if commit {
                log.push("COMMIT".into());
                let all = random(2) == 0;
                // Some of it only, as a person would: what hangs together together.
                let mut chosen: Vec<Change> = changes.clone();
                if !all {
                    let keep: Vec<bool> = changes.iter().map(|_| random(2) == 0).collect();
                    chosen = closed(&changes, &keep);
                }
                review.commit(&chosen);
                let now = review.scan();
                let context = format!("seed {seed}, after {log:#?}");
                assert_eq!(
                    halves(&now),
                    twin(&review.stage.layer.root, &out),
                    "{context}"
                );
                assert!(
                    now.iter().all(|c| c.conflict.is_none()),
                    "{context} {now:#?}"
                );
                assert!(!all || now.is_empty(), "{context}");
            }
            if remount {
                log.push("REMOUNT".into());
                review.stage.unmount();
                let access = review.stage.access();
                review.tracker.seal(&access).expect("seal");
                review.tracker =
                    Tracker::open(std::slice::from_ref(&review.stage.layer)).expect("open");
                assert!(review.stage.mount());
                let before = review.rows();
                let out = review.stage.layer.dir.join("out");
                let _ = fs::remove_dir_all(&out);
                review.stage.agent(&format!("cp -a . {}", out.display()));
                let changes = review.scan();
                assert_eq!(rows(&changes), before);
                assert_eq!(
                    halves(&changes),
                    twin(&review.stage.layer.root, &out),
                    "{context}"
                );
            }
        }
    }
    true
}
