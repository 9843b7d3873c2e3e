//! Faults that another tool of this kind has, each as the shortest job that shows it; none of them
//! may be found here. Where a driver cannot do what the job asks, exactly its answer is demanded.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;

use crate::support::small_disk::{Kind, SmallDisk};
use crate::support::{Call, Capability, Terminal, each_driver_and_user, require};

each_driver_and_user! {
    /// Entries without an inode number, which C libraries take for none.
    fn fault_01_listings_are_complete(stage) {
        let both = stage.beside_twin(
            "mkdir d; for i in $(seq 300); do : >d/f$i; done",
            "find d -type f | wc -l; ls d | wc -l; echo d/* | wc -w; rm -r d; ls",
        );
        both.both_print("300\n300\n300\n");
    }
}

each_driver_and_user! {
    /// A commit that removes the old place first and then has nowhere to put the new one.
    fn fault_01a_a_move_into_a_new_directory_loses_nothing(stage) {
        stage.beside_twin("mkdir e; echo 2 >e/n", "mkdir k; mv e k/; cat k/e/n").both_print("2\n");
    }
}

each_driver_and_user! {
    /// A conflict that the commit caused itself.
    fn fault_01b_removals_below_a_directory_conflict_with_nobody(stage) {
        for job in ["rm -r d/s", "mv e d", "mv d/s d/t"] {
            stage.beside_twin("rm -rf d e; mkdir -p d/s e; echo 1 >d/s/o; echo 2 >e/n; echo 3 >d/g", job);
        }
    }
}

each_driver_and_user! {
    fn fault_02_files_are_made_by_opening_them_for_reading(stage) {
        require!(stage, Capability::Program("python3"));
        let both = stage.beside_twin(
            "true",
            "flock lock echo held; python3 -c \"import os; print(os.read(os.open('p', os.O_CREAT, 0o600), 1))\"",
        );
        both.both_print("held\nb''\n");
    }
}

each_driver_and_user! {
    fn fault_03_holes_are_not_filled(stage) {
        stage.run("truncate -s 1G new; echo end >>new");
        stage.pvisor(["commit", "--all"]).ok();
        let meta = stage.workspace.join("new").metadata().unwrap();
        assert_eq!(meta.len(), (1 << 30) + 4);
        assert!(meta.blocks() < 64, "{} blocks", meta.blocks());
    }
}

each_driver_and_user! {
    fn fault_04_access_lists_are_kept(stage) {
        require!(stage, Capability::Program("setfacl"));
        if !stage.is_fuse() {
            let both = stage.beside_twin("echo 1 >f; setfacl -m u:1502:r f", "echo 2 >>f");
            assert_eq!(both.changes.lines(), ["modified f"]);
            return;
        }
        // Our file server cannot write down somebody who has no number inside: it refuses the
        // write rather than lose the list. A list of the user's own is carried over.
        stage.host_ok("echo 1 >f; setfacl -m u:1502:r f");
        let before = stage.tree();
        let done = stage.run("cat f; echo 2 >>f || echo refused");
        assert_eq!(done.out(), "1\nrefused\n", "{done}");
        assert_eq!(stage.changes().lines(), Vec::<String>::new());
        before.assert_same(&stage.tree(), "the list is kept");
        stage.host_ok("rm f");
        let job = "echo 2 >>g; getfacl -cn g";
        stage.beside_twin(&format!("echo 1 >g; setfacl -m u:{}:r g", stage.user.uid), job);
    }
}

each_driver_and_user! {
    fn fault_05_long_names_and_names_like_marks(stage) {
        let both = stage.beside_twin(
            "for n in 252 253 254 255; do echo $n >$(printf 'o%.0s' $(seq $n)); done; echo 1 >.wh.x; echo 2 >x",
            "cat o*; cat .wh.x x; rm .wh.x; for n in 252 253 254 255; do mv $(printf 'o%.0s' $(seq $n)) \
             $(printf 'n%.0s' $(seq $n)); done; echo 3 >.wh.y; echo .wh.*; ls | wc -l",
        );
        both.both_print("252\n253\n254\n255\n1\n2\n.wh.y\n5\n");
    }
}

each_driver_and_user! {
    /// Temporary files without a name, holes that are punched, inode flags, renames that leave a
    /// whiteout.
    fn fault_06_rare_calls_have_an_honest_answer(stage) {
        require!(stage, Capability::Program("python3"));
        let done = stage
            .run_with(
                &[],
                "python3 -c \"
import ctypes, errno, fcntl, os
libc = ctypes.CDLL(None, use_errno=True)
def says(done):
    return 'ok' if done == 0 else errno.errorcode[ctypes.get_errno()]
f = os.open('f', os.O_RDWR | os.O_CREAT, 0o644)
os.write(f, b'x' * 65536)
long = ctypes.c_long
print(says(libc.fallocate(f, 3, long(4096), long(8192))))
print(says(libc.fallocate(f, 16, long(16384), long(4096))))
try:
    fcntl.ioctl(f, 0x80086601, bytearray(8))
    print('flags')
except OSError as e:
    print(errno.errorcode[e.errno])
try:
    os.close(os.open('.', os.O_TMPFILE | os.O_RDWR))
    print('tmpfile')
except OSError as e:
    print(errno.errorcode[e.errno])
print(says(libc.renameat2(-100, b'f', -100, b'g', 4)))\"",
            )
            .ok();
        let out = done.out();
        let (first, whiteout) = out.trim_end().rsplit_once('\n').unwrap();
        let answers = if stage.is_fuse() { "flags\nENOTSUP" } else { "flags\ntmpfile" };
        assert_eq!(first, format!("ok\nok\n{answers}"), "{done}");
        // A whiteout is the merging file system's own mark: nobody else may make one.
        assert!(["EINVAL", "ENOTSUP", "EPERM"].contains(&whiteout), "{done}");
        assert_eq!(stage.changes().lines(), ["added f"]);
    }
}

each_driver_and_user! {
    /// `lsattr` shows what it shows outside, of what was there and of what is changed.
    fn fault_06_inode_flags_are_shown_and_set(stage) {
        require!(stage, Capability::Program("lsattr"));
        stage.beside_twin(
            "echo 1 >f; mkdir d",
            "lsattr -d f d && chattr +d f && chattr +A d && lsattr -d f d && cat f; chattr +i f && echo immutable",
        );
    }
}

each_driver_and_user! {
    fn fault_07_deep_paths(stage) {
        let done = stage.run(
            "n=$(printf 'd%.0s' $(seq 50)); for i in $(seq 90); do mkdir $n && cd -P $n || break; done; \
             echo $i; echo 1 >leaf; cat leaf",
        );
        assert_eq!(done.out(), "90\n1\n", "{done}");
        stage.pvisor(["commit", "--all"]).ok();
        assert_eq!(stage.host_ok("for i in $(seq 90); do cd -P d*; done; cat leaf"), "1\n");
        stage.pvisor(["undo"]).ok();
        assert_eq!(stage.host_ok("ls -A"), "");
    }
}

each_driver_and_user! {
    /// A file system mounted inside the workspace is never written past the stage.
    fn fault_08_mounts_inside_are_not_crossed(stage) {
        let inside = stage.workspace.join("inside");
        std::fs::create_dir(&inside).unwrap();
        stage.own(&inside, 0o755);
        let Some(disk) = SmallDisk::mount_at(stage, inside, Kind::Tmpfs) else { return };
        std::fs::write(disk.path.join("x"), "in\n").unwrap();
        let done = stage.run_with(&[], "cat inside/x; echo new >inside/y; rm -f inside/x; echo 1 >beside").done();
        assert!(matches!(done.status, Some(0 | 125)), "{done}");
        if done.status == Some(0) {
            assert!(done.out().starts_with("in\n"), "never an empty directory: {done}");
            // What was staged of it is no change of the workspace: it has a layer of its own.
            assert_eq!(stage.changes().plain(), ["added beside"]);
            stage.pvisor(["approve", "beside"]).ok();
            stage.pvisor(["commit"]).ok();
        }
        assert_eq!(disk.entries("."), 1, "nothing was made in it");
        assert_eq!(std::fs::read_to_string(disk.path.join("x")).unwrap(), "in\n");
    }
}

each_driver_and_user! {
    fn fault_09_set_group_id_directories(stage) {
        let both = stage.beside_twin(
            "mkdir s; chmod 2775 s",
            "umask 022; mkdir s/d; : >s/f; stat -c '%a %g' s/d s/f | sed \"s/ $(id -g)$/ g/\"",
        );
        both.both_print("2755 g\n644 g\n");
    }
}

each_driver_and_user! {
    /// A full disk is called that, and the session is reviewable afterwards.
    fn fault_10_a_full_stage(stage) {
        let Some(disk) = SmallDisk::mount(stage, "small", Kind::Tmpfs) else { return };
        let flags = ["--state-dir", disk.arg()];
        let done = stage.run_with(&flags, "cat /dev/zero >big; echo 1 >f; rm f; : >g").ok();
        assert_eq!(done.err().matches("No space left on device").count(), 2, "{done}");
        let listed = stage.pvisor([&["changes"][..], &flags].concat()).ok().out();
        assert!(listed.contains("big") && listed.contains("exited"), "{listed}");
    }
}

each_driver_and_user! {
    /// Names do not reach the terminal as they are.
    fn fault_11_names_do_not_steer_the_terminal(stage) {
        stage.run("echo 1 > $'a\\e[2Jb\\nc'; mkdir $'\\e]0;owned\\a'");
        for verb in ["changes", "diff", "status"] {
            let mut terminal = Terminal::open(stage.pvisor([verb, "last"]).into_command(), 24, 100);
            terminal.wait_exit();
            for never in [&b"\x1b[2J"[..], b"\x1b]0;", b"b\nc"] {
                let found = terminal.bytes.windows(never.len()).any(|w| w == never);
                assert!(!found, "{verb} printed {:?}", never.escape_ascii().to_string());
            }
        }
        let piped = stage.pvisor(["changes", "last"]).ok();
        assert!(!piped.stdout.contains(&0x1b), "{piped}");
    }
}

each_driver_and_user! {
    /// One file that cannot be replaced: nothing is written, everything else stays possible.
    fn fault_12_an_immutable_file(stage) {
        require!(stage, Capability::Root);
        require!(stage, Capability::Program("chattr"));
        stage.host_ok("echo a >a; echo b >b; echo c >c");
        let before = stage.tree();
        stage.run("for n in a b c; do echo new >>$n; done");
        let chattr = |flag: &str| {
            let mut command = stage.command("chattr");
            command.uid(0).gid(0).arg(flag).arg(stage.workspace.join("b"));
            Call::new(command).ok();
        };
        chattr("+i");
        let refused = stage.pvisor(["commit", "--all"]).done();
        stage.pvisor(["reject", "b"]).ok();
        let rest = stage.pvisor(["commit", "--all"]).done();
        let undone = stage.pvisor(["undo"]).done();
        chattr("-i");
        refused.exits(1).says("b: ");
        rest.exits(0);
        undone.exits(0);
        before.assert_same(&stage.tree(), "undo");
        stage.pvisor(["approve", "b"]).ok();
        stage.pvisor(["commit"]).ok();
        assert_eq!(stage.text("b"), "b\nnew\n", "and what was refused can be done later");
        stage.pvisor(["discard"]).ok();
    }
}

each_driver_and_user! {
    /// Work that comes to nothing is none; what is left has its own name.
    fn fault_13_nothing_is_called_modified_that_is_not(stage) {
        require!(stage, Capability::Program("setfattr"));
        stage.host_ok("for n in same chmod touch xattr bytes; do echo $n >$n; done");
        stage.run(
            "cp -p same ~/k; rm same; cp -p ~/k same; rm ~/k; chmod 600 chmod; touch -d @1 touch; \
             setfattr -n user.k -v 1 xattr; echo 1 >>bytes",
        );
        let lines = stage.changes().lines();
        assert_eq!(lines, ["meta touch", "meta xattr", "mode chmod", "modified bytes"]);
        let listed = stage.pvisor(["changes", "last"]).ok().out();
        assert!(listed.contains("1 files touched (only their times differ)"), "{listed}");
        stage.pvisor(["commit", "--all"]).ok();
        let mode = stage.workspace.join("chmod").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
