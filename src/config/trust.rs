//! Which workspace files a person has trusted, by their digest. Owns `trust.json` in the state
//! directory; judges no content.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::layer::Digest;
use crate::paths::replace_file;

/// Why trust could not be read or recorded.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file of trusted digests cannot be used.
    #[error("{doing} {}: {source}", crate::text::visible_path(path))]
    File {
        /// What was attempted.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// The trusted digests of one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trust {
    file: PathBuf,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    workspace: PathBytes,
    digest: Digest,
}

/// A workspace's root in exact bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PathBytes(#[serde(with = "crate::path::exact_bytes")] Vec<u8>);

impl PathBytes {
    fn of(path: &Path) -> Self {
        Self(path.as_os_str().as_encoded_bytes().to_vec())
    }
}

impl Trust {
    /// Reads what is trusted; nothing when no file is there.
    pub fn open(state_dir: &Path) -> Result<Self, TrustError> {
        let file = state_dir.join("trust.json");
        let fail = |source| TrustError::File {
            doing: "reading",
            path: file.clone(),
            source,
        };
        let entries = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| fail(error.into()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(fail(error)),
        };
        Ok(Self { file, entries })
    }

    /// The digest trusted for this workspace.
    pub fn digest(&self, workspace: &Path) -> Option<Digest> {
        let wanted = PathBytes::of(workspace);
        self.entries
            .iter()
            .find(|entry| entry.workspace == wanted)
            .map(|entry| entry.digest)
    }

    /// Trusts this digest for this workspace from now on, in place of any other.
    pub fn record(&mut self, workspace: &Path, digest: Digest) -> Result<(), TrustError> {
        let wanted = PathBytes::of(workspace);
        self.entries.retain(|entry| entry.workspace != wanted);
        self.entries.push(Entry {
            workspace: wanted,
            digest,
        });
        let fail = |source| TrustError::File {
            doing: "writing",
            path: self.file.clone(),
            source,
        };
        if let Some(dir) = self.file.parent() {
            crate::paths::make_private(dir).map_err(|error| fail(io::Error::other(error)))?;
        }
        let text = serde_json::to_vec_pretty(&self.entries).map_err(|error| fail(error.into()))?;
        replace_file(&self.file, &text).map_err(fail)
    }
}
