//! A merge is written for the host's bytes that were merged, and for no others.

use std::fs;

use pvisor::RelPath;
use pvisor::change::{Conflict, Sides};
use pvisor::commit::{self, Approved, Batch, Merged, Outcome, Selection};
use pvisor::layer::{Digest, Node, Tree};

use super::scene::{Scene, Uppers, refusals};

/// The approved change of `f` and its merge with what the host has now.
fn merged(scene: &Scene) -> (Approved, Merged) {
    let mut change = scene.change("f");
    change.conflict = Some(Conflict::HostModified);
    let path = RelPath::try_from("f").unwrap();
    let node = Tree::open(&scene.host)
        .unwrap()
        .node(&path)
        .unwrap()
        .unwrap();
    let host = fs::read(scene.host.join("f")).unwrap();
    let agent = fs::read(scene.agent.join("f")).unwrap();
    let base = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n";
    let sides = Sides {
        base: (change.before.as_deref().cloned().unwrap(), base.into()),
        host: (
            Node {
                digest: Some(Digest::of(&host)),
                ..node
            },
            host,
        ),
        agent: (change.after.as_deref().cloned().unwrap(), agent),
    };
    let approved = Approved {
        change: change.into(),
        selection: Selection::Whole,
    };
    let merged = commit::merged(&approved, &sides).expect("a clean merge");
    (approved, merged)
}

fn write(scene: &Scene, number: u32, approved: Approved, merged: Merged) -> Outcome {
    let key = approved.change.key.clone();
    commit::commit(&Batch {
        layers: &scene.layers,
        changes: &scene.changes(),
        approved: vec![approved],
        merged: &[(key, Ok(merged))].into(),
        access: &Uppers(scene.agent.clone()),
        store: &scene.store,
        number,
    })
    .expect("an outcome")
}

#[test]
fn a_save_after_the_merge_refuses_it() {
    let scene = Scene::new("seq 10 > f");
    scene.agent("sed -i s/9/agent/ f");
    scene.person("sed -i s/2/person/ f");
    let (approved, merge) = merged(&scene);
    scene.person("sed -i s/4/later/ f");
    let later = scene.read("f");
    assert_eq!(
        refusals(write(&scene, 1, approved, merge)),
        ["f: the host's file was changed meanwhile"]
    );
    assert_eq!(scene.read("f"), later);
    let (approved, merge) = merged(&scene);
    let outcome = write(&scene, 1, approved, merge);
    let Outcome::Committed { paths, merged, .. } = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(paths, merged);
    assert_eq!(scene.read("f"), later.replace('9', "agent"));
    scene.undone(1, 2);
    assert_eq!(scene.read("f"), later);
}
