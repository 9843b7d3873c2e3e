//! Commit: the only writer to the host's files. Owns plan, pre-flight, preparation, publication,
//! ledger, undo and recovery. A batch is all or nothing; nothing outside a layer's root is ever
//! written; every path is resolved beneath that root without following a link.
//!
//! ```text
//! effect       what an approval means for a path
//! plan         closure: what has to come along
//! anchor       the host's files that new names join
//! merged       the host's edits and the approved ones together
//! names        where further names of a file lie, and directories that were moved
//! steps        subtrees, order
//! preflight    refuse what can be known; temporary names
//! foreign      attributes that the host's files keep
//! stage        make a new entry beside its destination
//! crew         who makes which, by several threads (kept: for an undo)
//! publish      exchange under leases, look at what came out
//! back         the way back, from any state
//! astray       directories that were moved or removed meanwhile
//! settle       displaced entries go to the store
//! late         saves that landed in a displaced inode
//! turn         one commit at a time in a place
//! transaction  the order of all that; ledger: what is written down before it is done
//! host, seam   every writing system call, and where tests interrupt them
//! ```
//!
//! Rules that a person may ask about:
//! - Sockets and devices are never committed; a host's own can be removed.
//! - A host's file with further names outside the batch is not replaced; removing one of its names
//!   is fine, and a mode set in place shows under all of them, as it does everywhere.
//! - Names that are one file for the agent become one file, and so do those that were one on the
//!   host and are still alike, unless the agent saw them as one and parted them; a new name of a
//!   file that the agent left alone becomes a name of the host's own.
//! - A directory whose removal was approved stays while something in it was not.
//! - New content keeps the `trusted.*` and `security.*` attributes of the host's file (file
//!   capabilities only with the same bytes); where they cannot be set, the commit is refused.
//! - A new file gets the agent's modification time; directories keep theirs only when they come
//!   back by undo. Owner and group are set where the process may.
//! - On a file system that cannot exchange names the former entry gets a second name first and the
//!   new one is renamed over it; where leases are not to be had (another owner's file, some
//!   network file systems) only the comparison before and after guards against a save in between.

mod anchor;
mod astray;
mod back;
mod crew;
mod dress;
mod effect;
mod foreign;
mod host;
mod kept;
mod late;
mod lease;
mod ledger;
mod merged;
mod names;
mod place;
mod plan;
mod preflight;
mod publish;
mod room;
#[doc(hidden)]
pub mod seam;
mod settle;
mod stage;
mod steps;
mod transaction;
mod turn;
mod verify;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::late::{LateSave, late_saves, late_saves_of};
pub use self::merged::{Merged, merged};

use self::ledger::{Action, Source, Standing, Step};
use self::preflight::AgentSide;
use self::transaction::Transaction;
use crate::LayerPath;
use crate::change::{Change, ChangeKind, ChangeSet};
use crate::diff::ItemRef;
use crate::layer::{AccessError, Layer, StageAccess};

/// How the names begin under which new entries are made and old ones end for the moment of a
/// commit, beside their destination.
pub const TEMPORARY: &str = ".pvisor-tui-";

/// What of one change is to be committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All of it.
    Whole,
    /// These items only: the result is the host's bytes with exactly these edits.
    Items(Vec<ItemRef>),
}

/// One approved change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approved {
    /// The change as it was approved; its digest is re-verified against what is read now.
    pub change: Arc<Change>,
    /// What of it.
    pub selection: Selection,
}

/// A path and why it was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Where.
    pub key: LayerPath,
    /// One sentence, sanitised, without the path.
    pub reason: String,
}

/// How a commit or an undo ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Everything was written.
    Committed {
        /// Its number within the session, from 1.
        number: u32,
        /// What was written, in order.
        paths: Vec<LayerPath>,
        /// Those of them that were merged with the host's own edits.
        merged: Vec<LayerPath>,
    },
    /// Nothing was written, or all of it was rolled back.
    Refused {
        /// Every path that stood in the way.
        refusals: Vec<Refusal>,
    },
    /// A dry run: this would be written, nothing stands in the way.
    Planned {
        /// What would be written, in order.
        paths: Vec<LayerPath>,
        /// Those of them that would be merged with the host's own edits.
        merged: Vec<LayerPath>,
    },
    /// There was nothing to do.
    Nothing,
    /// A crash or an I/O error left the batch unfinished; [`recover`] settles it.
    Unsettled {
        /// The commit that needs recovery.
        number: u32,
        /// What happened.
        reason: String,
        /// Where its ledger lies.
        #[serde(with = "crate::path::exact_path")]
        ledger: PathBuf,
    },
}

/// Everything a commit needs to know.
pub struct Batch<'a> {
    /// The session's layers.
    pub layers: &'a [Layer],
    /// The whole change set: what joins by itself is found here.
    pub changes: &'a ChangeSet,
    /// What was approved.
    pub approved: Vec<Approved>,
    /// Of approved changes in conflict: the merge to be written, or why there is none. What is not
    /// here is refused.
    pub merged: &'a BTreeMap<LayerPath, Result<Merged, String>>,
    /// The door to the uppers.
    pub access: &'a dyn StageAccess,
    /// `<session>/commits`.
    pub store: &'a Path,
    /// This commit's number within the session.
    pub number: u32,
}

/// Why a commit, an undo or a recovery could not be carried out at all. (What stands in the way
/// of single paths is an [`Outcome::Refused`].)
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The uppers cannot be read.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A directory of the store, or a layer's root, cannot be used.
    #[error("{doing} {}: {}", place::shown(path), place::words(source))]
    Store {
        /// What was attempted.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A ledger cannot be understood.
    #[error("the ledger {} cannot be used: {cause}", place::shown(path))]
    Ledger {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: String,
    },
    /// There is no such commit.
    #[error("there is no commit {0} to undo")]
    NoSuchCommit(u32),
    /// The commit was undone before.
    #[error("commit {0} was undone already; undo the undo to have it back")]
    AlreadyUndone(u32),
    /// What undo needs was given up, see [`prune`].
    #[error(
        "commit {0} cannot be undone any more: what it replaced is kept for the last commits only \
         (`keep_undo` in the configuration says how many)"
    )]
    KeptNoMore(u32),
    /// The number is taken.
    #[error("there is a commit {0} already")]
    NumberTaken(u32),
    /// A layer of the batch is not among the session's.
    #[error("no layer is named {0:?}")]
    NoLayer(String),
    /// Another commit to the same place is under way.
    #[error("another commit to {} is under way; try again when it has ended", place::shown(.0))]
    Busy(PathBuf),
    /// A step could neither be finished nor taken back; [`recover`] tries again.
    #[error(
        "{}; when that is mended, opening the session again settles it",
        transaction::stopped(path, source)
    )]
    Unsettled {
        /// Where.
        path: LayerPath,
        /// Why not.
        source: io::Error,
    },
}

impl CommitError {
    fn store(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Store {
            doing,
            path: path.to_owned(),
            source,
        }
    }
}

/// How an unfinished commit was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Settled {
    /// The host is as it was before the commit.
    RolledBack,
    /// The host is as the commit was to leave it.
    RolledForward,
}

/// An unfinished commit that was found and settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// Its number within the session.
    pub number: u32,
    /// Set when it was the undo of this commit.
    pub undoes: Option<u32>,
    /// What was done.
    pub outcome: Settled,
    /// The paths it was about.
    pub paths: Vec<LayerPath>,
    /// Those, and what they took along: old names, directories on the way.
    pub touched: Vec<LayerPath>,
    /// Newer saves of somebody else that a roll-back left in place.
    pub kept: Vec<Refusal>,
}

impl Recovered {
    /// What a person is told, in one sentence, the outcome first.
    pub fn describe(&self) -> String {
        let what = match self.undoes {
            Some(undone) => format!("undo of commit {undone}"),
            None => "commit".to_owned(),
        };
        let paths = match self.paths.len() {
            1 => "1 path".to_owned(),
            many => format!("{many} paths"),
        };
        let (became, side) = match self.outcome {
            Settled::RolledForward => ("finished", "after"),
            Settled::RolledBack => ("rolled back", "before"),
        };
        let but = match &self.kept[..] {
            [] => String::new(),
            [one] => format!(", but not at {}", one.key),
            [one, more @ ..] => format!(", but not at {} and {} more", one.key, more.len()),
        };
        let number = self.number;
        format!(
            "An interrupted {what} was {became}: the host is as {side} it{but} (number {number}, {paths})."
        )
    }
}

/// Carries a batch out: all of it or nothing. An unfinished commit of the same store is settled
/// first.
pub fn commit(batch: &Batch<'_>) -> Result<Outcome, CommitError> {
    recover(batch.layers, batch.store)?;
    free_number(batch.store, batch.number)?;
    let roots = transaction::open_roots(batch.layers, &layers_of(batch))?;
    let _turn = turn::take(&roots)?;
    match prepared(batch, roots)? {
        Ok((transaction, contents, anchors)) => transaction.run(&mut crew::Crew {
            access: batch.access,
            contents,
            anchors,
            origins: foreign::Origins::of(batch),
        }),
        Err(outcome) => Ok(outcome),
    }
}

/// A dry run: what a commit would write, or what stands in its way. Writes nothing.
pub fn plan(batch: &Batch<'_>) -> Result<Outcome, CommitError> {
    let roots = transaction::open_roots(batch.layers, &layers_of(batch))?;
    Ok(match prepared(batch, roots)? {
        Ok((transaction, ..)) => Outcome::Planned {
            paths: transaction.paths,
            merged: transaction.merged,
        },
        Err(outcome) => outcome,
    })
}

/// Plans and checks; the outcome when there is nothing to do or something stands in the way.
fn prepared<'a>(
    batch: &Batch<'a>,
    roots: BTreeMap<String, place::Root>,
) -> Result<Result<(Transaction<'a>, steps::Contents, anchor::Anchors), Outcome>, CommitError> {
    let plan = plan::make(batch, &roots)?;
    if plan.steps.is_empty() && plan.refusals.is_empty() {
        return Ok(Err(Outcome::Nothing));
    }
    let mut transaction = Transaction {
        roots,
        steps: plan.steps,
        paths: plan.paths,
        merged: plan.merged,
        store: batch.store,
        number: batch.number,
        undoes: None,
    };
    let mut refusals = plan.refusals;
    let agent = AgentSide {
        measure: &|layer, path| measure(batch, layer, path),
        differs: &|key| differs(batch, key),
    };
    refusals.extend(transaction.check(&agent)?);
    refusals.extend(foreign::Origins::of(batch).check(&transaction.steps, &transaction.roots));
    Ok(if refusals.is_empty() {
        Ok((transaction, plan.contents, plan.anchors))
    } else {
        Err(refused(refusals))
    })
}

/// A refusal in the order of its paths, each with the reason that was found first.
fn refused(refusals: Vec<Refusal>) -> Outcome {
    let mut by_path = BTreeMap::new();
    for refusal in refusals {
        by_path.entry(refusal.key).or_insert(refusal.reason);
    }
    Outcome::Refused {
        refusals: by_path
            .into_iter()
            .map(|(key, reason)| Refusal { key, reason })
            .collect(),
    }
}

fn layers_of(batch: &Batch<'_>) -> Vec<String> {
    let keys: Vec<LayerPath> = batch
        .approved
        .iter()
        .map(|approved| approved.change.key.clone())
        .collect();
    settle::layers(&[], &keys)
}

fn measure(batch: &Batch<'_>, layer: &str, path: &crate::RelPath) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::File::from(batch.access.open(layer, path).ok()?);
    Some(file.metadata().ok()?.blocks() * 512)
}

/// Whether the change set tells of a path, or of a directory above it that was moved.
fn differs(batch: &Batch<'_>, key: &LayerPath) -> bool {
    let changed = |key: &LayerPath| batch.changes.contains_key(key);
    let above = key.path.ancestors();
    let mut above = above.map(|path| LayerPath::new(key.layer.clone(), path));
    let moved = |key: &LayerPath| {
        let mut kinds = batch.changes.values().filter(|c| c.key.layer == key.layer);
        kinds.any(|c| matches!(&c.kind, ChangeKind::Renamed { from } if *from == key.path))
    };
    changed(key) || moved(key) || above.any(|dir| moved(&dir))
}

fn free_number(store: &Path, number: u32) -> Result<(), CommitError> {
    match ledger::standing(store, number) {
        Standing::Missing => Ok(()),
        Standing::Open | Standing::Done | Standing::Undone | Standing::Forgotten => {
            Err(CommitError::NumberTaken(number))
        }
    }
}

/// Takes commit `undoes` back, by the same rules: what it wrote must still be on the host as it
/// was written. Recorded as commit `number`, which can be undone in turn.
pub fn undo(
    layers: &[Layer],
    store: &Path,
    undoes: u32,
    number: u32,
) -> Result<Outcome, CommitError> {
    recover(layers, store)?;
    free_number(store, number)?;
    match ledger::standing(store, undoes) {
        Standing::Done => {}
        Standing::Undone => return Err(CommitError::AlreadyUndone(undoes)),
        Standing::Forgotten => return Err(CommitError::KeptNoMore(undoes)),
        Standing::Open | Standing::Missing => return Err(CommitError::NoSuchCommit(undoes)),
    }
    let loaded = ledger::load(store, undoes)?;
    let steps: Vec<Step> = loaded
        .steps
        .into_iter()
        .enumerate()
        .rev()
        .map(|(index, step)| inverse(step, undoes, index))
        .collect();
    if steps.is_empty() {
        return Ok(Outcome::Nothing);
    }
    let roots = transaction::open_roots(layers, &settle::layers(&steps, &[]))?;
    let _turn = turn::take(&roots)?;
    let mut transaction = Transaction {
        roots,
        steps,
        paths: loaded.paths,
        merged: Vec::new(),
        store,
        number,
        undoes: Some(undoes),
    };
    let refusals = transaction.check(&AgentSide {
        measure: &|_, _| None,
        differs: &|_| false,
    })?;
    if !refusals.is_empty() {
        return Ok(refused(refusals));
    }
    let dir = ledger::directory(store, undoes);
    let kept = place::Root::at_path(String::new(), &dir)
        .map_err(|e| CommitError::store("opening what was kept in", &dir, e))?;
    let stores = BTreeMap::from([(undoes, kept)]);
    transaction.run(&mut kept::Keeper { stores })
}

fn inverse(step: Step, number: u32, index: usize) -> Step {
    let (path, action) = match step.action {
        Action::Swap { before, after, .. } => (
            step.path,
            Action::Swap {
                source: if before.is_empty() {
                    Source::Made
                } else {
                    Source::Kept {
                        number,
                        step: index,
                    }
                },
                before: after,
                after: before,
            },
        ),
        Action::Move {
            from,
            before,
            after,
        } => (
            from,
            Action::Move {
                from: step.path,
                before: after,
                after: before,
            },
        ),
        Action::Meta { before, after } => (
            step.path,
            Action::Meta {
                before: after,
                after: before,
            },
        ),
    };
    Step {
        layer: step.layer,
        path,
        aside: crate::RelPath::root(),
        action,
    }
}

/// Gives up what undo needs of every finished commit (or undo) numbered below `before`: their
/// pre-images are removed, and undoing them is refused from now on. One with a late save among them
/// keeps everything, see [`late_saves`].
pub fn prune(store: &Path, before: u32) -> Result<(), CommitError> {
    for standing in [Standing::Done, Standing::Undone, Standing::Forgotten] {
        let numbers = ledger::standing_so(store, standing)
            .map_err(|e| CommitError::store("reading the commits in", store, e))?;
        for number in numbers.into_iter().filter(|number| *number < before) {
            if !late_saves_of(store, number)?.is_empty() {
                continue;
            }
            ledger::give_up(store, number)?;
        }
    }
    Ok(())
}

/// Numbers of the unfinished commits of the store, in order. One of them may be under way.
pub fn unfinished(store: &Path) -> Result<Vec<u32>, CommitError> {
    ledger::standing_so(store, Standing::Open)
        .map_err(|e| CommitError::store("reading the commits in", store, e))
}

/// The finished commits numbered from `first` on, as if they had been found unfinished and rolled
/// forward: for a session whose records were cut off before they told of them.
pub fn finished_from(store: &Path, first: u32) -> Result<Vec<Recovered>, CommitError> {
    let mut found = Vec::new();
    for standing in [Standing::Done, Standing::Undone, Standing::Forgotten] {
        let numbers = ledger::standing_so(store, standing)
            .map_err(|e| CommitError::store("reading the commits in", store, e))?;
        for number in numbers.into_iter().filter(|number| *number >= first) {
            let loaded = ledger::load(store, number)?;
            found.push(Recovered {
                number,
                undoes: loaded.undoes,
                outcome: Settled::RolledForward,
                touched: touched(&loaded.paths, &loaded.steps),
                paths: loaded.paths,
                kept: Vec::new(),
            });
        }
    }
    found.sort_by_key(|one| one.number);
    Ok(found)
}

fn touched(paths: &[LayerPath], steps: &[Step]) -> Vec<LayerPath> {
    let mut touched = paths.to_vec();
    for step in steps {
        touched.push(step.key());
        if let Action::Move { from, .. } = &step.action {
            touched.push(LayerPath::new(step.layer.clone(), from.clone()));
        }
    }
    touched.sort();
    touched.dedup();
    touched
}

/// Whether the store knows a commit of this number, finished or not. One that was rolled back is
/// as if it had never been.
pub fn is_known(store: &Path, number: u32) -> bool {
    ledger::standing(store, number) != Standing::Missing
}

/// The lowest number from `at_least` on that no commit of the store has, nor any beyond it.
pub fn free_from(store: &Path, at_least: u32) -> Result<u32, CommitError> {
    let mut free = at_least;
    for standing in [
        Standing::Open,
        Standing::Done,
        Standing::Undone,
        Standing::Forgotten,
    ] {
        let numbers = ledger::standing_so(store, standing)
            .map_err(|e| CommitError::store("reading the commits in", store, e))?;
        if let Some(last) = numbers.last() {
            free = free.max(last.saturating_add(1));
        }
    }
    Ok(free)
}

/// Settles every unfinished commit of the store: exactly before, or exactly after. Harmless when
/// there is none, and when repeated.
pub fn recover(layers: &[Layer], store: &Path) -> Result<Vec<Recovered>, CommitError> {
    let numbers = ledger::standing_so(store, Standing::Open)
        .map_err(|e| CommitError::store("reading the commits in", store, e))?;
    let mut settled = Vec::new();
    for number in numbers {
        let begun = ledger::load(store, number)?;
        let wanted = settle::layers(&begun.steps, &begun.paths);
        let roots = transaction::open_roots(layers, &wanted)?;
        let _turn = turn::take(&roots)?;
        // Whoever held the lock may have gone on, or settled it.
        if ledger::standing(store, number) != Standing::Open {
            continue;
        }
        let loaded = ledger::load(store, number)?;
        let (steps, directories, undoes) = (loaded.steps, loaded.directories, loaded.undoes);
        let touched = touched(&loaded.paths, &steps);
        let lost = transaction::Lost::IsGivenUp;
        let (outcome, kept) = if loaded.committed {
            let ledger = (store, number, undoes);
            let kept = transaction::settle(&steps, &roots, ledger, directories, lost)?;
            (Settled::RolledForward, kept)
        } else {
            // Before the plan was complete nothing was made.
            let steps = if loaded.planned { &steps[..] } else { &[] };
            let ledger = (store, number);
            let kept = transaction::roll_back(steps, &roots, ledger, directories, lost)?;
            (Settled::RolledBack, kept)
        };
        settled.push(Recovered {
            number,
            undoes,
            outcome,
            paths: loaded.paths,
            touched,
            kept,
        });
    }
    Ok(settled)
}
