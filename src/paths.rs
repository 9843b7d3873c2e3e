//! Where pvisor-tui keeps its own files. Owns the choice of the state, runtime and configuration
//! directories and their permissions. Reads no process environment itself: the caller hands it in,
//! so that tests and servers decide with the same rule.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

/// Name of our directory below each of the XDG base directories.
pub const DIRECTORY: &str = "pvisor-tui";
/// Environment variable that places the state directory.
pub const STATE_DIR_VARIABLE: &str = "PVISOR_TUI_STATE_DIR";

/// Environment variables by name, in exact bytes.
pub type Environment = BTreeMap<OsString, OsString>;

/// Why the directories could not be settled or made.
#[derive(Debug, thiserror::Error)]
pub enum PathsError {
    /// Neither the environment nor the user database knows a home directory.
    #[error(
        "no home directory is known for user id {uid}: HOME is not an absolute path and the user \
         database has no entry"
    )]
    NoHome {
        /// The caller's user id.
        uid: u32,
    },
    /// A directory of ours was given as a relative path.
    #[error(
        "the {what} must be an absolute path, not {}",
        crate::text::visible_path(path)
    )]
    Relative {
        /// Which directory.
        what: &'static str,
        /// What was given.
        path: PathBuf,
    },
    /// A directory could not be made or made private.
    #[error("{doing} {}: {source}", crate::text::visible_path(path))]
    Directory {
        /// What was attempted.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// The directories and the identity of one caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The caller's home directory, as the environment (or the user database) writes it.
    pub home: PathBuf,
    /// The caller's user name; the number when the user database has none.
    pub user: String,
    /// The caller's login shell.
    pub shell: PathBuf,
    /// Sessions and trust: `$XDG_STATE_HOME/pvisor-tui` unless placed elsewhere.
    pub state_dir: PathBuf,
    /// Sockets: `$XDG_RUNTIME_DIR/pvisor-tui`, else `run` below the state directory.
    pub runtime_dir: PathBuf,
    /// `$XDG_CONFIG_HOME/pvisor-tui`.
    pub config_dir: PathBuf,
}

impl Paths {
    /// Settles the directories for the calling user. `state_dir` is what `--state-dir` said; a
    /// relative one is taken from `current_dir`. Makes nothing.
    pub fn resolve(
        environment: &Environment,
        state_dir: Option<&Path>,
        current_dir: &Path,
    ) -> Result<Self, PathsError> {
        let uid = Uid::effective();
        let entry = User::from_uid(uid).ok().flatten();
        let home = absolute(environment, "HOME")
            .or_else(|| {
                entry
                    .as_ref()
                    .map(|user| user.dir.clone())
                    .filter(|dir| dir.is_absolute())
            })
            .ok_or(PathsError::NoHome { uid: uid.as_raw() })?;
        let state_dir = match (state_dir, absolute_or_error(environment)?) {
            (Some(flag), _) => current_dir.join(flag),
            (None, Some(placed)) => placed,
            (None, None) => absolute(environment, "XDG_STATE_HOME")
                .unwrap_or_else(|| home.join(".local/state"))
                .join(DIRECTORY),
        };
        let runtime_dir = absolute(environment, "XDG_RUNTIME_DIR")
            .filter(|dir| owned_directory(dir, uid.as_raw()))
            .map_or_else(|| state_dir.join("run"), |dir| dir.join(DIRECTORY));
        let config_dir = absolute(environment, "XDG_CONFIG_HOME")
            .unwrap_or_else(|| home.join(".config"))
            .join(DIRECTORY);
        Ok(Self {
            user: entry
                .as_ref()
                .map_or_else(|| uid.as_raw().to_string(), |user| user.name.clone()),
            shell: absolute(environment, "SHELL")
                .or_else(|| {
                    entry
                        .map(|user| user.shell)
                        .filter(|shell| shell.is_absolute())
                })
                .unwrap_or_else(|| PathBuf::from("/bin/sh")),
            home,
            state_dir,
            runtime_dir,
            config_dir,
        })
    }

    /// Where this caller's sessions lie when nothing places them elsewhere, by the environment and
    /// by the home directory alone. An agent must not reach those of other command lines either.
    pub fn usual_state_dirs(&self, environment: &Environment) -> Vec<PathBuf> {
        let mut bases = vec![self.home.join(".local/state")];
        bases.extend(absolute(environment, "XDG_STATE_HOME"));
        let mut dirs: Vec<PathBuf> = bases.iter().map(|base| base.join(DIRECTORY)).collect();
        dirs.extend(absolute(environment, STATE_DIR_VARIABLE));
        dirs
    }

    /// The user's configuration file.
    pub fn config_file(&self) -> PathBuf {
        self.config_dir.join("config.toml")
    }
}

/// Makes a directory of ours and those above it, readable by the owner only; one that is there
/// already is made private if it is ours, else refused.
pub fn make_private(dir: &Path) -> Result<(), PathsError> {
    let fail = |doing| {
        move |source| PathsError::Directory {
            doing,
            path: dir.into(),
            source,
        }
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(fail("making the directory"))?;
    let meta = std::fs::metadata(dir).map_err(fail("looking at the directory"))?;
    if meta.uid() != Uid::effective().as_raw() {
        return Err(fail("using the directory")(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to another user",
        )));
    }
    if meta.mode() & 0o077 != 0 {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))
            .map_err(fail("making private the directory"))?;
    }
    Ok(())
}

/// Replaces `path` by a file of mode 0600 with these bytes: written beside it, synced, renamed.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path
        .parent()
        .ok_or_else(|| io::Error::other("a file needs a directory"))?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        File::open(dir)?.sync_all()
    })();
    if written.is_err() {
        // What is left beside it would be in nobody's way, but it is of no use either.
        let _ = std::fs::remove_file(&beside);
    }
    written
}

/// An XDG variable counts only as an absolute path; anything else is as good as unset.
fn absolute(environment: &Environment, name: &str) -> Option<PathBuf> {
    environment
        .get(OsStr::new(name))
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

/// Our own variable is no such convention: a relative value is a mistake that must be said.
fn absolute_or_error(environment: &Environment) -> Result<Option<PathBuf>, PathsError> {
    match environment.get(OsStr::new(STATE_DIR_VARIABLE)) {
        Some(value) if !value.is_empty() => {
            let path = PathBuf::from(value);
            if path.is_absolute() {
                Ok(Some(path))
            } else {
                Err(PathsError::Relative {
                    what: "state directory in PVISOR_TUI_STATE_DIR",
                    path,
                })
            }
        }
        _ => Ok(None),
    }
}

/// A runtime directory left in the environment by somebody else (`su`, `sudo`) is not ours to use.
fn owned_directory(dir: &Path, uid: u32) -> bool {
    std::fs::metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.uid() == uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        pairs.iter().map(|(k, v)| (k.into(), v.into())).collect()
    }

    fn resolve(pairs: &[(&str, &str)], state_dir: Option<&str>) -> Result<Paths, PathsError> {
        Paths::resolve(
            &environment(pairs),
            state_dir.map(Path::new),
            Path::new("/cwd"),
        )
    }

    #[test]
    fn defaults_lie_below_home() {
        let paths = resolve(&[("HOME", "/h")], None).expect("paths");
        assert_eq!(paths.state_dir, Path::new("/h/.local/state/pvisor-tui"));
        assert_eq!(
            paths.runtime_dir,
            Path::new("/h/.local/state/pvisor-tui/run")
        );
        assert_eq!(
            paths.config_file(),
            Path::new("/h/.config/pvisor-tui/config.toml")
        );
    }

    #[test]
    fn flag_beats_variable_beats_xdg() {
        let set = [
            ("HOME", "/h"),
            ("XDG_STATE_HOME", "/s"),
            (STATE_DIR_VARIABLE, "/v"),
        ];
        let state = |flag| resolve(&set, flag).expect("paths").state_dir;
        assert_eq!(state(Some("flag")), Path::new("/cwd/flag"));
        assert_eq!(state(None), Path::new("/v"));
        let xdg = resolve(&set[..2], None).expect("paths").state_dir;
        assert_eq!(xdg, Path::new("/s/pvisor-tui"));
        assert!(matches!(
            resolve(&[("HOME", "/h"), (STATE_DIR_VARIABLE, "v")], None),
            Err(PathsError::Relative { .. })
        ));
    }

    #[test]
    fn the_usual_places_are_known_wherever_this_one_lies() {
        let set = [("HOME", "/h"), ("XDG_STATE_HOME", "/s")];
        let paths = resolve(&set, Some("/elsewhere")).expect("paths");
        assert_eq!(
            paths.usual_state_dirs(&environment(&set)),
            ["/h/.local/state/pvisor-tui", "/s/pvisor-tui"].map(PathBuf::from)
        );
    }

    #[test]
    fn a_runtime_directory_must_be_there_and_be_ours() {
        let dir = tempfile::tempdir().expect("tempdir");
        let text = dir.path().to_str().expect("utf-8");
        let ours = resolve(&[("HOME", "/h"), ("XDG_RUNTIME_DIR", text)], None).expect("paths");
        assert_eq!(ours.runtime_dir, dir.path().join("pvisor-tui"));
        let gone = resolve(
            &[("HOME", "/h"), ("XDG_RUNTIME_DIR", "/no/such/place")],
            None,
        );
        assert!(gone.expect("paths").runtime_dir.starts_with("/h"));
    }

    #[test]
    fn without_home_the_user_database_is_asked() {
        let paths = resolve(&[], None).expect("paths");
        let entry = User::from_uid(Uid::effective()).ok().flatten();
        assert_eq!(Some(paths.home), entry.map(|user| user.dir));
    }

    #[test]
    fn directories_are_private() {
        let dir = tempfile::tempdir().expect("tempdir");
        let inner = dir.path().join("a/b");
        make_private(&inner).expect("made");
        std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o755)).expect("chmod");
        make_private(&inner).expect("made private");
        let mode = std::fs::metadata(&inner).expect("stat").mode() & 0o777;
        assert_eq!(mode, 0o700);
    }
}
