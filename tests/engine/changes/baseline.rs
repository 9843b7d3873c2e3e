//! What the changes are measured against: the host's edits, commits and the next command.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::{Review, rows};
use crate::layers::rel;
use pvisor::LayerPath;
use pvisor::change::{Conflict, Tracker};
use pvisor::layer::StageAccess;

#[test]
fn the_hosts_edits_are_conflicts_where_they_meet_the_agents_and_else_nothing() {
    let Some(mut review) = Review::new(
        "echo aaaa > f; echo 1 > g; mkdir d; echo 1 > d/x; touch -d 2020-01-01 f; echo 1 > m; echo 1 > k; echo 1 > s",
    ) else {
        return;
    };
    review.stage.agent(
        "cat g > /dev/null; echo bbbb > f; rm -r d; echo nnn > n; echo 2 > m; rm k; echo 2 > s",
    );
    let expected = review.rows();
    assert_eq!(
        expected,
        [
            "deleted d",
            "deleted d/x",
            "modified f",
            "deleted k",
            "modified m",
            "added n",
            "modified s"
        ]
    );
    assert!(review.scan().iter().all(|c| c.conflict.is_none()));
    // Same size, same time; and another file.
    review
        .stage
        .host("echo cccc > f; touch -d 2020-01-01 f; echo 2 > g");
    assert_eq!(review.conflict("f"), Some(Conflict::HostModified));
    review
        .stage
        .host("echo host > n; echo e > d/ext; chmod 600 m; rm k; ln -sf f s");
    assert_eq!(review.conflict("n"), Some(Conflict::HostCreated));
    assert_eq!(
        review.conflict("d"),
        Some(Conflict::HostAddedInside { path: rel("d/ext") })
    );
    assert_eq!(review.conflict("m"), Some(Conflict::HostModified));
    assert_eq!(review.conflict("s"), Some(Conflict::HostTypeChanged));
    // Both removed k: there is nothing left to decide. Nobody claims g.
    let without_k: Vec<String> = expected.into_iter().filter(|r| r != "deleted k").collect();
    assert_eq!(review.rows(), without_k);
    review.stage.host("rm m");
    assert_eq!(review.conflict("m"), Some(Conflict::HostDeleted));
    // The baseline's bytes are still there for a merge.
    let change = review.change("f");
    let access = review.stage.access();
    let contents = review.tracker.contents(&change, &access).expect("contents");
    assert_eq!(contents.before.as_deref(), Some(&b"aaaa\n"[..]));
    // What only looks touched is none: same bytes, other inode and times.
    review.stage.host("rm f; echo aaaa > f");
    assert_eq!(review.conflict("f"), None);
    // And when the host has the agent's version, there is no change.
    review.stage.host("echo bbbb > f");
    assert!(!review.rows().contains(&"modified f".to_owned()));
}

#[test]
fn a_host_edit_after_the_copy_up_and_before_the_first_look_is_a_conflict() {
    let Some(mut review) = Review::new("echo a > f; echo a > g") else {
        return;
    };
    review.stage.agent("echo b > f; echo b > g");
    review.stage.host("sleep 0.05; echo host > f");
    assert_eq!(review.conflict("f"), Some(Conflict::HostModified));
    assert_eq!(review.conflict("g"), None);
    // It stays one for the next server, until the agent's side is put back.
    review.tracker = Tracker::open(std::slice::from_ref(&review.stage.layer)).expect("open");
    assert_eq!(review.conflict("f"), Some(Conflict::HostModified));
    review.stage.unmount();
    review
        .stage
        .access()
        .restore("workspace", &rel("f"))
        .expect("restore");
    assert_eq!(review.rows(), ["modified g"]);
}

#[test]
fn commits_while_the_agent_runs_move_the_baseline() {
    let Some(mut review) = Review::new("mkdir old; echo 1 > old/f; echo 1 > top") else {
        return;
    };
    review.stage.agent("mkdir -p new/deep; echo a > new/a; echo b > new/deep/b; echo c > new/deep/c; echo 2 > old/f; echo n > old/n; echo 2 > top; echo t > t");
    review.commit_all();
    assert_eq!(review.rows(), Vec::<String>::new());
    // In a directory of the agent's own no whiteout is left behind; in a merged one it is.
    review
        .stage
        .agent("rm new/a old/n t; echo more >> new/deep/b; echo 3 > old/f; mv new/deep/c new/c2");
    assert_eq!(
        review.rows(),
        [
            "deleted new/a",
            "renamed new/deep/c -> new/c2",
            "modified new/deep/b",
            "modified old/f",
            "deleted old/n",
            "deleted t"
        ]
    );
    let change = review.change("new/deep/b");
    let access = review.stage.access();
    let contents = review.tracker.contents(&change, &access).expect("contents");
    assert_eq!(contents.before.as_deref(), Some(&b"b\n"[..]));
    // The next server knows as much.
    review.tracker = Tracker::open(std::slice::from_ref(&review.stage.layer)).expect("open");
    assert!(review.scan().iter().all(|c| c.conflict.is_none()));
    assert_eq!(review.rows().len(), 6);
    review.commit_all();
    assert_eq!(review.rows(), Vec::<String>::new());
    // The whole directory goes; the host's own file in it stands in the way.
    review.stage.agent("rm -r new");
    assert_eq!(
        review.rows(),
        [
            "deleted new",
            "deleted new/c2",
            "deleted new/deep",
            "deleted new/deep/b"
        ]
    );
    assert!(review.scan().iter().all(|c| c.conflict.is_none()));
    review.stage.host("echo mine > new/deep/mine");
    assert_eq!(
        review.conflict("new"),
        Some(Conflict::HostAddedInside {
            path: rel("new/deep/mine")
        })
    );
}

#[test]
fn the_next_command_sees_what_the_last_one_left() {
    let Some(mut review) = Review::new("echo 1 > f") else {
        return;
    };
    review.stage.agent("mkdir -p new/deep; echo a > new/a; echo b > new/deep/b; mkdir locked; echo l > locked/l; chmod 555 locked");
    review.commit_all();
    review.stage.host("echo host > new/host");
    review.stage.agent("rm new/a new/deep/b");
    let left = ["deleted new/a", "deleted new/deep/b"];
    assert_eq!(
        review.rows(),
        left,
        "what the host added is not the agent's deletion"
    );
    review.stage.unmount();
    let access = review.stage.access();
    review.tracker.seal(&access).expect("seal");
    assert_eq!(
        fs::metadata(review.stage.layer.upper().join("locked"))
            .expect("stat")
            .mode()
            & 0o777,
        0o555
    );
    assert!(review.stage.mount());
    assert_eq!(
        review.stage.agent("find new | sort; cat locked/l"),
        "new\nnew/deep\nl\n"
    );
    assert_eq!(review.rows(), left);
    review.stage.agent("echo again > new/a");
    assert_eq!(review.rows(), ["modified new/a", "deleted new/deep/b"]);
}

#[test]
fn what_a_commit_undid_is_a_change_again() {
    let Some(mut review) = Review::new("mkdir -p d/s; echo 1 > d/s/f; echo 1 > d/g; echo 1 > m")
    else {
        return;
    };
    review.stage.host("cp -a . ../saved");
    review
        .stage
        .agent("rm -r d; echo 2 > m; mkdir -p n/k; echo n > n/k/n");
    let changes = review.scan();
    review.commit(&changes);
    assert_eq!(review.rows(), Vec::<String>::new());
    review.stage.host("rm -r ./*; cp -a ../saved/. .");
    let paths: Vec<LayerPath> = changes.iter().map(|c| c.key.clone()).collect();
    review.tracker.rebase(&paths).expect("rebase");
    assert_eq!(review.rows(), rows(&changes));
    assert!(review.scan().iter().all(|c| c.conflict.is_none()));
}

#[test]
fn what_was_put_back_is_listed_no_more() {
    let Some(mut review) =
        Review::new("mkdir -p d/s; echo a > d/s/f; echo g > d/g; echo x > x; echo t > t")
    else {
        return;
    };
    review
        .stage
        .agent("rm -r d; echo y > x; rm t; mkdir t; echo 1 > t/1; echo n > n");
    assert_eq!(review.scan().len(), 8);
    // The host moved on meanwhile: put back means as the host has it now.
    review.stage.host("echo newer > x");
    review.stage.unmount();
    for path in ["d", "x", "t", "n"] {
        review
            .stage
            .access()
            .restore("workspace", &rel(path))
            .expect("restore");
    }
    assert_eq!(review.rows(), Vec::<String>::new());
}
