//! Preparation of a whole batch: who makes which entry, and when. Owns the threads that share the
//! work; how an entry is made is [`super::stage`]'s.
//!
//! Making a file is a dozen system calls, and they are the better part of a commit. Entries that
//! share nothing with each other are made by several threads, directories first; what may become
//! another name of something made before is made in order, afterwards.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::layer::{FileType, StageAccess};

use super::CommitError;
use super::anchor::Anchors;
use super::effect::Content;
use super::foreign::Origins;
use super::ledger::{Action, Piece, Step};
use super::place::Root;
use super::seam::Share;
use super::stage::{StageErrorAt, Stager, refused};
use super::steps::Contents;
use super::transaction::{Failure, Make};

/// From this number of entries on, threads are worth their start.
const WORTHWHILE: usize = 16;
/// More threads than this only wait for the file system's journal.
const HANDS_AT_MOST: usize = 4;
/// Entries that a thread takes at a time: neighbours, so that threads seldom meet in a directory.
const BLOCK: usize = 16;

/// See the module.
pub(super) struct Crew<'a> {
    /// The door to the uppers.
    pub access: &'a dyn StageAccess,
    /// Of each entry, where its bytes come from.
    pub contents: Contents,
    /// Files that the host has and keeps.
    pub anchors: Anchors,
    /// Whose attributes the new entries get.
    pub origins: Origins,
}

/// One entry of one step.
#[derive(Clone, Copy)]
struct Task {
    step: usize,
    piece: usize,
}

type Made = Result<Piece, StageErrorAt>;

/// What has become of a step whose entries are made apart.
struct Open {
    made: Vec<Option<Piece>>,
    left: usize,
}

impl Make for Crew<'_> {
    fn make(
        &mut self,
        steps: &[Step],
        roots: &BTreeMap<String, Root>,
        done: &mut dyn FnMut(usize, Vec<Piece>) -> Result<(), CommitError>,
    ) -> Result<(), Failure> {
        let apart = self.apart(steps);
        let entries: usize = apart.iter().map(|&step| steps[step].entries().len()).sum();
        let hands = std::thread::available_parallelism().map_or(1, NonZero::get);
        let hands = hands.min(HANDS_AT_MOST);
        let shared = hands > 1 && entries >= WORTHWHILE;
        if shared {
            self.together(hands, &apart, steps, roots, done)?;
        }
        let anchors = std::mem::take(&mut self.anchors);
        let mut stager = Stager::new(self.access, anchors, &self.origins);
        for (index, step) in steps.iter().enumerate() {
            if step.entries().is_empty() || shared && apart.binary_search(&index).is_ok() {
                continue;
            }
            let Some(root) = roots.get(&step.layer) else {
                continue;
            };
            match stager.step(root, step, &self.contents[index]) {
                Ok(made) => done(index, made)?,
                Err(at) => return Err(refused(step, at)),
            }
        }
        Ok(())
    }
}

impl Crew<'_> {
    /// The steps whose entries have no name in common with anything.
    fn apart(&self, steps: &[Step]) -> Vec<usize> {
        let is_apart = |index: &usize| {
            let Action::Swap { before, after, .. } = &steps[*index].action else {
                return false;
            };
            let shares = |content: &Content| {
                matches!(
                    content,
                    Content::Upper {
                        shared: Some(_),
                        ..
                    }
                )
            };
            let linked = before.first().is_some_and(|piece| {
                piece.node.file_type == FileType::File && piece.node.nlink > 1
            });
            !after.is_empty() && !linked && !self.contents[*index].iter().any(shares)
        };
        (0..steps.len()).filter(is_apart).collect()
    }

    fn stager(&self) -> Stager<'_> {
        Stager::new(self.access, Anchors::new(), &self.origins)
    }

    fn together(
        &self,
        hands: usize,
        apart: &[usize],
        steps: &[Step],
        roots: &BTreeMap<String, Root>,
        done: &mut dyn FnMut(usize, Vec<Piece>) -> Result<(), CommitError>,
    ) -> Result<(), Failure> {
        let mut stager = self.stager();
        let mut open = BTreeMap::new();
        let mut tasks = Vec::new();
        for &index in apart {
            let step = &steps[index];
            let Some(root) = roots.get(&step.layer) else {
                continue;
            };
            let entries = step.entries();
            let mut made = vec![None; entries.len()];
            let mut left = 0;
            for (at, piece) in entries.iter().enumerate() {
                if piece.node.file_type != FileType::Dir {
                    tasks.push(Task {
                        step: index,
                        piece: at,
                    });
                    left += 1;
                    continue;
                }
                let content = &self.contents[index][at];
                let dir = stager.piece(root, step, piece, content, false);
                made[at] = Some(dir.map_err(|at| refused(step, at))?);
            }
            let open_step = Open { made, left };
            if left == 0 {
                self.close(open_step, root, step, index, done)?;
            } else {
                open.insert(index, open_step);
            }
        }
        let board = Board {
            crew: self,
            steps,
            tasks,
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        };
        std::thread::scope(|scope| {
            let (out, results) = channel();
            let share = Share::of_this_thread();
            let mut at_work = 0;
            for _ in 0..hands {
                let roots = roots.iter().map(|(name, root)| (name.clone(), root.twin()));
                let roots: BTreeMap<String, Root> = roots.collect();
                let (board, out, share) = (&board, out.clone(), share.clone());
                let thread = std::thread::Builder::new().name("commit-entries".into());
                let started = thread.spawn_scoped(scope, move || {
                    share.enter();
                    board.work(&roots, &out);
                });
                at_work += usize::from(started.is_ok());
            }
            if at_work == 0 {
                board.work(roots, &out);
            }
            drop(out);
            self.gather(&results, &board, &mut open, roots, done)
        })
    }

    /// Takes in what is made until every thread has ended, and closes each step that is complete.
    fn gather(
        &self,
        results: &Receiver<Vec<(Task, Made)>>,
        board: &Board<'_>,
        open: &mut BTreeMap<usize, Open>,
        roots: &BTreeMap<String, Root>,
        done: &mut dyn FnMut(usize, Vec<Piece>) -> Result<(), CommitError>,
    ) -> Result<(), Failure> {
        let mut outcome = Ok(());
        for (task, made) in results.iter().flatten() {
            if outcome.is_err() {
                continue;
            }
            let step = &board.steps[task.step];
            outcome = made.map_err(|at| refused(step, at)).and_then(|piece| {
                let Some(one) = open.get_mut(&task.step) else {
                    return Ok(());
                };
                one.made[task.piece] = Some(piece);
                one.left -= 1;
                if one.left > 0 {
                    return Ok(());
                }
                match (open.remove(&task.step), roots.get(&step.layer)) {
                    (Some(one), Some(root)) => self.close(one, root, step, task.step, done),
                    _ => Ok(()),
                }
            });
            if outcome.is_err() {
                board.stop.store(true, Ordering::Relaxed);
            }
        }
        outcome
    }

    /// Every entry of a step is there.
    fn close(
        &self,
        one: Open,
        root: &Root,
        step: &Step,
        index: usize,
        done: &mut dyn FnMut(usize, Vec<Piece>) -> Result<(), CommitError>,
    ) -> Result<(), Failure> {
        let mut made: Vec<Piece> = one.made.into_iter().flatten().collect();
        let finished = self.stager().finish(root, step, &mut made);
        finished.map_err(|at| refused(step, at))?;
        Ok(done(index, made)?)
    }
}

/// What the threads have in common.
struct Board<'a> {
    crew: &'a Crew<'a>,
    steps: &'a [Step],
    tasks: Vec<Task>,
    next: AtomicUsize,
    /// Something has failed: nothing more is begun.
    stop: AtomicBool,
}

impl Board<'_> {
    /// One thread's part.
    fn work(&self, roots: &BTreeMap<String, Root>, out: &Sender<Vec<(Task, Made)>>) {
        let mut stager = self.crew.stager();
        while !self.stop.load(Ordering::Relaxed) {
            let begin = self.next.fetch_add(BLOCK, Ordering::Relaxed);
            let block = self.tasks.iter().skip(begin).take(BLOCK);
            let mut made = Vec::with_capacity(BLOCK);
            for task in block {
                let step = &self.steps[task.step];
                let Some(root) = roots.get(&step.layer) else {
                    continue;
                };
                let piece = &step.entries()[task.piece];
                let content = &self.crew.contents[task.step][task.piece];
                let one = stager.piece(root, step, piece, content, false);
                let failed = one.is_err();
                made.push((*task, one));
                if failed {
                    self.stop.store(true, Ordering::Relaxed);
                    break;
                }
            }
            if made.is_empty() || out.send(made).is_err() {
                break;
            }
        }
    }
}
