//! Extended attributes, access lists, owners, special mode bits.

use crate::support::{Capability, Tree, User, each_driver_and_user, require};

each_driver_and_user! {
    /// Attributes and access lists survive the first write, and are committed and taken back.
    fn attributes_and_access_lists(stage) {
        require!(stage, Capability::Program("setfattr"));
        require!(stage, Capability::Program("setfacl"));
        let both = stage.beside_twin(
            // Of others, who have no number inside, only the kernel's overlay carries lists over.
            &"echo 1 >f; setfattr -n user.k -v 1 f; setfacl -m u:65534:r,g:65533:rw f; mkdir d; \
             setfacl -m d:u:65534:rx d; echo 1 >only; echo 1 >less; setfattr -n user.gone -v x less"
                .replace("u:65534", &format!("u:{}", if stage.is_fuse() { stage.user.uid } else { 65534 }))
                .replace("g:65533", &format!("g:{}", if stage.is_fuse() { stage.user.gid } else { 65533 })),
            "echo 2 >>f; setfattr -n user.n -v 2 f; setfattr -n user.k -v 3 only; \
             setfattr -x user.gone less; mkdir d/new; setfattr -n user.dir -v y d; \
             setfattr -n user.overlay.opaque -v mine only; getfattr --only-values -n user.overlay.opaque only; \
             getfattr -d f | grep -c user; true",
        );
        both.both_print("mine2\n");
        assert_eq!(
            both.changes.lines(),
            ["added d/new", "meta d", "meta less", "meta only", "modified f"]
        );
    }
}

each_driver_and_user! {
    /// Set-user-ID and its companions, as they are set and as a write clears them.
    fn special_bits(stage) {
        let both = stage.beside_twin(
            "echo 1 >s; chmod 4755 s; echo 1 >g; chmod 2755 g; echo 1 >k; chmod 4711 k; mkdir t",
            "echo 2 >>s; echo 2 >>g; setfattr -n user.a -v b k 2>/dev/null; chmod 1777 t; echo 1 >n; chmod 6755 n; \
             stat -c '%n %a' s g k t n",
        );
        // What the kernel was told of a file's mode by our file server holds for up to a second.
        if !stage.is_fuse() {
            assert_eq!(both.staged.out(), both.native.out());
        }
        assert!(both.changes.has_risk("n", "special-mode"));
        assert!(both.changes.has_risk("t", "special-mode"));
    }
}

each_driver_and_user! {
    /// Times in nanoseconds, of files, links and directories, also before 1970 and far ahead.
    fn times(stage) {
        let both = stage.beside_twin(
            "for n in a b c; do echo $n >$n; done; ln -s a l; mkdir d",
            "touch -d '2020-01-02 03:04:05.123456789' a; touch -d '1960-01-01 00:00:01' b; \
             touch -d '2100-01-01' c; touch -h -d '2001-01-01 00:00:00.5' l; touch -d '2002-02-02' d; \
             stat -c '%n %.9Y' a b c l d",
        );
        assert_eq!(both.staged.out(), both.native.out());
        let lines = both.changes.lines();
        for name in ["a", "b", "c", "l"] {
            assert!(lines.contains(&format!("meta {name}")), "{name} in {lines:?}");
        }
    }
}

each_driver_and_user! {
    /// Files of somebody else in the workspace. What may not be done is EACCES or EPERM; the
    /// kernel's overlay adds EOVERFLOW where it would have to copy them.
    fn files_of_another_owner(stage) {
        require!(stage, Capability::Root);
        require!(stage, Capability::Program("python3"));
        let path = |name: &str| stage.workspace.join(name);
        for name in ["f", "open", "kept", "gone"] {
            std::fs::write(path(name), "1\n").unwrap();
            std::os::unix::fs::chown(path(name), Some(1502), Some(1502)).unwrap();
        }
        std::fs::set_permissions(path("open"), std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        std::fs::create_dir(path("d")).unwrap();
        std::fs::write(path("d/g"), "1\n").unwrap();
        std::fs::set_permissions(path("d"), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        for name in ["d", "d/g"] {
            std::os::unix::fs::chown(path(name), Some(1502), Some(1502)).unwrap();
        }
        let before = Tree::of(&stage.workspace);
        let done = stage.run(
            "python3 -c \"
import errno, os
def says(call):
    try:
        call(); return 'ok'
    except OSError as e:
        return errno.errorcode[e.errno]
print(says(lambda: open('f', 'a').write('x')))
print(says(lambda: os.write(os.open('open', os.O_WRONLY), b'x')))
print(says(lambda: os.chmod('f', 0o600)))
print(says(lambda: os.rename('f', 'h')))
print(says(lambda: os.unlink('d/g')))
print(says(lambda: open('d/new', 'w').write('x')))
print(says(lambda: os.unlink('gone')))
print(open('kept').read().strip())\"",
        );
        let out = done.out();
        let said: Vec<_> = out.lines().collect();
        // Nobody but the caller has a number inside. The kernel's overlay cannot copy such a file,
        // nor the directory in which a name is to go; our file server shows it as the caller's own
        // and refuses what would need its owner, while names are up to their directory.
        let expected = if stage.is_fuse() {
            ["EACCES", "EPERM", "EPERM", "EPERM", "ok", "ok", "ok", "1"]
        } else {
            ["EACCES", "EOVERFLOW", "EPERM", "EOVERFLOW", "EOVERFLOW", "EOVERFLOW", "ok", "1"]
        };
        assert_eq!(said, expected, "{done}");
        let lines = stage.changes().lines();
        stage.pvisor(["commit", "--all"]).ok();
        let expected: &[&str] = if stage.is_fuse() {
            &["added d/new", "deleted d/g", "deleted gone"]
        } else {
            &["deleted gone"]
        };
        assert_eq!(lines, expected);
        assert!(!stage.has("gone"));
        assert_eq!(stage.has("d/g"), !stage.is_fuse());
        let owner = |name: &str| {
            let meta = path(name).symlink_metadata().unwrap();
            (std::os::unix::fs::MetadataExt::uid(&meta), std::os::unix::fs::MetadataExt::gid(&meta))
        };
        assert_eq!((owner("kept"), owner("d"), owner("open")), ((1502, 1502), (1502, 1502), (1502, 1502)));
        assert_eq!(owner("f"), (1502, 1502));
        if !lines.is_empty() {
            stage.pvisor(["undo"]).ok();
        }
        before.assert_same(&Tree::of(&stage.workspace), "undo");
        assert!(User::ordinary().is_ok());
    }
}
