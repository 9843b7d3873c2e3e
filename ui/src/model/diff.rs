//! The diff pane's place: which change, which row, how it is shown. Owns cursor, scroll and the
//! documents that were loaded; loads nothing itself.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use pvisor::LayerPath;
use pvisor::change::Change;
use pvisor::layer::Digest;

use super::document::{Document, Side};

/// Loaded documents are kept up to this many bytes.
const CACHE_BYTES: usize = 64 << 20;
/// A side larger than this is not kept for "since you looked".
const SEEN_BYTES: usize = 1 << 20;
/// All of those together.
const SEEN_TOTAL: usize = 64 << 20;

/// What of a change was on the screen.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// Of which state of the change.
    digest: Option<Digest>,
    /// Rows of the whole document.
    pub rows: usize,
    ranges: Vec<Range<usize>>,
}

impl Shown {
    fn add(&mut self, digest: Digest, rows: usize, range: Range<usize>) {
        if self.digest != Some(digest) {
            *self = Shown {
                digest: Some(digest),
                rows,
                ranges: Vec::new(),
            };
        }
        self.ranges.push(range);
        self.ranges.sort_by_key(|r| r.start);
        let mut joined: Vec<Range<usize>> = Vec::with_capacity(self.ranges.len());
        for range in self.ranges.drain(..) {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        self.ranges = joined;
    }

    /// Rows that were never on the screen; `None` when this state of the change never was.
    pub fn missing(&self, digest: Digest) -> Option<usize> {
        (self.digest == Some(digest)).then(|| {
            self.rows
                - self
                    .ranges
                    .iter()
                    .map(ExactSizeIterator::len)
                    .sum::<usize>()
        })
    }
}

/// The side a person saw, to tell what came later.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Digest of the change then.
    pub digest: Digest,
    /// The agent's side then.
    pub after: Option<Arc<Vec<u8>>>,
    /// The agent's side of the state seen before that.
    pub previous: Option<Arc<Vec<u8>>>,
    /// What names the agent's side then.
    side: Side,
}

impl Seen {
    /// Whether the agent has written since.
    pub fn is_older_than(&self, change: &Change) -> bool {
        self.digest != change.digest && !self.side.is(&Side::of(change))
    }
}

/// The diff pane.
#[derive(Debug, Clone, Default)]
pub struct DiffPane {
    /// The change it is about.
    pub key: Option<LayerPath>,
    /// The rows on the screen.
    pub document: Option<Arc<Document>>,
    /// Row under the cursor.
    pub cursor: usize,
    /// First row on the screen.
    pub top: usize,
    /// Wrapped lines of the first row that are scrolled past.
    pub skip: usize,
    /// Columns the text is moved to the left.
    pub left: usize,
    /// Long lines are wrapped.
    pub wrap: bool,
    /// Decide by line instead of by hunk.
    pub by_line: bool,
    /// Blanks and line ends are shown.
    pub invisibles: bool,
    /// First row of a marked range.
    pub anchor: Option<usize>,
    /// Only what came since it was seen is shown.
    pub since: Option<Arc<Document>>,
    /// Cursor and first row of the whole diff meanwhile.
    whole_place: (usize, usize),
    cache: VecDeque<Arc<Document>>,
    places: HashMap<LayerPath, (usize, usize)>,
    shown: HashMap<LayerPath, Shown>,
    seen: HashMap<LayerPath, Seen>,
    seen_bytes: usize,
    /// Changes being loaded, by the digest asked for.
    pub loading: Vec<(LayerPath, Digest)>,
    /// Why the last load failed.
    pub failed: Option<(LayerPath, Digest, String)>,
}

impl DiffPane {
    /// A pane that shows nothing yet; long lines are wrapped.
    pub fn new() -> Self {
        Self {
            wrap: true,
            ..Self::default()
        }
    }

    /// The document that is drawn.
    pub fn drawn(&self) -> Option<&Arc<Document>> {
        self.since.as_ref().or(self.document.as_ref())
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.drawn().map_or(0, |d| d.rows.len())
    }

    /// Whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows only what came since it was seen.
    pub fn show_since(&mut self, document: Document) {
        if self.since.is_none() {
            self.whole_place = (self.cursor, self.top);
        }
        self.since = Some(Arc::new(document));
        self.anchor = None;
        self.skip = 0;
        (self.cursor, self.top) = (0, 0);
    }

    /// Back to the whole diff, where it was left; false when it is shown already.
    pub fn leave_since(&mut self) -> bool {
        let left = self.since.take().is_some();
        if left {
            self.anchor = None;
            self.skip = 0;
            (self.cursor, self.top) = self.whole_place;
        }
        left
    }

    /// Turns to another change (or none), remembering the place in the last one.
    pub fn turn_to(&mut self, key: Option<&LayerPath>) {
        if self.key.as_ref() == key {
            return;
        }
        self.leave_since();
        if let Some(old) = &self.key {
            self.places.insert(old.clone(), (self.cursor, self.top));
        }
        let place = key.and_then(|k| self.places.get(k)).copied();
        (self.cursor, self.top) = place.unwrap_or((usize::MAX, 0));
        self.key = key.cloned();
        self.document = None;
        self.anchor = None;
        self.left = 0;
        self.skip = 0;
    }

    /// Puts the loaded document of this state of the change in place, if there is one.
    pub fn fetch(&mut self, digest: Digest) -> bool {
        let Some(key) = &self.key else {
            return true;
        };
        if self.document.as_ref().is_some_and(|d| d.digest == digest) {
            return true;
        }
        let Some(at) = self
            .cache
            .iter()
            .position(|d| d.digest == digest && d.key == *key)
        else {
            return false;
        };
        if let Some(document) = self.cache.remove(at) {
            self.cache.push_back(Arc::clone(&document));
            self.leave_since();
            if let Some(before) = &self.document {
                // The rows moved under a marked range; what a person reads keeps its place.
                self.anchor = None;
                let above = self.cursor.saturating_sub(self.top);
                self.cursor = document.follow(before, self.cursor);
                self.top = self.cursor.saturating_sub(above);
            }
            if self.cursor == usize::MAX {
                self.cursor = (0..document.rows.len())
                    .find(|r| document.is_head(*r))
                    .unwrap_or(0);
            }
            self.cursor = self.cursor.min(document.rows.len().saturating_sub(1));
            self.document = Some(document);
        }
        true
    }

    /// Takes a loaded document in.
    pub fn store(&mut self, document: Document) {
        self.cache
            .retain(|d| d.key != document.key || d.digest != document.digest);
        self.cache.push_back(Arc::new(document));
        let mut bytes: usize = self.cache.iter().map(|d| d.weight()).sum();
        while bytes > CACHE_BYTES && self.cache.len() > 1 {
            if let Some(oldest) = self.cache.pop_front() {
                bytes -= oldest.weight();
            }
        }
    }

    /// Hidden characters in what the agent wrote, when this state of the change was loaded.
    pub fn hidden(&self, key: &LayerPath, digest: Digest) -> Option<usize> {
        self.cache
            .iter()
            .find(|d| d.digest == digest && d.key == *key)
            .map(|d| d.hidden)
    }

    /// Notes that these rows were on the screen.
    pub fn note_drawn(&mut self, rows: Range<usize>) {
        let (Some(document), None) = (&self.document, &self.since) else {
            return;
        };
        self.shown.entry(document.key.clone()).or_default().add(
            document.digest,
            document.rows.len(),
            rows,
        );
        let seen = self.seen.get(&document.key);
        if seen.is_some_and(|s| s.digest == document.digest) {
            return;
        }
        if let Some(seen) = self.seen.get_mut(&document.key)
            && seen.side.is(&document.side)
        {
            // Only the host's side moved.
            seen.digest = document.digest;
            return;
        }
        let seen = self.seen.get(&document.key);
        let previous = seen.and_then(|s| s.after.clone());
        let weight = |a: &Option<Arc<Vec<u8>>>| a.as_ref().map_or(0, |a| a.len());
        let freed = seen.map_or(0, |s| weight(&s.previous));
        let after = document
            .after
            .clone()
            .filter(|a| a.len() <= SEEN_BYTES && self.seen_bytes - freed + a.len() <= SEEN_TOTAL);
        self.seen_bytes = self.seen_bytes - freed + weight(&after);
        self.seen.insert(
            document.key.clone(),
            Seen {
                digest: document.digest,
                after,
                previous,
                side: document.side,
            },
        );
    }

    /// What was seen of a change.
    pub fn seen(&self, key: &LayerPath) -> Option<&Seen> {
        self.seen.get(key)
    }

    /// Rows of this state of the change that were never on the screen; `None`: it never was.
    pub fn not_shown(&self, key: &LayerPath, digest: Digest) -> Option<usize> {
        self.shown.get(key)?.missing(digest)
    }

    /// The rows a decision is about: the marked range, or the cursor's row.
    pub fn chosen(&self) -> Range<usize> {
        let at = self.cursor;
        match self.anchor {
            Some(anchor) => anchor.min(at)..anchor.max(at) + 1,
            None => at..at + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_shown_adds_up_until_the_change_moves() {
        let (one, two) = (Digest::of(b"1"), Digest::of(b"2"));
        let mut shown = Shown::default();
        assert_eq!(shown.missing(one), None);
        shown.add(one, 100, 0..30);
        shown.add(one, 100, 60..100);
        assert_eq!(shown.missing(one), Some(30));
        shown.add(one, 100, 20..65);
        assert_eq!(shown.missing(one), Some(0));
        shown.add(two, 10, 0..5);
        assert_eq!(shown.missing(one), None);
        assert_eq!(shown.missing(two), Some(5));
    }
}
