//! Where layers and mounts appear, and how uppers are read and restored.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pvisor::RelPath;
use pvisor::layer::AccessError;
use pvisor::sandbox::{AgentIo, ExitStatus, MountAccess, MountSpec, open_unmounted, start};

use crate::fixture::{Fixture, read, refusal, run};

pub fn the_command_runs_in_place_as_its_caller_and_the_host_stays_clean() {
    let f = Fixture::new();
    let ran = run(&f.shell(
        "pwd; id -u; echo $HOME; hostname; umask; echo more >>a.txt; echo new >b.txt; echo x >~/.new",
    ));
    assert_eq!(ran.err, "");
    assert_eq!(ran.status, ExitStatus::Code(0));
    let hostname = nix::unistd::gethostname().expect("name");
    let umask = Command::new("sh")
        .args(["-c", "umask"])
        .output()
        .expect("umask");
    let expected = format!(
        "{}\n{}\n{}\n{}\n{}",
        f.workspace.display(),
        nix::unistd::geteuid(),
        f.home.display(),
        hostname.display(),
        String::from_utf8_lossy(&umask.stdout),
    );
    assert_eq!(ran.out, expected);
    assert_eq!(
        fs::read_to_string(f.workspace.join("a.txt")).expect("a"),
        "a\n"
    );
    assert!(!f.workspace.join("b.txt").exists());
    assert!(!f.home.join(".new").exists());
    let upper = |layer, path| fs::read_to_string(f.upper(layer, path)).expect("in the upper");
    assert_eq!(upper("workspace", "a.txt"), "a\nmore\n");
    assert_eq!(upper("workspace", "b.txt"), "new\n");
    assert_eq!(upper("home", ".new"), "x\n");
    assert!(
        !f.upper("home", "proj").exists(),
        "the workspace is no change of the home"
    );
    let mode = |path: &Path| fs::metadata(path).expect("dir").mode();
    assert_eq!(mode(&f.upper("workspace", "")), mode(&f.workspace));
    assert_eq!(
        ran.boundary.namespaces,
        ["user", "mnt", "pid", "ipc", "uts"]
    );
    assert_eq!(ran.boundary.layers.len(), 2);
    assert_eq!(ran.boundary.proc, "new");
    assert_eq!(ran.boundary.network, "host");
}

pub fn a_workspace_in_tmp_is_seen_in_place() {
    let f = Fixture::in_dir(&std::env::temp_dir());
    let ran = run(&f.shell("pwd; cat a.txt; echo more >>a.txt; touch ../x; ls -A /tmp | wc -l"));
    assert_eq!(
        ran.out,
        format!("{}\na\n1\n", f.workspace.display()),
        "{}",
        ran.err
    );
    assert!(f.upper("home", "x").exists());
}

pub fn a_workspace_that_is_the_home_is_one_layer() {
    let f = Fixture::new();
    let mut spec = f.shell("echo $PWD; echo x >x; cat .profile");
    spec.layers = vec![f.layer("workspace", &f.home)];
    spec.cwd.clone_from(&f.home);
    let ran = run(&spec);
    assert_eq!(ran.out, format!("{}\np\n", f.home.display()), "{}", ran.err);
    assert!(f.upper("workspace", "x").exists());
}

pub fn a_session_inside_the_workspace_is_hidden() {
    let mut f = Fixture::new();
    f.session = f.workspace.join(".stage/s");
    let mut spec = f.shell("find . 2>/dev/null | wc -l; mkdir -p .stage/x; echo rc=$?");
    spec.hide = vec![f.workspace.join(".stage")];
    let ran = run(&spec);
    assert_eq!(ran.out, "3\nrc=1\n", "{}", ran.err);
    // The same when nobody asked for it: the stage is never seen.
    spec.hide.clear();
    spec.command = [
        "sh",
        "-c",
        "ls -R .stage/s/layers/workspace .stage/s/private",
    ]
    .map(OsString::from)
    .into();
    let ran = run(&spec);
    assert_eq!(ran.out.matches("tmp").count(), 0, "{}", ran.out);
    assert_ne!(ran.status, ExitStatus::Code(0));
}

pub fn a_workspace_in_a_hidden_place_is_refused() {
    let f = Fixture::new();
    let place = f.home.join(".password-store/repo");
    fs::create_dir_all(&place).expect("dir");
    let mut spec = f.spec(["true"]);
    spec.layers[0].root.clone_from(&place);
    spec.cwd = place;
    let (error, hint) = refusal(&spec);
    assert!(
        error.contains(".password-store, which is hidden"),
        "{error}"
    );
    assert!(hint.contains("--mount"), "{hint}");
    spec.unhide = vec![f.home.join(".password-store")];
    assert_eq!(run(&spec).status, ExitStatus::Code(0));
}

pub fn mounts_are_what_was_asked_for() {
    let f = Fixture::new();
    let data = f.root.path().join("data");
    for name in ["read", "write", "private", "hide"] {
        fs::create_dir_all(data.join(name)).expect("dir");
        fs::write(data.join(name).join("f"), name).expect("file");
    }
    fs::write(f.home.join(".tool"), "tool").expect("file");
    let data = fs::canonicalize(data).expect("real");
    let mount = |name: &str, access| MountSpec {
        source: data.join(name),
        target: data.join(name),
        access,
        name: None,
    };
    let mut spec = f.shell(&format!(
        "cd {}; for d in read write private hide; do cat $d/f; echo new >$d/n && echo $d; done; \
         echo x >~/.tool && echo wrote; cat ~/.tool /tmp/inner/f",
        data.display()
    ));
    spec.mounts = vec![
        mount("read", MountAccess::Read),
        mount("write", MountAccess::Write),
        mount("private", MountAccess::Private),
        mount("hide", MountAccess::Hide),
        MountSpec {
            source: f.home.join(".tool"),
            target: f.home.join(".tool"),
            access: MountAccess::Read,
            name: None,
        },
        MountSpec {
            source: data.join("read"),
            target: "/tmp/inner".into(),
            access: MountAccess::Read,
            name: None,
        },
    ];
    let ran = run(&spec);
    assert_eq!(ran.out, "readwritewrite\nprivate\ntoolread", "{}", ran.err);
    assert_eq!(
        fs::read_to_string(data.join("write/n")).expect("written"),
        "new\n"
    );
    assert!(!data.join("private/n").exists());
    assert_eq!(
        ran.boundary.writable,
        [data.join("write").display().to_string()]
    );
    let there = run(&f.shell("true"));
    assert_eq!(there.status, ExitStatus::Code(0));
    spec.mounts[0].target = "/no/such/place".into();
    let (error, _) = refusal(&spec);
    assert!(error.contains("/no/such/place"), "{error}");
}

pub fn a_layer_goes_on_with_its_upper() {
    let f = Fixture::new();
    run(&f.shell("echo one >b; mkdir z; chmod 0 z"));
    let ran = run(&f.shell("cat b; echo two >>b; echo t >/tmp/t"));
    assert_eq!(ran.out, "one\n", "{}", ran.err);
    let ran = run(&f.shell("cat b /tmp/t"));
    assert_eq!(ran.out, "one\ntwo\nt\n", "{}", ran.err);
    let works = fs::read_dir(f.session.join("layers/workspace/work"))
        .expect("work")
        .count();
    assert_eq!(works, 1, "earlier work directories are gone");
}

pub fn uppers_are_read_with_the_agents_rights() {
    let f = Fixture::new();
    let deep = "d/".repeat(2500);
    let descend = "import os\nfor _ in range(2500): os.mkdir('d'); os.chdir('d')\nopen('end','w').write('deep\\n')";
    let mut spec = f.shell(&format!(
        "echo secret >z; chmod 0 z; mkdir locked; echo in >locked/f; chmod 0 locked; ln -s z l; \
         mkfifo p; python3 -c \"{descend}\"; echo ready; cat",
    ));
    spec.timeout = Some(Duration::from_secs(60));
    let running = start(&spec).unwrap_or_else(|e| panic!("{e}"));
    let AgentIo::Pipes { stdin, stdout, .. } = running.io else {
        panic!("pipes");
    };
    let mut ready = [0; 6];
    let mut stdout = fs::File::from(stdout);
    stdout.read_exact(&mut ready).expect("ready");
    let access = running.access.expect("staged");
    let path = |text: &str| RelPath::try_from(text).expect("path");
    let check = |access: &dyn pvisor::layer::StageAccess| {
        let content = |name: &str| match access.open("workspace", &path(name)) {
            Ok(fd) => read(fd),
            Err(AccessError::Io { message, .. }) => panic!("{message}"),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(content("z"), "secret\n");
        assert_eq!(content("locked/f"), "in\n");
        assert_eq!(content(&format!("{deep}end")), "deep\n");
        for name in ["l", "p", "locked", "none", "l/x"] {
            let error = access.open("workspace", &path(name)).expect_err(name);
            assert!(matches!(error, AccessError::Io { .. }), "{name}: {error}");
        }
        let error = access.open("nowhere", &path("z")).expect_err("layer");
        assert_eq!(error, AccessError::NoLayer("nowhere".into()));
        access.sync("workspace").expect("sync");
        let entries = access.walk("workspace").expect("walk");
        assert!(entries.iter().any(|e| e.path == path("locked/f")));
    };
    check(&*access);
    fs::File::from(stdin).write_all(b"bye\n").expect("write");
    assert_eq!(running.exit.wait(), ExitStatus::Code(0));
    check(&*access);
    drop(access);
    let layers = spec.layers.clone();
    check(&*open_unmounted(&layers).expect("unmounted"));
}

pub fn a_restore_is_seen_by_the_agent_and_loses_no_later_write() {
    let f = Fixture::new();
    fs::write(f.workspace.join("gone"), "back\n").expect("file");
    let running = start(&f.shell(
        "exec 3>>a.txt; echo one >&3; rm gone; mkdir new; echo n >new/f; echo ready; read go; \
         cat a.txt gone; ls; echo two >&3; echo three >>a.txt; cat a.txt",
    ))
    .unwrap_or_else(|e| panic!("{e}"));
    let AgentIo::Pipes { stdin, stdout, .. } = running.io else {
        panic!("pipes");
    };
    let mut ready = [0; 6];
    let mut stdout = fs::File::from(stdout);
    stdout.read_exact(&mut ready).expect("ready");
    let access = running.access.expect("staged");
    for name in ["a.txt", "gone", "new"] {
        let path = RelPath::try_from(name).expect("path");
        access.restore("workspace", &path).expect(name);
    }
    fs::File::from(stdin).write_all(b"go\n").expect("write");
    assert_eq!(read(stdout.into()), "a\nback\na.txt\ngone\na\ntwo\nthree\n");
    assert_eq!(running.exit.wait(), ExitStatus::Code(0));
    let upper = fs::read_to_string(f.upper("workspace", "a.txt")).expect("upper");
    assert_eq!(upper, "a\ntwo\nthree\n");
}
