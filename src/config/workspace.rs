//! The workspace's own settings file. Owns how it is read (from the host, as a plain file, never
//! through a link) and what it may say: only what takes something from the agent.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::load::{Origin, check_known, default_table};
use super::{ConfigError, mount};
use crate::layer::Digest;
use crate::sandbox::MountAccess;
use crate::text::visible;

/// Name of the file in the workspace's root.
pub const WORKSPACE_FILE: &str = ".pvisor-tui.toml";
/// Largest file that is read.
const MAX_BYTES: u64 = 1 << 20;

/// A workspace's file as it lies on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceFile {
    /// Where.
    pub path: PathBuf,
    /// Hash of its bytes: what trust is bound to.
    pub digest: Digest,
    /// Its text.
    pub text: String,
}

impl WorkspaceFile {
    /// Reads the file of this workspace; `None` when there is none.
    pub fn read(workspace: &Path) -> Result<Option<Self>, ConfigError> {
        let path = workspace.join(WORKSPACE_FILE);
        let fail = |source| ConfigError::Read {
            path: path.clone(),
            source,
        };
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(&path);
        let file = match file {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
                return Err(fail(io::Error::other("it is a symbolic link")));
            }
            Err(error) => return Err(fail(error)),
        };
        let meta = file.metadata().map_err(fail)?;
        if !meta.is_file() {
            return Err(fail(io::Error::other("it is not a regular file")));
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(fail)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(fail(io::Error::other("it is larger than 1 MiB")));
        }
        let digest = Digest::of(&bytes);
        let text =
            String::from_utf8(bytes).map_err(|_| fail(io::Error::other("it is not UTF-8 text")))?;
        Ok(Some(Self { path, digest, text }))
    }

    /// What it says, as a table that can only tighten.
    pub fn table(&self) -> Result<Table, ConfigError> {
        let table: Table =
            self.text
                .parse()
                .map_err(|error: toml::de::Error| ConfigError::Syntax {
                    path: self.path.clone(),
                    message: syntax(&error),
                })?;
        let origin = Origin::Workspace(self.path.clone());
        check_known(&table, default_table()?, &origin)?;
        let loosens = |key: &str| ConfigError::Loosens {
            path: self.path.clone(),
            key: key.into(),
        };
        for (key, value) in &table {
            match (key.as_str(), value) {
                ("hide" | "mounts" | "network", _) => {}
                ("submounts", Value::String(what)) if what == "read" || what == "refuse" => {}
                ("env", Value::Table(env)) => {
                    if let Some(key) = env.keys().find(|key| *key != "drop") {
                        return Err(loosens(&format!("env.{key}")));
                    }
                }
                ("rules", Value::Table(rules)) => {
                    if rules.contains_key("lift") {
                        return Err(loosens("rules.lift"));
                    }
                }
                _ => return Err(loosens(key)),
            }
        }
        match table.get("network").and_then(Value::as_str) {
            Some("none") | None => {}
            Some(network) => return Err(loosens(&format!("network = \"{network}\""))),
        }
        let mounts = table.get("mounts").and_then(Value::as_array);
        for typed in mounts.into_iter().flatten().filter_map(Value::as_str) {
            match mount::split(typed.as_ref()).map(|parts| parts.access) {
                Ok(MountAccess::Hide | MountAccess::Private) => {}
                Ok(_) => return Err(loosens(&format!("the mount {typed}"))),
                Err(error) => {
                    return Err(ConfigError::Value {
                        origin,
                        message: error.to_string(),
                    });
                }
            }
        }
        Ok(table)
    }
}

/// A TOML error on one line, with its place.
pub(super) fn syntax(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    visible(format!("{first}: {}", error.message()).as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> WorkspaceFile {
        WorkspaceFile {
            path: "/w/.pvisor-tui.toml".into(),
            digest: Digest::of(text.as_bytes()),
            text: text.into(),
        }
    }

    #[test]
    fn only_what_tightens_is_taken() {
        for fine in [
            "hide = ['secrets']",
            "network = 'none'",
            "submounts = 'read'",
            "mounts = ['build:private', 'keys:hide']",
            "[env]\ndrop = ['OPENAI_*']",
            "[rules]\ndeny = ['*.pem']\nask = ['deploy/**']\nwarn = ['.env']",
        ] {
            assert!(file(fine).table().is_ok(), "{fine}");
        }
        for loose in [
            "network = 'host'",
            "unhide = ['~/.ssh']",
            "mounts = ['/etc:write']",
            "mounts = ['~/.ssh:read']",
            "mounts = ['/srv:stage']",
            "[env]\npass = ['AWS_*']",
            "[env.presets]\nbase = ['*']",
            "[env.set]\nLD_PRELOAD = '/w/x.so'",
            "[rules]\nlift = ['*.pem']",
            "ask_timeout = 3600",
            "mounts = ['data:keep']",
            "submounts = 'stage'",
            "preset = 'none'",
            "theme = 'dark'",
            "mode = 'host'",
            "[keys]\ncommit = 'j'",
        ] {
            let error = file(loose).table().expect_err(loose);
            assert!(matches!(error, ConfigError::Loosens { .. }), "{error}");
        }
        assert!(matches!(
            file("hid = []").table(),
            Err(ConfigError::UnknownKey { nearest: Some(n), .. }) if n == "hide"
        ));
        assert!(matches!(
            file("hide = 'a").table(),
            Err(ConfigError::Syntax { .. })
        ));
    }

    #[test]
    fn a_link_is_not_followed() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join(WORKSPACE_FILE);
        assert_eq!(WorkspaceFile::read(dir.path()).expect("none"), None);
        std::os::unix::fs::symlink("/etc/passwd", &path).expect("link");
        assert!(WorkspaceFile::read(dir.path()).is_err());
        std::fs::remove_file(&path).expect("remove");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("fifo");
        assert!(WorkspaceFile::read(dir.path()).is_err());
    }
}
