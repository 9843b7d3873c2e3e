//! Sessions on disk: what is listed, and which one a person means.

use std::fs::File;

use pvisor::layer::Timestamp;
use pvisor::sandbox::{Boundary, ExitStatus, Mode};
use pvisor::session::state::{RunState, SessionInfo};
use pvisor::session::store::{SessionRecord, Store, StoreError};

fn record(store: &Store, id: &str, name: &str, started: i64, state: RunState) -> SessionRecord {
    let record = SessionRecord {
        info: SessionInfo {
            settings: pvisor::config::SessionSettings::default(),
            id: id.into(),
            name: name.into(),
            user: "ada".into(),
            mode: Mode::Staged,
            command: vec!["sh".into()],
            dir: store.session_dir(id),
            workspace: "/w".into(),
            layers: Vec::new(),
            started: Timestamp {
                sec: started,
                nsec: 0,
            },
        },
        state,
        exit: Some(ExitStatus::Code(0)),
        ended: None,
        boundary: Boundary::default(),
        commits: 0,
    };
    let dir = store.session_dir(id);
    std::fs::create_dir_all(&dir).expect("mkdir");
    let text = serde_json::to_vec(&record).expect("json");
    std::fs::write(dir.join("session.json"), text).expect("written");
    record
}

fn store(dir: &tempfile::TempDir) -> Store {
    Store::new(dir.path().join("state"), dir.path().join("run"))
}

fn ids(records: &[SessionRecord]) -> Vec<&str> {
    records.iter().map(|r| r.info.id.as_str()).collect()
}

#[test]
fn an_empty_store_says_so() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = store(&dir);
    assert_eq!(store.list().expect("list"), []);
    assert!(matches!(store.last(), Err(StoreError::Empty)));
    assert!(matches!(store.find("x", true), Err(StoreError::Empty)));
}

#[test]
fn the_newest_start_comes_first() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = store(&dir);
    record(&store, "20261130-100000-aaaa", "one", 10, RunState::Exited);
    record(&store, "20261130-090000-bbbb", "two", 30, RunState::Exited);
    record(
        &store,
        "20261130-110000-cccc",
        "three",
        20,
        RunState::Discarded,
    );
    let list = store.list().expect("list");
    assert_eq!(
        ids(&list),
        [
            "20261130-090000-bbbb",
            "20261130-110000-cccc",
            "20261130-100000-aaaa"
        ]
    );
    assert_eq!(store.last().expect("last").info.name, "two");
    assert_eq!(store.find("last", false).expect("last").info.name, "two");
}

#[test]
fn names_ids_and_prefixes() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = store(&dir);
    record(&store, "20261130-100000-aaaa", "fix", 1, RunState::Exited);
    record(
        &store,
        "20261130-100001-bbbb",
        "fix-more",
        2,
        RunState::Exited,
    );
    record(
        &store,
        "20261130-100002-cccc",
        "gone",
        3,
        RunState::Discarded,
    );
    let name = |typed: &str, prefixes| store.find(typed, prefixes).map(|r| r.info.name);
    assert_eq!(name("fix", false).expect("exact"), "fix");
    assert_eq!(name("20261130-100001-bbbb", false).expect("id"), "fix-more");
    assert!(matches!(name("fix-", false), Err(StoreError::NotFound(_))));
    assert_eq!(name("fix-", true).expect("prefix"), "fix-more");
    assert_eq!(name("fix", true).expect("exact beats prefix"), "fix");
    match name("20261130-1", true) {
        Err(StoreError::Ambiguous(_, ids)) => assert_eq!(ids.len(), 2),
        other => panic!("{other:?}"),
    }
    assert!(matches!(name("gone", true), Err(StoreError::NotFound(_))));
    assert_eq!(name("20261130-100002-cccc", false).expect("by id"), "gone");
    assert!(matches!(
        name("../state", true),
        Err(StoreError::NotFound(_))
    ));
    assert!(matches!(name("", true), Err(StoreError::NotFound(_))));
}

#[test]
fn running_without_a_server_is_lost() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = store(&dir);
    let id = "20261130-100000-aaaa";
    record(&store, id, "one", 1, RunState::Running);
    assert_eq!(store.last().expect("last").state, RunState::Lost);

    let lock = File::create(store.lock_file(id)).expect("lock file");
    lock.lock().expect("locked");
    assert_eq!(store.last().expect("last").state, RunState::Running);
    drop(lock);
    assert_eq!(store.last().expect("last").state, RunState::Lost);
}

#[test]
fn a_broken_record_hides_no_other() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = store(&dir);
    record(&store, "20261130-100000-aaaa", "one", 1, RunState::Exited);
    let broken = store.session_dir("20261130-100001-bbbb");
    std::fs::create_dir(&broken).expect("mkdir");
    std::fs::write(broken.join("session.json"), "{").expect("write");
    assert_eq!(ids(&store.list().expect("list")), ["20261130-100000-aaaa"]);
    match store.find("20261130-100001-bbbb", false) {
        Err(StoreError::Record { path, .. }) => assert!(path.starts_with(&broken)),
        other => panic!("{other:?}"),
    }
}
