//! Real work on a real crate: git and cargo inside, and a host that is as good as if the work had
//! been done on it.

use std::path::Path;

use crate::support::world::{self, Toolchain};
use crate::support::{Capability, Done, World, each_user, require};

/// Runs a script inside with the toolchain at hand.
#[track_caller]
fn inside(world: &World, tools: &Toolchain, script: &str) -> Done {
    world.run(&format!(
        "export PATH={}:$PATH; set -e; {script}",
        tools.bin.display()
    ))
}

fn copy_crate(world: &World, from: &Path) {
    // Through a pipe, so that root reads its own cache and the world's user owns the copy.
    let packed = std::process::Command::new("tar")
        .args(["-C"])
        .arg(from)
        .args(["-cf", "-", "."])
        .output()
        .unwrap();
    assert!(packed.status.success());
    let mut command = world.command("tar");
    command
        .args(["-xf", "-", "--no-same-owner", "-C"])
        .arg(&world.workspace);
    crate::support::Call::new(command).stdin(packed.stdout).ok();
}

each_user! {
    fn edit_commit_and_build_then_take_it_all(world) {
        require!(world, Capability::Program("git"));
        require!(world, Capability::Toolchain);
        let tools = world::toolchain().unwrap();
        copy_crate(world, &tools.krate);
        world.host_ok(
            "rm -f Cargo.lock .cargo-ok; printf '/target\\n' > .gitignore; git init -q -b main; \
             git config user.name Person; git config user.email p@example.org; \
             git add -A; git commit -qm 'as published'",
        );
        let done = inside(
            world,
            &tools,
            "printf '\\n/// Added inside.\\npub fn added_inside() -> u32 { 42 }\\n' >> src/lib.rs; \
             git commit -qam 'inside: one function'; cargo build --offline --quiet; \
             git status --short; ls target/debug > /dev/null; git log --format=%s",
        );
        // The lock file is the only thing cargo leaves that is not ignored.
        let log: Vec<String> = done.out().lines().map(str::to_owned).collect();
        assert!(log.ends_with(&["inside: one function".into(), "as published".into()]), "{done}");
        assert_eq!(world.host_ok("git log --format=%s"), "as published\n", "the host is as it was");

        let changes = world.changes();
        assert_eq!(changes.get("src/lib.rs")["kind"], "modified");
        assert_eq!(changes.get("src/lib.rs")["added"], 3);
        let ignored = changes.json["counts"]["ignored"].as_u64().unwrap();
        assert!(ignored > 3, "target/ is counted apart: {}", changes.json["counts"]);
        for change in changes.all() {
            let path = change["path"].as_str().unwrap();
            let class = change["class"].as_str().unwrap();
            if path.starts_with("target/") || path == "target" {
                assert_eq!(class, "ignored", "{path}");
            }
            // An old object whose time git has freshened is no new one.
            let added = change["kind"] == "added";
            if path.starts_with(".git/objects/") && added {
                assert_eq!(class, "git-object", "{path}");
            }
            assert!(change["conflict"].is_null(), "{change:#}");
        }
        assert_eq!(changes.get(".git/refs/heads/main")["class"], "plain", "refs are never folded");

        world.pvisor(["commit", "--all"]).ok();
        assert!(!world.has("target"), "ignored files stay out");
        assert_eq!(world.host_ok("git fsck --strict 2>&1 | grep -v '^notice' || true"), "");
        assert_eq!(world.host_ok("git log --format=%s"), "inside: one function\nas published\n");
        assert_eq!(world.host_ok("git status --short -- src"), "");
        let rebuild = format!("PATH={}:$PATH cargo build --offline --quiet", tools.bin.display());
        world.host_ok(&rebuild);
        assert!(world.has("target/debug"));
    }
}

each_user! {
    fn ignored_files_come_along_only_when_asked_for(world) {
        require!(world, Capability::Program("git"));
        world.host_ok("git init -q; printf 'target/\\n*.log\\n' > .gitignore; echo kept > old.log");
        world.run("mkdir target; echo 1 > target/a; echo 1 > x.log; echo 2 >> old.log; echo 1 > plain");
        let changes = world.changes();
        changes.assert_plain(&["added plain"]);
        assert_eq!(changes.get("target/a")["class"], "ignored");
        assert_eq!(changes.get("x.log")["class"], "ignored");
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.host_ok("ls; cat old.log"), "old.log\nplain\nkept\n");
        world.pvisor(["commit", "--all", "--ignored"]).ok();
        assert_eq!(world.host_ok("cat target/a x.log old.log"), "1\n1\nkept\n2\n");
    }
}
