//! Undo gives back what was there, byte for byte, and can itself be undone.

use pvisor::commit::CommitError;

use super::scene::{AGENT, HOST, Scene, refusals, sh, snapshot};

#[test]
fn undo_and_redo_are_exact() {
    let scene = Scene::new(HOST);
    let before = snapshot(&scene.host);
    scene.agent(AGENT);
    scene.committed(1, scene.all());
    let after = snapshot(&scene.host);
    scene.undone(1, 2);
    assert_eq!(snapshot(&scene.host), before);
    scene.undone(2, 3);
    assert_eq!(snapshot(&scene.host), after);
    scene.undone(3, 4);
    assert_eq!(snapshot(&scene.host), before);
    assert!(matches!(
        scene.undo(1, 5),
        Err(CommitError::AlreadyUndone(1))
    ));
    assert!(matches!(
        scene.undo(9, 5),
        Err(CommitError::NoSuchCommit(9))
    ));
}

#[test]
fn what_was_edited_after_the_commit_is_not_undone() {
    let scene = Scene::new("echo 1 > f; echo 2 > g; mkdir d; echo 3 > d/3");
    scene.agent("echo one > f; echo two > g; mkdir n; echo n > n/n; rm -r d");
    scene.committed(1, scene.all());
    scene.person("echo more >> f; echo late > n/late; mkdir d");
    let before = snapshot(&scene.host);
    let refused = refusals(scene.undo(1, 2).unwrap());
    assert_eq!(
        refused,
        [
            "d: the host has made an entry of this name meanwhile",
            "f: the host's file was changed meanwhile",
            "n: the host has added n/late in this directory meanwhile",
        ]
    );
    assert_eq!(snapshot(&scene.host), before);
    scene.person("printf 'one\\n' > f; rm n/late; rmdir d");
    scene.undone(1, 2);
    assert_eq!(scene.read("d/3"), "3\n");
}

#[test]
fn commits_are_undone_one_after_the_other() {
    let mut scene = Scene::new("echo 1 > f; mkdir d");
    let first = snapshot(&scene.host);
    scene.agent("echo 2 > f; echo a > d/a");
    scene.committed(1, scene.all());
    let second = snapshot(&scene.host);
    scene.rebase();
    scene.agent("echo 3 > f; mv d/a d/b; rm d/b");
    scene.committed(2, scene.all());
    // The older one is in the way of nothing only when the newer one is undone first.
    refusals(scene.undo(1, 3).unwrap());
    scene.undone(2, 3);
    assert_eq!(snapshot(&scene.host), second);
    scene.undone(1, 4);
    assert_eq!(snapshot(&scene.host), first);
}

#[test]
fn a_store_on_another_file_system_works_as_well() {
    let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("skipped: no /dev/shm");
        return;
    };
    let mut scene = Scene::new(HOST);
    scene.store = elsewhere.path().join("commits");
    let before = snapshot(&scene.host);
    scene.agent(AGENT);
    scene.committed(1, scene.all());
    assert_eq!(snapshot(&scene.host), snapshot(&scene.agent));
    let after = snapshot(&scene.host);
    scene.undone(1, 2);
    assert_eq!(snapshot(&scene.host), before);
    scene.undone(2, 3);
    assert_eq!(snapshot(&scene.host), after);
    sh(elsewhere.path(), "test -z \"$(find . -name '*.part')\"");
}

#[test]
fn the_order_of_directories_with_similar_names_does_not_matter() {
    // `a-b` sorts between `a` and `a/x`.
    let scene = Scene::new("mkdir a a-b; echo 1 > a/x; echo 2 > a-b/x; echo 3 > a.c");
    let before = snapshot(&scene.host);
    scene.agent(
        "rm -r a a-b a.c; mkdir b b-c; echo 1 > b/x; echo 22 > b-c/x; echo 33 > b.d; mkdir b/s",
    );
    scene.committed(1, scene.all());
    assert_eq!(snapshot(&scene.host), snapshot(&scene.agent));
    scene.undone(1, 2);
    assert_eq!(snapshot(&scene.host), before);
}

#[test]
fn undo_is_kept_for_the_last_commits_only() {
    let mut scene = Scene::new("echo 0 > f; mkdir d; echo 0 > d/f");
    for number in 1..=3 {
        scene.agent(&format!("echo {number} > f; echo {number} > d/f"));
        scene.committed(number, scene.all());
        scene.rebase();
    }
    pvisor::commit::prune(&scene.store, 3).unwrap();
    pvisor::commit::prune(&scene.store, 3).unwrap();
    for number in [1, 2] {
        assert!(!scene.store.join(format!("{number}/pre")).exists());
        let error = scene.undo(number, 4).unwrap_err();
        assert!(matches!(error, CommitError::KeptNoMore(n) if n == number));
        assert!(error.to_string().contains("cannot be undone any more"));
    }
    scene.undone(3, 4);
    assert_eq!(scene.read("f"), "2\n");
}
