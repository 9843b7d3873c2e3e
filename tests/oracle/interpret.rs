//! Carries a script's operations out below a root and tells what each came to. Runs inside as well
//! as outside: leans on no current directory, no environment and no other program.

mod deep;
mod file;
mod meta;
mod names;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::script::{Answer, Bytes, Flags, Op};

/// First argument that turns the test program into the interpreter.
pub const WORD: &str = "interpret-script";

/// Times from here on count as "now": scripts and trees set earlier ones only.
pub const FRESH: i64 = 1_577_836_800;

/// What an operation saw, or its errno.
type Outcome = Result<String, Errno>;

/// `interpret-script UMASK ROOT FILE`: one operation a line in, one answer a line out.
pub fn main(arguments: &[std::ffi::OsString]) -> Result<(), Box<dyn std::error::Error>> {
    let [umask, root, file] = arguments else {
        return Err("usage: interpret-script UMASK ROOT FILE".into());
    };
    let umask = u32::from_str_radix(&umask.to_string_lossy(), 8)?;
    nix::sys::stat::umask(Mode::from_bits_truncate(umask));
    let mut interpreter = Interpreter::new(PathBuf::from(root))?;
    let script = std::fs::read_to_string(file)?;
    let mut out = BufWriter::new(io::stdout().lock());
    for line in script.lines() {
        let op: Op = serde_json::from_str(line)?;
        serde_json::to_writer(&mut out, &interpreter.answer(&op))?;
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}

/// See the module.
pub struct Interpreter {
    path: PathBuf,
    root: OwnedFd,
    slots: BTreeMap<u8, File>,
}

impl Interpreter {
    fn new(path: PathBuf) -> nix::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = nix::fcntl::open(&path, flags, Mode::empty())?;
        Ok(Self {
            path,
            root,
            slots: BTreeMap::new(),
        })
    }

    fn answer(&mut self, op: &Op) -> Answer {
        match self.carry_out(op) {
            Ok(saw) => Answer {
                errno: "0".into(),
                saw,
            },
            Err(errno) => Answer {
                errno: format!("{errno:?}"),
                saw: String::new(),
            },
        }
    }

    fn carry_out(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Touch { path, flags, mode } => self.open(path, *flags, *mode).map(done),
            Op::Write { path, at, data } => self.write(path, *at, *data),
            Op::Append { path, data } => self.append(path, *data, 1),
            Op::AppendTwice { path, data } => self.append(path, *data, 2),
            Op::Truncate { path, len } => self.truncate(path, *len),
            Op::Allocate {
                path,
                room,
                at,
                len,
            } => file::allocate(&self.writable(path)?, *room, *at, *len),
            Op::Tmpfile {
                dir,
                path,
                mode,
                data,
            } => self.tmpfile(dir, path, *mode, *data),
            Op::CopyRange {
                from,
                to,
                at,
                into,
                len,
            } => self.copy_range(from, to, (*at, *into), *len),
            Op::Mmap { path, at, data } => file::store(&self.writable(path)?, *at, *data),
            Op::Read { path } => file::read(&self.open(path, READ, 0)?),
            Op::Open { .. }
            | Op::FdWrite { .. }
            | Op::FdTruncate { .. }
            | Op::FdAllocate { .. }
            | Op::FdRead { .. }
            | Op::FdStat { .. }
            | Op::FdChmod { .. }
            | Op::FdXattr { .. }
            | Op::Close { .. } => self.on_descriptor(op),
            Op::Deep {
                path,
                name,
                levels,
                data,
            } => self.deep(path, name, *levels, *data),
            Op::RemoveTree { path } => self.remove_tree(path),
            Op::Mkdir { .. }
            | Op::Rename { .. }
            | Op::Link { .. }
            | Op::Symlink { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Mkfifo { .. }
            | Op::Bind { .. }
            | Op::IntoDeleted { .. }
            | Op::List { .. }
            | Op::Readlink { .. } => self.on_name(op),
            _ => self.on_meta(op),
        }
    }

    fn on_descriptor(&mut self, op: &Op) -> Outcome {
        if let Op::Open {
            slot,
            path,
            flags,
            mode,
        } = op
        {
            self.slots.remove(slot);
            let file = self.open(path, *flags, *mode)?;
            self.slots.insert(*slot, file);
            return Ok(String::new());
        }
        let held = |slot| self.slots.get(slot).ok_or(Errno::EBADF);
        match op {
            Op::FdWrite { slot, at, data } => file::write_at(held(slot)?, *at, *data),
            Op::FdTruncate { slot, len } => {
                nix::unistd::ftruncate(held(slot)?, len.cast_signed()).map(done)
            }
            Op::FdAllocate {
                slot,
                room,
                at,
                len,
            } => file::allocate(held(slot)?, *room, *at, *len),
            Op::FdRead { slot } => file::read(held(slot)?),
            Op::FdStat { slot } => nix::sys::stat::fstat(held(slot)?).map(|s| meta::told(&s)),
            Op::FdChmod { slot, mode } => {
                nix::sys::stat::fchmod(held(slot)?, Mode::from_bits_truncate(*mode)).map(done)
            }
            Op::FdXattr { slot, name, value } => {
                use xattr::FileExt;
                held(slot)?
                    .set_xattr(name, &value.0)
                    .map(done)
                    .map_err(|e| errno(&e))
            }
            Op::Close { slot } => self.slots.remove(slot).map(done).ok_or(Errno::EBADF),
            _ => Err(Errno::ENOSYS),
        }
    }

    fn at(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    fn open(&self, path: &Bytes, flags: Flags, mode: u32) -> nix::Result<File> {
        let access = match (flags.read, flags.write) {
            (_, false) => OFlag::O_RDONLY,
            (false, true) => OFlag::O_WRONLY,
            (true, true) => OFlag::O_RDWR,
        };
        // Pipes must not hold the script up.
        let mut all = access | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        for (set, flag) in [
            (flags.create, OFlag::O_CREAT),
            (flags.exclusive, OFlag::O_EXCL),
            (flags.truncate, OFlag::O_TRUNC),
            (flags.append, OFlag::O_APPEND),
        ] {
            all.set(flag, set);
        }
        let mode = Mode::from_bits_truncate(mode);
        openat(self.at(), name(path), all, mode).map(File::from)
    }

    fn writable(&self, path: &Bytes) -> nix::Result<File> {
        let flags = Flags {
            read: true,
            write: true,
            ..Flags::default()
        };
        self.open(path, flags, 0)
    }

    /// For calls that only take whole paths.
    fn full(&self, path: &Bytes) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        if path.0.is_empty() {
            return self.path.clone();
        }
        self.path.join(std::ffi::OsStr::from_bytes(&path.0))
    }
}

const READ: Flags = Flags {
    read: true,
    write: false,
    create: false,
    exclusive: false,
    truncate: false,
    append: false,
};

/// The root itself is the empty path.
fn name(path: &Bytes) -> &[u8] {
    if path.0.is_empty() { b"." } else { &path.0 }
}

#[allow(clippy::needless_pass_by_value)] // A step at the end of a chain.
fn done<T>(_: T) -> String {
    String::new()
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}
