//! Makes a failing script short: halves first, then smaller parts, then single operations, of the
//! script and of its tree.

use super::script::{Op, Script};
use super::twin::{Difference, Setting, compare};

/// Attempts at most; each is a whole session.
const ATTEMPTS: u32 = 250;

/// The shortest script found that shows the same class of difference, and what it shows.
pub fn shrink(setting: &Setting, script: Script, found: Difference) -> (Script, Difference) {
    let mut shrinker = Shrinker {
        setting,
        best: script,
        found,
        left: ATTEMPTS,
    };
    loop {
        let before = shrinker.size();
        shrinker.pass(|s| &mut s.ops);
        shrinker.pass(|s| &mut s.tree);
        if shrinker.size() == before || shrinker.left == 0 {
            return (shrinker.best, shrinker.found);
        }
    }
}

struct Shrinker<'a> {
    setting: &'a Setting,
    best: Script,
    found: Difference,
    left: u32,
}

impl Shrinker<'_> {
    fn size(&self) -> usize {
        self.best.ops.len() + self.best.tree.len()
    }

    fn pass(&mut self, part: impl Fn(&mut Script) -> &mut Vec<Op>) {
        let mut step = part(&mut self.best).len().div_ceil(2).max(1);
        loop {
            let mut end = part(&mut self.best).len();
            // From the end: what comes late rarely matters to what came before.
            while end > 0 && self.left > 0 {
                let begin = end.saturating_sub(step);
                let mut candidate = self.best.clone();
                part(&mut candidate).drain(begin..end);
                self.attempt(candidate);
                end = begin.min(part(&mut self.best).len());
            }
            if step == 1 || self.left == 0 {
                return;
            }
            step = step.div_ceil(2);
        }
    }

    fn attempt(&mut self, candidate: Script) {
        self.left -= 1;
        let (script, difference) = compare(self.setting, &candidate, self.found.stage);
        if let Some(difference) = difference
            && (difference.stage, &difference.class) == (self.found.stage, &self.found.class)
        {
            self.best = script;
            self.found = difference;
        }
    }
}
