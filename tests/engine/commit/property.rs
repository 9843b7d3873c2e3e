//! Random trees and random edits: everything committed is the agent's tree, undone is the host's.

use proptest::prelude::*;

use super::scene::{Scene, snapshot};

/// A few names in few directories, so that edits meet.
fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "a-b", "c"]), 1..4)
        .prop_map(|names| names.join("/"))
}

fn edit() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec!["", "one", "two", "one\\ntwo\\n", "\\0bin"]);
    prop_oneof![
        4 => (path(), word).prop_map(|(p, w)| format!(
            "mkdir -p \"$(dirname {p})\" && [ ! -d {p} ] && rm -f {p} && printf '{w}' > {p}"
        )),
        1 => path().prop_map(|p| format!("[ ! -L {p} ] && mkdir -p {p}")),
        2 => path().prop_map(|p| format!("rm -rf {p}")),
        2 => (path(), path()).prop_map(|(p, q)| format!("[ ! -e {q} ] && mv {p} {q}")),
        1 => path().prop_map(|p| format!("chmod 750 {p}")),
        1 => (path(), path()).prop_map(|(p, q)| format!("[ ! -e {p} ] && ln -s {q} {p}")),
        1 => path().prop_map(|p| format!("[ -f {p} ] && printf more >> {p}")),
        1 => path().prop_map(|p| format!("[ -f {p} ] && setfattr -n user.k -v 1 {p}")),
        1 => (path(), path()).prop_map(|(p, q)| format!("[ -d {p} ] && rm -r {p} && printf x > {p}; [ -f {q} ] && rm {q} && mkdir {q}")),
    ]
}

fn script(edits: &[String]) -> String {
    let lines: Vec<String> = edits
        .iter()
        .map(|e| format!("( {e} ) 2>/dev/null || true"))
        .collect();
    lines.join("\n")
}

proptest! {
    // Few, since each makes several trees.
    #![proptest_config(crate::cases(24))]

    #[test]
    fn commit_all_is_the_agents_tree_and_undo_the_hosts(
        host in prop::collection::vec(edit(), 0..14),
        agent in prop::collection::vec(edit(), 1..14),
    ) {
        let scene = Scene::quick(&script(&host));
        let before = snapshot(&scene.host);
        scene.agent(&script(&agent));
        let after = snapshot(&scene.agent);
        if scene.changes().is_empty() {
            return Ok(());
        }
        scene.committed(1, scene.all());
        prop_assert_eq!(snapshot(&scene.host), after.clone());
        scene.undone(1, 2);
        prop_assert_eq!(snapshot(&scene.host), before);
        scene.undone(2, 3);
        prop_assert_eq!(snapshot(&scene.host), after);
    }

    #[test]
    fn two_halves_equal_the_whole(
        host in prop::collection::vec(edit(), 0..10),
        agent in prop::collection::vec(edit(), 1..10),
        seed in any::<u64>(),
    ) {
        let mut scene = Scene::quick(&script(&host));
        scene.agent(&script(&agent));
        let after = snapshot(&scene.agent);
        let mut half = scene.all();
        let mut bits = seed;
        half.retain(|_| { bits = bits.rotate_left(1); bits & 1 == 1 });
        let before = snapshot(&scene.host);
        // A half may be refused (a type change without what lies below it): then nothing is written.
        let first = scene.commit(1, half).unwrap();
        if !matches!(first, pvisor::commit::Outcome::Committed { .. }) {
            prop_assert_eq!(snapshot(&scene.host), before);
        }
        scene.rebase();
        if !scene.changes().is_empty() {
            scene.committed(2, scene.all());
        }
        prop_assert_eq!(snapshot(&scene.host), after);
    }
}
