//! The gate: holds the rules where the files are served. Owns the questions that wait, the
//! remarks and counts on their way to the session, and what of the host is protected under another
//! name. Lives in the file server's process, whose threads call it; speaks with the session over a
//! socket.
//!
//! * Looking a name up (its attributes) asks nobody: only a `deny` rule refuses it.
//! * The kernel resolves links, so a rule holds on what a link leads to.
//! * A file with several names is protected under all of them if one is. The protected ones are
//!   found by one walk over the lowers when the first such file is met.
//! * A directory with something protected below is neither moved nor removed as a whole.
//! * A question that is not answered is denied: after the time set, when the process that asked is
//!   ended, when the session is gone, or when too many wait already.

mod below;
mod outbox;
mod questions;
mod room;

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use self::below::Aliases;
use self::outbox::Outbox;
use self::questions::{Ending, Questions};
use self::room::Room;
use super::message::{Attempted, Said, Told, Withdrawn};
use super::{Answer, Level, Matcher, Policy, Rule, RuleError, answer};
use crate::layer::Layer;
use crate::overlay::{Access, Attempt, Guard, Refusal};
use crate::protocol::codec;
use crate::text::visible_path;
use crate::{LayerPath, RelPath};

/// Protected entries below one directory that are asked about one by one when it is moved.
const ASKED_BELOW: usize = 16;
/// How long the session may leave its end unread before it counts as gone.
const STALLED: Duration = Duration::from_secs(30);

/// Why a gate could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// A rule cannot be used.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// A layer cannot be opened, or a thread not started.
    #[error("guarding {}: {source}", visible_path(path))]
    Layer {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// See the module. Dropping it sends what was counted and ends its threads.
pub struct Gate {
    hall: Arc<Hall>,
    writer: Option<JoinHandle<()>>,
    stream: UnixStream,
}

/// What the gate's threads share.
struct Hall {
    rooms: Vec<Room>,
    matcher: Matcher,
    answers: RwLock<Vec<Answer>>,
    questions: Questions,
    outbox: Outbox,
    aliases: Aliases,
    timeout: Duration,
    observe: bool,
}

impl Gate {
    /// Opens the layers (before anything is mounted over them) and starts two threads, which is
    /// why nothing may be forked afterwards. `observe`: every access is counted.
    pub fn new(
        policy: &Policy,
        layers: &[Layer],
        observe: bool,
        to_session: UnixStream,
    ) -> Result<Self, GateError> {
        let matcher = Matcher::new(policy)?;
        let failed = |layer: &Layer| {
            let path = layer.root.clone();
            move |source| GateError::Layer { path, source }
        };
        let rooms = layers
            .iter()
            .map(|layer| Room::open(layer).map_err(failed(layer)))
            .collect::<Result<Vec<_>, _>>()?;
        let (outbox, queue) = Outbox::new();
        let hall = Arc::new(Hall {
            rooms,
            matcher,
            answers: RwLock::new(policy.answers.clone()),
            questions: Questions::default(),
            outbox,
            aliases: Aliases::default(),
            timeout: policy.ask_timeout,
            observe,
        });
        let thread = |name: &str, life: Box<dyn FnOnce() + Send>| {
            let started = std::thread::Builder::new().name(name.into()).spawn(life);
            started.map_err(|source| GateError::Layer {
                path: "/".into(),
                source,
            })
        };
        let copy = || {
            to_session.try_clone().map_err(|source| GateError::Layer {
                path: "/".into(),
                source,
            })
        };
        let (mut out, input) = (copy()?, copy()?);
        // A session that does not read for so long is none.
        let _ = out.set_write_timeout(Some(STALLED));
        let writing = Arc::clone(&hall);
        let writer = thread(
            "gate-says",
            Box::new(move || {
                writing.outbox.drain(&queue, &mut out, &writing.rooms);
                // Nobody hears the questions any more.
                writing.questions.close();
            }),
        )?;
        let reading = Arc::clone(&hall);
        thread("gate-hears", Box::new(move || reading.hear(input)))?;
        Ok(Self {
            hall,
            writer: Some(writer),
            stream: to_session,
        })
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.hall.questions.close();
        self.hall.outbox.end();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

impl Hall {
    /// Takes the session's words in until it is gone; then every question is denied.
    fn hear(&self, input: UnixStream) {
        let mut input = std::io::BufReader::new(input);
        while let Ok(Some(told)) = codec::read(&mut input) {
            let answers = || self.answers.write().unwrap_or_else(PoisonError::into_inner);
            match told {
                Told::Verdict { id, allow } => self.questions.answer(id, allow),
                Told::Remember(answer) => answer::remember(&mut answers(), answer),
                Told::Forget(answer) => answers().retain(|known| *known != answer),
                Told::Count => {
                    // With a full queue the session waits for its own time only.
                    self.outbox.say(Said::Counted);
                }
            }
        }
        self.questions.close();
    }

    fn room(&self, layer: &str) -> Option<usize> {
        self.rooms.iter().position(|room| room.name == layer)
    }

    /// The rule on a path, or on another name of the same file when that is stricter: where the
    /// rule was met, and which.
    fn rule(&self, at: usize, attempt: &Attempt<'_>) -> Option<(usize, RelPath, &Rule)> {
        let room = &self.rooms[at];
        let own = self
            .matcher
            .verdict(room.place(), attempt.path, Level::Warn)
            .map(|rule| (at, attempt.path.clone(), rule));
        let level = own.as_ref().map(|(.., rule)| rule.level);
        if let Some(inode) = attempt.alias
            && self.matcher.protects()
            && level != Some(Level::Deny)
            && let Some((at, path)) = self.aliases.find(inode, &self.rooms, &self.matcher)
            && let Some(rule) = self
                .matcher
                .verdict(self.rooms[at].place(), &path, Level::Ask)
            && Some(rule.level) > level
        {
            return Some((at, path, rule));
        }
        own
    }

    /// Puts a question to a person, unless an answer settles it already.
    fn ask(&self, at: usize, path: &RelPath, access: Access, pid: u32, rule: &Rule) -> bool {
        let absolute = self.rooms[at].place().absolute(path);
        let answers = self.answers.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answer::settled(&answers, &absolute) {
            return answer.allow;
        }
        drop(answers);
        let Some(question) = self.questions.open(at, path, access) else {
            return false;
        };
        let program = questions::program(pid);
        if question.first {
            let asked = Said::Asked {
                id: question.id,
                what: Attempted {
                    key: self.key(at, path),
                    access,
                    pid,
                    program: program.clone().unwrap_or_default(),
                    glob: rule.glob.clone(),
                },
                wait: u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX),
            };
            if !self.outbox.say(asked) {
                self.questions.answer(question.id, false);
            }
        }
        let caller = program.is_some().then_some(pid);
        let why = match self.questions.wait(&question, self.timeout, caller) {
            Ending::Answered(allow) => return allow,
            Ending::TimedOut => Withdrawn::TimedOut,
            Ending::CallerGone => Withdrawn::CallerGone,
            Ending::NotOurs => return false,
        };
        self.outbox.say(Said::Withdrawn {
            id: question.id,
            why,
        });
        false
    }

    fn key(&self, at: usize, path: &RelPath) -> LayerPath {
        LayerPath::new(self.rooms[at].name.clone(), path.clone())
    }

    fn remark(&self, level: Level, at: usize, path: &RelPath, attempt: &Attempt<'_>, rule: &Rule) {
        if self.outbox.is_news(level, at, path, attempt.access) {
            self.outbox.say(Said::Remarked(
                level,
                Attempted {
                    key: self.key(at, path),
                    access: attempt.access,
                    pid: attempt.pid,
                    program: questions::program(attempt.pid).unwrap_or_default(),
                    glob: rule.glob.clone(),
                },
            ));
        }
    }

    fn permit(&self, attempt: &Attempt<'_>) -> Result<(), Refusal> {
        let Some(at) = self.room(attempt.layer) else {
            return Ok(());
        };
        let Some((met, path, rule)) = self.rule(at, attempt) else {
            return Ok(());
        };
        let looks = attempt.access == Access::Lookup;
        let allowed = match rule.level {
            Level::Deny => {
                self.remark(Level::Deny, met, &path, attempt, rule);
                false
            }
            Level::Ask => looks || self.ask(met, &path, attempt.access, attempt.pid, rule),
            Level::Warn => {
                if !looks && attempt.access != Access::List {
                    self.remark(Level::Warn, met, &path, attempt, rule);
                }
                true
            }
        };
        if allowed {
            return Ok(());
        }
        if self.observe {
            self.outbox.count_denied(at, attempt.path);
        }
        Err(Refusal::Denied)
    }

    /// See [`Guard::protects_below`]. What is asked about below is asked about now.
    fn protects_below(&self, at: usize, directory: &RelPath) -> bool {
        if !self.matcher.protects() {
            return false;
        }
        let room = &self.rooms[at];
        if self
            .matcher
            .verdict(room.place(), directory, Level::Deny)
            .is_some()
        {
            return true;
        }
        let Some(found) = room.protected_below(directory, &self.matcher, ASKED_BELOW) else {
            return true;
        };
        found.into_iter().any(
            |path| match self.matcher.verdict(room.place(), &path, Level::Ask) {
                Some(rule) if rule.level == Level::Ask => {
                    !self.ask(at, &path, Access::Remove, 0, rule)
                }
                rule => rule.is_some(),
            },
        )
    }
}

impl Guard for Gate {
    fn permit(&self, attempt: &Attempt<'_>) -> Result<(), Refusal> {
        if self.hall.matcher.is_empty() {
            return Ok(());
        }
        self.hall.permit(attempt)
    }

    fn lists(&self, layer: &str, path: &RelPath) -> bool {
        let hall = &self.hall;
        !hall.matcher.protects()
            || hall.room(layer).is_none_or(|at| {
                hall.matcher
                    .verdict(hall.rooms[at].place(), path, Level::Deny)
                    .is_none()
            })
    }

    fn protects_below(&self, layer: &str, directory: &RelPath) -> bool {
        let at = self.hall.room(layer);
        at.is_some_and(|at| self.hall.protects_below(at, directory))
    }

    fn observed(&self, layer: &str, path: &RelPath, access: Access, bytes: u64) {
        if self.hall.observe
            && let Some(at) = self.hall.room(layer)
        {
            self.hall.outbox.count(at, path, access, bytes);
        }
    }

    fn concerns(&self, layer: &str, path: &RelPath) -> bool {
        let hall = &self.hall;
        hall.room(layer).is_some_and(|at| {
            hall.matcher
                .verdict(hall.rooms[at].place(), path, Level::Warn)
                .is_some()
        })
    }

    fn decides(&self) -> bool {
        !self.hall.matcher.is_empty()
    }

    fn waits(&self) -> bool {
        self.hall.matcher.asks()
    }

    fn settles_by_lookup(&self) -> bool {
        !self.hall.matcher.asks()
    }

    fn observes(&self) -> bool {
        self.hall.observe
    }
}

#[cfg(test)]
mod tests;
