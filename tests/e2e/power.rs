//! The power fails in the middle of a commit or of an undo, on disks that lose what was not
//! flushed: workspace and session on one of them, and on two. Whatever the instant and whatever
//! part of the last writes had arrived, `recover` brings the host to exactly before or exactly
//! after, what had been told as done stays done, and the session goes on from there.
//!
//! The commit and its undo are recorded once, while somebody else syncs the same file systems again
//! and again, so that half of a commit reaches the disk. `PVISOR_THOROUGH=1` cuts at 120 instants of
//! each recording, a normal run at a few.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::capability::{self, Capability};
use crate::support::medium::{Medium, Mounted};
use crate::support::{Tree, World, processes};

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
    echo hard > hard1; ln hard1 hard2; touch -d 2020-01-01T00:00:00.123456789 gone1 text2; sync -f .";

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
    ln -s ../outside out; : > empty; for i in 1 2 3 4; do echo added $i > added$i; done
    mkdir bare; truncate -s 1M holes; printf end >> holes; echo a > pair1; ln pair1 pair2";

/// Random, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }
}

/// A commit and its undo as they reached the disks.
struct Recording {
    medium: Medium,
    before: Tree,
    after: Tree,
    staged: Vec<String>,
    /// When the commit began, had ended, the undo began, had ended.
    begun: usize,
    committed: usize,
    undoing: usize,
    undone: usize,
}

/// Where the disks are mounted.
fn places(world: &World, disks: usize) -> Vec<std::path::PathBuf> {
    (0..disks)
        .map(|disk| world.root.join(format!("disk{disk}")))
        .collect()
}

/// Syncs the disks again and again while `work` is done, as other programs do.
fn while_somebody_syncs<T>(mounts: &[std::path::PathBuf], work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let dirs: Vec<_> = mounts
                .iter()
                .map(|path| std::fs::File::open(path).expect("the disk"))
                .collect();
            while !stop.load(Ordering::Relaxed) {
                for dir in &dirs {
                    nix::unistd::syncfs(dir.as_fd()).expect("synced");
                }
            }
        });
        let done = work();
        stop.store(true, Ordering::Relaxed);
        done
    })
}

fn recorded(world: &mut World, disks: usize) -> Option<Recording> {
    let medium = Medium::make(world, disks);
    let places = places(world, disks);
    let mounts = medium.as_ref().map_err(Clone::clone).and_then(|medium| {
        let mut mounts = Vec::new();
        for (disk, place) in places.iter().enumerate() {
            std::fs::create_dir(place).expect("a new directory");
            mounts.push(medium.mount(disk, place)?);
        }
        Ok(mounts)
    });
    let probed = mounts.as_ref().map(|_| ()).map_err(Clone::clone);
    if !capability::decide(&world.test, Capability::LossyDisk, probed) {
        return None;
    }
    let (medium, mounts) = (medium.ok()?, mounts.ok()?);
    world.workspace = places[0].join("work");
    world.state = places[disks - 1].join("state");
    for (dir, mode) in [(&world.workspace, 0o755), (&world.state, 0o700)] {
        std::fs::create_dir(dir).expect("a new directory");
        world.own(dir, mode);
    }
    world.host_ok(HOST);
    let before = world.tree();
    world.run(AGENT);
    let staged = world.changes().lines();
    assert!(staged.len() >= 40, "{staged:#?}");
    // What a power loss takes of the run is not the commit's.
    for place in &places {
        world.host_ok(&format!("sync -f {}", place.display()));
    }
    let begun = medium.instant();
    while_somebody_syncs(&places, || world.pvisor(["commit", "--all"]).ok());
    let committed = medium.instant();
    let after = world.tree();
    world.changes().assert_plain(&[]);
    let undoing = medium.instant();
    while_somebody_syncs(&places, || world.pvisor(["undo"]).ok());
    let undone = medium.instant();
    before.assert_same(&world.tree(), "undone");
    gone(world, mounts);
    Some(Recording {
        medium,
        before,
        after,
        staged,
        begun,
        committed,
        undoing,
        undone,
    })
}

/// Ends what runs, as a power loss does, and unmounts.
fn gone(world: &World, mounts: Vec<Mounted>) {
    processes::end_all_of(world);
    mounts.into_iter().for_each(Mounted::unmount);
    // In memory on most machines.
    std::fs::remove_dir_all(&world.runtime).expect("the runtime directory goes");
    std::fs::create_dir(&world.runtime).expect("a new directory");
    world.own(&world.runtime, 0o700);
}

/// One power loss and what comes after it; whether the host came to be as after the commit.
fn cut(world: &World, recording: &Recording, instant: usize, keep: impl FnMut() -> bool) -> bool {
    let medium = &recording.medium;
    medium.cut(instant, keep);
    let disks = usize::from(world.root.join("disk1").exists()) + 1;
    let mounts = places(world, disks)
        .iter()
        .enumerate()
        .map(|(disk, place)| medium.mount_cut(disk, place))
        .collect();
    let what = format!("cut at {instant}");
    let told = world.pvisor(["recover"]).ok().out();
    let tree = world.tree();
    let is_after = recording.after.differences(&tree).is_empty();
    if !is_after {
        let lines = recording.before.differences(&tree);
        assert!(
            lines.is_empty(),
            "{what}: neither after nor before ({told}): {lines:#?}"
        );
    }
    let expected = if instant >= recording.undone {
        Some(false)
    } else if (recording.committed..=recording.undoing).contains(&instant) {
        Some(true)
    } else {
        None
    };
    let side = format!("{what}: after is {is_after} ({told})");
    assert!(expected.is_none_or(|after| after == is_after), "{side}");
    let again = world.pvisor(["recover"]).ok().out();
    assert!(again.contains("nothing to recover"), "{what}: {again}");
    // The session's records and its stage are what they were.
    if is_after {
        world.changes().assert_plain(&[]);
    } else {
        assert_eq!(world.changes().lines(), recording.staged, "{what}");
        world.pvisor(["commit", "--all"]).ok();
        recording.after.assert_same(&world.tree(), &what);
    }
    world.pvisor(["undo"]).ok();
    recording.before.assert_same(&world.tree(), &what);
    gone(world, mounts);
    is_after
}

fn power_losses(world: &mut World, disks: usize) {
    let Some(recording) = recorded(world, disks) else {
        return;
    };
    let cuts = if std::env::var_os("PVISOR_THOROUGH").is_some_and(|value| value != "0") {
        120
    } else {
        6
    };
    let (writes, flushes) = recording.medium.writes(recording.begun, recording.undone);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut after = 0;
    for number in 0..cuts {
        let instant = writes[(writes.len() - 1) * number / (cuts - 1)];
        // All of what was not flushed arrived, nothing of it, or any part.
        let percent = [100, 0, 50, 80, 20][number % 5];
        let keep = || random.below(100) < percent;
        after += usize::from(cut(world, &recording, instant, keep));
    }
    eprintln!(
        "{disks} disks, as {}: {cuts} power losses among {} writes and {flushes} flushes of a \
         commit of {} changes and its undo: {} came back as before, {after} as after, 0 as anything \
         else",
        world.user.name,
        writes.len(),
        recording.staged.len(),
        cuts - after,
    );
}

#[test]
fn root_with_everything_on_one_disk() {
    if let Some(mut world) = World::of_root("power::root_with_everything_on_one_disk") {
        power_losses(&mut world, 1);
    }
}

#[test]
fn an_ordinary_user_with_the_session_on_another_disk() {
    let name = "power::an_ordinary_user_with_the_session_on_another_disk";
    if let Some(mut world) = World::of_ordinary_user(name) {
        power_losses(&mut world, 2);
    }
}
