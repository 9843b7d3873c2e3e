//! One layer's scan: from the entries of an upper to the paths that differ from the baseline. Owns
//! what the upper's marks mean for the merged view; what a difference is called and whether the
//! host moved is decided beside it.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use super::baseline::{Baseline, Record};
use super::entries::Entries;
use super::git_index;
use super::host::Host;
use crate::RelPath;
use crate::layer::{FileType, Node, UpperEntry};

/// A path at which the merged view may differ from the baseline.
pub(super) struct Candidate {
    pub path: RelPath,
    /// What the baseline says; nothing for a path inside a directory whose lower is hidden.
    pub record: Record,
    /// What the agent sees; `None`: nothing.
    pub after: Option<Arc<Node>>,
}

/// A directory of the upper on the way down.
struct Level {
    path: RelPath,
    /// Nothing of the lower shows in it.
    hides: bool,
}

/// Every candidate of an upper, its own entries first and what they hide behind them. Takes the
/// baseline of paths that appear for the first time.
pub(super) fn candidates(
    entries: &Entries,
    host: &mut Host,
    baseline: &mut Baseline,
) -> io::Result<Vec<Candidate>> {
    let mut found = Vec::with_capacity(entries.len());
    let mut levels = vec![Level {
        path: RelPath::root(),
        hides: false,
    }];
    for entry in entries.iter() {
        if entry.path.is_root() {
            continue;
        }
        while levels.len() > 1
            && levels
                .last()
                .is_some_and(|l| !entry.path.is_within(&l.path))
        {
            levels.pop();
        }
        let parent_hides = levels.last().is_some_and(|l| l.hides);
        let hides = step(entry, parent_hides, entries, host, baseline, &mut found)?;
        if is_dir(entry) {
            levels.push(Level {
                path: entry.path.clone(),
                hides,
            });
        }
    }
    Ok(found)
}

/// The candidates at these paths, parents before children. A path without an entry is one where
/// what the host had is gone, or where nothing differs any more; then its record is forgotten.
pub(super) fn candidates_at<'a>(
    paths: impl Iterator<Item = &'a RelPath>,
    entries: &Entries,
    host: &mut Host,
    baseline: &mut Baseline,
) -> io::Result<Vec<Candidate>> {
    let mut found = Vec::new();
    let mut above: Option<(RelPath, bool)> = None;
    for path in paths {
        let parent = path.parent().unwrap_or_default();
        let hides = match &above {
            Some((known, hides)) if *known == parent => *hides,
            _ => is_hidden_below(&parent, entries, baseline),
        };
        match entries.get(path) {
            Some(entry) => {
                step(entry, hides, entries, host, baseline, &mut found)?;
            }
            None if hides => {
                if let Some(record) = baseline.touch(path)
                    && record.node.is_some()
                {
                    found.push(Candidate {
                        path: path.clone(),
                        record: record.clone(),
                        after: None,
                    });
                }
            }
            None => baseline.forget(path)?,
        }
        above = Some((parent, hides));
    }
    // What a directory hides may be named as well.
    let mut seen = HashSet::with_capacity(found.len());
    let fresh: Vec<bool> = found.iter().map(|c| seen.insert(c.path.clone())).collect();
    let mut fresh = fresh.into_iter();
    found.retain(|_| fresh.next().unwrap_or(true));
    Ok(found)
}

/// Whether nothing of the lower shows in the directory `dir`.
fn is_hidden_below(dir: &RelPath, entries: &Entries, baseline: &Baseline) -> bool {
    let mut chain: Vec<RelPath> = dir.ancestors().filter(|p| !p.is_root()).collect();
    chain.reverse();
    chain.push(dir.clone());
    let mut hides = false;
    for path in chain.iter().filter(|p| !p.is_root()) {
        match entries.get(path) {
            Some(entry) if is_dir(entry) => {
                let record = baseline.get(path);
                hides = hides || entry.opaque || record.is_none_or(|r| r.pure || !has_host_dir(r));
            }
            // A whiteout, or a file in a directory's place.
            Some(_) => hides = true,
            // The lower's, unless something above hides it.
            None => {}
        }
    }
    hides
}

fn has_host_dir(record: &Record) -> bool {
    record
        .node
        .as_ref()
        .is_some_and(|n| n.file_type == FileType::Dir)
}

/// The candidate of one entry, and what it hides; whether nothing of the lower shows in it.
fn step(
    entry: &UpperEntry,
    parent_hides: bool,
    entries: &Entries,
    host: &mut Host,
    baseline: &mut Baseline,
    found: &mut Vec<Candidate>,
) -> io::Result<bool> {
    let mut record = match baseline.touch(&entry.path) {
        Some(record) => record.clone(),
        // Whatever the host has of this name was never seen by the agent.
        None if parent_hides => Record {
            pure: is_dir(entry),
            ..Record::default()
        },
        None => first_sight(entry, host, baseline)?,
    };
    let host_dir = has_host_dir(&record);
    let hides = is_dir(entry) && (parent_hides || entry.opaque || record.pure || !host_dir);
    let merged = is_dir(entry) && !hides;
    if merged && record.tree {
        // What is below shows (again, or to a look at the moment of a change): what is on record of
        // it is forgotten, and has to be taken anew should it be hidden once more.
        record.tree = false;
        baseline.set(&entry.path, record.clone())?;
    }
    if !merged && !parent_hides {
        if host_dir && !record.pure && !record.tree {
            take_tree(&entry.path, host, baseline)?;
            record.tree = true;
            baseline.set(&entry.path, record.clone())?;
        }
        // Whatever was below and has no entry of its own is lost with it.
        let lost: Vec<Candidate> = baseline
            .below(&entry.path)
            .filter(|(path, record)| record.node.is_some() && !entries.has(path))
            .map(|(path, record)| Candidate {
                path: path.clone(),
                record: record.clone(),
                after: None,
            })
            .collect();
        baseline.touch_below(&entry.path);
        found.extend(lost);
    }
    found.push(Candidate {
        path: entry.path.clone(),
        record,
        after: (!entry.whiteout).then(|| entry.node.clone()),
    });
    Ok(hides)
}

fn is_dir(entry: &UpperEntry) -> bool {
    entry.node.file_type == FileType::Dir
}

/// The baseline of a path that has just appeared: what the host has now.
fn first_sight(entry: &UpperEntry, host: &mut Host, baseline: &mut Baseline) -> io::Result<Record> {
    let node = host.node(&entry.path)?.map(Arc::new);
    let host_dir = node.as_ref().is_some_and(|n| n.file_type == FileType::Dir);
    // A directory's times say nothing about it, and whiteouts may share one inode.
    let unsure = !entry.whiteout
        && !is_dir(entry)
        && !host_dir
        && match (&node, entry.born) {
            (Some(node), Some(born)) => node.ctime > born,
            _ => false,
        };
    let unsure = unsure
        || match &node {
            // A directory is merged with what the host has in it now; of git's index it is told by
            // its entries whether it has moved.
            Some(node) if !host_dir && !git_index::is_index(&entry.path) => {
                host.was_replaced(&entry.path, node)?
            }
            _ => false,
        };
    let record = Record {
        unsure,
        pure: is_dir(entry) && !host_dir,
        tree: false,
        node,
        apart: Vec::new(),
        marked: None,
        touched: None,
    };
    baseline.set(&entry.path, record.clone())?;
    Ok(record)
}

/// Records everything the host has below a directory that the agent deleted or replaced; what is
/// on record already stays as it is.
fn take_tree(top: &RelPath, host: &mut Host, baseline: &mut Baseline) -> io::Result<()> {
    let mut open = vec![top.clone()];
    while let Some(dir) = open.pop() {
        for name in host.list(&dir) {
            let path = dir.join(&name);
            let mut record = match baseline.get(&path) {
                Some(record) => record.clone(),
                None => Record {
                    node: host.node(&path)?.map(Arc::new),
                    ..Record::default()
                },
            };
            let is_dir = record
                .node
                .as_ref()
                .is_some_and(|n| n.file_type == FileType::Dir);
            if is_dir && !record.tree && !record.pure {
                record.tree = true;
                open.push(path.clone());
            }
            baseline.set(&path, record)?;
        }
    }
    Ok(())
}
