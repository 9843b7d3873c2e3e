//! `run`: starts a command in a new session, or in one that has ended.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use pvisor::config::{
    Config, EnvArg, Flag, Hangup, Loaded, Places, Sources, answers, environment, limits, load,
    mount, presets,
};
use pvisor::policy::{Origin, Policy, Rule};
use pvisor::protocol::{Hello, PROTOCOL_VERSION, Request, Role};
use pvisor::sandbox::spec::{CacheMode, DriverChoice, Limits, Network, TerminalSize};
use pvisor::sandbox::{
    Boundary, Mode, MountAccess, MountSpec, SandboxSpec, Stdio, Submounts, clash, hidden, submounts,
};
use pvisor::session::server::{self, RunRequest};
use pvisor::session::state::RunState;
use pvisor::session::store::{LAST, SessionRecord};
use pvisor::text::visible;

use super::context::{Context, shown};
use super::error::{CliError, NO_SANDBOX};
use super::{headless, preset, refuse, screen, session_arg, status};

/// Run a command on staged layers, and show its terminal and its changes
///
/// The command sees the workspace at its own path, under its own user. What it writes there and in
/// the home directory is staged: nothing reaches the host before `commit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How the command is run [default: staged]
    #[arg(long, value_enum)]
    mode: Option<ModeArg>,
    /// The workspace [default: the current directory]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Who merges the staged layers
    #[arg(long, value_enum, default_value = "auto")]
    driver: DriverArg,
    /// A further mount, SRC[:DST]:ACCESS; ACCESS is read, stage, write, hide, private or keep; a
    /// colon in a path is written `\:`; SRC=NAME names a staged layer or a kept directory
    #[arg(long, value_name = "MOUNT")]
    mount: Vec<OsString>,
    /// What becomes of mounts inside the staged directories [default: stage]
    #[arg(long, value_enum)]
    submounts: Option<SubmountsArg>,
    /// What is known of the command: auto, none, or the name of an agent [default: auto]
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Pass the variable K, or set it to V
    #[arg(long, value_name = "K[=V]")]
    env: Vec<OsString>,
    /// The command's network [default: host]
    #[arg(long, value_enum)]
    net: Option<NetworkArg>,
    /// A name for the session
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Without the screen: the command's output goes to standard output and error as it is
    #[arg(long)]
    headless: bool,
    /// With --headless: give the command a terminal even when standard output is none
    #[arg(long, requires = "headless")]
    pty: bool,
    /// Start, print the session's id and return
    #[arg(long)]
    detach: bool,
    /// End the command after this long: 90s, 5m, 1h30m
    #[arg(long, value_name = "D", value_parser = limits::parse_duration)]
    timeout: Option<Duration>,
    /// Run on the layers of a session that has ended [default: last]
    #[arg(
        long = "continue",
        value_name = "S",
        num_args = 0..=1,
        default_missing_value = LAST,
        conflicts_with_all = ["mode", "name"]
    )]
    resume: Option<OsString>,
    /// The most memory its processes may use together: 512M, 4G
    #[arg(long, value_name = "S", value_parser = limits::parse_bytes)]
    memory: Option<u64>,
    /// How many processors it may keep busy: 1.5
    #[arg(long, value_name = "N", value_parser = limits::parse_cpus)]
    cpus: Option<u64>,
    /// The most that may be staged: 2G
    #[arg(long, value_name = "S", value_parser = limits::parse_bytes)]
    stage_max: Option<u64>,
    /// How long what the file server said is believed; all but default are your word that nobody else
    /// changes the workspace meanwhile, and take the driver fuse for it
    #[arg(long, value_enum, default_value = "default")]
    cache: CacheArg,
    /// A rule on paths, deny|ask|warn:GLOB
    #[arg(long, value_name = "LEVEL:GLOB")]
    rule: Vec<String>,
    /// Count what is looked up, read and written, path by path
    #[arg(long)]
    observe: bool,
    /// Leave EXDEV where the kernel's overlay cannot rename a directory
    #[arg(long)]
    no_rename_shim: bool,
    /// Let the command make user namespaces of its own (for nested sandboxes)
    #[arg(long)]
    allow_nested: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// `--mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeArg {
    /// On staged layers
    Staged,
    /// On the host's files directly
    Host,
}

/// `--driver`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DriverArg {
    /// The fastest that can do it
    Auto,
    /// The kernel's overlayfs
    Overlayfs,
    /// Our own file server
    Fuse,
}

/// `--submounts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SubmountsArg {
    /// Each is a layer of its own where that is possible
    Stage,
    /// Shown read-only
    Read,
    /// Nothing runs
    Refuse,
}

/// `--cache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CacheArg {
    /// For a second
    Default,
    /// Besides, the metadata of lowers that are declared immutable, by the file server
    ImmutableLower,
    /// For the whole session, by the kernel
    Extended,
}

/// `--net`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NetworkArg {
    /// The host's own
    Host,
    /// None
    None,
}

/// Carries it out.
pub fn run(args: Args, context: &Context) -> Result<ExitCode, CliError> {
    let has_screen = context.stdin_is_terminal && context.stdout_is_terminal;
    if !args.headless && !args.detach && !has_screen {
        return Err(
            CliError::usage("the screen needs a terminal on standard input and output")
                .hint("`--headless` runs without the screen, `--detach` in the background"),
        );
    }
    let resume = match &args.resume {
        None => None,
        Some(typed) => Some(resumed(context, typed)?),
    };
    if let Some(name) = &args.name {
        check_name(context, name)?;
    }
    let workspace = match (&resume, &args.workspace) {
        (Some(record), None) => record.info.workspace.clone(),
        (Some(record), Some(typed)) => {
            let typed = workspace(context, Some(typed))?;
            if typed != record.info.workspace {
                return Err(CliError::usage(format!(
                    "session {} is about {}, not {}",
                    record.info.id,
                    shown(&record.info.workspace),
                    shown(&typed)
                )));
            }
            typed
        }
        (None, typed) => workspace(context, typed.as_deref())?,
    };
    let loaded = load(Sources {
        paths: &context.paths,
        environment: &context.environment,
        workspace: Some(&workspace),
        flags: &flags(&args),
    })?;
    for notice in &loaded.notices {
        writeln!(
            std::io::stderr().lock(),
            "warning: {}",
            visible(notice.as_bytes())
        )?;
    }
    let mode = resume
        .as_ref()
        .map_or(loaded.config.mode, |record| record.info.mode);
    if mode == Mode::Host && loaded.config.network != Network::Host {
        return Err(CliError::usage(
            "mode host contains nothing: the command has the host's network",
        )
        .hint("`--mode staged --net none` takes the network away"));
    }
    let interactive = !args.headless && !args.detach;
    let options = if interactive {
        Some(screen::options(&loaded.config, context)?)
    } else {
        None
    };
    let stdio = stdio(&args, context);
    let request = request(&args, context, &loaded, workspace, resume, stdio)?;
    if request.mode == Mode::Staged {
        name_submounts(&request)?;
    }
    let shows = !args.detach;
    let hello = Hello {
        version: PROTOCOL_VERSION,
        role: Role::Driver,
        output: shows,
        size: match stdio {
            Stdio::Pty(size) if shows => Some(size),
            _ => None,
        },
        owns_command: shows && (args.headless || loaded.config.hangup == Hangup::Stop),
    };
    // The command shall not begin on a half-written workspace.
    super::recover::at(&context.store, &request.workspace)?;
    let started = server::run(&context.store, request, hello);
    // From here on nothing is a usage error: whatever failed, the command did not run.
    let (client, welcome) =
        started.map_err(|error| CliError::from(error).with_status(NO_SANDBOX))?;
    warn_of_limits(&welcome.state.boundary)?;
    if args.detach {
        let id = welcome.state.info.as_ref().map(|info| info.id.clone());
        let id = id.unwrap_or_default();
        if stdio == Stdio::Pipes {
            client.send(Request::InputEnded)?;
        }
        // An answer means that the server has taken the end of the input before we leave.
        client.call(Request::Rescan)?;
        writeln!(std::io::stdout().lock(), "{id}")?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.headless {
        headless::run(client, welcome, stdio, context)
    } else {
        let options = options.unwrap_or_default();
        screen::show(client, welcome, options, context)
    }
}

/// Says which mounts lie inside the workspace and what becomes of each.
fn name_submounts(request: &RunRequest) -> Result<(), CliError> {
    let Ok(found) = submounts::below(&request.workspace) else {
        // Whoever makes the sandbox says why it cannot be read.
        return Ok(());
    };
    let mut err = std::io::stderr().lock();
    for mount in found {
        if request
            .mounts
            .iter()
            .any(|m| mount.point.starts_with(&m.target))
        {
            continue;
        }
        let becomes = match (request.submounts, mount.unstageable()) {
            (Submounts::Refuse, _) => continue,
            (Submounts::Read, _) => "shown read-only".to_owned(),
            (Submounts::Stage, Some(why)) => format!("shown read-only, since {why}"),
            (Submounts::Stage, None) => "staged as a layer of its own".to_owned(),
        };
        let point = shown(&mount.point);
        writeln!(
            err,
            "warning: {point} is mounted inside the workspace: it is {becomes}"
        )?;
    }
    Ok(())
}

/// What the flags say to the configuration.
fn flags(args: &Args) -> Vec<Flag> {
    let mut flags = Vec::new();
    if let Some(mode) = args.mode {
        let mode = match mode {
            ModeArg::Staged => "staged",
            ModeArg::Host => "host",
        };
        flags.push(Flag {
            flag: "--mode",
            key: "mode",
            value: mode.into(),
        });
    }
    if let Some(network) = args.net {
        let network = match network {
            NetworkArg::Host => "host",
            NetworkArg::None => "none",
        };
        flags.push(Flag {
            flag: "--net",
            key: "network",
            value: network.into(),
        });
    }
    if let Some(submounts) = args.submounts {
        let submounts = match submounts {
            SubmountsArg::Stage => "stage",
            SubmountsArg::Read => "read",
            SubmountsArg::Refuse => "refuse",
        };
        flags.push(Flag {
            flag: "--submounts",
            key: "submounts",
            value: submounts.into(),
        });
    }
    if let Some(preset) = &args.preset {
        flags.push(Flag {
            flag: "--preset",
            key: "preset",
            value: preset.as_str().into(),
        });
    }
    if args.no_rename_shim {
        flags.push(Flag {
            flag: "--no-rename-shim",
            key: "rename_shim",
            value: false.into(),
        });
    }
    flags
}

/// The session that `--continue` means: one that has ended.
fn resumed(context: &Context, typed: &OsString) -> Result<SessionRecord, CliError> {
    let record = session_arg::find(context, typed, false)
        .map_err(|error| error.with_status(super::error::USAGE))?;
    match record.state {
        RunState::Running => Err(CliError::usage(format!(
            "the command of session {} is still running",
            record.info.id
        ))
        .hint("`pvisor-tui attach` shows it, `pvisor-tui stop` ends it")),
        RunState::Discarded => Err(CliError::usage(format!(
            "session {} was discarded; nothing is staged any more",
            record.info.id
        ))),
        _ => Ok(record),
    }
}

/// A name must tell sessions apart, and must not look like something else on the command line.
fn check_name(context: &Context, name: &str) -> Result<(), CliError> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(plain) || name.starts_with(['-', '.']) || name == LAST {
        return Err(
            CliError::usage(format!("{name:?} cannot be a session's name"))
                .hint("letters, digits, `-`, `_` and `.`; not `last`"),
        );
    }
    match context.store.find(name, false) {
        Ok(record) => Err(CliError::usage(format!(
            "session {} has the name {name} already",
            record.info.id
        ))),
        Err(_) => Ok(()),
    }
}

/// The workspace's root, without links.
fn workspace(context: &Context, typed: Option<&Path>) -> Result<PathBuf, CliError> {
    refuse::relative_to_nothing(typed, &context.current_dir)?;
    let path = match typed {
        Some(typed) => context.current_dir.join(typed),
        None => context.current_dir.clone(),
    };
    let real = path.canonicalize().map_err(|error| {
        CliError::while_doing(format!("looking for the workspace {}", shown(&path)), error)
    })?;
    if !real.is_dir() {
        return Err(CliError::usage(format!(
            "the workspace {} is no directory",
            shown(&real)
        )));
    }
    refuse::workspace(&real)?;
    Ok(real)
}

/// A terminal for the screen; headless pipes, unless a terminal is there or wanted.
fn stdio(args: &Args, context: &Context) -> Stdio {
    if args.headless && !args.pty && !context.stdout_is_terminal {
        return Stdio::Pipes;
    }
    let size = crossterm::terminal::size().ok();
    let size = size.filter(|(cols, rows)| context.stdout_is_terminal && *cols > 0 && *rows > 0);
    let (cols, rows) = size.unwrap_or((80, 24));
    Stdio::Pty(TerminalSize { rows, cols })
}

fn request(
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

/// A bound on memory or processors is always somebody's wish: who relies on it is told at once when
/// nothing holds it. (The built-in one on processes is told by `status`.)
fn warn_of_limits(boundary: &Boundary) -> Result<(), CliError> {
    for limit in &boundary.limits {
        let wished = matches!(limit.name.as_str(), "memory" | "cpus" | "stage");
        if wished && limit.by.is_none() {
            writeln!(
                std::io::stderr().lock(),
                "warning: limit {}: {}",
                visible(limit.name.as_bytes()),
                visible(status::limited(limit).as_bytes())
            )?;
        }
    }
    Ok(())
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
