//! Uppers as the kernel writes them: what a walk reports, and what putting back leaves.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use pvisor::RelPath;
use pvisor::layer::{
    DirectAccess, Driver, FileType, Layer, StageAccess, Tree, UpperEntry, restore, walk,
};

/// A layer on disk, and a shell whose view of the lower is an overlay while it is mounted.
pub struct Stage {
    _dir: tempfile::TempDir,
    pub layer: Layer,
    shell: Option<(Child, ChildStdin, BufReader<ChildStdout>)>,
    /// This test program as it runs, inherited by the shell: by the time the shell calls it, a
    /// build may have put another one in its place.
    program: OwnedFd,
    mounts: u32,
}

impl Stage {
    /// An empty lower and upper.
    pub fn new() -> Self {
        Self::named("workspace")
    }

    /// As [`Stage::new`], with a layer name.
    pub fn named(name: &str) -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let layer = Layer {
            name: name.into(),
            root: dir.path().join("lower"),
            dir: dir.path().join("layer"),
            driver: Driver::Overlayfs,
        };
        for made in [
            layer.root.clone(),
            layer.upper(),
            layer.work(),
            layer.base(),
        ] {
            fs::create_dir_all(made).expect("mkdir");
        }
        Self {
            _dir: dir,
            layer,
            shell: None,
            program: nix::unistd::dup(fs::File::open("/proc/self/exe").expect("this program"))
                .expect("dup"),
            mounts: 0,
        }
    }

    /// Mounts the overlay; `false` (with a printed reason) where the machine does not allow it.
    pub fn mount(&mut self) -> bool {
        self.mounts += 1;
        let work = self.layer.work().join(self.mounts.to_string());
        let merged = self.layer.dir.join("merged");
        fs::create_dir_all(&work).expect("mkdir");
        fs::create_dir_all(&merged).expect("mkdir");
        let script = format!(
            "mount -t overlay overlay -o lowerdir={},upperdir={},workdir={},userxattr,volatile {m} \
             && cd {m} && echo ready && while IFS= read -r line; do eval \"$line\"; echo \"=$?\"; done",
            self.layer.root.display(),
            self.layer.upper().display(),
            work.display(),
            m = merged.display()
        );
        let child = Command::new("unshare")
            .args(["-Urm", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            eprintln!("skipped: the program unshare is missing");
            return false;
        };
        let stdin = child.stdin.take().expect("stdin");
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("read");
        if line.trim() != "ready" {
            let output = child.wait_with_output().expect("wait");
            eprintln!(
                "skipped: no overlay in a user namespace here: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
            return false;
        }
        self.shell = Some((child, stdin, stdout));
        true
    }

    /// Runs one line of shell in the merged view and returns what it printed; fails the test if it
    /// fails.
    pub fn agent(&mut self, script: &str) -> String {
        let (_, stdin, stdout) = self.shell.as_mut().expect("mounted");
        assert!(!script.contains('\n'), "one line");
        writeln!(stdin, "{script}").expect("write");
        let mut printed = String::new();
        loop {
            let mut line = String::new();
            assert!(
                stdout.read_line(&mut line).expect("read") > 0,
                "the shell ended"
            );
            match line.strip_prefix('=') {
                Some(status) => {
                    assert_eq!(status.trim(), "0", "{script}\n{printed}");
                    return printed;
                }
                None => printed.push_str(&line),
            }
        }
    }

    /// Ends the shell and with it the mount.
    pub fn unmount(&mut self) {
        if let Some((mut child, stdin, stdout)) = self.shell.take() {
            drop(stdin);
            drop(stdout);
            child.wait().expect("wait");
        }
    }

    /// Runs one line of shell on the host, in the lower.
    pub fn host(&self, script: &str) {
        let status = Command::new("sh")
            .args(["-c", script])
            .current_dir(&self.layer.root)
            .status()
            .expect("sh");
        assert!(status.success(), "{script}");
    }

    /// Plain access to the upper.
    pub fn access(&self) -> DirectAccess {
        DirectAccess::open(std::slice::from_ref(&self.layer)).expect("access")
    }

    /// Calls a test of this binary inside the mount's namespaces, on the merged view.
    fn restore_live(&mut self, path: &str) {
        self.agent(&format!(
            "RESTORE_LOWER={} RESTORE_PATH={path} /proc/self/fd/{} --exact layers::live_restore_in_namespace --ignored 2>&1",
            self.layer.root.display(),
            self.program.as_raw_fd()
        ));
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.unmount();
        // What an agent locked must not outlive the test.
        let _ = Command::new("chmod")
            .args(["-R", "u+rwX"])
            .arg(&self.layer.dir)
            .stderr(Stdio::null())
            .status();
    }
}

/// A path below a layer's root.
pub fn rel(path: &str) -> RelPath {
    RelPath::try_from(path).expect("path")
}

fn find<'a>(entries: &'a [UpperEntry], path: &str) -> &'a UpperEntry {
    entries
        .iter()
        .find(|e| e.path == rel(path))
        .unwrap_or_else(|| panic!("{path} is not in {entries:?}"))
}

fn paths(entries: &[UpperEntry]) -> Vec<String> {
    entries.iter().map(|e| e.path.to_string()).collect()
}

/// A tree as `type mode mtime content` lines, for comparing two of them.
fn snapshot(root: &Path) -> Vec<String> {
    fn visit(root: &Path, dir: &Path, out: &mut Vec<String>) {
        let mut names: Vec<PathBuf> = fs::read_dir(dir)
            .expect("list")
            .map(|e| e.expect("entry").path())
            .collect();
        names.sort();
        for path in names {
            let meta = fs::symlink_metadata(&path).expect("stat");
            let content = if meta.is_symlink() {
                fs::read_link(&path)
                    .expect("link")
                    .into_os_string()
                    .into_encoded_bytes()
            } else if meta.is_file() {
                fs::read(&path).expect("read")
            } else {
                Vec::new()
            };
            let mtime = if meta.is_dir() { 0 } else { meta.mtime_nsec() };
            out.push(format!(
                "{} {:o} {mtime} {}",
                path.strip_prefix(root).expect("below").display(),
                meta.mode(),
                content.escape_ascii()
            ));
            if meta.is_dir() {
                visit(root, &path, out);
            }
        }
    }
    let mut out = Vec::new();
    visit(root, root, &mut out);
    out
}

#[test]
fn a_walk_reports_what_the_kernel_wrote() {
    let mut stage = Stage::new();
    stage.host("mkdir -p gone/s again keep/in; echo 1 > gone/s/f; echo 1 > again/old; echo 1 > f; echo 1 > keep/in/f");
    if !stage.mount() {
        return;
    }
    stage.agent("rm -r gone; rm -r again; mkdir again; echo n > again/new; mkdir fresh; ln -s /etc/passwd fresh/l; mkfifo fresh/p");
    stage.agent("echo 2 >> f; chmod 000 f; touch '.wh.f'; rm keep/in/f");
    stage.agent("setfattr -n user.overlay.opaque -v mine fresh 2>/dev/null || python3 -c 'import os; os.setxattr(\"fresh\", \"user.overlay.opaque\", b\"mine\")'");
    stage.unmount();
    let entries = stage.access().walk("workspace").expect("walk");
    assert_eq!(
        paths(&entries),
        [
            "",
            ".wh.f",
            "again",
            "again/new",
            "f",
            "fresh",
            "fresh/l",
            "fresh/p",
            "gone",
            "keep",
            "keep/in",
            "keep/in/f"
        ]
    );
    assert!(find(&entries, "gone").whiteout);
    assert!(find(&entries, "keep/in/f").whiteout);
    assert!(!find(&entries, ".wh.f").whiteout, "an ordinary name here");
    assert!(find(&entries, "again").opaque);
    let fresh = find(&entries, "fresh");
    assert!(!fresh.opaque || fresh.node.xattrs.contains_key("user.overlay.opaque"));
    assert_eq!(fresh.node.xattrs["user.overlay.opaque"], b"mine");
    assert_eq!(
        find(&entries, "fresh/l").node.target.as_deref(),
        Some(&b"/etc/passwd"[..])
    );
    assert_eq!(find(&entries, "fresh/p").node.file_type, FileType::Fifo);
    let f = find(&entries, "f");
    assert_eq!((f.node.mode, f.node.size), (0, 4));
    assert!(f.node.xattrs.is_empty(), "{:?}", f.node.xattrs);
    assert!(f.born.is_some());
}

#[test]
fn xattr_whiteouts_count_only_in_a_marked_directory() {
    let stage = Stage::new();
    let upper = stage.layer.upper();
    for dir in ["marked", "plain"] {
        fs::create_dir(upper.join(dir)).expect("mkdir");
        fs::write(upper.join(dir).join("w"), "").expect("write");
        xattr::set(upper.join(dir).join("w"), "user.overlay.whiteout", b"").expect("xattr");
    }
    xattr::set(upper.join("marked"), "user.overlay.opaque", b"x").expect("xattr");
    let entries = stage.access().walk("workspace").expect("walk");
    assert!(find(&entries, "marked/w").whiteout);
    assert!(!find(&entries, "marked").opaque);
    assert!(!find(&entries, "plain/w").whiteout);
}

#[test]
fn a_walk_goes_deeper_than_a_path_may_be_long() {
    let stage = Stage::new();
    let tree = Tree::open(&stage.layer.upper()).expect("open");
    let mut at = tree.dir(&RelPath::root()).expect("root");
    let mut path = RelPath::root();
    for level in 0..200 {
        let name = format!("{level:050}");
        nix::sys::stat::mkdirat(&at, name.as_str(), nix::sys::stat::Mode::S_IRWXU).expect("mkdir");
        at = pvisor::layer::read::open_dir(at.as_fd(), name.as_bytes()).expect("open");
        path = path.join(name.as_bytes());
    }
    for name in ["a", "z"] {
        nix::sys::stat::mkdirat(&at, name, nix::sys::stat::Mode::S_IRWXU).expect("mkdir");
    }
    let entries = walk::walk_upper(tree.root()).expect("walk");
    assert_eq!(entries.len(), 203);
    assert_eq!(entries[201].path, path.join(b"a"));
    // And it can be taken back in one go.
    let lower = Tree::open(&stage.layer.root).expect("open");
    restore::restore_unmounted(lower.root(), tree.root(), &rel(&format!("{:050}", 0)))
        .expect("restore");
    assert_eq!(walk::walk_upper(tree.root()).expect("walk").len(), 1);
}

#[test]
fn a_large_upper_is_walked_quickly() {
    let stage = Stage::new();
    let upper = stage.layer.upper();
    for dir in 0..20 {
        let dir = upper.join(dir.to_string());
        fs::create_dir(&dir).expect("mkdir");
        for file in 0..200 {
            fs::write(dir.join(file.to_string()), "").expect("write");
        }
    }
    let tree = Tree::open(&upper).expect("open");
    let started = std::time::Instant::now();
    let entries = walk::walk_upper(tree.root()).expect("walk");
    let took = started.elapsed();
    assert_eq!(entries.len(), 4_021);
    eprintln!("walked 4,021 entries in {took:?}");
    // A debug build on a busy machine: a loose bound that still fails when a walk does something
    // slow per entry.
    assert!(took < std::time::Duration::from_secs(10), "{took:?}");
}

#[test]
fn putting_back_while_mounted_loses_no_later_write() {
    let mut stage = Stage::new();
    stage.host("mkdir -p d/s; echo a > d/f; echo b > d/s/g; printf 'x\\n' > x; chmod 640 x; ln -s x l; mkdir t; echo 1 > t/1");
    let before = snapshot(&stage.layer.root);
    if !stage.mount() {
        return;
    }
    stage.agent("exec 3>>x; echo mine >&3; chmod 777 x; rm -r d; ln -sfn /etc l; rm -r t; echo file > t; echo new > n; mkdir -p m/k; echo k > m/k/k");
    for path in ["x", "d", "l", "t", "n", "m"] {
        stage.restore_live(path);
    }
    assert_eq!(stage.agent("cat x d/f d/s/g t/1"), "x\na\nb\n1\n");
    let merged = stage.agent("find . -mindepth 1 | sort");
    assert_eq!(merged, "./d\n./d/f\n./d/s\n./d/s/g\n./l\n./t\n./t/1\n./x\n");
    assert_eq!(stage.agent("stat -c %a x; readlink l"), "640\nx\n");
    // The agent's descriptor still leads to what is seen.
    assert_eq!(stage.agent("echo later >&3; cat x"), "x\nlater\n");
    assert_eq!(snapshot(&stage.layer.root), before, "the host is untouched");
}

#[test]
fn one_file_of_a_deleted_directory_can_be_put_back() {
    let mut stage = Stage::new();
    stage.host("mkdir -p d/s; chmod 750 d; echo a > d/s/f; echo b > d/s/g");
    if !stage.mount() {
        return;
    }
    stage.agent("rm -r d");
    stage.restore_live("d/s/f");
    assert_eq!(
        stage.agent("find d | sort; stat -c %a d"),
        "d\nd/s\nd/s/f\n750\n"
    );
    stage.agent("rm -r d");
    stage.unmount();
    stage
        .access()
        .restore("workspace", &rel("d/s/g"))
        .expect("restore");
    assert!(stage.mount());
    assert_eq!(
        stage.agent("find d | sort; cat d/s/g"),
        "d\nd/s\nd/s/g\nb\n"
    );
}

#[test]
fn putting_back_without_a_mount_shows_the_lower_again() {
    let mut stage = Stage::new();
    stage.host("mkdir -p d/s again; echo a > d/f; echo b > d/s/g; echo o > again/old; echo x > x; mkfifo p");
    if !stage.mount() {
        return;
    }
    stage.agent(
        "echo 2 >> x; rm -r d; rm -r again; mkdir again; echo n > again/new; rm p; echo n > n",
    );
    stage.unmount();
    let access = stage.access();
    for path in ["x", "d", "again/old", "again/new", "p", "n", "never/was"] {
        access.restore("workspace", &rel(path)).expect("restore");
    }
    assert!(stage.mount());
    assert_eq!(stage.agent("cat x d/f d/s/g again/old"), "x\na\nb\no\n");
    assert_eq!(
        stage.agent("find . -mindepth 1 | sort"),
        "./again\n./again/old\n./d\n./d/f\n./d/s\n./d/s/g\n./p\n./x\n"
    );
}

#[test]
fn a_parent_replaced_by_a_file_is_named_and_kept() {
    let stage = Stage::new();
    stage.host("mkdir d; echo 1 > d/1");
    fs::write(stage.layer.upper().join("d"), "mine").expect("write");
    let error = stage
        .access()
        .restore("workspace", &rel("d/1"))
        .expect_err("refused");
    assert!(error.to_string().contains("d/1"), "{error}");
    assert_eq!(
        fs::read(stage.layer.upper().join("d")).expect("kept"),
        b"mine"
    );
}

#[test]
fn hard_links_of_the_agents_own_are_not_written_through() {
    let mut stage = Stage::new();
    stage.host("echo a > f");
    if !stage.mount() {
        return;
    }
    stage.agent("echo b > f; ln f other");
    stage.restore_live("f");
    assert_eq!(stage.agent("cat f other"), "a\nb\n");
}

#[test]
fn attributes_and_sparse_files_survive() {
    let stage = Stage::new();
    let lower = stage.layer.root.join("f");
    fs::File::create(&lower)
        .expect("create")
        .set_len(1 << 30)
        .expect("size");
    xattr::set(&lower, "user.overlay.opaque", b"theirs").expect("xattr");
    fs::set_permissions(&lower, fs::Permissions::from_mode(0o444)).expect("chmod");
    // An opaque parent, so that the entry has to be copied.
    let parent = stage.layer.root.join("d");
    fs::create_dir(&parent).expect("mkdir");
    fs::rename(&lower, parent.join("f")).expect("rename");
    symlink("f", parent.join("l")).expect("link");
    let upper = stage.layer.upper().join("d");
    fs::create_dir(&upper).expect("mkdir");
    xattr::set(&upper, "user.overlay.opaque", b"y").expect("xattr");
    let access = stage.access();
    access.restore("workspace", &rel("d/f")).expect("restore");
    access.restore("workspace", &rel("d/l")).expect("restore");
    let meta = fs::metadata(upper.join("f")).expect("stat");
    assert_eq!((meta.len(), meta.mode() & 0o7777), (1 << 30, 0o444));
    assert!(meta.blocks() < 64, "holes stay holes");
    let entries = access.walk("workspace").expect("walk");
    let file = find(&entries, "d/f");
    assert_eq!(file.node.xattrs["user.overlay.opaque"], b"theirs");
    assert!(find(&entries, "d").opaque);
    assert_eq!(
        find(&entries, "d/l").node.target.as_deref(),
        Some(&b"f"[..])
    );
}

/// Not a test of its own: the inside half of [`Stage::restore_live`].
#[test]
#[ignore = "called by other tests inside a namespace"]
fn live_restore_in_namespace() {
    let (Ok(lower), Ok(path)) = (
        std::env::var("RESTORE_LOWER"),
        std::env::var("RESTORE_PATH"),
    ) else {
        return;
    };
    let lower = Tree::open(Path::new(&lower)).expect("lower");
    let merged = Tree::open(Path::new(".")).expect("merged");
    restore::restore_live(lower.root(), merged.root(), &rel(&path)).expect("restore");
}
