//! The journal: every agreed update, one JSON line each. Owns `journal.jsonl`; a file cut at any
//! byte replays to a prefix. What it must cut off because it cannot read it stays in `journal.cut`.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::state::Update;
use crate::reserve::AppendFile;
use crate::text::{visible, visible_path};

/// Bytes of updates that wait for a flush at most, where one is possible.
const GATHERED: usize = 1 << 16;

/// Appends updates. Room for more is reserved; what a full disk refuses all the same waits in
/// memory.
pub struct Journal {
    file: AppendFile,
}

impl Journal {
    /// Opens the journal, replays its whole lines into `apply` and cuts a torn end off, so that
    /// what is appended begins on a line of its own. A whole line that cannot be read ends the
    /// replay: it and what follows are moved to the end of `journal.cut` beside the journal.
    pub fn open(path: &Path, mut apply: impl FnMut(Update)) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        let mut whole = 0;
        let mut reader = BufReader::new(&mut file);
        let mut line = Vec::new();
        let mut unreadable = None;
        loop {
            line.clear();
            let length = reader.read_until(b'\n', &mut line)?;
            if length == 0 || line.last() != Some(&b'\n') {
                break;
            }
            match serde_json::from_slice(&line) {
                Ok(update) => apply(update),
                Err(error) => {
                    unreadable = Some(error);
                    break;
                }
            }
            whole += length as u64;
        }
        if let Some(error) = unreadable {
            let kept = path.with_extension("cut");
            let bytes = keep(&mut file, whole, &kept)?;
            let error = error.to_string();
            tracing::error!(
                error = &*visible(error.as_bytes()),
                kept = &*visible_path(&kept),
                bytes,
                "a line of the journal cannot be read; what follows is no longer replayed"
            );
        }
        if file.metadata()?.len() != whole {
            file.set_len(whole)?;
        }
        Ok(Self {
            file: AppendFile::new(file, whole),
        })
    }

    /// Appends one update; it reaches the file with the next [`Journal::flush`].
    pub fn append(&mut self, update: &Update) -> io::Result<()> {
        let mut line = serde_json::to_vec(update)?;
        line.push(b'\n');
        self.file.push(&line);
        if self.file.pending() < GATHERED {
            return Ok(());
        }
        self.flush()
    }

    /// Hands what was appended to the kernel.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Appends what the journal holds from `start` on to the file `kept`; tells how much that is.
fn keep(journal: &mut File, start: u64, kept: &Path) -> io::Result<u64> {
    let mut kept = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(kept)?;
    journal.seek(SeekFrom::Start(start))?;
    let bytes = io::copy(journal, &mut kept)?;
    kept.sync_data()?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(path: &Path) -> Vec<Update> {
        let mut seen = Vec::new();
        Journal::open(path, |u| seen.push(u)).expect("journal opens");
        seen
    }

    #[test]
    fn cut_at_any_byte_it_replays_to_a_prefix_and_goes_on() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("journal.jsonl");
        let updates: Vec<Update> = (0..5)
            .map(|n| Update::Noticed(format!("notice {n}")))
            .chain([Update::Discarded])
            .collect();
        let mut journal = Journal::open(&path, |_| ()).expect("opens");
        for update in &updates {
            journal.append(update).expect("appends");
        }
        drop(journal);
        let bytes = std::fs::read(&path).expect("reads");
        for cut in 0..=bytes.len() {
            std::fs::write(&path, &bytes[..cut]).expect("writes");
            let seen = replay(&path);
            assert_eq!(seen, updates[..seen.len()]);
            let mut journal = Journal::open(&path, |_| ()).expect("opens");
            journal.append(&Update::Lost).expect("appends");
            drop(journal);
            assert_eq!(replay(&path).len(), seen.len() + 1);
        }
    }
    #[test]
    fn what_it_cannot_read_is_kept_beside_it() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("journal.jsonl");
        let kept = dir.path().join("journal.cut");
        let line = |update| format!("{}\n", serde_json::to_string(&update).expect("json"));
        let (first, last) = (line(Update::Lost), line(Update::Discarded));
        let unknown = "{\"OfAnotherVersion\":1}\n";

        std::fs::write(&path, format!("{first}{unknown}{last}torn")).expect("writes");
        assert_eq!(replay(&path), [Update::Lost]);
        let text = |path| std::fs::read_to_string(path).expect("reads");
        assert_eq!(text(&path), first);
        assert_eq!(text(&kept), format!("{unknown}{last}torn"));

        std::fs::write(&path, format!("{first}{unknown}")).expect("writes");
        assert_eq!(replay(&path), [Update::Lost]);
        assert_eq!(text(&kept), format!("{unknown}{last}torn{unknown}"));

        std::fs::remove_file(&kept).expect("removed");
        std::fs::write(&path, format!("{first}torn")).expect("writes");
        assert_eq!(replay(&path), [Update::Lost]);
        assert!(!kept.exists(), "a torn end was agreed by nobody");
    }
}
