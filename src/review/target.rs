//! What a person means: from a path or an item as typed to changes and items of the change set.

use std::sync::Arc;

use super::decide::is_taken_by_all;
use crate::LayerPath;
use crate::change::{Change, ChangeSet, Class};
use crate::diff::{ItemId, ItemRef};
use crate::layer::FileType;
use crate::protocol::{Failure, Target};

/// A change by its key, and the items of it that are meant; `None` for all of them.
pub type Meant = (LayerPath, Option<Vec<ItemRef>>);

/// The changes that `target` means, each with the items meant or `None` for all of them.
///
/// A directory covers its subtree, a rename answers to either name. Ignored changes below a
/// directory count only when everything below it is ignored, so that `.` does not take what `--all`
/// leaves out while `target` still does. Errors: [`Failure::UnknownPath`].
pub fn expand(changes: &ChangeSet, target: &Target) -> Result<Vec<Meant>, Failure> {
    match target {
        Target::All => Ok(changes
            .values()
            .filter(|change| is_taken_by_all(change, false))
            .map(|change| (change.key.clone(), None))
            .collect()),
        Target::Items(path, items) => {
            let change = find(changes, path)?;
            Ok(vec![(change.key.clone(), Some(items.clone()))])
        }
        Target::Path(path) => {
            if let Some(change) = changes.get(path)
                && !is_directory(change)
            {
                return Ok(vec![(path.clone(), None)]);
            }
            let places = places(changes, path);
            let mut meant: Vec<&Arc<Change>> = changes
                .values()
                .filter(|change| covers(&places, change))
                .collect();
            if meant.is_empty() {
                return Err(Failure::UnknownPath(path.clone()));
            }
            if meant.iter().any(|change| change.class != Class::Ignored) {
                meant.retain(|change| change.class != Class::Ignored || change.key == *path);
            }
            Ok(meant
                .into_iter()
                .map(|change| (change.key.clone(), None))
                .collect())
        }
    }
}

/// Reads `h1f3a`, `h1f3a:2` or `h1f3a:2-3`; `None` for anything else.
pub fn parse_item(typed: &str) -> Option<ItemRef> {
    let (id, lines) = match typed.split_once(':') {
        None => (typed, None),
        Some((id, lines)) => {
            let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
            let (first, last) = (line_number(first)?, line_number(last)?);
            if first > last {
                return None;
            }
            (id, Some((first, last)))
        }
    };
    let digits = id.strip_prefix(['w', 'h', 'm', 'e', 'l', 'x'])?;
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if digits.is_empty() || digits.len() > 64 || !digits.bytes().all(is_hex) {
        return None;
    }
    Some(ItemRef {
        id: ItemId(id.to_owned()),
        lines,
    })
}

fn line_number(typed: &str) -> Option<u32> {
    if !typed.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    typed.parse().ok().filter(|n| *n > 0)
}

fn find<'a>(changes: &'a ChangeSet, path: &LayerPath) -> Result<&'a Arc<Change>, Failure> {
    changes
        .get(path)
        .or_else(|| {
            changes
                .values()
                .find(|c| c.key.layer == path.layer && c.from() == Some(&path.path))
        })
        .ok_or_else(|| Failure::UnknownPath(path.clone()))
}

/// Where what a path means lies: there, and where a directory of this name was renamed to, so that
/// it is the same under either name.
pub fn places(changes: &ChangeSet, path: &LayerPath) -> Vec<LayerPath> {
    let renamed = changes.values().filter(|change| {
        change.key.layer == path.layer && change.from() == Some(&path.path) && is_directory(change)
    });
    let mut places = vec![path.clone()];
    places.extend(renamed.map(|change| change.key.clone()));
    places
}

/// Whether a change lies in one of these places, by either of its names.
pub fn covers(places: &[LayerPath], change: &Change) -> bool {
    places.iter().any(|place| {
        change.key.layer == place.layer
            && (change.key.path.is_within(&place.path)
                || change
                    .from()
                    .is_some_and(|from| from.is_within(&place.path)))
    })
}

fn is_directory(change: &Change) -> bool {
    [&change.before, &change.after]
        .into_iter()
        .flatten()
        .any(|node| node.file_type == FileType::Dir)
}
