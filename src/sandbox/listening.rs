//! Unix sockets of the host that an agent could connect to. A read-only mount does not keep anybody
//! from connecting to a socket in it, and what listens there acts with rights of its own: a container
//! engine that a supplementary group opens is the machine's root. Owns finding the ones that listen
//! when a session starts and lie where neither a private place nor an overlay is in front of them;
//! the view masks them.
//!
//! A socket in a staged layer needs no mask: an overlay's inode is not the one that was bound, so
//! that connecting is refused. From Landlock ABI 9 on the kernel refuses by path, later sockets too.
//!
//! Source: proc_net_unix in proc(5).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::{SFlag, lstat};
use nix::unistd::{AccessFlags, access};

use super::spec::{MountAccess, SandboxSpec};
use super::submounts;

/// `SO_ACCEPTCON`, as `/proc/net/unix` writes it.
const LISTENS: u32 = 0x1_0000;
/// `SOCK_DGRAM`: hears whoever sends, without listening.
const DATAGRAM: u32 = 2;
/// More than any machine has; beyond it a start would become slow.
const AT_MOST: usize = 256;

/// Replaced by places of the session's own.
const PRIVATE: [&str; 4] = ["/run", "/tmp", "/var/tmp", "/dev"];

/// The specification with the sockets hidden that listen now and can be connected to. To be called
/// in the session's user namespace (whose rights are the agent's at most), in the network namespace
/// of the host.
pub(super) fn hide(spec: &SandboxSpec) -> SandboxSpec {
    let mut spec = spec.clone();
    let mut in_front: Vec<PathBuf> = PRIVATE
        .iter()
        .filter_map(|place| std::fs::canonicalize(place).ok())
        .chain(spec.hide.iter().cloned())
        .chain(spec.unhide.iter().cloned())
        .collect();
    for layer in &spec.layers {
        // Where something is mounted below, the layer may be shown read-only instead.
        if submounts::below(&layer.root).is_ok_and(|below| below.is_empty()) {
            in_front.push(layer.root.clone());
        }
    }
    // What was mounted on purpose is seen on purpose.
    let given = spec.mounts.iter().filter(|m| m.access != MountAccess::Hide);
    in_front.extend(given.map(|mount| mount.target.clone()));
    let table = std::fs::read("/proc/net/unix").unwrap_or_default();
    let mut found: Vec<PathBuf> = bound(&table)
        .filter(|path| !in_front.iter().any(|place| path.starts_with(place)))
        .filter(|path| can_connect(path))
        .collect();
    found.sort();
    found.dedup();
    found.truncate(AT_MOST);
    spec.hide.extend(found);
    spec
}

/// Paths of the sockets in the kernel's table that somebody can send to.
fn bound(table: &[u8]) -> impl Iterator<Item = PathBuf> {
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        // Num RefCount Protocol Flags Type St Inode Path; the inode is padded on the left.
        let (mut fields, mut rest) = (Vec::with_capacity(7), line);
        for _ in 0..7 {
            rest = rest.trim_ascii_start();
            let end = rest.iter().position(|byte| *byte == b' ');
            let (field, after) = rest.split_at(end.unwrap_or(rest.len()));
            fields.push(std::str::from_utf8(field).ok()?);
            rest = after;
        }
        let hex = |index: usize| u32::from_str_radix(fields.get(index)?, 16).ok();
        let (flags, kind) = (hex(3)?, hex(4)?);
        let path = rest
            .strip_prefix(b" ")
            .filter(|path| path.starts_with(b"/"))?;
        (flags & LISTENS != 0 || kind == DATAGRAM)
            .then(|| Path::new(OsStr::from_bytes(path)).to_owned())
    })
}

/// Whether the path still is a socket, and this process may write to it, be it by a group.
fn can_connect(path: &Path) -> bool {
    let is_socket = lstat(path).is_ok_and(|stat| {
        SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFSOCK
    });
    is_socket && access(path, AccessFlags::W_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_and_datagram_sockets_with_a_path_are_found() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 23457 /srv/a b.sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01    77 /srv/padded\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 23458 /srv/accepted\n\
            0000000000000000: 00000002 00000000 00000000 0002 01 23459 /srv/log\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 23460 @abstract/path\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 23461\n";
        let found: Vec<PathBuf> = bound(table).collect();
        let wanted = ["/srv/a b.sock", "/srv/padded", "/srv/log"];
        assert_eq!(found, wanted.map(PathBuf::from));
    }

    #[test]
    fn a_socket_in_front_of_nothing_is_found_in_the_real_table() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("directory");
        let path = dir.path().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&path).expect("listens");
        let table = std::fs::read("/proc/net/unix").expect("the kernel's table");
        assert!(bound(&table).any(|found| found == path));
        assert!(can_connect(&path));
        assert!(!can_connect(dir.path()));
    }
}
