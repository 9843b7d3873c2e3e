//! Agent programs: what of theirs lives on, what they see, and that it stays out of the host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::support::world::agent;
use crate::support::{Call, Capability, World, binary, each_user, model, require};

/// A program of this name that runs a script given to it.
fn stand_in(world: &World, name: &str) -> PathBuf {
    let path = world.root.join("bin").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "#!/bin/sh\nexec sh -c \"$1\"\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn run(world: &World, flags: &[&str], command: &[&str]) -> Call {
    let mut run = world.command(binary());
    run.args(["run", "--headless", "--workspace"])
        .arg(&world.workspace)
        .args(flags)
        .arg("--")
        .args(command);
    Call::new(run)
}

each_user! {
    fn sign_in_and_caches_live_on_and_stay_out_of_the_host(world) {
        let codex = stand_in(world, "codex");
        let codex = codex.to_str().unwrap();
        world.host_ok("mkdir -p ~/.codex/packages ~/.claude; echo first > ~/.codex/auth.json; \
                       echo big > ~/.codex/packages/big; echo other > ~/.claude/.credentials.json");
        let script = "cat ~/.codex/auth.json; ls ~/.codex/packages 2>/dev/null; cat ~/.claude/.credentials.json 2>/dev/null; \
                      echo second > ~/.codex/auth.json; mkdir ~/.codex/packages; echo x > ~/.codex/packages/new; \
                      echo $OPENAI_API_KEY-$ANTHROPIC_API_KEY; echo w > w";
        let call = run(world, &[], &[codex, script]);
        let done = call.env("OPENAI_API_KEY", "mine").env("ANTHROPIC_API_KEY", "theirs").ok();
        assert_eq!(done.out(), "first\nmine-\n", "{done}");
        assert_eq!(world.changes().lines(), ["added w"]);
        assert_eq!(world.host_ok("cat ~/.codex/auth.json; ls ~/.codex/packages"), "first\nbig\n");
        let status = world.pvisor(["status", "last"]).ok().out();
        assert!(status.contains("preset codex: it was tried with version"), "{status}");
        assert!(status.contains(".codex"), "{status}");
        let again = run(world, &[], &["env", "X=1", codex, "cat ~/.codex/auth.json ~/.codex/packages/new"]).ok();
        assert_eq!(again.out(), "second\nx\n", "{again}");
        // Left out, it is the home directory's stage as before.
        let without = run(world, &["--preset", "none"], &[codex, "cat ~/.codex/auth.json"]).ok();
        assert_eq!(without.out(), "first\n", "{without}");
        let named = run(world, &["--preset", "codex"], &["sh", "-c", "cat ~/.codex/auth.json"]).ok();
        assert_eq!(named.out(), "second\n", "{named}");
        run(world, &["--preset", "codexx"], &["true"]).done().exits(2).says("codexx");
    }
}

each_user! {
    fn one_that_was_not_tried_says_so(world) {
        let goose = stand_in(world, "goose");
        run(world, &[], &[goose.to_str().unwrap(), "true"]).ok();
        let status = world.pvisor(["status", "last"]).ok().out();
        assert!(status.contains("preset goose: it was not tried"), "{status}");
    }
}

each_user! {
    /// The caller keeps the program's state elsewhere.
    fn a_variable_names_another_place(world) {
        let codex = stand_in(world, "codex");
        let elsewhere = world.home.join("state/codex");
        let script = "ls -A $CODEX_HOME; echo x > $CODEX_HOME/x";
        for expected in ["", "x\n"] {
            let call = run(world, &[], &[codex.to_str().unwrap(), script]);
            let done = call.env("CODEX_HOME", elsewhere.to_str().unwrap()).ok();
            assert_eq!(done.out(), expected, "{done}");
        }
        assert!(!elsewhere.exists());
    }
}

/// Runs a real agent twice; what it keeps is there the second time, nothing of it on the host or
/// among the changes.
fn real(world: &World, name: &str, arguments: &[&str], env: &[(&str, &str)], state: &str) {
    let program = agent(name).unwrap();
    let path = format!(
        "{}:/usr/local/bin:/usr/bin:/bin",
        program.parent().unwrap().display()
    );
    for _ in 0..2 {
        world.host_ok("rm -f made-by-agent.txt; printf original > a.txt; echo bye > gone.txt");
        let mut command = vec![program.to_str().unwrap()];
        command.extend(arguments);
        let mut call = run(world, &[], &command).env("PATH", &path);
        for (name, value) in env {
            call = call.env(name, value);
        }
        call.ok();
        let changes = world.changes();
        let expected = [
            "added made-by-agent.txt",
            "deleted gone.txt",
            "modified a.txt",
        ];
        assert_eq!(changes.plain(), expected, "{:#}", changes.json);
        let leaked: Vec<_> = changes
            .lines()
            .into_iter()
            .filter(|l| l.contains(state))
            .collect();
        assert_eq!(leaked, Vec::<String>::new(), "{name}'s state is no change");
    }
    assert!(
        !world.home.join(state).exists(),
        "{name}'s state is not on the host"
    );
    let kept = world.state.join("pvisor-tui/keep");
    let dirs: Vec<_> = fs::read_dir(&kept).unwrap().flatten().collect();
    assert!(!dirs.is_empty());
    let inside = fs::read_dir(dirs[0].path()).unwrap().count();
    assert!(inside > 0, "{name} has written what it keeps");
}

each_user! {
    fn claude_itself(world) {
        require!(world, Capability::Agent("claude"));
        let address = model::serve();
        let env = [("ANTHROPIC_API_KEY", "key-for-nobody"), ("ANTHROPIC_BASE_URL", address.as_str())];
        let arguments = ["--bare", "-p", "make the edit", "--allowedTools", "Bash"];
        real(world, "claude", &arguments, &env, ".claude");
    }
}

each_user! {
    fn codex_itself(world) {
        require!(world, Capability::Agent("codex"));
        let address = model::serve();
        let provider = format!("model_providers.mock={{name=\"mock\",base_url=\"{address}/v1\",wire_api=\"responses\"}}");
        let arguments = [
            "exec", "--skip-git-repo-check", "-s", "danger-full-access", "-c", "model=\"mock\"", "-c",
            "model_provider=\"mock\"", "-c", provider.as_str(), "make the edit",
        ];
        real(world, "codex", &arguments, &[("OPENAI_API_KEY", "key-for-nobody")], ".codex");
    }
}
