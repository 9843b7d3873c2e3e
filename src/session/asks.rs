//! Questions of the gate as the session holds them: numbers, answers, what is remembered. Owns who
//! is told what; files of answers are written by threads of their own, because the session thread
//! waits for no disk.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossbeam_channel::Sender;

use super::core::Session;
use super::event::Event;
use super::guard::GuardLink;
use super::state::{AnsweredBy, Ask, Remark, Update};
use super::worker::ReplyTo;
use crate::LayerPath;
use crate::config::answers;
use crate::layer::Timestamp;
use crate::policy::message::{Said, Told, Withdrawn};
use crate::policy::{Answer, Observations, Origin, Pattern, Policy, Scope, Subject, answer};
use crate::protocol::{Failure, Reply};

/// Paths of the observation log that a screen gets.
const SHOWN: usize = 500;

/// What a session knows of its gate's questions besides the agreed state.
#[derive(Default)]
pub struct Asks {
    /// The gate's number of each question that waits.
    gate: HashMap<u64, u64>,
    /// Questions whose answer is being saved.
    saving: Vec<u64>,
    last: u64,
    /// Where threads that write files tell their end.
    pub events: Option<Sender<Event>>,
}

/// An answer that was to be written to its file, or taken out of it.
#[derive(Clone)]
pub struct Kept {
    answer: Answer,
    /// The question it answers; `None` when it is being forgotten.
    ask: Option<u64>,
    by: String,
    reply_to: ReplyTo,
    result: Result<(), String>,
}

impl Session {
    /// The command that was started has a gate.
    pub(super) fn guarded(&mut self, link: GuardLink, policy: Policy) {
        self.guard = Some(link);
        // Numbers go on: `allow 3` never means another question than the one that was shown.
        self.asks.last = self.asks.last.max(self.state.last_ask);
        self.agree(Update::Guarded {
            rules: policy.rules,
            answers: policy.answers,
            files: policy.files,
        });
    }

    pub(super) fn gate_said(&mut self, said: Said) {
        match said {
            Said::Asked { id, what, wait } => {
                let absolute = self.absolute(&what.key);
                if let Some(settled) = answer::settled(&self.state.answers, &absolute) {
                    // It was remembered while this question was on its way.
                    self.tell(&Told::Verdict {
                        id,
                        allow: settled.allow,
                    });
                    return;
                }
                self.asks.last += 1;
                let number = self.asks.last;
                self.asks.gate.insert(number, id);
                let at = Timestamp::now();
                self.agree(Update::Asked(Box::new(Ask {
                    id: number,
                    what,
                    at,
                    until: after(at, Duration::from_millis(wait)),
                })));
            }
            Said::Withdrawn { id, why } => {
                let number = self.asks.gate.iter().find(|(_, gate)| **gate == id);
                if let Some(number) = number.map(|(number, _)| *number) {
                    self.asks.gate.remove(&number);
                    self.answered(number, false, AnsweredBy::Nobody(why));
                }
            }
            Said::Remarked(level, what) => {
                let at = Timestamp::now();
                self.agree(Update::Warned(Box::new(Remark { level, what, at })));
            }
            Said::RemarksCut(more) => self.agree(Update::WarnedMore(more)),
            Said::Observed(_) | Said::Counted => {}
        }
    }

    pub(super) fn gate_gone(&mut self) {
        // The link stays: what was counted can still be asked for.
        let waiting: Vec<u64> = self.asks.gate.drain().map(|(number, _)| number).collect();
        for number in waiting {
            let by = AnsweredBy::Nobody(Withdrawn::GateGone);
            self.answered(number, false, by);
        }
    }

    /// Answers a question. `None`: the reply comes when the answer was saved.
    pub(super) fn answer(
        &mut self,
        ask: u64,
        allow: bool,
        scope: Scope,
        pattern: Pattern,
        to: ReplyTo,
    ) -> Option<Result<Reply, Failure>> {
        let Some(what) = self.state.asks.get(&ask).map(|ask| ask.what.clone()) else {
            return Some(Err(Failure::UnknownAsk(ask)));
        };
        if self.asks.saving.contains(&ask) {
            let text = format!("question {ask} is being answered by somebody else");
            return Some(Err(Failure::Other(text)));
        }
        let by = self.user_of(to);
        let Some(origin) = scope.origin() else {
            self.verdict(ask, allow, AnsweredBy::Person(by));
            return Some(Ok(Reply::Done));
        };
        let Some(subject) = Subject::of(pattern, &self.absolute(&what.key), what.access) else {
            let text = format!("the name {} has no suffix", what.key);
            return Some(Err(Failure::Other(text)));
        };
        let answer = Answer {
            allow,
            origin,
            subject,
        };
        if origin == Origin::Session {
            self.remember(answer, Some(ask), by);
            return Some(Ok(Reply::Done));
        }
        self.asks.saving.push(ask);
        self.keep(answer, Some(ask), by, to);
        None
    }

    /// A remembered answer no longer holds. `None`: the reply comes when its file says so too.
    pub(super) fn forget_answer(
        &mut self,
        answer: Answer,
        to: ReplyTo,
    ) -> Option<Result<Reply, Failure>> {
        if !self.state.answers.contains(&answer) {
            let text = "no such answer is remembered".into();
            return Some(Err(Failure::Other(text)));
        }
        if answer.origin == Origin::Session {
            self.forgotten(answer);
            return Some(Ok(Reply::Done));
        }
        let by = self.user_of(to);
        self.keep(answer, None, by, to);
        None
    }

    /// What was counted, most refused and most recent paths first, as far as a screen shows them.
    pub(super) fn observations(&self) -> Option<Box<Observations>> {
        let observed = self.guard.as_ref()?.observed();
        let observed = observed.as_ref()?;
        let mut paths: Vec<_> = observed.paths.iter().collect();
        paths.sort_by_key(|(_, counts)| {
            std::cmp::Reverse((counts.denied, counts.bytes_written, counts.accesses()))
        });
        let mut shown = Observations {
            more: observed.more,
            ..Observations::default()
        };
        for (at, (key, counts)) in paths.into_iter().enumerate() {
            if at < SHOWN {
                shown.paths.insert(key.clone(), *counts);
            } else {
                shown.more = shown.more.saturating_add(counts.accesses());
            }
        }
        Some(Box::new(shown))
    }

    /// Writes an answer to its file, or takes it out of it, in a thread of its own.
    fn keep(&mut self, answer: Answer, ask: Option<u64>, by: String, reply_to: ReplyTo) {
        let file = self.state.answer_files.of(answer.origin).map(PathBuf::from);
        let workspace = self.state.info.as_ref().map(|info| info.workspace.clone());
        let workspace = workspace.filter(|_| answer.origin == Origin::Workspace);
        let kept = Kept {
            answer,
            ask,
            by,
            reply_to,
            result: Err("no place is known where it could be kept".into()),
        };
        let (Some(file), Some(events)) = (file, self.asks.events.clone()) else {
            self.kept(kept);
            return;
        };
        let mut job = kept.clone();
        let started = std::thread::Builder::new()
            .name("answers".into())
            .spawn(move || {
                job.result = write(&job, &file, workspace.as_deref());
                let _ = events.send(Event::Kept(Box::new(job)));
            });
        if let Err(error) = started {
            let result = Err(error.to_string());
            self.kept(Kept { result, ..kept });
        }
    }

    /// An answer was saved or forgotten, or could not be: what could not be saved is denied.
    pub(super) fn kept(&mut self, kept: Kept) {
        let Kept {
            answer,
            ask,
            by,
            reply_to,
            result,
        } = kept;
        if let Some(ask) = ask {
            self.asks.saving.retain(|saving| *saving != ask);
        }
        let reply = match (result, ask) {
            (Ok(()), None) => {
                self.forgotten(answer);
                Ok(Reply::Done)
            }
            (Ok(()), ask) => {
                self.remember(answer, ask, by);
                Ok(Reply::Done)
            }
            (Err(error), Some(ask)) => {
                let text =
                    format!("The answer could not be saved, so it counts as denied: {error}");
                self.notice(crate::text::visible(text.as_bytes()).into_owned());
                self.verdict(ask, false, AnsweredBy::Unsaved(by));
                let text =
                    format!("the answer could not be saved, so it counts as denied: {error}");
                Err(Failure::Other(text))
            }
            (Err(error), None) => Err(Failure::Other(error)),
        };
        self.reply(reply_to, reply);
    }

    /// From now on the answer settles questions: the one it was given to and others that wait.
    fn remember(&mut self, answer: Answer, ask: Option<u64>, by: String) {
        self.tell(&Told::Remember(answer.clone()));
        self.agree(Update::Remembered(answer.clone()));
        if let Some(ask) = ask {
            self.verdict(ask, answer.allow, AnsweredBy::Person(by.clone()));
        }
        let waiting = self.state.asks.values();
        let covered: Vec<u64> = waiting
            .filter(|ask| answer.subject.covers(&self.absolute(&ask.what.key)))
            .map(|ask| ask.id)
            .collect();
        for ask in covered {
            // Another answer, nearer to this session, may say otherwise.
            let path = self
                .state
                .asks
                .get(&ask)
                .map(|ask| self.absolute(&ask.what.key));
            let settled = path.and_then(|path| answer::settled(&self.state.answers, &path));
            if let Some(allow) = settled.map(|settled| settled.allow) {
                self.verdict(ask, allow, AnsweredBy::Remembered(by.clone()));
            }
        }
    }

    fn forgotten(&mut self, answer: Answer) {
        self.tell(&Told::Forget(answer.clone()));
        self.agree(Update::Forgotten(answer));
    }

    fn verdict(&mut self, ask: u64, allow: bool, by: AnsweredBy) {
        if let Some(id) = self.asks.gate.remove(&ask) {
            self.tell(&Told::Verdict { id, allow });
        }
        if self.state.asks.contains_key(&ask) {
            self.answered(ask, allow, by);
        }
    }

    fn answered(&mut self, ask: u64, allow: bool, by: AnsweredBy) {
        self.agree(Update::Answered {
            ask,
            allow,
            by,
            at: Timestamp::now(),
        });
    }

    fn tell(&self, told: &Told) {
        if let Some(guard) = &self.guard {
            guard.tell(told);
        }
    }

    /// Where a path lies on the host.
    fn absolute(&self, key: &LayerPath) -> Vec<u8> {
        self.state.absolute(key)
    }
}

fn write(kept: &Kept, file: &Path, workspace: Option<&Path>) -> Result<(), String> {
    let written = match kept.ask {
        Some(_) => answers::keep(file, workspace, kept.answer.clone()),
        None => answers::forget(file, workspace, &kept.answer),
    };
    written.map_err(|error| error.to_string())
}

fn after(at: Timestamp, wait: Duration) -> Timestamp {
    let nsec = u64::from(at.nsec) + u64::from(wait.subsec_nanos());
    let sec = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
    Timestamp {
        sec: at
            .sec
            .saturating_add(sec)
            .saturating_add((nsec / 1_000_000_000) as i64),
        nsec: (nsec % 1_000_000_000) as u32,
    }
}
