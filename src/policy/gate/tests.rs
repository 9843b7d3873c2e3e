//! The gate as a file server calls it and a session answers it.

use std::io::BufReader;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use super::super::{Observations, Origin, Subject};
use super::*;
use crate::layer::Driver;

/// A session at the other end of a gate over one layer.
struct Scene {
    _dir: tempfile::TempDir,
    layer: Layer,
    gate: Arc<Gate>,
    session: UnixStream,
    said: BufReader<UnixStream>,
}

fn layer(dir: &Path) -> Layer {
    let layer = Layer {
        name: "workspace".into(),
        root: dir.join("w"),
        dir: dir.join("s/layers/workspace"),
        driver: Driver::Fuse,
    };
    std::fs::create_dir_all(&layer.root).expect("lower");
    std::fs::create_dir_all(layer.upper()).expect("upper");
    layer
}

fn policy(rules: &[&str]) -> Policy {
    Policy {
        rules: rules
            .iter()
            .map(|typed| Rule::parse(typed, Origin::Session).expect("a rule"))
            .collect(),
        ..Policy::default()
    }
}

impl Scene {
    fn new(rules: &[&str], files: &[&str]) -> Self {
        Self::with(&policy(rules), files)
    }

    fn with(policy: &Policy, files: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let layer = layer(dir.path());
        for file in files {
            let path = layer.root.join(file);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
            std::fs::write(path, "x").expect("write");
        }
        let (ours, theirs) = UnixStream::pair().expect("pair");
        let gate = Gate::new(policy, std::slice::from_ref(&layer), true, theirs).expect("a gate");
        ours.set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a limit");
        Self {
            _dir: dir,
            layer,
            gate: Arc::new(gate),
            said: BufReader::new(ours.try_clone().expect("clone")),
            session: ours,
        }
    }

    fn permit(&self, path: &str, access: Access) -> Result<(), Refusal> {
        permit(&self.gate, path, access, None)
    }

    /// An access that may wait, and where its end is told.
    fn try_later(&self, path: &str, access: Access, pid: u32) -> Receiver<Result<(), Refusal>> {
        let (out, ended) = channel();
        let (gate, path) = (Arc::clone(&self.gate), path.to_owned());
        std::thread::spawn(move || out.send(attempt(&gate, &path, access, pid, None)));
        ended
    }

    /// The next message that is not a count.
    fn said(&mut self) -> Said {
        loop {
            match codec::read(&mut self.said).expect("a frame") {
                Some(Said::Observed(_)) => {}
                other => return other.expect("the gate is there"),
            }
        }
    }

    fn asked(&mut self) -> (u64, Attempted) {
        match self.said() {
            Said::Asked { id, what, .. } => (id, what),
            other => panic!("no question but {other:?}"),
        }
    }

    fn tell(&self, told: &Told) {
        codec::write(&mut &self.session, told).expect("told");
    }

    fn protects_below(&self, dir: &str) -> bool {
        self.gate.protects_below("workspace", &path(dir))
    }
}

fn path(text: &str) -> RelPath {
    RelPath::try_from(text).expect("a path")
}

fn attempt(
    gate: &Gate,
    at: &str,
    access: Access,
    pid: u32,
    alias: Option<(u64, u64)>,
) -> Result<(), Refusal> {
    gate.permit(&Attempt {
        layer: "workspace",
        path: &path(at),
        access,
        pid,
        alias,
    })
}

fn permit(gate: &Gate, at: &str, access: Access, alias: Option<(u64, u64)>) -> Result<(), Refusal> {
    attempt(gate, at, access, std::process::id(), alias)
}

fn ended(receiver: &Receiver<Result<(), Refusal>>) -> Result<(), Refusal> {
    receiver
        .recv_timeout(Duration::from_secs(20))
        .expect("it ends")
}

const DENIED: Result<(), Refusal> = Err(Refusal::Denied);

#[test]
fn denied_paths_are_neither_listed_nor_reached_and_told_once() {
    let mut scene = Scene::new(&["deny:secrets", "warn:*.env"], &["secrets/key", "a.env"]);
    for access in [Access::Lookup, Access::Read, Access::Create, Access::Read] {
        assert_eq!(scene.permit("secrets/key", access), DENIED, "{access:?}");
    }
    assert!(!scene.gate.lists("workspace", &path("secrets")));
    assert!(scene.gate.lists("workspace", &path("a.env")));
    assert_eq!(scene.permit("a.env", Access::Lookup), Ok(()));
    assert_eq!(scene.permit("a.env", Access::Read), Ok(()));
    for expected in [Access::Lookup, Access::Read, Access::Create] {
        let Said::Remarked(Level::Deny, what) = scene.said() else {
            panic!("no remark");
        };
        assert_eq!((what.access, what.glob.as_str()), (expected, "secrets"));
        assert_eq!(what.pid, std::process::id());
        assert!(!what.program.is_empty());
    }
    assert!(matches!(
        scene.said(),
        Said::Remarked(Level::Warn, what) if what.key.path == path("a.env") && what.access == Access::Read
    ));
}

#[test]
fn a_question_waits_for_its_answer_and_is_asked_once() {
    let mut scene = Scene::new(&["ask:*.key"], &["a.key"]);
    assert_eq!(
        scene.permit("a.key", Access::Lookup),
        Ok(()),
        "looking asks nobody"
    );
    let one = scene.try_later("a.key", Access::Read, std::process::id());
    let (id, what) = scene.asked();
    assert_eq!((what.key.path, what.access), (path("a.key"), Access::Read));
    let two = scene.try_later("a.key", Access::Read, std::process::id());
    let other = scene.try_later("a.key", Access::Write, std::process::id());
    let (second, _) = scene.asked();
    assert!(one.try_recv().is_err(), "it waits");
    scene.tell(&Told::Verdict { id, allow: true });
    scene.tell(&Told::Verdict {
        id: second,
        allow: false,
    });
    assert_eq!((ended(&one), ended(&other)), (Ok(()), DENIED));
    // The second reader joined the question, or came after its answer and asks anew.
    if let Ok(joined) = two.recv_timeout(Duration::from_millis(300)) {
        assert_eq!(joined, Ok(()));
    } else {
        let (id, _) = scene.asked();
        scene.tell(&Told::Verdict { id, allow: true });
        assert_eq!(ended(&two), Ok(()));
    }
}

#[test]
fn answers_settle_questions_and_lift_no_denial() {
    let mut scene = Scene::new(&["ask:*.key", "deny:b.key"], &["a.key", "b.key"]);
    let below = |allow| Answer {
        allow,
        origin: Origin::Session,
        subject: Subject::Below(scene.layer.root.as_os_str().as_encoded_bytes().to_vec()),
    };
    let (yes, no) = (below(true), below(false));
    scene.tell(&Told::Remember(yes.clone()));
    // The answer is in force once a question after it is settled by it.
    let first = scene.try_later("a.key", Access::Read, 0);
    if let Ok(result) = first.recv_timeout(Duration::from_millis(500)) {
        assert_eq!(result, Ok(()));
    } else {
        let (id, _) = scene.asked();
        scene.tell(&Told::Verdict { id, allow: true });
        assert_eq!(ended(&first), Ok(()));
    }
    assert_eq!(scene.permit("a.key", Access::Write), Ok(()));
    assert_eq!(scene.permit("b.key", Access::Read), DENIED);
    scene.tell(&Told::Remember(no));
    scene.tell(&Told::Forget(yes));
    let end = Instant::now() + Duration::from_secs(20);
    while scene.permit("a.key", Access::Read).is_ok() {
        assert!(Instant::now() < end, "the later answer counts");
    }
}

#[test]
fn without_an_answer_in_time_it_is_denied() {
    let mut brief = policy(&["ask:*"]);
    brief.ask_timeout = Duration::from_millis(50);
    let mut scene = Scene::with(&brief, &["a"]);
    let waiting = scene.try_later("a", Access::Read, std::process::id());
    let (id, _) = scene.asked();
    assert_eq!(ended(&waiting), DENIED);
    assert_eq!(
        scene.said(),
        Said::Withdrawn {
            id,
            why: Withdrawn::TimedOut
        }
    );
    // An answer that comes too late answers nothing, and harms nothing.
    scene.tell(&Told::Verdict { id, allow: true });
    let again = scene.try_later("a", Access::Read, std::process::id());
    assert_eq!(ended(&again), DENIED);
}

#[test]
fn a_session_that_is_gone_denies() {
    let mut scene = Scene::new(&["ask:*"], &["a"]);
    let waiting = scene.try_later("a", Access::Read, std::process::id());
    scene.asked();
    scene
        .session
        .shutdown(std::net::Shutdown::Both)
        .expect("shutdown");
    assert_eq!(ended(&waiting), DENIED);
    assert_eq!(scene.permit("a", Access::Write), DENIED);
}

#[test]
fn a_caller_that_was_killed_does_not_wait_for_a_person() {
    let mut scene = Scene::new(&["ask:*"], &["a"]);
    let mut child = std::process::Command::new("sleep")
        .arg("100")
        .spawn()
        .expect("a child");
    // A child is said to be started a moment before it has its program's name.
    let name = format!("/proc/{}/comm", child.id());
    while std::fs::read_to_string(&name).expect("it runs") != "sleep\n" {
        std::thread::yield_now();
    }
    let waiting = scene.try_later("a", Access::Read, child.id());
    let (id, what) = scene.asked();
    assert_eq!(what.program, "sleep");
    child.kill().expect("killed");
    child.wait().expect("reaped");
    assert_eq!(ended(&waiting), DENIED);
    let why = Withdrawn::CallerGone;
    assert_eq!(scene.said(), Said::Withdrawn { id, why });
}

#[test]
fn another_name_of_a_protected_file_is_protected() {
    let scene = Scene::new(&["deny:secrets"], &["secrets/key", "plain"]);
    let root = &scene.layer.root;
    std::fs::hard_link(root.join("secrets/key"), root.join("innocent")).expect("link");
    std::fs::hard_link(root.join("plain"), root.join("other")).expect("link");
    let inode = |name: &str| {
        let meta = std::fs::metadata(root.join(name)).expect("stat");
        Some((meta.dev(), meta.ino()))
    };
    let read = |name: &str| permit(&scene.gate, name, Access::Read, inode(name));
    assert_eq!(read("innocent"), DENIED);
    assert_eq!((read("other"), read("plain")), (Ok(()), Ok(())));
}

#[test]
fn directories_around_protected_things_stay_where_they_are() {
    let files = ["a/b/c/id_rsa", "a/d/x", "e/f/y", "e/z.env"];
    let mut scene = Scene::new(&["deny:id_rsa", "warn:*.env"], &files);
    for (dir, protected) in [("a", true), ("a/b", true), ("a/d", false), ("e", false)] {
        assert_eq!(scene.protects_below(dir), protected, "{dir}");
        assert_eq!(scene.protects_below(dir), protected, "{dir} again");
    }
    // What the agent's own side holds counts too, and what it removed does not.
    std::fs::create_dir_all(scene.layer.upper().join("e/new")).expect("mkdir");
    std::fs::write(scene.layer.upper().join("e/new/id_rsa"), "k").expect("write");
    assert!(scene.protects_below("e"));

    scene = Scene::new(&["ask:x"], &["a/x", "b/x", "c/y"]);
    assert!(!scene.protects_below("c"));
    let gate = Arc::clone(&scene.gate);
    let moved = std::thread::spawn(move || gate.protects_below("workspace", &path("a")));
    let (id, what) = scene.asked();
    assert_eq!((what.key.path, what.access), (path("a/x"), Access::Remove));
    scene.tell(&Told::Verdict { id, allow: true });
    assert!(!moved.join().expect("ends"), "the person let it go");
    let upper = scene.layer.upper();
    std::fs::create_dir_all(upper.join("b")).expect("mkdir");
    if std::process::Command::new("mknod")
        .args(["x", "c", "0", "0"])
        .current_dir(upper.join("b"))
        .status()
        .is_ok_and(|status| status.success())
    {
        assert!(!scene.protects_below("b"), "what was removed asks no more");
    }
}

#[test]
fn what_happens_is_counted() {
    let mut scene = Scene::new(&["deny:no"], &["a"]);
    let gate = Arc::clone(&scene.gate);
    gate.observed("workspace", &path("a"), Access::Read, 0);
    gate.observed("workspace", &path("a"), Access::Read, 4096);
    gate.observed("workspace", &path("b"), Access::Write, 3);
    assert_eq!(scene.permit("no", Access::Read), DENIED);
    drop(gate);
    let mut all = Observations::default();
    while all.paths.len() < 3 {
        match codec::read(&mut scene.said).expect("a frame") {
            Some(Said::Observed(batch)) => all.merge(&batch, 100),
            Some(_) => {}
            None => panic!("the gate is gone"),
        }
    }
    let of = |name: &str| all.paths[&LayerPath::new("workspace", path(name))];
    assert_eq!((of("a").opened, of("a").bytes_read), (1, 4096));
    assert_eq!((of("b").written, of("b").bytes_written), (1, 3));
    assert_eq!(of("no").denied, 1);
    // What was counted last is sent before the end.
    scene
        .gate
        .observed("workspace", &path("last"), Access::Create, 0);
    let Scene { gate, mut said, .. } = scene;
    drop(gate);
    let mut last = None;
    while let Ok(Some(message)) = codec::read::<Said>(&mut said) {
        last = Some(message);
    }
    assert!(matches!(
        last,
        Some(Said::Observed(batch)) if batch.paths.keys().any(|key| key.path == path("last"))
    ));
}
