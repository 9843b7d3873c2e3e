//! Names: making, moving, listing and removing entries.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, openat, readlinkat, renameat2};
use nix::sys::stat::{Mode, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, linkat, mkfifoat, symlinkat, unlinkat};

use super::{Interpreter, Outcome, done, errno, name};
use crate::script::{Bytes, Op, Over};

impl Interpreter {
    pub(super) fn on_name(&self, op: &Op) -> Outcome {
        let mode = Mode::from_bits_truncate;
        match op {
            Op::Mkdir { path, mode: bits } => mkdirat(self.at(), name(path), mode(*bits)).map(done),
            Op::Rename { from, to, over } => {
                let flags = match over {
                    Over::Replace => RenameFlags::empty(),
                    Over::Never => RenameFlags::RENAME_NOREPLACE,
                    Over::Exchange => RenameFlags::RENAME_EXCHANGE,
                };
                renameat2(self.at(), name(from), self.at(), name(to), flags).map(done)
            }
            Op::Link { from, to } => {
                let none = AtFlags::empty();
                linkat(self.at(), name(from), self.at(), name(to), none).map(done)
            }
            Op::Symlink { target, path } => {
                symlinkat(self.target(target).as_slice(), self.at(), name(path)).map(done)
            }
            Op::Unlink { path } => {
                unlinkat(self.at(), name(path), UnlinkatFlags::NoRemoveDir).map(done)
            }
            Op::Rmdir { path } => {
                unlinkat(self.at(), name(path), UnlinkatFlags::RemoveDir).map(done)
            }
            Op::Mkfifo { path, mode: bits } => {
                mkfifoat(self.at(), name(path), mode(*bits)).map(done)
            }
            Op::Bind { path } => self.bind(path),
            Op::IntoDeleted { dir, from } => self.use_deleted(dir, from),
            Op::List { path } => self.list(path),
            Op::Readlink { path } => {
                let target = readlinkat(self.at(), name(path))?;
                Ok(self.without_root(target.as_bytes()))
            }
            _ => Err(Errno::ENOSYS),
        }
    }

    fn target(&self, target: &Bytes) -> Vec<u8> {
        match target.0.strip_prefix(b"{root}") {
            Some(rest) => [self.path.as_os_str().as_bytes(), rest].concat(),
            None => target.0.clone(),
        }
    }

    fn without_root(&self, target: &[u8]) -> String {
        match target.strip_prefix(self.path.as_os_str().as_bytes()) {
            Some(rest) => format!("{{root}}{}", Bytes(rest.to_vec())),
            None => Bytes(target.to_vec()).to_string(),
        }
    }

    /// By a short name of its own, as programs do: an address holds 107 bytes of path.
    fn bind(&self, path: &Bytes) -> Outcome {
        let dir = path.0.iter().rposition(|b| *b == b'/');
        let (dir, last) = match dir {
            Some(at) => (Bytes(path.0[..at].to_vec()), &path.0[at + 1..]),
            None => (Bytes::default(), &path.0[..]),
        };
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let dir = openat(self.at(), name(&dir), flags, Mode::empty())?;
        let mut address =
            format!("/proc/self/fd/{}/", std::os::fd::AsRawFd::as_raw_fd(&dir)).into_bytes();
        address.extend_from_slice(last);
        if address.len() > 107 {
            return Err(Errno::ENAMETOOLONG);
        }
        UnixListener::bind(std::ffi::OsStr::from_bytes(&address))
            .map(done)
            .map_err(|e| errno(&e))
    }

    fn use_deleted(&self, dir: &Bytes, from: &Bytes) -> Outcome {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let held = openat(self.at(), name(dir), flags, Mode::empty())?;
        unlinkat(self.at(), name(dir), UnlinkatFlags::RemoveDir)?;
        let tries = [
            mkdirat(&held, "d", Mode::S_IRWXU),
            openat(
                &held,
                "f",
                OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC,
                Mode::S_IRWXU,
            )
            .map(drop),
            renameat2(self.at(), name(from), &held, "r", RenameFlags::empty()),
            linkat(self.at(), name(from), &held, "l", AtFlags::empty()),
            symlinkat("t", &held, "s"),
        ];
        Ok(format!("{tries:?}"))
    }

    /// Names with type and whether the listing's inode number is the one `stat` tells.
    fn list(&self, path: &Bytes) -> Outcome {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let mut dir = Dir::openat(self.at(), name(path), flags, Mode::empty())?;
        let mut found = Vec::new();
        for entry in dir.iter() {
            let entry = entry?;
            let bytes = entry.file_name().to_bytes().to_vec();
            if bytes == b"." || bytes == b".." {
                continue;
            }
            found.push((bytes, entry.ino(), entry.file_type()));
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let mut lines = Vec::new();
        for (bytes, ino, kind) in found {
            let stat = fstatat(&dir, bytes.as_slice(), AtFlags::AT_SYMLINK_NOFOLLOW);
            let number = match stat {
                _ if ino == 0 => "zero".to_owned(),
                Ok(stat) if stat.st_ino == ino => "=".to_owned(),
                Ok(_) => "other".to_owned(),
                Err(e) => format!("{e:?}"),
            };
            lines.push(format!("{} {} {number}", Bytes(bytes), letter(kind)));
        }
        Ok(lines.join(", "))
    }
}

fn letter(kind: Option<Type>) -> char {
    match kind {
        Some(Type::File) => 'f',
        Some(Type::Directory) => 'd',
        Some(Type::Symlink) => 'l',
        Some(Type::Fifo) => 'p',
        Some(Type::Socket) => 's',
        Some(_) => 'x',
        None => '?',
    }
}
