//! A directory that is swapped for a link leading outside, again and again, while commits run: not
//! a byte gets there.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use pvisor::commit::Outcome;

use super::scene::{Scene, snapshot};

#[test]
fn a_swap_loop_takes_nothing_outside() {
    let commits = if crate::thorough() { 1_000 } else { 100 };
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("sub")).unwrap();
    fs::write(outside.path().join("f"), "1\n").unwrap();
    fs::write(outside.path().join("g"), "2\n").unwrap();
    fs::write(outside.path().join("sub/h"), "3\n").unwrap();
    let untouched = snapshot(outside.path());
    let mut scene = Scene::quick("mkdir -p d/sub; echo 1 > d/f; echo 2 > d/g; echo 3 > d/sub/h");
    let dir = scene.host.join("d");
    // Beside the workspace, on its file system, so that one exchange swaps them.
    let trap = scene.host.parent().unwrap().join("trap");
    symlink(outside.path(), &trap).unwrap();
    let (mut written, mut refused, mut unsettled, mut number) = (0, 0, 0, 1);
    let (stop, swaps) = (AtomicBool::new(false), AtomicUsize::new(0));
    for round in 0..commits {
        scene.agent(&format!(
            "rm -rf d; mkdir -p d/sub d/new; echo f{round} > d/f; echo n{round} > d/new/n; \
             echo h{round} > d/sub/h; echo e{round} > d/e{round}"
        ));
        let (changes, approved) = (scene.changes(), scene.all());
        let (before, after) = (snapshot(&scene.host), snapshot(&scene.agent));
        stop.store(false, Ordering::Relaxed);
        let swap = || {
            renameat2(
                AT_FDCWD,
                &dir,
                AT_FDCWD,
                &trap,
                RenameFlags::RENAME_EXCHANGE,
            )
            .is_ok()
        };
        let outcome = std::thread::scope(|threads| {
            let swapper = threads.spawn(|| {
                let mut swapped = false;
                while !stop.load(Ordering::Relaxed) {
                    swapped ^= swap();
                    swaps.fetch_add(1, Ordering::Relaxed);
                    // The length of a stay differs from round to round.
                    for _ in 0..(round * 97) % 20_000 {
                        std::hint::spin_loop();
                    }
                }
                if swapped {
                    assert!(swap());
                }
            });
            let outcome = scene.run(number, approved, &changes, pvisor::commit::commit);
            stop.store(true, Ordering::Relaxed);
            swapper.join().unwrap();
            outcome
        });
        assert_eq!(snapshot(outside.path()), untouched, "round {round}");
        let expected = match outcome {
            Ok(Outcome::Committed { .. }) => {
                written += 1;
                Some(&after)
            }
            // The swapping went on for longer than a commit waits for it to end.
            Ok(Outcome::Unsettled { .. }) => {
                unsettled += 1;
                None
            }
            _ => {
                refused += 1;
                Some(&before)
            }
        };
        scene.recover();
        let now = snapshot(&scene.host);
        assert!(
            expected.map_or_else(|| now == before || now == after, |side| now == *side),
            "round {round}: {outcome:?}"
        );
        assert_eq!(
            snapshot(outside.path()),
            untouched,
            "round {round}, settled"
        );
        let stray: Vec<_> = snapshot(&scene.host)
            .into_keys()
            .filter(|path| path.to_string().contains(pvisor::commit::TEMPORARY))
            .collect();
        assert!(stray.is_empty(), "round {round}: {stray:?}");
        number = pvisor::commit::free_from(&scene.store, number).unwrap();
        scene.rebase();
    }
    eprintln!(
        "{commits} commits under {} swaps: {written} written, {refused} refused, {unsettled} \
         settled afterwards, 0 bytes outside",
        swaps.load(Ordering::Relaxed)
    );
}
