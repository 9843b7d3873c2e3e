//! Questions of a gate, from its first word to the answer's file.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::overlay::Access;
use crate::policy::message::{Attempted, Said, Told, Withdrawn};
use crate::policy::{Answer, AnswerFiles, Level, Origin, Pattern, Policy, Rule, Scope};
use crate::session::guard::GuardLink;
use crate::session::state::AnsweredBy;

/// A session whose command has a gate, which is the test.
struct Guarded {
    scene: Scene,
    gate: BufReader<UnixStream>,
    events: Receiver<Event>,
}

impl Guarded {
    fn new() -> Self {
        let mut scene = Scene::new();
        let (ours, theirs) = UnixStream::pair().expect("pair");
        theirs
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("a limit");
        let (out, events) = unbounded();
        let dir = scene.session.state.info.as_ref().expect("info").dir.clone();
        let link = GuardLink::listen(ours, &dir, out.clone()).expect("a link");
        scene.session.asks.events = Some(out);
        let files = AnswerFiles {
            user: scene.dir.path().join("config/answers.json"),
            workspace: scene.dir.path().join("state/answers/w.json"),
        };
        let policy = Policy {
            rules: vec![Rule::parse("ask:*.key", Origin::Session).expect("a rule")],
            files,
            ..Policy::default()
        };
        scene.session.guarded(link, policy);
        Self {
            scene,
            gate: BufReader::new(theirs),
            events,
        }
    }

    fn say(&mut self, said: &Said) {
        codec::write(self.gate.get_mut(), said).expect("said");
        self.event();
    }

    fn event(&mut self) {
        let event = self.events.recv_timeout(Duration::from_secs(10));
        self.scene.session.handle(event.expect("an event"));
    }

    fn ask(&mut self, id: u64, path: &str) {
        self.say(&Said::Asked {
            id,
            what: Attempted {
                key: LayerPath::new("workspace", RelPath::try_from(path).expect("a path")),
                access: Access::Read,
                pid: 1,
                program: "cat".into(),
                glob: "*.key".into(),
            },
            wait: 300_000,
        });
    }

    fn told(&mut self) -> Told {
        codec::read(&mut self.gate)
            .expect("a frame")
            .expect("connected")
    }

    fn answer(&mut self, ask: u64, allow: bool, scope: Scope, pattern: Pattern) -> u64 {
        let request = Request::Answer {
            ask,
            allow,
            scope,
            pattern,
        };
        self.scene.send(1, request)
    }

    fn waiting(&self) -> Vec<u64> {
        self.scene.session.state.asks.keys().copied().collect()
    }

    fn files(&self) -> AnswerFiles {
        self.scene.session.state.answer_files.clone()
    }
}

#[test]
fn an_answer_reaches_the_gate_once_and_only_from_a_driver() {
    let mut guarded = Guarded::new();
    guarded.scene.join(1, Role::Driver);
    guarded.scene.join(2, Role::Reviewer);
    guarded.ask(70, "a.key");
    guarded.ask(71, "b.key");
    assert_eq!(guarded.waiting(), [1, 2]);
    let request = |ask| Request::Answer {
        ask,
        allow: true,
        scope: Scope::Once,
        pattern: Pattern::File,
    };
    assert_eq!(
        guarded.scene.ask(2, request(1)),
        Err(Failure::Role(Role::Driver))
    );
    assert_eq!(guarded.scene.ask(1, request(1)), Ok(Reply::Done));
    assert_eq!(
        guarded.told(),
        Told::Verdict {
            id: 70,
            allow: true
        }
    );
    assert_eq!(
        guarded.scene.ask(1, request(1)),
        Err(Failure::UnknownAsk(1))
    );
    guarded.say(&Said::Withdrawn {
        id: 71,
        why: Withdrawn::TimedOut,
    });
    assert_eq!(
        guarded.scene.ask(1, request(2)),
        Err(Failure::UnknownAsk(2))
    );
    assert!(guarded.waiting().is_empty());
}

#[test]
fn a_sessions_answer_settles_what_waits_and_what_comes() {
    let mut guarded = Guarded::new();
    guarded.scene.join(1, Role::Driver);
    for (id, path) in [(1, "d/a.key"), (2, "d/b.key"), (3, "e/c.key")] {
        guarded.ask(id, path);
    }
    let id = guarded.answer(1, true, Scope::Session, Pattern::Directory);
    assert_eq!(guarded.scene.reply(1, id), Ok(Reply::Done));
    let Told::Remember(answer) = guarded.told() else {
        panic!("the gate must know it too");
    };
    assert_eq!(guarded.told(), Told::Verdict { id: 1, allow: true });
    assert_eq!(guarded.told(), Told::Verdict { id: 2, allow: true });
    assert_eq!(guarded.waiting(), [3]);
    // One that was on its way already.
    guarded.ask(4, "d/x.key");
    assert_eq!(guarded.told(), Told::Verdict { id: 4, allow: true });
    assert_eq!(guarded.waiting(), [3]);
    assert_eq!(
        guarded.scene.ask(1, Request::Forget(answer.clone())),
        Ok(Reply::Done)
    );
    assert_eq!(guarded.told(), Told::Forget(answer));
    guarded.ask(5, "d/x.key");
    assert_eq!(guarded.waiting(), [3, 4]);
}

#[test]
fn an_answer_for_longer_is_on_disk_before_it_counts() {
    let mut guarded = Guarded::new();
    guarded.scene.join(1, Role::Driver);
    guarded.ask(1, "a.key");
    let id = guarded.answer(1, true, Scope::User, Pattern::Suffix);
    guarded.event();
    assert_eq!(guarded.scene.reply(1, id), Ok(Reply::Done));
    assert!(matches!(
        guarded.told(),
        Told::Remember(Answer { allow: true, .. })
    ));
    assert_eq!(guarded.told(), Told::Verdict { id: 1, allow: true });
    let kept = crate::config::answers::load(&guarded.files()).expect("kept");
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].subject.shown(), b"*.key");

    // A file that others may write is not written to: the answer counts as no.
    let file = guarded.files().user;
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).expect("chmod");
    guarded
        .scene
        .session
        .agree(Update::Forgotten(kept[0].clone()));
    guarded.ask(2, "b.key");
    let id = guarded.answer(2, true, Scope::User, Pattern::File);
    guarded.event();
    let reply = guarded.scene.reply(1, id).expect_err("not saved");
    assert!(reply.to_string().contains("counts as denied"), "{reply}");
    assert_eq!(
        guarded.told(),
        Told::Verdict {
            id: 2,
            allow: false
        }
    );
    assert!(
        guarded
            .scene
            .session
            .state
            .notices
            .iter()
            .any(|n| n.contains("denied"))
    );
}

#[test]
fn counts_lie_beside_the_session_and_the_gates_end_denies() {
    let mut guarded = Guarded::new();
    guarded.scene.join(1, Role::Driver);
    guarded.ask(1, "a.key");
    let mut counts = crate::policy::PathCounts::default();
    counts.note(Access::Read, 5, Timestamp { sec: 1, nsec: 0 });
    let key = LayerPath::new("workspace", RelPath::new(*b"\xff").expect("a path"));
    let batch = crate::policy::Observations {
        paths: [(key.clone(), counts)].into(),
        more: 0,
    };
    codec::write(guarded.gate.get_mut(), &Said::Observed(batch.clone())).expect("said");
    guarded.say(&Said::Remarked(
        Level::Deny,
        Attempted {
            key,
            access: Access::Read,
            pid: 0,
            program: String::new(),
            glob: "x".into(),
        },
    ));
    assert_eq!(
        guarded.scene.ask(1, Request::Observed),
        Ok(Reply::Observed(Some(Box::new(batch.clone()))))
    );
    assert_eq!(guarded.scene.session.state.remarks.len(), 1);
    guarded
        .gate
        .get_ref()
        .shutdown(std::net::Shutdown::Both)
        .expect("shutdown");
    guarded.event();
    assert!(guarded.waiting().is_empty());
    let store = &guarded.scene.session.store;
    let saved = store.observations("s1").expect("the log");
    assert_eq!(saved, Some(batch));
    let by = AnsweredBy::Nobody(Withdrawn::GateGone);
    let mut seen = Vec::new();
    let journal = guarded
        .scene
        .dir
        .path()
        .join("state/sessions/s1/journal.jsonl");
    Journal::open(&journal, |update| seen.push(update)).expect("the journal");
    assert!(seen.iter().any(|update| matches!(
        update,
        Update::Answered { ask: 1, allow: false, by: b, .. } if *b == by
    )));
}
