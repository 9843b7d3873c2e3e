//! The change set as it must be: the difference of two native trees, reckoned here without the
//! product. A rename counts as its two halves.

use std::collections::BTreeMap;

use serde_json::Value;

use super::script::{Bytes, Op};
use super::snapshot::{Entry, Snapshot};

/// Word by path.
pub type Words = BTreeMap<Bytes, String>;

/// What became of each path.
pub fn expected(before: &Snapshot, after: &Snapshot) -> Words {
    let mut words = Words::new();
    for (path, old) in &before.entries {
        match after.entries.get(path) {
            _ if after.sockets.contains(path) => {
                words.insert(path.clone(), "type".into());
            }
            None => {
                words.insert(path.clone(), "deleted".into());
            }
            Some(new) => {
                if let Some(word) = word(old, new) {
                    words.insert(path.clone(), word.into());
                }
            }
        }
    }
    let new = after.entries.keys().chain(&after.sockets);
    for path in new.filter(|path| !before.entries.contains_key(*path)) {
        words.insert(path.clone(), "added".into());
    }
    words
}

fn word(old: &Entry, new: &Entry) -> Option<&'static str> {
    if old.letter != new.letter {
        return Some("type");
    }
    if (old.size, old.hash, &old.begin) != (new.size, new.hash, &new.begin) {
        return Some("modified");
    }
    if old.mode != new.mode && old.letter != 'l' {
        return Some("mode");
    }
    let timed = matches!(old.letter, 'f' | 'l' | 'p') && old.mtime != new.mtime;
    (old.xattrs != new.xattrs || timed).then_some("meta")
}

/// What `changes --json` tells, in the same words.
pub fn found(json: &Value) -> Words {
    let mut words = Words::new();
    for change in json["changes"].as_array().into_iter().flatten() {
        if change["layer"] != "workspace" {
            continue;
        }
        let path = bytes(change, "path");
        let kind = change["kind"].as_str().unwrap_or_default();
        if kind == "renamed" {
            words.insert(bytes(change, "from"), "deleted".into());
            words.insert(path, "added".into());
        } else {
            words.insert(path, kind.to_owned());
        }
    }
    words
}

/// Paths of changes that `revert --all` should have taken back.
pub fn not_ignored(json: &Value) -> Vec<Bytes> {
    json["changes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|change| change["class"] != "ignored")
        .map(|change| bytes(change, "path"))
        .collect()
}

/// A path as `--json` tells it, to the byte.
pub fn bytes(change: &Value, field: &str) -> Bytes {
    use base64::Engine;
    let exact = change[format!("{field}_b64")].as_str();
    if let Some(exact) = exact {
        let engine = base64::engine::general_purpose::STANDARD;
        return Bytes(engine.decode(exact).expect("base64"));
    }
    match change[field].as_str() {
        Some(".") | None => Bytes::default(),
        Some(path) => Bytes::from(path),
    }
}

/// Class and report of the first path on which two change sets disagree.
pub fn difference(expected: &Words, found: &Words) -> Option<(String, String)> {
    let none = "nothing".to_owned();
    let paths = expected.keys().chain(found.keys());
    let mut wrong: Vec<&Bytes> = paths
        .filter(|path| expected.get(*path) != found.get(*path))
        .collect();
    wrong.sort();
    wrong.dedup();
    let first = *wrong.first()?;
    let pair = |path: &Bytes| {
        let (one, two) = (expected.get(path), found.get(path));
        format!("{} <> {}", one.unwrap_or(&none), two.unwrap_or(&none))
    };
    let shown: Vec<String> = wrong
        .iter()
        .take(8)
        .map(|path| format!("{} at {path:?}", pair(path)))
        .collect();
    let report = format!(
        "{} paths on which the change set is not the difference of the trees:\n  {}",
        wrong.len(),
        shown.join("\n  ")
    );
    Some((pair(first), report))
}

/// The same words, where what was not readable may be called modified.
pub fn unread(mut expected: Words, found: &Words, unreadable: impl Fn(&Bytes) -> bool) -> Words {
    for (path, word) in &mut expected {
        let unsure = matches!(word.as_str(), "mode" | "meta") && unreadable(path);
        if unsure && found.get(path).is_some_and(|w| w == "modified") {
            "modified".clone_into(word);
        }
    }
    for (path, word) in found {
        if word == "modified" && !expected.contains_key(path) && unreadable(path) {
            expected.insert(path.clone(), word.clone());
        }
    }
    expected
}

/// What is still a change after everything was committed.
pub fn left(rest: &Words, sockets: &[Bytes]) -> Option<String> {
    let wrong: Vec<String> = rest
        .iter()
        .filter(|(path, _)| !sockets.contains(path))
        .map(|(path, word)| format!("{word} at {path:?}"))
        .collect();
    (!wrong.is_empty()).then(|| format!("changes after the commit: {}", wrong.join(", ")))
}

/// Operations that look at everything a tree holds.
pub fn looks(tree: &Snapshot) -> Vec<Op> {
    let mut ops = Vec::new();
    for (path, entry) in &tree.entries {
        if path.0.len() > 3500 {
            continue;
        }
        let path = path.clone();
        ops.push(Op::Stat {
            path: path.clone(),
            follow: false,
        });
        match entry.letter {
            'd' => {
                ops.push(Op::List { path: path.clone() });
                ops.push(Op::Xattrs { path });
            }
            'f' => {
                ops.push(Op::Read { path: path.clone() });
                ops.push(Op::Xattrs { path });
            }
            'l' => ops.push(Op::Readlink { path }),
            _ => {}
        }
    }
    ops
}
