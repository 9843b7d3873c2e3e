//! Mounts inside what is staged: named, staged or shown read-only, never crossed by a commit.

use crate::support::{World, each_user};

/// A mount inside the workspace, and a run of `job` with these flags; then `after`.
fn with_mount(world: &World, flags: &str, job: &str, after: &str) -> Option<crate::support::Done> {
    world.in_mounts(&format!(
        "mkdir -p 'mnt x' && mount -t tmpfs none 'mnt x' && echo in > 'mnt x/x' && echo a > a.txt && \
         $PV run --headless {flags} -- sh -c '{job}'; echo rc=$?; {after}"
    ))
}

each_user! {
    fn it_is_staged_as_a_layer_of_its_own(world) {
        let job = r#"cat "mnt x/x"; echo new > "mnt x/y"; echo more >> "mnt x/x"; echo b >> a.txt"#;
        let after = "ls 'mnt x'; $PV status last --json; $PV changes last; \
                     $PV commit --all; echo rc=$?; cat 'mnt x/y' 'mnt x/x' a.txt";
        let Some(done) = with_mount(world, "", job, after) else { return };
        let out = done.out();
        assert!(out.starts_with("in\nrc=0\nx\n"), "{done}");
        assert!(out.contains("\"name\": \"mnt x\""), "a layer: {done}");
        assert!(done.err().contains("mnt x is mounted inside the workspace"), "named at the start: {done}");
        let workspace = out.find("\"name\": \"workspace\"").map(|at| &out[at..]).unwrap_or_default();
        assert!(workspace.contains("\"driver\": \"fuse\""), "the one around it: {done}");
        assert!(out.ends_with("rc=0\nnew\nin\nmore\na\nb\n"), "{done}");
    }
}

each_user! {
    fn it_is_shown_read_only_on_request(world) {
        let job = r#"cat "mnt x/x"; echo new > "mnt x/y"; echo no=$?; echo b >> a.txt"#;
        let after = "$PV status last; $PV commit --all; echo rc=$?; ls 'mnt x'; cat a.txt";
        let Some(done) = with_mount(world, "--submounts read", job, after) else { return };
        let out = done.out();
        assert!(out.starts_with("in\nno=2\nrc=0\n") || out.starts_with("in\nno=1\nrc=0\n"), "{done}");
        assert!(out.contains("mnt x is mounted inside"), "{done}");
        assert!(out.ends_with("rc=0\nx\na\nb\n"), "{done}");
    }
}

each_user! {
    fn it_is_refused_on_request_and_named_where_the_kernel_cannot(world) {
        for flags in ["--submounts refuse", "--driver overlayfs"] {
            let Some(done) = with_mount(world, flags, "echo ran", "$PV list") else { return };
            assert!(done.out().starts_with("rc=125\n"), "{flags}: {done}");
            assert!(done.err().contains("mnt x is mounted inside it"), "{flags}: {done}");
            assert!(done.err().contains("hint:"), "{flags}: {done}");
            assert!(!done.out().contains("exited"), "no session is left: {done}");
        }
    }
}

each_user! {
    /// Something mounted after the start, below a change and over a layer's root.
    fn what_is_mounted_later_is_never_written_to(world) {
        world.host_ok("mkdir d; echo 1 > d/f; echo 1 > e");
        let script = "$PV run --headless -- sh -c 'echo 2 > d/f; echo 2 > d/g; echo 2 > e' && \
                      mount -t tmpfs none d && $PV commit --all; echo rc=$?; ls -A d; cat e; umount d; \
                      cat d/f; mount -t tmpfs none $PWD && cd $PWD; $PV commit --all; echo rc=$?; ls -A";
        let Some(done) = world.in_mounts(script) else { return };
        assert_eq!(done.out(), "rc=1\n1\n1\nrc=1\n", "{done}");
        assert!(done.err().contains("mounted on it since"), "{done}");
        // Not the server that saw those mounts: it goes when nobody asks it any more.
        let lock = world.session_dir().join("lock");
        world.host_ok(&format!("flock {} true", lock.display()));
        world.pvisor(["commit", "--all"]).ok();
        assert_eq!(world.text("d/f") + &world.text("e"), "2\n2\n");
    }
}

each_user! {
    /// The mount is gone when the commit comes: the bare directory is not it.
    fn what_is_no_mount_any_more_is_never_written_to(world) {
        let job = r#"echo new > "mnt x/y""#;
        let after = "umount -l 'mnt x' && $PV commit --all; echo rc=$?; ls -A 'mnt x'";
        let Some(done) = with_mount(world, "", job, after) else { return };
        assert!(done.out().ends_with("rc=1\n"), "{done}");
        assert!(done.err().contains("mount it again"), "{done}");
    }
}

each_user! {
    /// A mount in the home directory no longer costs the home directory its stage.
    fn a_home_with_a_mount_is_staged(world) {
        let script = "mkdir ~/disk && mount -t tmpfs none ~/disk && echo far > ~/disk/f && \
                      $PV run --headless -- sh -c 'cat ~/disk/f; echo x > ~/x; echo y > ~/disk/y; echo z > z'; \
                      ls ~ ~/disk; $PV changes last; $PV commit --all; ls ~ ~/disk; cat z";
        let Some(done) = world.in_mounts(script) else { return };
        let out = done.out();
        let listing = format!("{0}:\ndisk\n\n{0}/disk:\nf\n", world.home.display());
        assert!(out.starts_with(&format!("far\n{listing}")), "{done}");
        assert!(out.contains('x') && out.contains("home/disk"), "{done}");
        assert!(out.ends_with(&format!("{listing}z\n")), "the home stays out of --all: {done}");
    }
}

each_user! {
    /// Kernel file systems hold nothing to stage.
    fn a_proc_inside_is_shown_read_only(world) {
        if !world.user.is_root() {
            return;
        }
        let script = "mkdir p && mount -t proc proc p && \
                      $PV run --headless -- sh -c 'cat p/sys/kernel/ostype; echo x > n'; $PV status last";
        let Some(done) = world.in_mounts(script) else { return };
        assert!(done.out().starts_with("Linux\n"), "{done}");
        assert!(done.out().contains("shown read-only: a proc holds no files"), "{done}");
    }
}

each_user! {
    /// Directories around a mount stay where they are, and nothing of it is carried away.
    fn a_mount_is_not_moved_with_what_is_around_it(world) {
        let script = "mkdir -p a/b/m && mount -t tmpfs none a/b/m && echo in > a/b/m/x && \
                      $PV run --headless -- sh -c 'mv a c 2>/dev/null; rm -rf a/b 2>/dev/null; find . -name x | xargs cat'; \
                      cat a/b/m/x; $PV discard last >/dev/null; cat a/b/m/x";
        let Some(done) = world.in_mounts(script) else { return };
        assert!(done.out().ends_with("in\nin\n"), "{done}");
    }
}
