//! What the watch tells and the tracker looks at, against what is there.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pvisor::change::{Change, ChangeSet, Moves};
use pvisor::watch::Watch;

use super::random::{HOST, dice, halves, operation, twin};
use super::{Review, rows};

/// Follows the moves as a session does.
fn follow(known: &mut ChangeSet, moves: Moves) {
    known.retain(|key, _| !moves.all && !moves.whole.contains(&key.layer));
    for key in &moves.gone {
        known.remove(key);
    }
    for change in moves.changes {
        known.insert(change.key.clone(), change);
    }
}

fn listed(known: &ChangeSet) -> Vec<Arc<Change>> {
    known.values().cloned().collect()
}

/// Looking only at what moved comes to the same as looking at everything.
#[test]
fn random_work_is_followed_as_the_trees_differ() {
    let number = |name: &str, or: u64| {
        let value = std::env::var(name).ok();
        value.and_then(|v| v.parse().ok()).unwrap_or(or)
    };
    let seed = number("SEED", 1);
    for seed in seed..seed + number("ROUNDS", 6) {
        if !followed(seed) {
            return;
        }
    }
}

fn followed(seed: u64) -> bool {
    let mut random = dice(seed);
    let Some(mut review) = Review::new(HOST) else {
        return false;
    };
    let watch = Watch::start(std::slice::from_ref(&review.stage.layer), |_| true).expect("start");
    let moved = watch.moved();
    let mut known = BTreeMap::new();
    let mut log = Vec::new();
    for step in 0..40 {
        let op = operation(step, &mut random);
        log.push(op.clone());
        review
            .stage
            .agent(&format!("{{ {op}; }} 2>/dev/null || true"));
        let look = |review: &mut Review, known: &mut BTreeMap<_, _>| {
            let access = review.stage.access();
            let moves = review.tracker.look(&moved.take(), &access).expect("look");
            follow(known, moves);
        };
        if random(3) > 0 {
            look(&mut review, &mut known);
            continue;
        }
        let out = review.stage.layer.dir.join("out");
        let _ = fs::remove_dir_all(&out);
        review
            .stage
            .agent(&format!("rm -rf {o}; cp -a . {o}", o = out.display()));
        let expected = twin(&review.stage.layer.root, &out);
        let end = Instant::now() + Duration::from_secs(10);
        while halves(&listed(&known)) != expected && Instant::now() < end {
            look(&mut review, &mut known);
        }
        let context = format!("seed {seed}, after {log:#?}");
        assert_eq!(halves(&listed(&known)), expected, "{context}");
        if random(4) == 0 {
            let whole = review.scan();
            assert_eq!(rows(&listed(&known)), rows(&whole), "{context}");
            follow(&mut known, Moves::everything(whole));
        }
    }
    true
}
