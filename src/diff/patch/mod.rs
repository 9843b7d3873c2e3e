//! A change set as text that `git apply` takes. Owns git's patch format: headers, quoting, modes,
//! binary blocks. Bytes are exact; whoever shows a patch on a terminal sanitises it first.

mod binary;
mod quote;
mod unified;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use super::compute::{as_text, is_binary};
use super::lines::Lines;
use crate::change::{Change, ChangeKind};
use crate::layer::{FileType, Node};

/// A change together with both sides' bytes (a link's are its target).
#[derive(Debug, Clone)]
pub struct PatchEntry<'a> {
    /// The change. All entries of a patch belong to one layer: names are relative to its root.
    pub change: &'a Change,
    /// The baseline's bytes; `None` when there is no such side, or it was not loaded.
    pub before: Option<Vec<u8>>,
    /// The agent's bytes; `None` when there is no such side, or it was not loaded.
    pub after: Option<Vec<u8>>,
}

/// The patch of these entries, in their order. Names only what git can hold: see [`left_out`].
pub fn patch(entries: &[PatchEntry<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for entry in entries {
        write_entry(&mut out, entry);
    }
    out
}

/// What of this change a patch does not carry, in words that follow "left out: "; `None` when the
/// patch carries all of it.
pub fn left_out(entry: &PatchEntry<'_>) -> Option<&'static str> {
    let change = entry.change;
    let sides = [&change.before, &change.after];
    let of_type = |file_type| {
        sides
            .into_iter()
            .flatten()
            .any(|n| n.file_type == file_type)
    };
    if of_type(FileType::Fifo) || of_type(FileType::Socket) || of_type(FileType::Device) {
        return Some("git holds no pipes, sockets or devices");
    }
    if of_type(FileType::Dir) && change.kind != ChangeKind::Type {
        return Some("git holds directories only as far as they have files");
    }
    if Side::old(entry).is_none_or(|s| s.bytes.is_some())
        && Side::new(entry).is_none_or(|s| s.bytes.is_some())
        || !content_differs(entry)
    {
        let (Some(a), Some(b)) = (&change.before, &change.after) else {
            return None;
        };
        if a.mode != b.mode && git_mode(a) == git_mode(b) {
            return Some("of the mode git holds only whether a file can be executed");
        }
        if a.xattrs != b.xattrs || a.uid != b.uid || a.gid != b.gid {
            return Some("git holds no owners and no extended attributes");
        }
        if change.kind == ChangeKind::Meta {
            return Some("git holds no times");
        }
        return None;
    }
    Some("its contents are too large or could not be read")
}

/// One side of an entry as git sees it.
struct Side<'a> {
    name: &'a [u8],
    mode: &'static str,
    bytes: Option<Cow<'a, [u8]>>,
}

impl<'a> Side<'a> {
    fn old(entry: &'a PatchEntry<'_>) -> Option<Self> {
        let change = entry.change;
        let name = change.from().unwrap_or(&change.key.path);
        Self::of(change.before.as_deref(), name, entry.before.as_deref())
    }

    fn new(entry: &'a PatchEntry<'_>) -> Option<Self> {
        let change = entry.change;
        let name = &change.key.path;
        Self::of(change.after.as_deref(), name, entry.after.as_deref())
    }

    fn of(
        node: Option<&'a Node>,
        name: &'a crate::RelPath,
        bytes: Option<&'a [u8]>,
    ) -> Option<Self> {
        let node = node?;
        let bytes = match node.file_type {
            FileType::Symlink => node.target.as_deref().or(bytes),
            // An empty file needs no loading.
            _ if node.size == 0 => bytes.or(Some(b"")),
            _ => bytes,
        };
        Some(Self {
            name: name.as_bytes(),
            mode: git_mode(node)?,
            bytes: bytes.map(Cow::Borrowed),
        })
    }
}

/// The mode git writes, for what git can hold.
fn git_mode(node: &Node) -> Option<&'static str> {
    match node.file_type {
        FileType::File if node.mode & 0o100 != 0 => Some("100755"),
        FileType::File => Some("100644"),
        FileType::Symlink => Some("120000"),
        _ => None,
    }
}

fn content_differs(entry: &PatchEntry<'_>) -> bool {
    let change = entry.change;
    if matches!(change.kind, ChangeKind::Mode | ChangeKind::Meta) {
        return false;
    }
    match (&change.before, &change.after) {
        (Some(a), Some(b)) => {
            a.file_type != b.file_type || a.digest.is_none() || a.digest != b.digest
        }
        _ => true,
    }
}

fn write_entry(out: &mut Vec<u8>, entry: &PatchEntry<'_>) {
    match (Side::old(entry), Side::new(entry)) {
        (None, None) => {}
        (None, Some(new)) => write_created(out, &new),
        (Some(old), None) => write_deleted(out, &old),
        // A file that became a link or the other way round is two entries for git.
        (Some(old), Some(new)) if old.mode[..2] != new.mode[..2] => {
            write_deleted(out, &old);
            write_created(out, &new);
        }
        (Some(old), Some(new)) => write_changed(out, &old, &new, content_differs(entry)),
    }
}

fn write_created(out: &mut Vec<u8>, new: &Side<'_>) {
    let Some(bytes) = &new.bytes else { return };
    git_line(out, new.name, new.name);
    line(out, &[b"new file mode ", new.mode.as_bytes()]);
    index(out, None, Some(bytes), None);
    write_content(
        out,
        Some((new.name, b"")),
        Some((new.name, bytes)),
        true,
        false,
    );
}

fn write_deleted(out: &mut Vec<u8>, old: &Side<'_>) {
    let Some(bytes) = &old.bytes else { return };
    git_line(out, old.name, old.name);
    line(out, &[b"deleted file mode ", old.mode.as_bytes()]);
    index(out, Some(bytes), None, None);
    write_content(
        out,
        Some((old.name, bytes)),
        Some((old.name, b"")),
        false,
        true,
    );
}

fn write_changed(out: &mut Vec<u8>, old: &Side<'_>, new: &Side<'_>, differs: bool) {
    let contents = match (&old.bytes, &new.bytes) {
        (Some(a), Some(b)) if differs && a != b => Some((a, b)),
        (Some(_), Some(_)) => None,
        _ if differs => return,
        _ => None,
    };
    let renamed = old.name != new.name;
    if contents.is_none() && !renamed && old.mode == new.mode {
        return;
    }
    git_line(out, old.name, new.name);
    if old.mode != new.mode {
        line(out, &[b"old mode ", old.mode.as_bytes()]);
        line(out, &[b"new mode ", new.mode.as_bytes()]);
    }
    if renamed {
        let percent = contents.map_or(100, |(a, b)| similarity(a, b));
        line(out, &[format!("similarity index {percent}%").as_bytes()]);
        line(out, &[b"rename from ", &quote::quoted(b"", old.name)]);
        line(out, &[b"rename to ", &quote::quoted(b"", new.name)]);
    }
    if let Some((a, b)) = contents {
        let mode = (old.mode == new.mode).then_some(old.mode);
        index(out, Some(a), Some(b), mode);
        write_content(out, Some((old.name, a)), Some((new.name, b)), false, false);
    }
}

type Named<'a> = Option<(&'a [u8], &'a [u8])>;

fn write_content(out: &mut Vec<u8>, old: Named<'_>, new: Named<'_>, creates: bool, deletes: bool) {
    let (Some((old_name, old)), Some((new_name, new))) = (old, new) else {
        return;
    };
    if is_binary(old) || is_binary(new) {
        binary::write(out, old, new);
        return;
    }
    if old == new {
        return;
    }
    let side = |out: &mut Vec<u8>, mark: &[u8], prefix: &[u8], name: &[u8], absent: bool| {
        if absent {
            line(out, &[mark, b"/dev/null"]);
            return;
        }
        // A tab ends a name with blanks, as `patch` wants it.
        let tab: &[u8] = if name.contains(&b' ') { b"\t" } else { b"" };
        line(out, &[mark, &quote::quoted(prefix, name), tab]);
    };
    side(out, b"--- ", b"a/", old_name, creates);
    side(out, b"+++ ", b"b/", new_name, deletes);
    unified::write(out, old, new, &as_text(old, new));
}

fn git_line(out: &mut Vec<u8>, old: &[u8], new: &[u8]) {
    line(
        out,
        &[
            b"diff --git ",
            &quote::quoted(b"a/", old),
            b" ",
            &quote::quoted(b"b/", new),
        ],
    );
}

/// Full object names: a binary block is not accepted without.
fn index(out: &mut Vec<u8>, old: Option<&[u8]>, new: Option<&[u8]>, mode: Option<&str>) {
    let name = |bytes: Option<&[u8]>| bytes.map_or_else(|| "0".repeat(40), binary::blob_name);
    let mut text = format!("index {}..{}", name(old), name(new));
    if let Some(mode) = mode {
        text.push(' ');
        text.push_str(mode);
    }
    line(out, &[text.as_bytes()]);
}

fn line(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
    out.push(b'\n');
}

/// Percent of the larger side that both have in common; 100 only for equal bytes.
fn similarity(old: &[u8], new: &[u8]) -> u64 {
    let larger = old.len().max(new.len()).max(1) as u64;
    let common = if is_binary(old) || is_binary(new) {
        let same = |(a, b): &(&u8, &u8)| a == b;
        let front = old.iter().zip(new).take_while(same).count();
        let back = old[front..].iter().rev().zip(new[front..].iter().rev());
        (front + back.take_while(same).count()) as u64
    } else {
        let side = Lines::of(old);
        let removed: usize = as_text(old, new)
            .hunks
            .iter()
            .filter_map(|h| side.lines.get(h.old_range()))
            .flatten()
            .map(|l| l.len() + 1)
            .sum();
        old.len().saturating_sub(removed) as u64
    };
    (common * 100 / larger).min(99)
}
