//! What people decided a moment ago. Owns the rule that nobody overrules a decision that they
//! could not know: of two who decide at the same time the first wins, and the second is told by
//! whom. Kept in memory only: it is about moments, not about what is agreed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::event::ClientId;
use crate::diff::ItemRef;
use crate::protocol::{Failure, Said};
use crate::review::Meant;

/// Whoever is shown nothing for so long is not told any more.
const KEPT: Duration = Duration::from_secs(60);
/// Most decisions kept; a group of changes is one for each of them.
const MOST: usize = 4_096;

/// One decision.
struct Word {
    /// The state's count of decisions once it was agreed on.
    at: u64,
    when: Instant,
    client: ClientId,
    user: String,
    said: Said,
    meant: Vec<Meant>,
}

/// The latest decisions, oldest first.
#[derive(Default)]
pub(super) struct LastWords(VecDeque<Word>);

impl LastWords {
    /// Notes what a client decided.
    pub fn note(
        &mut self,
        at: u64,
        (client, user): (ClientId, String),
        said: Said,
        meant: Vec<Meant>,
    ) {
        let when = Instant::now();
        let is_old = |word: &Word| when.duration_since(word.when) > KEPT;
        while self.0.len() >= MOST || self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
        self.0.push_back(Word {
            at,
            when,
            client,
            user,
            said,
            meant,
        });
    }

    /// Whether `client` may say this of `meant`, having seen the decisions up to `seen`. Fails with
    /// [`Failure::Overtaken`] where somebody else said otherwise since.
    pub fn allow(
        &self,
        client: ClientId,
        seen: u64,
        said: Said,
        meant: &[Meant],
    ) -> Result<(), Failure> {
        let unseen = self.0.iter().rev().take_while(|word| word.at > seen);
        for word in unseen.filter(|word| word.client != client && word.said != said) {
            let mut theirs = word.meant.iter();
            let met = theirs.find(|theirs| meant.iter().any(|ours| meet(theirs, ours)));
            if let Some((path, _)) = met {
                return Err(Failure::Overtaken {
                    path: path.clone(),
                    by: word.user.clone(),
                    said: word.said,
                });
            }
        }
        Ok(())
    }
}

/// Whether two decisions are about something in common.
fn meet((path, items): &Meant, (other, others): &Meant) -> bool {
    let common = |a: &ItemRef, b: &ItemRef| {
        let apart = match (a.lines, b.lines) {
            (Some((first, last)), Some((start, end))) => last < start || end < first,
            _ => false,
        };
        a.id == b.id && !apart
    };
    path == other
        && match (items, others) {
            (Some(items), Some(others)) => {
                items.iter().any(|a| others.iter().any(|b| common(a, b)))
            }
            _ => true,
        }
}
