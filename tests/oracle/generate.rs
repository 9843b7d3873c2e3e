//! Random scripts from a seed: a tree, and operations that mostly make sense on it. Owns what is
//! tried how often; whether an operation succeeds is the file system's to say.

mod model;
mod tree;

use std::collections::BTreeSet;

use super::random::Random;
use super::script::{Acl, Bytes, Data, Flags, Op, Over, Room, Script, When};
use model::{Kind, Model};

/// What a driver cannot do, so that a script leaves it out (see `deviations`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    /// Files of the tree with several names.
    pub lower_links: bool,
    /// Renaming directories of the tree.
    pub dir_renames: bool,
    /// Files of the tree with holes behind their first data.
    pub inner_holes: bool,
    /// Entries of the tree with attributes named `user.overlay.*`.
    pub lower_marks: bool,
    /// Changing an entry of the tree by a descriptor that may not write it, once its name is gone.
    pub change_removed: bool,
    /// Files without a name, and stretches cut out of a file or moved apart.
    pub tmpfile_and_collapse: bool,
}

/// A script of `count` operations.
pub fn script(seed: u64, count: usize, allowed: Allowed) -> Script {
    let mut random = Random::new(seed);
    let umask = *random.pick(&[0o022, 0o022, 0o002, 0o077]);
    let mut model = Model::default();
    let tree = tree::make(&mut random, &mut model, allowed);
    model.begin();
    let mut generator = Generator {
        random,
        model,
        allowed,
        ops: Vec::new(),
        written: BTreeSet::new(),
    };
    while generator.ops.len() < count {
        generator.more();
    }
    Script {
        about: format!("seed {seed}, {count} operations, {allowed:?}"),
        umask,
        tree,
        ops: generator.ops,
    }
}

struct Generator {
    random: Random,
    model: Model,
    allowed: Allowed,
    ops: Vec<Op>,
    /// Slots that hold a regular file open for writing.
    written: BTreeSet<u8>,
}

/// Attributes that scripts set.
const ATTRIBUTES: &[&str] = &[
    "user.note",
    "user.k",
    "user.overlay.opaque",
    "user.overlay.whiteout",
    "user.overlay.overlay.x",
    "user.\u{fc}",
];

impl Generator {
    fn push(&mut self, op: Op) {
        self.model.apply(&op);
        self.ops.push(op);
    }

    fn data(&mut self) -> Data {
        data(&mut self.random)
    }

    fn any(&mut self) -> Bytes {
        self.model.any(&mut self.random)
    }

    fn file(&mut self) -> Bytes {
        if self.random.chance(6) {
            return self.any();
        }
        self.model.of(&mut self.random, Kind::File)
    }

    fn dir(&mut self) -> Bytes {
        self.model.of(&mut self.random, Kind::Dir)
    }

    fn fresh(&mut self) -> Bytes {
        self.model.fresh(&mut self.random)
    }

    /// A new name mostly, else one that is taken.
    fn target(&mut self) -> Bytes {
        if self.random.chance(35) {
            self.any()
        } else {
            self.fresh()
        }
    }

    fn more(&mut self) {
        match self.random.below(100) {
            0..22 => self.make(),
            22..44 => self.change(),
            44..58 => self.attribute(),
            58..72 => self.rename_or_link(),
            72..82 => self.remove(),
            82..90 => self.descriptor(),
            _ => self.look(),
        }
    }

    fn make(&mut self) {
        match self.random.below(14) {
            0..3 => {
                let path = self.target();
                let mode = *self
                    .random
                    .pick(&[0o777, 0o777, 0o755, 0o700, 0o2775, 0o555, 0o1777]);
                self.push(Op::Mkdir { path, mode });
            }
            3..7 => {
                let path = self.target();
                let flags = Flags {
                    read: true,
                    write: self.random.chance(60),
                    create: true,
                    exclusive: self.random.chance(30),
                    truncate: self.random.chance(20),
                    append: false,
                };
                let mode = *self
                    .random
                    .pick(&[0o666, 0o666, 0o777, 0o600, 0o444, 0, 0o4755]);
                self.push(Op::Touch {
                    path: path.clone(),
                    flags,
                    mode,
                });
                let data = self.data();
                self.push(Op::Write { path, at: 0, data });
            }
            7..9 => self.save(),
            9 | 10 => {
                let path = self.target();
                let target = self.link_target();
                self.push(Op::Symlink { target, path });
            }
            11 => {
                let path = self.target();
                self.push(Op::Mkfifo { path, mode: 0o644 });
            }
            12 => {
                let (dir, path) = (self.dir(), self.fresh());
                let data = self.data();
                if self.allowed.tmpfile_and_collapse {
                    self.push(Op::Tmpfile {
                        dir,
                        path,
                        mode: 0o640,
                        data,
                    });
                }
            }
            _ => {
                let path = self.fresh();
                if self.random.chance(50) {
                    self.push(Op::Bind { path });
                } else if self.random.chance(15) {
                    let levels = 20 + self.random.below(70) as u32;
                    let data = self.data();
                    let name = Bytes(vec![b'n'; 50]);
                    self.push(Op::Deep {
                        path,
                        name,
                        levels,
                        data,
                    });
                }
            }
        }
    }

    /// As editors save: a new file beside, renamed over the old one.
    fn save(&mut self) {
        let path = self.file();
        let beside = model::beside(&path, b".tmp");
        let data = self.data();
        let flags = Flags {
            read: true,
            write: true,
            create: true,
            exclusive: true,
            ..Flags::default()
        };
        self.push(Op::Touch {
            path: beside.clone(),
            flags,
            mode: 0o666,
        });
        self.push(Op::Write {
            path: beside.clone(),
            at: 0,
            data,
        });
        self.push(Op::Rename {
            from: beside,
            to: path,
            over: Over::Replace,
        });
    }

    fn link_target(&mut self) -> Bytes {
        link_target(&mut self.random, &self.model)
    }

    fn change(&mut self) {
        let path = self.file();
        let data = self.data();
        let at = *self.random.pick(&[0, 0, 5, 4096, 10_000, 70_000, 300_000]);
        let op = match self.random.below(10) {
            0..3 => Op::Write { path, at, data },
            3 => Op::Append { path, data },
            4 => Op::AppendTwice { path, data },
            5 => {
                let len = *self.random.pick(&[0, 1, 100, 4096, 65_536, 400_000]);
                Op::Truncate { path, len }
            }
            6 | 7 => {
                let (room, at, len) = room(&mut self.random, self.allowed);
                Op::Allocate {
                    path,
                    room,
                    at,
                    len,
                }
            }
            8 => Op::Mmap {
                path,
                at: at.min(10_000),
                data,
            },
            _ => {
                let to = self.file();
                let into = at.min(100_000);
                Op::CopyRange {
                    from: path,
                    to,
                    at: 0,
                    into,
                    len: 20_000,
                }
            }
        };
        self.push(op);
    }

    fn attribute(&mut self) {
        let path = self.any();
        match self.random.below(12) {
            0..4 => {
                let mode = *self.random.pick(&[
                    0o644, 0o755, 0o600, 0o444, 0o640, 0o4755, 0o2755, 0o1755, 0o777, 0o555, 0,
                ]);
                let is_dir = self.model.kind(&path) == Some(Kind::Dir);
                let mode = if is_dir { mode | 0o111 } else { mode };
                self.push(Op::Chmod { path, mode });
            }
            4 => {
                // A directory shut for a while, and what is tried meanwhile.
                let path = self.dir();
                let mode = *self.random.pick(&[0, 0o300, 0o400, 0o500]);
                self.push(Op::Chmod {
                    path: path.clone(),
                    mode,
                });
                for _ in 0..self.random.below(4) {
                    self.look();
                    self.change();
                }
                if self.random.chance(85) {
                    self.push(Op::Chmod { path, mode: 0o755 });
                }
            }
            5 => self.push(Op::Chown { path }),
            6 | 7 => {
                let name = (*self.random.pick(ATTRIBUTES)).to_owned();
                let value = Bytes(match self.random.below(3) {
                    0 => b"y".to_vec(),
                    1 => Vec::new(),
                    _ => self.data().bytes().into_iter().take(300).collect(),
                });
                self.push(Op::SetXattr { path, name, value });
            }
            8 => {
                let name = (*self.random.pick(ATTRIBUTES)).to_owned();
                self.push(Op::RemoveXattr { path, name });
            }
            9 => {
                let default = self.random.chance(35);
                let path = if default { self.dir() } else { path };
                let is_dir = self.model.kind(&path) != Some(Kind::File);
                let acl = acl(&mut self.random, is_dir);
                self.push(Op::SetAcl { path, default, acl });
            }
            _ => {
                let times = [self.when(), self.when()];
                let follow = self.random.chance(40);
                self.push(Op::Utimens {
                    path,
                    atime: times[0],
                    mtime: times[1],
                    follow,
                });
            }
        }
    }

    fn when(&mut self) -> When {
        match self.random.below(6) {
            0 => When::Omit,
            1 => When::Now,
            _ => old(&mut self.random),
        }
    }

    fn rename_or_link(&mut self) {
        match self.random.below(10) {
            0..3 => {
                let (from, to) = (self.file(), self.target());
                let over = self.over();
                self.push(Op::Rename { from, to, over });
            }
            3..6 => {
                let from = self.dir();
                let to = if self.random.chance(40) {
                    self.dir()
                } else {
                    self.target()
                };
                let over = self.over();
                let fixed = |path: &Bytes| self.model.was_dir(path);
                let kept = fixed(&from) || over == Over::Exchange && fixed(&to);
                if self.allowed.dir_renames || !kept {
                    self.push(Op::Rename { from, to, over });
                }
            }
            6 => {
                let (from, to, over) = (self.any(), self.any(), self.over());
                let fixed = |path: &Bytes| self.model.was_dir(path);
                if self.allowed.dir_renames || !fixed(&from) && !fixed(&to) {
                    self.push(Op::Rename { from, to, over });
                }
            }
            7 => {
                let (dir, from) = (self.dir(), self.file());
                self.push(Op::IntoDeleted { dir, from });
            }
            _ => {
                let (from, to) = (self.file(), self.target());
                self.push(Op::Link { from, to });
            }
        }
    }

    fn over(&mut self) -> Over {
        *self.random.pick(&[
            Over::Replace,
            Over::Replace,
            Over::Replace,
            Over::Never,
            Over::Exchange,
        ])
    }

    fn remove(&mut self) {
        match self.random.below(10) {
            0..6 => {
                let path = self.file();
                self.push(Op::Unlink { path });
            }
            6 | 7 => {
                let path = self.dir();
                self.push(Op::Rmdir { path });
            }
            8 => {
                let path = self.dir();
                // Not the whole tree too early.
                if self.model.below(&path) < 12 || self.random.chance(10) {
                    self.push(Op::RemoveTree { path });
                }
            }
            _ => {
                // Gone, and back as something else or as another directory.
                let path = self.dir();
                if self.model.below(&path) < 12 {
                    self.push(Op::RemoveTree { path: path.clone() });
                    if self.random.chance(60) {
                        self.push(Op::Mkdir {
                            path: path.clone(),
                            mode: 0o777,
                        });
                        let within = model::inside(&mut self.random, &path);
                        let flags = Flags {
                            write: true,
                            create: true,
                            ..Flags::default()
                        };
                        self.push(Op::Touch {
                            path: within,
                            flags,
                            mode: 0o666,
                        });
                    } else {
                        let target = self.link_target();
                        self.push(Op::Symlink { target, path });
                    }
                }
            }
        }
    }

    fn descriptor(&mut self) {
        let slot = self.random.below(3) as u8;
        let data = self.data();
        let at = *self.random.pick(&[0, 3, 5000]);
        let op = match self.random.below(12) {
            0..4 => {
                let create = self.random.chance(30);
                let path = if create { self.target() } else { self.file() };
                let reads_only = self.random.chance(40);
                self.written.remove(&slot);
                let known = self.model.kind(&path);
                if !reads_only && (known == Some(Kind::File) || known.is_none() && create) {
                    self.written.insert(slot);
                }
                let flags = Flags {
                    read: true,
                    write: !reads_only,
                    create,
                    append: self.random.chance(20),
                    ..Flags::default()
                };
                self.push(Op::Open {
                    slot,
                    path: path.clone(),
                    flags,
                    mode: 0o644,
                });
                if self.random.chance(30) {
                    self.push(Op::Unlink { path });
                }
                return;
            }
            4 | 5 => Op::FdWrite { slot, at, data },
            6 => Op::FdTruncate { slot, len: at + 1 },
            7 => {
                let (room, at, len) = room(&mut self.random, self.allowed);
                Op::FdAllocate {
                    slot,
                    room,
                    at,
                    len,
                }
            }
            8 => Op::FdRead { slot },
            9 => Op::FdStat { slot },
            10 => Op::FdChmod { slot, mode: 0o640 },
            _ => {
                let name = "user.fd".to_owned();
                Op::FdXattr {
                    slot,
                    name,
                    value: Bytes::from("1"),
                }
            }
        };
        let changes = matches!(op, Op::FdChmod { .. } | Op::FdXattr { .. });
        if !changes || self.allowed.change_removed || self.written.contains(&slot) {
            self.push(op);
        }
        if self.random.chance(10) {
            self.push(Op::Close { slot });
        }
    }

    fn look(&mut self) {
        let path = match self.random.below(10) {
            0..5 => self.any(),
            5 => self.model.gone(&mut self.random),
            _ => self.file(),
        };
        let op = match self.random.below(8) {
            0 | 1 => Op::Read { path },
            2 | 3 => Op::List { path: self.dir() },
            4 => Op::Stat {
                path,
                follow: self.random.chance(50),
            },
            5 => Op::Readlink {
                path: self.model.of(&mut self.random, Kind::Link),
            },
            6 => Op::Xattrs { path },
            _ => Op::Access {
                path,
                mode: self.random.below(8) as u32,
            },
        };
        self.push(op);
    }
}

fn data(random: &mut Random) -> Data {
    let len = *random.pick(&[0, 1, 30, 30, 200, 200, 3000, 9000, 70_000]);
    Data {
        seed: random.next() as u32,
        len,
    }
}

/// A time long before any test.
fn old(random: &mut Random) -> When {
    let sec = match random.below(12) {
        0 => 0,
        1 => -1_000_000_000,
        _ => 1_000_000_000 + random.below(400_000_000).cast_signed(),
    };
    When::At(sec, *random.pick(&[0, 1, 123_456_789, 999_999_999]))
}

fn room(random: &mut Random, allowed: Allowed) -> (Room, u64, u64) {
    let room = *random.pick(&[
        Room::Punch,
        Room::Punch,
        Room::Punch,
        Room::Zero,
        Room::ZeroKeepSize,
        Room::Extend,
        Room::KeepSize,
        Room::Collapse,
        Room::Insert,
    ]);
    let at = *random.pick(&[0, 4096, 8192, 65_536]);
    let len = *random.pick(&[4096, 8192, 65_536, 200_000]);
    match room {
        Room::Collapse | Room::Insert if !allowed.tmpfile_and_collapse => (Room::Punch, at, len),
        Room::Punch if random.chance(30) => (room, at + 100, len + 50),
        _ => (room, at, len),
    }
}

fn acl(random: &mut Random, is_dir: bool) -> Acl {
    let bits = |random: &mut Random| *random.pick(&[7, 6, 5, 4, 0]);
    let user = random.chance(50).then(|| bits(random));
    let named_group = random.chance(30).then(|| bits(random));
    let extended = user.is_some() || named_group.is_some();
    Acl {
        // A directory that its owner may not enter hides what is tried below it.
        owner: if is_dir { 7 } else { *random.pick(&[7, 7, 6]) },
        user,
        group: bits(random),
        named_group,
        // Without a mask an extended list is refused, which is worth a try.
        mask: (extended && random.chance(90)).then(|| bits(random)),
        other: bits(random),
    }
}

fn link_target(random: &mut Random, model: &Model) -> Bytes {
    match random.below(6) {
        0 => Bytes::from("nowhere"),
        1 => Bytes::from("../nowhere/at/all"),
        2 => Bytes([b"{root}/", model.any(random).0.as_slice()].concat()),
        3 => Bytes(vec![b't'; 1 + random.below(3000) as usize]),
        4 => Bytes::from("."),
        _ => model.any(random),
    }
}
