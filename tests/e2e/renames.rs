//! Renames of the host's directories: every answer as in a plain directory, one rename in the
//! review, and a host that is as good as if they had been made on it.

mod interrupted;
mod review;
mod strange;

use crate::support::world;
use crate::support::{Capability, Tree, World, each_user, require};

const SEED: &str = include_str!("renames/seed.sh");
const BATTERY: &str = include_str!("renames/battery.py");

/// A python program in the workspace, inside.
#[track_caller]
fn python(world: &World, flags: &[&str], program: &str) -> String {
    let file = world.root.join("program.py");
    std::fs::write(&file, program).unwrap();
    world.own(&file, 0o644);
    let script = format!("exec python3 {}", file.display());
    world.run_with(flags, &script).ok().out()
}

/// A tree of the host's with a file on each of three levels.
fn tree(world: &World, name: &str) {
    world.host_ok(&format!(
        "mkdir -p {name}/s/t; echo 1 >{name}/f; echo 2 >{name}/s/g; echo 3 >{name}/s/t/h"
    ));
}

each_user! {
    fn every_answer_is_that_of_a_plain_directory_and_the_commit_its_result(world) {
        require!(world, Capability::Program("python3"));
        require!(world, Capability::Program("setfattr"));
        require!(world, Capability::Program("setfacl"));
        world.host_ok(SEED);
        // Closed after the copy, which could not read it.
        let shut = "! test -d kinds/a/closed || chmod 000 kinds/a/closed";
        world.host_ok(&format!("cp -a . ../twin; {shut}; cd ../twin; {shut}"));
        let twin = world.root.join("twin");
        let file = world.root.join("battery.py");
        std::fs::write(&file, BATTERY).unwrap();
        world.own(&file, 0o644);
        let native = world.host_ok(&format!("cd {}; python3 {}", twin.display(), file.display()));
        assert_eq!(python(world, &[], BATTERY), native);
        if !nix::unistd::geteuid().is_root() {
            // Reading what is closed to its owner takes root.
            return;
        }
        let before = world.tree();
        assert!(!native.contains("EXDEV\nok"), "{native}");
        world.pvisor(["commit", "--all"]).ok();
        world.changes().assert_plain(&[]);
        // What both made themselves differs in when.
        let differ = Tree::of(&twin).differences(&world.tree());
        assert_eq!(differ.len(), 2, "against the native twin: {differ:#?}");
        for (line, path) in differ.iter().zip(["chain/e/f", "exupper/a/new"]) {
            assert!(line.contains(path), "{differ:#?}");
        }
        world.pvisor(["undo"]).ok();
        before.assert_same(&world.tree(), "after undo");
    }
}

each_user! {
    fn a_commit_is_undone_to_the_last_bit(world) {
        require!(world, Capability::Program("python3"));
        tree(world, "a");
        tree(world, "keep");
        world.host_ok("chmod 750 a/s; touch -d 2001-02-03 a/s/g; ln a/f a/s/hard");
        let before = world.tree();
        python(world, &[], "import os\nos.rename('a', 'keep/b')\nos.rename('keep/b/s', 'c')");
        before.assert_same(&world.tree(), "before the commit");
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.host_ok("find . | sort"),
            ".\n./c\n./c/g\n./c/hard\n./c/t\n./c/t/h\n./keep\n./keep/b\n./keep/b/f\n./keep/f\n\
             ./keep/s\n./keep/s/g\n./keep/s/t\n./keep/s/t/h\n");
        assert_eq!(world.mode("c"), 0o750);
        // What undo keeps may count as a further name of the file.
        assert_eq!(world.host_ok("[ c/hard -ef keep/b/f ] && stat -c %y c/g | cut -c1-10"), "2001-02-03\n");
        world.pvisor(["undo"]).ok();
        before.assert_same(&world.tree(), "after the undo");
    }
}

each_user! {
    fn without_the_shim_the_kernel_answers_by_itself(world) {
        require!(world, Capability::Program("python3"));
        tree(world, "a");
        let program = "import os\ntry: os.rename('a', 'b')\nexcept OSError as e: print(e.errno)";
        assert_eq!(python(world, &["--no-rename-shim"], program), "18\n");
        assert_eq!(world.status()["boundary"]["rename_shim"], false);
        world.changes().assert_plain(&[]);
        assert_eq!(python(world, &[], program), "");
        assert_eq!(world.status()["boundary"]["rename_shim"], true);
    }
}

each_user! {
    fn programs_rename_directories(world) {
        require!(world, Capability::Program("git"));
        for name in ["one", "two", "three"] {
            tree(world, name);
        }
        world.host_ok(
            "git init -q -b main; git config user.name P; git config user.email p@example.org; \
             git add -A; git commit -qm base",
        );
        let node = crate::support::capability::have(world, Capability::Program("node"));
        let js = "require('fs').renameSync('two', 'zwei')";
        let script = format!(
            "set -e; git mv one eins; git status --short; {}; mv three drei; ls",
            if node { format!("node -e \"{js}\"") } else { "mv two zwei".into() },
        );
        let done = world.run(&script);
        let moved = "R  one/f -> eins/f\nR  one/s/g -> eins/s/g\nR  one/s/t/h -> eins/s/t/h\n";
        assert_eq!(done.out(), format!("{moved}drei\neins\nzwei\n"));
        let plain = world.changes().plain();
        for pair in ["one -> eins", "two -> zwei", "three -> drei"] {
            assert!(plain.contains(&format!("renamed {pair}")), "{plain:?}");
        }
        world.pvisor(["commit", "--all"]).ok();
        let status = world.host_ok("git status --short | sort");
        assert!(status.starts_with(" D three/f\n"), "{status}");
        assert!(status.contains("R  one/f -> eins/f\n"), "{status}");
    }
}

each_user! {
    fn a_rust_program_renames_a_directory(world) {
        require!(world, Capability::Toolchain);
        let tools = world::toolchain().unwrap();
        tree(world, "a");
        let source = world.root.join("mv.rs");
        let text = "fn main() { std::fs::rename(\"a\", \"b\").unwrap(); }";
        std::fs::write(&source, text).unwrap();
        world.own(&source, 0o644);
        world.host_ok(&format!(
            "PATH={}:$PATH rustc -o ../mv {}",
            tools.bin.display(),
            source.display()
        ));
        world.run("../mv; cat b/s/t/h; test ! -e a");
        assert!(world.changes().plain().contains(&"renamed a -> b".to_owned()));
    }
}
