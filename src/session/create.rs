//! Making and saving session records. Owns the form of a session's id and the atomic replacement of
//! `session.json`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::store::{SessionRecord, Store, StoreError};

/// Where an id's random part comes from.
const RANDOM: &str = "/dev/urandom";
/// Letters of an id's random part: none that are mistaken for another.
const LETTERS: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz023456789";

impl Store {
    /// Makes the directory of a new session, mode 0700: its id begins with the start time in UTC,
    /// so that ids sort by start.
    pub fn create(&self) -> Result<(String, PathBuf), StoreError> {
        let sessions = self.state_dir().join("sessions");
        make(&sessions, true).map_err(|e| StoreError::file("making", &sessions, e))?;
        loop {
            let stamp = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
            let letters =
                random_letters().map_err(|e| StoreError::file("reading", Path::new(RANDOM), e))?;
            let id = format!("{stamp}-{letters}");
            let dir = self.session_dir(&id);
            match make(&dir, false) {
                Ok(()) => return Ok((id, dir)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(StoreError::file("making", &dir, error)),
            }
        }
    }

    /// Replaces a session's `session.json` in one step. Not synced: after a crash of the machine the
    /// journal tells more.
    pub fn save(&self, record: &SessionRecord) -> Result<(), StoreError> {
        let path = record.info.dir.join("session.json");
        let temporary = record.info.dir.join(".session.json.new");
        let write = || -> io::Result<()> {
            let mut out = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&temporary)?;
            let mut text = serde_json::to_vec_pretty(record)?;
            text.push(b'\n');
            out.write_all(&text)?;
            fs::rename(&temporary, &path)
        };
        write().map_err(|e| {
            let _ = fs::remove_file(&temporary);
            StoreError::file("writing", &path, e)
        })
    }
}

fn make(path: &Path, recursive: bool) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(recursive)
        .mode(0o700)
        .create(path)
}

fn random_letters() -> io::Result<String> {
    let mut bytes = [0; 4];
    File::open(RANDOM)?.read_exact(&mut bytes)?;
    Ok(bytes
        .iter()
        .map(|b| char::from(LETTERS[usize::from(b & 31)]))
        .collect())
}
