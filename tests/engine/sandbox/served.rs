//! The overlay file system behind a real mount: scripts do there what they do in a plain copy.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork, getegid, geteuid};
use pvisor::fuse::{Options, mount_options, serve};
use pvisor::overlay::{self, Overlay, Sources, Unguarded};
use pvisor::sandbox::spec::CacheMode;

/// What the child ends with where the machine has no FUSE.
const NO_FUSE: i32 = 77;

/// Fills the lower, as the script is to find it.
const FILL: &str = r"
    echo low >a; echo a >f; ln f g; mkdir -p p/q d/s e; echo 1 >p/q/f; echo 1 >d/s/old; echo 2 >e/n
    ln -s a link; mkfifo pipe; truncate -s 16M sparse; echo end >>sparse; chmod 4751 sparse
    touch -d '2001-02-03 04:05:06.789' a; mkdir many; i=0
    while [ $i -lt 1200 ]; do : >many/f$i; i=$((i+1)); done
";

/// What is done, and what it prints: the same in the mount and in a plain copy.
const WORK: &str = r"
    find many -type f | wc -l; rm -r many; ls
    echo more >>f; cat g; stat -c '%h' f g; ln f h; rm g; stat -c '%h' f h
    mv p r; cat r/q/f; ls p 2>/dev/null; echo $?
    rm -rf d; mv e d; find d | sort; rm -rf d; mkdir -p d/s; find d | sort
    exec 3<a; echo x >>a; cat <&3; exec 3<&-
    exec 3<a; rm a; cat <&3; stat -L -c %h /proc/self/fd/3; exec 3<&-
    chmod 0751 sparse; stat -c '%a %s' sparse; [ $(stat -c %b sparse) -lt 100 ] && echo holes
    touch -d '1969-01-01 00:00:00.25' old; stat -c %y old
    touch -h -d '2030-01-01 00:00:00.123456789' link; stat -c %y link; readlink link
    n=$(printf 'n%.0s' $(seq 255)); echo 1 >$n; ls | grep -c nnn; rm $n; echo w >.wh.x; cat .wh.x
    mkdir -m 2755 sg; mkdir sg/in; stat -c %a sg/in; mkdir -m 0555 ro; rmdir ro
    (umask 077; : >private; mkdir own); stat -c %a private own
    mkdir full; : >full/x; mv -T d full 2>/dev/null; echo $?; rm full/x; mv -T d full; find full | sort
    timeout 5 sh -c 'flock -n lock echo locked'; stat -c %a lock
    echo 12345678 >w; exec 3<>w 4<w; : >w; echo ab >&3; cat <&4; exec 3<&- 4<&-; stat -c '%s %a' w
    exec 3<f 4>>f; rm f h; echo gone >&4; cat <&3; exec 3<&- 4<&-; ls f 2>/dev/null; echo $?
    echo new >v; exec 3<v; mv w v; cat <&3; cat v; exec 3<&-; echo >>v
    exec 3<r/q/f; echo more >>r/q/f; cat <&3; exec 3<&-; (umask 0222; echo shut >shut); stat -c '%a %s' shut
    cp --reflink=never v copy; dd if=copy of=v bs=1 count=2 seek=9 conv=notrunc 2>/dev/null; cksum <v
    fallocate -l 8192 v; fallocate -p -o 0 -l 4096 v; cksum <v; truncate -s 3 v; cksum <v; stat -c %s v
    i=0; n=$(printf 'd%.0s' $(seq 50))
    while [ $i -lt 90 ]; do mkdir $n && cd -P $n || break; i=$((i+1)); done; echo $i; : >leaf; ls
";

/// A line for everything in a tree: type, mode, links of files, size, content or target.
const TREE: &str = r"
    find . -mindepth 1 -maxdepth 12 \( -type d -printf '%y %m %p\n' -o -printf '%y %m %n %s %l %p\n' \) | sort
    find . -maxdepth 12 -type f -exec cksum {} + | sort -k3
";

/// Runs a script; its standard output goes to `out`.
fn shell(script: &str, dir: &Path, out: &Path) -> bool {
    let file = fs::File::create(out).expect("a file for what it prints");
    let status = Command::new("sh")
        .args(["-c", script])
        .current_dir(dir)
        .stdout(Stdio::from(file))
        .status()
        .expect("a shell");
    status.success()
}

fn both(dir: &Path, out: &Path) {
    assert!(shell(WORK, dir, &out.with_extension("said")), "the work");
    assert!(shell(TREE, dir, &out.with_extension("tree")), "the tree");
}

/// In a child: mounts the overlay in namespaces of its own, has it served by a further child and
/// does the work there. Returns how the child is to end.
fn mounted(base: &Path, cache: CacheMode) -> Result<i32, Errno> {
    let (user, group) = (geteuid(), getegid());
    let mut namespaces = CloneFlags::CLONE_NEWNS;
    if !user.is_root() {
        namespaces |= CloneFlags::CLONE_NEWUSER;
    }
    unshare(namespaces)?;
    if !user.is_root() {
        let write = |file: &str, text: String| fs::write(file, text).map_err(|_| Errno::last());
        write("/proc/self/setgroups", "deny".to_owned())?;
        write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    let nothing = None::<&str>;
    mount(
        nothing,
        "/",
        nothing,
        MsFlags::MS_PRIVATE | MsFlags::MS_REC,
        nothing,
    )?;
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let dir = |name: &str| open(&base.join(name), flags, Mode::empty());
    let sources = Sources {
        layer: "workspace".to_owned(),
        lower: dir("lower")?,
        upper: dir("upper")?,
        work: dir("work")?,
    };
    let Ok(device) = open("/dev/fuse", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()) else {
        return Ok(NO_FUSE);
    };
    let options: Vec<String> = mount_options(device.as_fd(), user.as_raw(), group.as_raw())
        .into_iter()
        .map(|(name, value)| {
            let name = name.to_string_lossy().into_owned();
            match value {
                Some(value) => format!("{name}={}", value.to_string_lossy()),
                None => name,
            }
        })
        .collect();
    let merged = base.join("merged");
    let attributes = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let options = options.join(",");
    let mounted = mount(
        Some("pvisor"),
        &merged,
        Some("fuse"),
        attributes,
        Some(options.as_str()),
    );
    if mounted == Err(Errno::ENODEV) {
        return Ok(NO_FUSE);
    }
    mounted?;
    // SAFETY: this process has one thread.
    if let ForkResult::Child = unsafe { fork() }? {
        let behaviour = overlay::Options {
            one_id: !user.is_root(),
            immutable_lower: cache != CacheMode::Default,
            ..overlay::Options::default()
        };
        let options = Options {
            cache,
            ..Options::default()
        };
        let served = Overlay::new(sources, behaviour, Arc::new(Unguarded))
            .and_then(|overlay| serve(device, overlay, options));
        std::process::exit(i32::from(served.is_err()));
    }
    drop(device);
    let worked = std::panic::catch_unwind(|| both(&merged, &base.join("ours")));
    umount2(&merged, MntFlags::MNT_DETACH)?;
    Ok(i32::from(worked.is_err()))
}

pub fn a_script_on_the_mount_does_what_it_does_in_a_copy() {
    script_with(CacheMode::Default);
}

pub fn a_script_on_a_mount_that_caches_all_it_can_does_too() {
    script_with(CacheMode::Extended);
}

fn script_with(cache: CacheMode) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let base = dir.path();
    for name in ["lower", "upper", "work", "merged", "twin"] {
        fs::create_dir(base.join(name)).expect("makes");
    }
    for name in ["lower", "twin"] {
        assert!(shell(FILL, &base.join(name), &base.join("fill")), "fills");
    }
    assert!(shell(TREE, &base.join("lower"), &base.join("before.tree")));
    // SAFETY: these tests run in a process with one thread.
    let status = match unsafe { fork() }.expect("forks") {
        ForkResult::Child => {
            let end = mounted(base, cache).unwrap_or_else(|e| {
                println!("mounting: {e}");
                1
            });
            std::process::exit(end);
        }
        ForkResult::Parent { child } => waitpid(child, None).expect("waits"),
    };
    if matches!(status, WaitStatus::Exited(_, NO_FUSE)) {
        println!("skipped: /dev/fuse cannot be opened or mounted by this user");
        return;
    }
    assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
    both(&base.join("twin"), &base.join("native"));
    let text = |name: &str| fs::read_to_string(base.join(name)).expect("reads");
    assert_eq!(text("ours.said"), text("native.said"));
    assert_eq!(text("ours.tree"), text("native.tree"));
    assert!(shell(TREE, &base.join("lower"), &base.join("after.tree")));
    assert_eq!(text("before.tree"), text("after.tree"), "the lower changed");
}
