//! Files that are protected under another name: hard links. Owns the one walk over the lowers that
//! finds the protected names of files with several, made when the first such file is met.
//!
//! Names outside every layer are not looked for, and what the server itself may not list is not
//! found.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use super::room::{Room, entries};
use crate::RelPath;
use crate::layer::read;
use crate::policy::{Level, Matcher};

type Inode = (u64, u64);
/// Layer and path of a protected name, and how strictly it is protected.
type Name = (Level, usize, RelPath);

/// See the module.
#[derive(Default)]
pub struct Aliases(OnceLock<HashMap<Inode, Name>>);

impl Aliases {
    /// The most strictly protected name of a file.
    pub fn find(
        &self,
        inode: Inode,
        rooms: &[Room],
        matcher: &Matcher,
    ) -> Option<(usize, RelPath)> {
        let known = self.0.get_or_init(|| walk(rooms, matcher));
        known
            .get(&inode)
            .map(|(_, room, path)| (*room, path.clone()))
    }
}

fn walk(rooms: &[Room], matcher: &Matcher) -> HashMap<Inode, Name> {
    let mut found: HashMap<Inode, Name> = HashMap::new();
    for (at, room) in rooms.iter().enumerate() {
        let mut todo = vec![RelPath::root()];
        while let Some(dir) = todo.pop() {
            let Ok(inside) = entries(&room.lower, &dir) else {
                continue;
            };
            for entry in inside {
                if entry.is_dir {
                    if room.records.as_ref() != Some(&entry.path) {
                        todo.push(entry.path);
                    }
                    continue;
                }
                let Some(rule) = matcher.verdict(room.place(), &entry.path, Level::Ask) else {
                    continue;
                };
                let node = room.lower.dir(&dir).and_then(|dir| {
                    read::stat(dir.as_fd(), entry.path.file_name().unwrap_or_default())
                });
                if let Ok(Some(node)) = node
                    && node.nlink > 1
                {
                    let name = (rule.level, at, entry.path);
                    let known = found
                        .entry((node.dev, node.ino))
                        .or_insert_with(|| name.clone());
                    if known.0 < name.0 {
                        *known = name;
                    }
                }
            }
        }
    }
    found
}
