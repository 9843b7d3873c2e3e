//! The change set in two commits: a random part of it first, the rest afterwards. Owns the split
//! and what a refusal makes of it: what cannot be committed apart goes together.
//!
//! After the first commit the rest must be what still differs from the native tree, after the
//! second nothing, and undone twice the tree is what it was.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use super::deviations;
use super::review;
use super::script::Bytes;
use super::snapshot::Snapshot;
use super::twin::{Difference, Stage, Twin, trees};

/// One change of the workspace.
struct Row {
    path: Bytes,
    from: Option<Bytes>,
    items: Vec<String>,
}

/// What goes first.
#[derive(Debug, Default)]
struct Part {
    /// Chosen items by path.
    items: BTreeMap<Bytes, BTreeSet<String>>,
    /// Old names of the renames among them.
    from: BTreeSet<Bytes>,
}

impl Part {
    /// Whether there was anything more to choose.
    fn choose(&mut self, row: &Row, items: impl IntoIterator<Item = String>) -> bool {
        let chosen = self.items.entry(row.path.clone()).or_default();
        let count = chosen.len();
        chosen.extend(items);
        self.from.extend(row.from.clone());
        chosen.len() > count
    }

    /// Whether a path may be another after this part was committed.
    fn touches(&self, path: &Bytes) -> bool {
        let near = |key: &Bytes| is_within(key, path) || is_within(path, key);
        self.items.keys().chain(&self.from).any(near)
    }
}

impl Twin<'_> {
    /// Commits the whole change set in two parts and takes both back. False when a refusal that a
    /// deviation explains left it half done.
    pub(super) fn halves(&self, before: &Snapshot, after: &Snapshot) -> Result<bool, Difference> {
        let stage = Stage::Halves;
        let failed = |class: &str| {
            let class = class.to_owned();
            move |report| Difference::new(stage, class, report)
        };
        let rows: Vec<Row> = rows(&self.changes_json().map_err(failed("changes"))?)
            .filter(|row| !after.sockets.contains(&row.path))
            .collect();
        let mut part = self.chosen(&rows);
        if part.items.is_empty() {
            return Ok(true);
        }
        let mut commits = 0;
        match self.commit_part(&rows, &mut part, before) {
            Ok(committed) => commits += usize::from(committed),
            Err(report) if self.is_shut(&[before, after], &report) => return Ok(false),
            Err(report) => return Err(failed("first refused")(report)),
        }
        let told = |mut difference: Difference| {
            difference.report = format!("{}\nthe first half: {part:?}", difference.report);
            Err(difference)
        };
        let between = Snapshot::of(&self.world.workspace);
        if let Err(difference) = self.is_left(&between, before, after, &part) {
            // What lies below a directory that its owner may not list is not known to differ.
            return if deviations::is_shut(self.setting, &[&between], 0o500) {
                Ok(false)
            } else {
                Err(difference)
            };
        }
        match self.call(&["commit", "--all", "--ignored", "--json"]) {
            Ok(out) => commits += usize::from(is_committed(&out)),
            Err(report) if self.is_shut(&[&between, after], &report) => return Ok(false),
            Err(report) => return told(failed("second refused")(report)),
        }
        let tree = Snapshot::of(&self.world.workspace);
        if let Some(difference) = trees(stage, after, &tree, &after.sockets) {
            return told(difference);
        }
        let rest = self.changes().map_err(failed("changes"))?;
        if let Some(left) = review::left(&rest, &after.sockets) {
            return told(failed("left")(left));
        }
        for _ in 0..commits {
            match self.call(&["undo"]) {
                Ok(_) => {}
                Err(_) if deviations::is_shut(self.setting, &[before, &between, after], 0o700) => {
                    return Ok(false);
                }
                Err(report) => return told(failed("undo refused")(report)),
            }
        }
        let tree = Snapshot::of(&self.world.workspace);
        match trees(stage, before, &tree, &[]) {
            Some(difference) => told(difference),
            None => Ok(true),
        }
    }

    /// Whether a refusal may come of a directory that its owner may not write.
    fn is_shut(&self, trees: &[&Snapshot], report: &str) -> bool {
        // A directory is looked through before it goes.
        let unlisted = report.contains("cannot be listed: Permission denied");
        let bits = if unlisted { 0o700 } else { 0o300 };
        deviations::is_shut(self.setting, trees, bits) && report.contains("nothing was written")
    }

    /// What still differs is what was not chosen (or could not be taken apart from that).
    fn is_left(
        &self,
        between: &Snapshot,
        before: &Snapshot,
        after: &Snapshot,
        part: &Part,
    ) -> Result<(), Difference> {
        let failed = |class: String, report: String| {
            let report = format!("{report}\nthe first half: {part:?}");
            Err(Difference::new(Stage::Halves, class, report))
        };
        let found = match self.changes() {
            Ok(found) => found,
            Err(report) => return failed("changes between".into(), report),
        };
        let unreadable = |path: &Bytes| deviations::is_unreadable(self.setting, path, between);
        let expected = review::unread(review::expected(between, after), &found, unreadable);
        if let Some((class, report)) = review::difference(&expected, &found) {
            return failed(format!("between: {class}"), report);
        }
        // What was not chosen is untouched, but for new directories on the way.
        for (path, entry) in &before.entries {
            let same = between.entries.get(path).is_some_and(|now| {
                (now.letter, now.size, now.hash) == (entry.letter, entry.size, entry.hash)
            });
            if !same && !part.touches(path) {
                return failed(
                    "touched".into(),
                    format!("{path:?} was not chosen, but committed"),
                );
            }
        }
        Ok(())
    }

    /// About half of the changes; of some of them only some items.
    fn chosen(&self, rows: &[Row]) -> Part {
        let mut part = Part::default();
        for row in rows {
            let dice = self.dice(&row.path, "");
            let some = dice & 6 == 0 && row.items.len() > 1;
            if !some && dice & 1 == 0 {
                continue;
            }
            let items: BTreeSet<String> = row
                .items
                .iter()
                .filter(|item| !some || self.dice(&row.path, item) & 1 == 0)
                .cloned()
                .collect();
            if !items.is_empty() {
                part.choose(row, items);
            }
        }
        part
    }

    /// The same for the same name, however short the script is made.
    fn dice(&self, path: &Bytes, item: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.script.about, path, item).hash(&mut hasher);
        hasher.finish() >> 8
    }

    /// Approves a part and commits it; what is refused takes along what it belongs to. Tells
    /// whether there was anything to write.
    fn commit_part(
        &self,
        rows: &[Row],
        part: &mut Part,
        before: &Snapshot,
    ) -> Result<bool, String> {
        loop {
            let list: Vec<u8> = part
                .items
                .iter()
                .flat_map(|(path, items)| items.iter().map(move |item| (path, item)))
                .flat_map(|(path, item)| {
                    let path: &[u8] = if path.0.is_empty() { b"." } else { &path.0 };
                    [path, b"#", item.as_bytes(), b"\0"].concat()
                })
                .collect();
            let file = self.world.root.join("part");
            std::fs::write(&file, list).expect("a file");
            self.world.own(&file, 0o644);
            let file = file.to_str().expect("a path that is text").to_owned();
            self.call(&["approve", "--paths-from", &file, "-0"])?;
            let done = self.world.pvisor(["commit", "--json"]).done();
            if done.status == Some(0) {
                return Ok(is_committed(&done.stdout));
            }
            let said = serde_json::from_slice(&done.stdout).unwrap_or(Value::Null);
            if !joined(rows, part, &said, before) {
                return Err(format!("{done}\nthe first half: {part:?}"));
            }
        }
    }
}

/// Chooses what belongs to the refused paths as well; false when that is all chosen.
fn joined(rows: &[Row], part: &mut Part, said: &Value, before: &Snapshot) -> bool {
    let refusals = || said["refused"].as_array().into_iter().flatten();
    let refused: Vec<Bytes> = refusals().map(|r| review::bytes(r, "path")).collect();
    let reasons: String = refusals().filter_map(|r| r["reason"].as_str()).collect();
    let file = |path: &Bytes| before.entries.get(path)?.same_as.clone();
    // All names of a file that has several.
    let files: BTreeSet<Bytes> = refused.iter().filter_map(file).collect();
    let belongs = |path: &Bytes| {
        let near = |top: &Bytes| is_within(path, top) || is_within(top, path);
        let text = String::from_utf8_lossy(&path.0).into_owned();
        refused.iter().any(near)
            || file(path).is_some_and(|file| files.contains(&file))
            || !text.is_empty() && reasons.contains(&text)
    };
    let mut grown = false;
    for row in rows {
        if belongs(&row.path) || row.from.as_ref().is_some_and(belongs) {
            grown |= part.choose(row, row.items.iter().cloned());
        }
    }
    grown
}

/// Whether `path` is `top` or lies below it.
fn is_within(path: &Bytes, top: &Bytes) -> bool {
    top.0.is_empty()
        || path
            .0
            .strip_prefix(top.0.as_slice())
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

fn is_committed(out: &[u8]) -> bool {
    serde_json::from_slice::<Value>(out).is_ok_and(|json| json["state"] == "committed")
}

fn rows(json: &Value) -> impl Iterator<Item = Row> {
    json["changes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|change| change["layer"] == "workspace")
        .map(|change| Row {
            path: review::bytes(change, "path"),
            from: (change["kind"] == "renamed").then(|| review::bytes(change, "from")),
            items: change["items"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|item| item["id"].as_str().map(str::to_owned))
                .collect(),
        })
}
