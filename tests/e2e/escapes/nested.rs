//! `--allow-nested`: sandboxes inside the sandbox work, and change nothing about the outer one.

use super::{SECRET, escape};
use crate::support::{Capability, require};

escape! {
    fn bubblewrap_and_unshare(cell) {
        require!(cell, Capability::Program("bwrap"));
        cell.refused("unshare -U true");
        cell.run_with(&["--allow-nested"], "unshare -U true").ok();
        for script in ["bwrap --ro-bind / / true", "unshare -Ur true", "unshare -Urm mount -t tmpfs x /mnt"] {
            cell.refused(script);
            let done = cell.run_with(&["--allow-nested"], script).done();
            // A user namespace whose maker lacks CAP_SETFCAP may not map the machine's root, and
            // root's agent holds no capability.
            assert_eq!(done.status, Some(i32::from(cell.user.is_root())), "{done}");
        }
        let status = cell.status();
        assert_eq!(status["boundary"]["seccomp"], true, "{status:#}");
    }
}

escape! {
    fn an_overlay_inside_does_not_harm_the_stage(cell) {
        let script = "mkdir l u w m; echo lower > l/f; \
            unshare -Urm sh -c 'mount -t overlay -o userxattr,lowerdir=l,upperdir=u,workdir=w o m && echo 1 > m/f'; \
            echo [$?]; echo outer > after";
        let done = cell.run_with(&["--allow-nested"], script).ok();
        let works = done.out().contains("[0]");
        assert!(works || cell.user.is_root() || done.err().contains("wrong fs type") || done.err().contains("nvalid"), "{done}");
        let changes = cell.changes();
        for path in ["l/f", "after"] {
            assert_eq!(changes.get(path)["kind"], "added", "{path}");
        }
        cell.pvisor(["commit", "--all"]).ok();
        assert_eq!(cell.text("l/f") + &cell.text("after"), "lower\nouter\n");
        assert_eq!(cell.has("u/f"), works);
    }
}

escape! {
    fn the_masks_hold_in_a_namespace_of_its_own(cell) {
        let secret = cell.home.join(".netrc");
        std::fs::write(&secret, SECRET).unwrap();
        cell.own(&secret, 0o600);
        let victim = cell.outside("other").join("victim");
        std::fs::write(&victim, "host").unwrap();
        cell.own(&victim, 0o666);
        assert_eq!(cell.host_ok("cat ~/.netrc"), SECRET, "control");
        // Mounts that came from outside are locked together: they can be neither lifted nor opened.
        for attempt in [
            "umount ~/.netrc; cat ~/.netrc".to_owned(),
            "umount -l ~/.netrc; cat ~/.netrc".to_owned(),
            "umount -l ~; cat ~/.netrc".to_owned(),
            "umount -l /; cat ~/.netrc".to_owned(),
            "mkdir -p m; mount --bind ~ m; cat m/.netrc".to_owned(),
            "mkdir -p m; mount --rbind / m; umount -l m/$HOME/.netrc; cat m/$HOME/.netrc".to_owned(),
            format!("mount -o remount,rw,bind /; echo agent > {}", victim.display()),
            format!("mount --bind {v} {v}; mount -o remount,rw,bind {v}; echo agent > {v}", v = victim.display()),
        ] {
            let script = format!("unshare -Urm sh -c '{attempt}'");
            let done = cell.run_with(&["--allow-nested"], &script).done();
            assert!(!done.out().contains(SECRET), "{done}");
            assert_ne!(done.status, Some(125), "{done}");
        }
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "host");
    }
}
