//! The journal: every agreed update, one JSON line each. Owns `journal.jsonl`; a file cut at any
//! byte replays to a prefix.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::state::Update;

/// Appends updates.
pub struct Journal {
    file: BufWriter<File>,
}

impl Journal {
    /// Opens the journal, replays its whole lines into `apply` and cuts a torn end off, so that
    /// what is appended begins on a line of its own.
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
        loop {
            line.clear();
            let length = reader.read_until(b'\n', &mut line)?;
            if length == 0 || line.last() != Some(&b'\n') {
                break;
            }
            let Ok(update) = serde_json::from_slice(&line) else {
                break;
            };
            whole += length as u64;
            apply(update);
        }
        file.set_len(whole)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self {
            file: BufWriter::with_capacity(1 << 16, file),
        })
    }

    /// Appends one update; it reaches the file with the next [`Journal::flush`].
    pub fn append(&mut self, update: &Update) -> io::Result<()> {
        serde_json::to_writer(&mut self.file, update)?;
        self.file.write_all(b"\n")
    }

    /// Hands what was appended to the kernel.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
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
}
