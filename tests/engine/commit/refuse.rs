//! What stands in the way is named, and nothing is written.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use pvisor::commit::Outcome;

use super::scene::{Scene, refusals, sh, snapshot};

#[test]
fn a_host_that_moved_is_a_conflict_and_every_one_is_named() {
    let scene = Scene::new(
        "echo aaaa > f; echo 1 > g; mkdir d; echo 1 > d/x; echo c > c; echo x > gone; echo t > t; touch -d 2020-01-01 f",
    );
    scene.agent("echo bbbb > f; rm -r d; echo 1 > n; echo c2 > c; echo y > gone; echo t2 > t");
    scene.person(
        "echo cccc > f; touch -d 2020-01-01 f; echo 2 > g; echo ext > d/ext; echo theirs > n; chmod +x c; rm gone; rm t; mkdir t",
    );
    assert_eq!(
        scene.refused(1, scene.all()),
        [
            "c: the host's file was changed meanwhile",
            "d: the host has added d/ext in this directory meanwhile",
            "f: the host's file was changed meanwhile",
            "gone: the host's entry was removed meanwhile",
            "n: the host has made an entry of this name meanwhile",
            "t: the host's entry is of another type now",
        ]
    );
}

#[test]
fn a_persons_edit_of_another_file_and_the_same_bytes_again_are_no_conflict() {
    let scene = Scene::new("echo 1 > f; echo 2 > g; mkdir d; echo 3 > d/3");
    scene.agent("echo one > f; echo 4 > d/4");
    scene.person("echo theirs > g; cp f tmp; mv tmp f; touch d/3; ln d/3 d/3b");
    scene.committed(1, scene.all());
    assert_eq!(scene.read("f"), "one\n");
    assert_eq!(scene.read("g"), "theirs\n");
    assert_eq!(scene.read("d/4"), "4\n");
}

#[test]
fn a_directory_that_became_a_file_keeps_the_hosts_late_edits() {
    let scene = Scene::new("echo f > a; mkdir d; echo 1 > d/1; echo 2 > d/2");
    scene.agent("rm a; mkdir a; echo n > a/n; rm -r d; echo file > d");
    scene.person("echo host >> d/2");
    assert_eq!(
        scene.refused(1, scene.all()),
        ["d/2: the host's file was changed meanwhile"]
    );
    scene.person("echo late > d/3");
    assert_eq!(
        scene.refused(1, scene.all()),
        [
            "d: the host has added d/3 in this directory meanwhile",
            "d/2: the host's file was changed meanwhile",
        ]
    );
    // Half of a type change is none.
    let mut child = scene.approve(&["a"]);
    child.retain(|a| a.change.key.path.as_bytes() == b"a/n");
    assert_eq!(
        scene.refused(1, child),
        ["a/n: a is no directory on the host; approve that change as well, or none below it"]
    );
}

#[test]
fn bytes_that_changed_since_they_were_approved_are_not_taken() {
    let scene = Scene::new("echo 1 > f; echo 1 > g");
    scene.agent("echo v1 > f; echo v1 > g; echo v1 > n");
    let approved = scene.all();
    for script in ["echo v2 > f", "rm n", "rm g; ln -s f g"] {
        scene.agent(script);
        let before = snapshot(&scene.host);
        let changes = scene.changes();
        let outcome = scene
            .run(1, approved.clone(), &changes, pvisor::commit::commit)
            .unwrap();
        let refused = refusals(outcome);
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(
            refused[0].ends_with("the agent changed it since it was approved; look at it again"),
            "{refused:?}"
        );
        assert_eq!(snapshot(&scene.host), before);
        scene.agent("rm -f f g n; echo v1 > f; echo v1 > g; echo v1 > n");
    }
}

#[test]
fn a_file_that_cannot_be_written_refuses_the_whole_batch() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can make a file immutable");
        return;
    }
    let scene = Scene::new("echo 1 > a; echo 2 > b; echo 3 > c; mkdir d; echo 4 > d/4; mkdir e");
    scene.agent("echo A > a; echo B > b; echo C > c; rm -r d; echo n > e/n");
    let flag = |op: &str, path: &str| {
        Command::new("chattr")
            .args([op, path])
            .current_dir(&scene.host)
            .status()
            .is_ok_and(|s| s.success())
    };
    if !flag("+i", "b") {
        eprintln!("skipped: this file system knows no immutable files");
        return;
    }
    flag("+a", "d/4");
    flag("+i", "e");
    let refused = scene.refused(1, scene.all());
    flag("-i", "b");
    flag("-a", "d/4");
    flag("-i", "e");
    assert_eq!(
        refused,
        [
            "b: it is immutable (`lsattr` shows it, `chattr` takes it off)",
            "d/4: it is append-only (`lsattr` shows it, `chattr` takes it off)",
            "e/n: its directory e is immutable",
        ]
    );
    scene.committed(1, scene.all());
    assert_eq!(snapshot(&scene.host), snapshot(&scene.agent));
}

#[test]
fn a_file_somebody_has_open_for_writing_is_busy() {
    let scene = Scene::new("echo 1 > f; echo 2 > g; mkdir d; echo 3 > d/3");
    scene.agent("echo A > f; echo B > g; rm -r d");
    let open = |path: &str| {
        fs::OpenOptions::new()
            .append(true)
            .custom_flags(nix::libc::O_CLOEXEC)
            .open(scene.host.join(path))
            .unwrap()
    };
    let writers = (open("g"), open("d/3"));
    let refused = scene.refused(1, scene.all());
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(refused[0].starts_with("d/3: a program on the host has it open for writing"));
    assert!(refused[1].starts_with("g: a program on the host has it open for writing"));
    drop(writers);
    scene.committed(1, scene.all());
}

#[test]
fn a_file_the_agent_is_writing_is_not_taken() {
    let scene = Scene::new("echo 1 > f");
    scene.agent("echo 2 > f; echo n > n");
    let writer = fs::OpenOptions::new()
        .append(true)
        .open(scene.agent.join("f"))
        .unwrap();
    assert_eq!(
        scene.refused(1, scene.all()),
        ["f: the agent has it open for writing; commit when it is done"]
    );
    drop(writer);
    scene.committed(1, scene.all());
}

#[test]
fn a_file_with_other_names_outside_the_batch_is_refused_by_name() {
    let scene = Scene::new("echo a > f; ln f g; ln f keep; echo z > z; ln z y");
    scene.agent("rm f; echo b > f; rm z");
    let refused = scene.refused(1, scene.approve(&["f"]));
    assert_eq!(refused.len(), 1);
    assert!(
        refused[0].starts_with("f: the host's file has 2 other names outside this batch"),
        "{refused:?}"
    );
    // Taking a name away cuts nothing off.
    scene.committed(1, scene.approve(&["z"]));
    assert_eq!(scene.read("y"), "z\n");
}

#[test]
fn a_full_disk_is_known_beforehand() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: mounting a small file system needs root");
        return;
    }
    let scene = Scene::new("mkdir small");
    let small = scene.host.join("small");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "none"])
        .arg(&small)
        .status()
        .is_ok_and(|s| s.success());
    if !mounted {
        eprintln!("skipped: no tmpfs can be mounted");
        return;
    }
    // A file system mounted inside the workspace is never written to.
    scene.agent("head -c 2000000 /dev/zero | tr '\\0' x > small/big");
    let inside = scene.commit(1, scene.all());
    // As the layer's own root it may be, within its size.
    let mut layers = scene.layers.clone();
    layers[0].root = small.clone();
    let agent = scene.agent.join("small");
    let row = {
        let mut change = scene.change("small/big");
        change.key.path = pvisor::RelPath::try_from("big").unwrap();
        std::sync::Arc::new(change)
    };
    let access = super::scene::Uppers(agent);
    let changes = [(row.key.clone(), row.clone())].into();
    let batch = pvisor::commit::Batch {
        layers: &layers,
        changes: &changes,
        approved: vec![pvisor::commit::Approved {
            change: row,
            selection: pvisor::commit::Selection::Whole,
        }],
        merged: &std::collections::BTreeMap::new(),
        access: &access,
        store: &scene.store,
        number: 1,
    };
    let full = pvisor::commit::commit(&batch);
    let left = fs::read_dir(&small).unwrap().count();
    sh(&scene.host, "umount small");
    let inside = refusals(inside.unwrap());
    assert_eq!(
        inside,
        ["small/big: another file system is mounted on its path"]
    );
    let full = refusals(full.unwrap());
    assert_eq!(full.len(), 1);
    assert!(
        full[0].starts_with("big: the batch needs 2002944 bytes"),
        "{full:?}"
    );
    assert_eq!(left, 0);
}

#[test]
fn an_ordinary_user_is_told_what_is_not_writable() {
    if nix::unistd::geteuid().is_root() {
        eprintln!("skipped: root may write everywhere");
        return;
    }
    let scene = Scene::new("mkdir d; echo 1 > d/1; echo 2 > f; chmod 555 d");
    scene.agent("chmod 755 d; echo x > d/1; chmod 555 d; echo y > f");
    let refused = scene.refused(1, scene.all());
    let dir = scene.host.join("d");
    assert_eq!(
        refused,
        [format!(
            "d/1: its directory d cannot be written: Permission denied (`chmod u+w {}`)",
            dir.display()
        )]
    );
}

#[test]
fn a_second_commit_to_the_same_place_waits_its_turn() {
    let scene = Scene::new("echo 1 > f");
    scene.agent("echo 2 > f");
    let root = fs::File::open(&scene.host).unwrap();
    let lock = nix::fcntl::Flock::lock(root, nix::fcntl::FlockArg::LockExclusive)
        .map_err(|(_, e)| e)
        .unwrap();
    std::thread::scope(|threads| {
        let committed = threads.spawn(|| scene.commit(1, scene.all()));
        assert_eq!(scene.read("f"), "1\n");
        drop(lock);
        let outcome = committed.join().unwrap().unwrap();
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    });
}
