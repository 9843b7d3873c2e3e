//! Files without a handle, and what rules speak of when paths change.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::super::{Access, Attempt, Changes, Errno, Guard, NO_HANDLE, Options, Refusal};
use super::fixture::{Stage, me};
use crate::RelPath;

fn bytes(stage: &Stage, id: u64) -> Vec<u8> {
    let mut buffer = [0; 64];
    let length = stage
        .overlay
        .read(&me(), id, NO_HANDLE, 0, &mut buffer)
        .expect("reads");
    buffer[..length].to_vec()
}

#[test]
fn the_first_write_brings_a_file_into_the_upper_and_leaves_nothing_open_for_writing() {
    let stage = Stage::new(|lower| fs::write(lower.join("f"), "low").expect("writes"));
    let id = stage.attr("f").expect("f").id;
    assert_eq!(bytes(&stage, id), b"low");
    assert!(!stage.upper("f").exists(), "nothing is copied for a reader");
    let written = stage.overlay.write(&me(), (id, NO_HANDLE), 3, b"er", false);
    assert_eq!(written, Ok(2));
    assert_eq!(bytes(&stage, id), b"lower");
    assert_eq!(fs::read(stage.lower("f")).expect("lower"), b"low");
    // A read lease is refused as long as anybody could write (fcntl(2)).
    let file = File::open(stage.upper("f")).expect("upper");
    // SAFETY: a call with numbers only, on an open descriptor.
    let leased = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) };
    assert_eq!(leased, 0, "{}", Errno::last());
}

#[test]
fn a_removed_file_is_read_and_written_until_it_is_forgotten() {
    let stage = Stage::new(|lower| {
        fs::write(lower.join("low"), "low").expect("writes");
        fs::write(lower.join("other"), "other").expect("writes");
    });
    stage.append("up", b"up").expect("makes");
    for name in ["low", "up"] {
        let id = stage.attr(name).expect(name).id;
        let named = (super::super::ROOT, name.as_bytes());
        stage
            .overlay
            .unlink(&me(), named.0, named.1)
            .expect("removes");
        assert_eq!(bytes(&stage, id), name.as_bytes());
        let file = (id, NO_HANDLE);
        assert_eq!(stage.overlay.write(&me(), file, 0, b"x", false), Ok(1));
        assert_eq!(bytes(&stage, id), [b"x", &name.as_bytes()[1..]].concat());
        let cut = Changes {
            size: Some(1),
            ..Changes::default()
        };
        let attr = stage.overlay.setattr(&me(), id, None, &cut).expect("cuts");
        assert_eq!((attr.size, attr.nlink), (1, 0));
        assert_eq!(stage.attr(name), Err(Errno::ENOENT));
        stage.overlay.forget(id, u64::MAX);
        assert_eq!(
            stage.overlay.read(&me(), id, NO_HANDLE, 0, &mut [0]),
            Err(Errno::ESTALE)
        );
    }
    assert_eq!(fs::read(stage.lower("low")).expect("lower"), b"low");
}

#[test]
fn a_replaced_file_goes_on_as_it_was_and_a_cut_one_loses_its_special_bits() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::new(|lower| {
        fs::write(lower.join("f"), "old").expect("writes");
        fs::set_permissions(lower.join("f"), fs::Permissions::from_mode(0o6755)).expect("modes");
    });
    let old = stage.attr("f").expect("f").id;
    let cut = Changes {
        size: Some(2),
        ..Changes::default()
    };
    let attr = stage.overlay.setattr(&me(), old, None, &cut).expect("cuts");
    assert_eq!(attr.mode & 0o7777, 0o755);
    stage.append("new", b"new").expect("makes");
    let root = super::super::ROOT;
    stage
        .overlay
        .rename(&me(), (root, b"new"), (root, b"f"), 0)
        .expect("renames");
    assert_eq!(bytes(&stage, old), b"ol");
    assert_eq!(bytes(&stage, stage.attr("f").expect("f").id), b"new");
}

/// A rule on everything below `secret`.
struct Secret;

impl Guard for Secret {
    fn permit(&self, attempt: &Attempt<'_>) -> Result<(), Refusal> {
        if self.concerns(attempt.layer, attempt.path) && attempt.access != Access::Lookup {
            Err(Refusal::Denied)
        } else {
            Ok(())
        }
    }

    fn lists(&self, _: &str, _: &RelPath) -> bool {
        true
    }

    fn protects_below(&self, _: &str, _: &RelPath) -> bool {
        false
    }

    fn observed(&self, _: &str, _: &RelPath, _: Access, _: u64) {}

    fn concerns(&self, _: &str, path: &RelPath) -> bool {
        path.as_bytes().starts_with(b"secret/")
    }

    fn observes(&self) -> bool {
        false
    }
}

#[test]
fn a_rule_speaks_of_what_is_moved_below_it() {
    let stage = Stage::with(Options::default(), Arc::new(Secret), |lower| {
        fs::create_dir_all(lower.join("open/in")).expect("makes");
        fs::write(lower.join("open/in/f"), "x").expect("writes");
    });
    let id = stage.attr("open/in/f").expect("f").id;
    let open = |flags| stage.overlay.open(&me(), id, flags).map(|_| ());
    assert_eq!(open(libc::O_RDONLY), Ok(()));
    let root = super::super::ROOT;
    stage
        .overlay
        .rename(&me(), (root, b"open"), (root, b"secret"), 0)
        .expect("renames");
    assert_eq!(open(libc::O_RDONLY), Err(Errno::EACCES));
    assert_eq!(open(libc::O_RDWR), Err(Errno::EACCES));
    assert!(stage.attr("secret/in/f").expect("f").guarded);
    stage
        .overlay
        .rename(&me(), (root, b"secret"), (root, b"open"), 0)
        .expect("renames");
    assert_eq!(open(libc::O_RDWR), Ok(()));
    assert!(!stage.attr("open/in/f").expect("f").guarded);
}

/// Remarks on what is asked about `noted`; whose other name, `alias`, is protected.
#[derive(Default)]
struct Noting(std::sync::Mutex<Vec<(Access, u32)>>);

impl Guard for Noting {
    fn permit(&self, attempt: &Attempt<'_>) -> Result<(), Refusal> {
        if attempt.alias.is_some() {
            return Err(Refusal::Denied);
        }
        if attempt.access != Access::Lookup {
            let mut asked = self.0.lock().expect("a lock");
            asked.push((attempt.access, attempt.pid));
        }
        Ok(())
    }

    fn lists(&self, _: &str, _: &RelPath) -> bool {
        true
    }

    fn protects_below(&self, _: &str, _: &RelPath) -> bool {
        false
    }

    fn observed(&self, _: &str, _: &RelPath, _: Access, _: u64) {}

    fn concerns(&self, _: &str, path: &RelPath) -> bool {
        path.as_bytes() == b"noted"
    }

    fn settles_by_lookup(&self) -> bool {
        true
    }

    fn observes(&self) -> bool {
        false
    }
}

#[test]
fn what_nobody_opens_is_asked_about_when_it_is_found_and_when_it_is_read() {
    let guard = Arc::new(Noting::default());
    let stage = Stage::with(Options::default(), guard.clone(), |lower| {
        fs::write(lower.join("noted"), "n").expect("writes");
        fs::write(lower.join("plain"), "p").expect("writes");
        fs::write(lower.join("alias"), "secret").expect("writes");
        fs::create_dir(lower.join("d")).expect("makes");
        fs::hard_link(lower.join("alias"), lower.join("d/other")).expect("links");
    });
    stage.overlay.serve_by_node();
    let asked = || std::mem::take(&mut *guard.0.lock().expect("a lock"));
    let noted = stage.attr("noted").expect("noted");
    assert!(noted.guarded);
    assert_eq!(bytes(&stage, noted.id), b"n");
    assert_eq!(bytes(&stage, noted.id), b"n");
    assert_eq!(asked(), [(Access::Read, me().pid)]);
    let plain = stage.attr("plain").expect("plain");
    assert_eq!(bytes(&stage, plain.id), b"p");
    assert_eq!(asked(), []);
    // The name itself says nothing of the rule on the other one.
    assert_eq!(stage.attr("alias").map(|attr| attr.id), Err(Errno::EACCES));
    assert_eq!(
        stage.attr("d/other").map(|attr| attr.id),
        Err(Errno::EACCES)
    );
    let root = super::super::ROOT;
    let moved = stage.overlay.rename(&me(), (root, b"d"), (root, b"e"), 0);
    assert_eq!(moved, Err(Errno::EACCES), "a copy would be free");
}

#[test]
fn what_is_written_after_one_name_went_shows_under_the_other() {
    let stage = Stage::new(|lower| {
        fs::create_dir(lower.join("d")).expect("makes");
        fs::write(lower.join("d/other"), "low").expect("writes");
        fs::hard_link(lower.join("d/other"), lower.join("f")).expect("links");
    });
    let id = stage.attr("f").expect("f").id;
    let root = super::super::ROOT;
    stage.overlay.unlink(&me(), root, b"f").expect("removes");
    let written = stage.overlay.write(&me(), (id, NO_HANDLE), 3, b"er", false);
    assert_eq!(written, Ok(2));
    let other = stage.attr("d/other").expect("other");
    assert_eq!((other.id, other.size, other.nlink), (id, 5, 1));
    assert_eq!(bytes(&stage, other.id), b"lower");
    assert_eq!(fs::read(stage.upper("d/other")).expect("upper"), b"lower");
    assert_eq!(stage.attr("f"), Err(Errno::ENOENT));
}
