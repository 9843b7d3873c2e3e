//! Attacks on the person who reviews, and on what our own programs do afterwards.

use std::fs;

use super::{SECRET, escape};
use crate::support::{Capability, binary, require};

escape! {
    fn hooks_that_our_own_git_commit_would_run(cell) {
        require!(cell, Capability::Program("git"));
        cell.host_ok("git init -q -b main; git config user.name P; git config user.email p@example.org; \
            echo 1 > a; git add -A; git commit -qm first; \
            printf '#!/bin/sh\\ntouch %s/ran\\n' \"$PWD\" > .git/hooks/pre-commit; cp .git/hooks/pre-commit .git/hooks/post-commit; \
            chmod +x .git/hooks/*-commit; git config core.fsmonitor \"$PWD/.git/hooks/pre-commit\"");
        cell.host_ok("echo 2 > a; git commit -qam control; test -e ran; rm ran");
        cell.run("echo 3 > a");
        cell.pvisor(["commit", "--all", "--git-commit", "taken over"]).ok();
        assert!(!cell.has("ran"), "a hook ran");
        assert_eq!(cell.host_ok("git -c core.fsmonitor=false log -1 --format=%s"), "taken over\n");
        // Hooks and configuration that the agent itself brings: git is not called at all.
        cell.run("printf '#!/bin/sh\\ntouch ran\\n' > .git/hooks/post-commit; echo '[alias] x = !touch ran' >> .git/config; echo 4 > a");
        let done = cell.pvisor(["commit", "--all", "--git-commit", "never"]).done();
        assert_eq!(done.status, Some(1), "{done}");
        assert!(!cell.has("ran"), "{done}");
        assert_eq!(cell.host_ok("git -c core.fsmonitor=false log -1 --format=%s"), "taken over\n");
    }
}

// Settings of git that came with an earlier commit: what they name does not run later on.
escape! {
    fn filters_brought_by_an_earlier_commit(cell) {
        require!(cell, Capability::Program("git"));
        cell.host_ok("git init -q -b main; git config user.name P; git config user.email p@example.org; \
            echo 1 > a; git add a; git commit -qm first");
        cell.run("printf '#!/bin/sh\\ntouch %s/ran; exec cat\\n' \"$PWD\" > m; chmod +x m; \
            for k in filter.m.clean filter.m.smudge gpg.program core.sshCommand core.editor; do git config $k \"$PWD/m\"; done; \
            git config commit.gpgSign true; echo '*.f filter=m' > .git/info/attributes; echo 1 > x.f");
        cell.pvisor(["commit", "--all"]).ok();
        cell.run("echo 2 > a");
        cell.pvisor(["commit", "--all", "--git-commit", "plain"]).ok();
        assert!(!cell.has("ran"), "a program of the settings ran");
        assert_eq!(cell.host_ok("git log -1 --format=%s --name-only"), "plain\n\na\n");
        cell.run("echo 3 > a; echo 2 > x.f");
        let done = cell.pvisor(["commit", "--all", "--git-commit", "filtered"]).done().exits(1).says("x.f goes through the filter m");
        assert!(!cell.has("ran"), "{done}");
        assert_eq!(cell.host_ok("cat a x.f; git log -1 --format=%s"), "3\n2\nplain\n");
        // Control: git itself runs it.
        cell.host_ok("git add x.f; test -e ran");
    }
}

escape! {
    fn programs_and_libraries_left_in_the_workspace(cell) {
        require!(cell, Capability::Program("git"));
        // Named as what our programs start, where they start it.
        let plant = "printf '#!/bin/sh\\ntouch %s/ran; exec /usr/bin/git \"$@\"\\n' \"$PWD\" > git; chmod +x git; \
            for p in less sh bash cc fusermount3 newuidmap pvisor-tui; do cp git $p; done; \
            mkdir -p bin; cp git bin/; echo 'LD_PRELOAD=./x.so' > .env; touch x.so";
        cell.host_ok(&format!("git init -q -b main; git config user.name P; git config user.email p@example.org; {plant}"));
        cell.host_ok("./git --version; test -e ran; rm ran");
        cell.run("echo 1 > a");
        for verb in [vec!["changes"], vec!["diff"], vec!["commit", "--all", "--git-commit", "m"], vec!["undo"], vec!["doctor"]] {
            cell.pvisor(verb).cwd(&cell.workspace).done();
        }
        cell.run_with(&[], "true").cwd(&cell.workspace).ok();
        assert!(!cell.has("ran"), "a program of the workspace was run");
    }
}

escape! {
    fn settings_left_in_the_workspace(cell) {
        fs::create_dir_all(cell.home.join(".ssh")).unwrap();
        fs::write(cell.home.join(".ssh/id"), SECRET).unwrap();
        cell.own(&cell.home.join(".ssh"), 0o700);
        cell.own(&cell.home.join(".ssh/id"), 0o600);
        // Loosening: never, trusted or not. Tightening: only once it was trusted.
        cell.run("printf 'unhide = [\"~/.ssh\"]\\nmode = \"host\"\\n' > .pvisor-tui.toml");
        cell.refused("cat ~/.ssh/id");
        cell.pvisor(["commit", "--all"]).ok();
        cell.refused("cat ~/.ssh/id");
        let trusted = cell.pvisor(["trust", cell.workspace.to_str().unwrap()]).done();
        let done = cell.run_with(&[], "cat ~/.ssh/id").done();
        assert_ne!(done.status, Some(0), "{trusted} {done}");
        assert!(!done.out().contains(SECRET), "{done}");
        // Control: what tightens counts once it was trusted.
        fs::write(cell.workspace.join("seen"), "seen").unwrap();
        cell.own(&cell.workspace.join("seen"), 0o644);
        fs::write(cell.workspace.join(".pvisor-tui.toml"), "hide = [\"seen\"]\n").unwrap();
        cell.own(&cell.workspace.join(".pvisor-tui.toml"), 0o644);
        assert_eq!(cell.run("cat seen").out(), "seen");
        cell.pvisor(["trust", cell.workspace.to_str().unwrap()]).ok();
        cell.refused("cat seen");
    }
}

escape! {
    fn words_that_would_steer_the_reviewers_terminal(cell) {
        let name = "a\u{1b}]0;owned\u{7}\u{1b}[2J\nb";
        let plant = "printf 'x\\033[2J\\033]52;c;AAAA\\007y\\n' > \"$(printf 'a\\033]0;owned\\007\\033[2J\\nb')\"";
        cell.host_ok(plant);
        let raw = cell.host_ok("ls -1 --show-control-chars -N; cat a*");
        assert!(raw.contains('\u{1b}'), "control");
        fs::remove_file(cell.workspace.join(name)).unwrap();
        cell.run(plant);
        for verb in [vec!["changes"], vec!["changes", "--json"], vec!["status"], vec!["list"], vec!["commit", "--all", "--dry-run"]] {
            let done = cell.pvisor(verb).ok();
            let shown = done.out() + &done.err();
            assert!(!shown.contains('\u{1b}') && !shown.contains('\u{7}'), "{shown:?}");
        }
        cell.pvisor(["commit", "--all"]).ok();
        assert!(cell.workspace.join(name).exists(), "the name itself is kept");
    }
}

escape! {
    fn approving_itself(cell) {
        // The command of a session finds its own socket, in whatever directory, and speaks for the
        // person: the binary and the verbs are there, the socket is not.
        let words = format!(
            "echo staged > f; export XDG_STATE_HOME={} XDG_RUNTIME_DIR={}; \
             {b} approve --all; echo [$?]; {b} commit --all; echo [$?]; {b} attach < /dev/null; echo [$?]; \
             {b} allow 1; {b} trust .; find {root} -name '*.sock' 2>/dev/null",
            cell.state.display(), cell.runtime.display(), b = binary().display(), root = cell.root.display()
        );
        let done = cell.run_with(&[], &words).done();
        assert!(!done.out().contains("[0]"), "{done}");
        assert!(!done.out().contains("pvisor-tui/"), "{done}");
        assert!(!cell.has("f"), "{done}");
        cell.pvisor(["approve", "--all"]).ok();
        cell.pvisor(["commit"]).ok();
        assert_eq!(cell.text("f"), "staged\n", "control: outside the same words do it");
    }
}
