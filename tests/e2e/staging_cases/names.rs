//! Names at the limits, names of other overlays' marks, and paths longer than the kernel takes.

use std::os::unix::ffi::OsStrExt;

use crate::support::each_driver_and_user;

each_driver_and_user! {
    /// Names as long as a name can be: nothing is put before or behind them.
    fn names_of_255_bytes(stage) {
        let both = stage.beside_twin(
            ": >$(printf 'n%.0s' $(seq 255)); mkdir $(printf 'd%.0s' $(seq 255)); echo 1 >$(printf 'd%.0s' $(seq 255))/f",
            "ls | wc -l; rm n*; echo m >$(printf 'm%.0s' $(seq 254)); rm -r d*; ls | wc -c; : >$(printf 'x%.0s' $(seq 256))",
        );
        assert_eq!(both.staged.out(), both.native.out());
        assert_eq!(both.staged.out(), "2\n255\n");
        assert!(both.staged.err().contains("File name too long"), "{}", both.staged);
        let (n, m, d) = ("n".repeat(255), "m".repeat(254), "d".repeat(255));
        let expected = [format!("added {m}"), format!("deleted {d}"), format!("deleted {d}/f"), format!("deleted {n}")];
        assert_eq!(both.changes.lines(), expected);
    }
}

each_driver_and_user! {
    /// Names that other overlays use for their marks are plain names.
    fn names_like_marks(stage) {
        let both = stage.beside_twin(
            "echo 1 >.wh.a; echo 2 >a; mkdir d; echo 3 >d/.wh..wh..opq; echo 4 >d/f",
            "ls -A . d; cat .wh.a; echo new >.wh.b; rm .wh.a; mkdir .wh.d; echo 5 >.wh..wh..opq; ls -A . d",
        );
        both.both_print(
            ".:\n.wh.a\na\nd\n\nd:\n.wh..wh..opq\nf\n1\n\
             .:\n.wh..wh..opq\n.wh.b\n.wh.d\na\nd\n\nd:\n.wh..wh..opq\nf\n",
        );
        assert_eq!(
            both.changes.lines(),
            ["added .wh..wh..opq", "added .wh.b", "added .wh.d", "deleted .wh.a"]
        );
    }
}

each_driver_and_user! {
    /// Names are bytes: newlines, escapes, latin-1, and what differs in case or form only.
    fn names_are_bytes(stage) {
        stage.host_ok("echo old > $'caf\\xe9'; echo gone > $'a\\nb'; mkdir $'\\xff'; echo moved > $'\\xff/x'");
        let before = stage.tree();
        let done = stage.run(
            "ls | wc -c; echo new > $'caf\\xe9'; rm $'a\\nb'; mv $'\\xff/x' $'\\xff/y'; \
             echo 1 > $'\\e[31m'; echo 2 > Case; echo 3 > case; echo 4 > $'e\\u0301'; echo 5 > $'\\u00e9'",
        );
        assert_eq!(done.out(), "11\n", "{done}");
        let changes = stage.changes();
        assert_eq!(changes.all().count(), 8, "{:?}", changes.lines());
        let exact: Vec<_> = changes.all().filter_map(|c| c["path_b64"].as_str()).collect();
        assert_eq!(exact, ["Y2Fm6Q==", "/y95"], "exact bytes where the name is not text");
        assert_eq!(changes.get("a\nb")["kind"], "deleted");
        for (path, risk) in [("\x1b[31m", "hidden-text"), ("a\nb", "hidden-text"), ("a\nb", "delete")] {
            assert!(changes.has_risk(path, risk), "{path:?}: {:#}", changes.get(path));
        }
        // Chosen by exact bytes, one by one.
        let paths = b"caf\xe9\0\xff/y\0a\nb\0\x1b[31m\0".to_vec();
        let list = stage.root.join("paths");
        std::fs::write(&list, paths).unwrap();
        stage.own(&list, 0o644);
        stage.pvisor(["approve", "--paths-from", list.to_str().unwrap(), "-0"]).ok();
        stage.pvisor(["commit"]).ok();
        let name = |bytes: &[u8]| stage.workspace.join(std::ffi::OsStr::from_bytes(bytes));
        let text = |bytes: &[u8]| std::fs::read_to_string(name(bytes)).ok();
        assert_eq!(text(b"caf\xe9").as_deref(), Some("new\n"));
        assert_eq!((text(b"\xff/y").as_deref(), text(b"\xff/x")), (Some("moved\n"), None));
        assert_eq!((text(b"a\nb"), text(b"\x1b[31m").as_deref()), (None, Some("1\n")));
        assert!(!stage.has("Case"), "what was not named stays");
        stage.pvisor(["commit", "--all"]).ok();
        assert_eq!(stage.host_ok("cat Case case $'e\\u0301' $'\\u00e9'"), "2\n3\n4\n5\n");
        stage.pvisor(["undo"]).ok();
        stage.pvisor(["undo"]).ok();
        before.assert_same(&stage.tree(), "after both undos");
    }
}

each_driver_and_user! {
    /// Paths longer than the kernel takes at once: made, listed, committed, taken back.
    fn very_deep_trees(stage) {
        let before = stage.tree();
        let done = stage.run(
            "i=0; n=$(printf 'd%.0s' $(seq 50)); while [ $i -lt 120 ]; do mkdir $n && cd -P $n || break; \
             i=$((i+1)); done; echo $i; echo 7 >leaf",
        );
        assert_eq!(done.out(), "120\n", "{done}");
        let deep = vec!["d".repeat(50); 120].join("/");
        let leaf = format!("{deep}/leaf");
        let changes = stage.changes();
        assert_eq!(changes.all().count(), 121);
        assert_eq!(changes.get(&leaf)["added"], 1);
        stage.pvisor(["approve", &leaf]).ok();
        let done = stage.pvisor(["commit"]).ok().out();
        assert!(done.starts_with("commit 1: 121 changes\n"), "its parents come along: {}", &done[..80]);
        let at_the_end = "for i in $(seq 120); do cd -P d*; done; ";
        assert_eq!(stage.host_ok(&format!("{at_the_end} cat leaf")), "7\n");
        stage.pvisor(["undo"]).ok();
        before.assert_same(&stage.tree(), "undo");

        // The same from the host's side: an edit and a removal at the bottom.
        stage.host_ok(&format!(
            "for i in $(seq 120); do mkdir {0} && cd -P {0}; done; echo 1 >a; echo 1 >b",
            "d".repeat(50)
        ));
        let done = stage.run(&format!("{at_the_end} echo 2 >>a; rm b; ls; cat a"));
        assert_eq!(done.out(), "a\n1\n2\n", "{done}");
        let changes = stage.changes();
        assert_eq!(changes.lines(), [format!("deleted {deep}/b"), format!("modified {deep}/a")]);
        stage.pvisor(["commit", "--all"]).ok();
        assert_eq!(stage.host_ok(&format!("{at_the_end} ls; cat a")), "a\n1\n2\n");
        stage.pvisor(["undo"]).ok();
        assert_eq!(stage.host_ok(&format!("{at_the_end} ls; cat a b")), "a\nb\n1\n1\n");
    }
}
