//! Decisions: what a person said of each item, bound to what they were shown. Owns the rules by
//! which decisions are made, fall back and are resolved to what a commit may take. No I/O.

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

/// Stand-in until the review rules are merged.
pub fn summary(change: &crate::change::Change, decision: Option<&FileDecision>) -> Summary {
    let Some(decision) = decision.filter(|d| d.digest == change.digest) else {
        return Summary::Undecided;
    };
    let approved = |v: &Verdict| *v == Verdict::Approved;
    match (
        decision.verdicts.iter().any(|(_, v)| approved(v)),
        decision.verdicts.iter().any(|(_, v)| !approved(v)),
        decision.verdicts.len() < change.items.len(),
    ) {
        (false, false, _) => Summary::Undecided,
        (true, false, false) => Summary::Approved,
        (false, true, false) => Summary::Rejected,
        _ => Summary::Mixed,
    }
}

/// Stand-in until the review rules are merged.
pub fn parse_item(text: &str) -> Option<ItemRef> {
    let (id, lines) = match text.split_once(':') {
        Some((id, lines)) => (id, Some(lines)),
        None => (text, None),
    };
    let (letter, hex) = id.split_at_checked(1)?;
    let is_id =
        "whmelt".contains(letter) && !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit());
    let lines = match lines {
        None => None,
        Some(lines) => {
            let (a, b) = lines.split_once('-').unwrap_or((lines, lines));
            Some((a.parse().ok()?, b.parse().ok()?))
        }
    };
    is_id.then(|| ItemRef {
        id: crate::diff::ItemId(id.into()),
        lines,
    })
}
