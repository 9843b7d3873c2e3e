//! The JSON as scripts read it.

use pvisor::change::Risk;
use pvisor::commit::Refusal;
use pvisor::diff::{ItemId, ItemKind, ItemRef};
use pvisor::layer::{Digest, FileType};
use pvisor::review::Verdict;
use serde_json::{Value, json};

use super::*;
use crate::cli::fixture::{change, node, renamed};
use pvisor::RelPath;
use pvisor::change::{ChangeKind, Class, Conflict, Merges};
use pvisor::review::FileDecision;

fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).expect("json")
}

#[test]
fn a_change_has_every_documented_field() {
    let mut change = change("workspace", b"src/a.rs", &["h1f3a"]);
    change.after = Some(node(FileType::File, 0o755, 2).into());
    change.risks = vec![Risk::GitHook, Risk::Executable];
    let digest = Digest([7; 32]).to_string();
    assert_eq!(
        value(&ChangeInfo::new(&change, None)),
        json!({
            "layer": "workspace", "path": "src/a.rs", "class": "plain", "kind": "modified",
            "type": "file", "mode": {"before": "100644", "after": "100755"},
            "size": {"before": 1, "after": 2}, "binary": false, "added": 1, "removed": 1,
            "digest": digest, "risks": ["git-hook", "executable"], "decision": "undecided",
            "reason": null, "conflict": null, "merges": null,
            "items": [{"id": "h1f3a", "kind": "hunk", "old": [3, 1], "new": [3, 2],
                       "decision": "undecided"}]
        })
    );
}

#[test]
fn names_that_are_not_text_come_with_their_bytes() {
    let change = renamed("workspace", b"\xff", b"a\x1b[2J\nb\xfe", &[]);
    let info = value(&ChangeInfo::new(&change, None));
    assert_eq!(info["path"], "a\u{1b}[2J\nb\u{fffd}");
    assert_eq!(info["path_b64"], "YRtbMkoKYv4=");
    assert_eq!(info["from"], "\u{fffd}");
    assert_eq!(info["from_b64"], "/w==");
}

#[test]
fn absent_sides_are_null_and_a_conflict_is_a_sentence() {
    let mut change = change("workspace", b"gone", &[]);
    change.kind = ChangeKind::Deleted;
    change.after = None;
    change.conflict = Some(Conflict::HostModified);
    let info = value(&ChangeInfo::new(&change, None));
    assert_eq!(info["mode"], json!({"before": "100644", "after": null}));
    assert_eq!(info["size"]["after"], Value::Null);
    assert!(
        info["conflict"]
            .as_str()
            .is_some_and(|c| c.contains("host"))
    );
    assert_eq!(info["merges"], "conflicts");
    change.merges = Some(Merges::Clean { hunks: Vec::new() });
    assert_eq!(value(&ChangeInfo::new(&change, None))["merges"], "clean");
}

#[test]
fn decisions_by_item_and_by_line() {
    let mut change = change("workspace", b"a", &["h1", "h2", "h3"]);
    change.items[2].kind = ItemKind::Mode;
    let reference = |id: &str, lines| ItemRef {
        id: ItemId(id.into()),
        lines,
    };
    let mut decision = FileDecision {
        digest: change.digest,
        verdicts: vec![
            (reference("h1", None), Verdict::Approved),
            (
                reference("h2", Some((1, 2))),
                Verdict::Rejected {
                    reason: Some("keep".into()),
                },
            ),
        ],
        by: "ada".into(),
    };
    let words = |decision: &FileDecision| {
        let info = ChangeInfo::new(&change, Some(decision));
        let items: Vec<_> = info.items.iter().map(|item| item.decision).collect();
        (info.decision, info.reason, items)
    };
    let said = words(&decision);
    assert_eq!(said.0, "mixed");
    assert_eq!(said.1.as_deref(), Some("keep"));
    assert_eq!(said.2, ["approved", "mixed", "undecided"]);

    // All three lines of the hunk, in two parts, make the whole of it.
    let rest = (
        reference("h2", Some((3, 3))),
        Verdict::Rejected { reason: None },
    );
    decision.verdicts.push(rest);
    assert_eq!(words(&decision).2, ["approved", "rejected", "undecided"]);

    decision.digest = Digest([8; 32]);
    assert_eq!(
        words(&decision),
        ("undecided", None, vec!["undecided"; 3]),
        "what was said of other content is void"
    );
}

#[test]
fn ignored_changes_are_counted_apart() {
    let mut ignored = change("workspace", b"target/x", &[]);
    ignored.class = Class::Ignored;
    let mut object = change("workspace", b".git/objects/aa/bb", &[]);
    object.class = Class::GitObject;
    object.kind = ChangeKind::Added;
    let counts = Counts::of([&ignored, &object, &change("home", b"a", &[])].into_iter());
    assert_eq!(
        value(&counts),
        json!({"added": 1, "modified": 1, "deleted": 0, "renamed": 0, "mode": 0, "type": 0,
               "meta": 0, "ignored": 1})
    );
    assert_eq!(
        counts.words(),
        [("added", 1), ("modified", 1), ("ignored", 1)]
    );
}

#[test]
fn outcomes_of_a_commit() {
    let key = |path: &[u8]| LayerPath::new("workspace", RelPath::new(path).expect("path"));
    let info = |outcome: Outcome| value(&CommitInfo::from(&outcome));
    assert_eq!(
        info(Outcome::Committed {
            number: 1,
            paths: vec![key(b"a"), key(b"\xff")],
            merged: Vec::new(),
        }),
        json!({
            "state": "committed", "refused": [], "commit": 1,
            "committed": [{"layer": "workspace", "path": "a"},
                          {"layer": "workspace", "path": "\u{fffd}", "path_b64": "/w=="}]
        })
    );
    let refusals = vec![Refusal {
        key: key(b"a"),
        reason: "busy".into(),
    }];
    assert_eq!(
        info(Outcome::Refused { refusals }),
        json!({
            "state": "refused", "committed": [], "commit": null,
            "refused": [{"layer": "workspace", "path": "a", "reason": "busy"}]
        })
    );
    assert_eq!(
        info(Outcome::Nothing),
        json!({"state": "nothing", "committed": [], "refused": [], "commit": null})
    );
    let planned = info(Outcome::Planned {
        paths: vec![key(b"a")],
        merged: vec![key(b"a")],
    });
    assert_eq!(planned["merged"][0]["path"], "a");
    assert_eq!(planned["state"], "planned");
    assert_eq!(planned["planned"][0]["path"], "a");
}

#[test]
fn times_are_rfc_3339() {
    assert_eq!(time(Timestamp { sec: 0, nsec: 0 }), "1970-01-01T00:00:00Z");
}

#[test]
fn what_is_printed_steers_no_terminal_and_reads_as_it_was() {
    let name = "a\u{1b}[2J\u{9b}1m\u{7f}\u{202e}\u{e0041}\n\"é";
    let json = serde_json::to_string_pretty(&[name]).expect("json");
    let mut out = Vec::new();
    write_escaped(&json, &mut out).expect("written");
    let text = String::from_utf8(out).expect("text");
    assert!(
        !text.chars().any(|c| c != '\n' && text::steers(c)),
        "{text:?}"
    );
    assert_eq!(
        serde_json::from_str::<Vec<String>>(&text).expect("json"),
        [name]
    );
}
