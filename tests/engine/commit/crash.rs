//! Killed or failing at every writing system call (a commit always, the rest in a thorough run, else
//! at samples): afterwards the host is exactly as before or exactly as after, and nothing temporary
//! is left.

use std::sync::{Arc, Mutex};

use pvisor::commit::seam::{self, Verdict};
use pvisor::commit::{CommitError, Outcome, Settled};

use super::scene::{AGENT, Count, HOST, Scene, Snapshot, snapshot};

/// Runs `verb` with `verdict` at its call number `at`; whether that call was reached.
fn interrupted(
    at: usize,
    verdict: Verdict,
    verb: impl FnOnce() -> Result<Outcome, CommitError>,
) -> (Result<Outcome, CommitError>, bool) {
    let calls = Count::default();
    let counted = calls.clone();
    let outcome = seam::with(
        move |_call| {
            if counted.up() == at {
                verdict
            } else {
                Verdict::Pass
            }
        },
        verb,
    );
    (outcome, calls.get() >= at)
}

/// The calls at which to interrupt: every one in a thorough run, else every fifth from `first` on.
fn sampled(first: usize) -> impl Iterator<Item = usize> {
    let (first, step) = if crate::thorough() {
        (1, 1)
    } else {
        (first, 5)
    };
    (first..).step_by(step)
}

fn either(scene: &Scene, before: &Snapshot, after: &Snapshot, at: usize) -> bool {
    let now = snapshot(&scene.host);
    if now == *after {
        return true;
    }
    if now != *before {
        let odd: Vec<_> = now
            .iter()
            .filter(|(path, entry)| before.get(path) != Some(entry))
            .chain(before.iter().filter(|(path, _)| !now.contains_key(path)))
            .map(|(path, entry)| (path, String::from_utf8_lossy(&entry.bytes)))
            .collect();
        panic!("call {at}: neither before nor after: {odd:#?}");
    }
    false
}

#[test]
fn a_commit_killed_at_any_call_is_before_or_after() {
    let mut points = 0;
    for at in 1.. {
        let scene = Scene::quick(HOST);
        scene.agent(AGENT);
        let (before, after) = (snapshot(&scene.host), snapshot(&scene.agent));
        let (outcome, reached) = interrupted(at, Verdict::Kill, || scene.commit(1, scene.all()));
        if !reached {
            assert!(
                matches!(outcome, Ok(Outcome::Committed { .. })),
                "{outcome:?}"
            );
            break;
        }
        points += 1;
        let settled = scene.recover();
        assert!(scene.recover().is_empty(), "call {at}: recovering twice");
        let is_after = either(&scene, &before, &after, at);
        for one in &settled {
            let forward = one.outcome == Settled::RolledForward;
            assert_eq!(forward, is_after, "call {at}");
            assert!(one.kept.is_empty(), "call {at}");
        }
        // Whatever became of it, a later commit and its undo go through.
        if is_after {
            scene.undone(1, 2);
        } else {
            scene.committed(1, scene.all());
            assert!(either(&scene, &before, &after, at));
            scene.undone(1, 2);
        }
        assert_eq!(snapshot(&scene.host), before, "call {at}");
    }
    eprintln!("{points} points of a commit");
    assert!(points > 90, "{points}");
}

#[test]
fn an_undo_killed_at_any_call_is_before_or_after() {
    let mut points = 0;
    for at in sampled(1) {
        let scene = Scene::quick(HOST);
        scene.agent(AGENT);
        let original = snapshot(&scene.host);
        scene.committed(1, scene.all());
        let committed = snapshot(&scene.host);
        let (outcome, reached) = interrupted(at, Verdict::Kill, || scene.undo(1, 2));
        if !reached {
            assert!(
                matches!(outcome, Ok(Outcome::Committed { .. })),
                "{outcome:?}"
            );
            break;
        }
        points += 1;
        scene.recover();
        if !either(&scene, &committed, &original, at) {
            scene.undone(1, 2);
        }
        assert_eq!(snapshot(&scene.host), original, "call {at}");
        scene.undone(2, 3);
        assert_eq!(snapshot(&scene.host), committed, "call {at}");
    }
    eprintln!("{points} points of an undo");
}

#[test]
fn recovery_itself_may_be_killed_at_any_call() {
    // While things are prepared, while they are published, and after the point of no return.
    for first in [60, 78, 85, 94] {
        for at in sampled(2) {
            let scene = Scene::quick(HOST);
            scene.agent(AGENT);
            let (before, after) = (snapshot(&scene.host), snapshot(&scene.agent));
            let (_, reached) = interrupted(first, Verdict::Kill, || scene.commit(1, scene.all()));
            assert!(reached);
            let calls = Count::default();
            let counted = calls.clone();
            let hook = move |_call| {
                if counted.up() == at {
                    Verdict::Kill
                } else {
                    Verdict::Pass
                }
            };
            let _ = seam::with(hook, || {
                pvisor::commit::recover(&scene.layers, &scene.store)
            });
            scene.recover();
            let is_after = either(&scene, &before, &after, at);
            if calls.get() < at {
                break;
            }
            if !is_after {
                scene.committed(1, scene.all());
            }
            scene.undone(1, 2);
            assert_eq!(snapshot(&scene.host), before, "{first}, then {at}");
        }
    }
}

#[test]
fn a_call_that_fails_refuses_the_batch_or_is_settled_later() {
    for (first, errno) in [(3, nix::libc::EIO), (5, nix::libc::ENOSPC)] {
        for at in sampled(first) {
            let scene = Scene::quick(HOST);
            scene.agent(AGENT);
            let (before, after) = (snapshot(&scene.host), snapshot(&scene.agent));
            let (outcome, reached) =
                interrupted(at, Verdict::Fail(errno), || scene.commit(1, scene.all()));
            if !reached {
                break;
            }
            match &outcome {
                Ok(Outcome::Refused { refusals }) => {
                    assert!(!refusals.is_empty());
                    assert!(!either(&scene, &before, &after, at), "call {at}");
                }
                Err(_) => assert!(!either(&scene, &before, &after, at), "call {at}"),
                Ok(Outcome::Committed { .. }) => assert!(either(&scene, &before, &after, at)),
                Ok(Outcome::Unsettled { ledger, .. }) => assert!(ledger.exists(), "call {at}"),
                other => panic!("call {at}: {other:?}"),
            }
            scene.recover();
            if !either(&scene, &before, &after, at) {
                scene.committed(1, scene.all());
            }
            scene.undone(1, 2);
            assert_eq!(snapshot(&scene.host), before, "call {at}");
        }
    }
}

/// Makes every exchange, and every rename that must not replace, fail as on such a file system.
fn without_flags(call: &'static str) -> Verdict {
    if call == "exchange" || call == "rename" {
        Verdict::Fail(nix::libc::EINVAL)
    } else {
        Verdict::Pass
    }
}

#[test]
fn a_file_system_without_exchange_gets_the_second_best() {
    let scene = Scene::quick(HOST);
    scene.agent(AGENT);
    let before = snapshot(&scene.host);
    let outcome = seam::with(without_flags, || scene.commit(1, scene.all())).unwrap();
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    assert_eq!(snapshot(&scene.host), snapshot(&scene.agent));
    let outcome = seam::with(without_flags, || scene.undo(1, 2)).unwrap();
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    assert_eq!(snapshot(&scene.host), before);
}

#[test]
fn the_second_best_survives_a_kill_as_well() {
    for at in sampled(4) {
        let scene = Scene::quick(HOST);
        scene.agent(AGENT);
        let (before, after) = (snapshot(&scene.host), snapshot(&scene.agent));
        let calls = Count::default();
        let counted = calls.clone();
        let outcome = seam::with(
            move |call| {
                if counted.up() == at {
                    Verdict::Kill
                } else {
                    without_flags(call)
                }
            },
            || scene.commit(1, scene.all()),
        );
        if calls.get() < at {
            assert!(
                matches!(outcome, Ok(Outcome::Committed { .. })),
                "{outcome:?}"
            );
            break;
        }
        scene.recover();
        if !either(&scene, &before, &after, at) {
            scene.committed(1, scene.all());
        }
        scene.undone(1, 2);
        assert_eq!(snapshot(&scene.host), before, "call {at}");
    }
}

/// A scene whose store lies on another file system; `None` where there is none.
fn apart() -> Option<(Scene, tempfile::TempDir)> {
    use std::os::unix::fs::MetadataExt;
    let elsewhere = tempfile::tempdir_in("/dev/shm").ok()?;
    let mut scene = Scene::new(HOST);
    let device = |path: &std::path::Path| path.metadata().map(|meta| meta.dev()).ok();
    if device(elsewhere.path()) == device(&scene.host) {
        return None;
    }
    scene.store = elsewhere.path().join("commits");
    scene.agent(AGENT);
    Some((scene, elsewhere))
}

#[test]
fn a_store_on_another_file_system_survives_a_kill_as_well() {
    let (mut committing, mut undoing) = (0, 0);
    for undo in [false, true] {
        let step = if crate::thorough() { 1 } else { 17 };
        for at in (1..).step_by(step) {
            let Some((scene, _elsewhere)) = apart() else {
                eprintln!("skipped: /dev/shm is no other file system");
                return;
            };
            let original = snapshot(&scene.host);
            let mut before = original.clone();
            let mut after = snapshot(&scene.agent);
            if undo {
                scene.committed(1, scene.all());
                (before, after) = (after, before);
            }
            let (_, reached) = interrupted(at, Verdict::Kill, || {
                if undo {
                    scene.undo(1, 2)
                } else {
                    scene.commit(1, scene.all())
                }
            });
            if !reached {
                break;
            }
            *(if undo { &mut undoing } else { &mut committing }) += 1;
            scene.recover();
            let is_after = either(&scene, &before, &after, at);
            match (undo, is_after) {
                (false, false) => {
                    scene.committed(1, scene.all());
                    scene.undone(1, 2);
                }
                (false, true) | (true, false) => scene.undone(1, 2),
                (true, true) => {}
            }
            assert_eq!(snapshot(&scene.host), original, "undo {undo}, call {at}");
        }
    }
    eprintln!("store elsewhere: {committing} points of a commit, {undoing} of an undo");
}

/// What a power loss may undo: a name that was not synced before the other file system forgets the
/// original, and an original's end before the ledger says that there is none.
#[test]
fn two_file_systems_are_written_in_the_order_that_a_power_loss_needs() {
    let Some((scene, _elsewhere)) = apart() else {
        eprintln!("skipped: /dev/shm is no other file system");
        return;
    };
    let calls: Arc<Mutex<Vec<&str>>> = Arc::default();
    let seen = calls.clone();
    let outcome = seam::with(
        move |call| {
            seen.lock().unwrap().push(call);
            Verdict::Pass
        },
        || scene.commit(1, scene.all()),
    );
    assert!(
        matches!(outcome, Ok(Outcome::Committed { .. })),
        "{outcome:?}"
    );
    let calls = calls.lock().unwrap();
    let last = |call: &str| calls.iter().rposition(|c| *c == call).unwrap();
    let mut named = false;
    let mut removed = 0;
    // Committed is the last thing the ledger was told; what comes then is settlement.
    for call in &calls[last("ledger")..] {
        match *call {
            "rename" => named = true,
            // The ledger's own fsync comes before the first of them.
            "fsync" => named = false,
            "unlink" | "rmdir" => {
                assert!(!named, "an original goes before its copy's name is synced");
                removed += 1;
            }
            _ => {}
        }
    }
    assert!(removed > 5, "{removed}");
    let ends = last("unlink").max(last("rmdir"));
    let close = last("ledger-rename");
    assert!(
        calls[ends..close].contains(&"syncfs"),
        "{:?}",
        &calls[ends..]
    );
}
