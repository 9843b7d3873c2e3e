//! Workspaces in every kind of place, on both drivers: staged at their own path, the host untouched
//! until a commit.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::support::changes::Changes;
use crate::support::mounted::{DRIVERS, driver_of};
use crate::support::{Call, World, binary, each_user};

/// A directory of the world's user with what [`works_in`] needs.
fn workspace_at(world: &World, path: &Path) {
    fs::create_dir_all(path).unwrap();
    fs::write(path.join("a.txt"), "one\n").unwrap();
    let mut at = path.to_owned();
    while at != world.root && at != Path::new("/tmp") {
        world.own(&at, 0o755);
        at.pop();
    }
    world.own(&path.join("a.txt"), 0o644);
}

/// `run --headless` of a script in a workspace anywhere.
fn run_at(world: &World, workspace: &OsStr, driver: &str, script: &str) -> Call {
    let mut command = world.command(binary());
    command.args(["run", "--headless", "--driver", driver, "--workspace"]);
    command.arg(workspace).args(["--", "bash", "-c", script]);
    Call::new(command)
}

/// Runs, reviews and commits in `typed`, which leads to the directory `real`.
#[track_caller]
fn works_in(world: &World, typed: &OsStr, real: &Path) {
    for driver in DRIVERS {
        fs::write(real.join("a.txt"), "one\n").unwrap();
        world.own(&real.join("a.txt"), 0o644);
        let _ = fs::remove_file(real.join("new"));
        let script = "pwd -P; echo more >> a.txt; mkdir d; echo x > d/f; mv d/f new; cat new a.txt";
        let done = run_at(world, typed, driver, script).ok();
        let mut expected = real.as_os_str().as_bytes().to_vec();
        expected.extend(b"\nx\none\nmore\n");
        assert_eq!(done.stdout, expected, "{driver}: {done}");
        assert_eq!(fs::read(real.join("a.txt")).unwrap(), b"one\n", "{driver}");
        assert!(!real.join("new").exists(), "{driver}");
        assert_eq!(driver_of(&world.status(), "workspace"), driver);
        world
            .changes()
            .assert_plain(&["added d", "added new", "modified a.txt"]);
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(
            fs::read(real.join("a.txt")).unwrap(),
            b"one\nmore\n",
            "{driver}"
        );
        assert_eq!(fs::read(real.join("new")).unwrap(), b"x\n", "{driver}");
        fs::remove_dir(real.join("d")).unwrap();
    }
}

each_user! {
    fn inside_and_outside_the_home_directory(world) {
        for path in [world.home.join("a/b/project"), world.root.join("elsewhere")] {
            workspace_at(world, &path);
            works_in(world, path.as_os_str(), &path);
        }
    }
}

each_user! {
    fn names_that_need_care(world) {
        for name in [
            &b"with space"[..], b"comma,equals=x", b"colon:and\\backslash", b"latin-\xe9\xff", b"-dash",
            b"line\nbreak",
        ] {
            let path = world.root.join(OsStr::from_bytes(name));
            workspace_at(world, &path);
            works_in(world, path.as_os_str(), &path);
        }
    }
}

each_user! {
    fn below_tmp(world) {
        let dir = tempfile::Builder::new().prefix("pv").tempdir_in("/tmp").unwrap();
        let path = dir.path().canonicalize().unwrap();
        workspace_at(world, &path);
        works_in(world, path.as_os_str(), &path);
        let inside = path.join("deeper/project");
        workspace_at(world, &inside);
        works_in(world, inside.as_os_str(), &inside);
        // The rest of /tmp is the session's own.
        fs::write(path.join("beside"), "").unwrap();
        let script = format!("ls -A {}; echo left > /tmp/mine", path.display());
        let done = run_at(world, inside.as_os_str(), "auto", &script).ok();
        assert_eq!(done.out(), "deeper\n", "{done}");
        assert!(!Path::new("/tmp/mine").exists());
    }
}

each_user! {
    fn through_a_link(world) {
        let real = world.root.join("real/project");
        workspace_at(world, &real);
        let link = world.root.join("link");
        std::os::unix::fs::symlink("real", &link).unwrap();
        works_in(world, link.join("project").as_os_str(), &real);
    }
}

each_user! {
    fn the_home_directory_itself(world) {
        workspace_at(world, &world.home);
        works_in(world, world.home.as_os_str(), &world.home);
        let layers = world.changes().json["layers"].clone();
        assert_eq!(layers.as_array().unwrap().len(), 1, "{layers}");
    }
}

each_user! {
    fn without_a_home_directory(world) {
        workspace_at(world, &world.workspace);
        for driver in DRIVERS {
            let home = world.root.join("gone");
            let done = run_at(world, world.workspace.as_os_str(), driver, "echo x > n; echo $HOME; touch ~/y")
                .env("HOME", home.to_str().unwrap())
                .done()
                .exits(1);
            assert_eq!(done.out(), format!("{}\n", home.display()), "{done}");
            assert!(!home.exists());
            world.changes().assert_plain(&["added n"]);
        }
    }
}

each_user! {
    fn a_directory_without_write_permission(world) {
        workspace_at(world, &world.workspace);
        for driver in DRIVERS {
            world.own(&world.workspace, 0o555);
            let native = "echo x > new";
            assert_ne!(world.host(native).status, Some(0).filter(|_| !world.user.is_root()));
            let script = "echo more >> a.txt; echo x > new; chmod 755 . && echo y > new; cat new";
            let done = run_at(world, world.workspace.as_os_str(), driver, script).ok();
            assert!(done.out().ends_with("y\n"), "{driver}: {done}");
            assert_eq!(world.text("a.txt"), "one\n");
            let changes = world.changes();
            assert!(changes.find("a.txt").is_some() && changes.find("new").is_some(), "{driver}");
            world.own(&world.workspace, 0o755);
        }
    }
}

each_user! {
    /// A file system mounted read-only, and one of another kind than where the stage is.
    fn on_other_file_systems(world) {
        for driver in DRIVERS {
            let script = format!(
                "mount -t tmpfs none . && echo one > a.txt && \
                 $PV run --headless --driver {driver} -- sh -c 'echo more >> a.txt; cat a.txt' && \
                 $PV changes last && cat a.txt && $PV commit --all; echo rc=$?; cat a.txt"
            );
            let Some(done) = world.in_mounts(&script) else { return };
            let out = done.out();
            assert!(out.starts_with("one\nmore\n"), "{driver}: {done}");
            assert!(out.ends_with("rc=0\none\nmore\n"), "{driver}: {done}");

            let script = format!(
                "mount -t tmpfs none . && echo one > a.txt && mount -o remount,bind,ro . && \
                 $PV run --headless --driver {driver} -- sh -c 'echo more >> a.txt; cat a.txt' && \
                 $PV commit --all; echo rc=$?; cat a.txt"
            );
            let Some(done) = world.in_mounts(&script) else { return };
            assert!(done.out().ends_with("one\nmore\nrc=1\none\n"), "{driver}: {done}");
            assert!(done.err().contains("read-only"), "{driver}: {done}");
        }
    }
}

each_user! {
    /// The stage inside the workspace: neither seen nor filled by the agent, no program hangs.
    fn the_stage_inside_the_workspace(world) {
        workspace_at(world, &world.workspace);
        for driver in DRIVERS {
            let state = world.workspace.join(".stage");
            let args: Vec<OsString> = ["run", "--headless", "--driver", driver, "--state-dir"]
                .iter().map(OsString::from)
                .chain([state.clone().into(), "--workspace".into(), world.workspace.clone().into()])
                .chain(["--", "bash", "-c"].map(OsString::from))
                .chain(["find . 2>/dev/null | sort; mkdir -p .stage/x 2>/dev/null; echo rc=$?; \
                         mkdir d; mv .stage d/s 2>/dev/null; echo rc=$?; echo x > n; find . -name n 2>/dev/null; true".into()])
                .collect();
            let done = world.pvisor(args).ok();
            assert_eq!(done.out(), ".\n./.stage\n./a.txt\nrc=1\nrc=1\n./n\n", "{driver}: {done}");
            world.host_ok("find . > /dev/null 2>&1 || true");
            let listed = world.pvisor(["changes", "last", "--json", "--state-dir", state.to_str().unwrap()]);
            let changes = Changes::from_json(listed.ok().json());
            let added: Vec<_> = changes.lines().into_iter().filter(|l| l != "added d").collect();
            assert_eq!(added, ["added n"], "{driver}");
            let _ = std::process::Command::new("chmod").args(["-R", "u+rwX"]).arg(&state).status();
            fs::remove_dir_all(&state).unwrap();
        }
    }
}

each_user! {
    /// Somebody without the right to read a workspace gets a word about it, not a crash.
    fn a_workspace_that_is_not_there(world) {
        let nowhere: PathBuf = world.root.join("nowhere");
        run_at(world, nowhere.as_os_str(), "auto", "true").done().exits(2).says("nowhere");
    }
}
