//! What a person sees and decides on of a renamed directory.

use crate::support::processes;
use crate::support::{Capability, World, each_user, require};

use super::{python, tree};

/// `a` renamed to `b`, one file in it changed, one new, one gone.
fn renamed(world: &World) {
    tree(world, "a");
    world.host_ok("seq 20 >a/s/text; echo gone >a/gone; chmod 755 a/f");
    python(
        world,
        &[],
        "import os\nos.rename('a', 'b')\nos.remove('b/gone')\n\
         open('b/s/text', 'a').write('more\\n')\nopen('b/new', 'w').write('new\\n')",
    );
}

const ROWS: [&str; 8] = [
    "added b/new",
    "deleted a/gone",
    "renamed a -> b",
    "renamed a/f -> b/f",
    "renamed a/s -> b/s",
    "renamed a/s/g -> b/s/g",
    "renamed a/s/t -> b/s/t",
    "renamed a/s/t/h -> b/s/t/h",
];

fn expect_rows(world: &World) {
    let rows = [&ROWS[..], &["renamed a/s/text -> b/s/text"]].concat();
    world.changes().assert_plain(&rows);
}

each_user! {
    fn it_is_one_rename_with_what_differs_below_it(world) {
        require!(world, Capability::Program("python3"));
        renamed(world);
        expect_rows(world);
        let text = world.pvisor(["changes"]).ok().out();
        let rows: Vec<_> = text.lines().skip(1).map(|row| row.trim_end().to_owned()).collect();
        let expected = [
            "deleted  a/gone                +0 -1    delete",
            "renamed  a -> b/",
            "added    b/new                 +1 -0",
            "renamed  a/s/text -> b/s/text  +1 -0",
            "5 moved along with a renamed directory",
        ];
        assert_eq!(rows[..5], expected, "{text}");

        // The same after the server was lost.
        processes::kill_hard(processes::server(world));
        processes::await_none(world);
        expect_rows(world);

        // git takes it.
        world.host_ok("git init -q; git add -A; git -c user.name=p -c user.email=p@x commit -qm base");
        let patch = world.pvisor(["diff"]).ok().out();
        assert!(patch.contains("rename from a/s/text\nrename to b/s/text\n"), "{patch}");
        std::fs::write(world.root.join("patch"), &patch).unwrap();
        world.host_ok("cp -a . ../applied; cd ../applied; git apply ../patch");
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(
            world.host_ok("find . -name .git -prune -o -type f -print | sort"),
            world.host_ok("cd ../applied; find . -name .git -prune -o -type f -print | sort"),
        );
        assert_eq!(world.text("b/s/text").lines().last(), Some("more"));
        assert!(!world.has("a"));
        world.changes().assert_plain(&[]);
    }
}

each_user! {
    fn it_answers_to_either_name_and_can_be_approved_in_part(world) {
        require!(world, Capability::Program("python3"));
        renamed(world);
        let before = world.tree();
        // One file of it: it moves, everything else stays where it is.
        world.pvisor(["approve", "a/s/g"]).ok();
        world.pvisor(["commit"]).ok();
        assert_eq!(
            world.host_ok("find . -type f | sort"),
            "./a/f\n./a/gone\n./a/s/t/h\n./a/s/text\n./b/s/g\n"
        );
        world.pvisor(["undo"]).ok();
        before.assert_same(&world.tree(), "after the undo");

        // All but one: the old directory stays for it.
        world.pvisor(["approve", "a"]).ok();
        world.pvisor(["reject", "a/f"]).ok();
        world.pvisor(["commit"]).ok();
        assert_eq!(world.host_ok("find a -type f"), "a/f\n");
        assert_eq!(
            world.host_ok("find b -type f | sort"),
            "b/new\nb/s/g\nb/s/t/h\nb/s/text\n"
        );
        world.pvisor(["approve", "b/f"]).ok();
        world.pvisor(["commit", "--all"]).ok();
        assert!(!world.has("a"));
        assert_eq!(world.text("b/f"), "1\n");
    }
}

each_user! {
    fn a_revert_takes_it_back(world) {
        require!(world, Capability::Program("python3"));
        renamed(world);
        let before = world.tree();
        world.pvisor(["revert", "b"]).ok();
        world.changes().assert_plain(&[]);
        before.assert_same(&world.tree(), "the host");
        let seen = world.run_with(&["--continue"], "cat a/gone a/s/t/h; tail -n1 a/s/text; ls");
        assert_eq!(seen.ok().out(), "gone\n3\n20\na\n");
    }
}

each_user! {
    fn a_person_in_the_old_directory_stops_it(world) {
        require!(world, Capability::Program("python3"));
        renamed(world);
        world.changes();
        world.host_ok("echo mine >a/mine");
        let before = world.tree();
        world.pvisor(["commit", "--all"]).done().exits(1).says("mine");
        before.assert_same(&world.tree(), "nothing was written");
    }
}
