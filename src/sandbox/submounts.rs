//! What is mounted below a directory. Owns reading `/proc/self/mountinfo` (proc_pid_mountinfo(5)); a
//! mount below a lower makes the kernel refuse an overlay over it, and no change may ever cross into
//! it.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

/// What becomes of mounts inside a staged directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Submounts {
    /// Each is a layer of its own where that is possible, else read-only.
    #[default]
    Stage,
    /// Shown, not written.
    Read,
    /// Nothing runs.
    Refuse,
}

impl Submounts {
    /// The name used on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Submounts::Stage => "stage",
            Submounts::Read => "read",
            Submounts::Refuse => "refuse",
        }
    }
}

/// One mount below a directory, as it can be seen there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submount {
    /// Where.
    pub point: PathBuf,
    /// Its file system, e.g. `tmpfs` or `fuse.sshfs`.
    pub kind: String,
    /// Nothing can be written through it: mounted so, or its file system is.
    pub read_only: bool,
    /// A single file is mounted, or something that cannot be looked at.
    pub is_dir: bool,
}

/// File systems without files of anybody's: nothing in them can be a change.
const PSEUDO: &[&str] = &[
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
];

impl Submount {
    /// Why it cannot be a layer of its own; `None` when it can.
    pub fn unstageable(&self) -> Option<String> {
        let kind = crate::text::visible(self.kind.as_bytes());
        if PSEUDO.contains(&self.kind.as_str()) {
            return Some(format!("a {kind} holds no files to stage"));
        }
        // Whoever serves it may wait for something that waits for us.
        if self.kind == "fuse" || self.kind.starts_with("fuse.") {
            return Some(format!("it is served by a program ({kind})"));
        }
        if !self.is_dir {
            return Some("it is no directory".into());
        }
        self.read_only.then(|| "it is mounted read-only".into())
    }
}

/// The mount table at one moment.
#[derive(Debug, Default)]
pub struct MountTable {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    parent: u64,
    point: PathBuf,
    kind: String,
    read_only: bool,
}

impl MountTable {
    /// The calling process' own.
    pub fn read() -> std::io::Result<Self> {
        Ok(Self::parse(&std::fs::read("/proc/self/mountinfo")?))
    }

    fn parse(mountinfo: &[u8]) -> Self {
        let entries = mountinfo.split(|b| *b == b'\n').filter_map(entry).collect();
        Self { entries }
    }

    /// Mounts strictly below `root` that can be seen, outermost first. A mount that another one
    /// covers is in nobody's way.
    pub fn below(&self, root: &Path) -> Vec<Submount> {
        let candidates = self.by_path(root);
        if candidates.is_empty() {
            return Vec::new();
        }
        let mut seen: BTreeMap<&Path, Submount> = BTreeMap::new();
        for entry in candidates {
            let looked = look(&entry.point);
            if matches!(&looked, Ok(stat) if stat.mount.is_some_and(|id| id != entry.id)) {
                continue;
            }
            seen.insert(
                &entry.point,
                Submount {
                    point: entry.point.clone(),
                    kind: entry.kind.clone(),
                    read_only: entry.read_only,
                    is_dir: looked.is_ok_and(|stat| stat.is_dir),
                },
            );
        }
        let mut found: Vec<Submount> = seen.into_values().collect();
        found.sort_by_key(|mount| mount.point.components().count());
        found
    }

    /// What lies below by name and hangs on the mount that `root` is in.
    fn by_path(&self, root: &Path) -> Vec<&Entry> {
        let below = |entry: &&Entry| entry.point != root && entry.point.starts_with(root);
        let mut found: Vec<&Entry> = self.entries.iter().filter(below).collect();
        let Ok(Looked {
            mount: Some(root_mount),
            ..
        }) = look(root)
        else {
            return found;
        };
        let mut hanging = vec![root_mount];
        let mut before = 0;
        // Parents need not stand before their children in the table.
        while hanging.len() != before {
            before = hanging.len();
            for entry in &found {
                if hanging.contains(&entry.parent) && !hanging.contains(&entry.id) {
                    hanging.push(entry.id);
                }
            }
        }
        found.retain(|entry| hanging.contains(&entry.id));
        found
    }
}

/// Mounts strictly below `root`, see [`MountTable::below`].
pub fn below(root: &Path) -> std::io::Result<Vec<Submount>> {
    Ok(MountTable::read()?.below(root))
}

struct Looked {
    mount: Option<u64>,
    is_dir: bool,
}

/// statx(2) without waiting for a server and without setting off an automount.
fn look(path: &Path) -> Result<Looked, Errno> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: an all-zero statx buffer is valid.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_STATX_DONT_SYNC;
    // SAFETY: the name is NUL-terminated, the buffer a whole statx; both outlive the call.
    Errno::result(unsafe {
        libc::statx(
            libc::AT_FDCWD,
            name.as_ptr(),
            flags,
            libc::STATX_TYPE | libc::STATX_MNT_ID,
            &raw mut stat,
        )
    })?;
    Ok(Looked {
        mount: (stat.stx_mask & libc::STATX_MNT_ID != 0).then_some(stat.stx_mnt_id),
        is_dir: u32::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFDIR,
    })
}

/// One line of the table.
fn entry(line: &[u8]) -> Option<Entry> {
    let mut fields = line.split(|b| *b == b' ');
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
    let id = fields.next().and_then(number)?;
    let parent = fields.next().and_then(number)?;
    let point = unescape(fields.nth(2)?);
    let options = fields.next()?;
    // Optional fields end at a hyphen.
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8_lossy(rest.next()?).into_owned();
    let of_file_system = rest.nth(1).unwrap_or_default();
    let is_read_only = |options: &[u8]| options.split(|b| *b == b',').any(|o| o == b"ro");
    Some(Entry {
        id,
        parent,
        point,
        kind,
        read_only: is_read_only(options) || is_read_only(of_file_system),
    })
}

/// Undoes the kernel's `\040` notation.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|d| byte == b'\\' && octal(d));
        if let Some(digits) = digits {
            bytes.push(
                digits
                    .iter()
                    .fold(0u8, |n, d| n.wrapping_mul(8).wrapping_add(d - b'0')),
            );
            rest = &tail[3..];
        } else {
            bytes.push(byte);
            rest = tail;
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

fn octal(digits: &[u8]) -> bool {
    digits.iter().all(|d| (b'0'..=b'7').contains(d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_are_found_and_their_names_unescaped() {
        let table = MountTable::parse(
            b"22 27 0:21 / /proc rw - proc proc rw\n\
            30 27 0:30 / /no-such-place rw - ext4 /dev/a rw\n\
            31 30 0:31 / /no-such-place/a\\040b\\134c rw,nosuid shared:1 - tmpfs none ro,size=1\n\
            32 27 0:32 / /no-such-place-either rw - tmpfs none rw\n",
        );
        let found = table.below(Path::new("/no-such-place"));
        let [only] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!(only.point, Path::new("/no-such-place/a b\\c"));
        assert_eq!((only.kind.as_str(), only.read_only), ("tmpfs", true));
    }

    #[test]
    fn only_mounts_with_files_of_their_own_can_be_staged() {
        let mount = |kind: &str, read_only, is_dir| Submount {
            point: "/w/m".into(),
            kind: kind.into(),
            read_only,
            is_dir,
        };
        assert_eq!(mount("tmpfs", false, true).unstageable(), None);
        assert_eq!(mount("ext4", false, true).unstageable(), None);
        for other in [
            mount("proc", false, true),
            mount("fuse.sshfs", false, true),
            mount("ext4", true, true),
            mount("ext4", false, false),
        ] {
            assert!(other.unstageable().is_some(), "{other:?}");
        }
    }

    #[test]
    fn the_table_of_this_process_knows_proc() {
        let found = below(Path::new("/")).expect("table");
        assert!(
            found.iter().any(|m| m.point == Path::new("/proc")),
            "{found:?}"
        );
    }
}
