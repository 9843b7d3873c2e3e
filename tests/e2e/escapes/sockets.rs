//! Services that listen on sockets of the host and act with rights of their own.

use std::fs;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use super::{SECRET, attack, escape, verdict};
use crate::support::{Call, Capability, binary, require};

/// Answers everybody with the secret.
fn serve(listener: UnixListener) {
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 64];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(format!("{SECRET}\n").as_bytes());
        }
    });
}

fn listen(path: &Path, mode: u32) {
    let listener = UnixListener::bind(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    serve(listener);
}

escape! {
    fn of_the_abstract_namespace(cell) {
        require!(cell, Capability::Program("cc"));
        let name = format!("pvtest-{}", cell.root.file_name().unwrap().to_str().unwrap());
        serve(UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap());
        let tried = format!("{} talk @{name}", attack());
        assert!(cell.host(&tried).out().contains(SECRET), "control");
        let done = cell.refused(&tried);
        assert_eq!(verdict(&done), "EPERM", "{done}");
        // Among themselves the agent's programs may use them.
        require!(cell, Capability::Program("socat"));
        let inside = format!(
            "socat abstract-listen:{name}-own exec:'echo own' & for i in $(seq 50); do \
             socat -u abstract-connect:{name}-own - 2>/dev/null && exit 0; sleep 0.05; done; exit 1"
        );
        assert_eq!(cell.run(&inside).out(), "own\n");
    }
}

escape! {
    fn in_a_read_only_place(cell) {
        require!(cell, Capability::Program("cc"));
        let path = cell.outside("service").join("s");
        listen(&path, 0o666);
        let tried = format!("{} talk {}", attack(), path.display());
        assert!(cell.host(&tried).out().contains(SECRET), "control");
        cell.refused(&tried);
        cell.refused(&format!("cd {}; {} talk s", path.parent().unwrap().display(), attack()));
        cell.refused(&format!("ln {} here && {} talk here", path.display(), attack()));
        cell.refused(&format!("ln -s {} here && {} talk ./here", path.display(), attack()));
        // Given on purpose it is there.
        let mount = format!("{}:read", path.display());
        let given = cell.run_with(&["--mount", &mount], &tried).done();
        assert!(given.out().contains(SECRET), "{given}");
    }
}

escape! {
    fn in_a_staged_place(cell) {
        require!(cell, Capability::Program("cc"));
        for path in [cell.workspace.join("s"), cell.home.join("s")] {
            listen(&path, 0o666);
            cell.own(&path, 0o666);
            let tried = format!("{} talk {}", attack(), path.display());
            assert!(cell.host(&tried).out().contains(SECRET), "control");
            cell.refused(&tried);
        }
        // A program inside may put its own there.
        require!(cell, Capability::Program("socat"));
        let inside = "rm s; socat unix-listen:s exec:'echo own' & \
            for i in $(seq 50); do socat -u unix-connect:s - 2>/dev/null && exit 0; sleep 0.05; done; exit 1";
        assert_eq!(cell.run(inside).out(), "own\n");
    }
}

escape! {
    fn that_a_supplementary_group_opens(cell) {
        // As the group of a container engine does: whoever is in it is root in effect. Its
        // membership cannot be dropped in a user namespace.
        require!(cell, Capability::Root);
        require!(cell, Capability::Program("cc"));
        require!(cell, Capability::Program("setpriv"));
        let group = 4711;
        let dir = cell.outside("engine");
        let path = dir.join("engine.sock");
        listen(&path, 0o660);
        std::os::unix::fs::chown(&path, Some(0), Some(group)).unwrap();
        let secret = dir.join("secret");
        fs::write(&secret, SECRET).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::chown(&secret, Some(0), Some(group)).unwrap();
        let member = |words: &[&str]| {
            let mut command = cell.command("setpriv");
            // Started by root, who becomes the user again together with the group.
            std::os::unix::process::CommandExt::uid(&mut command, 0);
            std::os::unix::process::CommandExt::gid(&mut command, 0);
            command.args([
                format!("--reuid={}", cell.user.uid),
                format!("--regid={}", cell.user.gid),
                format!("--groups={group}"),
            ]);
            command.arg("--").args(words).current_dir(&cell.workspace);
            Call::new(command)
        };
        let socket = path.to_str().unwrap();
        let control = member(&[attack(), "talk", socket]).ok();
        assert!(control.out().contains(SECRET), "control: {control}");
        if !cell.user.is_root() {
            assert_eq!(cell.host(&format!("{} talk {socket}", attack())).status, Some(1), "not without the group");
        }
        let pvisor = binary().to_str().unwrap();
        let run = [pvisor, "run", "--headless", "--driver", "overlayfs", "--", attack(), "talk", socket];
        let done = member(&run).done();
        assert_eq!(done.status, Some(1), "{done}");
        assert!(!done.out().contains(SECRET), "{done}");
        // What the group may read stays readable, as the README says.
        let read = member(&[pvisor, "run", "--headless", "--", "cat", secret.to_str().unwrap()]).done();
        assert_eq!(read.out(), SECRET, "{read}");
        // Raw disks and the like are not in /dev, whatever group owns them.
        let devices = member(&[pvisor, "run", "--headless", "--", "sh", "-c", "ls /dev/sd* /dev/vd* /dev/kvm /dev/input"]).done();
        assert_eq!(devices.out(), "", "{devices}");
    }
}
