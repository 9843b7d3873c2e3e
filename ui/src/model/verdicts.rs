//! Decisions on a change, found by item. Owns nothing but the way in: a file with thousands of
//! hunks is looked through once, not once a hunk.

use std::collections::HashMap;

use pvisor::change::Change;
use pvisor::diff::{Item, ItemId, ItemRef};
use pvisor::review::{FileDecision, Summary, Verdict, item_summary};

/// What was said of each item of one change.
pub struct Verdicts<'a> {
    items: HashMap<&'a ItemId, &'a Item>,
    said: HashMap<&'a ItemId, FileDecision>,
}

impl<'a> Verdicts<'a> {
    /// Of `change`; `decision` must be bound to it as it is.
    pub fn of(change: &'a Change, decision: Option<&'a FileDecision>) -> Self {
        let mut said: HashMap<&ItemId, FileDecision> = HashMap::new();
        if let Some(decision) = decision {
            let empty = || FileDecision {
                digest: decision.digest,
                verdicts: Vec::new(),
                by: String::new(),
            };
            for (named, verdict) in &decision.verdicts {
                let part: (ItemRef, Verdict) = (named.clone(), verdict.clone());
                let own = said.entry(&named.id).or_insert_with(empty);
                own.verdicts.push(part);
            }
        }
        Self {
            items: change.items.iter().map(|i| (&i.id, i)).collect(),
            said,
        }
    }

    /// The item of this name.
    pub fn item(&self, id: &ItemId) -> Option<&'a Item> {
        self.items.get(id).copied()
    }

    /// What was said of it in one word; `None` when there is no such item.
    pub fn summary(&self, id: &ItemId) -> Option<Summary> {
        let item = self.item(id)?;
        Some(item_summary(item, self.said.get(id)))
    }
}
