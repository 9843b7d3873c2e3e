//! What an agent cannot reach, each with a control that shows the attempt would work outside.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::fixture::{Fixture, run};

pub fn nothing_inside_holds_a_capability() {
    let f = Fixture::new();
    let ran = run(&f.shell("grep -E '^(Cap|NoNewPrivs)' /proc/self/status"));
    for line in ran.out.lines() {
        let (name, value) = line.split_once(":\t").expect("a field");
        let expected = if name == "NoNewPrivs" {
            "1"
        } else {
            "0000000000000000"
        };
        assert_eq!(value, expected, "{name}");
    }
    assert_eq!(ran.out.lines().count(), 6, "{}", ran.out);
    assert!(ran.boundary.no_capabilities);
    let ran = run(&f.shell(
        "umount /tmp; umount -l $HOME; mount -t tmpfs none /mnt; mount -o remount,rw /; \
         unshare -Ur true && echo nested; unshare -m true && echo mounts; chroot / true && echo chroot; \
         cat /proc/1/environ && echo looked; kill -9 1; ls /proc | grep -c '^[0-9]'",
    ));
    for word in ["nested", "mounts", "chroot", "looked"] {
        assert!(!ran.out.contains(word), "{word}: {}", ran.out);
    }
    let processes: usize = ran.out.trim().parse().expect("a number");
    assert!(
        processes <= 5,
        "only its own processes are seen, not {processes}"
    );
}

pub fn root_inside_cannot_touch_the_kernels_settings() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let f = Fixture::new();
    let before = fs::read_to_string("/proc/sys/kernel/core_pattern").expect("setting");
    let ran = run(&f.shell(
        "echo x >/proc/sys/kernel/core_pattern && echo wrote; echo h >/proc/sysrq-trigger && echo wrote; \
         echo 1 >/sys/kernel/mm/ksm/run && echo wrote; find /proc -maxdepth 1 -type f -perm /222 | \
         while read f; do (: >>$f) && echo open $f; done; echo 5 >/proc/self/oom_score_adj && echo own",
    ));
    assert_eq!(ran.out, "own\n", "{}", ran.err);
    let after = fs::read_to_string("/proc/sys/kernel/core_pattern").expect("setting");
    assert_eq!(before, after);
}

pub fn hidden_places_are_empty_and_stay_hidden() {
    let f = Fixture::new();
    fs::create_dir_all(f.home.join(".ssh")).expect("dir");
    fs::write(f.home.join(".ssh/id_ed25519"), "SECRET").expect("key");
    fs::write(f.home.join(".netrc"), "SECRET").expect("file");
    fs::create_dir_all(f.home.join("cluster")).expect("dir");
    fs::write(f.home.join("cluster/config"), "SECRET").expect("file");
    symlink("cluster", f.home.join(".kube")).expect("link");
    fs::create_dir_all(f.workspace.join("private")).expect("dir");
    fs::write(f.workspace.join("private/x"), "SECRET").expect("file");
    let mut spec = f.shell(
        "cat ~/.profile; cat ~/.ssh/id_ed25519; cat ~/.netrc; cat ~/.kube/config; cat ~/cluster/config; \
         cat private/x; chmod 700 ~/.ssh && ls -A ~/.ssh; chmod 600 ~/.netrc && cat ~/.netrc; \
         mv ~/.ssh ~/.s2 && echo moved; rm -rf ~/.ssh; echo x >~/.ssh/new && echo wrote; \
         ls ~/.local/state/pvisor-tui && echo listed; ln ~/.netrc ~/n2 && cat ~/n2",
    );
    spec.hide.push(f.workspace.join("private"));
    let ran = run(&spec);
    assert_eq!(
        ran.out, "p\n",
        "the file beside them is read; nothing else is: {}",
        ran.err
    );
    let hidden = |path: &Path| ran.boundary.hidden.contains(&path.display().to_string());
    for path in [".ssh", ".netrc", ".kube", ".local/state/pvisor-tui"] {
        assert!(
            hidden(&f.home.join(path)),
            "{path}: {:?}",
            ran.boundary.hidden
        );
    }
    assert_eq!(
        fs::read_to_string(f.home.join(".ssh/id_ed25519")).expect("key"),
        "SECRET"
    );
}

pub fn what_was_given_back_is_seen() {
    let f = Fixture::new();
    fs::create_dir_all(f.home.join(".aws")).expect("dir");
    fs::write(f.home.join(".aws/credentials"), "KEY").expect("file");
    let mut spec = f.shell("cat ~/.aws/credentials");
    assert_eq!(run(&spec).out, "");
    spec.unhide = vec![f.home.join(".aws")];
    assert_eq!(run(&spec).out, "KEY");
}

pub fn the_system_is_read_only_and_scratch_places_are_private() {
    let f = Fixture::new();
    let mark = f
        .root
        .path()
        .file_name()
        .expect("name")
        .display()
        .to_string();
    fs::write(std::env::temp_dir().join(&mark), "outside").expect("file in /tmp");
    let outside = f.root.path().join("outside");
    fs::create_dir(&outside).expect("dir");
    let ran = run(&f.shell(&format!(
        "for d in /etc /usr / /var /home {} /run/user; do touch $d/{mark}.x 2>/dev/null && echo $d; done; \
         cat /tmp/{mark}; for d in /tmp /var/tmp /dev/shm /run/user/$(id -u); do \
         echo y >$d/{mark}.y && cat $d/{mark}.y; done; stat -c %a /tmp /var/tmp",
        outside.display()
    )));
    fs::remove_file(std::env::temp_dir().join(&mark)).expect("clean");
    // `/run/user` is the agent's own.
    assert_eq!(
        ran.out, "/run/user\ny\ny\ny\ny\n1777\n1777\n",
        "{}",
        ran.err
    );
    for dir in ["/tmp", "/var/tmp", "/dev/shm", "/etc"] {
        assert!(!Path::new(dir).join(format!("{mark}.y")).exists(), "{dir}");
    }
    let kept = f.session.join("private/tmp").join(format!("{mark}.y"));
    assert!(kept.exists(), "on disk, in the session's directory");
}

pub fn only_harmless_devices_exist() {
    let f = Fixture::new();
    let ran = run(&f.shell(
        "ls /dev | tr '\\n' ' '; echo; echo x >/dev/null && head -c 4 /dev/zero | wc -c; \
         echo </dev/full | cat; touch /dev/new && echo made; mknod /tmp/n b 254 0 && echo node",
    ));
    assert_eq!(
        ran.out, "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero \n4\n\n",
        "{}",
        ran.err
    );
}

pub fn sockets_outside_are_out_of_reach() {
    let f = Fixture::new();
    let dir = tempfile::tempdir_in(std::env::temp_dir()).expect("dir");
    let path = dir.path().join("agent.sock");
    let _listener = UnixListener::bind(&path).expect("listener");
    std::os::unix::net::UnixStream::connect(&path).expect("it answers outside");
    let ask = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1].replace('@','\\0'))\nprint('reached')";
    let mut spec = f.spec(["python3", "-c", ask, path.to_str().expect("text")]);
    assert_eq!(run(&spec).out, "");

    use std::os::linux::net::SocketAddrExt;
    let name = format!("pvisor-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("name");
    let _listener = UnixListener::bind_addr(&address).expect("listener");
    spec.command[3] = format!("@{name}").into();
    let ran = run(&spec);
    match ran.boundary.landlock {
        Some(abi) => {
            assert!(abi >= 6);
            assert_eq!(ran.out, "", "cut off by Landlock");
            assert!(ran.err.contains("PermissionError"), "{}", ran.err);
        }
        None => assert!(ran.boundary.notes.iter().any(|n| n.contains("abstract"))),
    }
    // A listener inside is reached, by either kind of name.
    let pair = "import socket\nfor n in ['/tmp/s','\\0inside']:\n l=socket.socket(socket.AF_UNIX);l.bind(n);l.listen()\n \
                s=socket.socket(socket.AF_UNIX);s.connect(n);print('inside')";
    let ran = run(&f.spec(["python3", "-c", pair]));
    assert_eq!(ran.out, "inside\ninside\n", "{}", ran.err);
}

pub fn without_a_network_only_the_loopback_is_left() {
    let f = Fixture::new();
    let mut spec = f.shell("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '");
    let all = run(&spec);
    assert!(all.out.lines().any(|name| name == "lo"), "{}", all.out);
    assert_eq!(all.boundary.network, "host");
    spec.network = pvisor::sandbox::spec::Network::None;
    let ran = run(&spec);
    assert_eq!(ran.out, "lo\n", "{}", ran.err);
    assert_eq!(ran.boundary.network, "none");
    assert!(ran.boundary.namespaces.contains(&"net".to_owned()));
}

pub fn only_the_given_environment_and_descriptors_pass() {
    let f = Fixture::new();
    let leak = fs::File::open("/etc/passwd").expect("file");
    nix::fcntl::fcntl(
        &leak,
        nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()),
    )
    .expect("inheritable");
    let ran = run(&f.spec(["env"]));
    let expected = format!(
        "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin\nHOME={}\n",
        f.home.display()
    );
    assert_eq!(ran.out, expected);
    // One more is `ls` reading the directory.
    let ran = run(&f.spec(["ls", "/proc/self/fd"]));
    assert_eq!(ran.out, "0\n1\n2\n3\n");
    let ran = run(&f.shell("grep -E '^Sig(Blk|Ign)' /proc/self/status"));
    assert_eq!(
        ran.out,
        "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
    );
}
