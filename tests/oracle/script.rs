//! What a script is: a list of operations on a tree, as data that can be written down, replayed and
//! shortened. Owns the words only; `interpret` carries them out.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest run of one byte that is written out.
const LONG_RUN: usize = 20;

/// Bytes of a name, a path or a value. Written with everything but printable ASCII escaped, and a
/// long run of one byte as its length and the byte: `\\{255}L`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub Vec<u8>);

impl From<&str> for Bytes {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for run in self.0.chunk_by(|a, b| a == b) {
            let times = if run.len() > LONG_RUN {
                write!(f, "\\{{{}}}", run.len())?;
                1
            } else {
                run.len()
            };
            for byte in &run[..times] {
                match byte {
                    b'\\' => f.write_str("\\\\")?,
                    b' '..=b'~' => write!(f, "{}", char::from(*byte))?,
                    other => write!(f, "\\x{other:02x}")?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Bytes {
    /// Reads what `Display` wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        let mut times = 1;
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            if *first == b'\\'
                && let Some(run) = rest.strip_prefix(b"{")
            {
                let end = run.iter().position(|b| *b == b'}')?;
                times = std::str::from_utf8(&run[..end]).ok()?.parse().ok()?;
                rest = &run[end + 1..];
                continue;
            }
            let byte = if *first != b'\\' {
                *first
            } else if let Some(after) = rest.strip_prefix(b"\\") {
                rest = after;
                b'\\'
            } else {
                let digits = rest.strip_prefix(b"x")?.get(..2)?;
                let digits = std::str::from_utf8(digits).ok()?;
                rest = &rest[3..];
                u8::from_str_radix(digits, 16).ok()?
            };
            bytes.resize(bytes.len() + times, byte);
            times = 1;
        }
        Some(Self(bytes))
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not escaped bytes"))
    }
}

/// Content that a number stands for: an even one for bytes without a pattern, an odd one for lines,
/// 0 for rules on what git ignores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Data {
    pub seed: u32,
    pub len: u32,
}

impl Data {
    /// The bytes.
    pub fn bytes(self) -> Vec<u8> {
        let len = self.len as usize;
        let mut bytes = Vec::with_capacity(len + 16);
        let mut state = u64::from(self.seed) | 1 << 40;
        while bytes.len() < len {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            if self.seed == 0 {
                bytes.extend_from_slice(b"*.o\nbuild\na\n");
            } else if self.seed % 2 == 1 {
                bytes.extend_from_slice(format!("line {}\n", state >> 48).as_bytes());
            } else {
                bytes.extend_from_slice(&(state >> 24).to_le_bytes()[..5]);
            }
        }
        bytes.truncate(len);
        bytes
    }
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    Omit,
    Now,
    At(i64, u32),
}

/// How a rename treats what stands under the new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    Replace,
    Never,
    Exchange,
}

/// What `fallocate` is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Room {
    Extend,
    KeepSize,
    Punch,
    Zero,
    ZeroKeepSize,
    Collapse,
    Insert,
}

/// Flags of `open` besides `O_CLOEXEC | O_NONBLOCK | O_NOCTTY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_field_names)] // Named as the flags are.
pub struct Flags {
    #[serde(skip_serializing_if = "is_false")]
    pub write: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub read: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub create: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub exclusive: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub truncate: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub append: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature.
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Permissions of a POSIX access list, each 0 to 7; absent entries are left out. Named ones are
/// those of the caller's own user and group, the only ones with a number in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acl {
    pub owner: u8,
    pub user: Option<u8>,
    pub group: u8,
    pub named_group: Option<u8>,
    pub mask: Option<u8>,
    pub other: u8,
}

/// One operation. Paths are relative to the root; a link's `target` may begin with `{root}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Op {
    Mkdir {
        path: Bytes,
        mode: u32,
    },
    /// `open` and `close`.
    Touch {
        path: Bytes,
        flags: Flags,
        mode: u32,
    },
    Write {
        path: Bytes,
        at: u64,
        data: Data,
    },
    Append {
        path: Bytes,
        data: Data,
    },
    /// By two descriptors in turn.
    AppendTwice {
        path: Bytes,
        data: Data,
    },
    Truncate {
        path: Bytes,
        len: u64,
    },
    Allocate {
        path: Bytes,
        room: Room,
        at: u64,
        len: u64,
    },
    Chmod {
        path: Bytes,
        mode: u32,
    },
    /// To the caller's own ids: takes setuid and setgid away.
    Chown {
        path: Bytes,
    },
    Rename {
        from: Bytes,
        to: Bytes,
        over: Over,
    },
    Link {
        from: Bytes,
        to: Bytes,
    },
    Symlink {
        target: Bytes,
        path: Bytes,
    },
    Unlink {
        path: Bytes,
    },
    Rmdir {
        path: Bytes,
    },
    /// Everything below as well.
    RemoveTree {
        path: Bytes,
    },
    Mkfifo {
        path: Bytes,
        mode: u32,
    },
    /// Binds a socket and closes it.
    Bind {
        path: Bytes,
    },
    SetXattr {
        path: Bytes,
        name: String,
        value: Bytes,
    },
    RemoveXattr {
        path: Bytes,
        name: String,
    },
    SetAcl {
        path: Bytes,
        default: bool,
        acl: Acl,
    },
    Utimens {
        path: Bytes,
        atime: When,
        mtime: When,
        follow: bool,
    },
    /// `O_TMPFILE`, then `linkat`.
    Tmpfile {
        dir: Bytes,
        path: Bytes,
        mode: u32,
        data: Data,
    },
    CopyRange {
        from: Bytes,
        to: Bytes,
        at: u64,
        into: u64,
        len: u64,
    },
    /// A store through a shared map, and `msync`.
    Mmap {
        path: Bytes,
        at: u64,
        data: Data,
    },
    Read {
        path: Bytes,
    },
    List {
        path: Bytes,
    },
    Stat {
        path: Bytes,
        follow: bool,
    },
    Readlink {
        path: Bytes,
    },
    Xattrs {
        path: Bytes,
    },
    Access {
        path: Bytes,
        mode: u32,
    },
    Open {
        slot: u8,
        path: Bytes,
        flags: Flags,
        mode: u32,
    },
    FdWrite {
        slot: u8,
        at: u64,
        data: Data,
    },
    FdTruncate {
        slot: u8,
        len: u64,
    },
    FdAllocate {
        slot: u8,
        room: Room,
        at: u64,
        len: u64,
    },
    FdRead {
        slot: u8,
    },
    FdStat {
        slot: u8,
    },
    FdChmod {
        slot: u8,
        mode: u32,
    },
    FdXattr {
        slot: u8,
        name: String,
        value: Bytes,
    },
    Close {
        slot: u8,
    },
    /// Removes a directory that is held open and tries to make, link and rename into it.
    IntoDeleted {
        dir: Bytes,
        from: Bytes,
    },
    /// A chain of directories of one name with a file at its end, however long the path.
    Deep {
        path: Bytes,
        name: Bytes,
        levels: u32,
        data: Data,
    },
}

impl Op {
    /// The word it is written with.
    pub fn word(&self) -> String {
        serde_json::to_value(self)
            .ok()
            .and_then(|v| v["op"].as_str().map(str::to_owned))
            .unwrap_or_default()
    }
}

/// A tree and what is done to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// Where it comes from: a seed, or what it shows.
    pub about: String,
    /// `umask` of the tree's maker and of the script.
    pub umask: u32,
    /// Makes the tree.
    pub tree: Vec<Op>,
    /// What is compared.
    pub ops: Vec<Op>,
}

/// What an operation came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// 0, or the errno's name.
    pub errno: String,
    /// What was read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub saw: String,
}

impl Script {
    /// As one line of JSON per operation, in a form that can be stored as a regression.
    pub fn pretty(&self) -> String {
        let lines = |ops: &[Op]| {
            ops.iter()
                .map(|op| format!("    {}", serde_json::to_string(op).unwrap_or_default()))
                .collect::<Vec<_>>()
                .join(",\n")
        };
        let block = |ops: &[Op]| match ops {
            [] => "[]".to_owned(),
            ops => format!("[\n{}\n  ]", lines(ops)),
        };
        format!(
            "{{\n  \"about\": {},\n  \"umask\": {},\n  \"tree\": {},\n  \"ops\": {}\n}}\n",
            serde_json::to_string(&self.about).unwrap_or_default(),
            self.umask,
            block(&self.tree),
            block(&self.ops)
        )
    }
}
