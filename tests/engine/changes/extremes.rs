//! Names, depths, numbers and kinds of entries beyond the ordinary.

use std::collections::BTreeMap;
use std::fs;

use super::Review;
use pvisor::change::Risk;

#[test]
fn sockets_and_pipes_are_listed_and_nothing_blocks() {
    let Some(mut review) = Review::new("mkfifo p") else {
        return;
    };
    review.stage.agent(
        "chmod 600 p; mkfifo q; python3 -c 'import socket as s; a=s.socket(1); a.bind(\"k\")'",
    );
    assert_eq!(review.rows(), ["added k", "mode p", "added q"]);
    assert!(review.change("k").risks.contains(&Risk::Uncommittable));
    assert!(!review.change("q").risks.contains(&Risk::Uncommittable));
}

#[test]
fn names_and_depths_beyond_the_ordinary_are_listed() {
    let Some(mut review) = Review::new("true") else {
        return;
    };
    review.stage.agent("python3 -c 'import os; [(os.mkdir(n), os.chdir(n)) for n in (\"%050d\" % i for i in range(120))]; open(\"f\", \"w\").write(\"f\\n\")'");
    review.stage.agent("touch \"$(printf 'a\\nb\\377')\"");
    let changes = review.scan();
    assert_eq!(changes.len(), 122);
    let deepest = changes
        .iter()
        .max_by_key(|c| c.key.path.depth())
        .expect("some");
    assert!(deepest.key.path.as_bytes().len() > 6_000);
    assert_eq!(deepest.after.as_ref().map(|n| n.size), Some(2));
    let odd = changes.last().expect("some");
    assert_eq!(odd.key.path.as_bytes(), b"a\nb\xff");
    assert!(odd.risks.contains(&Risk::HiddenText));
}

#[test]
fn counts_stay_exact_among_very_many() {
    let Some(mut review) = Review::new("mkdir k; for i in 1 2 3; do echo $i > k/$i; done") else {
        return;
    };
    review.stage.agent("mkdir v; python3 -c 'for i in range(4000): open(f\"v/{i}\", \"w\").close()'; rm k/*; chmod +x v/7");
    let started = std::time::Instant::now();
    let changes = review.scan();
    let first = started.elapsed();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for change in &changes {
        *counts.entry(change.kind.name()).or_default() += 1;
    }
    assert_eq!(counts, BTreeMap::from([("added", 4_001), ("deleted", 3)]));
    let started = std::time::Instant::now();
    assert_eq!(review.scan().len(), 4_004);
    eprintln!(
        "4,004 changes: first scan {first:?}, again {:?}",
        started.elapsed()
    );
}

#[test]
fn same_size_rewrites_are_seen_however_fast() {
    let Some(mut review) = Review::new("true") else {
        return;
    };
    for round in 0..30 {
        review.stage.agent(&format!("printf '%04d' {round} > f"));
        let change = review.change("f");
        let expected = pvisor::layer::Digest::of(format!("{round:04}").as_bytes());
        assert_eq!(
            change.after.as_ref().and_then(|n| n.digest),
            Some(expected),
            "round {round}"
        );
    }
}

/// What is looked at must not change by being looked at.
#[test]
fn looking_leaves_access_times_alone() {
    use std::os::unix::fs::MetadataExt;
    let Some(mut review) = Review::new("mkdir d; echo host > d/h") else {
        return;
    };
    let old = "touch -a -d '2001-02-03 04:05:06Z'";
    review.stage.host(&format!("{old} d/h d"));
    review.stage.agent(&format!(
        "echo new > d/f; echo more >> d/h; {old} d/f d/h d"
    ));
    let upper = review.stage.layer.upper();
    let host = review.stage.layer.root.clone();
    let times = || {
        let paths = [upper.join("d/f"), upper.join("d"), host.join("d/h")];
        paths.map(|path| fs::metadata(path).expect("stat").atime())
    };
    let before = times();
    assert_eq!(before, [981_173_106; 3]);
    assert_eq!(review.scan().len(), 2);
    assert_eq!(times(), before);
}
