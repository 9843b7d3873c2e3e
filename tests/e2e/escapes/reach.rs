//! What the agent must not reach: secrets, services, records, other sessions.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use super::{SECRET, escape};
use crate::support::{Capability, World, require};

escape! {
    fn keys_and_credentials_are_hidden(world) {
        for (dir, file) in [
            (".ssh", "id_test"), (".gnupg", "secring"), (".aws", "credentials"), (".kube", "config"),
            (".config/gh", "hosts.yml"), (".docker", "config.json"),
        ] {
            let dir = world.home.join(dir);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(file), SECRET).unwrap();
        }
        fs::write(world.home.join(".netrc"), SECRET).unwrap();
        own_all(world, &world.home);
        let all = "cat ~/.ssh/id_* ~/.gnupg/secring ~/.aws/credentials ~/.kube/config \
                   ~/.config/gh/hosts.yml ~/.docker/config.json ~/.netrc";
        let control = world.host_ok(all);
        assert_eq!(control.matches(SECRET).count(), 7, "control: the host reads all of them");
        for file in all.split_whitespace().skip(1) {
            world.refused(&format!("cat {file}"));
        }
        // By another name, and by making the mask go away in a namespace of the agent's own.
        world.refused(&format!("cat /proc/self/root{}/.ssh/id_test", world.home.display()));
        world.refused("unshare --user --map-root-user --mount sh -c 'umount -l ~/.ssh; cat ~/.ssh/id_test'");
        world.refused("mv ~/.ssh ~/seen && cat ~/seen/id_test");
    }
}

escape! {
    fn keys_made_while_the_session_runs(cell) {
        fs::create_dir_all(cell.home.join(".config")).unwrap();
        cell.own(&cell.home.join(".config"), 0o755);
        let fifo = |name: &str| {
            let path = cell.root.join(name);
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
            cell.own(&path, 0o600);
            path
        };
        let (ready, go) = (fifo("ready"), fifo("go"));
        // Looks at some of them before they exist, at others only afterwards. What it could read in
        // the first moment is not judged; once nothing is left to read for longer than any cache
        // believes what it knows, nothing ever is again.
        let script = format!(
            "ls ~/.aws ~/.config/gh 2>/dev/null; cat {ready} {go}; \
             keys='.ssh/id .aws/credentials .config/gh/hosts.yml .config/op/x .netrc'; cd ~; \
             n=0; for i in $(seq 1000); do if [ -z \"$(cat $keys 2>/dev/null)\" ]; then n=$((n+1)); else n=0; fi; \
             [ $n = 80 ] && break; sleep 0.02; done; \
             for i in $(seq 40); do cat $keys 2>/dev/null; ls -A . .config .ssh > /dev/null 2>&1; sleep 0.02; done; \
             cat .plain; echo done",
            ready = ready.display(), go = go.display()
        );
        let (mut child, what) = cell.run_with(&[], &script).spawn();
        let out = crate::support::call::collect(child.stdout.take().unwrap());
        // A pipe can be opened for writing without waiting as soon as it has a reader.
        let release = |path: &PathBuf| {
            crate::support::until("the agent at the pipe", || {
                let mut options = fs::OpenOptions::new();
                options.write(true);
                std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
                options.open(path).ok().map(drop)
            });
        };
        release(&ready);
        for (dir, file) in [(".ssh", "id"), (".aws", "credentials"), (".config/gh", "hosts.yml"), (".config/op", "x"), ("", ".netrc")] {
            let dir = cell.home.join(dir);
            fs::create_dir_all(&dir).unwrap();
            cell.own(&dir, 0o755);
            fs::write(dir.join(file), SECRET).unwrap();
            cell.own(&dir.join(file), 0o644);
        }
        assert_eq!(cell.host_ok("cat ~/.ssh/id ~/.config/op/x").matches(SECRET).count(), 2, "control");
        // Control: what is not listed is seen as soon as it is there.
        fs::write(cell.home.join(".plain"), "plain\n").unwrap();
        cell.own(&cell.home.join(".plain"), 0o644);
        release(&go);
        crate::support::call::await_exit(&mut child, &what);
        let out = String::from_utf8_lossy(&crate::support::call::rest(&out, &what, "stdout")).into_owned();
        assert!(out.ends_with("plain\ndone\n"), "{out}");
        assert!(!out.contains(SECRET), "{out}");
    }
}

escape! {
    fn a_hidden_place_can_be_given_back(world) {
        let dir = world.home.join(".aws");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("credentials"), SECRET).unwrap();
        own_all(world, &world.home);
        let mount = format!("{}:read", dir.display());
        let done = world.run_with(&["--mount", &mount], "cat ~/.aws/credentials").ok();
        assert_eq!(done.out(), SECRET);
    }
}

escape! {
    fn the_ssh_agent_is_out_of_reach(world) {
        require!(world, Capability::Program("ssh-agent"));
        let socket = world.runtime.join("agent.sock");
        let socket = socket.to_str().unwrap();
        let key = world.root.join("key");
        world.host_ok(&format!(
            "ssh-keygen -q -t ed25519 -N '' -C test-key -f {key}; ssh-agent -a {socket} > /dev/null; \
             SSH_AUTH_SOCK={socket} ssh-add -q {key}",
            key = key.display()
        ));
        let control = world.host_ok(&format!("SSH_AUTH_SOCK={socket} ssh-add -l"));
        assert!(control.contains("test-key"), "control: {control}");
        let done = world.run_with(&[], "ssh-add -l; echo [${SSH_AUTH_SOCK-unset}]").env("SSH_AUTH_SOCK", socket).done();
        assert!(!done.out().contains("test-key"), "{done}");
        assert!(done.out().ends_with("[unset]\n"), "{done}");
        let forced = world.run_with(&[], &format!("SSH_AUTH_SOCK={socket} ssh-add -l")).env("SSH_AUTH_SOCK", socket).done();
        assert_ne!(forced.status, Some(0), "{forced}");
        assert!(!forced.out().contains("test-key"), "{forced}");
    }
}

escape! {
    fn sockets_of_services_are_out_of_reach(world) {
        require!(world, Capability::Program("curl"));
        let listener = Service::start(world);
        let path = listener.path.display();
        let control = world.host_ok(&format!("curl -s --max-time 5 --unix-socket {path} http://x/"));
        assert_eq!(control, SECRET, "control: the service answers the host");
        world.refused(&format!("curl -sS --max-time 5 --unix-socket {path} http://x/"));
        let inside_var = path.to_string().replacen("/run/", "/var/run/", 1);
        world.refused(&format!("curl -sS --max-time 5 --unix-socket {inside_var} http://x/"));
    }
}

/// A service on a unix socket where services keep theirs.
struct Service {
    path: PathBuf,
}

impl Service {
    fn start(world: &World) -> Self {
        let unique = world.root.file_name().unwrap().to_str().unwrap();
        let dir = if nix::unistd::geteuid().is_root() {
            "/run"
        } else {
            "/tmp"
        };
        let path = PathBuf::from(format!("{dir}/pvtest-{unique}.sock"));
        let listener = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request);
                let _ = write!(
                    stream,
                    "HTTP/1.0 200 OK\r\ncontent-length: {}\r\n\r\n{SECRET}",
                    SECRET.len()
                );
            }
        });
        Self { path }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

escape! {
    fn no_capability_is_held_nor_can_be_had(world) {
        let control = world.host_ok("grep CapBnd /proc/self/status");
        assert!(!control.contains("0000000000000000"), "control: {control}");
        let done = world.run("grep -E '^(Cap|NoNewPrivs)' /proc/self/status");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert!(done.out().contains(&format!("{set}:\t0000000000000000")), "{set}: {done}");
        }
        assert!(done.out().contains("NoNewPrivs:\t1"), "{done}");
        let first = world.run("grep -E '^Cap' /proc/1/status");
        for line in first.out().lines() {
            assert!(line.ends_with("0000000000000000"), "PID 1 of the sandbox: {first}");
        }
    }
}

escape! {
    fn capsh_finds_nothing(world) {
        require!(world, Capability::Program("capsh"));
        let control = world.host_ok("capsh --print");
        assert!(control.contains("Bounding set =cap_"), "control: {control}");
        let print = world.run("capsh --print");
        let current = print.out().lines().find(|l| l.starts_with("Current:")).map(str::to_owned);
        assert_eq!(current.as_deref().map(str::trim_end), Some("Current: ="), "{print}");
        assert!(!print.out().contains("Bounding set =cap_"), "{print}");
    }
}

escape! {
    fn mounts_can_be_neither_made_nor_undone(world) {
        let here = world.workspace.display();
        let control = world.host("unshare --user --map-root-user --mount mount -t tmpfs x .");
        assert_eq!(control.status, Some(0), "control: somebody with the right to may mount: {control}");
        let home = world.home.display();
        for script in [
            // The harmless one first: where it succeeds, the others are not tried.
            format!("mount -t tmpfs x {here}"),
            format!("mount --bind / {here}"),
            format!("mount -o remount,rw,bind {home}"),
            "mount -o remount,rw /".into(),
            format!("umount {home}"),
            "umount /proc".into(),
            "umount -l /".into(),
            "umount -l \"$PWD\"".into(),
            "pivot_root . .".into(),
            "nsenter --mount=/proc/1/ns/mnt true".into(),
            // Its own status for a refusal is that of a sandbox that could not be made.
            "chroot / true || exit 1".into(),
            "mknod /dev/pvtest b 254 0".into(),
        ] {
            world.refused(&script);
        }
    }
}

escape! {
    fn the_rest_of_the_machine_is_read_only(world) {
        // Somebody else's home: the permissions would allow it, only the sandbox does not.
        let other = world.root.join("other");
        fs::create_dir(&other).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o777)).unwrap();
        let other = other.display();
        world.host_ok(&format!("echo control > {other}/control"));
        let done = world.refused(&format!("echo x > {other}/agent"));
        assert!(done.err().contains("Read-only file system"), "{done}");
        world.refused(&format!("rm {other}/control"));
        world.refused(&format!("chmod 700 {other}/control"));
        for place in ["/etc", "/usr", "/usr/bin", "/var/lib", "/boot", "/opt", "/"] {
            let script = format!("echo x > {place}/pvtest-{}", std::process::id());
            if world.user.is_root() {
                let file = format!("{place}/pvtest-{}", std::process::id());
                world.host_ok(&format!("echo control > {file}; rm {file}"));
            }
            world.refused(&script);
        }
    }
}

escape! {
    fn pvisor_tuis_own_records_and_socket_are_hidden(world) {
        let find = format!(
            "find {} {} -name '*.sock' -o -name session.json -o -name journal.jsonl 2>/dev/null",
            world.state.display(),
            world.runtime.display()
        );
        let done = world.run(&format!("{find}; true"));
        assert_eq!(done.out(), "", "{done}");
        let control = world.host_ok(&format!("{find} || true"));
        assert!(control.contains("session.json"), "control: {control}");
        world.refused(&format!("echo x > {}/pvisor-tui/x", world.state.display()));
    }
}

escape! {
    fn the_environment_is_a_list(world) {
        let script = "env | cut -d= -f1 | sort | tr '\\n' ' '";
        let done = world.run_with(&[], script).env("MY_TOKEN", SECRET).env("ANTHROPIC_MODEL", "m").ok();
        let names: Vec<String> = done.out().split_whitespace().map(str::to_owned).collect();
        for wanted in ["HOME", "PATH", "TERM", "LANG", "ANTHROPIC_MODEL"] {
            assert!(names.iter().any(|n| n == wanted), "no {wanted} in {names:?}");
        }
        for never in ["MY_TOKEN", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "XDG_STATE_HOME"] {
            assert!(!names.iter().any(|n| n == never), "{never} in {names:?}");
        }
        let passed = world
            .run_with(&["--env", "MY_TOKEN", "--env", "EXTRA=a b"], "echo \"$MY_TOKEN $EXTRA\"")
            .env("MY_TOKEN", "given")
            .ok();
        assert_eq!(passed.out(), "given a b\n");
    }
}

escape! {
    fn no_descriptor_of_ours_reaches_the_agent(world) {
        let done = world.run("for fd in /proc/self/fd/*; do readlink $fd; done | grep -vE '^(pipe|/proc)' ; ls /proc/self/fd");
        let lines: Vec<String> = done.out().lines().map(str::to_owned).collect();
        assert_eq!(lines, ["0", "1", "2", "3"], "3 is ls's own: {done}");
    }
}

escape! {
    fn processes_of_the_host_are_neither_seen_nor_signalled(world) {
        let host = std::process::id();
        assert!(std::path::Path::new(&format!("/proc/{host}")).exists(), "control");
        let names = world.run("echo me-$((40+2)); for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done");
        assert!(names.out().contains("me-42"), "{names}");
        assert!(names.out().contains("bash -c"), "the agent sees itself: {names}");
        assert!(!names.out().contains("e2e"), "the test runner is seen: {names}");
        let victim = world.command("sleep").arg("600").spawn();
        let mut victim = victim.unwrap();
        let script = format!("kill -9 {} && echo killed; for p in $(seq 2 5000); do kill -0 $p 2>/dev/null && echo $p; done; echo end", victim.id());
        let signal = world.run(&script);
        assert!(!signal.out().contains("killed") && signal.out().contains("end"), "{signal}");
        assert!(signal.out().lines().count() < 10, "{signal}");
        assert!(victim.try_wait().unwrap().is_none(), "a process of the host was ended");
        victim.kill().unwrap();
        victim.wait().unwrap();
    }
}

escape! {
    fn a_set_uid_program_gives_no_way_up(world) {
        require!(world, Capability::Root);
        // Somebody else's program with root's id, and one with the agent's own: neither may work.
        let program = world.root.join("suid-id");
        fs::copy("/usr/bin/id", &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        let program = program.display();
        if !world.user.is_root() {
            assert_eq!(world.host_ok(&format!("{program} -u")), "0\n", "control");
        }
        let uid = world.user.uid;
        let done = world.run(&format!("{program} -u; id -u; id -ru"));
        assert_eq!(done.out(), format!("{uid}\n{uid}\n{uid}\n"), "{done}");
    }
}

fn own_all(world: &World, dir: &std::path::Path) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        world.own(&entry.path(), if kind.is_dir() { 0o700 } else { 0o600 });
        if kind.is_dir() {
            own_all(world, &entry.path());
        }
    }
}

escape! {
    fn other_sessions_are_neither_seen_nor_led_from_inside(world) {
        let workspace = world.workspace.to_str().unwrap();
        // A place that the second session's command line does not know of: the first one's socket
        // is an ordinary file of the caller's there.
        let elsewhere = world.root.join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        world.own(&elsewhere, 0o700);
        let elsewhere = elsewhere.to_str().unwrap();
        world.pvisor(["run", "--headless", "--detach", "--workspace", workspace, "--state-dir", elsewhere,
            "--", "sh", "-c", "echo staged > f; sleep 600"]).ok();
        let changed = || world.pvisor(["changes", "--state-dir", elsewhere]).ok().out();
        crate::support::until("the change", || changed().contains('f').then_some(()));
        let led = format!(
            "{binary} commit --all --state-dir {elsewhere}; echo [$?]; {binary} stop --state-dir {elsewhere}",
            binary = crate::support::binary().display()
        );
        let done = world.run_with(&[], &led).done();
        assert!(done.out().contains("[1]") || done.out().contains("[2]"), "{done}");
        assert_ne!(done.status, Some(0), "{done}");
        assert!(!world.has("f"), "nothing was committed from inside: {done}");
        let state = world.pvisor(["status", "--json", "--state-dir", elsewhere]).ok().json();
        assert_eq!(state["state"], "running", "{state:#}");
        // Control: outside the same words do it.
        world.host_ok(&format!(
            "{binary} commit --all --state-dir {elsewhere}; {binary} stop --state-dir {elsewhere}",
            binary = crate::support::binary().display()
        ));
        assert_eq!(world.text("f"), "staged\n");
    }
}
