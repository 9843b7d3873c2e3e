//! Pipes, sockets and devices.

use crate::support::{Capability, each_driver_and_user, require};

each_driver_and_user! {
    /// Nothing blocks at a pipe; pipes are committed, sockets are listed and stay out, and it is
    /// said; devices cannot be made.
    fn pipes_sockets_devices(stage) {
        require!(stage, Capability::Program("python3"));
        stage.host_ok("mkfifo p; mkfifo gone; mkfifo same");
        let before = stage.tree();
        let done = stage.run(
            "timeout 5 ls -l p same >/dev/null && chmod 600 p; rm gone; python3 -c \"
import socket as s
a = s.socket(s.AF_UNIX); a.bind('k'); a.listen()
b = s.socket(s.AF_UNIX); b.connect('k')
c, _ = a.accept(); b.sendall(b'over'); print(c.recv(9))\"; \
             mkfifo -m 640 q; (echo through >q &) ; timeout 5 cat q; \
             mknod c c 1 3 2>/dev/null; echo $?; mknod b b 7 0 2>/dev/null; echo $?; mknod w c 0 0 2>/dev/null; echo $?",
        );
        let out = done.out();
        assert!(out.starts_with("b'over'\nthrough\n1\n1\n"), "{done}");
        let changes = stage.changes();
        let lines: Vec<_> = changes.lines().into_iter().filter(|l| l != "added w").collect();
        assert_eq!(lines, ["added k", "added q", "deleted gone", "mode p"]);
        assert_eq!(changes.get("k")["type"], "socket");
        assert_eq!(changes.get("q")["type"], "fifo");
        assert!(changes.has_risk("k", "uncommittable"));
        let listing = stage.pvisor(["changes", "last"]).ok().out();
        assert!(listing.contains("uncommittable"), "{listing}");
        let plan = stage.pvisor(["commit", "--all", "--dry-run"]).ok();
        assert!(!plan.out().contains("  k\n"), "{plan}");

        let done = stage.pvisor(["commit", "--all"]).ok();
        assert!(done.err().contains("k is left out: a socket"), "what is left out is said: {done}");
        assert!(!stage.has("k") && !stage.has("gone") && !stage.has("c") && !stage.has("b"));
        assert_eq!(stage.host_ok("stat -c '%F %a' p q same"), "fifo 600\nfifo 640\nfifo 644\n");
        // Named by itself it is refused, not dropped without a word.
        let refused = stage.pvisor(["approve", "k"]).done();
        let refused = if refused.status == Some(0) { stage.pvisor(["commit"]).done() } else { refused };
        refused.exits(1).says("socket");
        stage.pvisor(["reset", "--all"]).ok();
        stage.pvisor(["undo"]).ok();
        before.assert_same(&stage.tree(), "undo");
    }
}

each_driver_and_user! {
    /// A socket of the host's is gone for the agent only when it says so, and its removal is a
    /// deletion like any other.
    fn sockets_of_the_host(stage) {
        require!(stage, Capability::Program("python3"));
        stage.host_ok("python3 -c \"import socket as s; s.socket(s.AF_UNIX).bind('dead'); s.socket(s.AF_UNIX).bind('old')\"");
        let done = stage.run("stat -c %F dead; rm dead");
        assert_eq!(done.out(), "socket\n");
        assert_eq!(stage.changes().lines(), ["deleted dead"]);
        stage.pvisor(["commit", "--all"]).ok();
        assert!(!stage.has("dead") && stage.has("old"));
    }
}
