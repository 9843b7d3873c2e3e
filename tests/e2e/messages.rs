//! What is said about mistakes of a `run`: the flag or the path at fault, and what mends it.

use crate::support::{World, each_user};

fn refused(world: &World, flags: &[&str]) -> String {
    let done = world.run_with(flags, "echo ran").done().exits(2);
    assert_eq!(done.out(), "", "{done}");
    let said = done.err();
    assert!(!said.contains("doctor"), "{said}");
    said
}

each_user! {
    fn a_mistake_is_told_by_its_name(world) {
        let workspace = world.workspace.to_str().unwrap();
        let home = world.home.to_str().unwrap();
        world.host_ok("mkdir d; echo 1 > file");
        let in_workspace = |tail: &str| format!("{workspace}{tail}");
        for (flags, needles) in [
            (vec!["--preset", "nosuch"], vec!["--preset", "nosuch", "claude"]),
            (vec!["--mount", "/:write"], vec!["the mount /:write"]),
            (vec!["--mount", "/:hide"], vec!["the mount /:hide", workspace]),
            (vec!["--mount", &in_workspace(":hide")], vec!["the mount", "hides the workspace"]),
            (vec!["--mount", &format!("{home}:hide")], vec!["the mount", "hides the home"]),
            (
                vec!["--mount", &in_workspace("/d:read"), "--mount", &in_workspace("/d:write")],
                vec!["two mounts", "read and write"],
            ),
            (vec!["--state-dir", &in_workspace("/file")], vec!["/file is no directory"]),
        ] {
            let said = refused(world, &flags);
            for needle in needles {
                assert!(said.contains(needle), "{flags:?}: {said}");
            }
        }
        for mount in ["/no/such/dir:read", &in_workspace("/d:/else:stage")] {
            let said = refused(world, &["--mount", mount]);
            assert!(!said.contains("a colon in a path"), "{said}");
        }
        let done = world.pvisor(["run", "--headless", "--workspace", "/proc", "--", "true"]).done();
        assert!(done.exits(2).err().contains("/proc"));
        assert!(world.has("file"), "nobody's file is touched");
    }
}

each_user! {
    fn a_variable_that_is_not_there_is_named(world) {
        let done = world.run_with(&["--env", "NOSUCHVAR"], "echo ran").ok().says("NOSUCHVAR");
        assert_eq!(done.out(), "ran\n");
    }
}

each_user! {
    fn a_current_directory_that_is_gone_is_named(world) {
        let binary = crate::support::binary().to_str().unwrap();
        let script = format!("mkdir gone; cd gone; rmdir ../gone; exec {binary} run --headless -- true");
        world.host(&script).exits(2).says("the current directory");
    }
}
