//! Puts together what was approved: the old bytes with exactly the chosen edits. Owns nothing but
//! this recombination; whether a diff belongs to these bytes is for the caller to know.

use std::collections::HashMap;

use super::compute::FileDiff;
use super::lines::{Lines, join};
use super::pair::{Step, order};
use super::{ItemId, ItemRef};

/// Why items could not be put together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// No item of this name in the difference.
    #[error("the difference has no item {0}")]
    UnknownItem(ItemId),
    /// The lines asked for are not in the item.
    #[error("{item} asks for lines that are not there; the item has {count}")]
    NoSuchLines {
        /// What was asked for.
        item: ItemRef,
        /// Lines that the item has (0 when it has none to choose from).
        count: u32,
    },
    /// The difference is not one of these bytes.
    #[error("the difference does not belong to these bytes; scan again")]
    Mismatch,
}

/// `old` with exactly the chosen edits of `diff`, the difference between `old` and `new`.
///
/// `chosen` names hunks, lines of hunks and the `eof` item; items that are not about bytes (whole,
/// mode, link, meta) are passed over, except that the `whole` of a binary file is its new content.
/// The result's last line has a newline as `old` has, or the other way round when `eof` is chosen.
/// Everything chosen gives `new`, nothing gives `old`, both byte for byte.
pub fn select(
    old: &[u8],
    new: &[u8],
    diff: &FileDiff,
    chosen: &[ItemRef],
) -> Result<Vec<u8>, SelectError> {
    if diff.binary {
        let whole = chosen.iter().any(|c| c.id.0.starts_with('w'));
        return Ok(if whole { new } else { old }.to_vec());
    }
    let picked = Picked::of(diff, chosen)?;
    let old_side = Lines::of(old);
    let new_side = Lines::of(new);
    let mut out: Vec<&[u8]> = Vec::with_capacity(old_side.len().max(new_side.len()));
    let mut at = 0;
    for (index, hunk) in diff.hunks.iter().enumerate() {
        let unchanged = old_side.lines.get(at..hunk.old_range().start);
        let removed = old_side.lines.get(hunk.old_range());
        let added = new_side.lines.get(hunk.new_range());
        let (Some(unchanged), Some(removed), Some(added)) = (unchanged, removed, added) else {
            return Err(SelectError::Mismatch);
        };
        out.extend(unchanged);
        match picked.hunks.get(&index) {
            None => out.extend(removed),
            Some(Lot::All) => out.extend(added),
            Some(Lot::Lines(lines)) => {
                for step in order(removed, added) {
                    match step {
                        Step::Removed(i) if !lines[i] => out.push(removed[i]),
                        Step::Added(j) if lines[removed.len() + j] => out.push(added[j]),
                        Step::Removed(_) | Step::Added(_) => {}
                    }
                }
            }
        }
        at = hunk.old_range().end;
    }
    out.extend(old_side.lines.get(at..).ok_or(SelectError::Mismatch)?);
    // A side without lines says nothing about the newline; the other side's holds.
    let as_old = if old_side.len() == 0 {
        new_side.final_newline
    } else {
        old_side.final_newline
    };
    Ok(join(&out, as_old != picked.eof))
}

enum Lot {
    All,
    /// By 0-based line of the hunk, removed ones first.
    Lines(Vec<bool>),
}

struct Picked {
    hunks: HashMap<usize, Lot>,
    eof: bool,
}

impl Picked {
    fn of(diff: &FileDiff, chosen: &[ItemRef]) -> Result<Self, SelectError> {
        let by_id: HashMap<&ItemId, usize> = diff
            .hunks
            .iter()
            .zip(0..)
            .map(|(h, i)| (&h.id, i))
            .collect();
        let mut picked = Self {
            hunks: HashMap::new(),
            eof: false,
        };
        for item in chosen {
            if let Some(index) = by_id.get(&item.id) {
                picked.add(*index, diff.hunks[*index].lines(), item)?;
            } else if diff.eof.as_ref().is_some_and(|e| e.id == item.id) {
                if item.lines.is_some() {
                    return Err(SelectError::NoSuchLines {
                        item: item.clone(),
                        count: 0,
                    });
                }
                picked.eof = true;
            } else if !item.id.0.starts_with(['w', 'm', 'l', 'x']) {
                return Err(SelectError::UnknownItem(item.id.clone()));
            }
        }
        Ok(picked)
    }

    fn add(&mut self, index: usize, count: u32, item: &ItemRef) -> Result<(), SelectError> {
        let Some((first, last)) = item.lines else {
            self.hunks.insert(index, Lot::All);
            return Ok(());
        };
        if first == 0 || first > last || last > count {
            return Err(SelectError::NoSuchLines {
                item: item.clone(),
                count,
            });
        }
        let lot = self
            .hunks
            .entry(index)
            .or_insert_with(|| Lot::Lines(vec![false; count as usize]));
        if let Lot::Lines(lines) = lot {
            lines[first as usize - 1..last as usize].fill(true);
            if lines.iter().all(|l| *l) {
                *lot = Lot::All;
            }
        }
        Ok(())
    }
}
