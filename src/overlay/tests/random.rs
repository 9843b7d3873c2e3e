//! Random operations on an overlay and on a plain directory: the same results, the same trees, also
//! after the overlay was made anew over what it left.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use proptest::prelude::*;

use super::super::{Changes, Result, SetTime};
use super::fixture::{Stage, me};

#[derive(Debug, Clone)]
enum Op {
    Append(usize, u8),
    Truncate(usize, u16),
    Chmod(usize, u32),
    Mkdir(usize),
    Symlink(usize),
    Link(usize, usize),
    Unlink(usize),
    Rmdir(usize),
    Rename(usize, usize),
    NoReplace(usize, usize),
    Exchange(usize, usize),
    Touch(usize, i64),
    SetXattr(usize, u8),
    RemoveTree(usize),
    Forget,
}

/// The names the operations work on: few, so that they meet.
fn paths() -> Vec<String> {
    let mut paths = Vec::new();
    for a in ["a", "b", "c"] {
        paths.push(a.to_owned());
        for b in ["x", "y", ".wh.x"] {
            paths.push(format!("{a}/{b}"));
            for c in ["p", "q"] {
                paths.push(format!("{a}/{b}/{c}"));
            }
        }
    }
    paths
}

fn op() -> impl Strategy<Value = Op> {
    let path = 0..paths().len();
    let two = || (0..paths().len(), 0..paths().len());
    prop_oneof![
        4 => (path.clone(), any::<u8>()).prop_map(|(p, b)| Op::Append(p, b)),
        1 => (path.clone(), 0..3000u16).prop_map(|(p, n)| Op::Truncate(p, n)),
        2 => (path.clone(), 0..0o1000u32).prop_map(|(p, m)| Op::Chmod(p, m | 0o700)),
        3 => path.clone().prop_map(Op::Mkdir),
        1 => path.clone().prop_map(Op::Symlink),
        2 => two().prop_map(|(a, b)| Op::Link(a, b)),
        4 => path.clone().prop_map(Op::Unlink),
        3 => path.clone().prop_map(Op::Rmdir),
        6 => two().prop_map(|(a, b)| Op::Rename(a, b)),
        1 => two().prop_map(|(a, b)| Op::NoReplace(a, b)),
        2 => two().prop_map(|(a, b)| Op::Exchange(a, b)),
        1 => (path.clone(), -100_000..100_000i64).prop_map(|(p, t)| Op::Touch(p, t)),
        1 => (path.clone(), any::<u8>()).prop_map(|(p, b)| Op::SetXattr(p, b)),
        2 => path.prop_map(Op::RemoveTree),
        1 => Just(Op::Forget),
    ]
}

/// A lower with something of everything, hard links among it.
fn fill(dir: &Path) {
    let make = |path: &str| fs::create_dir_all(dir.join(path)).expect("makes");
    make("a/x");
    make("a/y");
    make("b/x");
    make("b/.wh.x");
    for (path, content) in [
        ("a/x/p", "ap"),
        ("a/x/q", "aq"),
        ("b/x/p", "bp"),
        ("b/y", "by"),
        ("c", "c"),
    ] {
        fs::write(dir.join(path), content).expect("writes");
    }
    fs::hard_link(dir.join("b/y"), dir.join("a/y/p")).expect("links");
    fs::hard_link(dir.join("b/y"), dir.join("b/.wh.x/q")).expect("links");
    symlink("/dev/null", dir.join("a/.wh.x")).expect("links");
    fs::set_permissions(dir.join("b/x"), fs::Permissions::from_mode(0o2751)).expect("chmod");
}

fn plain(op: &Op, root: &Path, paths: &[String]) -> Result<()> {
    use nix::fcntl::{RenameFlags, renameat2};
    let at = |i: &usize| root.join(&paths[*i]);
    let io = |result: std::io::Result<()>| {
        result.map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(0)))
    };
    let rename = |a: &usize, b: &usize, flags| {
        // SAFETY: the current directory is no descriptor that could be closed.
        let cwd = unsafe { std::os::fd::BorrowedFd::borrow_raw(libc::AT_FDCWD) };
        renameat2(cwd, &at(a), cwd, &at(b), flags)
    };
    match op {
        Op::Append(p, byte) => {
            if fs::symlink_metadata(at(p)).is_ok_and(|m| m.is_symlink()) {
                return Err(Errno::ENXIO);
            }
            let mut options = fs::OpenOptions::new();
            io(options
                .append(true)
                .create(true)
                .open(at(p))
                .and_then(|mut f| {
                    std::io::Write::write_all(&mut f, &vec![*byte; usize::from(*byte)])
                }))
        }
        Op::Truncate(p, size) => {
            if fs::symlink_metadata(at(p)).is_ok_and(|m| m.is_symlink()) {
                return Err(Errno::EINVAL);
            }
            nix::unistd::truncate(&at(p), i64::from(*size)).map_err(|e| match e {
                Errno::EISDIR => Errno::EINVAL,
                other => other,
            })
        }
        Op::Chmod(p, mode) => {
            let found = fs::symlink_metadata(at(p));
            if found.is_ok_and(|m| m.is_symlink()) {
                return Err(Errno::EOPNOTSUPP);
            }
            io(fs::set_permissions(
                at(p),
                fs::Permissions::from_mode(*mode),
            ))
        }
        Op::Mkdir(p) => io(fs::create_dir(at(p))),
        Op::Symlink(p) => io(symlink("/dev/null", at(p))),
        Op::Link(a, b) => io(fs::hard_link(at(a), at(b))),
        Op::Unlink(p) => io(fs::remove_file(at(p))),
        Op::Rmdir(p) => io(fs::remove_dir(at(p))),
        Op::Rename(a, b) => rename(a, b, RenameFlags::empty()),
        Op::NoReplace(a, b) => rename(a, b, RenameFlags::RENAME_NOREPLACE),
        Op::Exchange(a, b) => rename(a, b, RenameFlags::RENAME_EXCHANGE),
        Op::Touch(p, sec) => {
            let times = nix::sys::time::TimeSpec::new(*sec, 5);
            let follow = nix::sys::stat::UtimensatFlags::NoFollowSymlink;
            // SAFETY: as above.
            let cwd = unsafe { std::os::fd::BorrowedFd::borrow_raw(libc::AT_FDCWD) };
            nix::sys::stat::utimensat(cwd, &at(p), &times, &times, follow)
        }
        Op::SetXattr(p, byte) => {
            fs::symlink_metadata(at(p))
                .map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(0)))?;
            io(xattr::set(at(p), "user.overlay.mine", &[*byte]))
        }
        Op::RemoveTree(p) => match fs::symlink_metadata(at(p)) {
            Ok(m) if m.is_dir() => io(fs::remove_dir_all(at(p))),
            Ok(_) => io(fs::remove_file(at(p))),
            Err(e) => Err(Errno::from_raw(e.raw_os_error().unwrap_or(0))),
        },
        Op::Forget => Ok(()),
    }
}

fn remove_tree(stage: &Stage, path: &str) -> Result<()> {
    if stage.attr(path)?.mode & libc::S_IFMT != libc::S_IFDIR {
        return stage.unlink(path);
    }
    for name in stage.names(path)? {
        remove_tree(stage, &format!("{path}/{name}"))?;
    }
    stage.rmdir(path)
}

fn merged(op: &Op, stage: &mut Stage, paths: &[String]) -> Result<()> {
    let at = |i: &usize| paths[*i].as_str();
    match op {
        Op::Append(p, byte) => stage.append(at(p), &vec![*byte; usize::from(*byte)]),
        Op::Truncate(p, size) => {
            let size = Some(u64::from(*size));
            stage.change(
                at(p),
                Changes {
                    size,
                    ..Changes::default()
                },
            )
        }
        Op::Chmod(p, mode) => {
            let mode = Some(*mode);
            stage.change(
                at(p),
                Changes {
                    mode,
                    ..Changes::default()
                },
            )
        }
        Op::Mkdir(p) => stage.mkdir(at(p)),
        Op::Symlink(p) => stage.symlink(at(p), "/dev/null"),
        Op::Link(a, b) => stage.link(at(a), at(b)),
        Op::Unlink(p) => stage.unlink(at(p)),
        Op::Rmdir(p) => stage.rmdir(at(p)),
        Op::Rename(a, b) => stage.rename(at(a), at(b), 0),
        Op::NoReplace(a, b) => stage.rename(at(a), at(b), libc::RENAME_NOREPLACE),
        Op::Exchange(a, b) => stage.rename(at(a), at(b), libc::RENAME_EXCHANGE),
        Op::Touch(p, sec) => {
            let time = Some(SetTime::To((*sec, 5)));
            let (atime, mtime) = (time, time);
            stage.change(
                at(p),
                Changes {
                    atime,
                    mtime,
                    ..Changes::default()
                },
            )
        }
        Op::SetXattr(p, byte) => {
            let id = stage.attr(at(p))?.id;
            stage
                .overlay
                .setxattr(&me(), id, b"user.overlay.mine", &[*byte], 0)
        }
        Op::RemoveTree(p) => remove_tree(stage, at(p)),
        // The kernel forgets everything it knew.
        Op::Forget => {
            stage.again();
            Ok(())
        }
    }
}

/// What the kernel refuses before a file system is asked: a directory into itself or over what
/// holds it. The two sides need not agree on these.
fn is_the_kernels(op: &Op, paths: &[String]) -> bool {
    let inside = |a: &usize, b: &usize| {
        let (a, b) = (format!("{}/", paths[*a]), format!("{}/", paths[*b]));
        a.starts_with(&b) || b.starts_with(&a)
    };
    match op {
        Op::Rename(a, b) | Op::NoReplace(a, b) | Op::Exchange(a, b) => inside(a, b),
        _ => false,
    }
}

type Seen = BTreeMap<PathBuf, (u32, Vec<u8>, u32, Option<(i64, u32)>, Option<Vec<u8>>)>;

fn plain_tree(root: &Path, at: &Path, seen: &mut Seen) {
    for entry in fs::read_dir(root.join(at)).expect("lists") {
        let path = at.join(entry.expect("an entry").file_name());
        let full = root.join(&path);
        let meta = fs::symlink_metadata(&full).expect("stat");
        let content = if meta.is_symlink() {
            let target = fs::read_link(&full).expect("target");
            target.as_os_str().as_encoded_bytes().to_vec()
        } else if meta.is_file() {
            fs::read(&full).expect("reads")
        } else {
            Vec::new()
        };
        let own = (!meta.is_symlink())
            .then(|| xattr::get(&full, "user.overlay.mine").expect("attribute"))
            .flatten();
        let links = if meta.is_dir() {
            0
        } else {
            meta.nlink() as u32
        };
        let set = (meta.mtime_nsec() == 5).then(|| (meta.mtime(), 5));
        seen.insert(path.clone(), (meta.mode(), content, links, set, own));
        if meta.is_dir() {
            plain_tree(root, &path, seen);
        }
    }
}

fn merged_tree(stage: &Stage, at: &str, seen: &mut Seen) {
    for name in stage.names(at).expect("lists") {
        let path = if at.is_empty() {
            name
        } else {
            format!("{at}/{name}")
        };
        let attr = stage.attr(&path).expect("stat");
        let kind = attr.mode & libc::S_IFMT;
        let content = match kind {
            libc::S_IFLNK => stage.overlay.readlink(&me(), attr.id).expect("target"),
            libc::S_IFREG => stage.read(&path).expect("reads"),
            _ => Vec::new(),
        };
        let own = stage
            .overlay
            .getxattr(&me(), attr.id, b"user.overlay.mine")
            .ok();
        let links = if kind == libc::S_IFDIR { 0 } else { attr.nlink };
        let set = (attr.mtime.1 == 5).then_some(attr.mtime);
        seen.insert(PathBuf::from(&path), (attr.mode, content, links, set, own));
        if kind == libc::S_IFDIR {
            merged_tree(stage, &path, seen);
        }
    }
}

fn trees(stage: &Stage, twin: &Path) -> (Seen, Seen) {
    let (mut ours, mut native) = (Seen::new(), Seen::new());
    merged_tree(stage, "", &mut ours);
    plain_tree(twin, Path::new(""), &mut native);
    (ours, native)
}

fn without_links(seen: Seen) -> Seen {
    seen.into_iter()
        .map(|(path, (mode, content, _, set, own))| (path, (mode, content, 0, set, own)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("OVERLAY_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(60),
        max_shrink_iters: 2_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn an_overlay_does_what_a_directory_does(ops in prop::collection::vec(op(), 1..80)) {
        let paths = paths();
        let mut stage = Stage::new(fill);
        let twin = tempfile::tempdir().expect("a temporary directory");
        fill(twin.path());
        let mut before = Seen::new();
        plain_tree(&stage.lower(""), Path::new(""), &mut before);
        let mut forgot = false;
        for op in &ops {
            if is_the_kernels(op, &paths) {
                continue;
            }
            forgot |= matches!(op, Op::Forget);
            let ours = merged(op, &mut stage, &paths);
            let native = plain(op, twin.path(), &paths);
            prop_assert_eq!(ours, native, "{:?}", op);
        }
        let (ours, native) = trees(&stage, twin.path());
        if forgot {
            // How many names of a lower file were hidden is not written down anywhere.
            prop_assert_eq!(without_links(ours), without_links(native));
        } else {
            prop_assert_eq!(ours, native);
        }
        stage.again();
        let (ours, native) = trees(&stage, twin.path());
        prop_assert_eq!(without_links(ours), without_links(native), "made anew");
        let mut after = Seen::new();
        plain_tree(&stage.lower(""), Path::new(""), &mut after);
        prop_assert_eq!(before, after, "the lower was changed");
    }
}
