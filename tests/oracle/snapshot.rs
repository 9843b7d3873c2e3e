//! A tree as it lies on disk, to the last hole. Owns what two trees are compared by, and what is
//! left out: a directory's own times and size, access and change times, inode numbers.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag, PosixFadviseAdvice, openat, posix_fadvise};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, fchmodat, fstatat};
use nix::unistd::Whence;

use super::interpret::FRESH;
use super::script::Bytes;

/// Type of an entry, by the letter `ls` shows.
pub type Letter = char;

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub letter: Letter,
    pub mode: u32,
    pub owner: (u32, u32),
    /// Of files, links and pipes; `None` when it is later than anything a script sets.
    pub mtime: Option<(i64, i64)>,
    pub size: u64,
    /// Of a file's bytes.
    pub hash: u64,
    /// The beginning of a file's bytes; a link's target.
    pub begin: Bytes,
    pub xattrs: BTreeMap<String, Bytes>,
    /// The first name of its link group, in byte order, when it has several.
    pub same_as: Option<Bytes>,
    /// Stretches of data, by begin and end.
    pub data: Vec<(u64, u64)>,
    /// Bytes on disk.
    pub allocated: u64,
}

/// Every entry but sockets, by path; the root is the empty path.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub entries: BTreeMap<Bytes, Entry>,
    pub sockets: Vec<Bytes>,
    /// Somebody has stored through a map: around it the kernel writes what it has cached at once.
    pub mapped: bool,
}

impl Snapshot {
    /// Reads the tree at `root`. What the caller may not read is opened up for the moment.
    pub fn of(root: &Path) -> Self {
        let mut snapshot = Self::default();
        let mut inodes = HashMap::new();
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let fd = nix::fcntl::open(root, flags, Mode::empty()).expect("a root to look at");
        snapshot.read(fd.as_fd(), b".", &Bytes::default(), &mut inodes);
        // Names were met parents first, not in byte order.
        let mut groups: BTreeMap<(u64, u64), Vec<Bytes>> = BTreeMap::new();
        for (path, inode) in inodes {
            groups.entry(inode).or_default().push(path);
        }
        for mut names in groups.into_values().filter(|names| names.len() > 1) {
            names.sort();
            for name in &names {
                if let Some(entry) = snapshot.entries.get_mut(name) {
                    entry.same_as = Some(names[0].clone());
                }
            }
        }
        snapshot
    }

    fn read(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        path: &Bytes,
        inodes: &mut HashMap<Bytes, (u64, u64)>,
    ) {
        let stat = fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW).expect("a listed entry");
        let letter = letter(stat.st_mode);
        if letter == 's' {
            self.sockets.push(path.clone());
            return;
        }
        let fresh = letter == 'd' || stat.st_mtime >= FRESH;
        let mut entry = Entry {
            letter,
            mode: stat.st_mode & 0o7777,
            owner: (stat.st_uid, stat.st_gid),
            mtime: (!fresh).then_some((stat.st_mtime, stat.st_mtime_nsec)),
            size: 0,
            hash: 0,
            begin: Bytes::default(),
            xattrs: BTreeMap::new(),
            same_as: None,
            data: Vec::new(),
            allocated: 0,
        };
        if letter != 'd' && stat.st_nlink > 1 {
            inodes.insert(path.clone(), (stat.st_dev, stat.st_ino));
        }
        match letter {
            'l' => {
                let target = nix::fcntl::readlinkat(dir, name).expect("a link's target");
                entry.begin = Bytes(target.into_vec());
                entry.size = entry.begin.0.len() as u64;
            }
            'f' => {
                let opened = Opened::new(dir, name, &stat, 0o400);
                opened.content(&mut entry, &stat);
                entry.xattrs = attributes(opened.fd.as_fd());
            }
            'd' => {
                let opened = Opened::new(dir, name, &stat, 0o500);
                entry.xattrs = attributes(opened.fd.as_fd());
                self.entries.insert(path.clone(), entry);
                let mut names = Vec::new();
                let again = openat(&opened.fd, ".", READ, Mode::empty()).expect("it is open");
                for entry in Dir::from_fd(again).expect("a directory").iter() {
                    let bytes = entry.expect("an entry").file_name().to_bytes().to_vec();
                    if bytes != b"." && bytes != b".." {
                        names.push(bytes);
                    }
                }
                for child in names {
                    let mut below = path.0.clone();
                    if !below.is_empty() {
                        below.push(b'/');
                    }
                    below.extend_from_slice(&child);
                    self.read(opened.fd.as_fd(), &child, &Bytes(below), inodes);
                }
                return;
            }
            _ => {}
        }
        self.entries.insert(path.clone(), entry);
    }

    /// One line per difference from `self` to `other`.
    pub fn differences(&self, other: &Snapshot) -> Vec<String> {
        let mut lines = Vec::new();
        for (path, one) in &self.entries {
            match other.entries.get(path) {
                None => lines.push(format!("missing: {} {path}", one.letter)),
                Some(two) => lines.extend(
                    one.compare(two, if self.mapped { FOLIO } else { 0 })
                        .into_iter()
                        .map(|what| format!("{what} at {path:?}")),
                ),
            }
        }
        for (path, two) in &other.entries {
            if !self.entries.contains_key(path) {
                lines.push(format!("extra: {} {path}", two.letter));
            }
        }
        lines
    }

    /// Takes out what lies at or below these paths.
    pub fn without(mut self, paths: &[Bytes]) -> Self {
        self.entries
            .retain(|path, _| !paths.iter().any(|top| within(path, top)));
        // Groups are called by the first of their names that is left, and one name is no group.
        let mut groups: HashMap<Bytes, Vec<Bytes>> = HashMap::new();
        for (path, entry) in &self.entries {
            if let Some(group) = &entry.same_as {
                groups.entry(group.clone()).or_default().push(path.clone());
            }
        }
        for names in groups.into_values() {
            for path in &names {
                if let Some(entry) = self.entries.get_mut(path) {
                    entry.same_as = (names.len() > 1).then(|| names[0].clone());
                }
            }
        }
        self
    }

    /// The same tree; a file that has the bytes it had in `before`, under whatever name, may have its
    /// holes of then.
    pub fn with_holes_of(mut self, before: &Snapshot, found: &Snapshot) -> Self {
        for (path, entry) in &mut self.entries {
            let Some(new) = found.entries.get(path) else {
                continue;
            };
            let mut old = before.entries.values();
            if old
                .any(|old| (old.size, old.hash) == (entry.size, entry.hash) && old.data == new.data)
            {
                entry.data.clone_from(&new.data);
            }
        }
        self
    }

    /// Files may have kept the bits that writing to them takes away.
    pub fn with_marks_of(mut self, found: &Snapshot) -> Self {
        const MARKS: u32 = 0o6000;
        for (path, entry) in &mut self.entries {
            if let Some(new) = found.entries.get(path)
                && entry.letter == 'f'
                && new.mode & !MARKS == entry.mode & !MARKS
            {
                entry.mode |= new.mode & MARKS;
            }
        }
        self
    }

    /// Times of pipes that were written to natively are not known to be those of the stage.
    pub fn with_pipes_of(mut self, found: &Snapshot) -> Self {
        for (path, entry) in &mut self.entries {
            if let Some(new) = found.entries.get(path)
                && (entry.letter, new.letter, entry.mtime) == ('p', 'p', None)
            {
                entry.mtime = new.mtime;
            }
        }
        self
    }

    /// Whether a path is a directory.
    pub fn is_dir(&self, path: &Bytes) -> bool {
        self.entries.get(path).is_some_and(|e| e.letter == 'd')
    }
}

fn within(path: &Bytes, top: &Bytes) -> bool {
    path.0
        .strip_prefix(top.0.as_slice())
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

impl Entry {
    fn compare(&self, other: &Entry, more: u64) -> Vec<String> {
        let mut lines = Vec::new();
        let mut tell = |what: &str, one: String, two: String| {
            if one != two {
                lines.push(format!("{what}: {one} <> {two}"));
            }
        };
        if self.letter != other.letter {
            return vec![format!("type: {} <> {}", self.letter, other.letter)];
        }
        if self.letter != 'l' {
            tell(
                "mode",
                format!("{:o}", self.mode),
                format!("{:o}", other.mode),
            );
        }
        tell(
            "owner",
            format!("{:?}", self.owner),
            format!("{:?}", other.owner),
        );
        tell(
            "mtime",
            format!("{:?}", self.mtime),
            format!("{:?}", other.mtime),
        );
        tell(
            "bytes",
            format!("{} {:x} {}", self.size, self.hash, self.begin),
            format!("{} {:x} {}", other.size, other.hash, other.begin),
        );
        tell(
            "xattrs",
            format!("{:?}", self.xattrs),
            format!("{:?}", other.xattrs),
        );
        tell(
            "group",
            format!("{:?}", self.same_as),
            format!("{:?}", other.same_as),
        );
        if self.size == other.size && self.hash == other.hash && !self.same_holes(other, more) {
            lines.push(format!(
                "holes: {:?} ({} on disk) <> {:?} ({} on disk)",
                self.data, self.allocated, other.data, other.allocated
            ));
        }
        lines
    }

    /// Blocks that were reserved and never written read as holes or as data, by what is cached: for
    /// a file that has such blocks no more is demanded than that it takes no more room. `more` may
    /// lie around what was stored through a map, on either side.
    fn same_holes(&self, other: &Entry, more: u64) -> bool {
        let blocks = |(begin, end): &(u64, u64)| end.next_multiple_of(4096) - begin;
        let reserved = self.allocated > self.data.iter().map(blocks).sum();
        self.data == other.data
            || reserved && other.allocated <= self.allocated + SLACK
            || more > 0 && other.allocated.abs_diff(self.allocated) <= more
    }
}

/// What the kernel caches at once at most, here.
const FOLIO: u64 = 128 * 1024;

/// Attributes and extent tables may take blocks of their own.
const SLACK: u64 = 3 * 4096;

const READ: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_CLOEXEC)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_NONBLOCK);

/// An entry held open, with its mode put back in the end.
struct Opened<'a> {
    fd: OwnedFd,
    shut: Option<(BorrowedFd<'a>, &'a [u8], u32)>,
}

impl<'a> Opened<'a> {
    fn new(dir: BorrowedFd<'a>, name: &'a [u8], stat: &FileStat, needed: u32) -> Self {
        let mode = stat.st_mode & 0o7777;
        let shut = (mode & needed != needed && !nix::unistd::geteuid().is_root())
            .then_some((dir, name, mode));
        if shut.is_some() {
            chmod(dir, name, mode | needed);
        }
        let fd = openat(dir, name, READ, Mode::empty())
            .unwrap_or_else(|e| panic!("opening {}: {e}", Bytes(name.to_vec())));
        Self { fd, shut }
    }

    fn content(&self, entry: &mut Entry, stat: &FileStat) {
        let file = File::from(self.fd.try_clone().expect("a descriptor"));
        let size = stat.st_size.cast_unsigned();
        entry.size = size;
        entry.allocated = stat.st_blocks.cast_unsigned() * 512;
        // What is cached of blocks without data would be taken for data.
        if entry.allocated < size || entry.allocated > size.next_multiple_of(4096) {
            file.sync_data().expect("a sync");
            let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
        let mut hasher = DefaultHasher::new();
        let mut buffer = vec![0; 1 << 16];
        let mut at = 0;
        while let Some((begin, end)) = data(&file, at) {
            entry.data.push((begin, end));
            at = end;
        }
        let mut offset = 0;
        while offset < size {
            let n = file.read_at(&mut buffer, offset).expect("a readable file");
            if n == 0 {
                break;
            }
            if offset == 0 {
                entry.begin = Bytes(buffer[..n.min(24)].to_vec());
            }
            hasher.write(&buffer[..n]);
            offset += n as u64;
        }
        entry.hash = hasher.finish();
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        if let Some((dir, name, mode)) = self.shut {
            chmod(dir, name, mode);
        }
    }
}

fn chmod(dir: BorrowedFd<'_>, name: &[u8], mode: u32) {
    let mode = Mode::from_bits_truncate(mode);
    fchmodat(dir, name, mode, FchmodatFlags::FollowSymlink).expect("chmod of an own entry");
}

fn data(file: &File, at: u64) -> Option<(u64, u64)> {
    let begin = nix::unistd::lseek(file, at.cast_signed(), Whence::SeekData).ok()?;
    let end = nix::unistd::lseek(file, begin, Whence::SeekHole).ok()?;
    Some((begin.cast_unsigned(), end.cast_unsigned()))
}

fn letter(mode: u32) -> Letter {
    match mode & nix::libc::S_IFMT {
        nix::libc::S_IFREG => 'f',
        nix::libc::S_IFDIR => 'd',
        nix::libc::S_IFLNK => 'l',
        nix::libc::S_IFIFO => 'p',
        nix::libc::S_IFSOCK => 's',
        _ => 'x',
    }
}

fn attributes(fd: BorrowedFd<'_>) -> BTreeMap<String, Bytes> {
    let magic = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let Ok(names) = xattr::list_deref(&magic) else {
        return BTreeMap::new();
    };
    names
        .filter_map(|name| {
            let value = xattr::get_deref(&magic, &name).ok()??;
            Some((name.to_string_lossy().into_owned(), Bytes(value)))
        })
        .collect()
}
