//! Forty changes of every kind in one commit, and its undo: killed, or failed by the disk or for
//! want of room, at every writing system call (at samples unless the run is a thorough one).
//! Afterwards the host is exactly as before or exactly as after, nothing temporary is left, and
//! whatever it became can be gone on from.

use std::sync::OnceLock;

use pvisor::commit::seam::{self, Verdict};
use pvisor::commit::{CommitError, Outcome, Settled};

use super::scene::{Count, Scene, Snapshot, snapshot};

/// The host's tree.
const HOST: &str = "
    for i in 1 2 3 4 5 6; do printf 'one\\ntwo %s\\nthree\\n' $i > text$i; done
    printf 'a\\0b' > binary; head -c 300000 /dev/zero | tr '\\0' x > large; echo same > same
    for i in 1 2 3 4; do echo gone $i > gone$i; done
    for i in 1 2 3; do echo moved $i > old$i; done
    mkdir -p renamed/in/deep; echo a > renamed/a; echo b > renamed/in/b; echo c > renamed/in/deep/c
    chmod 750 renamed/in; mkdir -p tree/sub/deep; echo ta > tree/a; echo tb > tree/sub/b
    ln -s ../a tree/sub/deep/link; mkdir stays; echo keep > stays/keep; echo go > stays/go
    echo file > f2d; mkdir d2f; echo d1 > d2f/1; mkdir d2f/in; echo d2 > d2f/in/2; echo l > f2l
    ln -s same l2f; ln -s text1 link; ln -s dir to-dir; mkfifo f2p; echo x > script; chmod 600 script
    mkdir modes; echo m > modes/m; echo attr > attr; setfattr -n user.k -v 1 attr
    echo hard > hard1; ln hard1 hard2; touch -d 2020-01-01T00:00:00.123456789 gone1 text2";

/// What the agent makes of it.
const AGENT: &str = "
    for i in 1 2 3 4; do printf 'ONE\\ntwo %s\\nTHREE\\n' $i > text$i; done
    printf 'a\\0c' > binary; head -c 300000 /dev/zero | tr '\\0' y > large; rm gone1 gone2 gone3
    mv gone4 came4; for i in 1 2 3; do mv old$i new$i; done; mv renamed moved; rm -r tree
    echo more > moved/in/more; rm stays/go; echo come > stays/come
    rm f2d; mkdir f2d; echo k > f2d/k; rm -r d2f; echo now-a-file > d2f; rm f2l; ln -s same f2l
    rm l2f; echo file > l2f; ln -sfn binary link; rm to-dir; mkdir to-dir; echo t > to-dir/t
    rm f2p; echo file > f2p; chmod +x script; chmod 640 text5; chmod 700 modes; echo more > modes/n
    setfattr -n user.k -v 2 attr; setfattr -n user.n -v 3 attr; setfattr -n user.t -v 1 text6
    mkdir -p new/sub; echo n > new/n; echo s > new/sub/s; chmod 750 new/sub; mkfifo pipe
    ln -s ../outside out; rm hard2; : > empty; for i in 1 2 3 4; do echo added $i > added$i; done
    mkdir bare; truncate -s 1M holes; printf end >> holes";

/// What comes at the chosen call.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Io,
    NoSpace,
}

impl Fault {
    fn verdict(self) -> Verdict {
        match self {
            Fault::Kill => Verdict::Kill,
            Fault::Io => Verdict::Fail(nix::libc::EIO),
            Fault::NoSpace => Verdict::Fail(nix::libc::ENOSPC),
        }
    }
}

/// Runs `verb` with the fault at its call number `at` (0: never); what was called.
fn with_fault(
    at: usize,
    fault: Fault,
    verb: impl FnOnce() -> Result<Outcome, CommitError>,
) -> (Result<Outcome, CommitError>, usize) {
    let calls = Count::default();
    let counted = calls.clone();
    let outcome = seam::with(
        move |_| {
            if counted.up() == at {
                fault.verdict()
            } else {
                Verdict::Pass
            }
        },
        verb,
    );
    (outcome, calls.get())
}

fn scene() -> Scene {
    let scene = Scene::quick(HOST);
    scene.agent(AGENT);
    scene
}

/// Whether the host is as after; before is the only other thing it may be.
fn is_after(scene: &Scene, before: &Snapshot, after: &Snapshot, what: &str) -> bool {
    let now = snapshot(&scene.host);
    if now == *after {
        return true;
    }
    let odd: Vec<_> = now
        .iter()
        .filter(|(path, entry)| before.get(path) != Some(entry))
        .map(|(path, _)| path.to_string())
        .chain(
            before
                .keys()
                .filter(|path| !now.contains_key(path))
                .map(|path| format!("{path} is missing")),
        )
        .collect();
    assert!(odd.is_empty(), "{what}: neither before nor after: {odd:#?}");
    false
}

/// Settles, twice, and tells which side it came to.
fn settled(
    scene: &Scene,
    outcome: &Result<Outcome, CommitError>,
    before: &Snapshot,
    after: &Snapshot,
    what: &str,
) -> bool {
    match outcome {
        Ok(Outcome::Refused { .. }) | Err(_) => {
            assert_eq!(
                snapshot(&scene.host),
                *before,
                "{what}: refused, but written"
            );
        }
        Ok(Outcome::Committed { .. }) => assert_eq!(snapshot(&scene.host), *after, "{what}"),
        Ok(Outcome::Unsettled { .. }) => {}
        other => panic!("{what}: {other:?}"),
    }
    let found = scene.recover();
    assert!(scene.recover().is_empty(), "{what}: recovering twice");
    let is_after = is_after(scene, before, after, what);
    for one in &found {
        assert_eq!(one.outcome == Settled::RolledForward, is_after, "{what}");
        assert!(one.kept.is_empty(), "{what}: {:?}", one.kept);
    }
    is_after
}

/// A commit with the fault at one call, settled, gone on from, and undone.
fn commit_at(at: usize, fault: Fault) {
    let what = format!("commit, call {at}, {fault:?}");
    let scene = scene();
    let (before, after) = (snapshot(&scene.host), snapshot(&scene.agent));
    let (outcome, _) = with_fault(at, fault, || scene.commit(1, scene.all()));
    if !settled(&scene, &outcome, &before, &after, &what) {
        scene.committed(1, scene.all());
        assert!(is_after(&scene, &before, &after, &what));
    }
    scene.undone(1, 2);
    assert_eq!(snapshot(&scene.host), before, "{what}: undone");
}

/// An undo with the fault at one call, settled, gone on from, and undone itself.
fn undo_at(at: usize, fault: Fault) {
    let what = format!("undo, call {at}, {fault:?}");
    let scene = scene();
    let before = snapshot(&scene.host);
    scene.committed(1, scene.all());
    let after = snapshot(&scene.host);
    let (outcome, _) = with_fault(at, fault, || scene.undo(1, 2));
    if !settled(&scene, &outcome, &after, &before, &what) {
        scene.undone(1, 2);
        assert!(is_after(&scene, &after, &before, &what));
    }
    scene.undone(2, 3);
    assert_eq!(snapshot(&scene.host), after, "{what}: redone");
}

/// How many writing calls the commit and its undo make when nothing happens.
fn calls() -> (usize, usize) {
    static COUNTED: OnceLock<(usize, usize)> = OnceLock::new();
    *COUNTED.get_or_init(|| {
        let scene = scene();
        assert!(scene.changes().len() >= 40, "{}", scene.changes().len());
        let (outcome, commit) = with_fault(0, Fault::Kill, || scene.commit(1, scene.all()));
        assert!(
            matches!(outcome, Ok(Outcome::Committed { .. })),
            "{outcome:?}"
        );
        assert_eq!(snapshot(&scene.host), snapshot(&scene.agent));
        let (outcome, undo) = with_fault(0, Fault::Kill, || scene.undo(1, 2));
        assert!(
            matches!(outcome, Ok(Outcome::Committed { .. })),
            "{outcome:?}"
        );
        (commit, undo)
    })
}

/// Every point, or so many of them spread over all.
fn at_points(name: &str, of: usize, faults: &[Fault], at: fn(usize, Fault)) {
    const SAMPLES: usize = 14;
    let all = of * faults.len();
    let step = if crate::thorough() {
        1
    } else {
        (all / SAMPLES).max(1) | 1
    };
    let tried = (0..all)
        .step_by(step)
        .map(|point| at(point / faults.len() + 1, faults[point % faults.len()]))
        .count();
    eprintln!("{name}: {tried} of {all} points tried");
}

#[test]
fn a_commit_of_forty_changes_is_before_or_after() {
    at_points("commit", calls().0, &[Fault::Kill], commit_at);
}

#[test]
fn a_commit_whose_disk_fails_is_before_or_after() {
    at_points("commit", calls().0, &[Fault::Io, Fault::NoSpace], commit_at);
}

#[test]
fn an_undo_of_forty_changes_is_before_or_after() {
    at_points("undo", calls().1, &[Fault::Kill], undo_at);
}

#[test]
fn an_undo_whose_disk_fails_is_before_or_after() {
    at_points("undo", calls().1, &[Fault::Io, Fault::NoSpace], undo_at);
    let (commit, undo) = calls();
    assert!((commit + undo) * 3 > 500, "{commit} + {undo} calls");
}
