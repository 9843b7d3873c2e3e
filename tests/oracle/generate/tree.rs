//! The tree that a script begins with, as operations. Every entry gets an old time and its final
//! mode last, so that the script's own traces stand out.

use super::model::{Kind, Model, join, name};
use super::{ATTRIBUTES, Allowed, acl, data, link_target, old};
use crate::random::Random;
use crate::script::{Bytes, Data, Flags, Op, Room, When};

struct Maker<'a> {
    random: &'a mut Random,
    model: &'a mut Model,
    allowed: Allowed,
    ops: Vec<Op>,
}

pub fn make(random: &mut Random, model: &mut Model, allowed: Allowed) -> Vec<Op> {
    let mut maker = Maker {
        random,
        model,
        allowed,
        ops: Vec::new(),
    };
    maker.directories();
    maker.files();
    if allowed.lower_links && maker.random.chance(70) {
        maker.links();
    }
    maker.others();
    if maker.random.chance(40) {
        maker.repository();
    }
    maker.attributes();
    maker.finish();
    maker.ops
}

impl Maker<'_> {
    fn push(&mut self, op: Op) {
        self.model.apply(&op);
        self.ops.push(op);
    }

    fn dir(&mut self, path: Bytes) {
        if self.model.kind(&path).is_none() {
            self.push(Op::Mkdir { path, mode: 0o777 });
        }
    }

    fn file(&mut self, path: Bytes, data: Data) {
        if self.model.kind(&path).is_some() {
            return;
        }
        let flags = Flags {
            write: true,
            create: true,
            ..Flags::default()
        };
        self.push(Op::Touch {
            path: path.clone(),
            flags,
            mode: 0o666,
        });
        if data.len > 0 {
            self.push(Op::Write { path, at: 0, data });
        }
    }

    fn place(&mut self) -> Bytes {
        let dir = if self.random.chance(30) {
            Bytes::default()
        } else {
            self.model.of(self.random, Kind::Dir)
        };
        let name = name(self.random);
        join(&dir, &name)
    }

    fn directories(&mut self) {
        self.dir(Bytes::from("src"));
        for _ in 0..3 + self.random.below(7) {
            let path = self.place();
            self.dir(path);
        }
    }

    fn files(&mut self) {
        for _ in 0..8 + self.random.below(16) {
            let path = self.place();
            if self.model.kind(&path).is_some() {
                continue;
            }
            if self.random.chance(25) {
                self.sparse(path);
            } else {
                let content = data(self.random);
                self.file(path, content);
            }
        }
    }

    fn sparse(&mut self, path: Bytes) {
        let len = 65_536 * (1 + self.random.below(12));
        let some = Data { seed: 2, len: 5000 };
        if !self.allowed.inner_holes {
            self.file(path.clone(), Data { seed: 2, len: 0 });
            self.push(Op::Write {
                path,
                at: len,
                data: some,
            });
            return;
        }
        let content = data(self.random);
        self.file(path.clone(), content);
        self.push(Op::Truncate {
            path: path.clone(),
            len,
        });
        self.push(Op::Write {
            path: path.clone(),
            at: len / 2,
            data: some,
        });
        if self.random.chance(40) {
            self.push(Op::Allocate {
                path,
                room: Room::Punch,
                at: 0,
                len: 8192,
            });
        }
    }

    fn links(&mut self) {
        for _ in 0..=self.random.below(4) {
            let (from, to) = (self.model.of(self.random, Kind::File), self.place());
            if self.model.kind(&to).is_none() {
                self.push(Op::Link { from, to });
            }
        }
    }

    fn others(&mut self) {
        for _ in 0..2 + self.random.below(5) {
            let path = self.place();
            if self.model.kind(&path).is_some() {
                continue;
            }
            if self.random.chance(25) {
                self.push(Op::Mkfifo { path, mode: 0o644 });
            } else {
                let target = link_target(self.random, self.model);
                self.push(Op::Symlink { target, path });
            }
        }
    }

    /// The look of a git repository, with rules on what is ignored.
    fn repository(&mut self) {
        let text = |seed| Data { seed, len: 41 };
        for dir in [
            ".git",
            ".git/objects",
            ".git/objects/ab",
            ".git/refs",
            ".git/refs/heads",
            ".git/hooks",
        ] {
            self.dir(Bytes::from(dir));
        }
        for (seed, file) in [
            (1, ".git/HEAD"),
            (3, ".git/refs/heads/main"),
            (4, ".git/objects/ab/cdef0123456789abcdef0123456789abcdef01"),
            (5, ".git/hooks/pre-commit"),
        ] {
            self.file(Bytes::from(file), text(seed));
        }
        if self.random.chance(70) {
            self.file(Bytes::from(".gitignore"), Data { seed: 0, len: 12 });
        }
    }

    fn attributes(&mut self) {
        let paths: Vec<(Bytes, Kind)> = self.model.paths().map(|(p, k)| (p.clone(), k)).collect();
        for (path, kind) in paths {
            if kind != Kind::File && kind != Kind::Dir {
                continue;
            }
            if self.random.chance(12) {
                let attribute = (*self.random.pick(ATTRIBUTES)).to_owned();
                let value = Bytes::from("from the tree");
                if self.allowed.lower_marks || !attribute.starts_with("user.overlay.") {
                    self.push(Op::SetXattr {
                        path: path.clone(),
                        name: attribute,
                        value,
                    });
                }
            }
            if self.random.chance(8) {
                let acl = acl(self.random, kind == Kind::Dir);
                self.push(Op::SetAcl {
                    path: path.clone(),
                    default: false,
                    acl,
                });
            }
            if kind == Kind::Dir && self.random.chance(8) {
                let acl = acl(self.random, kind == Kind::Dir);
                self.push(Op::SetAcl {
                    path,
                    default: true,
                    acl,
                });
            }
        }
    }

    /// Modes and times, deepest entries first: a shut directory hides what lies below.
    fn finish(&mut self) {
        let paths: Vec<(Bytes, Kind)> = self.model.paths().map(|(p, k)| (p.clone(), k)).collect();
        for (path, kind) in paths.into_iter().rev() {
            let mtime = old(self.random);
            self.push(Op::Utimens {
                path: path.clone(),
                atime: When::Omit,
                mtime,
                follow: false,
            });
            let mode = match kind {
                Kind::File if self.random.chance(25) => *self
                    .random
                    .pick(&[0o600, 0o444, 0o755, 0o4755, 0o2755, 0o640, 0]),
                Kind::Dir if self.random.chance(20) => {
                    *self.random.pick(&[0o2775, 0o700, 0o555, 0o1777, 0o711])
                }
                _ => continue,
            };
            self.push(Op::Chmod { path, mode });
        }
    }
}
