//! What a PATH or PATH#ITEM on the command line means. Owns that grammar; pure, knows the change
//! set it is resolved against and nothing else.
//!
//! Paths are relative to the workspace's root. `LAYER:PATH` and absolute paths reach the other
//! layers. A whole argument that names a change wins over one that is split at its last `#`, and
//! a file of the workspace wins over a layer's prefix.

use std::path::Path;

use pvisor::change::ChangeSet;
use pvisor::diff::ItemRef;
use pvisor::layer::{Layer, WORKSPACE};
use pvisor::protocol::Target;
use pvisor::review::parse_item;
use pvisor::text::visible;
use pvisor::{LayerPath, RelPath};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Why an argument names nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No change lies there.
    #[error("{} is not in the change set", visible(.0))]
    Unknown(Vec<u8>),
    /// It lies outside every staged layer.
    #[error("{} lies in no staged layer", visible(.0))]
    Outside(Vec<u8>),
    /// It is no path below a root.
    #[error("{}: {cause}", visible(typed))]
    NoPath {
        /// As typed.
        typed: Vec<u8>,
        /// Why.
        cause: pvisor::path::PathError,
    },
    /// The change has no such item.
    #[error("{path} has no item {item}; it has {}", .has.join(", "))]
    UnknownItem {
        /// The change.
        path: LayerPath,
        /// The item.
        item: String,
        /// The items there are.
        has: Vec<String>,
    },
}

/// A change set that arguments are resolved against.
#[derive(Debug, Clone, Copy)]
pub struct Addressing<'a> {
    /// The session's layers.
    pub layers: &'a [Layer],
    /// The change set.
    pub changes: &'a ChangeSet,
}

impl Addressing<'_> {
    /// A change, the changes below a directory, or items of one change.
    pub fn target(&self, typed: &[u8]) -> Result<Target, AddressError> {
        let whole = self.path_target(typed);
        let Err(whole_error) = whole else {
            return whole;
        };
        let Some((path, item)) = split_item(typed) else {
            return Err(whole_error);
        };
        let key = self.place(path)?;
        let key = self.renamed(&key);
        let Some(change) = self.changes.get(&key) else {
            return Err(AddressError::Unknown(typed.to_vec()));
        };
        if change.items.iter().any(|known| known.id == item.id) {
            return Ok(Target::Items(key, vec![item]));
        }
        Err(AddressError::UnknownItem {
            path: key,
            item: item.id.to_string(),
            has: change.items.iter().map(|i| i.id.to_string()).collect(),
        })
    }

    /// A change, or the changes below a directory.
    pub fn path_target(&self, typed: &[u8]) -> Result<Target, AddressError> {
        let key = self.place(typed)?;
        if self.names_change(&key) {
            Ok(Target::Path(key))
        } else {
            Err(AddressError::Unknown(typed.to_vec()))
        }
    }

    /// Whether a change lies at this path or below it, by either name of a rename.
    fn names_change(&self, key: &LayerPath) -> bool {
        self.changes.values().any(|change| {
            change.key.layer == key.layer
                && (change.key.path.is_within(&key.path)
                    || change.from().is_some_and(|from| from.is_within(&key.path)))
        })
    }

    /// The key of the rename whose old name this is, else the key itself.
    fn renamed(&self, key: &LayerPath) -> LayerPath {
        if self.changes.contains_key(key) {
            return key.clone();
        }
        self.changes
            .values()
            .find(|change| change.key.layer == key.layer && change.from() == Some(&key.path))
            .map_or_else(|| key.clone(), |change| change.key.clone())
    }

    /// The layer and path that an argument means, whether something lies there or not.
    fn place(&self, typed: &[u8]) -> Result<LayerPath, AddressError> {
        if typed.first() == Some(&b'/') {
            return self.absolute(typed);
        }
        let here = RelPath::parse(typed)
            .map(|path| LayerPath::new(WORKSPACE, path))
            .map_err(|cause| AddressError::NoPath {
                typed: typed.to_vec(),
                cause,
            });
        if let Ok(key) = &here
            && !typed.is_empty()
            && self.names_change(key)
        {
            return here;
        }
        if let Some(colon) = typed.iter().position(|b| *b == b':')
            && let Some(layer) = self
                .layers
                .iter()
                .find(|l| l.name.as_bytes() == &typed[..colon])
        {
            let tail = &typed[colon + 1..];
            return RelPath::parse(tail)
                .map(|path| LayerPath::new(&layer.name, path))
                .map_err(|cause| AddressError::NoPath {
                    typed: typed.to_vec(),
                    cause,
                });
        }
        if typed.is_empty() {
            return Err(AddressError::Unknown(Vec::new()));
        }
        here
    }

    fn absolute(&self, typed: &[u8]) -> Result<LayerPath, AddressError> {
        if typed.split(|b| *b == b'/').any(|part| part == b"..") {
            return Err(AddressError::NoPath {
                typed: typed.to_vec(),
                cause: pvisor::path::PathError::Component,
            });
        }
        // Layers may lie inside one another: the innermost is the one the agent wrote to.
        self.layers
            .iter()
            .filter_map(|layer| {
                let path = layer.relative(Path::new(OsStr::from_bytes(typed)))?;
                Some((
                    layer.root.components().count(),
                    LayerPath::new(&layer.name, path),
                ))
            })
            .max_by_key(|(depth, _)| *depth)
            .map(|(_, key)| key)
            .ok_or_else(|| AddressError::Outside(typed.to_vec()))
    }
}

/// Splits at the last `#` when what follows is an item.
fn split_item(typed: &[u8]) -> Option<(&[u8], ItemRef)> {
    let hash = typed.iter().rposition(|b| *b == b'#')?;
    let item = std::str::from_utf8(&typed[hash + 1..]).ok()?;
    Some((&typed[..hash], parse_item(item)?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pvisor::change::Change;

    use super::*;
    use crate::cli::fixture::{change, layers, renamed};

    fn set(changes: Vec<Change>) -> ChangeSet {
        changes
            .into_iter()
            .map(|c| (c.key.clone(), Arc::new(c)))
            .collect()
    }

    fn sample() -> ChangeSet {
        set(vec![
            change("workspace", b"a.txt", &["h1", "h2f"]),
            change("workspace", b"src/deep/b.rs", &["w1"]),
            change("workspace", b"c#h1", &["w2"]),
            change("workspace", b"home:odd", &["w3"]),
            change("workspace", b"last", &["w4"]),
            change("workspace", b"\xff.bin", &["w5"]),
            renamed("workspace", b"old.txt", b"new.txt", &["w6"]),
            change("home", b".bashrc", &["h1"]),
        ])
    }

    fn at(typed: &[u8]) -> Result<Target, AddressError> {
        let (layers, changes) = (layers(), sample());
        let addressing = Addressing {
            layers: &layers,
            changes: &changes,
        };
        addressing.target(typed)
    }

    fn path(layer: &str, bytes: &[u8]) -> Target {
        Target::Path(LayerPath::new(layer, RelPath::new(bytes).expect("path")))
    }

    fn item(layer: &str, bytes: &[u8], item: &str) -> Target {
        let key = LayerPath::new(layer, RelPath::new(bytes).expect("path"));
        Target::Items(key, vec![parse_item(item).expect("item")])
    }

    #[test]
    fn paths_of_the_workspace() {
        assert_eq!(at(b"a.txt"), Ok(path("workspace", b"a.txt")));
        assert_eq!(at(b"./a.txt"), Ok(path("workspace", b"a.txt")));
        assert_eq!(at(b"./last"), Ok(path("workspace", b"last")));
        assert_eq!(at(b"src/"), Ok(path("workspace", b"src")));
        assert_eq!(at(b"src/deep"), Ok(path("workspace", b"src/deep")));
        assert_eq!(at(b"."), Ok(path("workspace", b"")));
        assert_eq!(at(b"\xff.bin"), Ok(path("workspace", b"\xff.bin")));
        assert_eq!(at(b"old.txt"), Ok(path("workspace", b"old.txt")));
        assert_eq!(at(b"sr"), Err(AddressError::Unknown(b"sr".to_vec())));
        assert!(matches!(at(b"../a.txt"), Err(AddressError::NoPath { .. })));
        assert_eq!(at(b""), Err(AddressError::Unknown(Vec::new())));
    }

    #[test]
    fn other_layers() {
        assert_eq!(at(b"home:.bashrc"), Ok(path("home", b".bashrc")));
        assert_eq!(at(b"home:"), Ok(path("home", b"")));
        assert_eq!(at(b"/home/ada/.bashrc"), Ok(path("home", b".bashrc")));
        assert_eq!(at(b"/home/ada/work/a.txt"), Ok(path("workspace", b"a.txt")));
        assert_eq!(at(b"home:odd"), Ok(path("workspace", b"home:odd")));
        assert!(matches!(at(b"home:none"), Err(AddressError::Unknown(_))));
        assert!(matches!(at(b"/etc/passwd"), Err(AddressError::Outside(_))));
        assert!(matches!(
            at(b"/home/ada/work/../.bashrc"),
            Err(AddressError::NoPath { .. })
        ));
    }

    #[test]
    fn items() {
        assert_eq!(at(b"a.txt#h2f"), Ok(item("workspace", b"a.txt", "h2f")));
        assert_eq!(
            at(b"a.txt#h1:2-3"),
            Ok(item("workspace", b"a.txt", "h1:2-3"))
        );
        assert_eq!(at(b"home:.bashrc#h1"), Ok(item("home", b".bashrc", "h1")));
        assert_eq!(at(b"old.txt#w6"), Ok(item("workspace", b"new.txt", "w6")));
        assert_eq!(at(b"c#h1"), Ok(path("workspace", b"c#h1")));
        assert_eq!(at(b"c#h1#w2"), Ok(item("workspace", b"c#h1", "w2")));
        assert!(matches!(
            at(b"a.txt#h9"),
            Err(AddressError::UnknownItem { .. })
        ));
        assert!(matches!(at(b"src#w1"), Err(AddressError::Unknown(_))));
        assert!(matches!(
            at(b"a.txt#nonsense"),
            Err(AddressError::Unknown(_))
        ));
    }
}
