//! Decisions: what a person said of each item, bound to what they were shown. Owns the rules by
//! which decisions are made, fall back and are resolved to what a commit may take. No I/O.

mod decide;
mod resolve;
mod spans;
mod target;

#[cfg(test)]
mod tests;

pub use decide::{decide, is_reverted_by_all, is_taken_by_all};
pub use resolve::{item_summary, line_verdict, overruled, reason, resolve, resolve_all, summary};
pub use target::{Meant, covers, expand, parse_item, places};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::LayerPath;
use crate::diff::ItemRef;
use crate::layer::Digest;

/// What was said of one item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// May be committed.
    Approved,
    /// Must not be committed.
    Rejected {
        /// Why, in the person's words.
        reason: Option<String>,
    },
}

/// The decisions on one change. Items without an entry are undecided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDecision {
    /// Digest of the change that the person was shown; another digest voids the decision.
    pub digest: Digest,
    /// By item or lines of an item, sorted; a later, overlapping verdict replaces an earlier one.
    /// (Pairs, not a map: JSON has no structured keys.)
    pub verdicts: Vec<(ItemRef, Verdict)>,
    /// Who said it last (a user name).
    pub by: String,
}

/// Every decision of a session.
pub type Decisions = BTreeMap<LayerPath, FileDecision>;

/// A change's decisions in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Summary {
    /// Nothing was said.
    Undecided,
    /// Every item is approved.
    Approved,
    /// Every item is rejected.
    Rejected,
    /// Anything else.
    Mixed,
}

impl Summary {
    /// The word used in listings.
    pub fn name(self) -> &'static str {
        match self {
            Summary::Undecided => "undecided",
            Summary::Approved => "approved",
            Summary::Rejected => "rejected",
            Summary::Mixed => "mixed",
        }
    }
}
