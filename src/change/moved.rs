//! Finds renamed directories among deleted and added entries, and what came along with them. Owns
//! the rule; where a directory comes from is told by its mark in the upper. No I/O.

use std::collections::{BTreeMap, HashMap, HashSet};

use std::sync::Arc;

use super::{Change, ChangeKind, ChangeSet, Class, Risk};
use crate::layer::FileType;
use crate::{LayerPath, RelPath};

/// Which of one layer's changes belong together: (deleted, added), by index. `origins` names, for
/// directories of the upper, the path under which the host has them.
///
/// Below a renamed directory an entry belongs to the one of the same name below the old path,
/// whatever became of its content.
pub(super) fn pairs(
    changes: &[Arc<Change>],
    origins: &[(RelPath, RelPath)],
) -> Vec<(usize, usize)> {
    let mut deleted: HashMap<&RelPath, usize> = HashMap::new();
    let mut added: BTreeMap<&RelPath, usize> = BTreeMap::new();
    for (index, change) in changes.iter().enumerate() {
        match change.kind {
            ChangeKind::Deleted => drop(deleted.insert(&change.key.path, index)),
            ChangeKind::Added => drop(added.insert(&change.key.path, index)),
            _ => {}
        }
    }
    let is_dir = |index: usize| changes[index].file_type() == FileType::Dir;
    let mut tops: Vec<(&RelPath, &RelPath)> = origins
        .iter()
        .map(|(new, old)| (new, old))
        .filter(|(new, old)| {
            added.get(new).is_some_and(|i| is_dir(*i))
                && deleted.get(old).is_some_and(|i| is_dir(*i))
        })
        .collect();
    // What lies deepest first: a directory that was moved on its own takes what is in it before the
    // one that it lies in does.
    tops.sort_by(|a, b| b.0.depth().cmp(&a.0.depth()).then(a.0.cmp(b.0)));
    let (mut old_used, mut new_used) = (HashSet::new(), HashSet::new());
    let mut found = Vec::new();
    for (new, old) in tops {
        // Names that only begin alike stand between a directory and what lies in it.
        let below = added
            .range::<&RelPath, _>(new..)
            .take_while(|(path, _)| path.as_bytes().starts_with(new.as_bytes()))
            .filter(|(path, _)| path.is_within(new));
        for (path, come) in below {
            let tail = &path.as_bytes()[new.as_bytes().len()..];
            let Ok(from) = RelPath::new([old.as_bytes(), tail].concat()) else {
                continue;
            };
            let Some(gone) = deleted.get(&from) else {
                continue;
            };
            let (a, b) = (&changes[*gone], &changes[*come]);
            let alike = a.file_type() == b.file_type()
                && (a.class == b.class || b.class == Class::GitObject);
            if alike && !old_used.contains(gone) && !new_used.contains(come) {
                old_used.insert(*gone);
                new_used.insert(*come);
                found.push((*gone, *come));
            }
        }
    }
    found
}

/// Whether a change is nothing but what a renamed directory took along: the directory it lies in is
/// renamed in the same way, its own name, content, mode and attributes are what they were, nothing
/// about it needs a second look at its new place, and the host is not in the way. Such changes are
/// told as one with the directory's.
pub fn came_along(changes: &ChangeSet, change: &Change) -> bool {
    let (Some(from), Some(before), Some(after)) = (change.from(), &change.before, &change.after)
    else {
        return false;
    };
    let path = &change.key.path;
    let (Some(above), Some(old_above)) = (path.parent(), from.parent()) else {
        return false;
    };
    let above = LayerPath::new(change.key.layer.clone(), above);
    let heavy = |risk: &Risk| {
        matches!(
            risk,
            Risk::GitHook | Risk::GitConfig | Risk::OutsideLink | Risk::SpecialMode
        )
    };
    change.conflict.is_none()
        && !change.risks.iter().any(heavy)
        && path.file_name() == from.file_name()
        && super::compare::equal(before, after)
        && changes.get(&above).and_then(|change| change.from()) == Some(&old_above)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff;
    use crate::layer::{Digest, Node, Timestamp};

    fn rel(path: &str) -> RelPath {
        RelPath::try_from(path).expect("path")
    }

    fn node(text: Option<&str>) -> Node {
        Node {
            file_type: text.map_or(FileType::Dir, |_| FileType::File),
            mode: 0o755,
            uid: 0,
            gid: 0,
            size: text.map_or(0, |t| t.len() as u64),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            dev: 1,
            ino: 1,
            nlink: 1,
            rdev: 0,
            target: None,
            xattrs: BTreeMap::new(),
            digest: text.map(|t| Digest::of(t.as_bytes())),
        }
    }

    fn change(kind: ChangeKind, path: &str, text: Option<&str>) -> Change {
        let (before, after) = match kind {
            ChangeKind::Deleted => (Some(node(text)), None),
            ChangeKind::Added => (None, Some(node(text))),
            _ => (Some(node(text)), Some(node(text))),
        };
        Change {
            key: LayerPath::new("workspace", rel(path)),
            class: Class::Plain,
            binary: false,
            added: 0,
            removed: 0,
            digest: Digest::of(path.as_bytes()),
            risks: Vec::new(),
            conflict: None,
            merges: None,
            items: diff::items(&kind, before.as_ref(), after.as_ref(), None),
            kind,
            before: before.map(Arc::new),
            after: after.map(Arc::new),
        }
    }

    fn named(changes: &[Arc<Change>], origins: &[(&str, &str)]) -> Vec<String> {
        let origins: Vec<_> = origins.iter().map(|(n, o)| (rel(n), rel(o))).collect();
        let mut found: Vec<String> = pairs(changes, &origins)
            .into_iter()
            .map(|(old, new)| format!("{} -> {}", changes[old].key.path, changes[new].key.path))
            .collect();
        found.sort();
        found
    }

    #[test]
    fn what_lies_below_a_renamed_directory_belongs_to_what_lay_there() {
        use ChangeKind::{Added, Deleted};
        let changes = [
            change(Deleted, "a", None),
            change(Deleted, "a/f", Some("1")),
            change(Deleted, "a/gone", Some("2")),
            change(Deleted, "a/s", None),
            change(Deleted, "a/s/x", Some("3")),
            change(Added, "b", None),
            change(Added, "b/f", Some("quite another")),
            change(Added, "b/new", Some("n")),
            change(Added, "b.txt", Some("n")),
            change(Added, "t", None),
            change(Added, "t/x", Some("3")),
        ]
        .map(Arc::new);
        let found = named(&changes, &[("b", "a"), ("t", "a/s")]);
        assert_eq!(found, ["a -> b", "a/f -> b/f", "a/s -> t", "a/s/x -> t/x"]);
        // A mark of a directory that the host does not lose says nothing.
        assert!(named(&changes, &[("b", "elsewhere")]).is_empty());
        // Two that claim one origin: one gets it.
        assert_eq!(named(&changes, &[("b", "a/s"), ("t", "a/s")]).len(), 2);
    }

    #[test]
    fn only_what_is_the_same_came_along() {
        let renamed =
            |from: &str, to: &str, text| change(ChangeKind::Renamed { from: rel(from) }, to, text);
        let mut edited = renamed("a/e", "b/e", Some("1"));
        edited.after = Some(Arc::new(node(Some("2"))));
        let set: ChangeSet = [
            renamed("a", "b", None),
            renamed("a/f", "b/f", Some("1")),
            renamed("a/g", "b/h", Some("1")),
            renamed("c", "b/c", Some("1")),
            edited,
        ]
        .into_iter()
        .map(|c| (c.key.clone(), Arc::new(c)))
        .collect();
        let along: Vec<String> = set
            .values()
            .filter(|c| came_along(&set, c))
            .map(|c| c.key.path.to_string())
            .collect();
        assert_eq!(along, ["b/f"]);
    }
}
