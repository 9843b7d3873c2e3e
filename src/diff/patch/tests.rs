//! Patches, judged by the real `git apply`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::change::Class;
use crate::layer::{Digest, Timestamp};
use crate::{LayerPath, RelPath};

/// What lies at a path: mode and content, a link by its target.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Thing {
    File(u32, Vec<u8>),
    Link(Vec<u8>),
}

impl Thing {
    fn node(&self) -> Node {
        let (file_type, mode, bytes) = match self {
            Thing::File(mode, bytes) => (FileType::File, *mode, bytes),
            Thing::Link(target) => (FileType::Symlink, 0o777, target),
        };
        Node {
            file_type,
            mode,
            uid: 0,
            gid: 0,
            size: bytes.len() as u64,
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            dev: 0,
            ino: 0,
            nlink: 1,
            rdev: 0,
            target: (file_type == FileType::Symlink).then(|| bytes.clone()),
            xattrs: BTreeMap::default(),
            digest: Some(Digest::of(bytes)),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Thing::File(_, bytes) | Thing::Link(bytes) => bytes.clone(),
        }
    }

    fn make(&self, at: &Path) {
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        match self {
            Thing::File(mode, bytes) => {
                fs::write(at, bytes).unwrap();
                fs::set_permissions(at, fs::Permissions::from_mode(*mode)).unwrap();
            }
            Thing::Link(target) => {
                let target = std::ffi::OsString::from_vec(target.clone());
                std::os::unix::fs::symlink(target, at).unwrap();
            }
        }
    }

    fn read(at: &Path) -> Option<Thing> {
        let meta = at.symlink_metadata().ok()?;
        if meta.is_symlink() {
            let target = fs::read_link(at).unwrap();
            return Some(Thing::Link(target.into_os_string().into_vec()));
        }
        let executable = meta.permissions().mode() & 0o100 != 0;
        let mode = if executable { 0o755 } else { 0o644 };
        meta.is_file()
            .then(|| Thing::File(mode, fs::read(at).unwrap()))
    }
}

/// Old name and thing, new name and thing.
type Case<'a> = (Option<(&'a [u8], Thing)>, Option<(&'a [u8], Thing)>);

fn change(case: &Case<'_>) -> Change {
    let (old, new) = case;
    let name = new.as_ref().or(old.as_ref()).unwrap().0;
    let path = RelPath::new(name).unwrap();
    let kind = match case {
        (None, _) => ChangeKind::Added,
        (_, None) => ChangeKind::Deleted,
        (Some((a, _)), Some((b, _))) if a != b => ChangeKind::Renamed {
            from: RelPath::new(*a).unwrap(),
        },
        (Some((_, a)), Some((_, b))) if a.node().file_type != b.node().file_type => {
            ChangeKind::Type
        }
        (Some((_, a)), Some((_, b))) if a.bytes() == b.bytes() => ChangeKind::Mode,
        _ => ChangeKind::Modified,
    };
    Change {
        key: LayerPath::new("workspace", path),
        kind,
        class: Class::Plain,
        before: old.as_ref().map(|(_, t)| Arc::new(t.node())),
        after: new.as_ref().map(|(_, t)| Arc::new(t.node())),
        binary: false,
        added: 0,
        removed: 0,
        digest: Digest::of(b""),
        risks: Vec::new(),
        conflict: None,
        merges: None,
        items: Vec::new(),
    }
}

fn patch_of(cases: &[Case<'_>]) -> Vec<u8> {
    let changes: Vec<Change> = cases.iter().map(change).collect();
    let entries: Vec<PatchEntry<'_>> = changes
        .iter()
        .zip(cases)
        .map(|(change, (old, new))| PatchEntry {
            change,
            before: old.as_ref().map(|(_, t)| t.bytes()),
            after: new.as_ref().map(|(_, t)| t.bytes()),
        })
        .collect();
    patch(&entries)
}

fn git_apply(dir: &Path, patch: &[u8], reverse: bool) -> Result<(), String> {
    use std::io::Write as _;
    let mut git = Command::new("git");
    git.args(["apply", "--whitespace=nowarn"]);
    if reverse {
        git.arg("-R");
    }
    let mut child = git
        .current_dir(dir)
        .env("GIT_CEILING_DIRECTORIES", dir.parent().unwrap())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(patch).unwrap();
    let done = child.wait_with_output().unwrap();
    if done.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&done.stderr).into_owned())
}

/// Applies the patch of `cases` to the old tree, then takes it back.
fn check(cases: &[Case<'_>]) {
    if Command::new("git").arg("--version").output().is_err() {
        eprintln!("skipped: git is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &[u8]| dir.path().join(std::ffi::OsStr::from_bytes(name));
    for (name, thing) in cases.iter().filter_map(|(old, _)| old.as_ref()) {
        thing.make(&at(name));
    }
    let patch = patch_of(cases);
    let shown = || patch.escape_ascii().to_string().replace("\\n", "\n");
    let state = |side: fn(&Case<'_>) -> bool, which: &str| {
        for case in cases {
            for (name, thing) in [&case.0, &case.1].into_iter().flatten() {
                let want = if side(case) { &case.1 } else { &case.0 };
                let want = want
                    .as_ref()
                    .filter(|(n, _)| n == name)
                    .map(|(_, t)| t.clone());
                // Another case may own this name on this side.
                let taken = cases.iter().find_map(|other| {
                    let there = if side(other) { &other.1 } else { &other.0 };
                    there
                        .as_ref()
                        .filter(|(n, _)| n == name)
                        .map(|(_, t)| t.clone())
                });
                assert_eq!(
                    Thing::read(&at(name)),
                    want.or(taken),
                    "{which}: {} was {thing:?}\n{}",
                    name.escape_ascii(),
                    shown()
                );
            }
        }
    };
    if let Err(error) = git_apply(dir.path(), &patch, false) {
        panic!("git apply: {error}\n{}", shown());
    }
    state(|_| true, "applied");
    // `git apply -R` makes a plain file of a deleted link, also from git's own patches.
    let loses_link = |(old, new): &Case<'_>| {
        matches!(old, Some((_, Thing::Link(_)))) && !matches!(new, Some((_, Thing::Link(_))))
    };
    if cases.iter().any(loses_link) {
        return;
    }
    if let Err(error) = git_apply(dir.path(), &patch, true) {
        panic!("git apply -R: {error}\n{}", shown());
    }
    state(|_| false, "taken back");
}

fn file(bytes: &[u8]) -> Thing {
    Thing::File(0o644, bytes.to_vec())
}

fn numbered(changed: &[(usize, &str)]) -> Thing {
    let lines: Vec<String> = (1..=50)
        .map(|n| {
            let line = changed.iter().find(|(at, _)| *at == n);
            format!("{}\n", line.map_or(n.to_string(), |(_, l)| (*l).to_owned()))
        })
        .collect();
    file(lines.concat().as_bytes())
}

#[test]
fn git_takes_every_kind_of_change() {
    let exec = |t: Thing| Thing::File(0o755, t.bytes());
    let link = |t: &[u8]| Thing::Link(t.to_vec());
    let cases: Vec<Case<'_>> = vec![
        (None, Some((b"added", file(b"one\ntwo\n")))),
        (None, Some((b"dir/empty", file(b"")))),
        (None, Some((b"dir/run me.sh", exec(file(b"#!/bin/sh\n"))))),
        (None, Some((b"with space", file(b"")))),
        (Some((b"gone", file(b"x\ny"))), None),
        (Some((b"gone-empty", file(b""))), None),
        (
            Some((b"edited", numbered(&[]))),
            Some((
                b"edited",
                numbered(&[(5, "five"), (9, "nine"), (40, "forty")]),
            )),
        ),
        (
            Some((b"mode.sh", file(b"a\n"))),
            Some((b"mode.sh", exec(file(b"a\n")))),
        ),
        (
            Some((b"both.sh", file(b"a\n"))),
            Some((b"both.sh", exec(file(b"b\n")))),
        ),
        (
            Some((b"old.txt", numbered(&[]))),
            Some((b"new.txt", numbered(&[(5, "five")]))),
        ),
        (
            Some((b"old name", file(b"same\n"))),
            Some((b"sub/new name", exec(file(b"same\n")))),
        ),
        (None, Some((b"link", link(b"/etc/hostname")))),
        (
            Some((b"link2", link(b"a"))),
            Some((b"link2", link(b"x\x1b[31m"))),
        ),
        (Some((b"link3", link(b"a"))), None),
        (
            Some((b"became-link", file(b"text\n"))),
            Some((b"became-link", link(b"text"))),
        ),
        (
            Some((b"was-link", link(b"t"))),
            Some((b"was-link", exec(file(b"t")))),
        ),
        (None, Some((b"bin", file(b"\0\x01\xff\xfe")))),
        (
            Some((b"bin2", file(&[0; 3000]))),
            Some((
                b"bin2",
                exec(file(&(0..=255).cycle().take(999).collect::<Vec<u8>>())),
            )),
        ),
        (Some((b"bin3", file(b"\0"))), None),
        (
            Some((b"text-to-bin", file(b"text\n"))),
            Some((b"text-to-bin", file(b"\0\n"))),
        ),
        (
            None,
            Some((b"\x1b[2J\x1b]0;owned\x07/a\nb\rc", file(b"x\n"))),
        ),
        (None, Some((b"\xff\xfe.\"bin\\\t", file(b"x")))),
        (
            Some((b"na\xc3\xafve x", file(b"1\n"))),
            Some((b"na\xc3\xafve y", file(b"1\n"))),
        ),
        (
            Some((b"crlf", file(b"one\r\ntwo\r\nthree\r\n"))),
            Some((b"crlf", file(b"one\r\nTWO\r\nthree\nfour\r\n"))),
        ),
    ];
    for case in &cases {
        check(std::slice::from_ref(case));
    }
    check(&cases);
    let reversible: Vec<Case<'_>> = cases
        .into_iter()
        .filter(|(old, _)| !matches!(old, Some((_, Thing::Link(_)))))
        .collect();
    check(&reversible);
}

#[test]
fn names_may_change_hands_within_a_patch() {
    // A directory becomes a file, a file a directory, two files swap their names.
    check(&[
        (Some((b"d/1", file(b"1\n"))), None),
        (Some((b"d/2", file(b"2\n"))), None),
        (None, Some((b"d", file(b"file\n")))),
        (Some((b"f", file(b"f\n"))), None),
        (None, Some((b"f/n", file(b"n\n")))),
    ]);
    check(&[
        (Some((b"a", file(b"1\n2\n"))), Some((b"b", file(b"1\n2\n")))),
        (Some((b"b", file(b"x\ny\n"))), Some((b"a", file(b"x\nz\n")))),
    ]);
}

#[test]
fn a_missing_final_newline_is_kept() {
    let texts: [&[u8]; 10] = [
        b"",
        b"a",
        b"a\n",
        b"a\nb",
        b"a\nb\n",
        b"b",
        b"k1\nk2",
        b"k1\nmid\nK2\n",
        b"\n",
        b"a\n\n",
    ];
    for old in texts {
        for new in texts {
            if old != new {
                check(&[(Some((b"f", file(old))), Some((b"f", file(new))))]);
            }
        }
    }
}

#[test]
fn headers_are_git_s_own() {
    let cases: Vec<Case<'_>> = vec![(
        Some((b"old.txt", Thing::File(0o644, b"1\n2\n3\n".to_vec()))),
        Some((b"new.txt", Thing::File(0o755, b"1\n2\nX".to_vec()))),
    )];
    assert_eq!(
        String::from_utf8(patch_of(&cases)).unwrap(),
        "diff --git a/old.txt b/new.txt\n\
         old mode 100644\n\
         new mode 100755\n\
         similarity index 66%\n\
         rename from old.txt\n\
         rename to new.txt\n\
         index 01e79c32a8c99c557f0757da7cb6d65b3414466d..\
         5c019d2b1716539e4ba247e9c2f8d70a525aae2f\n\
         --- a/old.txt\n\
         +++ b/new.txt\n\
         @@ -1,3 +1,3 @@\n \
         1\n \
         2\n\
         -3\n\
         +X\n\
         \\ No newline at end of file\n"
    );
}

#[test]
fn what_git_cannot_hold_is_named() {
    let case: Case<'_> = (
        Some((b"f", Thing::File(0o644, b"a".to_vec()))),
        Some((b"f", Thing::File(0o600, b"a".to_vec()))),
    );
    let mode = change(&case);
    let entry = |change, bytes: Option<&[u8]>| PatchEntry {
        change,
        before: bytes.map(<[u8]>::to_vec),
        after: bytes.map(<[u8]>::to_vec),
    };
    assert!(patch(&[entry(&mode, None)]).is_empty());
    assert!(left_out(&entry(&mode, None)).unwrap().contains("mode"));
    let added = change(&(None, Some((b"f", file(b"a")))));
    assert!(
        left_out(&entry(&added, None))
            .unwrap()
            .contains("too large")
    );
    assert!(patch(&[entry(&added, None)]).is_empty());
    assert_eq!(left_out(&entry(&added, Some(b"a"))), None);
    let mut pipe = added.clone();
    Arc::make_mut(pipe.after.as_mut().unwrap()).file_type = FileType::Fifo;
    assert!(left_out(&entry(&pipe, None)).unwrap().contains("pipes"));
    assert!(patch(&[entry(&pipe, Some(b""))]).is_empty());
}

proptest! {
    // Each case starts git twice.
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn git_takes_any_text(
        old in prop::collection::vec(prop::sample::select(vec!["a\n", "b\n", "c\r\n", "\n", "d"]), 0..30),
        new in prop::collection::vec(prop::sample::select(vec!["a\n", "b\n", "c\r\n", "\n", "d"]), 0..30),
    ) {
        let (old, new) = (old.concat(), new.concat());
        if old != new {
            check(&[(Some((b"f", file(old.as_bytes()))), Some((b"f", file(new.as_bytes()))))]);
        }
    }
}
