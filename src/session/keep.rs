//! Directories that live on across sessions: `<state>/keep/<name>`. Owns their names, how a new one
//! is made and what it begins with. What lies in them is the agent's own: it is no change, and never
//! reaches the host.
//!
//! Sessions that run at once share a directory, as they would share the host's: programs that keep
//! databases or sign-ins there lock them among their own processes.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use crate::sandbox::{MountAccess, MountSpec};
use crate::text::visible_path;

/// Something of the host's that a new directory takes over. What is not there is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seed {
    /// The place inside of the directory it is for.
    pub target: PathBuf,
    /// The host's file or directory.
    pub from: PathBuf,
    /// Its name in the directory: relative, without `..`.
    pub to: PathBuf,
}

/// Why a directory could not be made.
#[derive(Debug, thiserror::Error)]
#[error("making the kept directory {}: {source}", visible_path(path))]
pub struct KeepError {
    path: PathBuf,
    source: io::Error,
}

/// Makes the directories of the kept mounts where they are missing, and turns the mounts to them.
pub fn open(state_dir: &Path, mounts: &mut [MountSpec], seeds: &[Seed]) -> Result<(), KeepError> {
    let parent = state_dir.join("keep");
    for mount in mounts.iter_mut() {
        if mount.access != MountAccess::Keep {
            continue;
        }
        let name = mount.name.clone().unwrap_or_else(|| name(&mount.target));
        let dir = parent.join(name);
        let of_this = seeds.iter().filter(|seed| seed.target == mount.target);
        make(&parent, &dir, of_this).map_err(|source| KeepError {
            path: dir.clone(),
            source,
        })?;
        mount.source = dir;
    }
    Ok(())
}

/// A name after the place inside: readable, and one for each place.
pub fn name(target: &Path) -> String {
    let last = target.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let readable: String = last.chars().filter(plain).take(40).collect();
    let hash = blake3::hash(target.as_os_str().as_bytes()).to_hex();
    format!("{readable}-{}", &hash[..8])
}

/// Appears complete or not at all: two sessions may start at once.
fn make<'a>(parent: &Path, dir: &Path, seeds: impl Iterator<Item = &'a Seed>) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(parent)?;
    match fs::symlink_metadata(dir) {
        Ok(meta) if meta.is_dir() => return Ok(()),
        Ok(_) => return Err(io::Error::from(io::ErrorKind::NotADirectory)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let half = parent.join(format!(".new-{}", std::process::id()));
    // Left by a process of this number that was killed.
    let _ = crate::layer::remove::remove_tree(&half);
    DirBuilder::new().mode(0o700).create(&half)?;
    for seed in seeds {
        plant(&half, seed)?;
    }
    match fs::rename(&half, dir) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            // Another session was faster: its directory is as good.
            crate::layer::remove::remove_tree(&half)
        }
        other => other,
    }
}

fn plant(dir: &Path, seed: &Seed) -> io::Result<()> {
    let is_inside = seed
        .to
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if !is_inside || fs::symlink_metadata(&seed.from).is_err() {
        return Ok(());
    }
    let to = dir.join(&seed.to);
    if let Some(parent) = to.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)?;
    }
    // The seed itself may be a link of somebody who keeps settings elsewhere.
    copy(&fs::canonicalize(&seed.from)?, &to)
}

/// Files, directories and links; nothing else is a setting.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(from)?;
    let kind = meta.file_type();
    if kind.is_dir() {
        DirBuilder::new().mode(0o700).create(to)?;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            copy(&from.join(&name), &to.join(&name))?;
        }
    } else if kind.is_file() {
        fs::copy(from, to)?;
        let mode = meta.permissions().mode() & 0o700;
        fs::set_permissions(to, fs::Permissions::from_mode(mode | 0o600))?;
    } else if kind.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(from)?, to)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(target: &Path, name: Option<&str>) -> MountSpec {
        MountSpec {
            source: target.to_owned(),
            target: target.to_owned(),
            access: MountAccess::Keep,
            name: name.map(Into::into),
        }
    }

    #[test]
    fn a_directory_is_made_once_and_shared_by_name() {
        let state = tempfile::tempdir().expect("temporary directory");
        let host = state.path().join("host");
        fs::create_dir_all(host.join("rules")).expect("directory");
        fs::write(host.join("auth.json"), "token").expect("file");
        fs::write(host.join("rules/a"), "rule").expect("file");
        let target = Path::new("/h/.tool");
        let seed = |name: &str| Seed {
            target: target.into(),
            from: host.join(name),
            to: name.into(),
        };
        let seeds = ["auth.json", "rules", "missing"].map(seed);
        let mut mounts = [kept(target, None), kept(target, Some("other"))];
        open(state.path(), &mut mounts, &seeds).expect("made");
        let dir = &mounts[0].source;
        assert_eq!(dir, &state.path().join("keep").join(name(target)));
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(dir), 0o700);
        assert_eq!(mode(&dir.join("auth.json")), 0o600);
        assert_eq!(
            fs::read_to_string(dir.join("rules/a")).expect("seed"),
            "rule"
        );
        assert_eq!(mounts[1].source, state.path().join("keep/other"));

        fs::write(dir.join("auth.json"), "newer").expect("file");
        let mut again = [kept(target, None)];
        open(state.path(), &mut again, &seeds).expect("found");
        let token = fs::read_to_string(again[0].source.join("auth.json"));
        assert_eq!(
            token.expect("kept"),
            "newer",
            "it begins with the host's once only"
        );
    }
}
