//! Deviations that random scripts leave out, each pinned to exactly what happens: when a driver
//! learns one, its test fails and the table is to be shortened.

use super::deviations::Driver;
use super::runner::setting;
use super::script::{Bytes, Data, Flags, Op, Over, Room, Script};
use super::twin::{Setting, Stage, compare};

/// Name and test.
pub const TESTS: &[(&str, fn())] = &[
    ("pinned_lower_links_are_split", lower_links),
    ("pinned_removed_entries_keep_their_mode", removed),
    ("pinned_inner_holes_are_filled", inner_holes),
    ("pinned_lower_marks_are_not_shown", lower_marks),
    ("pinned_lower_directories_need_the_shim", dir_renames),
    ("pinned_fuse_has_no_tmpfile", no_tmpfile),
    ("pinned_fuse_has_no_collapse", no_collapse),
];

fn file(path: &str, len: u32) -> [Op; 2] {
    let flags = Flags {
        write: true,
        create: true,
        ..Flags::default()
    };
    [
        Op::Touch {
            path: path.into(),
            flags,
            mode: 0o644,
        },
        Op::Write {
            path: path.into(),
            at: 0,
            data: Data { seed: 3, len },
        },
    ]
}

fn append(path: &str) -> Op {
    Op::Append {
        path: path.into(),
        data: Data { seed: 5, len: 10 },
    }
}

fn stat(path: &str) -> Op {
    Op::Stat {
        path: path.into(),
        follow: false,
    }
}

/// Demands that this script differs, for root and for an ordinary user, in exactly this way.
fn differs(driver: Driver, change: impl Fn(&mut Setting), tree: &[Op], ops: &[Op], class: &str) {
    for root in [true, false] {
        let Some(mut setting) = setting(class, driver, root) else {
            continue;
        };
        change(&mut setting);
        let script = Script {
            about: class.into(),
            umask: 0o022,
            tree: tree.to_vec(),
            ops: ops.to_vec(),
        };
        let (_, found) = compare(&setting, &script, Stage::Commit);
        let found = found.map(|found| found.class);
        assert_eq!(found.as_deref(), Some(class), "{}", setting.name());
    }
}

fn lower_links() {
    let mut tree = file("a", 30).to_vec();
    tree.push(Op::Link {
        from: "a".into(),
        to: "b".into(),
    });
    let ops = [append("a"), stat("b")];
    differs(Driver::Overlayfs, |_| {}, &tree, &ops, "stat sees");
}

fn removed() {
    let flags = Flags {
        read: true,
        ..Flags::default()
    };
    let ops = [
        Op::Open {
            slot: 0,
            path: "a".into(),
            flags,
            mode: 0,
        },
        Op::Unlink { path: "a".into() },
        Op::FdChmod {
            slot: 0,
            mode: 0o600,
        },
    ];
    let class = "fd-chmod 0 <> EEXIST";
    differs(Driver::Overlayfs, |_| {}, &file("a", 30), &ops, class);
}

fn inner_holes() {
    let mut tree = file("a", 30).to_vec();
    tree.push(Op::Truncate {
        path: "a".into(),
        len: 400_000,
    });
    let ops = [append("a")];
    differs(Driver::Overlayfs, |_| {}, &tree, &ops, "holes");
}

fn lower_marks() {
    let mut tree = file("a", 30).to_vec();
    tree.push(Op::SetXattr {
        path: "a".into(),
        name: "user.overlay.mine".into(),
        value: Bytes::from("1"),
    });
    let ops = [Op::Xattrs { path: "a".into() }];
    differs(Driver::Overlayfs, |_| {}, &tree, &ops, "xattrs sees");
}

fn dir_renames() {
    let tree = [Op::Mkdir {
        path: "d".into(),
        mode: 0o755,
    }];
    let ops = [Op::Rename {
        from: "d".into(),
        to: "e".into(),
        over: Over::Replace,
    }];
    let without = |setting: &mut Setting| setting.flags.push("--no-rename-shim".into());
    differs(Driver::Overlayfs, without, &tree, &ops, "rename 0 <> EXDEV");
}

fn no_tmpfile() {
    let ops = [Op::Tmpfile {
        dir: Bytes::default(),
        path: "t".into(),
        mode: 0o600,
        data: Data { seed: 3, len: 5 },
    }];
    let class = "tmpfile 0 <> EOPNOTSUPP";
    differs(Driver::Fuse, |_| {}, &[], &ops, class);
}

fn no_collapse() {
    let ops = [Op::Allocate {
        path: "a".into(),
        room: Room::Collapse,
        at: 0,
        len: 4096,
    }];
    let class = "allocate 0 <> EOPNOTSUPP";
    differs(Driver::Fuse, |_| {}, &file("a", 20_000), &ops, class);
}
