//! From flags and configuration to what is asked of a session's server. Owns what goes together and
//! what does not; starts nothing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pvisor::config::{Config, EnvArg, Loaded, Places, answers, environment, mount, presets};
use pvisor::policy::{Origin, Policy, Rule};
use pvisor::sandbox::spec::{CacheMode, DriverChoice, Limits};
use pvisor::sandbox::{Mode, MountAccess, MountSpec, SandboxSpec, Stdio, clash, hidden};
use pvisor::session::server::RunRequest;
use pvisor::session::store::SessionRecord;
use pvisor::text::visible;

use super::args::{Args, CacheArg, DriverArg};
use crate::cli::context::{Context, shown};
use crate::cli::error::CliError;
use crate::cli::{preset, refuse};

/// What a server is asked for.
pub(super) fn request(
    args: &Args,
    context: &Context,
    loaded: &Loaded,
    workspace: PathBuf,
    resume: Option<SessionRecord>,
    stdio: Stdio,
) -> Result<RunRequest, CliError> {
    let config = &loaded.config;
    let mode = resume
        .as_ref()
        .map_or(config.mode, |record| record.info.mode);
    let home = context.paths.home.canonicalize();
    let home = home.unwrap_or_else(|_| context.paths.home.clone());
    let in_config = Places {
        home: &home,
        base: &workspace,
    };
    let on_command_line = Places {
        base: &context.current_dir,
        ..in_config
    };
    let mut mounts: Vec<MountSpec> = Vec::new();
    for typed in &config.mounts {
        mounts.push(mount::split(typed.as_ref())?.resolve(in_config)?);
    }
    for typed in &args.mount {
        mounts.push(mount::split(typed)?.resolve(on_command_line)?);
    }
    if mode == Mode::Staged {
        let layers = [("the workspace", &workspace), ("the home directory", &home)];
        refuse::mounts(&mounts, &layers)?;
    }
    let mut config = config.clone();
    refuse::preset(&config.preset, args.preset.is_some())?;
    let preset = if mode == Mode::Staged {
        presets::choose(&config.preset, &args.command)?
    } else {
        None
    };
    let applied = preset::apply(
        preset.as_ref(),
        &mut config,
        &context.environment,
        in_config,
        &mounts,
    )?;
    let config = &config;
    if resume.is_some()
        && mounts
            .iter()
            .any(|mount| mount.access == MountAccess::Stage)
    {
        return Err(CliError::usage(
            "a session that goes on keeps its layers: no further one can be staged",
        ));
    }
    let paths = |typed: &[String]| -> Vec<PathBuf> {
        let typed = typed.iter().map(AsRef::as_ref);
        typed.map(|path| in_config.canonical(path)).collect()
    };
    let mut hide = paths(&config.hide);
    let mut unhide = paths(&config.unhide);
    // What is hidden by name stays hidden; what is mounted to be seen is seen.
    unhide.retain(|path| !hide.contains(path));
    let seen = mounts.iter().filter(|mount| {
        matches!(
            mount.access,
            MountAccess::Read | MountAccess::Stage | MountAccess::Write | MountAccess::Keep
        )
    });
    unhide.extend(seen.map(|mount| mount.target.clone()));
    hide.extend(
        applied
            .hide
            .into_iter()
            .filter(|path| !unhide.contains(path)),
    );
    mounts.extend(applied.mounts);
    hide.extend([
        context.paths.state_dir.clone(),
        context.paths.runtime_dir.clone(),
        context.paths.config_dir.clone(),
    ]);
    hide.extend(context.paths.usual_state_dirs(&context.environment));
    // A runtime directory around the workspace cannot be hidden without it.
    let sockets = hidden::sockets(&context.environment).into_iter();
    hide.extend(sockets.filter(|path| !workspace.starts_with(path) && !unhide.contains(path)));
    let asked: Vec<EnvArg> = args
        .env
        .iter()
        .map(|typed| {
            EnvArg::parse(typed)
                .ok_or_else(|| CliError::usage("--env takes K or K=V, and K a name"))
        })
        .collect::<Result<_, _>>()?;
    refuse::name_missing(&asked, &context.environment)?;
    let policy = policy(args, context, loaded, &workspace, &home)?;
    check_rules(args, mode, &policy)?;
    let request = RunRequest {
        resume,
        name: args.name.clone(),
        mode,
        home: home.clone(),
        spec: SandboxSpec {
            mode,
            command: args.command.clone(),
            cwd: workspace.clone(),
            env: agent_environment(args, context, config, mode, &workspace, &asked),
            layers: Vec::new(),
            mounts: mounts.clone(),
            unhide,
            hide,
            home,
            private: PathBuf::new(),
            stdio,
            timeout: args.timeout.or(config.limits.timeout),
            network: config.network,
            driver: match args.driver {
                DriverArg::Auto => DriverChoice::Auto,
                DriverArg::Overlayfs => DriverChoice::Overlayfs,
                DriverArg::Fuse => DriverChoice::Fuse,
            },
            cache: match args.cache {
                CacheArg::Default => CacheMode::Default,
                CacheArg::ImmutableLower => CacheMode::ImmutableLower,
                CacheArg::Extended => CacheMode::Extended,
            },
            observe: args.observe,
            policy,
            limits: bounds(args, config),
            rename_shim: config.rename_shim,
            nested: args.allow_nested,
            notes: applied.notes,
        },
        mounts,
        seeds: applied.seeds,
        submounts: config.submounts,
        workspace,
        settings: config.session(),
    };
    if mode == Mode::Host && args.driver != DriverArg::Auto {
        return Err(CliError::usage(
            "--driver cannot go together with --mode host: nothing is staged",
        )
        .hint("leave one of them out"));
    }
    check_cache(args, context, &request.workspace)?;
    match clash(&request.spec).filter(|_| mode == Mode::Staged) {
        None => Ok(request),
        Some(clash) => Err(CliError::usage(clash.to_string()).hint(clash.hint)),
    }
}

/// The promise that nobody else changes the workspace cannot hold where our own records lie in it.
fn check_cache(args: &Args, context: &Context, workspace: &Path) -> Result<(), CliError> {
    let cache = match args.cache {
        CacheArg::Default => return Ok(()),
        CacheArg::ImmutableLower => "immutable-lower",
        CacheArg::Extended => "extended",
    };
    let state = &context.paths.state_dir;
    // It may not be there yet: what it will be made in is.
    let real = state.ancestors().find_map(|dir| dir.canonicalize().ok());
    if !real.is_some_and(|dir| dir.starts_with(workspace)) && !state.starts_with(workspace) {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "--cache {cache} cannot go together with the state directory {}: it lies in the workspace, \
         which therefore changes while the session runs",
        shown(state)
    ))
    .hint("name another one with --state-dir, or leave out --cache"))
}

/// A flag counts before the settings.
fn bounds(args: &Args, config: &Config) -> Limits {
    let settings = config.limits.limits();
    Limits {
        memory: args.memory.or(settings.memory),
        cpu_millis: args.cpus.or(settings.cpu_millis),
        stage: args.stage_max.or(settings.stage),
        ..settings
    }
}

/// The built-in rules, those of the settings and of the command line, and what was answered before.
fn policy(
    args: &Args,
    context: &Context,
    loaded: &Loaded,
    workspace: &Path,
    home: &Path,
) -> Result<Policy, CliError> {
    let mut rules = loaded.rules();
    for typed in &args.rule {
        rules.push(Rule::parse(typed, Origin::Session)?);
    }
    let files = answers::files(&context.paths, workspace);
    Ok(Policy {
        rules,
        answers: answers::load(&files)?,
        home: home.to_owned(),
        ask_timeout: Duration::from_secs(loaded.config.ask_timeout.into()),
        files,
    })
}

/// Where nothing is contained no rule holds and nothing is counted: refused, never passed over.
fn check_rules(args: &Args, mode: Mode, policy: &Policy) -> Result<(), CliError> {
    if mode != Mode::Host {
        return Ok(());
    }
    let rule = policy.needs_file_server().map(|rule| {
        let glob = visible(rule.glob.as_bytes());
        match rule.origin {
            Origin::Session => format!("--rule {}:{glob}", rule.level.name()),
            _ => format!("the configured rule {}:{glob}", rule.level.name()),
        }
    });
    match rule.or_else(|| args.observe.then(|| "--observe".into())) {
        None => Ok(()),
        Some(asked) => Err(CliError::usage(format!(
            "{asked} cannot go together with --mode host: nothing stands between the command and \
             its files"
        ))
        .hint("leave one of them out")),
    }
}

/// Mode `host` contains nothing, so the command sees the caller's environment as it is.
fn agent_environment(
    args: &Args,
    context: &Context,
    config: &Config,
    mode: Mode,
    workspace: &Path,
    asked: &[EnvArg],
) -> Vec<(OsString, OsString)> {
    let caller = &context.environment;
    let mut policy = config.env.clone();
    if mode == Mode::Host {
        policy.pass.push("*".into());
        policy.drop.push("PVISOR_TUI_*".into());
    }
    let mut asked = asked.to_vec();
    // The screen's pane is a terminal of our own, whatever the caller's is.
    if !args.headless {
        for (name, value) in [("TERM", "xterm-256color"), ("COLORTERM", "truecolor")] {
            if !asked.iter().any(|arg| arg.name == name) {
                asked.push(EnvArg {
                    name: name.into(),
                    value: Some(value.into()),
                });
            }
        }
    }
    environment(&policy, caller, &context.paths, workspace, &asked)
}
