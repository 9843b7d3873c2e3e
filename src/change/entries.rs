//! The entries of one upper as they were last seen. Owns their order, a walk's: parents first,
//! siblings in byte order (which paths as plain bytes have not: `a.b` would come before `a/x`).

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use crate::RelPath;
use crate::layer::UpperEntry;

/// A path that is ordered as a walk comes to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InTreeOrder(pub RelPath);

impl Ord for InTreeOrder {
    fn cmp(&self, other: &Self) -> Ordering {
        // A slash ends a name, so it comes before any byte that a name may hold (never NUL).
        let key = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
        let (a, b) = (self.0.as_bytes(), other.0.as_bytes());
        match a.iter().zip(b).find(|(x, y)| x != y) {
            Some((x, y)) => key(x).cmp(&key(y)),
            None => a.len().cmp(&b.len()),
        }
    }
}

impl PartialOrd for InTreeOrder {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Entries {
    map: BTreeMap<InTreeOrder, UpperEntry>,
}

impl Entries {
    /// What a walk reported.
    pub fn new(walked: Vec<UpperEntry>) -> Self {
        let keyed = walked
            .into_iter()
            .map(|entry| (InTreeOrder(entry.path.clone()), entry));
        Self {
            map: keyed.collect(),
        }
    }

    /// How many there are, the root included.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// All, as a walk would report them.
    pub fn iter(&self) -> impl Iterator<Item = &UpperEntry> {
        self.map.values()
    }

    /// The root's, which every walk begins with.
    pub fn root(&self) -> Option<&UpperEntry> {
        self.get(&RelPath::root())
    }

    /// The entry at a path.
    pub fn get(&self, path: &RelPath) -> Option<&UpperEntry> {
        self.map.get(&InTreeOrder(path.clone()))
    }

    /// Whether there is one at a path.
    pub fn has(&self, path: &RelPath) -> bool {
        self.get(path).is_some()
    }

    /// Puts an entry in the place of what was known of its path.
    pub fn put(&mut self, entry: UpperEntry) {
        self.map.insert(InTreeOrder(entry.path.clone()), entry);
    }

    /// Takes the entry at a path out.
    pub fn remove(&mut self, path: &RelPath) {
        self.map.remove(&InTreeOrder(path.clone()));
    }

    /// Every path strictly below `dir`, which is not the root.
    pub fn below(&self, dir: &RelPath) -> impl Iterator<Item = &RelPath> {
        let from = Bound::Excluded(InTreeOrder(dir.clone()));
        self.map
            .range((from, Bound::Unbounded))
            .map(|(key, _)| &key.0)
            .take_while(move |path| path.is_within(dir))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_followed_by_what_lies_in_it() {
        let path = |p: &str| InTreeOrder(RelPath::try_from(p).expect("a path"));
        let mut paths = ["b", "a.b", "a/x", "a", "a/x/y", "a\u{1}"].map(path);
        paths.sort();
        let sorted: Vec<&[u8]> = paths.iter().map(|p| p.0.as_bytes()).collect();
        let expected: [&[u8]; 6] = [b"a", b"a/x", b"a/x/y", b"a\x01", b"a.b", b"b"];
        assert_eq!(sorted, expected);
    }
}
