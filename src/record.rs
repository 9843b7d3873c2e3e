//! The record of what the agent wrote to its terminal: `output.cast`, asciicast version 2
//! (<https://docs.asciinema.org/manual/asciicast/v2/>), playable by any player and exact to the
//! byte. Owns the file's format, its bound and its reading; never interprets what is in it.
//!
//! ```text
//! {"version":2,"width":80,"height":24,"timestamp":1767225600,"env":{"TERM":"xterm-256color"}}
//! [0.012345,"o","text as it came"]        what players show
//! [0.5,"r","120x40"]                      the terminal has another size
//! [0.7,"s","err"]                         what follows is standard error ("out": is not), pipes only
//! [0.9,"b","/w=="]                        bytes that are not UTF-8, in base64 ...
//! [0.9,"o","\ufffd"]                      ... and what players show for them
//! [1.0,"m","output cut"]                  a mark; after this one nothing more is recorded
//! ```
//!
//! Players ignore events they do not know (`s`, `b`), so both streams and broken bytes are shown,
//! and the bytes are still exact for whoever reads with [`OutputRecord::read`]. A character that
//! two portions share is written with the second. Events go to the file as they come, without a
//! buffer and without a sync: a killed server loses none, a crash of the host may tear the end.

mod reader;

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::emulator::unfinished;
use crate::protocol::Stream;
use crate::sandbox::spec::TerminalSize;
pub use reader::{Recorded, RecordedEvent, Recording};

/// Size a record may grow to, in bytes, unless something else is asked for.
pub const DEFAULT_LIMIT: u64 = 64 * 1024 * 1024;

/// The mark that says nothing more was recorded.
pub const CUT_MARK: &str = "output cut";

/// Bytes of output per event at most, so that no line is long.
const PIECE: usize = 8 * 1024;
/// Longest line that is written or read: a piece whose every byte became an escape, twice.
const LINE_LIMIT: u64 = 256 * 1024;

/// Why a record could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file could not be opened or made.
    #[error(
        "cannot open the output record {}: {source}; check the state directory's permissions and space",
        crate::text::visible_path(path)
    )]
    Open {
        /// The record.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file could not be written.
    #[error(
        "cannot write to the output record {}: {source}; the command goes on, this part of its output is not recorded",
        crate::text::visible_path(path)
    )]
    Write {
        /// The record.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is there and is none of ours.
    #[error(
        "{} is not an asciicast recording of version 2; move it away to record anew",
        crate::text::visible_path(path)
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
}

/// A record being written.
#[derive(Debug)]
pub struct OutputRecord {
    path: PathBuf,
    file: File,
    /// Time of the record at `since`, in seconds.
    offset: f64,
    since: Instant,
    size: u64,
    limit: u64,
    /// The stream the last output came from; unknown in a record that is continued.
    stream: Option<Stream>,
    /// First bytes of a character whose rest has not come, per stream.
    tails: [Vec<u8>; 2],
    /// A write failed half-way: the next one begins a line of its own.
    torn: bool,
}

impl OutputRecord {
    /// Makes the record at `path`, readable by its owner only, or goes on with the one that is
    /// there: its times go on, and a torn end is taken off. `limit` bounds the file in bytes;
    /// [`DEFAULT_LIMIT`] is the usual.
    pub fn open(path: &Path, size: TerminalSize, limit: u64) -> Result<Self, RecordError> {
        let open = |source| RecordError::Open {
            path: path.to_owned(),
            source,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(open)?;
        let found = reader::find_end(&mut file).map_err(open)?;
        let mut record = Self {
            path: path.to_owned(),
            file,
            offset: found.time,
            since: Instant::now(),
            size: found.size,
            limit,
            stream: (found.size == 0).then_some(Stream::Out),
            tails: [Vec::new(), Vec::new()],
            torn: false,
        };
        if found.foreign {
            return Err(RecordError::Foreign {
                path: path.to_owned(),
            });
        }
        record.file.set_len(found.size).map_err(open)?;
        record.file.seek(SeekFrom::End(0)).map_err(open)?;
        if found.cut {
            record.limit = 0;
        } else if found.size == 0 {
            let timestamp = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |now| now.as_secs());
            let header = serde_json::json!({
                "version": 2,
                "width": size.cols,
                "height": size.rows,
                "timestamp": timestamp,
                "env": {"TERM": "xterm-256color"},
            });
            record.write(format!("{header}\n").as_bytes())?;
        } else {
            record.resize(size)?;
        }
        Ok(record)
    }

    /// Records `bytes` as they came from `stream`.
    pub fn output(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), RecordError> {
        if self.is_cut() {
            return Ok(());
        }
        let mut joined = std::mem::take(&mut self.tails[index(stream)]);
        let bytes = if joined.is_empty() {
            bytes
        } else {
            joined.extend_from_slice(bytes);
            &joined
        };
        let (whole, tail) = bytes.split_at(bytes.len() - unfinished(bytes));
        self.tails[index(stream)].extend_from_slice(tail);
        self.pieces(stream, whole)
    }

    /// Records that the terminal has another size.
    pub fn resize(&mut self, size: TerminalSize) -> Result<(), RecordError> {
        let size = format!("{}x{}", size.cols, size.rows);
        let mut lines = Vec::new();
        event(&mut lines, self.now(), 'r', &size);
        self.append(&lines)
    }

    /// Sets a mark that players can jump to.
    pub fn mark(&mut self, label: &str) -> Result<(), RecordError> {
        let mut lines = Vec::new();
        event(&mut lines, self.now(), 'm', label);
        self.append(&lines)
    }

    /// Whether the limit was reached and nothing more is recorded.
    pub fn is_cut(&self) -> bool {
        self.limit == 0
    }

    /// Records what was held back of characters that never became whole. Called when the command
    /// has ended; dropping the record does the same as far as it can.
    pub fn finish(&mut self) -> Result<(), RecordError> {
        for stream in [Stream::Out, Stream::Err] {
            let tail = std::mem::take(&mut self.tails[index(stream)]);
            self.pieces(stream, &tail)?;
        }
        Ok(())
    }

    /// Everything recorded of output in the file at `path`, in order. What is torn or damaged is
    /// left out.
    pub fn read(path: &Path) -> Result<Recording, RecordError> {
        Recording::open(path)
    }

    fn pieces(&mut self, stream: Stream, mut bytes: &[u8]) -> Result<(), RecordError> {
        let time = self.now();
        let mut lines = Vec::new();
        while !bytes.is_empty() && !self.is_cut() {
            let mut end = bytes.len().min(PIECE);
            if end < bytes.len() {
                end -= unfinished(&bytes[..end]);
            }
            let (piece, rest) = bytes.split_at(end);
            bytes = rest;
            lines.clear();
            if self.stream != Some(stream) {
                event(&mut lines, time, 's', name(stream));
                self.stream = Some(stream);
            }
            if let Ok(text) = std::str::from_utf8(piece) {
                event(&mut lines, time, 'o', text);
            } else {
                event(&mut lines, time, 'b', &BASE64.encode(piece));
                event(&mut lines, time, 'o', &String::from_utf8_lossy(piece));
            }
            self.append(&lines)?;
        }
        Ok(())
    }

    /// Seconds since the record began. The pause before it was continued does not count.
    fn now(&self) -> f64 {
        self.offset + self.since.elapsed().as_secs_f64()
    }

    fn append(&mut self, lines: &[u8]) -> Result<(), RecordError> {
        if self.is_cut() {
            return Ok(());
        }
        if self.size + lines.len() as u64 > self.limit {
            let mut mark = Vec::new();
            event(&mut mark, self.now(), 'm', CUT_MARK);
            self.write(&mark)?;
            self.limit = 0;
            return Ok(());
        }
        self.write(lines)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        let result = if self.torn {
            self.file.write_all(b"\n")
        } else {
            Ok(())
        }
        .and_then(|()| self.file.write_all(bytes));
        self.torn = result.is_err();
        self.size += bytes.len() as u64;
        result.map_err(|source| RecordError::Write {
            path: self.path.clone(),
            source,
        })
    }
}

impl Drop for OutputRecord {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::warn!(%error, "the last bytes of output are not recorded");
        }
    }
}

fn index(stream: Stream) -> usize {
    match stream {
        Stream::Out => 0,
        Stream::Err => 1,
    }
}

fn name(stream: Stream) -> &'static str {
    match stream {
        Stream::Out => "out",
        Stream::Err => "err",
    }
}

fn event(lines: &mut Vec<u8>, time: f64, code: char, data: &str) {
    // Writing to memory does not fail.
    let _ = write!(lines, "[{time:.6},\"{code}\",");
    let _ = serde_json::to_writer(&mut *lines, data);
    lines.extend_from_slice(b"]\n");
}

#[cfg(test)]
mod tests;
