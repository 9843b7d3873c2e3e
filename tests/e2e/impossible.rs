//! No sandbox can be made: then nothing runs, and the person learns why and what mends it.

use crate::support::{Call, World, each_user};

/// The binary inside a user namespace that may not make further ones.
fn without_namespaces(world: &World, args: &[&str]) -> Call {
    let mut command = world.command("unshare");
    command
        .args(["--user", "--map-root-user", "sh", "-c"])
        .arg(
            "echo 0 > /proc/sys/user/max_user_namespaces && \
             exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"",
        )
        .arg("sh")
        .arg(crate::support::world::binary())
        .args(args);
    Call::new(command)
}

each_user! {
    fn nothing_runs_without_a_sandbox(world) {
        let workspace = world.workspace.to_str().unwrap();
        let before = world.tree();
        let script = "echo ran; echo ran > proof";
        let done = without_namespaces(
            world,
            &["run", "--headless", "--workspace", workspace, "--", "sh", "-c", script],
        )
        .done()
        .exits(125);
        assert_eq!(done.out(), "", "{done}");
        let error = done.err();
        assert_eq!(error.matches("error:").count(), 1, "one clear error: {done}");
        assert!(error.contains("user namespace"), "it names the cause: {done}");
        assert!(error.contains("hint:"), "and what to do: {done}");
        before.assert_same(&world.tree(), "nothing ran");
    }
}

each_user! {
    fn doctor_names_the_cause_and_the_remedy(world) {
        let done = without_namespaces(world, &["doctor"]).done();
        assert_ne!(done.status, Some(0), "{done}");
        let text = done.out() + &done.err();
        assert!(text.contains("max_user_namespaces"), "cause: {done}");
        assert!(text.contains("sysctl"), "remedy: {done}");
    }
}

each_user! {
    fn doctor_is_content_where_it_works(world) {
        let done = world.pvisor(["doctor", "--json"]).ok();
        let json = done.json();
        assert!(json.is_object() || json.is_array(), "{done}");
        world.pvisor(["doctor"]).ok();
        world.run("true");
    }
}
