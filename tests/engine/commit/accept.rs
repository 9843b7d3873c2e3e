//! What was approved arrives, exactly.

use std::fs;
use std::os::unix::fs::MetadataExt;

use pvisor::commit::{Approved, Outcome, Selection};
use pvisor::diff::{ItemKind, ItemRef};

use super::scene::{AGENT, HOST, Scene, snapshot};

#[test]
fn everything_approved_gives_the_agents_tree() {
    let scene = Scene::new(HOST);
    scene.agent(AGENT);
    let planned = match scene.plan(scene.all()) {
        Outcome::Planned { paths, .. } => paths.iter().map(ToString::to_string).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let written = scene.committed(1, scene.all());
    assert_eq!(planned, written);
    assert!(written.contains(&"old-name".to_owned()) && written.contains(&"new-name".to_owned()));
    assert_eq!(snapshot(&scene.host), snapshot(&scene.agent));
}

#[test]
fn a_moved_directory_keeps_its_content_at_the_first_try() {
    // Also with the parent new, into another directory, and onto the name of a removed one.
    for script in [
        "mkdir k; mv e k/",
        "mv e d",
        "mv d/s d/t",
        "rm -r d/s",
        "rm -rf d; mv e d",
        "rm -rf d; mkdir -p d/s",
    ] {
        let scene = Scene::new("mkdir -p d/s e; echo 1 > d/s/o; echo 2 > e/n; echo 3 > d/g");
        scene.agent(script);
        scene.committed(1, scene.all());
        assert_eq!(snapshot(&scene.host), snapshot(&scene.agent), "{script}");
    }
}

#[test]
fn a_moved_file_stays_the_same_inode() {
    let scene = Scene::new("echo 1 > f; chmod 640 f; touch -d 2020-01-01 f");
    let before = fs::metadata(scene.host.join("f")).unwrap();
    scene.agent("mkdir k; mv f k/g; chmod 600 k/g");
    scene.committed(1, scene.all());
    let after = fs::metadata(scene.host.join("k/g")).unwrap();
    assert_eq!((after.ino(), after.mtime()), (before.ino(), before.mtime()));
    assert_eq!(after.mode() & 0o777, 0o600);
    scene.undone(1, 2);
    let back = fs::metadata(scene.host.join("f")).unwrap();
    assert_eq!((back.ino(), back.mode()), (before.ino(), before.mode()));
    assert!(!scene.host.join("k").exists());
}

#[test]
fn only_chosen_hunks_arrive_and_the_rest_can_follow() {
    let mut scene = Scene::new("seq 20 > f");
    scene.agent("sed -i -e 3s/3/three/ -e 17s/17/seventeen/ f; chmod +x f");
    let first = scene.approve_items("f", |index, _| index == 0);
    scene.committed(1, vec![first]);
    let expected: String = (1..=20)
        .map(|n| {
            if n == 3 {
                "three\n".into()
            } else {
                format!("{n}\n")
            }
        })
        .collect();
    assert_eq!(scene.read("f"), expected);
    assert_eq!(
        fs::metadata(scene.host.join("f")).unwrap().mode() & 0o111,
        0
    );
    scene.rebase();
    scene.committed(2, scene.all());
    assert_eq!(snapshot(&scene.host), snapshot(&scene.agent));
}

#[test]
fn only_the_mode_arrives_when_only_the_mode_is_chosen() {
    let scene = Scene::new("echo 1 > f; touch -d 2020-01-01 f");
    let mtime = fs::metadata(scene.host.join("f")).unwrap().mtime();
    scene.agent("echo 2 > f; chmod +x f");
    let mode = scene.approve_items("f", |_, kind| kind == ItemKind::Mode);
    scene.committed(1, vec![mode]);
    assert_eq!(scene.read("f"), "1\n");
    let after = fs::metadata(scene.host.join("f")).unwrap();
    assert_eq!((after.mode() & 0o111, after.mtime()), (0o111, mtime));
}

/// An access list says the group's bits of the mode too: neither can be had without the other.
#[test]
fn a_mode_and_an_access_list_arrive_together_and_without_the_rest() {
    let mut scene = Scene::new("seq 9 > f; chmod 600 f; seq 9 > g; chmod 600 g");
    scene.agent("sed -i s/4/four/ f; setfacl -m u:0:r,g::rwx,m::r,o::rx f g");
    let shown = |at: &std::path::Path| {
        let done = std::process::Command::new("getfacl")
            .args(["-c", "-p"])
            .arg(at)
            .output();
        String::from_utf8(done.unwrap().stdout).unwrap()
    };
    let kinds = |scene: &Scene, path| -> Vec<ItemKind> {
        let items = scene.change(path).items;
        items.iter().map(|item| item.kind).collect()
    };
    assert_eq!(kinds(&scene, "f"), [ItemKind::Hunk, ItemKind::Meta]);
    assert_eq!(kinds(&scene, "g"), [ItemKind::Meta]);
    let edit = scene.approve_items("f", |_, kind| kind == ItemKind::Hunk);
    scene.committed(1, vec![edit]);
    assert!(scene.read("f").contains("four"));
    let mode = fs::metadata(scene.host.join("f")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    scene.rebase();
    let rest = ["f", "g"].map(|name| scene.approve_items(name, |_, _| true));
    scene.committed(2, rest.into());
    for name in ["f", "g"] {
        let (host, agent) = (scene.host.join(name), scene.agent.join(name));
        assert_eq!(shown(&host), shown(&agent), "{name}");
    }
    assert_eq!(snapshot(&scene.host), snapshot(&scene.agent));
}

#[test]
fn an_edit_of_a_renamed_file_can_be_taken_without_the_rename() {
    let scene = Scene::new("seq 20 > old");
    scene.agent("mv old new");
    let mut change = scene.change("new");
    scene.agent("sed -i 3s/3/three/ new");
    // The row as a scan finds it: similar content under another name.
    let edited = scene.changes();
    let row = edited
        .values()
        .find(|c| c.key.path.as_bytes() == b"new")
        .unwrap();
    change.after = row.after.clone();
    let diff = pvisor::diff::diff(
        scene.read("old").as_bytes(),
        &fs::read(scene.agent.join("new")).unwrap(),
    );
    change.items = pvisor::diff::items(
        &change.kind,
        change.before.as_deref(),
        change.after.as_deref(),
        Some(&diff),
    );
    let hunk = change
        .items
        .iter()
        .find(|i| i.kind == ItemKind::Hunk)
        .unwrap();
    let whole = change
        .items
        .iter()
        .find(|i| i.kind == ItemKind::Whole)
        .unwrap();
    let edit = Approved {
        selection: Selection::Items(vec![ItemRef::from(hunk.id.clone())]),
        change: change.clone().into(),
    };
    scene.committed(1, vec![edit]);
    assert!(scene.read("old").contains("three\n") && !scene.host.join("new").exists());
    scene.undone(1, 2);
    let rename = Approved {
        selection: Selection::Items(vec![ItemRef::from(whole.id.clone())]),
        change: change.into(),
    };
    scene.committed(3, vec![rename]);
    assert!(scene.read("new").contains("\n3\n") && !scene.host.join("old").exists());
}

#[test]
fn new_parent_directories_join_with_the_agents_mode() {
    let scene = Scene::new("echo 1 > f");
    scene.agent("mkdir -p a/b; chmod 750 a/b; echo n > a/b/n; echo other > a/other");
    let written = scene.committed(1, scene.approve(&["a/b/n"]));
    assert_eq!(written, ["a", "a/b", "a/b/n"]);
    assert_eq!(scene.read("a/b/n"), "n\n");
    let mode = fs::metadata(scene.host.join("a/b")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o750);
    assert!(!scene.host.join("a/other").exists());
}

#[test]
fn a_removed_directory_stays_while_something_in_it_is_undecided() {
    let scene = Scene::new("mkdir d; echo 1 > d/1; echo 2 > d/2; mkdir d/e; echo 3 > d/e/3");
    scene.agent("rm -r d");
    let mut approved = scene.approve(&["d"]);
    approved.retain(|a| a.change.key.path.as_bytes() != b"d/2");
    let written = scene.committed(1, approved);
    assert_eq!(written, ["d/1", "d/e", "d/e/3"]);
    assert_eq!(fs::read_dir(scene.host.join("d")).unwrap().count(), 1);
    assert_eq!(scene.read("d/2"), "2\n");
}

#[test]
fn type_changes_carry_everything_below() {
    let scene = Scene::new("echo f > a; mkdir d; echo 1 > d/1; mkdir d/e; echo 2 > d/e/2");
    scene.agent("rm a; mkdir a; echo n > a/n; rm -r d; echo file > d");
    // The rows of what is lost below `d` join by themselves, as do none of `a`'s new children.
    let mut approved = scene.approve(&["a", "d"]);
    approved.retain(|a| a.change.key.path.depth() == 1);
    let written = scene.committed(1, approved);
    assert_eq!(written, ["a", "d", "d/1", "d/e", "d/e/2"]);
    assert_eq!(scene.read("d"), "file\n");
    assert_eq!(fs::read_dir(scene.host.join("a")).unwrap().count(), 0);
}

#[test]
fn links_are_replaced_themselves_and_nothing_is_written_through_them() {
    let outside = tempfile::tempdir().unwrap();
    let at = outside.path().display();
    let scene = Scene::new(&format!(
        "echo a > real; ln -s real l1; ln -s {at} hl; mkdir out"
    ));
    scene.agent(&format!(
        "ln -sfn /etc/hostname l1; rm -r out; ln -s {at} out; rm hl; mkdir hl; echo new > hl/f; echo b > real"
    ));
    // Only the link: its target's change does not come along.
    scene.committed(1, scene.approve(&["l1"]));
    assert_eq!(
        fs::read_link(scene.host.join("l1")).unwrap().as_os_str(),
        "/etc/hostname"
    );
    assert_eq!(scene.read("real"), "a\n");
    // Below a name that is still a link on the host nothing is written.
    let mut inner = scene.approve(&["hl"]);
    inner.retain(|a| a.change.key.path.as_bytes() == b"hl/f");
    let refused = scene.refused(2, inner);
    assert_eq!(refused.len(), 1);
    assert!(
        refused[0].starts_with("hl/f: hl is no directory on the host"),
        "{refused:?}"
    );
    scene.committed(2, scene.approve(&["hl", "out", "real"]));
    assert_eq!(snapshot(&scene.host), snapshot(&scene.agent));
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn attributes_and_acls_arrive_and_marks_of_the_stage_do_not() {
    let scene = Scene::new(
        "echo 1 > f; setfattr -n user.k -v 1 f; setfacl -m u:1502:r f; mkdir d; setfacl -d -m u:1502:r d",
    );
    scene.agent(
        "echo 2 >> f; setfattr -n user.n -v 2 f; echo n > d/n; setfacl -b d/n; chmod 644 d/n",
    );
    scene.committed(1, scene.all());
    assert_eq!(snapshot(&scene.host), snapshot(&scene.agent));
    let get = |name| xattr::get(scene.host.join("f"), name).unwrap();
    assert_eq!(get("user.k").unwrap(), b"1");
    assert_eq!(get("user.n").unwrap(), b"2");
    assert!(get("system.posix_acl_access").is_some());
    assert!(
        xattr::get(scene.host.join("d/n"), "system.posix_acl_access")
            .unwrap()
            .is_none()
    );
}

#[test]
fn holes_stay_holes() {
    let scene = Scene::new("echo 1 > f");
    scene.agent(
        "truncate -s 64M big; printf end | dd of=big bs=1 seek=33554432 conv=notrunc status=none",
    );
    scene.committed(1, scene.all());
    let meta = fs::metadata(scene.host.join("big")).unwrap();
    assert_eq!(meta.len(), 64 << 20);
    assert!(meta.blocks() * 512 <= 1 << 20, "{} blocks", meta.blocks());
    assert_eq!(snapshot(&scene.host), snapshot(&scene.agent));
}

#[test]
fn hard_links_of_the_agent_become_one_inode() {
    let scene = Scene::new("echo a > f; ln f g; echo x > lone");
    scene.agent("echo b >> f; ln f h; mkdir new; ln lone new/l; echo y > lone; ln f new/f");
    scene.committed(1, scene.all());
    let ino = |name: &str| fs::metadata(scene.host.join(name)).unwrap().ino();
    assert_eq!(ino("f"), ino("g"));
    assert_eq!(ino("f"), ino("h"));
    assert_eq!(ino("f"), ino("new/f"));
    assert_eq!(ino("lone"), ino("new/l"));
    assert_eq!(scene.read("g"), "a\nb\n");
    assert_eq!(snapshot(&scene.host), snapshot(&scene.agent));
}

#[test]
fn pipes_arrive_and_sockets_do_not() {
    let scene = Scene::new("mkfifo p");
    scene.agent("chmod 600 p; mkfifo q; python3 -c 'import socket as s; s.socket(1).bind(\"k\")'");
    let refused = scene.refused(1, scene.approve(&["k"]));
    assert_eq!(
        refused,
        ["k: a socket is never committed; reject it or leave it out"]
    );
    scene.committed(1, scene.approve(&["p", "q"]));
    assert!(!scene.host.join("k").exists());
    let mode = fs::symlink_metadata(scene.host.join("q")).unwrap().mode();
    assert_eq!(mode & nix::libc::S_IFMT, nix::libc::S_IFIFO);
}

#[test]
fn trees_deeper_than_a_path_can_be_long_are_committed_and_undone() {
    let deep = "mkdir top; cd top; for i in $(seq 120); do d=$(printf '%050d' $i); mkdir $d; cd $d; done; echo x > f";
    let scene = Scene::new("echo 1 > f");
    scene.agent(deep);
    // The fixture's own walk cannot go down there; rows are made by hand from the top.
    let count = || {
        let out = std::process::Command::new("find")
            .arg(&scene.host)
            .args(["-type", "f", "-printf", "x"])
            .output()
            .unwrap();
        out.stdout.len()
    };
    let before = count();
    let deepest = super::scene::deep_rows(&scene.agent);
    let deepest: Vec<_> = deepest.into_iter().map(std::sync::Arc::new).collect();
    let changes = deepest.iter().map(|c| (c.key.clone(), c.clone())).collect();
    let approved = deepest
        .into_iter()
        .map(|change| Approved {
            change,
            selection: Selection::Whole,
        })
        .collect();
    let outcome = scene
        .run(1, approved, &changes, pvisor::commit::commit)
        .unwrap();
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    assert_eq!(count(), before + 1);
    scene.undone(1, 2);
    assert_eq!(count(), before);
}

#[test]
fn read_only_directories_go_and_come_back() {
    let scene = Scene::new("mkdir -p ro/in; echo 1 > ro/in/f; chmod 555 ro/in ro");
    let before = snapshot(&scene.host);
    scene.agent("chmod -R u+w ro; rm -r ro; mkdir new; echo n > new/n; chmod 555 new");
    scene.committed(1, scene.all());
    assert_eq!(snapshot(&scene.host), snapshot(&scene.agent));
    scene.undone(1, 2);
    assert_eq!(snapshot(&scene.host), before);
    super::scene::sh(&scene.host, "chmod -R u+w .");
    super::scene::sh(&scene.store, "chmod -R u+w .");
    scene.agent("chmod -R u+w .");
}

#[test]
fn a_directory_that_is_opened_or_shut_by_the_batch_can_be_filled() {
    let scene = Scene::new("mkdir shut open; echo 1 > open/1; chmod 555 shut");
    let before = snapshot(&scene.host);
    scene.agent("chmod 755 shut; echo n > shut/n; echo n > open/n; rm open/1; chmod 555 open");
    scene.committed(1, scene.all());
    assert_eq!(snapshot(&scene.host), snapshot(&scene.agent));
    scene.undone(1, 2);
    assert_eq!(snapshot(&scene.host), before);
}

#[test]
fn shut_files_are_written_and_taken_back() {
    let elsewhere = tempfile::tempdir_in("/dev/shm").ok();
    for apart in [false, true] {
        let mut scene = Scene::new(
            "echo 1 > f; echo 2 > g; echo 3 > h; mkdir d; echo 4 > d/4; chmod 444 f g; chmod 400 h",
        );
        if let (true, Some(elsewhere)) = (apart, &elsewhere) {
            scene.store = elsewhere.path().join("commits");
        }
        let before = snapshot(&scene.host);
        scene.agent(
            "chmod u+w f g; echo one > f; setfattr -n user.k -v 1 f g; chmod 444 f g
             echo new > n; setfattr -n user.k -v 2 n; chmod 444 n; rm -f h; rm -r d",
        );
        scene.committed(1, scene.all());
        assert_eq!(snapshot(&scene.host), snapshot(&scene.agent));
        scene.undone(1, 2);
        assert_eq!(snapshot(&scene.host), before);
    }
}

#[test]
fn another_owners_file_keeps_its_owner_when_it_is_renamed() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can make another owner's file");
        return;
    }
    let scene = Scene::new("echo 1 > f; chown 1502:1502 f; mkdir d; echo 1 > d/g; chown -R 1502 d");
    scene.agent("mv f h; rm d/g");
    scene.committed(1, scene.all());
    let owner = |name: &str| {
        let meta = fs::metadata(scene.host.join(name)).unwrap();
        (meta.uid(), meta.gid())
    };
    assert_eq!(owner("h"), (1502, 1502));
    scene.undone(1, 2);
    assert_eq!((owner("f"), owner("d/g").0), ((1502, 1502), 1502));
}

#[test]
fn nothing_to_do_is_said() {
    let scene = Scene::new("echo 1 > f");
    assert_eq!(scene.commit(1, Vec::new()).unwrap(), Outcome::Nothing);
    assert!(!scene.store.exists());
}
