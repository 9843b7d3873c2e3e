//! How many changes were decided, and how.

use pvisor::review::Summary;

/// Decisions over some changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Nothing said.
    pub undecided: usize,
    /// All approved.
    pub approved: usize,
    /// All rejected.
    pub rejected: usize,
    /// Some of each.
    pub mixed: usize,
}

impl Tally {
    /// All of them.
    pub fn total(&self) -> usize {
        self.undecided + self.approved + self.rejected + self.mixed
    }

    /// Them in one word.
    pub fn summary(&self) -> Summary {
        match self.total() {
            n if n == self.undecided => Summary::Undecided,
            n if n == self.approved => Summary::Approved,
            n if n == self.rejected => Summary::Rejected,
            _ => Summary::Mixed,
        }
    }

    pub(super) fn add(&mut self, summary: Summary) {
        match summary {
            Summary::Undecided => self.undecided += 1,
            Summary::Approved => self.approved += 1,
            Summary::Rejected => self.rejected += 1,
            Summary::Mixed => self.mixed += 1,
        }
    }

    pub(super) fn minus(&self, other: &Tally) -> Tally {
        Tally {
            undecided: self.undecided - other.undecided,
            approved: self.approved - other.approved,
            rejected: self.rejected - other.rejected,
            mixed: self.mixed - other.mixed,
        }
    }
}
