//! The bare system calls of a commit, without a session, a plan or a comparison: what there is to
//! pay for the promise alone. Every new file is written beside its destination and hashed, under a
//! lease on the staged one; `syncfs`; under a lease on the old file the two change names, and what
//! came out is looked at; `syncfs`; what came out is kept. A ledger is synced before the first file,
//! before the first name changes, and at the end.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::libc;
use pvisor::layer::Digest;

/// Brings the files below `new` to `target`: what that took.
pub fn apply(new: &Path, target: &Path) -> Duration {
    let store = target.with_extension("store");
    let begun = Instant::now();
    fs::create_dir(&store).expect("a store");
    let mut ledger = File::create(store.join("ledger")).expect("a ledger");
    let root = File::open(target).expect("the target");
    let paths = files(new);
    let note = |ledger: &mut File, word: &str| {
        let mut text = Vec::new();
        for path in &paths {
            writeln!(text, "{word} {}", path.display()).expect("written");
        }
        ledger.write_all(&text).expect("written");
        ledger.sync_data().expect("synced");
    };
    note(&mut ledger, "planned");
    File::open(&store)
        .and_then(|dir| dir.sync_all())
        .expect("synced");
    for path in &paths {
        stage(&new.join(path), &aside(target, path));
    }
    nix::unistd::syncfs(&root).expect("synced");
    note(&mut ledger, "prepared");
    let leases: Vec<Option<File>> = paths
        .iter()
        .map(|path| publish(&target.join(path), &aside(target, path)))
        .collect();
    let stands = |file: &File| lease(file, libc::F_GETLEASE, 0) == Ok(libc::F_RDLCK);
    assert!(
        leases.iter().flatten().all(stands),
        "nobody else is at work"
    );
    nix::unistd::syncfs(&root).expect("synced");
    note(&mut ledger, "committed");
    for (number, path) in paths.iter().enumerate() {
        if leases[number].is_some() {
            let kept = store.join(number.to_string());
            fs::rename(aside(target, path), kept).expect("it is kept");
        }
    }
    fs::rename(store.join("ledger"), store.join("record")).expect("it is closed");
    let took = begun.elapsed();
    fs::remove_dir_all(store).expect("the store goes");
    took
}

/// Regular files, relative to `top`.
fn files(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![top.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path.strip_prefix(top).expect("below it").to_owned());
            }
        }
    }
    found
}

fn aside(target: &Path, path: &Path) -> PathBuf {
    let name = path.file_name().expect("a file").to_str().expect("text");
    target.join(path).with_file_name(format!(".aside-{name}"))
}

fn stage(from: &Path, to: &Path) {
    let source = File::open(from).expect("a staged file");
    lease(&source, libc::F_SETLEASE, libc::F_RDLCK).expect("nobody writes it");
    let bytes = fs::read(from).expect("read");
    assert_ne!(Digest::of(&bytes), Digest::of(b""), "it has content");
    let mut made = File::create_new(to).expect("a new file");
    made.write_all(&bytes).expect("written");
    let meta = source.metadata().expect("stat");
    let mode = fs::Permissions::from_mode(meta.mode() & 0o7777);
    made.set_permissions(mode).expect("chmod");
    made.set_modified(meta.modified().expect("a time"))
        .expect("utimens");
}

/// The lease on what was there, if something was.
fn publish(place: &Path, aside: &Path) -> Option<File> {
    let rename = |flags| renameat2(AT_FDCWD, aside, AT_FDCWD, place, flags).expect("renamed");
    let Ok(old) = File::open(place) else {
        rename(RenameFlags::RENAME_NOREPLACE);
        return None;
    };
    lease(&old, libc::F_SETLEASE, libc::F_RDLCK).expect("nobody writes it");
    let meta = old.metadata().expect("stat");
    rename(RenameFlags::RENAME_EXCHANGE);
    let out = fs::symlink_metadata(aside).expect("stat");
    assert_eq!((out.dev(), out.ino()), (meta.dev(), meta.ino()));
    Some(old)
}

fn lease(file: &File, call: i32, kind: i32) -> Result<i32, Errno> {
    // SAFETY: the call takes numbers only, and the descriptor is open.
    Errno::result(unsafe { libc::fcntl(file.as_raw_fd(), call, kind) })
}
