//! One file-system entry as review and commit see it. Owns the description only; reading is done
//! by whoever has access to the tree.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::hasher::ContentHasher;

/// Type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileType {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Unix socket: listed, never committed.
    Socket,
    /// Character or block device: never committed.
    Device,
}

impl FileType {
    /// From the type bits of `st_mode`.
    pub fn from_mode(st_mode: u32) -> Self {
        match st_mode & libc::S_IFMT {
            libc::S_IFDIR => FileType::Dir,
            libc::S_IFLNK => FileType::Symlink,
            libc::S_IFIFO => FileType::Fifo,
            libc::S_IFSOCK => FileType::Socket,
            libc::S_IFCHR | libc::S_IFBLK => FileType::Device,
            _ => FileType::File,
        }
    }

    /// The type bits of `st_mode`.
    pub fn mode_bits(self) -> u32 {
        match self {
            FileType::File => libc::S_IFREG,
            FileType::Dir => libc::S_IFDIR,
            FileType::Symlink => libc::S_IFLNK,
            FileType::Fifo => libc::S_IFIFO,
            FileType::Socket => libc::S_IFSOCK,
            FileType::Device => libc::S_IFCHR,
        }
    }

    /// The word used in listings.
    pub fn name(self) -> &'static str {
        match self {
            FileType::File => "file",
            FileType::Dir => "dir",
            FileType::Symlink => "symlink",
            FileType::Fifo => "fifo",
            FileType::Socket => "socket",
            FileType::Device => "device",
        }
    }
}

/// Seconds and nanoseconds since the epoch, as `stat` gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Timestamp {
    /// Whole seconds, may be negative.
    pub sec: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nsec: u32,
}

/// Hash of a content (BLAKE3, by the rule of the `hasher` module), 32 bytes. Shown as 64 hex
/// digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = ContentHasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Reads 64 hex digits.
    pub fn parse(hex: &str) -> Option<Self> {
        blake3::Hash::from_hex(hex)
            .ok()
            .map(|h| Self(*h.as_bytes()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_bytes(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            Digest::parse(&text).ok_or_else(|| D::Error::custom("not a digest"))
        } else {
            let bytes = <Vec<u8>>::deserialize(deserializer)?;
            let array =
                <[u8; 32]>::try_from(bytes).map_err(|_| D::Error::custom("not a digest"))?;
            Ok(Digest(array))
        }
    }
}

/// One side of a change: what an entry is, without its path.
///
/// `digest` is the hash of a regular file's content when it was read, of a link's target for a
/// link, else absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// What it is.
    pub file_type: FileType,
    /// Permission bits, `st_mode & 0o7777`.
    pub mode: u32,
    /// Owner as the host numbers it.
    pub uid: u32,
    /// Group as the host numbers it.
    pub gid: u32,
    /// Apparent size in bytes.
    pub size: u64,
    /// Last modification of the content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Device of the file system.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Number of names.
    pub nlink: u32,
    /// Device number of a device node, else 0.
    pub rdev: u64,
    /// Target of a symbolic link, in exact bytes.
    #[serde(with = "crate::path::optional_bytes")]
    pub target: Option<Vec<u8>>,
    /// `user.*` attributes and POSIX ACLs (`system.posix_acl_*`), overlay marks removed and the
    /// user's own `user.overlay.*` unescaped.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// See above.
    pub digest: Option<Digest>,
}

impl Node {
    /// Type and permission bits together, as git and `st_mode` write them.
    pub fn full_mode(&self) -> u32 {
        self.file_type.mode_bits() | self.mode
    }

    /// Whether two stats are of one inode that nobody touched in between.
    pub fn same_stat(&self, other: &Node) -> bool {
        self.dev == other.dev
            && self.ino == other.ino
            && self.size == other.size
            && self.mtime == other.mtime
            && self.ctime == other.ctime
            && self.full_mode() == other.full_mode()
    }
}

impl Timestamp {
    /// The present moment.
    pub fn now() -> Self {
        let now = jiff::Timestamp::now();
        // A negative subsecond part (before 1970) is folded into the second before.
        let (sec, nsec) = (now.as_second(), now.subsec_nanosecond());
        if nsec < 0 {
            Self {
                sec: sec - 1,
                nsec: (nsec + 1_000_000_000) as u32,
            }
        } else {
            Self {
                sec,
                nsec: nsec as u32,
            }
        }
    }
}
