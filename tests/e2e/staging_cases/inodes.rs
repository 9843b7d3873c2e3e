//! Which file a name means: hard links, inode numbers, and descriptors that were open before.

use std::os::unix::fs::MetadataExt;

use crate::support::{Capability, Stage, each_driver_and_user, require};

/// Device and inode number of a file of the workspace.
fn inode(stage: &Stage, path: &str) -> (u64, u64) {
    let meta = stage.workspace.join(path).symlink_metadata().unwrap();
    (meta.dev(), meta.ino())
}

each_driver_and_user! {
    /// Names of one file stay names of one file. The kernel's overlay splits the host's at the
    /// first write to one of them.
    fn hard_links(stage) {
        stage.host_ok("echo a >f; ln f g");
        let before = stage.tree();
        let done = stage.run(
            "echo b >>f; cat g; [ $(stat -c %h:%i f) = $(stat -c %h:%i g) ] && echo same; \
             stat -c %h f; ln f h; stat -c %h h; echo c >>h; tail -1 f",
        );
        let expected = if stage.is_fuse() {
            "a\nb\nsame\n2\n3\nc\n"
        } else {
            "a\n1\n2\nc\n"
        };
        assert_eq!(done.out(), expected, "{done}");
        let lines = stage.changes().lines();
        if stage.is_fuse() {
            assert_eq!(lines, ["added h", "modified f", "modified g"]);
            // One name of them alone cannot be had: the others come along, or it is said.
            stage.pvisor(["approve", "f"]).ok();
            let alone = stage.pvisor(["commit"]).done();
            if alone.status == Some(0) {
                assert_eq!(stage.text("g"), "a\nb\nc\n", "{alone}");
                stage.pvisor(["undo"]).ok();
            } else {
                let alone = alone.exits(1).says("f: ");
                assert!(alone.err().contains("name"), "{alone}");
            }
            stage.pvisor(["reset", "--all"]).ok();
            stage.pvisor(["commit", "--all"]).ok();
            assert_eq!(inode(stage, "f"), inode(stage, "h"));
            assert_eq!(inode(stage, "f"), inode(stage, "g"));
            assert_eq!(stage.text("h"), "a\nb\nc\n");
            stage.pvisor(["undo"]).ok();
        } else {
            assert_eq!(lines, ["added h", "modified f"]);
            // What the agent saw split is not split on the host without a word.
            let refused = stage.pvisor(["commit", "--all"]).done().exits(1);
            assert!(refused.err().contains("f: the host's file has 1 other name"), "{refused}");
        }
        before.assert_same(&stage.tree(), "as it was");
        assert_eq!(inode(stage, "f"), inode(stage, "g"), "one file still");
    }
}

each_driver_and_user! {
    /// Links that are all the agent's own are one file on the host.
    fn new_hard_links(stage) {
        let both = stage.beside_twin(
            "mkdir d",
            "echo 1 >a; ln a d/b; ln -P a c; echo 2 >>d/b; rm a; cat c; stat -c %h c",
        );
        both.both_print("1\n2\n2\n");
        assert_eq!(both.changes.lines(), ["added c", "added d/b"]);
    }
}

each_driver_and_user! {
    /// A file keeps its inode number when it is first written to, and git finds nothing to do.
    fn inode_numbers_stay(stage) {
        require!(stage, Capability::Program("git"));
        stage.host_ok(
            "git init -q .; for i in $(seq 500); do echo $i >f$i; done; git add .; \
             git -c user.email=a@b -c user.name=n commit -qm i; git status --porcelain",
        );
        let done = stage.run(
            "git diff-files --name-only | wc -l; a=$(stat -c %i f1); chmod 600 f1; b=$(stat -c %i f1); \
             echo x >>f1; c=$(stat -c %i f1); [ $a = $b ] && [ $b = $c ] && echo same; \
             git status --porcelain",
        );
        assert_eq!(done.out(), "0\nsame\n M f1\n", "{done}");
        let changes = stage.changes();
        assert_eq!(changes.lines(), ["modified f1"], "git's own look is no change");
        assert_eq!(changes.get("f1")["mode"]["after"], "100600");
        let clean = stage.host_ok("git diff-files --name-only | wc -l; git status --porcelain");
        assert_eq!(clean, "0\n");
    }
}

each_driver_and_user! {
    /// A descriptor that was open before the first write shows what is written; so does a map. A
    /// map of the kernel's overlay goes on showing the old bytes.
    fn open_descriptors_and_maps_follow_writes(stage) {
        require!(stage, Capability::Program("python3"));
        let both = stage.beside_twin(
            "echo a >f; echo a >m",
            "exec 3<f; echo b >>f; cat <&3; exec 4<>f; echo c >>f; cat <&4; python3 -c \"
import mmap, os
m = mmap.mmap(os.open('m', os.O_RDONLY), 2, prot=mmap.PROT_READ)
print(bytes(m))
d = os.open('m', os.O_WRONLY)
os.write(d, b'b')
print(bytes(m), open('m').read().strip())\"",
        );
        let native = "a\nb\na\nb\nc\nb'a\\n'\nb'b\\n' b\n";
        assert_eq!(both.native.out(), native);
        let expected = if stage.is_fuse() { native.into() } else { native.replace("b'b\\n' b", "b'a\\n' b") };
        assert_eq!(both.staged.out(), expected, "{}", both.staged);
    }
}

each_driver_and_user! {
    /// A watch on a file hears of the first write to it. Through the kernel's overlay it hears of
    /// that write too, for the watch is on the name's inode, which stays.
    fn watches_follow_writes(stage) {
        require!(stage, Capability::Program("inotifywait"));
        let both = stage.beside_twin(
            "echo a >f; mkdir d",
            "mkfifo ~/ready; watch() { LC_ALL=C inotifywait -t 5 --format '%w %e %f' \"$@\" \
               2>~/ready & w=$!; while read -r line; do case $line in *established*) break;; esac; \
               done <~/ready; }; \
             watch -e modify f; echo b >>f; wait $w; watch -e create d; : >d/new; wait $w; rm ~/ready",
        );
        assert_eq!(both.native.out(), "f MODIFY \nd/ CREATE new\n", "{}", both.native);
        assert_eq!(both.staged.out(), both.native.out(), "{}", both.staged);
    }
}

each_driver_and_user! {
    /// A file without a name goes on as long as it is open.
    fn unlinked_open_files(stage) {
        require!(stage, Capability::Program("python3"));
        let both = stage.beside_twin(
            "echo host >f; echo 1 >g",
            "python3 -c \"
import os
for name in ('f', 'new'):
    d = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
    os.write(d, b'again')
    os.unlink(name)
    os.fchmod(d, 0o600)
    os.ftruncate(d, 3)
    s = os.fstat(d)
    print(os.pread(d, 10, 0), s.st_size, s.st_nlink, oct(s.st_mode))
r = os.open('g', os.O_RDONLY)
os.unlink('g')
print(os.read(r, 10), os.fstat(r).st_nlink)\"; ls",
        );
        let native = "b'aga' 3 0 0o100600\nb'aga' 3 0 0o100600\nb'1\\n' 0\n";
        assert_eq!(both.native.out(), native);
        // The kernel's overlay goes on counting the name of a host's file that it only hides.
        let expected = if stage.is_fuse() { native.into() } else { native.replace("' 0\n", "' 1\n") };
        assert_eq!(both.staged.out(), expected, "{}", both.staged);
        assert_eq!(both.changes.lines(), ["deleted f", "deleted g"]);
    }
}
