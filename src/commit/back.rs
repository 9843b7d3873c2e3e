//! The way back: from whatever state a batch was left in, to what was there before. Owns finding
//! out by looking how far each step had come; used after a refusal and after a crash alike, and
//! harmless when repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use crate::layer::{FileType, Node};
use crate::{LayerPath, RelPath};

use super::astray::Directories;
use super::lease::{Lease, Patience};
use super::ledger::{self, Action, Piece, Source, Step};
use super::place::{Look, Place, Root, below, shown, words};
use super::publish::{adjust, swap};
use super::verify::{self, Expect, Tree};
use super::{Refusal, host, preflight, settle};

/// Takes the steps back, last first. Adds to `kept` what somebody else's newer save stood against:
/// that save stays and the pre-image is kept beside the ledger.
pub(super) fn all(
    steps: &[Step],
    roots: &BTreeMap<String, Root>,
    store: &Path,
    number: u32,
    directories: &Directories,
    kept: &mut Vec<Refusal>,
) -> Result<(), (LayerPath, io::Error)> {
    let moved = preflight::moved(steps);
    let becoming = becoming(steps);
    let none = BTreeSet::new();
    let patience = Patience::new();
    for root in roots.values() {
        root.forget();
    }
    for (index, step) in steps.iter().enumerate().rev() {
        let Some(root) = roots.get(&step.layer) else {
            continue;
        };
        if !directories.stand(root, step).map_err(|e| (step.key(), e))? {
            continue;
        }
        let back = Back {
            root,
            step,
            index,
            store,
            number,
            moved: moved.get(&step.layer).unwrap_or(&none),
            becoming: becoming.get(step.layer.as_str()).unwrap_or(&none),
            patience: &patience,
        };
        if let Some(reason) = back.step().map_err(|e| (step.key(), e))? {
            let key = step.key();
            // Told once, should all this be tried again.
            if !kept.iter().any(|told| told.key == key) {
                kept.push(Refusal { key, reason });
            }
        }
    }
    Ok(())
}

/// Paths, by layer, at which the steps put a directory in the place of something else.
fn becoming(steps: &[Step]) -> BTreeMap<&str, BTreeSet<RelPath>> {
    let mut becoming: BTreeMap<&str, BTreeSet<RelPath>> = BTreeMap::new();
    let is_dir = |pieces: &[Piece]| {
        let top = pieces.first()?;
        Some(top.node.file_type == FileType::Dir)
    };
    for step in steps {
        if let Action::Swap { before, after, .. } = &step.action
            && is_dir(before) == Some(false)
            && is_dir(after) == Some(true)
        {
            let of_layer = becoming.entry(&step.layer).or_default();
            of_layer.insert(step.path.clone());
        }
    }
    becoming
}

struct Back<'a> {
    root: &'a Root,
    step: &'a Step,
    index: usize,
    store: &'a Path,
    number: u32,
    moved: &'a BTreeSet<RelPath>,
    /// What is to become a directory and is none.
    becoming: &'a BTreeSet<RelPath>,
    /// For files that somebody writes.
    patience: &'a Patience,
}

impl Back<'_> {
    fn step(&self) -> io::Result<Option<String>> {
        match &self.step.action {
            Action::Swap {
                before,
                after,
                source,
            } => self.swap(before, after, *source),
            Action::Move {
                from,
                before,
                after,
            } => self.unmove(from, before, after),
            Action::Meta { before, after } => {
                let Some(place) = self.place(&self.step.path)? else {
                    return Ok(None);
                };
                if is(place.look()?.as_ref(), Some(before)) {
                    adjust(&place, after, before)?;
                }
                Ok(None)
            }
        }
    }

    /// The place of a path; `None` when its directory is gone, and with it whatever was there, or
    /// has not come yet to replace what is no directory. Where somebody else has put something in
    /// the directory's place what is to be taken back lies elsewhere, and that is an error.
    fn place(&self, path: &RelPath) -> io::Result<Option<Place>> {
        match self.root.at(path) {
            Ok(place) => Ok(Some(place)),
            Err(e)
                if match e.raw_os_error() {
                    Some(libc::ENOENT) => true,
                    Some(libc::ENOTDIR | libc::ELOOP) => {
                        path.ancestors().any(|dir| self.becoming.contains(&dir))
                    }
                    _ => false,
                } =>
            {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    fn swap(
        &self,
        before: &[Piece],
        after: &[Piece],
        source: Source,
    ) -> io::Result<Option<String>> {
        if self.step.aside.is_root() {
            return Ok(None);
        }
        let Some(aside) = self.place(&self.step.aside)? else {
            return Ok(None);
        };
        if matches!(source, Source::Kept { .. }) {
            // Copied from a store on another file system, and cut short.
            host::remove_all(&settle::part_of(&aside)?)?;
        }
        let place = self.place(&self.step.path)?;
        let new = after.first().map(|piece| &piece.node);
        let old = before.first().map(|piece| &piece.node);
        if let Some(place) = &place
            && doubled(place, &aside)?
        {
            // A rename by link and unlink, where there is no better one, was cut short.
            if old.is_none() {
                host::unlink(place)?;
                return self.discard(&aside, source).map(|()| None);
            }
            host::unlink(&aside)?;
        }
        self.settle_second_name(place.as_ref(), &aside, before)?;
        let lies_aside = aside.look()?;
        let Some(place) = place else {
            return self.discard(&aside, source).map(|()| None);
        };
        match (old, lies_aside) {
            // A new entry: at its temporary name it was not published, else it may have been.
            (None, Some(_)) => self.discard(&aside, source).map(|()| None),
            (None, None) => {
                if new.is_none() || !is(place.look()?.as_ref(), new.map(|n| &**n)) {
                    return Ok(None);
                }
                self.take_back_new(&place, &aside, after, source)
            }
            // A removal: what lies at the temporary name was moved there.
            (Some(_), Some(_)) if new.is_none() => match host::rename_new(&aside, &place) {
                Ok(()) => Ok(None),
                Err(e) if e.raw_os_error() == Some(libc::EEXIST) => self.keep(&aside).map(Some),
                Err(e) => Err(e),
            },
            // A replacement: not published, or published.
            (Some(_), Some(look)) => {
                // Inode 0: the crash came before what was made here was written down.
                let staged = new.is_some_and(|new| new.ino == 0 || is(Some(&look), Some(new)));
                if staged {
                    return self.discard(&aside, source).map(|()| None);
                }
                self.take_back_replaced(&place, &aside, after, source)
            }
            (Some(_), None) => self.lost(&place, new.map(|node| &**node)),
        }
    }

    /// Nothing lies at the temporary name of what was to be replaced: it was not replaced yet or is
    /// back, or somebody took it away from there.
    fn lost(&self, place: &Place, new: Option<&Node>) -> io::Result<Option<String>> {
        let is_new = new.is_some_and(|new| new.ino != 0) && is(place.look()?.as_ref(), new);
        let dir = ledger::directory(self.store, self.number);
        let kept = dir.join("kept").join(self.index.to_string());
        if !is_new || kept.symlink_metadata().is_ok() {
            return Ok(None);
        }
        Ok(Some(format!(
            "{LOST}: {} is gone",
            shown(&self.root.path.join(self.step.aside.as_path()))
        )))
    }

    /// Ends what [`swap`] had begun on a file system without exchange.
    fn settle_second_name(
        &self,
        place: Option<&Place>,
        aside: &Place,
        before: &[Piece],
    ) -> io::Result<()> {
        let Some(second) = self.place(&self.step.second_aside())? else {
            return Ok(());
        };
        let Some(kept) = second.look()? else {
            return Ok(());
        };
        let Some(place) = place else {
            return Ok(());
        };
        match place.look()? {
            None => host::rename_new(&second, place),
            Some(look)
                if look.node.ino == kept.node.ino
                    && before
                        .first()
                        .is_some_and(|p| p.node.file_type != FileType::Dir) =>
            {
                host::unlink(&second)
            }
            Some(_) => match aside.look()? {
                None => host::rename_new(&second, aside),
                // Both names of one file: the step between was cut short.
                Some(look) if look.node.ino == kept.node.ino => host::unlink(&second),
                Some(_) => Ok(()),
            },
        }
    }

    /// Takes a new entry back, unless somebody has worked on it since.
    fn take_back_new(
        &self,
        place: &Place,
        aside: &Place,
        after: &[Piece],
        source: Source,
    ) -> io::Result<Option<String>> {
        let idle = self.idle(place)?;
        if matches!(idle, Idle::No) {
            return Ok(Some(NEWER.into()));
        }
        if !self.untouched(&self.step.path, after)? {
            return Ok(Some(NEWER.into()));
        }
        host::rename_new(place, aside)?;
        if !self.untouched(&self.step.aside, after)? {
            host::rename_new(aside, place)?;
            return Ok(Some(NEWER.into()));
        }
        self.discard(aside, source)?;
        Ok(None)
    }

    /// Exchanges back, unless somebody has worked on the new entry since.
    fn take_back_replaced(
        &self,
        place: &Place,
        aside: &Place,
        after: &[Piece],
        source: Source,
    ) -> io::Result<Option<String>> {
        let idle = self.idle(place)?;
        if matches!(idle, Idle::No) {
            return self.keep(aside).map(Some);
        }
        // Removed, or saved anew by rename: either is newer than what was there before.
        if !is(place.look()?.as_ref(), after.first().map(|p| &*p.node)) {
            return self.keep(aside).map(Some);
        }
        if !self.untouched(&self.step.path, after)? {
            return self.keep(aside).map(Some);
        }
        swap(self.root, self.step, place, aside)?;
        if !self.untouched(&self.step.aside, after)? {
            // A save came in between: the newest stays at the name.
            swap(self.root, self.step, place, aside)?;
            return self.keep(aside).map(Some);
        }
        self.discard(aside, source)?;
        Ok(None)
    }

    /// Takes a lease where there can be one. Waits a little: a process that is just being started
    /// somewhere in this program holds a copy of every descriptor, ours for writing too.
    fn idle(&self, place: &Place) -> io::Result<Idle> {
        let is_file = |look: &Look| look.node.file_type == FileType::File;
        if !place.look()?.as_ref().is_some_and(is_file) {
            return Ok(Idle::Yes(None));
        }
        Ok(match Lease::take(|| place.open(), self.patience) {
            Ok(Some(lease)) => Idle::Yes(Some(lease)),
            Ok(None) => Idle::No,
            // Not readable, so there is no lease to be had.
            Err(_) => Idle::Yes(None),
        })
    }

    fn untouched(&self, at: &RelPath, after: &[Piece]) -> io::Result<bool> {
        let expect = Expect {
            path: &self.step.path,
            at,
            pieces: after,
            moved: self.moved,
        };
        match verify::tree(self.root, &expect) {
            Ok(Tree::Same(_)) => Ok(true),
            Ok(_) => Ok(false),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Throws a prepared entry away, or gives it back to the store it came from.
    fn discard(&self, aside: &Place, source: Source) -> io::Result<()> {
        if aside.look()?.is_none() {
            return Ok(());
        }
        if let Source::Kept { number, step } = source {
            let dir = ledger::directory(self.store, number);
            let store = Root::at_path(String::new(), &dir)?;
            let home = store.at(&below(&format!("pre/{step}")))?;
            if home.look()?.is_none() {
                return settle::relocate(aside, &home);
            }
        }
        host::remove_all(aside)
    }

    /// Keeps a pre-image whose place was taken by somebody's newer save; says so.
    fn keep(&self, aside: &Place) -> io::Result<String> {
        let dir = ledger::directory(self.store, self.number);
        let store = Root::at_path(String::new(), &dir)?;
        let kept = store.at(&below("kept"))?;
        if kept.look()?.is_none() {
            host::create_dir(&kept)?;
        }
        let to = store.at(&below(&format!("kept/{}", self.index)))?;
        if to.look()?.is_some() {
            // Copied by an earlier attempt that was cut short while it removed the original.
            host::remove_all(aside)?;
        } else {
            settle::relocate(aside, &to)?;
        }
        let path = dir.join("kept").join(self.index.to_string());
        Ok(format!(
            "{NEWER}; what was there before is kept as {}",
            shown(&path)
        ))
    }

    fn unmove(&self, from: &RelPath, before: &Node, after: &Node) -> io::Result<Option<String>> {
        let (Some(place), Some(old)) = (self.place(&self.step.path)?, self.place(from)?) else {
            return Ok(None);
        };
        if !is(place.look()?.as_ref(), Some(before)) {
            return Ok(None);
        }
        if let Some(look) = old.look()? {
            if look.node.ino == before.ino && look.node.file_type != FileType::Dir {
                // A rename by link and unlink was cut short; nothing lay here before.
                host::unlink(&place)?;
            }
            // Otherwise somebody has made a new entry of the old name since: both stay.
            return Ok(None);
        }
        adjust(&place, after, before)?;
        match host::rename_new(&place, &old) {
            Ok(()) => Ok(None),
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => Ok(Some(format!(
                "it stays under its new name, because an entry of the old name was made meanwhile ({})",
                words(&e)
            ))),
            Err(e) => Err(e),
        }
    }
}

/// Said of what stays new because what it replaced is nowhere.
pub(super) const LOST: &str =
    "it stays as it was written, because what was there before was taken away by somebody";

const NEWER: &str = "it was edited after it had been written, and that edit stays";

/// Whether this is the inode that `node` describes.
fn is(look: Option<&Look>, node: Option<&Node>) -> bool {
    match (look, node) {
        (Some(look), Some(node)) => {
            look.node.ino == node.ino && look.node.file_type == node.file_type
        }
        _ => false,
    }
}

/// Whether both are names of one file.
fn doubled(a: &Place, b: &Place) -> io::Result<bool> {
    Ok(match (a.look()?, b.look()?) {
        (Some(a), Some(b)) => a.node.ino == b.node.ino && a.node.file_type != FileType::Dir,
        _ => false,
    })
}

/// Whether an entry may lose its name.
enum Idle {
    /// Nobody writes to it; so it stays while the lease, if it can have one, is held.
    Yes(#[expect(dead_code, reason = "held for its effect")] Option<Lease>),
    /// Somebody has it open for writing.
    No,
}
