//! Whether the file systems have room for a batch: the host's for what it makes, the session's for
//! what its undo needs. Owns the sums; only reads.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::sys::stat::fstat;
use nix::sys::statvfs::{Statvfs, fstatvfs};

use super::Refusal;
use super::ledger::{Action, Source, Step};
use super::place::Root;
use super::preflight::AgentSide;
use crate::layer::FileType;
use crate::{LayerPath, RelPath};

/// Bytes that a ledger takes, and per step.
const LEDGER: (u64, u64) = (64 * 1024, 1024);

/// Every file system that is too small, told of the largest entry that is to go there.
pub(super) fn check(
    steps: &[Step],
    roots: &BTreeMap<String, Root>,
    store: &Path,
    agent: &AgentSide<'_>,
) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    for (layer, root) in roots {
        let Ok(fs) = fstatvfs(root.fd().as_fd()) else {
            continue;
        };
        let made: Vec<(RelPath, u64)> = of_layer(steps, layer).flat_map(made).collect();
        let Some(largest) = largest(&made) else {
            continue;
        };
        let needed = sum(&made, free(&fs), |path| (agent.measure)(layer, path));
        let reason = if needed > free(&fs) {
            format!(
                "the batch needs {needed} bytes, its file system has {} left",
                free(&fs)
            )
        } else if fs.files() > 0 && made.len() as u64 > fs.files_free() {
            "its file system has too few inodes left for the batch".to_owned()
        } else {
            continue;
        };
        let key = LayerPath::new(layer.clone(), largest);
        refusals.push(Refusal { key, reason });
    }
    refusals.extend(for_undo(steps, roots, store));
    refusals
}

/// What the batch displaces goes to the store, which takes room where that is another file system;
/// the ledger always does.
fn for_undo(steps: &[Step], roots: &BTreeMap<String, Root>, store: &Path) -> Option<Refusal> {
    // The store itself is made with its first ledger.
    let dir = store.ancestors().find_map(|dir| {
        let flags = crate::layer::read::DIR_FLAGS;
        nix::fcntl::open(dir, flags, nix::sys::stat::Mode::empty()).ok()
    })?;
    let fs = fstatvfs(&dir).ok()?;
    let device = |fd: BorrowedFd<'_>| fstat(fd).ok().map(|stat| stat.st_dev);
    let mut needed = LEDGER.0 + LEDGER.1 * steps.len() as u64;
    let mut largest_of_all: Option<(u64, LayerPath)> = None;
    for (layer, root) in roots {
        if device(root.fd()) == device(dir.as_fd()) {
            continue;
        }
        let kept: Vec<(RelPath, u64)> = of_layer(steps, layer).flat_map(displaced).collect();
        needed += sum(&kept, free(&fs).saturating_sub(needed), |path| {
            let stat = fstat(root.at(path).ok()?.handle().ok()?).ok()?;
            Some(stat.st_blocks.cast_unsigned() * 512)
        });
        let of_this = kept.into_iter().max_by_key(|(_, size)| *size);
        if let Some((path, size)) = of_this
            && largest_of_all
                .as_ref()
                .is_none_or(|(other, _)| *other < size)
        {
            largest_of_all = Some((size, LayerPath::new(layer.clone(), path)));
        }
    }
    if needed <= free(&fs) {
        return None;
    }
    let first = steps.first()?.key();
    Some(Refusal {
        key: largest_of_all.map_or(first, |(_, key)| key),
        reason: format!(
            "what undo needs of the batch takes {needed} bytes in the session's directory, where {} \
             are left; commit less at once, or make room there",
            free(&fs)
        ),
    })
}

fn of_layer<'a>(steps: &'a [Step], layer: &'a str) -> impl Iterator<Item = &'a Step> {
    steps.iter().filter(move |step| step.layer == layer)
}

/// Bytes that the caller may still write.
fn free(fs: &Statvfs) -> u64 {
    let blocks = if nix::unistd::geteuid().is_root() {
        fs.blocks_free()
    } else {
        fs.blocks_available()
    };
    blocks.saturating_mul(fs.fragment_size())
}

/// What these files take: by their sizes, or where that is more than there is, by what is really
/// allocated (holes may make up for it).
fn sum(files: &[(RelPath, u64)], free: u64, real: impl Fn(&RelPath) -> Option<u64>) -> u64 {
    let apparent: u64 = files.iter().map(|(_, size)| whole_blocks(*size)).sum();
    if apparent <= free {
        return apparent;
    }
    let real = |(path, size): &(RelPath, u64)| whole_blocks(real(path).unwrap_or(*size));
    files.iter().map(real).sum()
}

fn largest(files: &[(RelPath, u64)]) -> Option<RelPath> {
    let largest = files.iter().max_by_key(|(_, size)| *size);
    largest.map(|(path, _)| path.clone())
}

/// The entries a step makes and their apparent sizes.
fn made(step: &Step) -> Vec<(RelPath, u64)> {
    match &step.action {
        Action::Swap {
            after,
            source: Source::Made,
            ..
        } => sizes(step, after),
        _ => Vec::new(),
    }
}

/// The entries a step takes away and their apparent sizes.
fn displaced(step: &Step) -> Vec<(RelPath, u64)> {
    match &step.action {
        Action::Swap { before, .. } => sizes(step, before),
        _ => Vec::new(),
    }
}

fn sizes(step: &Step, pieces: &[super::ledger::Piece]) -> Vec<(RelPath, u64)> {
    let size = |piece: &super::ledger::Piece| {
        let file = piece.node.file_type == FileType::File;
        let size = if file { piece.node.size } else { 0 };
        (piece.path.under(&step.path), size)
    };
    pieces.iter().map(size).collect()
}

fn whole_blocks(bytes: u64) -> u64 {
    bytes.div_ceil(4096) * 4096
}
