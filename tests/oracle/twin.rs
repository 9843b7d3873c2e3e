//! One script on two trees that were made alike: natively, and through `run` and `commit`. Owns the
//! order of what is compared and the words for the first difference.
//!
//! Both runs take place at the same path, one after the other, so that links and messages name the
//! same places. Natively the script runs without capabilities, as it does inside.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::deviations::{self, Driver};
use super::interpret;
use super::review;
use super::script::{Answer, Bytes, Op, Script};
use super::snapshot::Snapshot;
use super::support::user::User;
use super::support::{Call, World, world};

/// How far a comparison goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The answers inside are those outside.
    Answers,
    /// The change set is the difference of the native trees.
    Changes,
    /// The committed tree is the native one.
    Commit,
    /// After the commit nothing differs any more.
    After,
    /// Undone, the tree is what it was.
    Undo,
    /// Committed in two parts, the tree is the native one as well.
    Halves,
    /// Reverted, nothing differs, and the agent sees what the host has.
    Revert,
}

/// The first thing that differs.
#[derive(Debug, Clone)]
pub struct Difference {
    pub stage: Stage,
    /// What kind of difference it is, without names: a shorter script must show the same.
    pub class: String,
    /// For the reader.
    pub report: String,
}

impl Difference {
    pub(super) fn new(stage: Stage, class: impl Into<String>, report: impl Into<String>) -> Self {
        Self {
            stage,
            class: class.into(),
            report: report.into(),
        }
    }
}

/// Who runs scripts, and how.
#[derive(Debug, Clone)]
pub struct Setting {
    pub user: User,
    pub driver: Driver,
    /// Directories of the tree can be renamed.
    pub shim: bool,
    /// Flags of `run` besides workspace and driver.
    pub flags: Vec<String>,
}

impl Setting {
    /// For the report.
    pub fn name(&self) -> String {
        format!("{} as {}", self.driver.name(), self.user.name)
    }
}

/// Compares a script up to and including `last`. What a deviation explains is taken out first; the
/// script that was compared in the end comes with the result.
pub fn compare(setting: &Setting, script: &Script, last: Stage) -> (Script, Option<Difference>) {
    let mut script = script.clone();
    loop {
        match compare_once(setting, &script, last) {
            Verdict::Same => return (script, None),
            Verdict::Different(difference) => return (script, Some(difference)),
            Verdict::Deviates(index) => script = deviations::without(&script, index),
        }
    }
}

enum Verdict {
    Same,
    Different(Difference),
    /// This operation is one that the driver is known not to do.
    Deviates(usize),
}

fn compare_once(setting: &Setting, script: &Script, last: Stage) -> Verdict {
    let world = World::new("oracle", setting.user.clone());
    let twin = Twin {
        setting,
        script,
        world: &world,
    };
    let (before, answers, after) = twin.native();
    let again = twin.build();
    let lines = before.differences(&again);
    assert!(
        lines.is_empty(),
        "the tree is not made alike twice: {lines:?}"
    );

    let seen = match twin.staged() {
        Ok(seen) => seen,
        Err(report) => return different(Stage::Answers, "run", report),
    };
    for (index, (native, staged)) in answers.iter().zip(&seen).enumerate() {
        if native == staged {
            continue;
        }
        let op = &script.ops[index];
        let errnos = (native.errno.as_str(), staged.errno.as_str());
        let kernel = setting.driver == Driver::Overlayfs;
        if kernel && !setting.shim && deviations::is_lower_rename(op, errnos, &before)
            || kernel && deviations::is_removed(op, native, staged)
            || !kernel && deviations::is_count(&script.ops, index, (native, staged))
            || kernel && deviations::is_stale(&script.ops, index, errnos, &before)
        {
            return Verdict::Deviates(index);
        }
        return Verdict::Different(answer(index, op, native, staged));
    }
    if answers.len() != seen.len() {
        let report = format!("{} answers, natively {}", seen.len(), answers.len());
        return different(Stage::Answers, "count", report);
    }
    match twin.review(&before, &after, last) {
        Some(difference) => Verdict::Different(difference),
        None => Verdict::Same,
    }
}

fn different(stage: Stage, class: &str, report: impl Into<String>) -> Verdict {
    Verdict::Different(Difference::new(stage, class, report))
}

fn answer(index: usize, op: &Op, native: &Answer, staged: &Answer) -> Difference {
    let class = if native.errno == staged.errno {
        format!("{} sees", op.word())
    } else {
        format!("{} {} <> {}", op.word(), native.errno, staged.errno)
    };
    let report = format!(
        "operation {index}, {}\n  natively: {} {}\n  inside:   {} {}",
        serde_json::to_string(op).unwrap_or_default(),
        native.errno,
        native.saw,
        staged.errno,
        staged.saw
    );
    Difference::new(Stage::Answers, class, report)
}

pub(super) struct Twin<'a> {
    pub(super) setting: &'a Setting,
    pub(super) script: &'a Script,
    pub(super) world: &'a World,
}

impl Twin<'_> {
    /// The tree before, what the script said, the tree afterwards.
    fn native(&self) -> (Snapshot, Vec<Answer>, Snapshot) {
        let before = self.build();
        let file = self.write("ops", &self.script.ops);
        let done = Call::new(self.native_command(&file)).ok();
        let after = Snapshot::of(&self.world.workspace);
        (before, answers(&done.stdout), after)
    }

    /// Makes the tree anew.
    fn build(&self) -> Snapshot {
        let workspace = &self.world.workspace;
        open_up(workspace);
        fs::remove_dir_all(workspace).expect("the last tree goes");
        fs::create_dir(workspace).expect("a new directory");
        self.world.own(workspace, 0o755);
        let file = self.write("tree", &self.script.tree);
        Call::new(self.native_command(&file)).ok();
        Snapshot::of(workspace)
    }

    fn write(&self, name: &str, ops: &[Op]) -> PathBuf {
        let path = self.world.root.join(name);
        let lines: Vec<String> = ops
            .iter()
            .map(|op| serde_json::to_string(op).expect("an operation") + "\n")
            .collect();
        fs::write(&path, lines.concat()).expect("a file");
        self.world.own(&path, 0o644);
        path
    }

    /// Without capabilities also for root, which has none inside either.
    fn native_command(&self, file: &Path) -> std::process::Command {
        let mut command = self.world.command("setpriv");
        command.args(["--no-new-privs", "--inh-caps=-all"]);
        if self.setting.user.is_root() {
            command.args(["--bounding-set=-all", "--clear-groups"]);
        }
        command.args(self.interpreter(file));
        command
    }

    fn interpreter(&self, file: &Path) -> Vec<std::ffi::OsString> {
        vec![
            program().into(),
            interpret::WORD.into(),
            format!("{:o}", self.script.umask).into(),
            self.world.workspace.clone().into(),
            file.into(),
        ]
    }

    fn run(&self, more: &[&str], file: &Path) -> super::support::Done {
        let mut command = self.world.command(world::binary());
        command
            .args(["run", "--headless", "--workspace"])
            .arg(&self.world.workspace)
            .args(["--driver", self.setting.driver.name()])
            .args(&self.setting.flags)
            .args(more)
            .arg("--")
            .args(self.interpreter(file));
        Call::new(command).done()
    }

    fn staged(&self) -> Result<Vec<Answer>, String> {
        let file = self.write("ops", &self.script.ops);
        let done = self.run(&[], &file);
        if done.status == Some(0) {
            Ok(answers(&done.stdout))
        } else {
            Err(done.to_string())
        }
    }

    fn review(&self, before: &Snapshot, after: &Snapshot, last: Stage) -> Option<Difference> {
        if last < Stage::Changes {
            return None;
        }
        let expected = review::expected(before, after);
        let found = match self.changes() {
            Ok(found) => found,
            Err(report) => return Some(Difference::new(Stage::Changes, "changes", report)),
        };
        let expected = review::unread(expected, &found, |path| {
            deviations::is_unreadable(self.setting, path, before)
        });
        if let Some((class, report)) = review::difference(&expected, &found) {
            return Some(Difference::new(Stage::Changes, class, report));
        }
        if last < Stage::Commit {
            return None;
        }
        let committed = self.call(&["commit", "--all", "--ignored"]);
        if let Err(report) = committed {
            if deviations::is_shut(self.setting, &[before, after], 0o300)
                && report.contains("nothing was written")
            {
                return None;
            }
            if deviations::is_half_a_group(before, after) && report.contains("outside this batch") {
                return None;
            }
            return Some(Difference::new(Stage::Commit, "refused", report));
        }
        let tree = Snapshot::of(&self.world.workspace);
        // A socket is listed and never committed: what stood in its place stays. A file whose bytes
        // are what they were keeps its holes.
        let after = after.clone().with_pipes_of(&tree);
        let mut after = after.with_holes_of(before, &tree);
        if self.setting.driver == Driver::Overlayfs
            && deviations::has_further_name(&self.script.ops, before)
        {
            after = after.with_marks_of(&tree);
        }
        after.mapped = self
            .script
            .ops
            .iter()
            .any(|op| matches!(op, Op::Mmap { .. }));
        let after = &after;
        let difference = trees(Stage::Commit, after, &tree, &after.sockets);
        if difference.is_some() || last < Stage::After {
            return difference;
        }
        match self.changes() {
            Ok(rest) => {
                if let Some(left) = review::left(&rest, &after.sockets) {
                    return Some(Difference::new(Stage::After, "left", left));
                }
            }
            Err(report) => return Some(Difference::new(Stage::After, "changes", report)),
        }
        if last < Stage::Undo {
            return None;
        }
        if !found.iter().all(|(path, _)| after.sockets.contains(path))
            && let Err(report) = self.call(&["undo"])
        {
            if deviations::is_shut(self.setting, &[before, after], 0o700) {
                return None;
            }
            return Some(Difference::new(Stage::Undo, "refused", report));
        }
        let tree = Snapshot::of(&self.world.workspace);
        let difference = trees(Stage::Undo, before, &tree, &[]);
        if difference.is_some() || last < Stage::Halves {
            return difference;
        }
        match self.halves(before, after) {
            Ok(true) if last >= Stage::Revert => {}
            Ok(_) => return None,
            Err(difference) => return Some(difference),
        }
        self.revert(before, &found)
    }

    /// What was undone is there again as changes; reverted, the agent sees the host's tree.
    fn revert(&self, before: &Snapshot, found: &BTreeMap<Bytes, String>) -> Option<Difference> {
        let stage = Stage::Revert;
        match self.changes() {
            Ok(again) => {
                if let Some((_, report)) = review::difference(found, &again) {
                    return Some(Difference::new(stage, "changes after undo", report));
                }
            }
            Err(report) => return Some(Difference::new(stage, "changes", report)),
        }
        if let Err(report) = self.call(&["revert", "--all"]) {
            return Some(Difference::new(stage, "refused", report));
        }
        let ignored = match self.changes_json() {
            Ok(json) => review::not_ignored(&json)
                .into_iter()
                .filter(|path| !deviations::is_unreadable(self.setting, path, before))
                .collect::<Vec<_>>(),
            Err(report) => return Some(Difference::new(stage, "changes", report)),
        };
        if let Some(path) = ignored.first() {
            return Some(Difference::new(
                stage,
                "left",
                format!("still a change: {path:?}"),
            ));
        }
        let looks: Vec<Op> = review::looks(before);
        let file = self.write("look", &looks);
        let native = answers(&Call::new(self.native_command(&file)).ok().stdout);
        let done = self.run(&["--continue"], &file);
        if done.status != Some(0) {
            return Some(Difference::new(stage, "continue", done.to_string()));
        }
        let inside = answers(&done.stdout);
        let ignores = before.entries.contains_key(&Bytes::from(".gitignore"));
        native
            .iter()
            .zip(&inside)
            .enumerate()
            // Ignored changes are not reverted with the rest.
            .find(|(_, (a, b))| !same_look(a, b) && !ignores)
            .map(|(index, (a, b))| {
                let what = answer(index, &looks[index], a, b);
                Difference::new(stage, "view", what.report)
            })
    }

    pub(super) fn changes_json(&self) -> Result<serde_json::Value, String> {
        let out = self.call(&["changes", "--json"])?;
        serde_json::from_slice(&out).map_err(|e| e.to_string())
    }

    pub(super) fn changes(&self) -> Result<BTreeMap<Bytes, String>, String> {
        self.changes_json().map(|json| review::found(&json))
    }

    pub(super) fn call(&self, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let done = self.world.pvisor(arguments).done();
        if done.status == Some(0) {
            Ok(done.stdout)
        } else {
            Err(done.to_string())
        }
    }
}

/// The first difference between two trees.
pub(super) fn trees(
    stage: Stage,
    native: &Snapshot,
    staged: &Snapshot,
    sockets: &[Bytes],
) -> Option<Difference> {
    let (native, staged) = (
        native.clone().without(sockets),
        staged.clone().without(sockets),
    );
    let lines = native.differences(&staged);
    let first = lines.first()?;
    let class = first.split(':').next().unwrap_or_default().to_owned();
    let shown: Vec<&str> = lines.iter().take(8).map(String::as_str).collect();
    let report = format!(
        "{} differences between the expected tree and the one there is, the first:\n  {}",
        lines.len(),
        shown.join("\n  ")
    );
    Some(Difference::new(stage, class, report))
}

/// This program, where every user can execute it.
pub fn program() -> PathBuf {
    world::readable(&std::env::current_exe().expect("this program has a path"))
}

/// The times of a directory are its own on either side; a name that an undo took away is kept where
/// the commit's pre-images are, and counts on the host.
fn same_look(native: &Answer, inside: &Answer) -> bool {
    let look = |answer: &Answer| {
        let mut words: Vec<&str> = answer.saw.split(' ').collect();
        if let Some(at) = words.iter().position(|w| *w == "names") {
            words.drain(at..(at + 2).min(words.len()));
        }
        if answer.saw.starts_with('4')
            && let Some(at) = words.iter().position(|w| *w == "mtime")
        {
            words.truncate(at);
        }
        words.join(" ")
    };
    native.errno == inside.errno && look(native) == look(inside)
}

fn answers(stdout: &[u8]) -> Vec<Answer> {
    stdout
        .split(|b| *b == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).expect("an answer a line"))
        .collect()
}

/// So that somebody without privileges can remove it.
fn open_up(dir: &Path) {
    if nix::unistd::geteuid().is_root() {
        return;
    }
    let _ = std::process::Command::new("chmod")
        .args(["-R", "u+rwX"])
        .arg(dir)
        .stderr(std::process::Stdio::null())
        .status();
}
