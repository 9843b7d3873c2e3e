//! What the generator believes to lie where. Only a guess: operations may fail, and links to
//! directories are not followed.

use std::collections::{BTreeMap, BTreeSet};

use crate::random::Random;
use crate::script::{Bytes, Op, Over};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Dir,
    Link,
    Other,
}

#[derive(Debug, Default)]
pub struct Model {
    known: BTreeMap<Bytes, Kind>,
    gone: BTreeSet<Bytes>,
    /// Directories that the tree began with.
    first_dirs: BTreeSet<Bytes>,
}

const PLAIN: &[&str] = &[
    "a",
    "b",
    "c",
    "d",
    "e",
    "f",
    "g",
    "data",
    "log",
    "main.rs",
    "x.o",
    "build",
    "notes.txt",
    ".env",
];

impl Model {
    /// From here on the tree is there.
    pub fn begin(&mut self) {
        let dirs = self.known.iter().filter(|(_, k)| **k == Kind::Dir);
        self.first_dirs = dirs.map(|(path, _)| path.clone()).collect();
    }

    pub fn was_dir(&self, path: &Bytes) -> bool {
        self.first_dirs.contains(path)
    }

    pub fn kind(&self, path: &Bytes) -> Option<Kind> {
        self.known.get(path).copied()
    }

    pub fn paths(&self) -> impl DoubleEndedIterator<Item = (&Bytes, Kind)> {
        self.known.iter().map(|(path, kind)| (path, *kind))
    }

    pub fn any(&self, random: &mut Random) -> Bytes {
        self.choose(random, |_| true)
    }

    pub fn of(&self, random: &mut Random, kind: Kind) -> Bytes {
        self.choose(random, |k| k == kind)
    }

    fn choose(&self, random: &mut Random, wanted: impl Fn(Kind) -> bool) -> Bytes {
        let fit: Vec<&Bytes> = self
            .paths()
            .filter_map(|(path, kind)| wanted(kind).then_some(path))
            .collect();
        if fit.is_empty() {
            return Bytes::from("missing");
        }
        (*random.pick(&fit)).clone()
    }

    pub fn gone(&self, random: &mut Random) -> Bytes {
        let gone: Vec<&Bytes> = self.gone.iter().collect();
        if gone.is_empty() {
            return Bytes::from("never");
        }
        (*random.pick(&gone)).clone()
    }

    /// A path that is free, often one that was there before.
    pub fn fresh(&self, random: &mut Random) -> Bytes {
        if random.chance(35) {
            return self.gone(random);
        }
        let dir = if random.chance(15) {
            Bytes::default()
        } else if random.chance(8) {
            // By way of a link, which may lead to a directory.
            self.of(random, Kind::Link)
        } else {
            self.of(random, Kind::Dir)
        };
        inside(random, &dir)
    }

    /// Entries below a directory.
    pub fn below(&self, path: &Bytes) -> usize {
        self.known.keys().filter(|p| is_below(p, path)).count()
    }

    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Mkdir { path, .. } | Op::Deep { path, .. } => self.add(path, Kind::Dir),
            Op::Touch { path, flags, .. } | Op::Open { path, flags, .. } if flags.create => {
                self.add(path, Kind::File);
            }
            Op::Tmpfile { path, .. } => self.add(path, Kind::File),
            Op::Symlink { path, .. } => self.add(path, Kind::Link),
            Op::Mkfifo { path, .. } | Op::Bind { path } => self.add(path, Kind::Other),
            Op::Link { from, to } => {
                if let Some(kind) = self.kind(from).filter(|k| *k != Kind::Dir) {
                    self.add(to, kind);
                }
            }
            Op::Unlink { path } if self.kind(path) != Some(Kind::Dir) => self.remove(path),
            Op::Rmdir { path } | Op::IntoDeleted { dir: path, .. } if self.below(path) == 0 => {
                self.remove(path);
            }
            Op::RemoveTree { path } => self.remove(path),
            Op::Rename { from, to, over } => self.rename(from, to, *over),
            _ => {}
        }
    }

    fn add(&mut self, path: &Bytes, kind: Kind) {
        self.gone.remove(path);
        self.known.entry(path.clone()).or_insert(kind);
    }

    fn remove(&mut self, path: &Bytes) {
        let gone: Vec<Bytes> = self.subtree(path);
        for path in gone {
            self.known.remove(&path);
            self.gone.insert(path);
        }
    }

    fn subtree(&self, path: &Bytes) -> Vec<Bytes> {
        let inside = |p: &&Bytes| *p == path || is_below(p, path);
        self.known.keys().filter(inside).cloned().collect()
    }

    fn rename(&mut self, from: &Bytes, to: &Bytes, over: Over) {
        let (Some(kind), target) = (self.kind(from), self.kind(to)) else {
            return;
        };
        if from == to || is_below(to, from) || is_below(from, to) {
            return;
        }
        let fits = match over {
            Over::Exchange => target.is_some(),
            Over::Never => target.is_none(),
            Over::Replace => target
                .is_none_or(|t| (t == Kind::Dir) == (kind == Kind::Dir) && self.below(to) == 0),
        };
        if !fits {
            return;
        }
        let taken: Vec<(Bytes, Kind)> = self
            .subtree(from)
            .into_iter()
            .filter_map(|p| self.known.remove_entry(&p))
            .collect();
        let given: Vec<(Bytes, Kind)> = self
            .subtree(to)
            .into_iter()
            .filter_map(|p| self.known.remove_entry(&p))
            .collect();
        for (path, kind) in taken {
            self.gone.insert(path.clone());
            self.add(&moved(&path, from, to), kind);
        }
        if over == Over::Exchange {
            for (path, kind) in given {
                self.add(&moved(&path, to, from), kind);
            }
        }
    }
}

fn moved(path: &Bytes, from: &Bytes, to: &Bytes) -> Bytes {
    Bytes([to.0.as_slice(), &path.0[from.0.len()..]].concat())
}

fn is_below(path: &Bytes, dir: &Bytes) -> bool {
    let rest = path.0.strip_prefix(dir.0.as_slice());
    rest.is_some_and(|rest| rest.first() == Some(&b'/'))
}

pub fn join(dir: &Bytes, name: &[u8]) -> Bytes {
    if dir.0.is_empty() {
        return Bytes(name.to_vec());
    }
    Bytes([dir.0.as_slice(), b"/", name].concat())
}

/// Some name in a directory.
pub fn inside(random: &mut Random, dir: &Bytes) -> Bytes {
    let name = name(random);
    join(dir, &name)
}

/// A name of its own in the same directory.
pub fn beside(path: &Bytes, suffix: &[u8]) -> Bytes {
    let mut beside = path.0.clone();
    let last = beside.rsplit(|b| *b == b'/').next().map_or(0, <[u8]>::len);
    beside.truncate(beside.len() - last + last.min(240));
    beside.extend_from_slice(suffix);
    Bytes(beside)
}

/// Mostly plain; every kind of trouble now and then.
pub fn name(random: &mut Random) -> Vec<u8> {
    if random.chance(75) {
        return random.pick(PLAIN).as_bytes().to_vec();
    }
    match random.below(12) {
        0 => vec![b'L'; 255],
        1 => b".wh.a".to_vec(),
        2 => b".wh..wh..opq".to_vec(),
        3 => b"two\nlines".to_vec(),
        4 => b"esc\x1b[31m".to_vec(),
        5 => b"latin-\xe9".to_vec(),
        6 => b"-rf".to_vec(),
        7 => "bidi-\u{202e}cod".as_bytes().to_vec(),
        8 => b" space ".to_vec(),
        9 => b"#h1".to_vec(),
        10 => b"back\\slash\"'".to_vec(),
        _ => b"...".to_vec(),
    }
}
