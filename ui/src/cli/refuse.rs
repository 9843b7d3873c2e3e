//! What of a `run` cannot be done wherever it is tried: places that cannot be a workspace, mounts
//! that contradict each other, names that do not exist. Owns these messages; each names the flag or
//! the path that is at fault, before anything is made.

use std::io::Write;
use std::path::{Path, PathBuf};

use pvisor::config::{EnvArg, MountError, presets};
use pvisor::paths::Environment;
use pvisor::sandbox::{MountAccess, MountSpec};
use pvisor::text::visible;

use super::context::shown;
use super::error::CliError;

/// File systems of the kernel's own, where nothing can be staged.
const OF_THE_KERNEL: [&str; 2] = ["/proc", "/sys"];

/// A workspace, without links, that no layer can be put on.
pub fn workspace(real: &Path) -> Result<(), CliError> {
    if real.parent().is_none() {
        return Err(CliError::usage("the workspace cannot be /")
            .hint("go to the project's directory, or name it with --workspace"));
    }
    match OF_THE_KERNEL.iter().find(|root| real.starts_with(root)) {
        None => Ok(()),
        Some(root) => Err(CliError::usage(format!(
            "the workspace cannot be {}: {root} is the kernel's, nothing can be staged there",
            shown(real)
        ))
        .hint("go to the project's directory, or name it with --workspace")),
    }
}

/// A path that begins where the caller is, when that directory is gone.
pub fn relative_to_nothing(typed: Option<&Path>, current: &Path) -> Result<(), CliError> {
    if typed.is_some_and(Path::is_absolute) || current.is_dir() {
        return Ok(());
    }
    let named = if current.as_os_str().is_empty() {
        String::new()
    } else {
        format!(" {}", shown(current))
    };
    Err(CliError::usage(format!(
        "the current directory{named} does not exist any more"
    ))
    .hint("go to one that does, or name the workspace with --workspace"))
}

/// A preset that does not exist; `by_flag`: `--preset` has named it.
pub fn preset(name: &str, by_flag: bool) -> Result<(), CliError> {
    let known: Vec<&str> = presets::names().collect();
    let special = [presets::AUTO, presets::NONE];
    if known.contains(&name) || special.contains(&name) {
        return Ok(());
    }
    let by = if by_flag {
        "--preset"
    } else {
        "the setting `preset`"
    };
    Err(CliError::usage(format!(
        "{by} names {}, which is no preset",
        visible(name.as_bytes())
    ))
    .hint(format!(
        "there are {}, {}",
        known.join(", "),
        special.join(", ")
    )))
}

/// Mounts that would take the session's own places away, or contradict each other. `layers`: what is
/// staged whatever is mounted, with a word for each.
pub fn mounts(mounts: &[MountSpec], layers: &[(&str, &PathBuf)]) -> Result<(), CliError> {
    for mount in mounts {
        let typed = format!("the mount {}:{}", shown(&mount.target), word(mount.access));
        if mount.access == MountAccess::Hide
            && let Some((what, layer)) = layers.iter().find(|(_, l)| l.starts_with(&mount.target))
        {
            return Err(CliError::usage(format!(
                "{typed} hides {what} {}, which is staged",
                shown(layer)
            ))
            .hint("leave that mount out, or hide something inside it"));
        }
        if mount.target.parent().is_none() {
            return Err(
                CliError::usage(format!("{typed}: nothing can be mounted on /"))
                    .hint("name the directories that are meant"),
            );
        }
    }
    for (at, mount) in mounts.iter().enumerate() {
        let other = mounts[..at]
            .iter()
            .find(|other| other.target == mount.target && other.access != mount.access);
        if let Some(other) = other {
            return Err(CliError::usage(format!(
                "two mounts on {}: {} and {}",
                shown(&mount.target),
                word(other.access),
                word(mount.access)
            ))
            .hint("leave one of them out"));
        }
    }
    Ok(())
}

/// Says which variables are to be passed that the caller does not have.
pub fn name_missing(asked: &[EnvArg], caller: &Environment) -> Result<(), CliError> {
    for arg in asked {
        if arg.value.is_none() && !caller.contains_key(&arg.name) {
            writeln!(
                std::io::stderr().lock(),
                "warning: --env {}: there is no such variable in your environment, so it is not \
                 passed",
                visible(arg.name.as_encoded_bytes())
            )?;
        }
    }
    Ok(())
}

/// What mends a mount that was not understood.
pub fn mount_hint(error: &MountError) -> Option<&'static str> {
    match error {
        MountError::Form(_) | MountError::Access(_) => Some("a colon in a path is written `\\:`"),
        MountError::Name(_) => Some("an equals sign in a path is written `\\=`"),
        MountError::StagedElsewhere(_) => {
            Some("leave out the place inside: `--mount SRC:stage`; `SRC:DST:write` is not staged")
        }
        MountError::Target(_) => Some("the place inside begins with `/` or `~/`"),
        MountError::Source { .. } => None,
    }
}

fn word(access: MountAccess) -> &'static str {
    match access {
        MountAccess::Read => "read",
        MountAccess::Stage => "stage",
        MountAccess::Write => "write",
        MountAccess::Hide => "hide",
        MountAccess::Private => "private",
        MountAccess::Keep => "keep",
    }
}
