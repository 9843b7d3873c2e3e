//! The change list: rows made of a session's changes, grouped by layer, risk first or by path.
//! Owns order, folding and the cursor; draws nothing and decides nothing.
//!
//! A row knows its changes as a range of members, and every member carries the digest it had when
//! the rows were made: what a person acts on is what was on the screen.

mod build;
mod row;
mod tally;

use std::collections::HashMap;
use std::ops::Range;

use pvisor::LayerPath;

pub use build::times_only;
pub use row::{Fold, Member, Row, RowId};
pub use tally::Tally;

/// Order of the rows within a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// What carries a risk on top, heaviest first; the rest as a tree.
    #[default]
    Risk,
    /// Everything as a tree.
    Path,
}

/// The list.
#[derive(Debug, Clone, Default)]
pub struct List {
    /// Every change, in the order of the rows if all were open.
    pub members: Vec<Member>,
    /// The rows.
    pub rows: Vec<Row>,
    /// Row under the cursor.
    pub cursor: usize,
    /// First row on the screen.
    pub top: usize,
    /// Order.
    pub order: Order,
    /// The row the cursor was put on when nobody had moved it yet.
    placed: Option<usize>,
    /// Folding that a person changed.
    open: HashMap<RowId, bool>,
    /// Decisions over the members before each index.
    sums: Vec<Tally>,
    /// Over everything that has to be decided: ignored and touched ones apart, and the home
    /// directory's, which no commit takes with the rest.
    pub tally: Tally,
    /// The same of the home directory.
    pub home: Tally,
    /// Ignored changes.
    pub ignored: usize,
    /// Changes that the host's own edits stand against.
    pub conflicts: usize,
}

impl List {
    /// What a row is.
    pub fn id(&self, row: &Row) -> RowId {
        match row {
            Row::Layer { layer, .. } => RowId::Layer(layer.clone()),
            Row::Dir { dir, .. } => RowId::Dir(dir.clone()),
            Row::Fold { fold, layer, .. } => RowId::Fold(layer.clone(), *fold),
            Row::Change { member, .. } => RowId::Change(self.members[*member].key.clone()),
        }
    }

    /// The row under the cursor.
    pub fn current(&self) -> Option<&Row> {
        self.rows.get(self.cursor)
    }

    /// The change of a row: the row's own.
    pub fn change(&self, row: &Row) -> Option<&Member> {
        match row {
            Row::Change { member, .. } => self.members.get(*member),
            Row::Dir { own, .. } => self.members.get((*own)?),
            _ => None,
        }
    }

    /// Every change a row stands for.
    pub fn members_of(&self, row: &Row) -> Vec<&Member> {
        match row {
            Row::Change { member, .. } => self.members.get(*member).into_iter().collect(),
            Row::Dir { own, members, .. } => own
                .iter()
                .map(|o| &self.members[*o])
                .chain(&self.members[members.clone()])
                .collect(),
            Row::Layer { members, .. } | Row::Fold { members, .. } => {
                self.members[members.clone()].iter().collect()
            }
        }
    }

    /// Decisions over the changes of a row.
    pub fn tally_of(&self, row: &Row) -> Tally {
        let (range, own) = match row {
            Row::Change { member, .. } => (*member..*member + 1, None),
            Row::Dir { members, own, .. } => (members.clone(), *own),
            Row::Layer { members, .. } | Row::Fold { members, .. } => (members.clone(), None),
        };
        let mut tally = self.tally_in(&range);
        if let Some(own) = own {
            tally.add(self.members[own].summary);
        }
        tally
    }

    /// Decisions over these members.
    pub fn tally_in(&self, range: &Range<usize>) -> Tally {
        self.sums[range.end].minus(&self.sums[range.start])
    }

    /// Folds or opens a group; `None` toggles. Returns whether anything moved.
    pub fn fold(&mut self, at: usize, open: Option<bool>) -> bool {
        let Some(row) = self.rows.get(at) else {
            return false;
        };
        let now = match row {
            Row::Layer { open, .. } | Row::Dir { open, .. } | Row::Fold { open, .. } => *open,
            Row::Change { .. } => return false,
        };
        let wanted = open.unwrap_or(!now);
        let id = self.id(row);
        self.open.insert(id, wanted);
        self.placed = None;
        wanted != now
    }

    /// The nearest group above `at` that holds it.
    pub fn parent(&self, at: usize) -> Option<usize> {
        let depth = |row: &Row| match row {
            Row::Layer { .. } => 0,
            Row::Fold { .. } => 1,
            Row::Dir { depth, .. } | Row::Change { depth, .. } => *depth,
        };
        let mine = depth(self.rows.get(at)?);
        (0..at).rev().find(|i| depth(&self.rows[*i]) < mine)
    }

    /// Opens whatever hides this change.
    pub fn reveal(&mut self, key: &LayerPath) {
        self.open.insert(RowId::Layer(key.layer.clone()), true);
        for dir in key.path.ancestors() {
            self.open
                .insert(RowId::Dir(LayerPath::new(key.layer.clone(), dir)), true);
        }
    }
}
