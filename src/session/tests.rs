use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};

use super::core::Session;
use super::event::{ClientId, Event};
use super::journal::Journal;
use super::outbox::{Gate, Outbox};
use super::state::{RunState, SessionInfo, SessionState, Update};
use super::store::Store;
use super::worker::{Job, JobDone, Then};
use crate::change::{Change, ChangeKind, Class, Moves};
use crate::commit::Outcome;
use crate::diff::{Item, ItemId, ItemKind, Span};
use crate::layer::{Digest, FileType, Node, Timestamp};
use crate::protocol::{
    Failure, Hello, PROTOCOL_VERSION, Reply, Request, Role, Say, ServerMessage, Target, codec,
};
use crate::sandbox::{Boundary, ExitStatus, Mode};
use crate::{LayerPath, RelPath};

mod asks;
mod together;

/// A session whose worker is the test itself.
struct Scene {
    dir: tempfile::TempDir,
    session: Session,
    jobs: Receiver<Job>,
    streams: BTreeMap<ClientId, BufReader<UnixStream>>,
    asked: u64,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let store = Store::new(dir.path().join("state"), dir.path().join("run"));
        let info = SessionInfo {
            id: "s1".into(),
            name: "s".into(),
            user: "ada".into(),
            mode: Mode::Staged,
            command: vec!["agent".into()],
            dir: store.session_dir("s1"),
            workspace: "/w".into(),
            layers: Vec::new(),
            started: Timestamp::default(),
            settings: crate::config::SessionSettings {
                keep_undo: 2,
                ..crate::config::SessionSettings::default()
            },
        };
        std::fs::create_dir_all(&info.dir).expect("mkdir");
        let journal = Journal::open(&info.dir.join("journal.jsonl"), |_| ()).expect("journal");
        let (queue, jobs) = unbounded();
        let state = SessionState::default();
        let mut session = Session::new(state, store, journal, Some(queue), None, None);
        session.agree(Update::Opened(Box::new(info)));
        session.agree(Update::Started {
            boundary: Box::new(Boundary::default()),
            command: vec!["agent".into()],
            at: Timestamp::default(),
        });
        session.agree(Update::Exited {
            status: ExitStatus::Code(0),
            at: Timestamp::default(),
        });
        Self {
            dir,
            session,
            jobs,
            streams: BTreeMap::new(),
            asked: 0,
        }
    }

    /// A client over a socket pair; its first message was read.
    fn join(&mut self, client: ClientId, role: Role) {
        let (ours, theirs) = UnixStream::pair().expect("pair");
        theirs
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("time limit");
        let outbox = Arc::new(Outbox::new(false, Arc::new(Gate::default())));
        let queue = Arc::clone(&outbox);
        std::thread::spawn(move || queue.drain(&mut &ours, || {}));
        let hello = Hello {
            version: PROTOCOL_VERSION,
            role,
            output: false,
            size: None,
            owns_command: false,
        };
        self.session.handle(Event::Joined {
            client,
            user: format!("user{client}"),
            hello,
            outbox,
        });
        self.streams.insert(client, BufReader::new(theirs));
        assert!(matches!(self.message(client), ServerMessage::Welcome(_)));
    }

    fn message(&mut self, client: ClientId) -> ServerMessage {
        let stream = self.streams.get_mut(&client).expect("joined");
        codec::read(stream).expect("message").expect("connected")
    }

    fn send(&mut self, client: ClientId, request: Request) -> u64 {
        self.asked += 1;
        self.session.handle(Event::Requested {
            client,
            id: self.asked,
            request,
        });
        self.asked
    }

    /// The reply to a request, past whatever else was said before.
    fn reply(&mut self, client: ClientId, id: u64) -> Result<Reply, Failure> {
        loop {
            if let ServerMessage::Reply(answered, result) = self.message(client)
                && answered == id
            {
                return result;
            }
        }
    }

    fn ask(&mut self, client: ClientId, request: Request) -> Result<Reply, Failure> {
        let id = self.send(client, request);
        self.reply(client, id)
    }

    fn job(&self) -> Job {
        self.jobs.try_recv().expect("a job for the worker")
    }

    fn done(&mut self, done: JobDone) {
        self.session.handle(Event::Done(Box::new(done)));
    }

    /// Answers the scan that is queued.
    fn scanned(&mut self, changes: Vec<Change>) {
        let Job::Scan(then) = self.job() else {
            panic!("the job is no scan");
        };
        let moves = Moves::everything(changes.into_iter().map(Arc::new).collect());
        self.done(JobDone::Scanned(Ok(moves), then, Duration::ZERO));
    }

    /// The changes are these from now on.
    fn shows(&mut self, changes: Vec<Change>) {
        self.session.scan(Then::Rest);
        self.scanned(changes);
    }

    /// Answers the commit that is queued; gives its number and what it would prune.
    fn committed(&mut self, left: Vec<Change>) -> (u32, u32) {
        let Job::Commit {
            number,
            prune_before,
            reply_to,
            approved,
            ..
        } = self.job()
        else {
            panic!("the job is no commit");
        };
        self.done(JobDone::Committed {
            outcome: Outcome::Committed {
                number,
                paths: approved.into_iter().map(|a| a.change.key.clone()).collect(),
                merged: Vec::new(),
            },
            undoes: None,
            scanned: Ok(Moves::everything(left.into_iter().map(Arc::new).collect())),
            reply_to,
        });
        (number, prune_before)
    }
}

fn key(path: &str) -> LayerPath {
    LayerPath::new("workspace", RelPath::try_from(path).expect("path"))
}

fn change(path: &str, version: u8) -> Change {
    Change {
        key: key(path),
        kind: ChangeKind::Added,
        class: Class::Plain,
        before: None,
        after: Some(Arc::new(Node {
            file_type: FileType::File,
            mode: 0o644,
            uid: 1000,
            gid: 1000,
            size: 1,
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            dev: 1,
            ino: 1,
            nlink: 1,
            rdev: 0,
            target: None,
            xattrs: BTreeMap::new(),
            digest: Some(Digest::of(&[version])),
        })),
        binary: false,
        added: 1,
        removed: 0,
        digest: Digest::of(&[version]),
        risks: Vec::new(),
        conflict: None,
        merges: None,
        items: vec![Item {
            id: ItemId("w1".into()),
            kind: ItemKind::Whole,
            old: Span::default(),
            new: Span::default(),
        }],
    }
}

fn approve(path: &str, shown: Option<u8>) -> Request {
    Request::Decide {
        targets: vec![Target::Path(key(path))],
        say: Say::Approve,
        expect: shown.map(|version| Digest::of(&[version])),
        seen: None,
    }
}

const COMMIT: Request = Request::Commit {
    all: true,
    ignored: false,
    merge: false,
    dry_run: false,
    keep_undo: None,
};

#[test]
fn roles_are_enforced() {
    let mut scene = Scene::new();
    scene.shows(vec![change("a", 1)]);
    scene.join(1, Role::Observer);
    scene.join(2, Role::Reviewer);
    assert_eq!(
        scene.ask(1, approve("a", Some(1))),
        Err(Failure::Role(Role::Reviewer))
    );
    for request in [
        COMMIT,
        Request::Undo,
        Request::Stop,
        Request::Discard,
        Request::Retire,
        Request::Revert(vec![Target::All]),
        Request::Input(b"x".to_vec()),
    ] {
        assert_eq!(scene.ask(2, request), Err(Failure::Role(Role::Driver)));
    }
    assert!(scene.jobs.is_empty() && scene.session.state.decisions.is_empty());
    assert_eq!(
        scene.ask(2, approve("a", Some(1))),
        Ok(Reply::Concerned(vec![key("a")]))
    );
}

#[test]
fn a_decision_is_on_what_was_shown() {
    let mut scene = Scene::new();
    scene.join(1, Role::Reviewer);
    scene.shows(vec![change("a", 2)]);
    assert_eq!(
        scene.ask(1, approve("a", Some(1))),
        Err(Failure::Changed {
            path: key("a"),
            now: Digest::of(&[2])
        })
    );
    assert!(scene.session.state.decisions.is_empty());
    // Without a digest what is there at this moment is meant: looked at first.
    let id = scene.send(1, approve("a", None));
    scene.scanned(vec![change("a", 3)]);
    assert_eq!(scene.reply(1, id), Ok(Reply::Concerned(vec![key("a")])));
    assert_eq!(
        scene.session.state.decisions[&key("a")].digest,
        Digest::of(&[3])
    );
    // The agent goes on: nothing is approved any more.
    scene.shows(vec![change("a", 4)]);
    assert!(scene.session.state.decisions.is_empty());
    assert!(scene.session.state.voided.contains_key(&key("a")));
}

#[test]
fn one_commit_at_a_time_each_with_a_number_of_its_own() {
    let mut scene = Scene::new();
    scene.join(1, Role::Driver);
    scene.join(2, Role::Driver);
    let first = scene.send(1, COMMIT);
    let second = scene.send(2, COMMIT);
    scene.scanned(vec![change("a", 1)]);
    scene.scanned(vec![change("a", 1)]);
    assert_eq!(scene.jobs.len(), 1, "the second waits for the first");
    assert!(!scene.session.is_idle());
    let (number, _) = scene.committed(vec![change("b", 1)]);
    assert_eq!(number, 1);
    assert!(matches!(
        scene.reply(1, first),
        Ok(Reply::Outcome(Outcome::Committed { .. }))
    ));
    scene.scanned(vec![change("b", 1)]);
    let (number, _) = scene.committed(Vec::new());
    assert_eq!(number, 2);
    let Ok(Reply::Outcome(Outcome::Committed {
        number: 2, paths, ..
    })) = scene.reply(2, second)
    else {
        panic!("the second commit did not follow");
    };
    assert_eq!(paths, [key("b")]);
    // Undo waits too, and a commit that could not be tried lets it go on.
    let undo = scene.send(1, COMMIT);
    scene.scanned(vec![change("c", 1)]);
    let Job::Commit { reply_to, .. } = scene.job() else {
        panic!("no commit");
    };
    let later = scene.send(2, Request::Undo);
    assert!(scene.jobs.is_empty());
    scene.done(JobDone::NotTried(reply_to, Failure::Other("busy".into())));
    assert!(scene.reply(1, undo).is_err());
    let Job::Undo { undoes, number, .. } = scene.job() else {
        panic!("no undo");
    };
    assert_eq!((undoes, number), (2, 3));
    assert!(later > undo);
}

#[test]
fn undo_is_kept_for_as_many_commits_as_asked() {
    let mut scene = Scene::new();
    scene.join(1, Role::Driver);
    let mut before = Vec::new();
    for (version, keep_undo) in [
        (1, None),
        (2, None),
        (3, None),
        (4, Some(1)),
        (5, Some(0)),
        (6, Some(9)),
    ] {
        scene.send(
            1,
            Request::Commit {
                all: true,
                ignored: false,
                merge: false,
                dry_run: false,
                keep_undo,
            },
        );
        scene.scanned(vec![change("a", version)]);
        before.push(scene.committed(Vec::new()).1);
    }
    assert_eq!(before, [0, 1, 2, 4, 6, 0]);
}

#[test]
fn what_was_discarded_is_neither_committed_nor_decided() {
    let mut scene = Scene::new();
    scene.join(1, Role::Driver);
    scene.shows(vec![change("a", 1)]);
    let id = scene.send(1, Request::Discard);
    let Job::Discard(reply_to) = scene.job() else {
        panic!("nothing to discard");
    };
    scene.done(JobDone::Discarded(reply_to));
    assert_eq!(scene.reply(1, id), Ok(Reply::Done));
    assert_eq!(scene.session.state.run, Some(RunState::Discarded));
    for request in [
        COMMIT,
        Request::Undo,
        approve("a", Some(1)),
        Request::Discard,
    ] {
        assert_eq!(scene.ask(1, request), Err(Failure::Discarded));
    }
    assert!(scene.session.is_ending());
}

#[test]
fn the_journal_replays_to_what_clients_know() {
    let mut scene = Scene::new();
    scene.join(1, Role::Driver);
    scene.shows(vec![change("a", 1), change("b", 1)]);
    assert!(scene.ask(1, approve("a", Some(1))).is_ok());
    scene.send(1, COMMIT);
    scene.scanned(vec![change("a", 1), change("b", 2)]);
    scene.committed(Vec::new());
    scene.session.handle(Event::Left(1));
    let mut replayed = SessionState::default();
    let path = scene.dir.path().join("state/sessions/s1/journal.jsonl");
    Journal::open(&path, |update| replayed.apply(&update)).expect("journal");
    assert_eq!(replayed, scene.session.state);
    assert_eq!(replayed.commits.len(), 1);
}

#[test]
fn a_server_waits_for_its_work_and_its_last_words() {
    let mut scene = Scene::new();
    scene.join(1, Role::Driver);
    scene.send(1, COMMIT);
    scene.scanned(vec![change("a", 1)]);
    // The client goes while the commit runs.
    scene.session.handle(Event::Left(1));
    assert!(!scene.session.is_idle(), "a commit is under way");
    scene.session.handle(Event::Terminated);
    assert!(!scene.session.is_ending(), "a commit is under way");
    scene.committed(Vec::new());
    assert!(scene.session.is_ending());
    scene.join(2, Role::Driver);
    let id = scene.send(2, Request::Retire);
    scene
        .session
        .farewell(Instant::now() + Duration::from_secs(10));
    assert_eq!(scene.reply(2, id), Ok(Reply::Done));
    let mut rest = Vec::new();
    let stream = scene.streams.get_mut(&2).expect("joined");
    stream.read_to_end(&mut rest).expect("closed");
    assert_eq!(rest, b"");
}

#[test]
fn a_worker_that_fails_ends_the_session_and_not_its_clients_patience() {
    let mut scene = Scene::new();
    scene.join(1, Role::Driver);
    scene.send(1, Request::Rescan);
    scene.session.handle(Event::WorkerLost);
    assert!(scene.session.is_ending());
    assert_eq!(scene.session.state.notices.len(), 1);
}

#[test]
fn without_a_stage_every_request_is_answered() {
    let mut scene = Scene::new();
    scene.join(1, Role::Driver);
    scene.shows(vec![change("a", 1)]);
    scene.ask(1, approve("a", Some(1))).expect("approved");
    scene.session.jobs = None;
    let commit = Request::Commit {
        all: false,
        ignored: false,
        merge: false,
        dry_run: false,
        keep_undo: None,
    };
    for request in [
        commit.clone(),
        Request::Contents(key("a")),
        Request::Revert(vec![Target::All]),
        commit,
        Request::Discard,
    ] {
        let answer = scene.ask(1, request);
        assert!(matches!(answer, Err(Failure::Other(_))), "{answer:?}");
    }
}
