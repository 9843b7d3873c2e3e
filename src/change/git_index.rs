//! Reads git's index as far as a comparison needs it: which names it tracks, and whether two
//! indexes differ in more than the stat data git refreshes on every `status`. No I/O.

use std::collections::HashSet;

/// Whether this path is the index of a git repository: of a work tree, a linked one or a submodule.
pub(super) fn is_index(path: &crate::RelPath) -> bool {
    path.file_name() == Some(b"index")
        && path.parent().is_some_and(|dir| {
            let parts: Vec<&[u8]> = dir.components().collect();
            match parts.iter().rposition(|c| *c == b".git") {
                Some(at) => match &parts[at + 1..] {
                    [] => true,
                    [kind, _, ..] => *kind == b"worktrees" || *kind == b"modules",
                    [_] => false,
                },
                None => false,
            }
        })
}

/// One entry without its stat data.
#[derive(PartialEq, Eq)]
struct Entry<'a> {
    name: Vec<u8>,
    mode: &'a [u8],
    object: &'a [u8],
    /// Stage and the assume-valid, skip-worktree and intent-to-add bits.
    flags: (u16, u16),
}

/// Whether two indexes track the same entries, whatever their stat data and caches say. `false`
/// when either cannot be read.
pub(super) fn same_but_stat(a: &[u8], b: &[u8]) -> bool {
    match (parse(a), parse(b)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

/// The names an index tracks; empty when it cannot be read.
pub(super) fn tracked(index: &[u8]) -> HashSet<Vec<u8>> {
    parse(index)
        .unwrap_or_default()
        .into_iter()
        .map(|entry| entry.name)
        .collect()
}

fn parse(bytes: &[u8]) -> Option<Vec<Entry<'_>>> {
    // The index does not say which hash it uses: the right length is the one that fits.
    parse_with(bytes, 20).or_else(|| parse_with(bytes, 32))
}

fn parse_with(bytes: &[u8], hash: usize) -> Option<Vec<Entry<'_>>> {
    if bytes.get(..4)? != b"DIRC" {
        return None;
    }
    let version = be32(bytes, 4)?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let count = be32(bytes, 8)? as usize;
    let end = bytes.len().checked_sub(hash)?;
    let mut at = 12;
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for _ in 0..count {
        let start = at;
        let mode = bytes.get(at + 24..at + 28)?;
        let object = bytes.get(at + 40..at + 40 + hash)?;
        at += 40 + hash;
        let flags = be16(bytes, at)?;
        at += 2;
        let mut extended = 0;
        if version >= 3 && flags & 0x4000 != 0 {
            extended = be16(bytes, at)?;
            at += 2;
        }
        let name;
        if version == 4 {
            let strip = varint(bytes, &mut at)?;
            let length = bytes.get(at..end)?.iter().position(|b| *b == 0)?;
            let previous = entries.last().map_or(&[][..], |e| &e.name);
            let kept = previous.get(..previous.len().checked_sub(strip)?)?;
            name = [kept, &bytes[at..at + length]].concat();
            at += length + 1;
        } else {
            let length = bytes.get(at..end)?.iter().position(|b| *b == 0)?;
            name = bytes[at..at + length].to_vec();
            // One to eight NULs up to a multiple of eight.
            at = start + (at + length - start + 8) / 8 * 8;
        }
        if at > end {
            return None;
        }
        entries.push(Entry {
            name,
            mode,
            object,
            // The low twelve bits repeat the name's length.
            flags: (flags & 0xb000, extended),
        });
    }
    while at < end {
        let signature = bytes.get(at..at + 4)?;
        // A split index keeps its entries elsewhere: nothing can be said of it.
        if signature == b"link" {
            return None;
        }
        at = at
            .checked_add(8)?
            .checked_add(be32(bytes, at + 4)? as usize)?;
    }
    (at == end).then_some(entries)
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Git's offset encoding.
fn varint(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut byte = *bytes.get(*at)?;
    *at += 1;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = *bytes.get(*at)?;
        *at += 1;
        value = value.checked_add(1)?.checked_mul(128)? + usize::from(byte & 0x7f);
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;

    fn git(dir: &Path, args: &[&str]) {
        let done = Command::new("git")
            .args(["-c", "user.name=n", "-c", "user.email=a@b"])
            .args(args)
            .current_dir(dir)
            .output()
            .expect("git");
        assert!(done.status.success(), "{args:?}");
    }

    #[test]
    fn refreshed_stat_data_is_no_difference_and_a_new_entry_is() {
        if Command::new("git").arg("--version").output().is_err() {
            eprintln!("skipped: git is missing");
            return;
        }
        for version in ["2", "3", "4"] {
            let dir = tempfile::tempdir().expect("tempdir");
            let root = dir.path();
            git(root, &["init", "-q"]);
            git(root, &["config", "index.version", version]);
            for name in [
                "a",
                "a-long/name/that-is-shared",
                "a-long/name/that-is-shared2",
            ] {
                let path = root.join(name);
                std::fs::create_dir_all(path.parent().expect("parent")).expect("mkdir");
                std::fs::write(path, name).expect("write");
            }
            git(root, &["add", "."]);
            if version == "3" {
                git(root, &["update-index", "--skip-worktree", "a"]);
            }
            let index = root.join(".git/index");
            let first = std::fs::read(&index).expect("read");
            assert_eq!(tracked(&first).len(), 3, "version {version}");
            assert!(tracked(&first).contains(&b"a-long/name/that-is-shared2"[..]));
            std::fs::File::options()
                .write(true)
                .open(root.join("a-long/name/that-is-shared"))
                .expect("open")
                .set_modified(std::time::SystemTime::UNIX_EPOCH)
                .expect("touch");
            git(root, &["status", "--porcelain"]);
            let second = std::fs::read(&index).expect("read");
            assert_ne!(first, second, "git refreshed it");
            assert!(same_but_stat(&first, &second));
            std::fs::write(root.join("b"), "b").expect("write");
            git(root, &["add", "b"]);
            let third = std::fs::read(&index).expect("read");
            assert!(!same_but_stat(&second, &third));
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        assert!(!same_but_stat(b"", b""));
        let mut bytes = b"DIRC\0\0\0\x04\0\0\0\x02".to_vec();
        for extra in 0..200u8 {
            bytes.push(extra);
            assert!(parse(&bytes).is_none());
        }
    }

    #[test]
    fn indexes_are_known_by_their_place() {
        let is = |p: &str| is_index(&crate::RelPath::try_from(p).expect("path"));
        assert!(is(".git/index") && is("sub/.git/index"));
        assert!(is(".git/worktrees/w/index") && is(".git/modules/m/index"));
        assert!(!is("index") && !is(".git/refs/index") && !is("git/index"));
    }
}
