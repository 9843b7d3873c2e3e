//! What a preset adds to a run: kept directories and what they begin with, hidden places, variables.
//! Owns how the preset's words become paths of this caller's; the knowledge itself is data.

use std::ffi::OsStr;
use std::path::PathBuf;

use pvisor::config::presets::{self, Preset, Seed};
use pvisor::config::{Config, Places};
use pvisor::paths::Environment;
use pvisor::sandbox::{MountAccess, MountSpec};
use pvisor::session::keep;

use super::error::CliError;

/// What a preset comes to.
#[derive(Debug, Default)]
pub struct Applied {
    /// Directories that live on.
    pub mounts: Vec<MountSpec>,
    /// What new ones begin with.
    pub seeds: Vec<keep::Seed>,
    /// Places the command has no business in.
    pub hide: Vec<PathBuf>,
    /// For the record.
    pub notes: Vec<String>,
}

/// Applies a preset: its variables to `config`, the rest to what is returned. What the caller
/// mounted himself (`mounts`) stands.
pub fn apply(
    preset: Option<&Preset>,
    config: &mut Config,
    environment: &Environment,
    places: Places<'_>,
    mounts: &[MountSpec],
) -> Result<Applied, CliError> {
    let mut applied = Applied::default();
    let Some(preset) = preset else {
        return Ok(applied);
    };
    // The built-in list is of all agents together; a person's own list stays.
    let built_in = pvisor::config::load::defaults()?.env.presets;
    if config.env.presets.get("agents") == built_in.get("agents") {
        config.env.presets.remove("agents");
    }
    config
        .env
        .presets
        .insert(format!("preset {}", preset.name), preset.pass.clone());
    for (name, value) in &preset.set {
        let own = environment.contains_key(OsStr::new(name));
        if !own && !config.env.set.contains_key(name) {
            let value = places.absolute(value.as_ref());
            // A home directory that is no text cannot stand in a setting; the program then uses its
            // own place, which is staged.
            if let Some(value) = value.to_str() {
                config.env.set.insert(name.clone(), value.to_owned());
            }
        }
    }
    for kept in &preset.keep {
        let named = kept
            .variable
            .as_ref()
            .and_then(|v| environment.get(OsStr::new(v)));
        let path = named.map_or(OsStr::new(&kept.path), |value| value.as_os_str());
        let target = places.canonical(path);
        let taken = |m: &MountSpec| m.target.starts_with(&target) || target.starts_with(&m.target);
        // A workspace inside it is to be staged, not kept.
        let holds_workspace = places.base.starts_with(&target);
        if holds_workspace || mounts.iter().any(taken) || target.exists() && !target.is_dir() {
            continue;
        }
        for seed in &kept.seed {
            let (from, to) = match seed {
                Seed::Same(name) => (target.join(name), name),
                Seed::Other { from, to } => (places.absolute(from.as_ref()), to),
            };
            applied.seeds.push(keep::Seed {
                target: target.clone(),
                from,
                to: to.into(),
            });
        }
        applied.mounts.push(MountSpec {
            source: target.clone(),
            target,
            access: MountAccess::Keep,
            name: None,
        });
    }
    let hidden = preset
        .hide
        .iter()
        .map(|path| places.canonical(path.as_ref()));
    let wanted = |path: &PathBuf| {
        let seen = |m: &MountSpec| m.target.starts_with(path) || path.starts_with(&m.target);
        !places.base.starts_with(path) && !mounts.iter().any(seen)
    };
    applied.hide = hidden.filter(wanted).collect();
    let tried = if preset.tested.is_empty() {
        "was not tried with the program".to_owned()
    } else {
        format!("was tried with version {}", preset.tested)
    };
    applied.notes.push(format!(
        "preset {}: it {tried}; `--preset {}` leaves it out",
        preset.name,
        presets::NONE
    ));
    Ok(applied)
}
