//! Other programs at work on the host while a commit runs: no save is lost, nothing is written
//! outside.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;

use pvisor::commit::seam::{self, Verdict};
use pvisor::commit::{Outcome, Settled};

use super::scene::{Scene, refusals, snapshot};

/// Runs `save` right before the commit's first call named `call`, and the commit around it.
fn saved_before(scene: &Scene, call: &'static str, save: impl Fn() + Send + 'static) -> Outcome {
    let done = Cell::new(false);
    seam::with(
        move |now| {
            if now == call && !done.replace(true) {
                save();
            }
            Verdict::Pass
        },
        || scene.commit(1, scene.all()),
    )
    .unwrap()
}

fn file(scene: &Scene, name: &str) -> PathBuf {
    scene.host.join(name)
}

#[test]
fn a_save_at_any_moment_before_the_exchange_wins() {
    // By rename right before the exchange, in place right after preparation.
    for (call, by_rename) in [("exchange", true), ("syncfs", true), ("syncfs", false)] {
        let scene = Scene::new("echo 1 > f; echo 2 > a; echo 3 > z");
        scene.agent("echo agent > f; echo agent > a; rm z; echo n > n");
        let path = file(&scene, "f");
        // The first exchange is that of `a`; the save to `f` comes before its own.
        let outcome = saved_before(&scene, call, move || {
            if by_rename {
                let other = path.with_extension("new");
                fs::write(&other, "person").unwrap();
                fs::rename(&other, &path).unwrap();
            } else {
                fs::write(&path, "person").unwrap();
            }
        });
        let refused = refusals(outcome);
        assert_eq!(
            refused,
            ["f: the host's file was changed meanwhile"],
            "{call}"
        );
        assert_eq!(scene.read("f"), "person");
        assert_eq!(
            (scene.read("a"), scene.read("z")),
            ("2\n".into(), "3\n".into())
        );
        assert_eq!(fs::read_dir(&scene.host).unwrap().count(), 3);
    }
}

#[test]
fn a_save_between_the_last_look_and_the_exchange_is_exchanged_back() {
    let scene = Scene::new("echo 1 > f");
    scene.agent("echo agent > f");
    let path = file(&scene, "f");
    let outcome = saved_before(&scene, "exchange", move || {
        let other = path.with_extension("new");
        fs::write(&other, "person").unwrap();
        fs::rename(&other, &path).unwrap();
    });
    refusals(outcome);
    assert_eq!(scene.read("f"), "person");
    assert_eq!(fs::read_dir(&scene.host).unwrap().count(), 1);
}

#[test]
fn a_new_entry_of_somebody_else_is_never_overwritten() {
    let scene = Scene::new("echo 1 > f");
    scene.agent("echo agent > n; mkdir d; echo agent > d/n");
    let (name, dir) = (file(&scene, "n"), file(&scene, "d"));
    let outcome = saved_before(&scene, "rename", move || {
        fs::write(&name, "person").unwrap();
        fs::create_dir(&dir).unwrap();
    });
    refusals(outcome);
    assert_eq!(scene.read("n"), "person");
    assert_eq!(fs::read_dir(file(&scene, "d")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(&scene.host).unwrap().count(), 3);
}

#[test]
fn an_edit_after_publication_stays_when_the_batch_is_rolled_back() {
    let scene = Scene::new("echo 1 > a; echo 2 > b");
    scene.agent("echo agent > a; echo agent > b");
    let (a, b) = (file(&scene, "a"), file(&scene, "b"));
    let exchanges = Cell::new(0);
    let outcome = seam::with(
        move |call| {
            if call == "exchange" {
                exchanges.set(exchanges.get() + 1);
                if exchanges.get() == 2 {
                    // Somebody edits what was just published, somebody else saves the next one.
                    fs::write(&a, "newest").unwrap();
                    let other = b.with_extension("new");
                    fs::write(&other, "person").unwrap();
                    fs::rename(&other, &b).unwrap();
                }
            }
            Verdict::Pass
        },
        || scene.commit(1, scene.all()),
    )
    .unwrap();
    let refused = refusals(outcome);
    assert_eq!(
        (scene.read("a"), scene.read("b")),
        ("newest".into(), "person".into())
    );
    assert_eq!(refused[0], "b: the host's file was changed meanwhile");
    let kept = refused[1]
        .strip_prefix("a: it was edited after it had been written, and that edit stays; what was there before is kept as ")
        .unwrap();
    assert_eq!(fs::read_to_string(kept).unwrap(), "1\n");
    assert_eq!(fs::read_dir(&scene.host).unwrap().count(), 2);
}

#[test]
fn a_directory_swapped_for_a_link_takes_nothing_outside() {
    let outside = tempfile::tempdir().unwrap();
    for call in ["create", "syncfs", "exchange", "rename"] {
        let scene = Scene::new("mkdir d; echo 1 > d/f; echo 2 > d/g");
        scene.agent("echo agent > d/f; rm d/g; echo n > d/n");
        let (before, after) = (snapshot(&scene.host), snapshot(&scene.agent));
        let (dir, away) = (file(&scene, "d"), file(&scene, "away"));
        let target = outside.path().to_owned();
        let outcome = {
            let (dir, away) = (dir.clone(), away.clone());
            saved_before(&scene, call, move || {
                fs::rename(&dir, &away).unwrap();
                std::os::unix::fs::symlink(&target, &dir).unwrap();
            })
        };
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "{call}");
        assert!(
            matches!(outcome, Outcome::Refused { .. } | Outcome::Unsettled { .. }),
            "{call}: {outcome:?}"
        );
        fs::remove_file(&dir).unwrap();
        fs::rename(&away, &dir).unwrap();
        let forward = scene
            .recover()
            .iter()
            .any(|one| one.outcome == Settled::RolledForward);
        let expected = if forward { after } else { before };
        assert_eq!(snapshot(&scene.host), expected, "{call}");
    }
}

#[test]
fn real_editors_lose_no_save() {
    use std::sync::atomic::{AtomicBool, Ordering};
    for style in 0..3 {
        for round in (0..40).step_by(if crate::thorough() { 1 } else { 6 }) {
            let scene = Scene::new("echo base > f");
            scene.agent("echo agent > f");
            let path = file(&scene, "f");
            let started = AtomicBool::new(false);
            let (outcome, saved) = std::thread::scope(|threads| {
                let editor = threads.spawn(|| {
                    while !started.load(Ordering::Acquire) {
                        std::hint::spin_loop();
                    }
                    for _ in 0..round * 40 {
                        std::hint::spin_loop();
                    }
                    save(&path, style)
                });
                let approved = scene.all();
                let changes = scene.changes();
                started.store(true, Ordering::Release);
                let outcome = scene.run(1, approved, &changes, pvisor::commit::commit);
                (outcome.unwrap(), editor.join().unwrap())
            });
            assert!(saved);
            let now = scene.read("f");
            let kept = fs::read_to_string(scene.store.join("1/pre/0")).unwrap_or_default();
            assert!(
                now == "person" || kept == "person",
                "style {style}, round {round}: {now:?}, {kept:?}, {outcome:?}"
            );
            assert_eq!(fs::read_dir(&scene.host).unwrap().count(), 1);
        }
    }
}

/// Saves "person" as different editors do.
fn save(path: &std::path::Path, style: u32) -> bool {
    use std::os::unix::fs::FileExt;
    match style {
        0 => fs::write(path, "person").is_ok(),
        1 => {
            let other = path.with_extension("new");
            fs::write(&other, "person").is_ok() && fs::rename(&other, path).is_ok()
        }
        _ => {
            let Ok(file) = fs::OpenOptions::new().write(true).open(path) else {
                return false;
            };
            file.write_all_at(b"person", 0).is_ok() && file.set_len(6).is_ok()
        }
    }
}
