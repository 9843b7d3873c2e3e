//! Single behaviours that random operations rarely meet.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::sync::{Arc, Mutex};

use super::super::{Access, Attempt, Changes, Errno, Guard, Options, ROOT, Refusal, Unguarded};
use super::fixture::{Stage, me};
use crate::RelPath;

fn write(path: impl AsRef<std::path::Path>, content: &str) {
    fs::write(path, content).expect("writes");
}

#[test]
fn a_name_the_lower_never_had_leaves_no_whiteout() {
    let stage = Stage::new(|lower| write(lower.join("a"), "1"));
    stage.append("t", b"x").expect("makes");
    stage.rename("t", "a", 0).expect("replaces");
    stage.append("u", b"y").expect("makes");
    stage.unlink("u").expect("removes");
    let names: Vec<_> = fs::read_dir(stage.upper("")).expect("lists").collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(stage.read("a"), Ok(b"x".to_vec()));
}

#[test]
fn a_directory_made_over_a_whiteout_is_opaque_and_empty() {
    let stage = Stage::new(|lower| {
        fs::create_dir(lower.join("d")).expect("makes");
        write(lower.join("d/old"), "1");
    });
    stage.unlink("d/old").expect("removes");
    stage.rmdir("d").expect("removes");
    let whiteout = fs::symlink_metadata(stage.upper("d")).expect("stat");
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
    stage.mkdir("d").expect("makes");
    assert_eq!(stage.names("d"), Ok(vec![]));
    let mark = xattr::get(stage.upper("d"), "user.overlay.opaque").expect("attribute");
    assert_eq!(mark.as_deref(), Some(b"y" as &[u8]));
    let id = stage.attr("d").expect("stat").id;
    assert_eq!(
        stage.overlay.listxattr(&me(), id),
        Ok(vec![]),
        "a mark shows"
    );
}

#[test]
fn a_copy_up_keeps_number_mode_times_holes_and_the_parents_time() {
    let stage = Stage::new(|lower| {
        fs::create_dir(lower.join("d")).expect("makes");
        let file = fs::File::create(lower.join("d/f")).expect("makes");
        file.set_len(64 << 20).expect("size");
        let mode = fs::Permissions::from_mode(0o4751);
        fs::set_permissions(lower.join("d/f"), mode).expect("chmod");
        xattr::set(lower.join("d/f"), "user.overlay.opaque", b"mine").expect("attribute");
    });
    let (before, above) = (stage.attr("d/f").expect("f"), stage.attr("d").expect("d"));
    let change = Changes {
        atime: Some(super::super::SetTime::Now),
        ..Changes::default()
    };
    stage.change("d/f", change).expect("touches");
    let after = stage.attr("d/f").expect("f");
    assert_eq!(
        (before.id, before.mode, before.mtime, before.size),
        (after.id, after.mode, after.mtime, after.size)
    );
    assert_eq!(above.mtime, stage.attr("d").expect("d").mtime);
    let copy = fs::metadata(stage.upper("d/f")).expect("stat");
    assert!(copy.blocks() < 64, "{} blocks", copy.blocks());
    let own = stage
        .overlay
        .getxattr(&me(), after.id, b"user.overlay.opaque");
    assert_eq!(own, Ok(b"mine".to_vec()));
    let stored = xattr::get(stage.upper("d/f"), "user.overlay.overlay.opaque");
    assert_eq!(
        stored.expect("attribute").as_deref(),
        Some(b"mine" as &[u8])
    );
}

#[test]
fn hard_links_of_the_lower_are_copied_up_as_one_file() {
    let stage = Stage::new(|lower| {
        fs::create_dir(lower.join("far")).expect("makes");
        write(lower.join("f"), "a");
        fs::hard_link(lower.join("f"), lower.join("g")).expect("links");
        fs::hard_link(lower.join("f"), lower.join("far/h")).expect("links");
    });
    let id = stage.attr("f").expect("f").id;
    stage.append("f", b"b").expect("appends");
    let inodes: Vec<u64> = ["f", "g", "far/h"]
        .map(|name| fs::metadata(stage.upper(name)).expect("in the upper").ino())
        .to_vec();
    assert!(inodes.iter().all(|ino| *ino == inodes[0]), "{inodes:?}");
    let h = stage.attr("far/h").expect("h");
    assert_eq!((h.id, h.nlink), (id, 3));
    assert_eq!(stage.read("g"), Ok(b"ab".to_vec()));
    assert_eq!(fs::read(stage.lower("g")).expect("reads"), b"a");
}

#[test]
fn a_removed_open_file_goes_on() {
    let stage = Stage::new(|lower| write(lower.join("f"), "low"));
    let id = stage.attr("f").expect("f").id;
    let opened = stage
        .overlay
        .open(&me(), id, libc::O_RDONLY)
        .expect("opens");
    stage.unlink("f").expect("removes");
    assert_eq!(stage.attr("f"), Err(Errno::ENOENT));
    let attr = stage
        .overlay
        .getattr(id, Some(opened.handle))
        .expect("stat");
    assert_eq!((attr.id, attr.nlink, attr.size), (id, 0, 3));
    let mode = Changes {
        mode: Some(0o600),
        ..Changes::default()
    };
    let attr = stage
        .overlay
        .setattr(&me(), id, None, &mode)
        .expect("chmod");
    assert_eq!((attr.mode & 0o777, attr.nlink), (0o600, 0));
    let mut buffer = [0; 8];
    let length = stage
        .overlay
        .read(&me(), id, opened.handle, 0, &mut buffer)
        .expect("reads");
    assert_eq!(&buffer[..length], b"low");
    assert_eq!(fs::read(stage.lower("f")).expect("reads"), b"low");
}

#[test]
fn a_descriptor_from_before_the_copy_up_sees_what_is_written() {
    let stage = Stage::new(|lower| write(lower.join("f"), "a"));
    let id = stage.attr("f").expect("f").id;
    let opened = stage
        .overlay
        .open(&me(), id, libc::O_RDONLY)
        .expect("opens");
    stage.append("f", b"b").expect("appends");
    let mut buffer = [0; 8];
    let length = stage
        .overlay
        .read(&me(), id, opened.handle, 0, &mut buffer)
        .expect("reads");
    assert_eq!(&buffer[..length], b"ab");
}

#[test]
fn a_listing_stays_where_it_is_while_entries_go() {
    let stage = Stage::new(|lower| {
        for n in 0..300 {
            write(lower.join(format!("f{n}")), "");
        }
    });
    let listing = stage.overlay.opendir(&me(), ROOT).expect("opens");
    let (mut offset, mut seen) = (0, 0);
    loop {
        let (mut batch, from) = (Vec::new(), offset);
        let add = |entry: &super::super::Entry, next: u64| {
            if batch.len() == 7 {
                return true;
            }
            batch.push(entry.clone());
            offset = next;
            false
        };
        stage
            .overlay
            .readdir(listing.handle, from, add)
            .expect("lists");
        if batch.is_empty() {
            break;
        }
        for entry in batch.iter().filter(|e| !e.name.starts_with(b".")) {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            assert_eq!(stage.attr(&name).expect("stat").id, entry.id);
            stage.unlink(&name).expect("removes");
            seen += 1;
        }
    }
    assert_eq!(seen, 300);
    assert_eq!(stage.names(""), Ok(vec![]));
}

#[test]
fn the_lowers_owner_may_edit_it_meanwhile() {
    let stage = Stage::new(|lower| write(lower.join("f"), "one"));
    let first = stage.attr("f").expect("f").id;
    write(stage.lower("new"), "three");
    fs::rename(stage.lower("new"), stage.lower("f")).expect("replaces");
    assert_ne!(stage.attr("f").expect("f").id, first);
    assert_eq!(stage.read("f"), Ok(b"three".to_vec()));
    assert_eq!(stage.overlay.getattr(first, None), Err(Errno::ESTALE));
}

#[test]
fn beyond_the_budget_there_is_no_space() {
    let options = Options {
        budget: Some(1 << 20),
        ..Options::default()
    };
    let stage = Stage::with(options, Arc::new(Unguarded), |_| {});
    let half = vec![b'x'; 512 * 1024];
    stage.append("a", &half).expect("fits");
    assert_eq!(
        stage.append("b", &[half.clone(), half.clone()].concat()),
        Err(Errno::ENOSPC)
    );
    stage.unlink("a").expect("removes");
    stage.append("b", &half).expect("fits again");
}

#[test]
fn an_immutable_lower_is_looked_at_once() {
    let options = Options {
        immutable_lower: true,
        ..Options::default()
    };
    let stage = Stage::with(options, Arc::new(Unguarded), |lower| {
        write(lower.join("f"), "x");
    });
    stage.attr("f").expect("f");
    let before = stage.overlay.counting().now();
    let id = stage.attr("f").expect("f").id;
    stage.overlay.getattr(id, None).expect("stat");
    let after = stage.overlay.counting().now();
    assert_eq!(after.cache_hits - before.cache_hits, 2);
    stage.append("f", b"y").expect("appends");
    assert_eq!(stage.attr("f").expect("f").size, 2);
}

/// Denies whatever is called `secret`.
#[derive(Default)]
struct Strict {
    asked: Mutex<Vec<(String, Access)>>,
}

impl Guard for Strict {
    fn permit(&self, attempt: &Attempt<'_>) -> Result<(), Refusal> {
        let path = String::from_utf8_lossy(attempt.path.as_bytes()).into_owned();
        self.asked
            .lock()
            .expect("lock")
            .push((path.clone(), attempt.access));
        if path.contains("secret") {
            Err(Refusal::Denied)
        } else {
            Ok(())
        }
    }

    fn lists(&self, _: &str, path: &RelPath) -> bool {
        !path.as_bytes().ends_with(b"secret")
    }

    fn protects_below(&self, _: &str, directory: &RelPath) -> bool {
        directory.as_bytes() == b"d"
    }

    fn observed(&self, _: &str, _: &RelPath, _: Access, _: u64) {}

    fn observes(&self) -> bool {
        false
    }
}

#[test]
fn the_guard_is_asked_and_obeyed() {
    let stage = Stage::with(Options::default(), Arc::new(Strict::default()), |lower| {
        fs::create_dir(lower.join("d")).expect("makes");
        write(lower.join("d/secret"), "s");
        write(lower.join("open"), "o");
    });
    assert_eq!(stage.names("d"), Ok(vec![]));
    assert_eq!(stage.attr("d/secret"), Err(Errno::EACCES));
    assert_eq!(stage.rename("d", "e", 0), Err(Errno::EACCES));
    assert_eq!(stage.rmdir("d"), Err(Errno::EACCES));
    assert_eq!(stage.rename("open", "secret", 0), Err(Errno::EACCES));
    assert_eq!(stage.link("open", "secret"), Err(Errno::EACCES));
    stage.rename("open", "shut", 0).expect("nothing against it");
}

#[test]
fn inode_flags_are_the_files_own_and_change_in_the_upper() {
    let stage = Stage::new(|lower| {
        write(lower.join("f"), "1");
        fs::create_dir(lower.join("d")).expect("makes");
    });
    let (file, dir) = (
        stage.attr("f").expect("f").id,
        stage.attr("d").expect("d").id,
    );
    let Ok(before) = stage.overlay.flags(file) else {
        eprintln!("skipped: no inode flags in the directory of temporary files");
        return;
    };
    let nodump = before | 0x40;
    assert_eq!(stage.overlay.set_flags(&me(), file, before), Ok(()));
    assert!(!stage.upper("f").exists(), "nothing was asked for");
    let immutable = stage.overlay.set_flags(&me(), file, before | 0x10);
    assert_eq!(immutable, Err(Errno::EPERM));
    let compressed = stage.overlay.set_flags(&me(), file, before ^ 0x4);
    assert_eq!(compressed, Err(Errno::EOPNOTSUPP));
    assert!(!stage.upper("f").exists(), "what is refused copies nothing");
    assert_eq!(stage.overlay.set_flags(&me(), file, nodump), Ok(()));
    assert_eq!(stage.overlay.flags(file), Ok(nodump));
    assert!(stage.upper("f").exists());
    assert_eq!(stage.read("f"), Ok(b"1".to_vec()));
    let before = stage.overlay.flags(dir).expect("flags of a directory");
    assert_eq!(stage.overlay.set_flags(&me(), dir, before | 0x80), Ok(()));
    assert_eq!(stage.overlay.flags(dir), Ok(before | 0x80));
    let told = stage.overlay.extended_flags(file).expect("told");
    assert_eq!(stage.overlay.set_extended_flags(file, &told), Ok(()));
}
