//! What is a change, and of which kind.

use super::{Review, rows};
use crate::layers::rel;
use pvisor::change::{Conflict, Risk};

#[test]
fn the_main_jobs_changes_are_listed_exactly() {
    let Some(mut review) = Review::new(
        "echo a > a.txt; echo g > gone.txt; echo content > old.txt; echo s > s.sh; chmod 644 s.sh",
    ) else {
        return;
    };
    review.stage.agent("echo hi > b.txt; echo more >> a.txt; rm gone.txt; mv old.txt new.txt; chmod +x s.sh; ln -s a.txt l");
    assert_eq!(
        review.rows(),
        [
            "modified a.txt",
            "added b.txt",
            "deleted gone.txt",
            "added l",
            "renamed old.txt -> new.txt",
            "mode s.sh"
        ]
    );
    let changed = review.change("a.txt");
    assert_eq!(
        (changed.added, changed.removed, changed.binary),
        (1, 0, false)
    );
    let access = review.stage.access();
    let contents = review
        .tracker
        .contents(&changed, &access)
        .expect("contents");
    assert_eq!(contents.before.as_deref(), Some(&b"a\n"[..]));
    assert_eq!(contents.after.as_deref(), Some(&b"a\nmore\n"[..]));
}

#[test]
fn what_is_put_back_or_only_opened_is_no_change() {
    let Some(mut review) = Review::new(
        "mkdir -p d/s; echo a > d/s/f; echo b > g; echo c > h; chmod 600 h; echo e > e",
    ) else {
        return;
    };
    review.stage.agent("cp -p d/s/f keep; rm d/s/f; cp -p keep d/s/f; rm keep; exec 3<>g; exec 3<&-; touch d/s; chmod 644 h; chmod 600 h");
    assert_eq!(review.rows(), Vec::<String>::new());
    review.stage.agent("touch -d 2001-01-01 e; mkdir n; rmdir n; setfattr -n user.k -v v g || python3 -c 'import os; os.setxattr(\"g\", \"user.k\", b\"v\")'");
    assert_eq!(review.rows(), ["meta e", "meta g"]);
    // The times of a directory never count, its mode does.
    review.stage.agent("touch -d 2001-01-01 d; chmod 700 d/s");
    assert_eq!(review.rows(), ["mode d/s", "meta e", "meta g"]);
}

#[test]
fn a_rename_with_a_small_edit_is_one_row() {
    let Some(mut review) = Review::new(
        "seq 50 > old.txt; seq 100 200 > other; ln -s old.txt l; mkdir d; seq 1000 1100 > d/same; : > empty",
    ) else {
        return;
    };
    review.stage.agent("mv old.txt new.txt; sed -i 5s/5/five/ new.txt; mv l l2; mkdir e; mv d/same e/same; rmdir d; cp e/same aaa; rm empty; : > blank; rm other; echo x > unlike");
    assert_eq!(
        review.rows(),
        [
            "added aaa",
            "added blank",
            "deleted d",
            "added e",
            "renamed d/same -> e/same",
            "deleted empty",
            "renamed l -> l2",
            "renamed old.txt -> new.txt",
            "deleted other",
            "added unlike"
        ]
    );
    let change = review.change("new.txt");
    assert_eq!((change.added, change.removed), (1, 1));
    assert!(change.before.is_some() && change.after.is_some());
    let access = review.stage.access();
    let contents = review.tracker.contents(&change, &access).expect("contents");
    assert!(contents.before.expect("old").starts_with(b"1\n2\n"));
}

#[test]
fn a_type_change_lists_what_is_lost() {
    let Some(mut review) =
        Review::new("echo f > a; mkdir d; echo 1 > d/1; echo 2 > d/2; echo l > l")
    else {
        return;
    };
    review
        .stage
        .agent("rm a; mkdir a; echo n > a/n; rm -r d; echo file > d; rm l; ln -s d l");
    let expected = [
        "type a",
        "added a/n",
        "type d",
        "deleted d/1",
        "deleted d/2",
        "type l",
    ];
    assert_eq!(review.rows(), expected);
    assert!(review.scan().iter().all(|c| c.conflict.is_none()));
    review.stage.host("echo host >> d/2; echo late > d/3");
    assert_eq!(review.conflict("d/2"), Some(Conflict::HostModified));
    assert_eq!(review.conflict("d/1"), None);
    assert_eq!(
        review.conflict("d"),
        Some(Conflict::HostAddedInside { path: rel("d/3") })
    );
    assert_eq!(review.rows(), expected, "the host's own is never a row");
}

#[test]
fn an_opaque_directory_loses_what_it_hides() {
    let Some(mut review) =
        Review::new("mkdir -p d/s; echo 1 > d/old; echo 1 > d/s/x; echo same > d/same")
    else {
        return;
    };
    review
        .stage
        .agent("cp -p d/same .k; rm -rf d; mkdir d; echo 2 > d/new; cp -p .k d/same; rm .k");
    let expected = [
        "added d/new",
        "deleted d/old",
        "deleted d/s",
        "deleted d/s/x",
    ];
    assert_eq!(review.rows(), expected);
    // What the host adds to it meanwhile is neither a change nor in the way.
    review.stage.host("echo ext > d/ext");
    assert_eq!(review.rows(), expected);
    assert!(review.scan().iter().all(|c| c.conflict.is_none()));
    review.commit_all();
    assert_eq!(review.rows(), Vec::<String>::new());
    assert!(review.stage.layer.root.join("d/ext").exists());
}

#[test]
fn directories_that_move_are_listed_as_their_native_twins() {
    let host = "mkdir -p d/s e; echo 1 > d/s/o; echo 2 > e/n; echo 3 > d/g";
    let cases: [(&str, &[&str]); 5] = [
        (
            "mkdir k; mv e k/",
            &["deleted e", "added k", "added k/e", "renamed e/n -> k/e/n"],
        ),
        (
            "mv e d",
            &["added d/e", "renamed e/n -> d/e/n", "deleted e"],
        ),
        (
            "mv d/s d/t",
            &["deleted d/s", "added d/t", "renamed d/s/o -> d/t/o"],
        ),
        (
            "stat d/s/o >/dev/null; rm -r d/s",
            &["deleted d/s", "deleted d/s/o"],
        ),
        (
            "rm -rf d; mv e d; rm -rf d; mkdir -p d/s",
            &["deleted d/g", "deleted d/s/o", "deleted e", "deleted e/n"],
        ),
    ];
    for (agent, expected) in cases {
        let Some(mut review) = Review::new(host) else {
            return;
        };
        review.stage.agent(agent);
        let changes = review.scan();
        assert_eq!(rows(&changes), expected, "{agent}");
        assert!(changes.iter().all(|c| c.conflict.is_none()), "{agent}");
        review.commit_all();
        assert_eq!(review.rows(), Vec::<String>::new(), "{agent}");
    }
}

#[test]
fn links_are_links_and_marked_when_they_leave() {
    let Some(mut review) =
        Review::new("mkdir out; echo a > real; ln -s real l1; ln -s /tmp hl; echo o > out/f")
    else {
        return;
    };
    review.stage.agent("ln -sfn /etc/hostname l1; ln -s \"$(printf 'x\\033[31m')\" l2; rm -r out; ln -s /tmp out; rm hl; mkdir hl; echo new > hl/f; echo b > real");
    assert_eq!(
        review.rows(),
        [
            "type hl",
            "added hl/f",
            "modified l1",
            "added l2",
            "type out",
            "deleted out/f",
            "modified real"
        ]
    );
    let l1 = review.change("l1");
    assert!(l1.risks.contains(&Risk::OutsideLink));
    let access = review.stage.access();
    let contents = review.tracker.contents(&l1, &access).expect("contents");
    assert_eq!(contents.before.as_deref(), Some(&b"real"[..]));
    assert_eq!(contents.after.as_deref(), Some(&b"/etc/hostname"[..]));
    assert!(review.change("l2").risks.contains(&Risk::HiddenText));
    assert!(review.change("out").risks.contains(&Risk::OutsideLink));
}

#[test]
fn hard_links_are_rows_of_their_own() {
    let Some(mut review) = Review::new("echo a > f; ln f g") else {
        return;
    };
    review.stage.agent("echo b >> f; ln f h");
    // The kernel's overlay splits the pair: g is not the agent's.
    assert_eq!(review.rows(), ["modified f", "added h"]);
    let (f, h) = (review.change("f"), review.change("h"));
    assert_eq!(
        f.after.as_ref().map(|n| n.ino),
        h.after.as_ref().map(|n| n.ino)
    );
}

#[test]
fn digests_name_the_change_and_not_its_times() {
    let Some(mut review) = Review::new("echo a > f") else {
        return;
    };
    review.stage.agent("echo b > f");
    let first = review.change("f").digest;
    review.stage.agent("touch f; cp f k; mv k f");
    assert_eq!(review.change("f").digest, first);
    review.stage.agent("echo c > f");
    let second = review.change("f").digest;
    assert_ne!(second, first);
    review.stage.agent("chmod 700 f");
    assert_ne!(review.change("f").digest, second);
}

#[test]
fn the_roots_own_mode_is_a_change() {
    let Some(mut review) = Review::new("chmod 755 .") else {
        return;
    };
    assert_eq!(review.rows(), Vec::<String>::new());
    review.stage.agent("chmod 711 .");
    assert_eq!(review.rows(), ["mode "]);
}

/// A look at the moment at which a directory is made anew may find it without its mark.
#[test]
fn what_shows_for_a_moment_is_lost_again_afterwards() {
    let Some(mut review) = Review::new("mkdir d; echo 1 > d/x; ln -s x d/y") else {
        return;
    };
    review.stage.agent("rm -r d; mkdir d; echo 3 > d/z");
    let rows = review.rows();
    assert_eq!(rows, ["deleted d/x", "deleted d/y", "added d/z"]);
    let dir = review.stage.layer.upper().join("d");
    let mark = "user.overlay.opaque";
    xattr::remove(&dir, mark).expect("the mark goes");
    assert_eq!(review.rows(), ["added d/z"]);
    xattr::set(&dir, mark, b"y").expect("the mark comes");
    assert_eq!(review.rows(), rows);
}
