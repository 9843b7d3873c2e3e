//! `--mount` with each access, in each other, on both drivers, and in the settings.

use std::fs;

use crate::support::mounted::{DRIVERS, driver_of};
use crate::support::{World, each_user};

/// Directories below the world's root, each with a file `f`.
fn data(world: &World, names: &[&str]) {
    for name in names {
        let dir = world.root.join("data").join(name);
        fs::create_dir_all(&dir).unwrap();
        world.own(&world.root.join("data"), 0o755);
        world.own(&dir, 0o755);
        fs::write(dir.join("f"), name).unwrap();
        world.own(&dir.join("f"), 0o644);
    }
}

fn has(world: &World, path: &str) -> bool {
    world.root.join("data").join(path).exists()
}

each_user! {
    fn each_access_does_what_it_says(world) {
        for driver in DRIVERS {
            let _ = fs::remove_dir_all(world.root.join("data"));
            let names = ["read", "stage", "write", "hide", "private", "keep"];
            data(world, &names);
            let mut flags = vec!["--driver".to_owned(), driver.to_owned()];
            for name in names {
                let dir = world.root.join("data").join(name);
                flags.extend(["--mount".into(), format!("{}:{name}", dir.display())]);
            }
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let script = format!(
                "cd {}/data; for d in read stage write hide private keep; do \
                 cat $d/f 2>/dev/null && echo; echo new 2>/dev/null > $d/n && echo wrote $d; done; ls keep",
                world.root.display()
            );
            let done = world.run_with(&flags, &script).ok();
            assert_eq!(
                done.out(),
                "read\nstage\nwrote stage\nwrite\nwrote write\nwrote private\nwrote keep\nn\n",
                "{driver}: {done}"
            );
            for (path, there) in [("read/n", false), ("stage/n", false), ("write/n", true),
                ("hide/n", false), ("private/n", false), ("keep/n", false)] {
                assert_eq!(has(world, path), there, "{driver}: {path}");
            }
            let status = world.status();
            assert_eq!(driver_of(&status, "stage"), driver);
            let kept = status["boundary"]["kept"].as_array().unwrap();
            assert_eq!(kept.len(), 1, "{status:#}");
            // What is kept is there again, what is private is not.
            let script = format!("cd {}/data; cat keep/n; ls private", world.root.display());
            assert_eq!(world.run_with(&flags, &script).ok().out(), "new\n", "{driver}");
            let lines = world.changes().lines();
            assert!(lines.iter().all(|l| !l.contains("keep") && !l.contains("private")), "{lines:?}");
            fs::remove_dir_all(world.state.join("pvisor-tui/keep")).unwrap();
        }
    }
}

each_user! {
    fn layers_in_layers(world) {
        for driver in DRIVERS {
            world.host_ok("rm -rf *; mkdir -p in/deep ro hid; echo 1 > in/f; echo 1 > in/deep/f; echo 1 > ro/f; echo 1 > hid/f");
            let at = |path: &str| world.workspace.join(path).display().to_string();
            let (stage, deep, read, hide) = (
                format!("{}=inner:stage", at("in")), format!("{}:stage", at("in/deep")),
                format!("{}:read", at("ro")), format!("{}:hide", at("hid")),
            );
            let flags = ["--driver", driver, "--mount", &stage, "--mount", &deep, "--mount", &read, "--mount", &hide];
            let script = "echo 2 > in/f; echo 2 > in/deep/f; echo 2 > ro/f; cat ro/f; cat hid/f; echo 2 > f; true";
            let done = world.run_with(&flags, script).ok();
            assert_eq!(done.out(), "1\n", "{driver}: {done}");
            let changes = world.changes();
            let mut found: Vec<_> = changes
                .all()
                .filter(|c| c["layer"] != "home")
                .map(|c| format!("{} {}", c["layer"].as_str().unwrap(), c["path"].as_str().unwrap()))
                .collect();
            found.sort();
            assert_eq!(found, ["deep f", "inner f", "workspace f"], "{driver}");
            world.pvisor(["commit", "--all"]).ok();
            assert_eq!(world.host_ok("cat f in/f in/deep/f ro/f hid/f"), "2\n2\n2\n1\n1\n", "{driver}");
        }
    }
}

each_user! {
    /// A place the host does not have: it is made for the mount, and is nobody's change.
    fn a_kept_directory_the_host_does_not_have(world) {
        for driver in DRIVERS {
            let kept = format!("{}/.config/tool=tool:keep", world.home.display());
            let flags = ["--driver", driver, "--mount", &kept];
            let script = "ls -A ~/.config/tool; echo token > ~/.config/tool/auth; stat -c %a ~/.config/tool";
            assert_eq!(world.run_with(&flags, script).ok().out(), "700\n", "{driver}");
            assert!(!world.home.join(".config").exists());
            assert_eq!(world.changes().lines(), Vec::<String>::new(), "{driver}");
            let out = world.run_with(&flags, script).ok().out();
            assert_eq!(out, "auth\n700\n", "{driver}");
            world.run_with(&flags, "echo own > ~/.config/mine").ok();
            let lines = world.changes().lines();
            assert_eq!(lines, ["added home:.config", "added home:.config/mine"], "{driver}");
            fs::remove_dir_all(world.state.join("pvisor-tui/keep")).unwrap();
        }
    }
}

each_user! {
    /// Two sessions at once in one kept directory, with a database in WAL mode.
    fn a_kept_directory_is_shared(world) {
        let kept = format!("{}/.db=db:keep", world.home.display());
        let script = "python3 -c \"
import sqlite3,os
d=sqlite3.connect(os.path.expanduser('~/.db/x'),timeout=60)
assert d.execute('pragma journal_mode=wal').fetchone()[0]=='wal'
d.execute('create table if not exists t(n)')
d.commit()
for i in range(100):
  d.execute('insert into t values(?)',(i,)); d.commit()
print(d.execute('pragma integrity_check').fetchone()[0])\"";
        let flags = ["--mount", kept.as_str()];
        // Turning the log on takes the database alone, and sqlite does not wait for that.
        let first = "python3 -c \"import sqlite3,os;sqlite3.connect(os.path.expanduser('~/.db/x')).execute('pragma journal_mode=wal')\"";
        world.run_with(&flags, first).ok();
        let (one, two) = (world.run_with(&flags, script).spawn().0, world.run_with(&flags, script).spawn().0);
        for child in [one, two] {
            let out = child.wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&out.stdout), "ok\n", "{out:?}");
        }
        let count = "python3 -c \"import sqlite3,os;print(sqlite3.connect(os.path.expanduser('~/.db/x')).execute('select count(*) from t').fetchone()[0])\"";
        assert_eq!(world.run_with(&flags, count).ok().out(), "200\n");
    }
}

each_user! {
    fn mounts_in_the_settings(world) {
        let config = world.home.join(".config/pvisor-tui");
        fs::create_dir_all(&config).unwrap();
        fs::write(config.join("config.toml"), "mounts = ['~/.tool:keep', 'out:private']\nsubmounts = 'read'\n").unwrap();
        for dir in [world.home.join(".config"), config] {
            world.own(&dir, 0o755);
        }
        world.host_ok("mkdir out secret; echo s > secret/s; echo o > out/o; \
            echo \"mounts = ['secret:hide']\" > .pvisor-tui.toml");
        world.pvisor(["trust", world.workspace.to_str().unwrap()]).ok();
        let script = "echo kept > ~/.tool/f; ls out; echo p > out/p; cat secret/s; true";
        let done = world.run_with(&[], script).ok();
        assert_eq!(done.out(), "", "{done}");
        assert!(!world.has("out/p"));
        assert_eq!(world.run_with(&[], "cat ~/.tool/f").ok().out(), "kept\n");
        let shown = world.pvisor(["config", "show", "--origin"]).cwd(&world.workspace).ok().out();
        assert!(shown.contains("submounts = \"read\"") && shown.contains("config.toml"), "{shown}");
        // A workspace's file takes away, it does not give.
        for loose in ["mounts = ['/etc:write']", "mounts = ['x:keep']", "submounts = 'stage'", "preset = 'none'"] {
            fs::write(world.workspace.join(".pvisor-tui.toml"), format!("{loose}\n")).unwrap();
            let trusted = world.pvisor(["trust", world.workspace.to_str().unwrap()]).done();
            assert_ne!(trusted.status, Some(0), "{loose}");
            trusted.says("can only tighten");
        }
    }
}

each_user! {
    fn a_file_cannot_be_kept(world) {
        world.host_ok("echo x > ~/.tool");
        let kept = format!("{}/.tool:keep", world.home.display());
        world.run_with(&["--mount", &kept], "true").done().exits(2).says("only a directory can be kept");
    }
}
