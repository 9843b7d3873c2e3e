//! Machines that are not as they should be: covered `/proc`, mounts inside layers, no namespaces.
//! A scenario is run by this program itself, started again on a prepared machine.

use std::fs;
use std::path::Path;
use std::process::Command;

use pvisor::doctor::examine;

use crate::fixture::{Fixture, prepared, refusal, run};

pub fn a_workspace_on_a_mount_of_its_own_is_staged() {
    let f = Fixture::new();
    let dir = f.workspace.display();
    let prepare = format!("mount -t tmpfs none '{dir}'; echo far >'{dir}/a.txt'");
    if let Some((status, text)) = prepared(&prepare, &format!("mounted {dir}")) {
        assert_eq!(status, 0, "{text}");
    }
}

pub fn scenario_mounted(workspace: &Path) {
    let f = Fixture::new();
    let mut spec = f.shell("cat a.txt; echo more >>a.txt; cat a.txt");
    spec.layers[0].root = workspace.into();
    spec.cwd = workspace.into();
    assert_eq!(run(&spec).out, "far\nfar\nmore\n");
    assert_eq!(
        fs::read_to_string(workspace.join("a.txt")).expect("a"),
        "far\n"
    );
}

pub fn a_covered_proc_is_used_read_only() {
    let prepare = "mount --bind /proc/sys /proc/sys; mount -o remount,ro,bind /proc/sys";
    let Some((status, text)) = prepared(prepare, "proc") else {
        return;
    };
    assert_eq!(status, 0, "{text}");
}

pub fn scenario_proc() {
    let f = Fixture::new();
    let ran = run(&f.shell(
        "readlink /proc/self >/dev/null && echo self; cat /proc/1/environ >/dev/null && echo looked; \
         ls /proc/1/root/ && echo entered; kill -0 $PPID && echo signal; echo x >/proc/sys/kernel/core_pattern && echo wrote",
    ));
    assert_eq!(ran.boundary.proc, "host, read-only");
    assert!(
        ran.boundary
            .notes
            .iter()
            .any(|n| n.starts_with("/proc is the host's"))
    );
    let lines: Vec<&str> = ran.out.lines().collect();
    // `$PPID` is 1 inside: PID 1 may be asked whether it exists, not more.
    assert!(lines.contains(&"self"), "{} {}", ran.out, ran.err);
    for word in ["looked", "entered", "wrote"] {
        assert!(!lines.contains(&word), "{word}");
    }
}

pub fn a_mount_inside_the_workspace_is_shown_and_never_written() {
    let f = Fixture::new();
    let mount = f.workspace.join("mnt point");
    fs::create_dir(&mount).expect("dir");
    let prepare = format!(
        "mount -t tmpfs none '{0}'; echo in >'{0}/x'",
        mount.display()
    );
    let scenario = format!("submount {}", f.workspace.display());
    if let Some((status, text)) = prepared(&prepare, &scenario) {
        assert_eq!(status, 0, "{text}");
    }
}

pub fn scenario_submount(workspace: &Path) {
    let f = Fixture::new();
    let mut spec = f.shell("cat 'mnt point/x'; echo y >'mnt point/y' || echo no; echo z >z; cat z");
    spec.layers[0].root = workspace.into();
    spec.cwd = workspace.into();
    let ran = run(&spec);
    assert_eq!(ran.out, "in\nno\nz\n", "{}", ran.err);
    let notes = ran.boundary.notes.join("\n");
    assert!(notes.contains("mnt point is mounted inside"), "{notes}");
    let layers = &ran.boundary.layers;
    let layer = layers
        .iter()
        .find(|l| l.name == "workspace")
        .expect("layer");
    assert_eq!(layer.driver, "fuse", "{layer:?}");
    // The kernel alone cannot do it, and says so.
    spec.driver = pvisor::sandbox::spec::DriverChoice::Overlayfs;
    let (error, hint) = refusal(&spec);
    assert!(error.contains("mnt point is mounted inside it"), "{error}");
    assert!(hint.contains("--driver auto"), "{hint}");
}

pub fn a_mount_inside_the_home_leaves_it_staged() {
    let f = Fixture::new();
    let mount = f.home.join("remote");
    fs::create_dir(&mount).expect("dir");
    let prepare = format!(
        "mount -t tmpfs none '{0}'; echo far >'{0}/file'",
        mount.display()
    );
    let scenario = format!("home {}", f.home.display());
    if let Some((status, text)) = prepared(&prepare, &scenario) {
        assert_eq!(status, 0, "{text}");
    }
}

pub fn scenario_home(home: &Path) {
    let mut f = Fixture::new();
    f.home = home.into();
    f.workspace = home.join("proj");
    let mut spec = f.shell(
        "cat ~/remote/file; echo x >~/x && echo wrote; echo y >~/remote/y && echo past; echo z >z && echo staged",
    );
    let ran = run(&spec);
    assert_eq!(ran.out, "far\nwrote\nstaged\n", "{}", ran.err);
    assert!(!home.join("x").exists() && !home.join("remote/y").exists());
    let home = ran.boundary.layers.iter().find(|l| l.name == "home");
    assert_eq!(home.expect("layer").driver, "fuse");
    // Where only the kernel may merge, the home directory is what goes without.
    spec.driver = pvisor::sandbox::spec::DriverChoice::Overlayfs;
    let ran = run(&spec);
    assert_eq!(ran.out, "far\nstaged\n", "{}", ran.err);
    let notes = ran.boundary.notes.join("\n");
    assert!(notes.contains("home directory is read-only"), "{notes}");
}

pub fn without_user_namespaces_nothing_runs() {
    let probe = Command::new("unshare").args(["-Ur", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("skipped: unshare -Ur is not possible here");
        return;
    }
    let output = Command::new("unshare")
        .args(["-Ur", "sh", "-c"])
        .arg("echo 0 >/proc/sys/user/max_user_namespaces; exec \"$0\" scenario")
        .arg(std::env::current_exe().expect("this program"))
        .env("PVISOR_SCENARIO", "denied")
        .output()
        .expect("unshare");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("max_user_namespaces is 0") && text.contains("sudo sysctl"),
        "{text}"
    );
}

pub fn scenario_denied() {
    let f = Fixture::new();
    let (error, hint) = refusal(&f.shell("touch ran"));
    println!("{error}\n{hint}");
    assert!(!f.workspace.join("ran").exists());
    let report = examine(&f.session);
    assert!(!report.staged_works());
    let check = report
        .checks
        .iter()
        .find(|c| !c.ok && c.needed)
        .expect("a failed check");
    assert!(
        check.detail.contains("max_user_namespaces is 0"),
        "{check:?}"
    );
    assert!(
        check.remedy.as_ref().expect("remedy").contains("sysctl"),
        "{check:?}"
    );
}

pub fn doctor_tries_every_step_and_leaves_nothing() {
    let f = Fixture::new();
    let report = examine(&f.session.join("not/yet/made"));
    assert!(report.staged_works(), "{report:#?}");
    let names: Vec<&str> = report.checks.iter().map(|c| c.name.as_str()).collect();
    for name in [
        "state directory",
        "overlay in a user namespace",
        "a FUSE file system of our own",
        "a /proc of its own",
        "/dev/kvm",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    for check in &report.checks {
        assert!(check.ok || check.remedy.is_some(), "{check:?}");
    }
    let left = fs::read_dir(&f.session).expect("dir").count();
    assert_eq!(left, 0, "nothing is left behind");
    // A place no upper can lie on is named: inside a sandbox, /etc is read-only.
    assert!(!examine(Path::new("/proc")).staged_works());
}
