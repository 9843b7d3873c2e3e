//! Directories that are read, removed, made again, moved and replaced.

use crate::support::{Capability, each_driver_and_user, require};

each_driver_and_user! {
    /// Every entry of a directory is listed, with an inode number that no reader takes for none.
    fn a_large_directory_is_listed_and_removed(stage) {
        let both = stage.beside_twin(
            "mkdir d; for i in $(seq 1 3000); do : >d/f$i; done",
            "find d -type f | wc -l; rm -r d && ls",
        );
        both.both_print("3000\n");
        let lines = both.changes.lines();
        assert_eq!(lines.len(), 3001, "the directory and each entry lost");
        assert!(lines.contains(&"deleted d".into()) && lines.contains(&"deleted d/f2999".into()));
    }
}

each_driver_and_user! {
    /// What a C library sees of a directory that nobody has looked into: numbers as `stat` tells.
    fn inode_numbers_of_a_listing_are_those_of_stat(stage) {
        require!(stage, Capability::Program("python3"));
        let both = stage.beside_twin(
            "mkdir -p d/s; for i in $(seq 1 50); do : >d/f$i; done; ln -s f1 d/l; mkfifo d/p",
            "python3 -c \"
import os
listed = {e.name: e.inode() for e in os.scandir('d')}
print(len(listed), 0 in listed.values())
print([n for n, i in listed.items() if os.lstat('d/' + n).st_ino != i])
print(len(os.listdir('d')), sorted(listed) == sorted(os.listdir('d')))\"",
        );
        both.both_print("53 False\n[]\n53 True\n");
    }
}

each_driver_and_user! {
    /// A directory that was removed and made again holds nothing of the old one.
    fn a_directory_made_again_is_empty(stage) {
        let both = stage.beside_twin(
            "mkdir d; echo 1 >d/old",
            "rm -rf d; mkdir d; echo 2 >d/new; ls d",
        );
        both.both_print("new\n");
        assert_eq!(both.changes.lines(), ["added d/new", "deleted d/old"]);
    }
}

each_driver_and_user! {
    /// File, directory and link take each other's places.
    fn types_change_places(stage) {
        let both = stage.beside_twin(
            "echo 1 >x; mkdir y; echo 1 >y/z; ln -s x l; mkdir t; echo 1 >t/u; echo 1 >g",
            "rm x; mkdir x; echo 2 >x/k; rm -r y; echo 3 >y; rm l; mkdir l; echo 4 >l/v; \
             rm -r t; ln -s y t; rm g; ln -s nowhere g; cat x/k y l/v t; readlink g",
        );
        both.both_print("2\n3\n4\n3\nnowhere\n");
        assert_eq!(
            both.changes.lines(),
            [
                "added l/v", "added x/k", "deleted t/u", "deleted y/z", "type g", "type l",
                "type t", "type x", "type y",
            ]
        );
    }
}

each_driver_and_user! {
    /// A tree is removed, another one moved to its name; that goes, and a third is made.
    fn another_tree_takes_the_name(stage) {
        let both = stage.beside_twin(
            "mkdir -p d/s e; echo 1 >d/s/old; echo 2 >e/n",
            "rm -rf d; mv e d; find d | sort; rm -rf d; mkdir -p d/s; find d | sort",
        );
        both.both_print("d\nd/n\nd\nd/s\n");
        assert_eq!(both.changes.lines(), ["deleted d/s/old", "deleted e", "deleted e/n"]);
    }
}

each_driver_and_user! {
    /// Moves of the host's directories into, below and beside others, and removals below them.
    fn moves_and_removals_below_directories(stage) {
        let prepare = "rm -rf d e k; mkdir -p d/s e; echo 1 >d/s/o; echo 2 >e/n; echo 3 >d/g";
        for (job, gone, made) in [
            ("mkdir k; mv e k/; cat k/e/n", "e/n", "k/e/n"),
            ("mv e d; cat d/e/n", "e/n", "d/e/n"),
            ("mv d/s d/t; cat d/t/o", "d/s/o", "d/t/o"),
            ("stat -c %s d/s/o; rm -r d/s", "d/s/o", ""),
        ] {
            let both = stage.beside_twin(prepare, job);
            assert_eq!(both.staged.out(), both.native.out(), "{job}");
            let lines = both.changes.lines();
            let renamed = format!("renamed {gone} -> {made}");
            let deleted = format!("deleted {gone}");
            let expected = if made.is_empty() { &deleted } else { &renamed };
            assert!(lines.contains(expected), "{job}: {lines:?}");
        }
    }
}

each_driver_and_user! {
    /// A program renames a directory of the host's by rename(2). The kernel's overlay refuses that
    /// where it is not helped; `mv` copies then.
    fn directories_of_the_host_are_renamed(stage) {
        require!(stage, Capability::Program("python3"));
        let job = "python3 -c \"
import errno, os
try:
    os.rename('p', 'r')
    print('renamed')
except OSError as e:
    print(errno.errorcode[e.errno])
    os.system('mv p r')\"; cat r/q/f; ls -A";
        for (flags, helped) in [(&[][..], true), (&["--no-rename-shim"], false)] {
            stage.host_ok("rm -rf p r; mkdir -p p/q p/e; echo 1 >p/q/f; echo 2 >p/g; ln p/g p/h");
            let before = stage.tree();
            let done = stage.run_with(flags, job).ok();
            let boundary = stage.status()["boundary"].clone();
            let renames = stage.is_fuse() || boundary["rename_shim"] == true;
            assert!(stage.is_fuse() || renames == helped, "{boundary:#}");
            let said = if renames { "renamed" } else { "EXDEV" };
            assert_eq!(done.out(), format!("{said}\n1\nr\n"), "{done}");
            before.assert_same(&stage.tree(), "the host after the run");
            let changes = stage.changes();
            assert!(changes.find("r/q/f").is_some() || changes.get("r")["from"] == "p", "{:?}", changes.lines());
            stage.pvisor(["commit", "--all"]).ok();
            assert_eq!(stage.host_ok("find . | sort; cat r/q/f r/h"), ".\n./r\n./r/e\n./r/g\n./r/h\n./r/q\n./r/q/f\n1\n2\n");
            stage.pvisor(["undo"]).ok();
            before.assert_same(&stage.tree(), "undo");
        }
    }
}

each_driver_and_user! {
    /// Hundreds of entries go while the directory is being read.
    fn removal_while_reading(stage) {
        require!(stage, Capability::Program("python3"));
        let both = stage.beside_twin(
            "mkdir d; for i in $(seq 1 1000); do : >d/f$i; done",
            "python3 -c \"
import os
seen = 0
for e in os.scandir('d'):
    os.unlink(e.path)
    seen += 1
print(seen)\"; find d; mkdir d/again; find d -mindepth 1 -delete; rmdir d && ls -A",
        );
        both.both_print("1000\nd\n");
    }
}

each_driver_and_user! {
    /// A directory made in a set-group-ID directory has the bit as well.
    fn set_group_id_is_inherited(stage) {
        let both = stage.beside_twin(
            "mkdir s; chmod 2775 s",
            "mkdir s/d; echo 1 >s/d/f; stat -c %a s s/d",
        );
        both.both_print("2775\n2755\n");
        assert_eq!(both.changes.get("s/d")["mode"]["after"], "042755");
    }
}
