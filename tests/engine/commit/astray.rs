//! Somebody moves a directory away while a commit works in it, or after it was killed there: what was
//! begun is never taken for settled, and once the directory is back it is exactly before or after.

use std::fs;

use pvisor::commit::seam::{self, Verdict};
use pvisor::commit::{self, CommitError, Outcome};

use super::scene::{Count, Scene, Snapshot, snapshot};

const HOST: &str = "
    mkdir -p d/e/f d/g; for i in a b c r m; do echo $i > d/$i; done; echo e > d/e/e; echo f > d/e/f/f
    echo g > d/g/g; echo top > top";
const AGENT: &str = "
    echo A > d/a; echo B > d/b; rm d/c; mv d/r d/s; chmod 600 d/m; rm -r d/e; echo n > d/n
    echo G > d/g/g; mkdir d/new; echo n > d/new/n; echo TOP > top";

/// Does `act` at call number `at` of `body`; whether that call was reached.
fn at_call<R>(
    at: usize,
    act: impl Fn() -> Verdict + Send + 'static,
    body: impl FnOnce() -> R,
) -> (R, bool) {
    let calls = Count::default();
    let counted = calls.clone();
    let hook = move |_call| {
        if counted.up() == at {
            act()
        } else {
            Verdict::Pass
        }
    };
    let outcome = seam::with(hook, body);
    (outcome, calls.get() >= at)
}

/// Whether it says that the directory is to be moved back.
fn is_waiting(outcome: &Result<Outcome, CommitError>) -> bool {
    matches!(outcome, Ok(Outcome::Unsettled { reason, .. })
        if reason.contains("was moved to moved"))
}

fn either(scene: &Scene, before: &Snapshot, after: &Snapshot, at: usize) -> bool {
    let now = snapshot(&scene.host);
    assert!(now == *before || now == *after, "call {at}: {now:#?}");
    now == *after
}

#[test]
fn a_directory_that_is_moved_away_meanwhile_is_waited_for() {
    let mut waited = 0;
    for at in 1.. {
        let scene = Scene::quick(HOST);
        scene.agent(AGENT);
        let (before, after) = (snapshot(&scene.host), snapshot(&scene.agent));
        let (from, to) = (scene.host.join("d"), scene.host.join("moved"));
        let away = (from.clone(), to.clone());
        let (outcome, reached) = at_call(
            at,
            move || {
                fs::rename(&away.0, &away.1).unwrap();
                Verdict::Pass
            },
            || scene.commit(1, scene.all()),
        );
        if !reached {
            break;
        }
        fs::rename(&to, &from).unwrap();
        if is_waiting(&outcome) {
            waited += 1;
        } else {
            let done = matches!(outcome, Ok(Outcome::Committed { .. }));
            let kept = matches!(outcome, Ok(Outcome::Refused { .. }));
            assert!(done || kept, "call {at}: {outcome:?}");
            assert_eq!(either(&scene, &before, &after, at), done, "call {at}");
        }
        let settled = scene.recover();
        assert_eq!(
            settled.len(),
            usize::from(is_waiting(&outcome)),
            "call {at}"
        );
        if either(&scene, &before, &after, at) {
            scene.undone(1, 2);
        } else {
            scene.committed(1, scene.all());
            assert!(either(&scene, &before, &after, at));
            scene.undone(1, 2);
        }
        assert_eq!(snapshot(&scene.host), before, "call {at}: undone");
    }
    assert!(waited > 20, "{waited}");
}

#[test]
fn a_directory_that_is_moved_away_after_a_kill_is_waited_for() {
    let mut waited = 0;
    for at in 1.. {
        let scene = Scene::quick(HOST);
        scene.agent(AGENT);
        let (before, after) = (snapshot(&scene.host), snapshot(&scene.agent));
        let (from, to) = (scene.host.join("d"), scene.host.join("moved"));
        let (_, reached) = at_call(at, || Verdict::Kill, || scene.commit(1, scene.all()));
        if !reached {
            break;
        }
        fs::rename(&from, &to).unwrap();
        // Another directory of that name is not taken for it.
        fs::create_dir(&from).unwrap();
        let told = commit::recover(&scene.layers, &scene.store);
        fs::remove_dir(&from).unwrap();
        fs::rename(&to, &from).unwrap();
        match told {
            Err(error) => {
                assert!(error.to_string().contains("was moved to moved"), "{error}");
                waited += 1;
                assert_eq!(scene.recover().len(), 1, "call {at}");
            }
            Ok(settled) => assert!(settled.iter().all(|one| one.kept.is_empty()), "call {at}"),
        }
        either(&scene, &before, &after, at);
    }
    assert!(waited > 20, "{waited}");
}

#[test]
fn a_directory_that_is_gone_for_good_is_named() {
    let scene = Scene::quick(HOST);
    scene.agent(AGENT);
    let calls = Count::default();
    let hook = move |call: &'static str| {
        if call == "exchange" && calls.up() == 2 {
            Verdict::Kill
        } else {
            Verdict::Pass
        }
    };
    let _ = seam::with(hook, || scene.commit(1, scene.all()));
    fs::remove_dir_all(scene.host.join("d")).unwrap();
    let settled = scene.recover();
    assert_eq!(scene.read("top"), "top\n");
    let kept: Vec<String> = settled[0].kept.iter().map(|r| r.key.to_string()).collect();
    assert_eq!(kept, ["d", "d/g"]);
    let told = settled[0].describe();
    assert!(
        told.contains("as before it, but not at d and 1 more"),
        "{told}"
    );
    assert!(scene.recover().is_empty());
}

#[test]
fn what_was_taken_away_from_its_temporary_name_is_named() {
    let scene = Scene::quick("echo 1 > a; echo 2 > b");
    scene.agent("echo one > a; echo two > b");
    let outcome = {
        let host = scene.host.clone();
        let calls = Count::default();
        // Both are exchanged, then the host's old ones are removed, then the commit fails.
        let hook = move |call: &'static str| {
            if call == "syncfs" && calls.up() == 2 {
                for entry in fs::read_dir(&host).unwrap().flatten() {
                    if entry.file_name().to_string_lossy().starts_with(".pvisor") {
                        fs::remove_file(entry.path()).unwrap();
                    }
                }
                return Verdict::Fail(nix::libc::EIO);
            }
            Verdict::Pass
        };
        seam::with(hook, || scene.commit(1, scene.all())).unwrap()
    };
    let Outcome::Unsettled { reason, .. } = outcome else {
        panic!("{outcome:?}");
    };
    for name in [
        "a: it stays as it was written",
        "b: it stays as it was written",
    ] {
        assert!(reason.contains(name), "{reason}");
    }
    assert_eq!(scene.read("a") + &scene.read("b"), "one\ntwo\n");
}
