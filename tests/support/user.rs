//! Whom the binary runs as. Owns the ordinary user that root's test runs make for themselves.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use nix::unistd::{Uid, User as Entry, geteuid};

/// Name of the user that `useradd` makes when the tests run as root.
pub const ORDINARY: &str = "pvtest";

/// A person of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Login name.
    pub name: String,
    /// Numeric id.
    pub uid: u32,
    /// Numeric id of the main group.
    pub gid: u32,
}

impl User {
    /// Root, when that is who runs the tests.
    pub fn root() -> Option<Self> {
        geteuid().is_root().then(|| Self {
            name: "root".into(),
            uid: 0,
            gid: 0,
        })
    }

    /// Somebody without any privilege: the caller, or a user made for the purpose.
    pub fn ordinary() -> Result<Self, String> {
        static MADE: OnceLock<Result<User, String>> = OnceLock::new();
        MADE.get_or_init(|| {
            if !geteuid().is_root() {
                return Self::find_uid(geteuid());
            }
            if let Ok(user) = Self::find(ORDINARY) {
                return Ok(user);
            }
            let made = Command::new("useradd")
                .args(["-m", "-s", "/bin/bash", ORDINARY])
                .output()
                .map_err(|e| format!("useradd: {e}"))?;
            // Another test process may have made it at the same moment: only the result counts.
            Self::find(ORDINARY)
                .map_err(|_| format!("useradd: {}", String::from_utf8_lossy(&made.stderr).trim()))
        })
        .clone()
    }

    /// Somebody else than `self`, for what must stay out of reach.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Makes `command` run as this user. Nothing to do for the caller's own id.
    pub fn apply(&self, command: &mut Command) {
        if geteuid().as_raw() != self.uid {
            // The standard library drops the supplementary groups as well when root changes its id.
            command.uid(self.uid).gid(self.gid);
        }
    }

    fn find(name: &str) -> Result<Self, String> {
        Self::from_entry(Entry::from_name(name), name)
    }

    fn find_uid(uid: Uid) -> Result<Self, String> {
        Self::from_entry(Entry::from_uid(uid), &uid.to_string())
    }

    fn from_entry(found: nix::Result<Option<Entry>>, who: &str) -> Result<Self, String> {
        match found {
            Ok(Some(entry)) => Ok(Self {
                name: entry.name,
                uid: entry.uid.as_raw(),
                gid: entry.gid.as_raw(),
            }),
            Ok(None) => Err(format!("no user {who}")),
            Err(e) => Err(format!("looking for user {who}: {e}")),
        }
    }
}
