//! The way to the server and back: requests go out on one thread, answers are waited for on
//! others, diffs are worked out on their own. Owns those threads; nothing here makes the screen
//! wait.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use pvisor::LayerPath;
use pvisor::change::Change;
use pvisor::layer::Digest;
use pvisor::protocol::{Failure, Reply, Request};
use pvisor::session::client::Client;

use crate::effect::Purpose;
use crate::model::document::Document;

/// Threads that work out diffs.
const LOADERS: usize = 2;
/// What was asked for last is still sent when the screen is left, if the server takes it so soon.
const FINISH: Duration = Duration::from_secs(1);

type Answer = Receiver<Result<Reply, Failure>>;

/// What comes back.
pub enum Back {
    /// The answer to a request.
    Reply(Purpose, Result<Reply, Failure>),
    /// A request could not be sent, or its answer will never come.
    Unsent(Purpose),
    /// A diff, or why there is none.
    Loaded(LayerPath, Digest, Result<Document, String>),
    /// What changed since it was looked at.
    Since(Document),
}

enum Job {
    Send(Request),
    Ask(Purpose, Request),
    Load(Arc<Change>),
}

enum Work {
    Load(Arc<Change>, Answer),
    Since {
        key: LayerPath,
        digest: Digest,
        old: Arc<Vec<u8>>,
        new: Arc<Vec<u8>>,
    },
}

/// The link of one screen.
pub struct Link {
    jobs: Option<Sender<Job>>,
    work: Sender<Work>,
    back: Receiver<Back>,
    done: Receiver<()>,
}

impl Link {
    /// Starts the threads.
    pub fn start(client: Client) -> io::Result<Self> {
        let (jobs, todo) = unbounded();
        let (out, back) = unbounded();
        let (work, works) = unbounded();
        let (still, done) = bounded(0);
        // A decision's answer does not wait behind a commit's.
        let quick = waiter("quick-replies", out.clone())?;
        let slow = waiter("slow-replies", out.clone())?;
        for _ in 0..LOADERS {
            loader(works.clone(), out.clone())?;
        }
        let sender = Sending {
            client,
            out,
            quick,
            slow,
            work: work.clone(),
        };
        std::thread::Builder::new()
            .name("requests".into())
            .spawn(move || {
                for job in todo {
                    sender.send(job);
                }
                drop(still);
            })?;
        Ok(Self {
            jobs: Some(jobs),
            work,
            back,
            done,
        })
    }

    /// Answers.
    pub fn back(&self) -> &Receiver<Back> {
        &self.back
    }

    fn job(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // The receiver lives as long as this sender.
            let _ = jobs.send(job);
        }
    }

    /// Sends a request nobody answers.
    pub fn send(&self, request: Request) {
        self.job(Job::Send(request));
    }

    /// Sends a request; its answer comes back with `purpose`.
    pub fn ask(&self, purpose: Purpose, request: Request) {
        self.job(Job::Ask(purpose, request));
    }

    /// Fetches both sides of a change and works its diff out.
    pub fn load(&self, change: Arc<Change>) {
        self.job(Job::Load(change));
    }

    /// Works out what changed between two sides that were seen.
    pub fn since(&self, key: LayerPath, digest: Digest, old: Arc<Vec<u8>>, new: Arc<Vec<u8>>) {
        let _ = self.work.send(Work::Since {
            key,
            digest,
            old,
            new,
        });
    }

    /// Sends what is still to be sent, as far as the server takes it.
    pub fn finish(&mut self) {
        self.jobs = None;
        let _ = self.done.recv_timeout(FINISH);
    }
}

struct Sending {
    client: Client,
    out: Sender<Back>,
    quick: Sender<(Purpose, Answer)>,
    slow: Sender<(Purpose, Answer)>,
    work: Sender<Work>,
}

impl Sending {
    fn send(&self, job: Job) {
        match job {
            Job::Send(request) => {
                // A lost connection shows by its messages' end.
                let _ = self.client.send(request);
            }
            Job::Ask(purpose, request) => match self.client.ask(request) {
                Ok(answer) => {
                    let waiter = match purpose {
                        Purpose::Decide
                        | Purpose::Plan(_)
                        | Purpose::Answer(_)
                        | Purpose::Observed => &self.quick,
                        _ => &self.slow,
                    };
                    let _ = waiter.send((purpose, answer));
                }
                Err(_) => {
                    let _ = self.out.send(Back::Unsent(purpose));
                }
            },
            Job::Load(change) => match self.client.ask(Request::Contents(change.key.clone())) {
                Ok(answer) => {
                    let _ = self.work.send(Work::Load(change, answer));
                }
                Err(error) => {
                    let text = pvisor::text::visible(error.to_string().as_bytes()).into_owned();
                    let failed = Back::Loaded(change.key.clone(), change.digest, Err(text));
                    let _ = self.out.send(failed);
                }
            },
        }
    }
}

fn waiter(name: &str, out: Sender<Back>) -> io::Result<Sender<(Purpose, Answer)>> {
    let (sender, waiting) = unbounded::<(Purpose, Answer)>();
    std::thread::Builder::new()
        .name(name.into())
        .spawn(move || {
            for (purpose, answer) in waiting {
                let back = match answer.recv() {
                    Ok(result) => Back::Reply(purpose, result),
                    Err(_) => Back::Unsent(purpose),
                };
                if out.send(back).is_err() {
                    break;
                }
            }
        })?;
    Ok(sender)
}

fn loader(works: Receiver<Work>, out: Sender<Back>) -> io::Result<()> {
    std::thread::Builder::new()
        .name("diffs".into())
        .spawn(move || {
            for work in works {
                let back = match work {
                    Work::Load(change, answer) => {
                        let result = load(&change, &answer);
                        Back::Loaded(change.key.clone(), change.digest, result)
                    }
                    Work::Since {
                        key,
                        digest,
                        old,
                        new,
                    } => Back::Since(Document::since(&key, digest, &old, &new)),
                };
                if out.send(back).is_err() {
                    break;
                }
            }
        })?;
    Ok(())
}

fn load(change: &Change, answer: &Answer) -> Result<Document, String> {
    match answer.recv() {
        Ok(Ok(Reply::Contents(contents))) => Ok(Document::build(change, &contents)),
        Ok(Ok(_)) => Err("The server answered with something else.".into()),
        Ok(Err(failure)) => Err(pvisor::text::visible(failure.to_string().as_bytes()).into_owned()),
        Err(_) => Err("The connection to the server is gone.".into()),
    }
}
