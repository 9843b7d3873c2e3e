//! Random work against the one oracle that cannot be wrong: the two trees themselves.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use super::{Review, rows};
use pvisor::change::{Change, ChangeKind, Tracker};

/// Every difference between two trees, renames as both their halves.
pub(super) fn twin(host: &Path, merged: &Path) -> Vec<String> {
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
pub(super) fn halves(changes: &[Arc<Change>]) -> Vec<String> {
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
fn closed(changes: &[Arc<Change>], keep: &[bool]) -> Vec<Arc<Change>> {
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

/// What the host has at first.
pub(super) const HOST: &str = "mkdir -p a/b/c b/a c; echo 1 > a/f; echo 2 > a/b/f; echo 3 > a/b/c/f; echo 4 > b/a/f; ln -s a/f l; echo 5 > f";

/// Numbers below what is asked, from a seed.
pub(super) fn dice(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % n
    }
}

/// One thing an agent may do to [`HOST`].
pub(super) fn operation(step: usize, random: &mut impl FnMut(usize) -> usize) -> String {
    let names = [
        "a", "b", "c", "f", "l", "a/b", "a/b/c", "a/f", "a/b/f", "b/a", "b/a/f", "c/d", "c/d/f",
        "a/b/c/f", "b/l",
    ];
    let (x, y) = (names[random(names.len())], names[random(names.len())]);
    match random(13) {
        0..=2 => format!("echo {step} > {x}"),
        3 => format!("echo {step} >> {x}"),
        4 | 5 => format!("rm -rf {x}"),
        6 => format!("mkdir -p {x}"),
        7 | 8 => format!("mv {x} {y}"),
        9 => format!("rm -rf {x}; ln -s {y} {x}"),
        10 => format!("test -L {x} || chmod 7{}5 {x}", random(8)),
        11 => format!("rm -rf {x}; mkdir {x}"),
        _ => format!("cp -a {x} {y}"),
    }
}

fn random_work(seed: u64) -> bool {
    let mut random = dice(seed);
    let Some(mut review) = Review::new(HOST) else {
        return false;
    };
    let mut log = Vec::new();
    for step in 0..40 {
        let op = operation(step, &mut random);
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
                let mut chosen: Vec<Arc<Change>> = changes.clone();
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
