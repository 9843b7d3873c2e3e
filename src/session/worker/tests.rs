//! Commits that merge, cut at every point: whatever becomes of them, nothing of the host's counts
//! as taken away by the agent, and nothing of either side is lost.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crossbeam_channel::unbounded;
use nix::sys::signal::{Signal, raise};

use super::*;
use crate::RelPath;
use crate::change::Conflict;
use crate::commit::seam::{self, Verdict};
use crate::layer::{DirectAccess, Driver, Timestamp, WORKSPACE};
use crate::sandbox::Mode;
use crate::session::records::Records;

/// Set for the process that is to be killed: where the session lies, and the call that ends it.
const PLACE: &str = "PVISOR_TESTS_KILLED_AT";
const CALL: &str = "PVISOR_TESTS_KILLED_CALL";

const BASE: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
const HOST: &str = "1\nperson\n3\n4\n5\n6\n7\n8\n9\n";
const AGENT: &str = "1\n2\n3\n4\n5\n6\n7\nagent\n9\n";
const BOTH: &str = "1\nperson\n3\n4\n5\n6\n7\nagent\n9\n";

fn info(dir: &Path) -> SessionInfo {
    SessionInfo {
        id: "s".into(),
        name: "s".into(),
        user: "ada".into(),
        mode: Mode::Staged,
        command: vec!["agent".into()],
        dir: dir.join("sessions/s"),
        workspace: dir.join("host"),
        layers: vec![Layer {
            name: WORKSPACE.into(),
            root: dir.join("host"),
            dir: dir.join("sessions/s/layers/workspace"),
            driver: Driver::Overlayfs,
        }],
        started: Timestamp::default(),
        settings: crate::config::SessionSettings::default(),
    }
}

/// A session whose agent has changed three files, two of which the person has changed as well.
fn staged(dir: &Path) -> Scene {
    let info = info(dir);
    let upper = info.layers[0].upper();
    for made in [&dir.join("host"), &upper, &info.layers[0].base()] {
        fs::create_dir_all(made).expect("mkdir");
    }
    for name in ["a", "b", "c"] {
        fs::write(dir.join("host").join(name), BASE).expect("written");
    }
    for name in ["a", "b", "c", "new"] {
        fs::write(upper.join(name), AGENT).expect("written");
    }
    let mut scene = Scene::open(dir);
    scene.changes();
    for name in ["a", "b"] {
        fs::write(dir.join("host").join(name), HOST).expect("written");
    }
    scene
}

/// A session that is served, its worker being the test itself.
struct Scene {
    dir: PathBuf,
    worker: Worker,
}

impl Scene {
    /// As a server opens it, whatever came before.
    fn open(dir: &Path) -> Self {
        let info = info(dir);
        let layers = info.layers.clone();
        let records = Records::open(&info, true, None).expect("records");
        let access = Arc::new(DirectAccess::open(&layers).expect("uppers"));
        let store = Store::new(dir.to_owned(), dir.join("run"));
        let worker = Worker::new(
            (store, info),
            layers,
            records.tracker.expect("staged"),
            access,
            Moved::default(),
            unbounded().0,
        );
        Self {
            dir: dir.to_owned(),
            worker,
        }
    }

    fn changes(&mut self) -> ChangeSet {
        let moves = self.worker.scan_closely().expect("a scan");
        moves
            .changes
            .into_iter()
            .map(|c| (c.key.clone(), c))
            .collect()
    }

    /// `+added -removed` of each change, and whether it merges.
    fn rows(&mut self) -> Vec<String> {
        let words = |change: &Arc<Change>| {
            let merges = change.merges.as_ref().map(crate::change::Merges::describe);
            let path = &change.key.path;
            format!("{path} +{} -{} {merges:?}", change.added, change.removed)
        };
        self.changes().values().map(words).collect()
    }

    fn host(&self) -> Vec<String> {
        let read = |name: &&str| fs::read_to_string(self.dir.join("host").join(name));
        let names = ["a", "b", "c", "new"];
        names
            .iter()
            .map(|name| read(name).unwrap_or_default())
            .collect()
    }

    fn commit(&mut self) -> JobDone {
        let changes = self.changes();
        let approved = changes.values().cloned().map(|change| Approved {
            change,
            selection: Selection::Whole,
        });
        self.worker.work(Job::Commit {
            approved: approved.collect(),
            changes,
            number: 1,
            merge: true,
            dry_run: false,
            prune_before: 0,
            reply_to: None,
        })
    }

    fn resolve(&mut self, name: &str, how: &Resolution) -> Result<(), String> {
        let key = LayerPath::new(WORKSPACE, RelPath::try_from(name).expect("path"));
        let change = self.changes().remove(&key).expect("a change");
        self.worker.resolve(&change, how)
    }
}

fn committed(done: &JobDone) -> Option<u32> {
    match done {
        JobDone::Committed {
            outcome: Outcome::Committed { number, .. },
            ..
        } => Some(*number),
        _ => None,
    }
}

fn before() -> (Vec<&'static str>, Vec<&'static str>) {
    let host = vec![HOST, HOST, BASE, ""];
    let rows = vec![
        "a +1 -1 Some(\"merges cleanly\")",
        "b +1 -1 Some(\"merges cleanly\")",
        "c +1 -1 None",
        "new +9 -0 None",
    ];
    (host, rows)
}

fn after() -> (Vec<&'static str>, Vec<&'static str>) {
    (vec![BOTH, BOTH, AGENT, AGENT], Vec::new())
}

/// Not a test of its own: the process that another test kills.
#[test]
fn the_one_that_is_killed() {
    let (Some(dir), Ok(call)) = (std::env::var_os(PLACE), std::env::var(CALL)) else {
        return;
    };
    let call: u32 = call.parse().expect("a number");
    let calls = Cell::new(0);
    let hook = move |_| {
        calls.set(calls.get() + 1);
        if calls.get() == call {
            raise(Signal::SIGKILL).expect("killed");
        }
        Verdict::Pass
    };
    let mut scene = Scene::open(Path::new(&dir));
    let done = seam::with(hook, || scene.commit());
    assert!(committed(&done).is_some());
}

#[test]
fn a_commit_with_merges_killed_at_any_call_takes_nobodys_edit_away() {
    let mut points = [0, 0];
    for call in 1.. {
        let dir = tempfile::tempdir().expect("tempdir");
        drop(staged(dir.path()));
        let ended = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "session::worker::tests::the_one_that_is_killed"])
            .env(PLACE, dir.path())
            .env(CALL, call.to_string())
            .output()
            .expect("a process");
        let mut scene = Scene::open(dir.path());
        let (host, rows) = (scene.host(), scene.rows());
        if ended.status.success() {
            assert_eq!((host, rows), owned(after()));
            break;
        }
        let is_after = host == after().0;
        points[usize::from(is_after)] += 1;
        let expected = if is_after { after() } else { before() };
        assert_eq!((host, rows), owned(expected), "call {call}");
        // It goes on as if nothing had been.
        if !is_after {
            assert!(committed(&scene.commit()).is_some(), "call {call}");
            assert_eq!((scene.host(), scene.rows()), owned(after()), "call {call}");
        }
        let undo = Job::Undo {
            undoes: 1,
            number: 2,
            reply_to: None,
        };
        assert!(committed(&scene.worker.work(undo)).is_some(), "call {call}");
        assert_eq!((scene.host(), scene.rows()), owned(before()), "call {call}");
    }
    eprintln!(
        "killed at {} calls: {} times before, {} times after",
        points[0] + points[1],
        points[0],
        points[1]
    );
    assert!(points[0] > 20 && points[1] > 2, "{points:?}");
}

fn owned(both: (Vec<&str>, Vec<&str>)) -> (Vec<String>, Vec<String>) {
    let own = |list: Vec<&str>| list.into_iter().map(String::from).collect();
    (own(both.0), own(both.1))
}

#[test]
fn a_commit_with_merges_that_is_not_tried_leaves_the_baselines() {
    for (call, errno) in [(1, libc::EACCES), (1, libc::ENOSPC), (2, libc::EIO)] {
        let dir = tempfile::tempdir().expect("tempdir");
        let mut scene = staged(dir.path());
        let calls = Cell::new(0);
        let hook = move |_| {
            calls.set(calls.get() + 1);
            if calls.get() == call {
                Verdict::Fail(errno)
            } else {
                Verdict::Pass
            }
        };
        let done = seam::with(hook, || scene.commit());
        assert!(committed(&done).is_none(), "call {call}");
        assert_eq!((scene.host(), scene.rows()), owned(before()), "call {call}");
        let number = committed(&scene.commit());
        assert!(number.is_some(), "call {call}");
        assert_eq!((scene.host(), scene.rows()), owned(after()), "call {call}");
    }
}

/// Somebody else's commit to the same place: it is waited for, and then nothing is tried.
#[test]
fn a_busy_place_leaves_the_baselines() {
    let dir = tempfile::tempdir().expect("tempdir");
    let mut scene = staged(dir.path());
    let root = fs::File::open(dir.path().join("host")).expect("opened");
    let held = nix::fcntl::Flock::lock(root, nix::fcntl::FlockArg::LockExclusive);
    let held = held.map_err(|(_, errno)| errno).expect("locked");
    let done = scene.commit();
    assert!(matches!(done, JobDone::NotTried(..)));
    assert_eq!((scene.host(), scene.rows()), owned(before()));
    drop(held);
    assert!(committed(&scene.commit()).is_some());
    assert_eq!((scene.host(), scene.rows()), owned(after()));
}

/// Rolled back by another session, while nobody served this one.
#[test]
fn a_commit_that_somebody_else_rolled_back_leaves_the_baselines() {
    let dir = tempfile::tempdir().expect("tempdir");
    let mut scene = staged(dir.path());
    let calls = Cell::new(0);
    let hook = move |_| {
        calls.set(calls.get() + 1);
        if calls.get() == 12 {
            Verdict::Kill
        } else {
            Verdict::Pass
        }
    };
    seam::with(hook, || scene.commit());
    drop(scene);
    let info = info(dir.path());
    let settled = commit::recover(&info.layers, &info.dir.join("commits")).expect("settled");
    assert_eq!(settled.len(), 1);
    let mut scene = Scene::open(dir.path());
    assert_eq!((scene.host(), scene.rows()), owned(before()));
}

/// Of what is put into the agent's file the host's part is never the agent's.
#[test]
fn what_is_resolved_is_the_change_from_then_on() {
    let dir = tempfile::tempdir().expect("tempdir");
    let mut scene = staged(dir.path());
    scene.resolve("a", &Resolution::Merge).expect("merged");
    let upper = info(dir.path()).layers[0].upper();
    assert_eq!(fs::read_to_string(upper.join("a")).expect("read"), BOTH);
    assert_eq!(scene.rows()[0], "a +1 -1 None");
    // Cut between the agent's file and the baseline.
    fs::write(upper.join("b"), BOTH).expect("written");
    assert_eq!(scene.rows()[1], "b +2 -2 Some(\"merges cleanly\")");
    let mut scene = Scene::open(dir.path());
    assert_eq!(scene.rows()[0], "a +1 -1 None");
    assert!(committed(&scene.commit()).is_some());
    assert_eq!(scene.host(), after().0);
    assert_eq!(scene.rows(), Vec::<String>::new());
}

#[test]
fn markers_stay_in_the_stage_and_hold_the_commit_back() {
    let dir = tempfile::tempdir().expect("tempdir");
    let mut scene = staged(dir.path());
    let host = dir.path().join("host/a");
    fs::write(&host, BASE.replace('8', "person")).expect("written");
    scene
        .resolve("a", &Resolution::Merge)
        .expect_err("it conflicts");
    scene.resolve("a", &Resolution::Markers).expect("marked");
    // Also after the session was opened anew.
    let mut scene = Scene::open(dir.path());
    let change = scene.changes().into_values().next().expect("a change");
    assert_eq!(change.conflict, Some(Conflict::Markers));
    assert!(committed(&scene.commit()).is_none());
    assert_eq!(
        fs::read_to_string(&host).expect("read"),
        BASE.replace('8', "person")
    );
    // Moved by the agent, they go along.
    let upper = info(dir.path()).layers[0].upper();
    fs::rename(upper.join("a"), upper.join("moved")).expect("renamed");
    nix::sys::stat::mknod(
        &upper.join("a"),
        nix::sys::stat::SFlag::S_IFCHR,
        nix::sys::stat::Mode::empty(),
        0,
    )
    .ok();
    if upper.join("a").symlink_metadata().is_ok() {
        fs::copy(upper.join("moved"), upper.join("copy")).expect("copied");
        let changes = scene.changes();
        for name in ["moved", "copy"] {
            let key = LayerPath::new(WORKSPACE, RelPath::try_from(name).expect("path"));
            assert_eq!(changes[&key].conflict, Some(Conflict::Markers), "{name}");
        }
        assert!(committed(&scene.commit()).is_none());
        fs::remove_file(upper.join("copy")).expect("removed");
        fs::remove_file(upper.join("a")).expect("removed");
    }
    fs::rename(upper.join("moved"), upper.join("a")).expect("renamed");
    scene.resolve("a", &Resolution::Theirs).expect("resolved");
    assert_eq!(fs::read_to_string(upper.join("a")).expect("read"), AGENT);
    assert_eq!(scene.rows()[0], "a +1 -1 None");
    assert!(committed(&scene.commit()).is_some());
    assert_eq!(fs::read_to_string(&host).expect("read"), AGENT);
}
