//! Real coding agents, with a model on loopback in place of a network.

use crate::support::world::{self};
use crate::support::{Capability, Terminal, World, each_user, model, require, until};

/// What every agent starts with, and what the model makes it do (see [`model::COMMAND`]).
fn prepare(world: &World) {
    world.host_ok("printf original > a.txt; echo bye > gone.txt");
}

/// Demands the agent's three changes and takes them.
fn check_and_commit(world: &World) {
    let changes = world.changes();
    let expected = [
        "added made-by-agent.txt",
        "deleted gone.txt",
        "modified a.txt",
    ];
    assert_eq!(changes.plain(), expected, "{:#}", changes.json);
    assert_eq!(world.text("a.txt"), "original");
    world.pvisor(["commit", "--all"]).ok();
    assert_eq!(
        world.text("made-by-agent.txt") + &world.text("a.txt"),
        "agentchanged"
    );
    assert!(!world.has("gone.txt"));
}

/// Directory of the agent's program, for `PATH`.
fn bin(agent: &str) -> String {
    let program = world::agent(agent).unwrap();
    program.parent().unwrap().to_str().unwrap().to_owned()
}

fn with_path(agent: &str, command: &str) -> String {
    format!("export PATH={}:$PATH; {command}", bin(agent))
}

fn codex_config(world: &World, address: &str) {
    let dir = world.home.join(".codex");
    std::fs::create_dir_all(&dir).unwrap();
    let config = format!(
        "model = \"mock\"\nmodel_provider = \"mock\"\n\
         [model_providers.mock]\nname = \"mock\"\nbase_url = \"{address}/v1\"\nwire_api = \"responses\"\n\
         [projects.\"{}\"]\ntrust_level = \"trusted\"\n",
        world.workspace.display()
    );
    std::fs::write(dir.join("config.toml"), config).unwrap();
    world.own(&dir, 0o755);
    world.own(&dir.join("config.toml"), 0o644);
}

/// Settings of a person who has used the program before.
fn claude_config(world: &World) {
    let config = serde_json::json!({
        "hasCompletedOnboarding": true,
        "theme": "dark",
        "customApiKeyResponses": {"approved": ["key-for-nobody"], "rejected": []},
        "projects": {world.workspace.to_str().unwrap(): {"hasTrustDialogAccepted": true}},
    });
    let path = world.home.join(".claude.json");
    std::fs::write(&path, config.to_string()).unwrap();
    world.own(&path, 0o644);
}

each_user! {
    fn claude_headless(world) {
        require!(world, Capability::Agent("claude"));
        prepare(world);
        let script = with_path("claude", "claude --bare -p 'make the edit' --allowedTools Bash");
        let done = world
            .run_with(&[], &script)
            .env("ANTHROPIC_API_KEY", "key-for-nobody")
            .env("ANTHROPIC_BASE_URL", &model::serve())
            .ok();
        assert!(done.out().contains("All done."), "{done}");
        check_and_commit(world);
    }
}

each_user! {
    fn codex_headless(world) {
        require!(world, Capability::Agent("codex"));
        prepare(world);
        codex_config(world, &model::serve());
        let command = "codex exec --skip-git-repo-check --ephemeral -s danger-full-access 'make the edit'";
        world.run_with(&[], &with_path("codex", command)).env("OPENAI_API_KEY", "key-for-nobody").ok();
        check_and_commit(world);
    }
}

fn open(world: &World, agent: &str, command: &str, env: &[(&str, &str)]) -> Terminal {
    let workspace = world.workspace.to_str().unwrap();
    let script = with_path(agent, command);
    let mut call = world.pvisor(["run", "--workspace", workspace, "--", "bash", "-c", &script]);
    for (name, value) in env {
        call = call.env(name, value);
    }
    Terminal::open(call.into_command(), 50, 160)
}

/// Ends the agent the way a person does, and the session with it.
fn leave(terminal: &mut Terminal, world: &World) {
    until("the agent's end", || {
        terminal.send("\x03");
        terminal.attempt(std::time::Duration::from_millis(300), |_| None::<()>);
        (world.status()["state"] != "running").then_some(())
    });
    assert_eq!(world.status()["state"], "exited");
}

each_user! {
    fn claude_in_the_pane(world) {
        require!(world, Capability::Agent("claude"));
        prepare(world);
        claude_config(world);
        let address = model::serve();
        let env = [("ANTHROPIC_API_KEY", "key-for-nobody"), ("ANTHROPIC_BASE_URL", address.as_str())];
        let mut terminal = open(world, "claude", "exec claude --allowedTools Bash", &env);
        let found = terminal.attempt(std::time::Duration::from_secs(90), |t| {
            let screen = t.text();
            if screen.contains("API key") && screen.contains("Yes") {
                t.send("\x1b[A\r");
                t.attempt(std::time::Duration::from_secs(2), |_| None::<()>);
            }
            (screen.contains("Claude Code") && !screen.contains("API key")).then_some(())
        });
        assert!(found.is_some(), "no first screen:\n{}", terminal.text());
        terminal.send("make the edit");
        terminal.wait_text("make the edit");
        terminal.send("\r");
        terminal.wait_text("All done.");
        until("the agent's edits", || world.changes().find("made-by-agent.txt").map(|_| ()));
        leave(&mut terminal, world);
        check_and_commit(world);
    }
}

each_user! {
    fn codex_in_the_pane(world) {
        require!(world, Capability::Agent("codex"));
        prepare(world);
        codex_config(world, &model::serve());
        let command = "exec codex -s danger-full-access -a never";
        let mut terminal = open(world, "codex", command, &[("OPENAI_API_KEY", "key-for-nobody")]);
        let found = terminal.attempt(std::time::Duration::from_secs(90), |t| {
            t.text().contains("OpenAI Codex").then_some(())
        });
        assert!(found.is_some(), "no first screen:\n{}", terminal.text());
        terminal.send("make the edit");
        terminal.wait_text("make the edit");
        terminal.send("\r");
        terminal.wait_text("All done.");
        leave(&mut terminal, world);
        check_and_commit(world);
    }
}
