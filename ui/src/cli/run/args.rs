//! The flags of `run`. Owns their names and what they say to the configuration; what a run makes of
//! them is in `request.rs`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use pvisor::config::{Flag, limits};
use pvisor::session::store::LAST;

/// Run a command on staged layers, and show its terminal and its changes
///
/// The command sees the workspace at its own path, under its own user. What it writes there and in
/// the home directory is staged: nothing reaches the host before `commit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How the command is run [default: staged]
    #[arg(long, value_enum)]
    pub(super) mode: Option<ModeArg>,
    /// The workspace [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(super) workspace: Option<PathBuf>,
    /// Who merges the staged layers
    #[arg(long, value_enum, default_value = "auto")]
    pub(super) driver: DriverArg,
    /// A further mount, SRC[:DST]:ACCESS; ACCESS is read, stage, write, hide, private or keep; a
    /// colon in a path is written `\:`; SRC=NAME names a staged layer or a kept directory
    #[arg(long, value_name = "MOUNT")]
    pub(super) mount: Vec<OsString>,
    /// What becomes of mounts inside the staged directories [default: stage]
    #[arg(long, value_enum)]
    pub(super) submounts: Option<SubmountsArg>,
    /// What is known of the command: auto, none, or the name of an agent [default: auto]
    #[arg(long, value_name = "NAME")]
    pub(super) preset: Option<String>,
    /// Pass the variable K, or set it to V
    #[arg(long, value_name = "K[=V]")]
    pub(super) env: Vec<OsString>,
    /// The command's network [default: host]
    #[arg(long, value_enum)]
    pub(super) net: Option<NetworkArg>,
    /// A name for the session
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    /// Without the screen: the command's output goes to standard output and error as it is
    #[arg(long)]
    pub(super) headless: bool,
    /// With --headless: give the command a terminal even when standard output is none
    #[arg(long, requires = "headless")]
    pub(super) pty: bool,
    /// Start, print the session's id and return
    #[arg(long)]
    pub(super) detach: bool,
    /// End the command after this long: 90s, 5m, 1h30m
    #[arg(long, value_name = "D", value_parser = limits::parse_duration)]
    pub(super) timeout: Option<Duration>,
    /// Run on the layers of a session that has ended [default: last]
    #[arg(
        long = "continue",
        value_name = "S",
        num_args = 0..=1,
        default_missing_value = LAST,
        conflicts_with_all = ["mode", "name"]
    )]
    pub(super) resume: Option<OsString>,
    /// The most memory its processes may use together: 512M, 4G
    #[arg(long, value_name = "S", value_parser = limits::parse_bytes)]
    pub(super) memory: Option<u64>,
    /// How many processors it may keep busy: 1.5
    #[arg(long, value_name = "N", value_parser = limits::parse_cpus)]
    pub(super) cpus: Option<u64>,
    /// The most that may be staged: 2G
    #[arg(long, value_name = "S", value_parser = limits::parse_bytes)]
    pub(super) stage_max: Option<u64>,
    /// How long what the file server said is believed; all but default are your word that nobody else
    /// changes the workspace meanwhile, and take the driver fuse for it
    #[arg(long, value_enum, default_value = "default")]
    pub(super) cache: CacheArg,
    /// A rule on paths, deny|ask|warn:GLOB
    #[arg(long, value_name = "LEVEL:GLOB")]
    pub(super) rule: Vec<String>,
    /// Count what is looked up, read and written, path by path
    #[arg(long)]
    pub(super) observe: bool,
    /// Leave EXDEV where the kernel's overlay cannot rename a directory
    #[arg(long)]
    pub(super) no_rename_shim: bool,
    /// Let the command make user namespaces of its own (for nested sandboxes)
    #[arg(long)]
    pub(super) allow_nested: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}

/// `--mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ModeArg {
    /// On staged layers
    Staged,
    /// On the host's files directly
    Host,
}

/// `--driver`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum DriverArg {
    /// The fastest that can do it
    Auto,
    /// The kernel's overlayfs
    Overlayfs,
    /// Our own file server
    Fuse,
}

/// `--submounts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum SubmountsArg {
    /// Each is a layer of its own where that is possible
    Stage,
    /// Shown read-only
    Read,
    /// Nothing runs
    Refuse,
}

/// `--cache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum CacheArg {
    /// For a second
    Default,
    /// Besides, the metadata of lowers that are declared immutable, by the file server
    ImmutableLower,
    /// For the whole session, by the kernel
    Extended,
}

/// `--net`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum NetworkArg {
    /// The host's own
    Host,
    /// None
    None,
}

/// What the flags say to the configuration.
pub(super) fn flags(args: &Args) -> Vec<Flag> {
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
