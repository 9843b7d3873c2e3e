//! Saves that come at a random instant of a commit, or too late for it: none is lost, and one that
//! landed in a displaced inode is told and comes back with the undo.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use pvisor::commit::{self, Outcome};

use super::scene::{Scene, snapshot};

/// How an editor saves.
#[derive(Debug, Clone, Copy)]
enum Editor {
    Truncates,
    Renames,
    WritesInPlace,
}

/// As an editor does it; a file that is not there at this moment is tried again, as a person would.
fn save(path: &Path, editor: Editor) {
    let text = b"saved by a person\n";
    let done = match editor {
        Editor::Truncates => fs::write(path, text),
        Editor::Renames => {
            let other = path.with_extension("new");
            fs::write(&other, text).and_then(|()| fs::rename(&other, path))
        }
        Editor::WritesInPlace => OpenOptions::new().write(true).open(path).and_then(|file| {
            file.write_all_at(text, 0)?;
            file.set_len(text.len() as u64)
        }),
    };
    done.unwrap_or_else(|e| panic!("{editor:?}: {e}"));
}

/// Random, the same in every run.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn no_save_at_a_random_instant_is_lost() {
    const SAVED: &str = "saved by a person\n";
    let rounds = if crate::thorough() { 5_000 } else { 300 };
    let (mut refused, mut over, mut kept, mut lost) = (0, 0, 0, 0);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    // A commit's length is learnt as it goes: saves fall anywhere into it.
    let mut length = 3_000_000_u64;
    for round in 0..rounds {
        let editor = [Editor::Truncates, Editor::Renames, Editor::WritesInPlace][round % 3];
        let scene = Scene::new("echo base > f");
        fs::write(scene.agent.join("f"), "by the agent\n").unwrap();
        let (changes, approved) = (scene.changes(), scene.all());
        let path = scene.host.join("f");
        let (go, wait) = (AtomicBool::new(false), next(&mut random) % (length * 5 / 4));
        let took = AtomicU64::new(0);
        let outcome = std::thread::scope(|threads| {
            let person = threads.spawn(|| {
                while !go.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                let begun = Instant::now();
                while (begun.elapsed().as_nanos() as u64) < wait {
                    std::hint::spin_loop();
                }
                save(&path, editor);
            });
            go.store(true, Ordering::Release);
            let begun = Instant::now();
            let outcome = scene.run(1, approved, &changes, commit::commit).unwrap();
            took.store(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
            person.join().unwrap();
            outcome
        });
        length = (length * 7 + took.into_inner()) / 8;
        let late = commit::late_saves(&scene.store).unwrap();
        match &outcome {
            Outcome::Refused { .. } => refused += 1,
            Outcome::Committed { .. } if scene.read("f") == SAVED => over += 1,
            Outcome::Committed { .. } if !late.is_empty() => {
                kept += 1;
                assert_eq!(late[0].key.to_string(), "f");
                assert_eq!(fs::read_to_string(&late[0].kept).unwrap(), SAVED);
                scene.undone(1, 2);
            }
            other => panic!("round {round}, {editor:?}: {other:?}"),
        }
        if scene.read("f") != SAVED {
            lost += 1;
            eprintln!("round {round}, {editor:?}: {outcome:?}, {late:?}");
        }
        assert_eq!(
            fs::read_dir(&scene.host).unwrap().count(),
            1,
            "round {round}"
        );
    }
    eprintln!(
        "{rounds} saves: {lost} lost, {refused} refused the commit, {over} came over what was \
         committed, {kept} kept in the displaced inode"
    );
    assert_eq!(lost, 0);
}

/// A commit over a file that an editor of an uncommon kind has open: writes to it come afterwards.
fn saved_late(scene: &Scene, name: &str) {
    // The displaced inode itself, as whoever had opened it before would reach it.
    let pre = fs::read_dir(scene.store.join("1/pre")).unwrap();
    let displaced = pre
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.is_dir() || fs::read_to_string(path).is_ok_and(|text| text == "base\n"))
        .unwrap();
    let displaced = if displaced.is_dir() {
        displaced.join(name)
    } else {
        displaced
    };
    let mut file: File = OpenOptions::new().append(true).open(displaced).unwrap();
    file.write_all(b"late\n").unwrap();
}

#[test]
fn a_late_save_is_told_and_undo_brings_it_back() {
    for (host, agent, name, key) in [
        ("echo base > f; echo other > g", "echo agent > f", "f", "f"),
        ("echo base > f; echo other > g", "rm f", "f", "f"),
        (
            "mkdir d; echo base > d/f; echo other > g",
            "rm -r d; echo file > d",
            "f",
            "d/f",
        ),
    ] {
        let scene = Scene::new(host);
        scene.agent(agent);
        scene.committed(1, scene.all());
        assert!(commit::late_saves(&scene.store).unwrap().is_empty());
        saved_late(&scene, name);
        let late = commit::late_saves(&scene.store).unwrap();
        assert_eq!(late.len(), 1, "{late:?}");
        assert_eq!(
            (late[0].number, late[0].key.to_string()),
            (1, key.to_owned())
        );
        let told = late[0].describe();
        assert!(
            told.contains(key) && told.contains("undoing that commit"),
            "{told}"
        );
        // However many commits come after, what was saved is not given up.
        commit::prune(&scene.store, 9).unwrap();
        assert_eq!(commit::late_saves(&scene.store).unwrap(), late);
        scene.undone(1, 2);
        assert_eq!(scene.read(key), "base\nlate\n");
        assert!(commit::late_saves(&scene.store).unwrap().is_empty());
        scene.undone(2, 3);
        assert_eq!(snapshot(&scene.host), snapshot(&scene.agent));
    }
}

#[test]
fn a_touched_time_alone_is_no_late_save() {
    let scene = Scene::new("echo base > f");
    scene.agent("echo agent > f");
    scene.committed(1, scene.all());
    let displaced = File::options()
        .write(true)
        .open(scene.store.join("1/pre/0"))
        .unwrap();
    displaced
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    assert!(commit::late_saves(&scene.store).unwrap().is_empty());
    commit::prune(&scene.store, 9).unwrap();
    assert!(!scene.store.join("1/pre").exists());
}
